"""Standard streams that are closed or full, and lines that stay lines."""

import io
import os
import subprocess
import sys

import pytest

from keras_transformer.command import cli
from keras_transformer.translation import Translator

MAIN = "import sys; from keras_transformer_command import main; sys.exit(main())"


def shell(repo_root, line, *values):
    """Runs a line of the shell in which `"$0" -c "$1"` is the command; code, output, errors."""
    done = subprocess.run(
        ["sh", "-c", line, sys.executable, MAIN, *values],
        env={**os.environ, "PYTHONPATH": str(repo_root)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def almost_a_run(tmp_path):
    """What passes for a finished run until its model is loaded."""
    for name in ("experiment.toml", "model.keras"):
        (tmp_path / name).touch()
    return tmp_path


def test_a_closed_standard_input_is_told(repo_root, almost_a_run):
    code, out, err = shell(repo_root, '"$0" -c "$1" translate "$2" <&-', str(almost_a_run))
    assert (code, out) == (1, "")
    assert err == (
        "keras-transformer: error: standard input must be open to be read. Received: a closed one\n"
    )


def test_errors_go_nowhere_else_when_standard_error_is_closed(repo_root, tmp_path):
    path = str(tmp_path / "no")
    assert shell(repo_root, '"$0" -c "$1" translate "$2" x 2>&-', path) == (1, "", "")


def test_an_answer_needs_an_open_standard_output(repo_root, almost_a_run):
    code, _, err = shell(repo_root, '"$0" -c "$1" translate "$2" x >&-', str(almost_a_run))
    assert code == 1
    assert err == (
        "keras-transformer: error: standard output must be open for the answer. "
        "Received: a closed one\n"
    )


def test_closed_streams_do_not_become_files(repo_root, tmp_path):
    """The next file that is opened would have the number of a closed stream."""
    script = (
        "import os, sys; from keras_transformer_runner import streams\n"
        "streams.open_standard_streams()\n"
        "file = open(sys.argv[1], 'wb'); os.write(2, b'x'); os.write(1, b'y'); print('z')\n"
        "print('w', file=sys.stderr); file.close()"
    )
    path = tmp_path / "file"
    subprocess.run(
        ["sh", "-c", '"$0" -c "$1" "$2" >&- 2>&- <&-', sys.executable, script, str(path)],
        env={**os.environ, "PYTHONPATH": str(repo_root)},
        check=True,
    )
    assert path.read_bytes() == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux")
def test_a_full_standard_output_is_one_error(repo_root):
    script = (
        "import sys, keras_transformer_command\n"
        "from keras_transformer.command import cli, commands, inputs\n"
        "commands.translate = lambda arguments: inputs.write_lines(['x'])\n"
        "sys.exit(cli.main(['translate', 'RUN', 'x']))"
    )
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" > /dev/full', sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(repo_root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "error: standard output must take what is written. Received: [Errno 28]" in line


def test_a_line_in_a_line_out(run_dir, tmp_path, capsys, monkeypatch):
    def translate(self, texts):
        return [f"{text}\nb\r\x0bc\x85d" for text in texts]

    monkeypatch.setattr(Translator, "translate", translate)
    path = tmp_path / "in.txt"
    path.write_text("x\ny\nz\n")
    expected = ["x b  c d", "y b  c d", "z b  c d"]
    for source in (["--input", str(path)], ["x", "y", "z"], []):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
        capsys.readouterr()
        assert cli.main(["translate", str(run_dir), *source]) == 0
        assert capsys.readouterr().out.splitlines() == expected
