"""What is published: both distributions in both forms, and what stands around the code."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import BytesParser

import pytest
import yaml
from distributions import build, copy_sources
from packaging.licenses import canonicalize_license_expression
from packaging.utils import parse_sdist_filename, parse_wheel_filename

import keras_transformer_runner
from keras_transformer.kits.contents import KITS, kit_files

VERSION = keras_transformer_runner.__version__
OURS = ("keras-transformer-edge", "keras-transformer-edge-runner")


@pytest.fixture(scope="module")
def sources(tmp_path_factory, repo_root):
    return copy_sources(repo_root, tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def built(tmp_path_factory, sources):
    """The folder of both distributions: each wheel is built from its source distribution."""
    out = tmp_path_factory.mktemp("dist")
    build(sources, out)
    build(sources / "keras_transformer_runner", out)
    return out


def archive(built, name, end):
    parse = {".whl": parse_wheel_filename, ".tar.gz": parse_sdist_filename}[end]
    (path,) = (path for path in built.glob(f"*{end}") if parse(path.name)[0] == name)
    return path


def in_sdist(built, name):
    """The names of a source distribution's files, below its one folder."""
    with tarfile.open(archive(built, name, ".tar.gz")) as file:
        return {one.name.split("/", 1)[1]: one.mode for one in file.getmembers() if one.isfile()}


def metadata(built, name):
    with zipfile.ZipFile(archive(built, name, ".whl")) as wheel:
        (place,) = (each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
        return BytesParser().parsebytes(wheel.read(place))


def test_an_index_would_take_them(built):
    paths = sorted(built.iterdir())
    assert len(paths) == 4
    command = [sys.executable, "-m", "twine", "check", "--strict", *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_runner_is_as_small_as_its_page_says(built, repo_root):
    page = (repo_root / "docs" / "exporting.md").read_text("utf-8")
    (kilobytes,) = re.findall(r"a package of its own, under (\d+) KB", page)
    assert archive(built, OURS[1], ".whl").stat().st_size < int(kilobytes) * 1000


@pytest.mark.parametrize("name", OURS)
def test_metadata_say_what_one_looks_for(built, name, repo_root):
    fields = metadata(built, name)
    assert (fields["Name"], fields["Version"]) == (name, VERSION)
    assert set(fields["Requires-Python"].split(",")) == {">=3.11", "<3.14"}
    expression = fields["License-Expression"]
    assert canonicalize_license_expression(expression) == "Apache-2.0 AND Unicode-3.0"
    licences = {path.rsplit("/", 1)[-1] for path in fields.get_all("License-File")}
    assert licences == {"LICENSE", "UNICODE_LICENSE"}
    assert fields["Description-Content-Type"] == "text/markdown"
    assert fields["Summary"] and len(fields["Keywords"].split(",")) > 3
    classifiers = set(fields.get_all("Classifier"))
    pythons = {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)}
    assert pythons | {"Typing :: Typed"} <= classifiers
    assert not any(each.startswith("License") for each in classifiers)  # the expression says it
    text = fields.get_payload()
    assert text.startswith("# keras") and len(text) > 500
    assert not re.findall(r"\]\((?!https?:|#)[^)]*\)", text)  # an index has none of our files


def test_the_source_distribution_holds_all_that_is_tracked(built, repo_root):
    if not (repo_root / ".git").exists():
        pytest.skip("needs a clone, for the list of its files")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=repo_root, capture_output=True, text=True, check=True
    )
    tracked = {name for name in listed.stdout.split("\0") if name}
    found = in_sdist(built, OURS[0])
    generated = {name for name in found if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    assert set(found) - generated == tracked
    assert found[".ci/run"] & 0o111 and found["export/native/arm64_root.sh"] & 0o111


def test_a_wheel_from_the_source_distribution_is_a_wheel_from_the_sources(built, sources, tmp_path):
    build(sources, tmp_path, "--wheel")
    contents = []
    for folder in (built, tmp_path):
        with zipfile.ZipFile(archive(folder, OURS[0], ".whl")) as wheel:
            contents.append({one.filename: one.CRC for one in wheel.infolist()})
    assert contents[0] == contents[1]


def test_the_wheel_holds_every_kit_once(built, repo_root):
    with zipfile.ZipFile(archive(built, OURS[0], ".whl")) as wheel:
        modes = {one.filename: one.external_attr >> 16 for one in wheel.infolist()}
    prefix = "keras_transformer/kits/files/"
    held = {name.removeprefix(prefix): mode for name, mode in modes.items() if prefix in name}
    expected = {
        path.relative_to(repo_root).as_posix(): path.stat().st_mode & 0o100
        for kit in KITS.values()
        for path in kit_files(kit, repo_root).values()
    }
    assert {name: mode & 0o100 for name, mode in held.items()} == expected


def test_a_wheel_without_kits_is_not_built(sources, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(sources, source)
    shutil.rmtree(source / "export" / "serving")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "the kit `serving` needs the folder export/serving" in done.stdout + done.stderr


# --- What stands around the code -----------------------------------------------------------


@pytest.mark.parametrize(
    "schema, name",
    [
        ("citation-file-format", "CITATION.cff"),
        ("github-workflows", ".github/workflows/ci.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/bug.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/wish.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("compose-spec", "export/serving/compose.yaml"),
    ],
)
def test_files_of_others_formats_keep_their_schemas(schema, name, repo_root):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*command, name], cwd=repo_root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_version_is_said_alike(repo_root):
    citation = yaml.safe_load((repo_root / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == VERSION
    package = (repo_root / "export" / "web" / "package" / "package.json").read_text("utf-8")
    assert f'"version": "{VERSION}"' in package
    cmake = (repo_root / "export" / "native" / "CMakeLists.txt").read_text("utf-8")
    assert f"VERSION {VERSION} " in cmake


def test_the_workflow_runs_the_whole_check_on_every_python(repo_root, built):
    workflow = yaml.safe_load((repo_root / ".github/workflows/ci.yml").read_text("utf-8"))
    (job,) = workflow["jobs"].values()
    classifiers = metadata(built, OURS[0]).get_all("Classifier")
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers))
    assert job["strategy"]["matrix"]["python"] == pythons
    (step,) = (step for step in job["steps"] if "run" in step)
    assert step["run"] == ".ci/run" and step["env"] == {"PYTHON": "python"}
    assert (repo_root / step["run"]).is_file()


def test_the_whole_check_runs_on_jax_what_only_jax_has(repo_root):
    script = (repo_root / ".ci" / "run").read_text("utf-8")
    named = {
        f"{start}{name}.py"
        for start, names in re.findall(r"(tests/[\w/]+?/test_)\{?([\w,]+)\}?\.py", script)
        for name in names.split(",")
    } | {*re.findall(r"tests/test_\w+\.py", script)}
    needing = {
        path.relative_to(repo_root).as_posix()
        for path in (repo_root / "tests").rglob("test_*.py")
        if re.search(r"^(@|pytestmark = )jax_only\(", path.read_text("utf-8"), re.M)
    }
    assert needing and needing <= named


def test_builds_ask_for_a_setuptools_that_knows_licence_expressions(repo_root):
    for folder in (repo_root, repo_root / "keras_transformer_runner"):
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
        assert project["build-system"]["requires"] == ["setuptools>=77.0.3"]
