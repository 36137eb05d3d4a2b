"""The runner's command line: an answer a line, at once, in UTF-8; and its exit codes."""

import gzip
import io
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from keras_transformer_runner import Hypothesis, Runner, command
from keras_transformer_runner.sentences import split_text

MODULE = "keras_transformer_runner"


def test_command_line(device, live, texts, run_python):
    done = run_python("-m", MODULE, device.path, *texts[:3], "", package=True)
    assert done.returncode == 0
    assert done.stdout == "".join(text + "\n" for text in [*live.translate(texts[:3]), ""])


def test_lines_from_standard_input(device, live, texts, run_python):
    lines = "".join(f"{text}\n" for text in [*texts[:3], "", texts[3]]) + texts[4]
    done = run_python("-m", MODULE, device.path, package=True, input=lines)
    assert done.returncode == 0
    assert done.stdout.split("\n") == [*live.translate([*texts[:3], "", *texts[3:5]]), ""]


def test_a_whole_text(device, live, fed, capsys):
    runner = Runner(device.path)
    text = "ab c. Dr. B d!\r\n\r\n\tAb\u2028" + "ab cd " * 300 + "\n"
    split = split_text(text, "en", lambda sentence: len(runner.encode(sentence)) <= 512)
    assert split.sentences[:3] == ("ab c.", "Dr. B d!", "Ab") and len(split.sentences) > 4
    expected = split.with_translations(live.translate(list(split.sentences)))
    assert runner.translate_text(text, language="en") == expected
    short = text[:20]
    assert live.translate_text(short, language="en") == runner.translate_text(short, language="en")
    assert runner.translate_text("") == "" and runner.translate_text(" \n") == " \n"
    assert fed(text.encode(), "--text", "--language", "en") == (0, expected, "")
    assert command.main([str(device.path), "--text", "ab c. D", "", "--language=en"]) == 0
    assert capsys.readouterr().out == runner.translate_text("ab c. D") + "\n\n"
    code, _, errors = fed(b"a", "--text", "--language", "english")
    assert code == 1 and "`language` must be a BCP 47 tag" in errors
    with pytest.raises(SystemExit, match="2"):
        command.main([str(device.path), "a", "--language", "en"])
    with pytest.raises(SystemExit, match="2"):
        command.main([str(device.path), "a", "--text", "--stream"])


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
            command.main(arguments)
        assert end.value.code == code
        printed = "".join(capsys.readouterr())
        assert "keras-transformer-run" in printed and "FOLDER" in printed
    assert command.main([str(tmp_path), "a"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(
        "keras-transformer-run: error: an exported folder must hold metadata.json"
    )
    assert command.main([str(device.path), "a" * 600]) == 1
    assert "error: a source must have at most `max_source_length` = 512" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab\n" + b"a" * 600)))
    assert command.main([str(device.path)]) == 1
    out, err = capsys.readouterr()
    assert out.count("\n") == 1 and "error: line 2: a source must have at most `max_source" in err
    assert command.main([str(device.path), "--threads", "0", "a"]) == 1
    assert "`num_threads` must be a positive integer" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["runner", str(device.path), ""])
    assert command.main() == 0
    assert capsys.readouterr().out == "\n"


def test_options_and_texts_in_any_order(device, live, capsys):
    assert command.main(["--threads", "2", str(device.path), "ab", "c"]) == 0
    assert command.main([str(device.path), "--threads", "1", "ab", "c"]) == 0
    assert command.main([str(device.path), "--", "ab", "-c"]) == 0
    expected = live.translate(["ab", "c", "ab", "c", "ab", "-c"])
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize("threads", [0, -1, True, 1.0, "2", None])
def test_wrong_threads(device, threads):
    with pytest.raises(ValueError, match="`num_threads` must be a positive integer. Received: num"):
        Runner(device.path, num_threads=threads)


def test_input_is_utf8_whatever_the_locale(device, live, run_python, tmp_path, monkeypatch):
    path = tmp_path / "input"
    path.write_bytes("\ufeffab c\r\nbａ\n".encode())
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with path.open("rb") as file:
        done = run_python("-m", MODULE, device.path, package=True, stdin=file)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == live.translate(["ab c", "bａ"])


# --- The input is read as `translate` reads it, and a line stays a line ---------------------


@pytest.fixture
def fed(device, monkeypatch, capsys):
    """Runs the command on bytes of standard input; gives code, output and errors."""

    def run(content, *options):
        raw = None if content is None else io.BufferedReader(io.BytesIO(content))
        monkeypatch.setattr(sys, "stdin", raw and io.TextIOWrapper(raw))
        code = command.main([str(device.path), *options])
        return code, *capsys.readouterr()

    return run


def test_gzip_and_a_byte_order_mark(fed, live):
    for content in (gzip.compress(b"ab\r\nc"), b"\xef\xbb\xbfab\nc\n"):
        code, out, _ = fed(content)
        assert code == 0 and out.splitlines() == live.translate(["ab", "c"])


@pytest.mark.parametrize(
    "content, message",
    [
        (b"ab\nab\xff c\n", "text must be UTF-8. Received: standard input, line 2: "),
        ("ab\n".encode("utf-16"), "text must be UTF-8. Received: standard input, which is UTF-16"),
        (
            gzip.compress(b"ab\n" * 9, mtime=0)[:-9],
            "a gzip file must be complete. Received: standard input",
        ),
        (b"", "there must be at least one line. Received: standard input is empty"),
        (None, "standard input must be open to be read. Received: a closed one"),
    ],
)
def test_input_that_cannot_be_read(fed, content, message):
    code, _, err = fed(content)
    assert code == 1
    (line,) = err.splitlines()
    assert line.startswith(f"keras-transformer-run: error: {message}")


def test_answers_stay_lines_and_columns(fed, monkeypatch):
    text = "a\nb\tc\r\x0bd\x85e"
    found = [Hypothesis(text, (5, 3), -1.0, False)] * 2
    monkeypatch.setattr(Runner, "translate", lambda self, texts: [text] * len(texts))
    monkeypatch.setattr(Runner, "translate_with_details", lambda self, texts, n_best: [found])
    monkeypatch.setattr(Runner, "stream", lambda self, one: iter(text))
    assert fed(b"x\ny\n")[1] == "a b\tc  d e\n" * 2
    assert fed(b"x\n", "--stream")[1] == "a b\tc  d e\n"
    assert fed(b"x\ny\n", "--n-best", "2")[1] == "-1.0000\ta b c  d e\n" * 4


def test_labels_stay_on_a_line(fed, monkeypatch):
    monkeypatch.setattr(Runner, "classify", lambda self, texts: [np.array([0.25, 0.75], "float32")])
    start = Runner.__init__

    def init(self, *arguments, **options):
        start(self, *arguments, **options)
        self.metadata |= {"signature": "classify", "labels": ["a", "b\nc"]}

    monkeypatch.setattr(Runner, "__init__", init)
    assert fed(b"x\n")[1] == "b c:0.7500\n"


def test_any_other_error_is_a_line(fed, monkeypatch):
    def translate(self, texts):
        raise KeyError("x")

    monkeypatch.setattr(Runner, "translate", translate)
    code, _, err = fed(b"x\n")
    line = "keras-transformer-run: error: KeyError: 'x' (not expected: --traceback shows where)\n"
    assert (code, err) == (1, line)
    with pytest.raises(KeyError):
        fed(b"x\n", "--traceback")


def test_threads_have_a_bound(fed, device):
    code, _, err = fed(b"x\n", "--threads", "100000")
    assert code == 1
    assert (
        err == "keras-transformer-run: error: `num_threads` must be at most 256. Received: 100000\n"
    )
    with pytest.raises(ValueError, match="`num_threads` must be at most 256. Received: 257"):
        Runner(device.path, num_threads=257)


def test_a_folder_of_another_kind_is_named(tmp_path, capsys):
    (tmp_path / "experiment.toml").touch()
    assert command.main([str(tmp_path), "a"]) == 1
    assert "which is a run folder of `train`" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux")
def test_streams_that_are_closed_or_full(device, repo_root):
    def run(redirected):
        return subprocess.run(
            ["sh", "-c", f'"$0" -m {MODULE} "$1" ab {redirected}', sys.executable, device.path],
            env={**os.environ, "PYTHONPATH": str(repo_root)},
            capture_output=True,
            text=True,
        )

    done = run(">&-")
    assert done.returncode == 1 and "standard output must be open for the answer" in done.stderr
    done = run("> /dev/full")
    *_, line = done.stderr.splitlines()  # behind what LiteRT says
    assert done.returncode == 1
    assert line.startswith(
        "keras-transformer-run: error: standard output must take what is written. Received: [E"
    )
    done = run("--threads 0 2>&-")
    assert (done.returncode, done.stdout) == (1, "")
