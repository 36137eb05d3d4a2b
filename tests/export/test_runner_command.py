"""The runner's command line: an answer a line, at once, in UTF-8; and its exit codes."""

import os
import subprocess
import sys
import threading

import pytest

from keras_transformer.export import Runner
from keras_transformer.export import runner as runner_module

MODULE = "keras_transformer.export.runner"


def test_command_line(device, live, texts, run_python):
    done = run_python("-m", MODULE, device.path, *texts[:3], "", package=True)
    assert done.returncode == 0
    assert done.stdout == "".join(text + "\n" for text in [*live.translate(texts[:3]), ""])


def test_lines_from_standard_input(device, live, texts, run_python):
    lines = "".join(f"{text}\n" for text in [*texts[:3], "", texts[3]]) + texts[4]
    done = run_python("-m", MODULE, device.path, package=True, input=lines)
    assert done.returncode == 0
    assert done.stdout.split("\n") == [*live.translate([*texts[:3], "", *texts[3:5]]), ""]


def test_each_line_is_answered_at_once_and_a_closed_pipe_ends_quietly(device, live, repo_root):
    command = [sys.executable, "-m", MODULE, str(device.path)]
    environment = {**os.environ, "PYTHONPATH": str(repo_root)}
    environment.pop("PYTHONUNBUFFERED", None)
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        watchdog = threading.Timer(60, process.kill)  # a line held back would hang the test
        watchdog.start()
        process.stdin.write("ab\n")
        process.stdin.flush()
        assert process.stdout.readline() == live.translate(["ab"])[0] + "\n"
        process.stdout.close()
        process.stdin.write("ab\n" * 3)
        process.stdin.close()
        errors = process.stderr.read()
        watchdog.cancel()
    assert process.returncode == 0
    assert "rror" not in errors


def test_exit_codes(device, tmp_path, capsys, monkeypatch):
    for arguments, code in (([], 2), (["--help"], 0), (["x", "--n-best", "2", "--stream"], 2)):
        with pytest.raises(SystemExit) as end:
            runner_module.main(arguments)
        assert end.value.code == code
        printed = "".join(capsys.readouterr())
        assert "python -m keras_transformer.export.runner" in printed and "FOLDER" in printed
    assert runner_module.main([str(tmp_path), "a"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("runner: error: an exported folder must hold metadata.json")
    assert runner_module.main([str(device.path), "a" * 600]) == 1
    assert "at most `max_source_length` = 512 tokens" in capsys.readouterr().err
    assert runner_module.main([str(device.path), "--threads", "0", "a"]) == 1
    assert "`num_threads` must be a positive integer" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["runner", str(device.path), ""])
    assert runner_module.main() == 0
    assert capsys.readouterr().out == "\n"


def test_options_and_texts_in_any_order(device, live, capsys):
    assert runner_module.main(["--threads", "2", str(device.path), "ab", "c"]) == 0
    assert runner_module.main([str(device.path), "--threads", "1", "ab", "c"]) == 0
    assert runner_module.main([str(device.path), "--", "ab", "-c"]) == 0
    expected = live.translate(["ab", "c", "ab", "c", "ab", "-c"])
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize("threads", [0, -1, True, 1.0, "2", None])
def test_wrong_threads(device, threads):
    with pytest.raises(ValueError, match="`num_threads` must be a positive integer. Received: num"):
        Runner(device.path, num_threads=threads)


def test_input_is_utf8_whatever_the_locale(device, live, run_python, tmp_path, monkeypatch):
    path = tmp_path / "input"
    path.write_bytes("ab\xff c\r\nb".encode("latin-1") + "ａ\n".encode())
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with path.open("rb") as file:
        done = run_python("-m", MODULE, device.path, package=True, stdin=file)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == live.translate(["ab\ufffd c", "bａ"])
