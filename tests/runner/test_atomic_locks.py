"""One process at a time writes a target, and what dead ones left is removed."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from keras_transformer_runner import atomic
from keras_transformer_runner.atomic import (
    TargetInUseError,
    check_unheld,
    locked,
    new_folder,
    scratch_folder,
    write_file,
    write_text,
)


def everything_in(path):
    return sorted(entry.relative_to(path).as_posix() for entry in path.rglob("*"))


def run_elsewhere(code, *arguments):
    """A process that runs `code`, once it has printed a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline().strip()


HOLD = """
import sys, time
from keras_transformer_runner.atomic import locked, new_folder, write_file
def half(path):
    path.write_text("half")
    print(path, flush=True)
    time.sleep(600)
if sys.argv[2] == "file":
    write_file(sys.argv[1], half)
else:
    with new_folder(sys.argv[1], replaces={"old"}) as folder:
        half(folder / "half")
"""


def test_the_second_is_refused_and_told_who_holds_it(tmp_path):
    with locked(tmp_path / "model"), pytest.raises(TargetInUseError) as caught:
        new_folder(tmp_path / "model").__enter__()
    assert f"which is being written by process {os.getpid()} on " in str(caught.value)
    assert "one process at a time may write a target. Received: " in str(caught.value)
    with locked(tmp_path / "model"):  # and free again
        pass
    assert everything_in(tmp_path) == []


def test_another_process_is_refused(tmp_path):
    process, _ = run_elsewhere(HOLD, tmp_path / "model", "folder")
    try:
        with pytest.raises(TargetInUseError, match=f"written by process {process.pid} on "):
            new_folder(tmp_path / "model").__enter__()
        with new_folder(tmp_path / "other"):  # a neighbour is free
            pass
    finally:
        process.kill()
        process.communicate()


def test_a_lock_that_is_not_signed_yet(tmp_path):
    with locked(tmp_path / "model"):
        (tmp_path / ".model.lock").write_text("")
        with pytest.raises(TargetInUseError, match="written by another process$"):
            locked(tmp_path / "model").__enter__()


def test_the_second_of_two_files_waits(tmp_path):
    inside, order = threading.Event(), []

    def slowly(path):
        inside.set()
        path.write_text("first")
        order.append("first")

    with locked(tmp_path / "file"):
        thread = threading.Thread(target=write_file, args=(tmp_path / "file", slowly))
        thread.start()
        assert not inside.wait(0.1)
        order.append("holder")
    thread.join()
    assert order == ["holder", "first"] and everything_in(tmp_path) == ["file"]


def test_many_writers_of_one_file_leave_one_of_theirs(tmp_path):
    texts = [f"{number}" * 10_000 for number in range(8)]
    threads = [threading.Thread(target=write_text, args=(tmp_path / "f", text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "f").read_text() in texts
    assert everything_in(tmp_path) == ["f"]


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_a_dead_process_left_is_removed(tmp_path, what):
    target = tmp_path / "model"
    process, half = run_elsewhere(HOLD, target, what)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert pathlib.Path(half).read_text() == "half" and len(everything_in(tmp_path)) > 1
    (tmp_path / ".1f00ba47.writing.model2").touch()  # a neighbour's
    (tmp_path / ".model.1f00ba47.tmp").touch()  # of whoever
    if what == "file":
        write_text(target, "whole")
    else:
        with new_folder(target) as folder:
            (folder / "whole").touch()
    made = ["model"] if what == "file" else ["model", "model/whole"]
    others = [".1f00ba47.writing.model2", ".model.1f00ba47.tmp"]
    assert everything_in(tmp_path) == others + made


def test_killed_when_all_was_done(tmp_path):
    """The lock alone is left, and the next run has nothing to do but to say so."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "whole").touch()
    (tmp_path / ".model.lock").write_text("{}")
    with pytest.raises(FileExistsError, match="needs a new folder"):
        new_folder(tmp_path / "model").__enter__()
    assert everything_in(tmp_path) == ["model", "model/whole"]


def test_what_a_dead_process_was_replacing_is_put_back(tmp_path):
    (tmp_path / ".1f00ba47.replaced.model").mkdir()
    (tmp_path / ".1f00ba47.replaced.model" / "old").touch()
    with pytest.raises(FileExistsError, match="needs a new folder"), new_folder(tmp_path / "model"):
        pass
    assert everything_in(tmp_path) == ["model", "model/old"]
    (tmp_path / ".1f00ba47.replaced.model").mkdir()
    with locked(tmp_path / "model"):  # here the new one was in its place already
        pass
    assert everything_in(tmp_path) == ["model", "model/old"]


def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    with locked(tmp_path / "model"):
        ready, parent = os.pipe()
        child = os.fork()
        if not child:
            os.close(parent)
            os.read(ready, 1)  # lives on
            os._exit(0)
        os.close(ready)
    try:
        with locked(tmp_path / "model"):
            pass
    finally:
        os.close(parent)
        os.waitpid(child, 0)


def test_a_file_system_that_cannot_lock_gets_a_warning(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(atomic.fcntl, "flock", refuse)
    (tmp_path / ".1f00ba47.writing.text").touch()  # its writer may be alive
    with pytest.warns(UserWarning, match="cannot lock .*Operation not supported"):
        write_text(tmp_path / "text", "a")
    assert everything_in(tmp_path) == [".1f00ba47.writing.text", "text"]


def test_a_folder_for_parts_is_removed_by_the_next_holder(tmp_path):
    with locked(tmp_path / "file") as path:
        with scratch_folder(path) as parts:
            (parts / "1").touch()
            assert parts.parent == tmp_path
        assert not parts.exists()
        dead = scratch_folder(path)
        (dead.__enter__() / "1").touch()
    write_text(tmp_path / "file", "a")
    assert everything_in(tmp_path) == ["file"]


def test_a_target_that_nobody_holds(tmp_path):
    check_unheld(tmp_path / "model" / "1")
    assert everything_in(tmp_path) == []
    with locked(tmp_path / "1"), pytest.raises(TargetInUseError, match="written by process"):
        check_unheld(tmp_path / "1")
    (tmp_path / ".1.lock").touch()  # of the dead
    check_unheld(tmp_path / "1")
    assert everything_in(tmp_path) == []


def test_whoever_holds_a_file_writes_it(tmp_path):
    with locked(tmp_path / "file"):
        write_file(tmp_path / "file", pathlib.Path.touch, lock=False)
    assert everything_in(tmp_path) == ["file"]


def test_a_holder_that_is_about_to_die_is_waited_for(tmp_path):
    """A process of some gigabytes that was killed holds its lock until its memory is freed."""
    holder = locked(tmp_path / "model")
    holder.__enter__()
    timer = threading.Timer(0.1, holder.__exit__, (None, None, None))
    timer.start()
    with locked(tmp_path / "model"):
        pass
    timer.join()
    assert everything_in(tmp_path) == []


@pytest.mark.parametrize("content", ["precious", '{"a": 1}', "{"])
def test_a_file_of_somebody_else_is_no_lock(tmp_path, content):
    theirs = tmp_path / ".model.lock"
    theirs.write_text(content)
    with pytest.raises(FileExistsError, match="this name is for a lock.*/.model.lock, which is no"):
        write_text(tmp_path / "model", "new")
    assert theirs.read_text() == content
    assert everything_in(tmp_path) == [".model.lock"]
