"""Kits: what is in them, that they need nothing outside of them, that nothing of others is lost."""

import json
import os
import re
import shutil
import subprocess

import pytest
from page import write_export

from keras_transformer import kits
from keras_transformer.artifacts import DESCRIPTION
from keras_transformer.command import cli
from keras_transformer.kits import KITS, new_kit
from keras_transformer.kits.contents import LEFTOVERS, kit_files
from keras_transformer_runner.integrity import checksum, sealed

GOES_UP = re.compile(r"(?<![\w}$/.-])((?:\.\./)+[\w./*-]*)")
# What is looked for where a clone has it, or lies in the package that the kit makes.
NOT_OF_THE_KIT = {"../../keras_transformer_runner", "../wasm_library.js"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Every kit by its name."""
    folder = tmp_path_factory.mktemp("kits")
    for name in KITS:
        new_kit(name, folder / name)
    return {name: folder / name for name in KITS}


def files_below(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def names_below(folder):
    return {path.relative_to(folder).as_posix() for path in files_below(folder)}


def saved_model(folder, *versions):
    for version in versions:
        (folder / version / "variables").mkdir(parents=True)
        (folder / version / "saved_model.pb").write_text(f"version {version}")
        (folder / version / "variables" / "variables.index").write_text(version)
    return folder


# --- What is in them -----------------------------------------------------------------------


@pytest.mark.parametrize("name", KITS)
def test_a_kit_is_what_is_tracked(name, written, repo_root):
    """Nothing that building has left behind, and all that is worked on."""
    if not (repo_root / ".git").exists():
        pytest.skip("needs a clone, for the list of its files")
    kit = KITS[name]
    command = ["git", "ls-files", kit.place]
    listed = subprocess.run(command, cwd=repo_root, capture_output=True, text=True, check=True)
    tracked = {line.removeprefix(f"{kit.place}/") for line in listed.stdout.splitlines()}
    parts = tuple(f"{each}/" for each in kit.without)
    tracked = {each for each in tracked if each not in kit.without and not each.startswith(parts)}
    shared = {f"shared/{each}" for each in kit.shared}
    assert names_below(written[name]) == tracked | shared | {"LICENSE"}


@pytest.mark.parametrize("name", KITS)
def test_a_kit_brings_its_readme_and_licences(name, written):
    assert (written[name] / KITS[name].readme).is_file()
    assert "Apache License" in (written[name] / "LICENSE").read_text("utf-8")
    assert (written[name] / "THIRD_PARTY.md").is_file() or name == "examples"
    for shared in KITS[name].shared:
        assert (written[name] / "shared" / shared).stat().st_size


def test_leftovers_stay_out(tmp_path, repo_root):
    place = tmp_path / "export" / "native"
    shutil.copytree(repo_root / "export" / "native", place)
    before = [*kit_files(KITS["android"], tmp_path)]
    for name in ("build", "build-arm64", "litert", "android/.gradle", "android/app/build/x"):
        (place / name).mkdir(parents=True, exist_ok=True)
        (place / name / "left.txt").touch()
    (place / "android" / "local.properties").touch()
    (place / "android" / "app" / "src" / "main" / "assets").mkdir()
    (place / "android" / "app" / "src" / "main" / "assets" / "model.tflite").touch()
    assert [*kit_files(KITS["android"], tmp_path)] == before


def test_leftovers_are_what_the_folders_ignore(repo_root):
    for ignored in (repo_root / "export").rglob(".gitignore"):
        for line in ignored.read_text("utf-8").split():
            assert line.strip("/").split("/")[-1] in LEFTOVERS, f"{ignored}: {line}"


def test_files_can_be_run_and_changed_as_they_were(tmp_path, repo_root, monkeypatch):
    """An installation may be read-only."""
    place = tmp_path / "root" / "export"
    shutil.copytree(repo_root / "export" / "native", place / "native")
    for path in files_below(place):
        path.chmod(path.stat().st_mode & ~0o222)
    monkeypatch.setattr(kits, "_HERE", tmp_path / "root" / "keras_transformer" / "kits")
    new_kit("native", tmp_path / "kit")
    assert all(
        os.access(path, os.W_OK) and path.stat().st_mode & 0o200
        for path in files_below(tmp_path / "kit")
    )
    runnable = {path.name for path in files_below(tmp_path / "kit") if path.stat().st_mode & 0o111}
    assert runnable == {"arm64_root.sh"}


# --- That they need nothing else -----------------------------------------------------------


@pytest.mark.parametrize("name", KITS)
def test_no_path_leads_out_of_a_kit(name, written):
    kit = written[name].resolve()
    for path in files_below(kit):
        if path.suffix in {".svg", ".txt"} and path.name != "CMakeLists.txt":
            continue
        for found in set(GOES_UP.findall(path.read_text("utf-8"))) - NOT_OF_THE_KIT:
            assert (path.parent / found).resolve().is_relative_to(kit), f"{path}: {found}"


@pytest.mark.parametrize("name", KITS)
def test_links_of_a_kit_lead_to_its_files(name, written):
    for page in written[name].rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8")):
            is_made = target.startswith("vendor/")  # by `npm pack`
            assert is_made or (page.parent / target).exists(), f"{page}: {target}"


def test_what_is_shipped_of_others_is_named(written):
    lock = json.loads((written["web"] / "package-lock.json").read_text("utf-8"))["packages"]
    page = (written["web"] / "THIRD_PARTY.md").read_text("utf-8")
    for name in lock[""]["dependencies"]:
        assert f"{name} {lock[f'node_modules/{name}']['version']}" in page
    for name in lock[""]["devDependencies"]:
        assert name in page
    for line in (written["web"] / "licenses" / "notices.txt").read_text("utf-8").splitlines():
        if found := re.fullmatch(r"([\w ]+?)(?: and (\w+))?, .*WebAssembly", line):
            assert all(part in page for part in found.groups() if part), line
    gradle = (written["android"] / "android" / "app" / "build.gradle.kts").read_text("utf-8")
    page = (written["android"] / "THIRD_PARTY.md").read_text("utf-8")
    for artifact in re.findall(r'implementation\("[\w.]+:([\w-]+):', gradle):
        assert artifact in page


# --- With an export ------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in KITS if name not in ("serving", "examples")])
def test_a_folder_lies_where_the_kit_wants_it(name, tmp_path):
    folder = write_export(tmp_path / "exported")
    (folder / "notes.txt").write_text("not of the export")
    new_kit(name, tmp_path / "kit", folder)
    place = tmp_path / "kit" / KITS[name].model
    assert names_below(place) == names_below(folder) - {"notes.txt"}
    assert (place / "model.tflite").read_bytes() == (folder / "model.tflite").read_bytes()


def test_a_server_gets_the_newest_version(tmp_path):
    folder = saved_model(tmp_path / "translator", "2", "10")
    new_kit("serving", tmp_path / "kit", folder)
    served = tmp_path / "kit" / "models" / "translator"
    assert names_below(served) == {"10/saved_model.pb", "10/variables/variables.index"}
    compose = (tmp_path / "kit" / "compose.yaml").read_text("utf-8")
    assert "${MODELS:-./models}/translator:/models/translator" in compose
    new_kit("serving", tmp_path / "of_a_version", folder / "2")
    assert (tmp_path / "of_a_version/models/translator/2/saved_model.pb").is_file()


def test_a_version_may_be_a_link(tmp_path, monkeypatch):
    stored = saved_model(tmp_path / "store", "1")
    folder = tmp_path / "translator"
    folder.mkdir()
    (folder / "3").symlink_to((stored / "1").rename(stored / "of-may"))
    new_kit("serving", tmp_path / "kit", folder)
    assert (tmp_path / "kit/models/translator/3/saved_model.pb").is_file()
    monkeypatch.chdir(saved_model(tmp_path / "here", "4") / "4")
    new_kit("serving", tmp_path / "of_here", ".")
    assert (tmp_path / "of_here/models/translator/4/saved_model.pb").is_file()


def test_a_folder_of_another_kind_is_named(tmp_path):
    device, model = write_export(tmp_path / "device"), saved_model(tmp_path / "model", "1")
    target = tmp_path / "kit"
    with pytest.raises(FileNotFoundError, match="which is a LiteRT folder of `export`"):
        new_kit("serving", target, device)
    with pytest.raises(FileNotFoundError, match="which is a SavedModel of `export`"):
        new_kit("native", target, model)
    with pytest.raises(FileNotFoundError, match="no-such-place, which does not exist"):
        new_kit("serving", target, tmp_path / "no-such-place")
    with pytest.raises(ValueError, match="the kit `examples` must be written without a folder"):
        new_kit("examples", target, device)
    assert not target.exists()


def test_a_damaged_folder_is_told(tmp_path):
    folder = write_export(tmp_path / "exported")
    (folder / "model.tflite").write_bytes(b"nodel")
    with pytest.raises(ValueError, match=r"model\.tflite"):
        new_kit("native", tmp_path / "kit", folder)
    model = saved_model(tmp_path / "model", "1") / "1"
    hashes = {"saved_model.pb": checksum(model / "saved_model.pb")}
    facts = {"signatures": {}, "bounds": {}, "requires": {}, "latency": [], "sha256": hashes}
    (model / DESCRIPTION).parent.mkdir()
    (model / DESCRIPTION).write_text(json.dumps(sealed(facts)))
    new_kit("serving", tmp_path / "whole", model.parent)
    (model / "saved_model.pb").write_text("version 2")
    with pytest.raises(ValueError, match=r"saved_model\.pb"):
        new_kit("serving", tmp_path / "kit", model.parent)
    assert not (tmp_path / "kit").exists()


def test_a_browser_needs_fixed_lengths(tmp_path):
    folder = write_export(tmp_path / "exported", lengths=None, open_length=None)
    with pytest.raises(ValueError, match="a browser needs a folder with fixed lengths"):
        new_kit("web", tmp_path / "kit", folder)


def test_a_kit_lies_outside_the_folder_it_takes(tmp_path):
    folder = write_export(tmp_path / "exported")
    before = names_below(tmp_path)
    with pytest.raises(ValueError, match="a kit must lie outside the folder it takes"):
        new_kit("native", folder / "kit", folder)
    assert names_below(tmp_path) == before


# --- That nothing is lost or half-written --------------------------------------------------


def test_a_folder_with_anything_in_it_is_left_alone(tmp_path):
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / ".hidden").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("kit", "file"):
        with pytest.raises(FileExistsError, match="a kit needs a new folder"):
            new_kit("serving", tmp_path / name)
    assert names_below(tmp_path) == {"kit/.hidden", "file"}


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "kit").mkdir()
    assert new_kit("serving", tmp_path / "kit") is KITS["serving"]
    assert (tmp_path / "kit" / "client.py").is_file()


def test_what_fails_leaves_nothing(tmp_path, monkeypatch):
    copy, copied = kits._copy, []

    def full_after_three(source, target):
        if len(copied) == 3:
            raise OSError(28, "No space left on device")
        copied.append(target)
        copy(source, target)

    monkeypatch.setattr(kits, "_copy", full_after_three)
    with pytest.raises(OSError, match="No space left"):
        new_kit("serving", tmp_path / "new" / "kit")
    assert len(copied) == 3 and not [*tmp_path.iterdir()]


def test_a_kit_that_there_is_not(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="a kit must be one of web, serving, .*'windows'"):
        new_kit("windows", tmp_path / "kit")
    monkeypatch.setattr(kits, "_HERE", tmp_path / "keras_transformer" / "kits")
    with pytest.raises(FileNotFoundError, match="without export/web"):
        new_kit("web", tmp_path / "kit")


# --- By the command ------------------------------------------------------------------------


def test_the_command_says_where_to_go_on(tmp_path, capsys):
    folder = write_export(tmp_path / "exported")
    target = tmp_path / "app"
    assert cli.main(["new", "android", str(target), "--folder", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{target}: {KITS['android'].what}, with {folder} in {KITS['android'].model}",
        f"{target}/android/README.md has the first commands",
    ]
    assert cli.main(["new", "android", str(target)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("keras-transformer: error: a kit needs a new folder. Received: ")


def test_the_command_lists_them(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["new", "--list"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*KITS]


@pytest.mark.parametrize("wrong", [[], ["windows", "kit"], ["web"], ["examples", "a", "--folder"]])
def test_a_wrong_call_is_told(wrong, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["new", *wrong])
    assert "error: " in capsys.readouterr().err and not [*tmp_path.iterdir()]
