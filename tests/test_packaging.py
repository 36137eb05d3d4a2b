"""What a user installs: the wheel's contents, a cheap import, a runner that needs little."""

import ast
import contextlib
import importlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import BytesParser
from statistics import median

import pytest
from packaging.requirements import Requirement

import keras_transformer

PACKAGE = "keras_transformer"
SUBPACKAGES = ["layers", "decoding", "text", "training", "export", "interop"]
RUNNER_NEEDS = {"numpy", "sentencepiece", "ai_edge_litert"}
# Everything that could get into a wheel by mistake.
SOURCES = ["keras_transformer", "tests", "examples", "export", "benchmarks"]
FILES = ["setup.py", "pyproject.toml", "README.md", "LICENSE"]


def run_python(code, *arguments, cwd):
    """Runs code in a new process, where nothing has been imported yet."""
    command = [sys.executable, *arguments, "-c", code]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, repo_root):
    # Built from a copy: setuptools leaves build/ behind, whose stale files would get into the next.
    source = tmp_path_factory.mktemp("source")
    for name in filter(lambda name: (repo_root / name).is_dir(), SOURCES):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(repo_root / name, source / name, ignore=ignored)
    for name in FILES:
        shutil.copy(repo_root / name, source)
    code = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
    name = run_python(code, cwd=source).splitlines()[-1]
    with zipfile.ZipFile(source / "dist" / name) as file:
        yield file


def test_setup_names_every_package_on_disk(repo_root):
    tree = ast.parse((repo_root / "setup.py").read_text(encoding="utf-8"))
    (listed,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "PACKAGES"
    )
    folders = {path.parent for path in (repo_root / PACKAGE).rglob("*.py")}
    on_disk = {".".join(folder.relative_to(repo_root).parts) for folder in folders}
    assert sorted(listed) == sorted(on_disk)
    assert set(listed) >= {PACKAGE, *(f"{PACKAGE}.{name}" for name in SUBPACKAGES)}


def test_the_wheel_holds_the_package_and_nothing_else(wheel, repo_root):
    names = wheel.namelist()
    info = f"keras_transformer_edge-{keras_transformer.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {PACKAGE, info}
    modules = {
        path.relative_to(repo_root).as_posix() for path in (repo_root / PACKAGE).rglob("*.py")
    }
    assert {name for name in names if name.startswith(f"{PACKAGE}/")} == modules
    assert any(name.startswith(info) and name.endswith("/LICENSE") for name in names)


def test_the_metadata_of_the_wheel(wheel):
    info = f"keras_transformer_edge-{keras_transformer.__version__}.dist-info"
    metadata = BytesParser().parsebytes(wheel.read(f"{info}/METADATA"))
    assert metadata["Name"] == "keras-transformer-edge"
    assert metadata["Version"] == keras_transformer.__version__
    assert set(metadata["Requires-Python"].split(",")) == {">=3.11", "<3.14"}
    assert set(metadata.get_all("Provides-Extra")) >= {"litert", "examples", "tf-models", "test"}
    entry_points = wheel.read(f"{info}/entry_points.txt").decode()
    assert "keras-transformer = keras_transformer.cli:main" in entry_points


# Of what is imported under another name than it is installed by; of what a script starts.
DISTRIBUTIONS = {
    "ai_edge_litert": "ai-edge-litert",
    "apache_beam": "apache-beam",
    "fontTools": "fonttools",
    "google": "protobuf",
    "grpc": "grpcio",
    "litert_quantizer": "litert-quantizer",
    "official": "tf-models-official",
    "sklearn": "scikit-learn",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_serving": "tensorflow-serving-api",
    "tensorflow_text": "tensorflow-text",
    "tf_keras": "tf-keras",
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
    roots = [repo_root / name for name in (PACKAGE, "export", "examples", "tests")]
    files = [path for root in roots for path in root.rglob("*.py")]
    files = [path for path in files if "node_modules" not in path.parts]
    ours = {PACKAGE, *(path.stem for path in files if path.is_relative_to(roots[2]))}
    ours |= {path.stem for path in files if path.is_relative_to(roots[3])}
    unnamed = {}
    for path in files:
        extras = {"test": named["test"]} if path.is_relative_to(roots[3]) else named
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


def test_importing_the_package_is_cheap(repo_root):
    code = (
        "import time; start = time.perf_counter(); import keras_transformer; "
        "print(time.perf_counter() - start)"
    )
    assert median(float(run_python(code, cwd=repo_root)) for _ in range(5)) < 0.3


@pytest.mark.parametrize("module", [PACKAGE, f"{PACKAGE}.text", f"{PACKAGE}.export"])
def test_importing_loads_neither_tensorflow_nor_keras(module, repo_root):
    code = f"import sys, {module}; dir({module}); print(*sys.modules)"
    loaded = {name.split(".")[0] for name in run_python(code, cwd=repo_root).split()}
    assert loaded.isdisjoint({"tensorflow", "keras", "tensorflow_text", "sentencepiece", "numpy"})


def test_the_runner_names_three_dependencies(repo_root):
    files = ("runner", "device_model", "device_folder", "packed_weights")
    files = [*(f"export/{name}" for name in files), "text/growing", "text/lines"]
    files += ["atomic", "failures", "folders", "integrity"]
    paths = [repo_root / PACKAGE / f"{name}.py" for name in files]
    source = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add("." * node.level or node.module.split(".")[0])
    assert imported - set(sys.stdlib_module_names) <= RUNNER_NEEDS | {PACKAGE}
    # Of ours, only itself, what reads tokenizers, which needs no more than that, and `quiet`, which
    # has TensorFlow to start for whoever asks.
    ours = set(re.findall(r"from keras_transformer\.(\S+) import", source))
    assert ours <= {name.replace("/", ".") for name in files} | {"text.tokenizer", "quiet"}


def test_the_runner_loads_where_tensorflow_and_keras_are_missing(repo_root):
    code = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"tensorflow", "keras", "tensorflow_text", "jax", "torch"}:
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
import ai_edge_litert.interpreter, sentencepiece
from keras_transformer.export.runner import Runner
print(Runner.__name__)
"""
    assert run_python(code, cwd=repo_root).strip() == "Runner"


@pytest.mark.parametrize("module", [PACKAGE, *(f"{PACKAGE}.{name}" for name in SUBPACKAGES)])
def test_every_public_name_resolves_in_a_new_process(module, repo_root):
    # A new process: whichever part is imported first meets Keras first, which once went in circles.
    code = (
        f"import {module} as module; names = getattr(module, '_EXPORTS', {{}});"
        "print(*(name for name in names if getattr(module, name) is None));"
        "print(*set(names).difference(getattr(module, '__all__', names)))"
    )
    assert run_python(code, cwd=repo_root).split() == []


@pytest.mark.parametrize("module", [PACKAGE, *(f"{PACKAGE}.{name}" for name in SUBPACKAGES)])
def test_an_unknown_name_is_an_attribute_error(module):
    with pytest.raises(AttributeError, match=r"has no attribute 'no_such_name'"):
        importlib.import_module(module).no_such_name  # noqa: B018
