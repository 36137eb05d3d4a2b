"""The notebooks run from top to bottom, and are stored without what they print."""

import pathlib
import sys
import time

import nbformat
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
QUICK, MINUTES = "first_model", pytest.mark.release


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} == {"attention_seen", "export_and_run", "first_model"}


def test_the_readme_names_every_example_and_notebook():
    examples = FOLDER.parent
    said = (examples / "README.md").read_text("utf-8")
    files = [path for pattern in ("*.py", "*.toml") for path in examples.glob(pattern)]
    names = {path.relative_to(examples).as_posix() for path in [*files, *NOTEBOOKS]}
    assert {name for name in names if name not in said} == set()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert "%pip install" in code[0].source  # where the package is missing, as in Colab


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem == QUICK else MINUTES)
        for path in NOTEBOOKS
    ],
)
def test_a_notebook_runs_from_top_to_bottom(path, repo_root, tmp_path, monkeypatch):
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(repo_root))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, timeout=600, resources=resources, kernel_name="python3")
    client.create_kernel_manager().kernel_spec.argv[0] = sys.executable
    start = time.monotonic()
    client.execute()  # a cell that fails raises
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    print(f"{path.stem}: {time.monotonic() - start:.0f} s")
