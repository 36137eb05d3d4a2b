"""Kits as a user gets them: written by an installed wheel, far from any clone, and put to work."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest
from distributions import build, copy_sources
from page import write_export

from keras_transformer.kits import KITS

pytestmark = pytest.mark.slow


def run(*command, cwd, **variables):
    """Runs a command that knows nothing of this source tree; returns what it printed."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory, repo_root):
    """The `bin` of an environment that has the wheel, and this one's packages but for ours."""
    work = tmp_path_factory.mktemp("installed")
    (work / "sources").mkdir()
    build(copy_sources(repo_root, work / "sources"), work, "--wheel")
    (wheel,) = work.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", work / "venv", cwd=work)
    python = work / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    run(*pip, "--no-index", wheel, cwd=work)
    shutil.rmtree(work / "sources")
    (packages,) = (work / "venv" / "lib").glob("python3*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    place = run(python, "-c", "import keras_transformer_runner as r; print(r.__file__)", cwd=work)
    assert pathlib.Path(place.strip()).is_relative_to(packages)
    return python.parent


@pytest.fixture(scope="module")
def written(installed, tmp_path_factory):
    """Every kit by its name, with a folder where it takes one."""
    work = tmp_path_factory.mktemp("kits")
    folder = write_export(work / "an_export")
    for name, kit in KITS.items():
        options = ["--folder", folder] if kit.model and name != "serving" else []
        said = run(installed / "keras-transformer", "new", name, name, *options, cwd=work)
        assert said.splitlines()[-1] == f"{name}/{kit.readme} has the first commands"
        assert (work / name / kit.readme).is_file()
    return {name: work / name for name in KITS}


def needs(*commands):
    for command in commands:
        if not shutil.which(command):
            pytest.skip(f"{command} is not installed")


def test_an_installation_leaves_nothing_in_a_kit(written):
    """pip compiles what it installs."""
    assert not [*written["serving"].rglob("__pycache__"), *written["examples"].rglob("*.pyc")]
    assert (written["native"] / "arm64_root.sh").stat().st_mode & 0o111


def test_web_packs_its_package_and_builds_its_page(written):
    needs("node", "npm")
    kit = written["web"]
    run("npm", "ci", "--silent", "--no-audit", "--no-fund", "--omit=dev", cwd=kit)
    packed = run("npm", "pack", "--silent", "./package", cwd=kit).split()[-1]
    assert (kit / packed).stat().st_size > 1_000_000
    run("node", "build.mjs", "exported", "public", "--title", "A", cwd=kit)
    assert (kit / "public" / "model" / "model.tflite").is_file()
    assert (kit / "public" / "translator" / "vendor" / "licenses.txt").is_file()


@pytest.mark.parametrize("name", ["native", "android", "swift"])
def test_native_is_configured_by_cmake(name, written):
    needs("cmake", "g++")
    headers = ("sentencepiece_processor.h", "nlohmann/json.hpp")
    if not all(pathlib.Path("/usr/include", each).exists() for each in headers):
        pytest.skip("SentencePiece's or nlohmann's header is not installed")
    litert = pytest.importorskip("ai_edge_litert").__path__[0]
    configure = ["cmake", "-S", ".", "-B", "build", f"-DLITERT_LIBRARY={litert}/libLiteRt.so"]
    run(*configure, cwd=written[name])
    abbreviations = (written[name] / "build" / "abbreviations.h").read_text("utf-8")
    assert '"Prof."' in abbreviations


def test_serving_has_a_valid_compose_file_and_a_client(written, installed):
    kit = written["serving"]
    schema = ["--builtin-schema", "vendor.compose-spec", "compose.yaml"]
    run(installed / "python", "-m", "check_jsonschema", *schema, cwd=kit)
    assert "--n-best" in run(installed / "python", "client.py", "--help", cwd=kit)


def test_examples_run(written, installed):
    kit = written["examples"]
    pairs = run(installed / "python", "dates.py", "3", cwd=kit).splitlines()
    assert len(pairs) == 3 and all("\t" in pair for pair in pairs)
