"""Files and folders appear whole or not at all, and one process at a time writes a target."""

import os
import pathlib
import signal
import stat
import subprocess
import sys
import threading

import pytest

from keras_transformer import atomic
from keras_transformer.atomic import TargetInUseError, locked, new_folder, write_file, write_text


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
from keras_transformer.atomic import locked, new_folder, write_file
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


# --- Folders ---------------------------------------------------------------------------------


def test_a_folder_appears_only_when_it_is_whole(tmp_path):
    path = tmp_path / "model"
    with new_folder(path) as folder:
        (folder / "a").write_text("1")
        assert not path.exists()
        assert folder.parent == path.parent  # so that the rename cannot cross file systems
    assert everything_in(tmp_path) == ["model", "model/a"]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_umask_says_who_may_read(tmp_path, umask):
    previous = os.umask(umask)
    try:
        with new_folder(tmp_path / "model"):
            pass
        write_text(tmp_path / "text", "a")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o777 & ~umask
    assert stat.S_IMODE((tmp_path / "text").stat().st_mode) == 0o666 & ~umask


def test_makes_parents_and_takes_strings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with new_folder("a/b/model") as folder:
        assert folder.is_absolute()
    write_text("c/d/text", "a")
    assert everything_in(tmp_path) == ["a", "a/b", "a/b/model", "c", "c/d", "c/d/text"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["model", "a/b/model"])
def test_a_failure_leaves_nothing(tmp_path, error, name):
    with pytest.raises(error), new_folder(tmp_path / name) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "half").write_text("1")
        raise error
    assert everything_in(tmp_path) == []


def test_a_failure_leaves_parents_that_others_use(tmp_path):
    with pytest.raises(ValueError), new_folder(tmp_path / "a" / "b" / "model"):
        (tmp_path / "a" / "other").write_text("1")
        raise ValueError
    assert everything_in(tmp_path) == ["a", "a/other"]


@pytest.mark.parametrize("replaces", [None, {"old", "new"}])
def test_an_empty_folder_is_as_good_as_none(tmp_path, replaces):
    (tmp_path / "model").mkdir()
    with new_folder(tmp_path / "model", replaces=replaces) as folder:
        (folder / "new").touch()
    assert everything_in(tmp_path) == ["model", "model/new"]


def test_what_exists_is_kept(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine").touch()
    with pytest.raises(FileExistsError, match="an export needs a new folder. Received: .*model, w"):
        new_folder(tmp_path / "model", what="an export").__enter__()
    (tmp_path / "file").write_text("precious")
    for replaces in (None, {"file"}):
        with pytest.raises(FileExistsError, match="Received: .*file, which is no folder"):
            new_folder(tmp_path / "file", replaces=replaces).__enter__()
    (tmp_path / "link").symlink_to("nowhere")
    with new_folder(tmp_path / "link"):
        pass
    assert everything_in(tmp_path) == ["file", "link", "model", "model/mine", "nowhere"]


def test_only_known_names_are_replaced(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").write_text("0")
    with new_folder(path, replaces={"old", "new"}) as folder:
        (folder / "new").write_text("1")
        assert (path / "old").exists()  # until the new one is whole
    assert everything_in(tmp_path) == ["model", "model/new"]
    (path / "thesis").write_text("precious")
    with pytest.raises(FileExistsError, match="replaces only what it has made .*holds thesis"):
        new_folder(path, replaces={"old", "new"}).__enter__()
    assert everything_in(tmp_path) == ["model", "model/new", "model/thesis"]


def test_a_failed_replacement_keeps_the_old_one(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").write_text("0")
    with pytest.raises(ValueError), new_folder(path, replaces={"old"}):
        raise ValueError
    assert everything_in(tmp_path) == ["model", "model/old"]


def test_a_failed_rename_puts_the_old_one_back(tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").write_text("0")
    rename = os.rename

    def refuse(source, target):
        if ".writing." not in str(source):
            return rename(source, target)
        raise OSError("disk full")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OSError, match="disk full"), new_folder(path, replaces={"old"}):
        pass
    assert everything_in(tmp_path) == ["model", "model/old"]


def test_what_came_up_meanwhile_is_kept(tmp_path):
    path = tmp_path / "model"
    with pytest.raises(FileExistsError, match="needs a new folder"), new_folder(path):
        path.mkdir()
        (path / "other").write_text("1")
    assert everything_in(tmp_path) == ["model", "model/other"]


def test_a_link_stands_for_what_it_points_at(tmp_path):
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "old").touch()
    (tmp_path / "current").symlink_to("v1")
    with new_folder(tmp_path / "current", replaces={"old"}) as folder:
        (folder / "new").write_text("1")
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").symlink_to("a")
    write_text(tmp_path / "b", "new")
    assert (tmp_path / "current").is_symlink() and (tmp_path / "b").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "current", "v1"]
    assert os.listdir(tmp_path / "v1") == ["new"]
    assert (tmp_path / "a").read_text() == "new"


# --- Files -----------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def fail(temporary):
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(path, fail)
    with monkeypatch.context() as context:
        context.setattr("os.replace", fail)
        with pytest.raises(TypeError):  # of `fail`: nothing but the renaming touches the old file
            write_text(path, "new")
    assert path.read_text() == "old"
    assert everything_in(tmp_path) == ["file.txt"]


def test_the_temporary_file_has_the_suffix(tmp_path):
    names = []
    write_file(tmp_path / "a.weights.h5", lambda path: names.append(path.name) or path.touch())
    assert names[0].endswith(".a.weights.h5") and names[0].startswith(".")


def test_a_file_replaces_nothing_but_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(FileExistsError, match=f"nothing but a file. Received: .*{name}"):
            write_text(tmp_path / name, "a")
    assert everything_in(tmp_path) == ["folder", "pipe"]


# --- Locks -----------------------------------------------------------------------------------


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
