"""What a user installs: the wheel's contents, a cheap import, a runner that needs little."""

import ast
import contextlib
import importlib
import importlib.metadata
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from email.parser import BytesParser

import pytest
from distributions import build, copy_sources
from packaging.requirements import Requirement

import keras_transformer

PACKAGE, RUNNER, COMMAND = PACKAGES = (
    "keras_transformer",
    "keras_transformer_runner",
    "keras_transformer_command",
)
PUBLIC = [
    PACKAGE,
    *(f"{PACKAGE}.{room}" for room in ("layers", "models", "decoding", "translation", "data")),
    *(f"{PACKAGE}.{room}" for room in ("experiment", "training", "export")),
    *(RUNNER, f"{RUNNER}.tokenizers"),
]
KIT_FILES = f"{PACKAGE}/kits/files/"
RUNNER_NEEDS = {"numpy", "sentencepiece", "ai_edge_litert"}
SERVER_NEEDS = {"starlette", "uvicorn", "prometheus_client", "py3langid", "babel", "icu4py"}


def run_python(code, *arguments, cwd):
    """Runs code in a new process, where nothing has been imported yet."""
    command = [sys.executable, *arguments, "-c", code]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, repo_root):
    source, out = (tmp_path_factory.mktemp(name) for name in ("source", "dist"))
    build(copy_sources(repo_root, source), out, "--wheel")
    (path,) = out.glob("*.whl")
    with zipfile.ZipFile(path) as file:
        yield file


def test_setup_names_every_package_on_disk(repo_root):
    tree = ast.parse((repo_root / "setup.py").read_text(encoding="utf-8"))
    (listed,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "PACKAGES"
    )
    folders = {path.parent for name in PACKAGES for path in (repo_root / name).rglob("*.py")}
    on_disk = {".".join(folder.relative_to(repo_root).parts) for folder in folders}
    assert sorted(listed) == sorted(on_disk)
    assert set(listed) >= {*PUBLIC}


def test_links_of_the_description_are_absolute_for_a_package_index(repo_root, monkeypatch):
    given = {}
    monkeypatch.setattr("setuptools.setup", given.update)
    readme = (repo_root / "README.md").read_text(encoding="utf-8")
    runpy.run_path(str(repo_root / "setup.py"))
    assert "](docs/" in readme and "](" not in given["long_description"]
    monkeypatch.setenv("KERAS_TRANSFORMER_REPOSITORY", "https://example.org/us/it/")
    runpy.run_path(str(repo_root / "setup.py"))
    targets = re.findall(r"\]\(([^)]+)\)", given["long_description"])
    assert "https://example.org/us/it/raw/main/docs/path.svg" in targets
    assert "https://example.org/us/it/blob/main/docs/benchmarks.md#batch-decoding" in targets
    assert all(target.startswith("https://") for target in targets)


def test_the_wheel_holds_the_package_and_nothing_else(wheel, repo_root):
    names = wheel.namelist()
    info = f"keras_transformer_edge-{keras_transformer.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {*PACKAGES, info}
    modules = {
        path.relative_to(repo_root).as_posix()
        for package in PACKAGES
        for path in (repo_root / package).rglob("*.py")
    }
    others = {f"{package}/py.typed" for package in (PACKAGE, RUNNER)}
    data = ("abbreviations.json", "LICENSE", "UNICODE_LICENSE")
    others |= {f"{RUNNER}/{name}" for name in data}
    others |= {f"{RUNNER}/server/page/{name}" for name in ("index.html", "page.css", "page.js")}
    held = {name for name in names if not name.startswith((info, KIT_FILES))}
    assert held == modules | others  # the kits: test_distributions.py
    assert any(name.startswith(info) and name.endswith("/LICENSE") for name in names)


def test_the_metadata_of_the_wheel(wheel):
    info = f"keras_transformer_edge-{keras_transformer.__version__}.dist-info"
    metadata = BytesParser().parsebytes(wheel.read(f"{info}/METADATA"))
    assert metadata["Name"] == "keras-transformer-edge"
    assert metadata["Version"] == keras_transformer.__version__
    assert set(metadata["Requires-Python"].split(",")) == {">=3.11", "<3.14"}
    assert set(metadata.get_all("Provides-Extra")) >= {"litert", "examples", "tf-models", "test"}
    entry_points = wheel.read(f"{info}/entry_points.txt").decode()
    assert "keras-transformer = keras_transformer_command:main" in entry_points
    assert "keras-transformer-run = keras_transformer_runner.command:main" in entry_points
    assert "keras-transformer-serve = keras_transformer_runner.server.command:main" in entry_points


# Of what is imported under another name than it is installed by; of what a script starts.
DISTRIBUTIONS = {
    "ai_edge_litert": "ai-edge-litert",
    "apache_beam": "apache-beam",
    "compose_spec": "compose-spec",
    "deep_translator": "deep-translator",
    "fontTools": "fonttools",
    "google": "protobuf",
    "grpc": "grpcio",
    "kubernetes_validate": "kubernetes-validate",
    "litert_quantizer": "litert-quantizer",
    "official": "tf-models-official",
    "prometheus_client": "prometheus-client",
    "sklearn": "scikit-learn",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_serving": "tensorflow-serving-api",
    "tensorflow_text": "tensorflow-text",
    "tf_keras": "tf-keras",
    "tomli_w": "tomli-w",
    "yaml": "pyyaml",
}


def requirements(wheel):
    """The wheel's `Requirement`s by extra, those of all under `""`."""
    info = f"keras_transformer_edge-{keras_transformer.__version__}.dist-info"
    metadata = BytesParser().parsebytes(wheel.read(f"{info}/METADATA"))
    found = {extra: [] for extra in ("", *metadata.get_all("Provides-Extra"))}
    for line in metadata.get_all("Requires-Dist"):
        requirement = Requirement(line)
        extra = re.search(r"extra == \W(\S+)\W", str(requirement.marker or ""))
        found[extra.group(1) if extra else ""].append(requirement)
    return found


def distributions(path, ours):
    """What a file imports, and what tests look for, by the names to install it by."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "importorskip":
            found.add(ast.literal_eval(node.args[0]))
    names = {name.split(".")[0] for name in found} - set(sys.stdlib_module_names) - ours
    return {DISTRIBUTIONS.get(name, name) for name in names}


def test_whatever_is_imported_is_named_by_one_extra(wheel, repo_root):
    """Of the tests that is `test`: what another package happens to bring may stop to come."""
    named = {
        extra: {requirement.name for requirement in listed}
        for extra, listed in requirements(wheel).items()
    }
    roots = [repo_root / name for name in (*PACKAGES, "export", "examples", "tests")]
    files = [path for root in roots for path in root.rglob("*.py")]
    files = [path for path in files if "node_modules" not in path.parts]
    files.remove(repo_root / "tests/interop/make_fixtures.py")  # run by hand, with torch
    examples, tests = roots[-2:]
    ours = {*PACKAGES, *(path.stem for path in files if path.is_relative_to(examples))}
    ours |= {path.stem for path in files if path.is_relative_to(tests)}
    ours |= {path.stem for path in (repo_root / "benchmarks").glob("*.py")}
    unnamed = {}
    for path in files:
        extras = {"test": named["test"]} if path.is_relative_to(tests) else named
        needed = distributions(path, ours) - named[""]
        if not any(needed <= extra for extra in extras.values()):
            unnamed[path.relative_to(repo_root).as_posix()] = sorted(needed)
    assert unnamed == {}


def test_every_requirement_has_an_upper_bound_that_is_met_here(wheel):
    for extra, listed in requirements(wheel).items():
        for requirement in listed:
            operators = {specifier.operator for specifier in requirement.specifier}
            assert operators & {"<", "<=", "~=", "=="}, (extra, str(requirement))
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                installed = importlib.metadata.version(requirement.name)
                assert requirement.specifier.contains(installed), str(requirement)


def test_the_help_of_the_command_loads_nothing_heavy(repo_root):
    code = (
        "import sys\n"
        "import keras_transformer_command as command\n"
        "try:\n    command.main(['--help'])\n"
        "except SystemExit:\n    print(*sys.modules)"
    )
    loaded = {name.split(".")[0] for name in run_python(code, cwd=repo_root).split()}
    assert "keras_transformer_command" in loaded
    heavy = {"tensorflow", "keras", "jax", "tensorflow_text", "sentencepiece", "ai_edge_litert"}
    assert loaded.isdisjoint(heavy | {"apache_beam", "sacrebleu", "matplotlib", "h5py", "scipy"})


def test_the_runner_needs_three_packages_and_nothing_of_ours(repo_root):
    imported = {True: set(), False: set()}
    for path in (repo_root / RUNNER).rglob("*.py"):
        found = imported[path.is_relative_to(repo_root / RUNNER / "server")]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add("." * node.level or node.module.split(".")[0])
    of_server, others = (names - set(sys.stdlib_module_names) for names in imported.values())
    assert of_server == SERVER_NEEDS | {RUNNER}
    # The tokenizers' graph ops import TensorFlow when they are made, which no device does; whole
    # texts need ICU when they are split.
    assert others == RUNNER_NEEDS | {
        *(RUNNER, "tensorflow", "tensorflow_text", "icu4py"),
    }


def test_the_runners_distribution_names_what_the_wheel_names(wheel, repo_root):
    project = tomllib.loads((repo_root / RUNNER / "pyproject.toml").read_text(encoding="utf-8"))
    named = {str(one) for each in requirements(wheel).values() for one in each}
    named = {name.split(";")[0].strip() for name in named}
    optional = sum(project["project"]["optional-dependencies"].values(), [])
    for requirement in map(Requirement, [*project["project"]["dependencies"], *optional]):
        assert str(requirement) in named
    data = project["tool"]["setuptools"]["package-data"]
    assert {f"{RUNNER}/{name}" for name in data[RUNNER]} <= set(wheel.namelist())
    assert data[f"{RUNNER}.server"] == ["page/*"]
    packages = {
        ".".join(path.parent.relative_to(repo_root).parts)
        for path in (repo_root / RUNNER).rglob("*.py")
    }
    assert set(project["tool"]["setuptools"]["packages"]) == packages
    assert (repo_root / RUNNER / "LICENSE").read_bytes() == (repo_root / "LICENSE").read_bytes()


def test_the_runner_loads_where_tensorflow_and_keras_are_missing(repo_root):
    code = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"tensorflow", "keras", "tensorflow_text", "jax", "torch"}:
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
import ai_edge_litert.interpreter, sentencepiece
from keras_transformer_runner import Runner
print(Runner.__name__)
"""
    assert run_python(code, cwd=repo_root).strip() == "Runner"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_listed(name):
    module = importlib.import_module(name)
    assert set(module.__all__) <= set(dir(module))
    assert all(getattr(module, public) is not None for public in module.__all__)
    with pytest.raises(AttributeError, match=r"has no attribute 'no_such_name'"):
        module.no_such_name  # noqa: B018
