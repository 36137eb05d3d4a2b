"""The script that builds a site of export/web: what it reads, replaces, carries. Needs Node 20."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest
from page import WEB, build, node, packed_files, write_export

# --- What is read --------------------------------------------------------------------------


@pytest.fixture
def packages():
    if not (WEB / "node_modules").is_dir():
        pytest.skip("no packages in export/web: export/web/test.sh installs them")


NEEDS_PACKAGES = pytest.mark.usefixtures("packages")


@pytest.fixture
def fake_export(tmp_path):
    return write_export(tmp_path / "export")


def fails(folder, out, message, *options):
    done = build(folder, out, *options)
    assert done.returncode == 1
    assert message in done.stderr and "    at " not in done.stderr, done.stderr
    left = [path.name for path in out.parent.iterdir() if out.name in path.name]
    assert left in ([], [out.name])


def test_a_bad_export_makes_no_site(fake_export, tmp_path):
    out = tmp_path / "site"
    fails(tmp_path, out, "EXPORTED_FOLDER must hold metadata.json. Received: ENOENT")
    (fake_export / "model.tflite").write_bytes(b"modem")
    fails(fake_export, out, "model.tflite is damaged or belongs to another export")
    (fake_export / "model.tflite").unlink()
    fails(fake_export, out, "EXPORTED_FOLDER must hold model.tflite. Received: ENOENT")


def test_a_site_needs_fixed_lengths(tmp_path):
    folder = write_export(tmp_path / "export", lengths=None, open_length=None)
    fails(folder, tmp_path / "site", "must have signatures of fixed lengths, as LiteRT.js cannot")


# --- What is replaced ----------------------------------------------------------------------


def files_below(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@NEEDS_PACKAGES
def test_only_a_site_is_replaced(fake_export, tmp_path):
    out = tmp_path / "site"
    out.mkdir()
    (out / "mine").write_text("x")
    fails(fake_export, out, "OUT must not exist, or --overwrite be given")
    fails(fake_export, out, "only a site as build.mjs has made it", "--overwrite")
    assert files_below(out) == {"mine": b"x"}
    shutil.rmtree(out)
    assert build(fake_export, out, "--title", "One").returncode == 0
    made = files_below(out)
    (out / "model" / "mine").write_text("x")
    fails(fake_export, out, "and model/mine is not of the site", "--overwrite")
    (out / "model" / "mine").unlink()
    (out / "style.css").write_text("mine")
    fails(fake_export, out, "and style.css has been changed", "--overwrite")
    (out / "style.css").write_bytes(made["style.css"])
    (out / "files.json").write_text("{")
    fails(fake_export, out, "and its files.json is damaged", "--overwrite")
    (out / "files.json").write_text('{"sha256": {}}')
    fails(fake_export, out, "and its files.json is not of build.mjs", "--overwrite")
    (out / "files.json").write_bytes(made["files.json"])
    (fake_export / "model.tflite").write_bytes(b"modem")
    fails(fake_export, out, "is damaged", "--overwrite")
    assert files_below(out) == made
    (fake_export / "model.tflite").write_bytes(b"model")
    (tmp_path / "link").symlink_to(out)
    assert build(fake_export, tmp_path / "link", "--title", "Two", "--overwrite").returncode == 0
    assert json.loads((out / "site.json").read_text())["title"] == "Two"
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export", "link", "site"]


@NEEDS_PACKAGES
@pytest.mark.parametrize("place", ["", ".", "..", "../.."])
def test_what_is_read_is_never_replaced(place, tmp_path):
    (tmp_path / "a").mkdir()
    folder = write_export(tmp_path / "a" / "export")
    before = files_below(tmp_path)
    fails(folder, folder / place, "OUT must be neither a folder that is read", "--overwrite")
    fails(folder, folder / "site", "OUT must be neither a folder that is read")
    assert files_below(tmp_path) == before


@pytest.fixture
def web(tmp_path):
    """A copy of export/web, with its packages and what it reads of the runner's."""
    web = tmp_path / "kit" / "export" / "web"
    ignored = shutil.ignore_patterns("playwright-core", "typescript", "esbuild-wasm")
    shutil.copytree(WEB, web, ignore=ignored)
    runner = tmp_path / "kit" / "keras_transformer_runner"
    runner.mkdir()
    for name in ("abbreviations.json", "UNICODE_LICENSE"):
        shutil.copy(WEB.parents[1] / runner.name / name, runner)
    return web


@NEEDS_PACKAGES
def test_the_page_itself_is_never_replaced(fake_export, web):
    before = files_below(web)
    for out in (web / "site", web, web.parent, web / "node_modules" / "@litertjs" / "core"):
        done = node(web / "build.mjs", fake_export, out, "--overwrite")
        assert "OUT must be neither a folder that is read, nor in one" in done.stderr
    assert files_below(web) == before


@NEEDS_PACKAGES
def test_a_killed_build_leaves_nothing_for_long(fake_export, tmp_path):
    out = tmp_path / "site"
    assert build(fake_export, out).returncode == 0
    made = files_below(out)
    for wait in (0.05, 0.08, 0.12, 0.2):
        for stop in (signal.SIGKILL, signal.SIGTERM):
            command = ["node", WEB / "build.mjs", fake_export, out, "--overwrite"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            time.sleep(wait)
            process.send_signal(stop)
            process.communicate()
            assert not out.exists() or files_below(out) == made  # moved away and not back, at worst
            if stop == signal.SIGTERM:
                assert files_below(out) == made
                assert not [*tmp_path.glob(f".site.build-*-{process.pid}")]
    assert build(fake_export, out, "--overwrite").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export", "site"]
    # Killed between the two renames: the next one, even if it fails, puts the older site back.
    old = tmp_path / f".site.build-{socket.gethostname()}-{process.pid}"
    old.mkdir()
    out.rename(old / "old")
    foreign = [tmp_path / ".site.build-notes", tmp_path / ".site.build-elsewhere-7"]
    for folder in foreign:
        folder.mkdir()
    fails_with = build(fake_export, out)
    assert "OUT must not exist, or --overwrite" in fails_with.stderr
    assert files_below(out) == made and not old.exists()
    assert all(folder.is_dir() for folder in foreign)  # of another machine, or no build's


@NEEDS_PACKAGES
def test_a_site_carries_the_licences_of_what_it_contains(fake_export, tmp_path):
    out = tmp_path / "site"
    assert build(fake_export, out).returncode == 0
    text = (out / "translator" / "vendor" / "licenses.txt").read_text("utf-8")
    lock = json.loads((WEB / "package-lock.json").read_text())["packages"]
    for name in ("@litertjs/core", "@agnai/sentencepiece-js"):
        package = lock[f"node_modules/{name}"]
        assert f"{name} {package['version']}: {package['license']}, " in text
    for words in (
        ("Apache License", "END OF TERMS AND CONDITIONS"),
        ("Mozilla Public License Version 2.0", "Exhibit A - Source Code Form License Notice"),
        ("XNNPACK", "Redistributions in binary form must reproduce the above copyright notice"),
        ("Unicode CLDR", "UNICODE LICENSE V3"),
        ("Emscripten", "The above copyright notice and this permission notice shall be included"),
    ):
        assert all(word in text for word in words)
    assert '<a href="translator/vendor/licenses.txt">' in (out / "index.html").read_text("utf-8")


@NEEDS_PACKAGES
def test_a_package_without_a_licence_is_not_shipped(fake_export, web, tmp_path):
    package = web / "node_modules" / "@litertjs" / "core" / "package.json"
    package.write_text(package.read_text().replace('"Apache-2.0"', '"MIT"'))
    done = node(web / "build.mjs", fake_export, tmp_path / "site")
    assert done.returncode == 1
    assert "the licence of @litertjs/core 2.5.3 must come with it. Received: MIT" in done.stderr


@NEEDS_PACKAGES
def test_a_site_has_what_npm_packs(fake_export, tmp_path):
    """The page is the first user of the package: it has no code of its own to translate."""
    out = tmp_path / "site"
    assert build(fake_export, out).returncode == 0
    packed = packed_files(tmp_path)
    assert files_below(out / "translator") == packed
    names = {name for name in packed if not name.startswith("vendor/")}
    tracked = {path.name for path in (WEB / "package").iterdir() if path.is_file()}
    assert names == tracked
    others = {name for name in packed if name.startswith("vendor/")}
    runtimes = ("litert_wasm_internal", "litert_wasm_compat_internal")
    assert others == {
        *("vendor/abbreviations.js", "vendor/licenses.txt", "vendor/litert.js"),
        *(f"vendor/{name}.{suffix}" for name in runtimes for suffix in ("js", "wasm")),
        "vendor/sentencepiece.js",
    }
    sources = b"".join(content for name, content in packed.items() if name.endswith(".js"))
    assert not re.search(rb"\b(new Function|eval)\(", sources)  # the page's policy forbids them


def test_a_language_must_be_a_tag(fake_export, tmp_path):
    message = '--from: `language` must be a BCP 47 tag such as "de" or "pt-BR", or "". Received: En'
    fails(fake_export, tmp_path / "site", message, "--from", "English")


@pytest.mark.parametrize("arguments", [[], ["a"], ["a", "b", "c"], ["a", "b", "--colour", "red"]])
def test_a_wrong_call_tells_the_use(arguments):
    done = build(*arguments)
    assert done.returncode == 1 and "node build.mjs EXPORTED_FOLDER OUT" in done.stderr


def test_missing_packages_are_told(fake_export, tmp_path):
    web = tmp_path / "web"
    shutil.copytree(WEB, web, ignore=shutil.ignore_patterns("node_modules"))
    done = node(web / "build.mjs", fake_export, tmp_path / "site")
    assert done.returncode == 1
    assert f"the package @litertjs/core is missing: run `npm ci` in {web}" in done.stderr
    assert not (tmp_path / "site").exists()


def test_the_lock_file_names_no_server():
    lock = json.loads((WEB / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages and all("integrity" in package for package in packages)
    assert not any("resolved" in package for package in packages)
    assert os.path.getsize(WEB / "package-lock.json") < 10_000
