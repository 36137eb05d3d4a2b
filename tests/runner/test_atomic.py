"""Files and folders appear whole or not at all, and only what is known is replaced."""

import errno
import os
import stat

import pytest

from keras_transformer_runner.atomic import new_folder, write_file, write_text


def everything_in(path):
    return sorted(entry.relative_to(path).as_posix() for entry in path.rglob("*"))


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


@pytest.mark.parametrize("other", ["a/thesis", "a/b/c", "a/B", "b/1", "new/1", "a/empty/"])
def test_files_of_folders_are_known_too(tmp_path, other):
    path, options = tmp_path / "model", {"replaces": {"a/b-*", "a/b/*", "new"}, "mark": "new"}
    for name in ("a/b-1", "a/b/", "new"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).mkdir() if name.endswith("/") else (path / name).touch()
    with new_folder(path, **options) as folder:
        (folder / "new").touch()
    (path / "new").unlink()
    (path / "a").mkdir()
    (path / "a" / "b-1").touch()
    with pytest.raises(FileExistsError, match="made itself. .*model, which does not hold new"):
        new_folder(path, **options).__enter__()
    (path / other).parent.mkdir(exist_ok=True)
    (path / other).mkdir() if other in ("a/empty/", "a/b/c") else (path / other).touch()
    with pytest.raises(FileExistsError, match=f"also holds .*{other.strip('/')}"):
        new_folder(path, **options).__enter__()


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


@pytest.mark.parametrize("what", ["file", "hdf5", "folder"])
def test_a_full_disk_is_told_with_the_place(full_disk, tmp_path, what):
    write_text(tmp_path / "file", "old")

    def write(path):
        path.write_bytes(bytes(30_000))

    def write_hdf5(path):
        raise OSError(errno.EFBIG, f"Can't close file (filename = '{path}', buf = 0x55fe1e0874c0)")

    place = tmp_path / ("folder" if what == "folder" else "file")
    with pytest.raises(OSError, match=rf"^\[Errno \d+\] File too large: '{place}'$"):
        if place.name == "file":
            write_file(place, write if what == "file" else write_hdf5)
        else:
            with new_folder(tmp_path / "folder") as folder:
                write(folder / "a")
    assert everything_in(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "old"


def test_a_file_replaces_nothing_but_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(FileExistsError, match=f"nothing but a file. Received: .*{name}"):
            write_text(tmp_path / name, "a")
    assert everything_in(tmp_path) == ["folder", "pipe"]
