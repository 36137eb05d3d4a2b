"""Folders appear whole or not at all."""

import os
import stat

import pytest

from keras_transformer.export.folder import new_folder


def everything_in(path):
    return sorted(entry.relative_to(path).as_posix() for entry in path.rglob("*"))


def test_appears_only_when_it_is_whole(tmp_path):
    path = tmp_path / "model"
    with new_folder(path) as folder:
        (folder / "a").write_text("1")
        assert not path.exists()
        assert folder.parent == path.parent  # so that the rename cannot cross file systems
    assert everything_in(tmp_path) == ["model", "model/a"]


def test_others_may_read_it(tmp_path):
    previous = os.umask(0o077)
    try:
        with new_folder(tmp_path / "model"):
            pass
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o755


def test_makes_parents_and_takes_strings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with new_folder("a/b/model") as folder:
        assert folder.is_absolute()
    assert everything_in(tmp_path) == ["a", "a/b", "a/b/model"]


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


@pytest.mark.parametrize("make", ["mkdir", "touch"])
def test_what_exists_is_kept(tmp_path, make):
    getattr(tmp_path / "model", make)()
    with pytest.raises(FileExistsError, match="needs a new folder. Received: .*model, which ex"):
        new_folder(tmp_path / "model").__enter__()
    assert everything_in(tmp_path) == ["model"]


def test_overwrite_replaces_all_of_it(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").write_text("0")
    with new_folder(path, overwrite=True) as folder:
        (folder / "new").write_text("1")
        assert (path / "old").exists()  # until the new one is whole
    assert everything_in(tmp_path) == ["model", "model/new"]


def test_a_failed_overwrite_keeps_the_old_one(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").write_text("0")
    with pytest.raises(ValueError), new_folder(path, overwrite=True):
        raise ValueError
    assert everything_in(tmp_path) == ["model", "model/old"]


def test_a_failed_rename_puts_the_old_one_back(tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").write_text("0")
    rename = os.rename

    def refuse(source, target):
        if str(source).endswith(".old") or str(target).endswith(".old"):
            return rename(source, target)
        raise OSError("disk full")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OSError, match="disk full"), new_folder(path, overwrite=True):
        pass
    assert everything_in(tmp_path) == ["model", "model/old"]


def test_overwrite_replaces_no_file(tmp_path):
    (tmp_path / "model").write_text("precious")
    with pytest.raises(FileExistsError, match="which exists and is not a folder"):
        new_folder(tmp_path / "model", overwrite=True).__enter__()
    assert (tmp_path / "model").read_text() == "precious"


def test_what_came_up_meanwhile_is_kept(tmp_path):
    path = tmp_path / "model"
    with pytest.raises(FileExistsError, match="needs a new folder"), new_folder(path):
        path.mkdir()
        (path / "other").write_text("1")
    assert everything_in(tmp_path) == ["model", "model/other"]


def test_a_link_stands_for_its_folder(tmp_path):
    (tmp_path / "v1").mkdir()
    (tmp_path / "current").symlink_to("v1")
    with new_folder(tmp_path / "current", overwrite=True) as folder:
        (folder / "new").write_text("1")
    assert (tmp_path / "current").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["current", "v1"]
    assert os.listdir(tmp_path / "v1") == ["new"]
