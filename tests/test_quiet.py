import os
import subprocess
import sys

from keras_transformer.quiet import quiet


def test_nothing_reaches_the_terminal_and_all_comes_back(capfd):
    print("before")
    with quiet():
        print("python")
        print("python", file=sys.stderr)
        os.write(1, b"descriptor 1\n")
        os.write(2, b"descriptor 2\n")
        subprocess.run([sys.executable, "-c", "print('child')"], check=True)
    print("after", file=sys.stderr)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("before\n", "after\n")


def test_an_exception_passes_and_the_terminal_is_back(capfd):
    try:
        with quiet():
            raise KeyError("inside")
    except KeyError:
        os.write(1, b"after\n")
    assert capfd.readouterr().out == "after\n"


def test_tensorflow_starts_without_a_word(repo_root):
    code = "from keras_transformer.quiet import start_tensorflow; start_tensorflow()"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(repo_root)},
        capture_output=True,
        check=True,
    )
    assert (result.stdout, result.stderr) == (b"", b"")
