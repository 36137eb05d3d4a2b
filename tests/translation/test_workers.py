"""Several processes translate as one does: the same lines, the same errors, nothing left behind."""

import concurrent.futures
import contextlib
import functools
import os
import pathlib
import signal
import subprocess
import sys
import time
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformer.translation import Translation, workers
from keras_transformer.translation.files import FileFormat, translate_file
from keras_transformer.translation.workers import Workers, even_batches


class Reversing:
    """Stands for a translator; `x` is more than it can take, `!` kills its process."""

    batch_size = 4

    def source_ids(self, text):
        if len(text) > 20:
            raise ValueError("a text must have at most 20 letters")
        return list(text)

    def translate(self, texts):
        if "x" in texts:
            raise ValueError("no such letter")
        if "!" in texts:
            os._exit(9)
        return [text[::-1] for text in texts]

    def translate_with_details(self, texts, *, n_best):
        return [
            [Translation(text[::-1], (), -float(n), False) for n in range(n_best)] for text in texts
        ]


class Pool(concurrent.futures.ThreadPoolExecutor):
    """Threads for processes; remembers what it was given, longest first."""

    given = []

    def __init__(self, count, context, start, arguments):
        super().__init__(count)
        workers._Own.make_translator, workers._Own.translator = arguments[0], None

    def submit(self, function, *arguments):
        self.given.append(arguments[1])
        return super().submit(function, *arguments)


@pytest.fixture
def threads(monkeypatch):
    """Workers that are threads of this process; the list of the batches that they get."""
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(workers._Own, "make_translator", None)
    monkeypatch.setattr(workers._Own, "translator", None)
    monkeypatch.setattr(Pool, "given", [])
    return Pool.given


@given(st.lists(st.integers()), st.integers(1, 9), st.integers(1, 5))
def test_batches_are_all_there_in_order_and_no_worker_waits(order, size, count):
    batches = even_batches(order, size, count)
    assert [each for batch in batches for each in batch] == order
    assert all(1 <= len(batch) <= size for batch in batches)
    if len(order) >= size * count:
        assert all(len(batch) == size for batch in batches[:-1])
    elif order:
        assert max(map(len, batches)) == -(-len(order) // count)


@pytest.mark.parametrize("count", [1, 3])
def test_lines_keep_their_order_and_the_longest_go_first(threads, tmp_path, count):
    texts = ["a" * (number * 7 % 19) + "b" for number in range(30)]
    (tmp_path / "in").write_text("".join(f"{text}\n" for text in texts))
    with Workers(Reversing, count) as translator:
        translate_file(translator, tmp_path / "in", tmp_path / "out", window=15)
    assert (tmp_path / "out").read_text().split("\n") == [*(t[::-1] for t in texts), ""]
    assert len(threads) == 8 and all(len(batch) <= 4 for batch in threads)
    for window in (threads[:4], threads[4:]):
        lengths = [len(text) for batch in window for text in reversed(batch)]
        assert lengths == sorted(lengths, reverse=True)


def test_details_and_no_texts_at_all(threads):
    with Workers(Reversing, 2) as translator:
        found = translator.translate_with_details(["ab", "c"], n_best=2)
        assert translator.translate([]) == []
    assert [[(each.text, each.score) for each in row] for row in found] == [
        [("ba", 0.0), ("ba", -1.0)],
        [("c", 0.0), ("c", -1.0)],
    ]


def test_errors_come_as_of_one_process(threads, tmp_path):
    (tmp_path / "in").write_text("a\n" + "b" * 21 + "\n")
    too_long = pytest.raises(ValueError, match="line 2: a text must have at most 20")
    with too_long, Workers(Reversing, 2) as translator:
        translate_file(translator, tmp_path / "in", tmp_path / "out")
    with pytest.raises(ValueError, match="no such letter"), Workers(Reversing, 2) as translator:
        translator.translate(["a", "x"])
    for count in (0, True, 1.5):
        with pytest.raises(ValueError, match="`count` must be a positive integer"):
            Workers(Reversing, count)


def test_a_translator_that_is_there_is_used(threads):
    here = Reversing()
    here.source_ids = lambda text: [] if text == "short" else [0] * 9
    with Workers(Reversing, 1, here) as translator:
        assert translator.source_ids("short") == []
        assert translator.translate(["a", "short"]) == ["a", "trohs"]
    assert threads == [["short", "a"]]


def test_what_starts_in_the_block_inherits_neither_interrupts_nor_a_terminal(capfd):
    script = "import signal, sys; print(signal.pthread_sigmask(0, [])); sys.exit('noise')"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with workers._starting():
        process = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE)
    os.write(2, b"here again")
    assert b"SIGINT" in process.stdout and capfd.readouterr().err == "here again"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before and signal.SIGINT not in before


def started(path):
    """Notes the process and what TensorFlow is told, and makes a translator."""
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    values = [str(os.getpid()), *(os.environ.get(name, "") for name in names)]
    (pathlib.Path(path) / values[0]).write_text(" ".join(values))
    return Reversing()


def gone(process):
    """Whether a process ends within two minutes."""
    for _ in range(1200):
        try:
            if pathlib.Path(f"/proc/{process}/stat").read_text().split()[2] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


def test_real_processes_and_one_that_dies(tmp_path):
    message = "but one has died.* try fewer.*Received: 2 workers"
    two = Workers(functools.partial(started, tmp_path), 2, Reversing())
    with pytest.raises(RuntimeError, match=message), two as translator:
        assert translator.translate(["abc", "", "de"]) == ["cba", "", "ed"]
        notes = [path.read_text().split() for path in tmp_path.iterdir()]
        translator.translate(["!"])
    assert notes and all(note[1:] == ["1", "1"] for note in notes)
    assert str(os.getpid()) not in [note[0] for note in notes]
    assert all(gone(note[0]) for note in notes)


@pytest.mark.slow
def test_workers_where_no_signal_can_be_blocked(tmp_path, monkeypatch, capfd):
    """As on Windows: what a worker does not inherit it does itself."""
    posix = {"pthread_sigmask", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK"}
    windows = {name: getattr(signal, name) for name in dir(signal) if name not in posix}
    monkeypatch.setattr(workers, "signal", types.SimpleNamespace(**windows))
    with Workers(functools.partial(started, tmp_path), 1, Reversing()) as translator:
        assert translator.translate(["abc"]) == ["cba"]
        (note,) = tmp_path.iterdir()
        os.kill(int(note.name), signal.SIGINT)
        assert translator.translate(["de", "f"]) == ["ed", "f"]
    os.write(2, b"here again")
    assert gone(note.name) and capfd.readouterr().err == "here again"


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_command(tmp_path, sent, repo_root):
    """SIGINT goes to all processes, as a terminal sends it."""
    script = tmp_path / "script.py"
    script.write_text(
        "import pathlib, os, signal, sys, time\n"
        "from keras_transformer.translation.workers import Workers\n"
        "class Slow:\n"
        "    batch_size = 1\n"
        "    def source_ids(self, text): return list(text)\n"
        "    def translate(self, texts):\n"
        "        pathlib.Path(sys.argv[1], str(os.getpid())).touch()\n"
        "        time.sleep(900)\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)  # no job in the background\n"
        "    with Workers(Slow, 2, Slow()) as translator:\n"
        "        translator.translate(['a', 'b', 'c'])\n"
    )
    folder = tmp_path / "ids"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, script, folder],
        env={**os.environ, "PYTHONPATH": str(repo_root)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(3000):  # before they are at work, an interrupt meets TensorFlow's import
            if len(found := list(folder.iterdir())) == 2 or process.poll() is not None:
                break
            time.sleep(0.1)
        if sent == signal.SIGINT:
            os.killpg(process.pid, sent)
        else:
            process.send_signal(sent)
        assert process.wait(120) != 0
        assert len(found) == 2 and all(gone(path.name) for path in found)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_form_with_empty_translations(threads, tmp_path):
    (tmp_path / "in").write_text("ab\n" + "b" * 21 + "\ncd\n")
    with Workers(Reversing, 2) as translator:
        form = FileFormat(too_long="skip")
        translate_file(translator, tmp_path / "in", tmp_path / "out", form=form)
    assert (tmp_path / "out").read_text() == "ba\n\ndc\n"
