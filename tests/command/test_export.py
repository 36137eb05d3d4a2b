"""`keras-transformer export`, and `evaluate` on what it makes."""

import os
import subprocess
import sys

import pytest

from keras_transformer.command import cli
from keras_transformer_runner import Runner
from keras_transformer_runner.atomic import locked


@pytest.mark.parametrize("form", ["savedmodel", "litert"])
def test_export_refuses_what_exists(fails, run_dir, tmp_path, form):
    line = fails("export", run_dir, tmp_path, "--to", "litert")
    assert "the artifact needs a new folder" in line
    line = fails("export", run_dir, run_dir / "config.json", "--to", "savedmodel")
    assert "must be new or hold numbered versions" in line
    assert "a run folder must hold" in fails("export", tmp_path, tmp_path / "new", "--to", form)
    assert not list(tmp_path.iterdir())
    line = fails("export", run_dir, tmp_path / "new", "--to", form, "--n-best", "2")
    assert "`n_best` is for `strategy` 'beam' or 'sampling'. Received: n_best=2, strateg" in line


@pytest.mark.parametrize(
    ("form", "search"),
    [
        ("litert", ["--beam-size", "3", "--length-penalty", "1"]),
        pytest.param("savedmodel", [], marks=pytest.mark.slow),
    ],
)
def test_exported_artifacts_score_like_python(
    run_dir, toy, tmp_path, capsys, form, search, repo_root
):
    artifact = str(tmp_path / "artifact")
    test_set = ["--source", str(toy.with_name("valid.src"))]
    test_set += ["--target", str(toy.with_name("valid.tgt"))]
    several = ["--n-best", "2"] if form == "litert" else []
    assert cli.main(["export", str(run_dir), artifact, "--to", form, *search, *several]) == 0
    first, *facts = capsys.readouterr().out.splitlines()
    if form == "savedmodel":
        assert first.startswith(f"{artifact}/1: ")
        assert "Sentencepiece" in facts[0]
        assert "serving_default, 1 rows: " in facts[4] and " ms cold, " in facts[4]
        assert os.listdir(artifact) == ["1"]
    outputs = []
    for more in (search, ["--with", form, "--artifact", artifact]):
        assert cli.main(["evaluate", str(run_dir), *test_set, *more]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    if form == "litert":
        command = ["evaluate", str(run_dir), *test_set, "--with", form, "--artifact", artifact]
        assert _run_without_tensorflow(command, repo_root) == outputs[1]
        runner = Runner(artifact)
        assert runner.n_best == len(runner.translate_with_details(["ba"])[0]) == 2


def _run_without_tensorflow(command, repo_root):
    """What a command prints in a process of its own, which imports neither TensorFlow nor Keras."""
    script = (
        "import sys, keras_transformer_command as cli; code = cli.main(sys.argv[1:])\n"
        "heavy = {'tensorflow', 'keras', 'jax', 'torch'} & sys.modules.keys()\n"
        "sys.exit(str(heavy) if heavy else code)"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *command],
        env={**os.environ, "PYTHONPATH": str(repo_root)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def test_export_of_ids_only(run_dir, tmp_path, fails, monkeypatch):
    def export(model, tokenizer, path, *, ids_only, **kwargs):
        raise RuntimeError(f"{path.name} {ids_only}")

    monkeypatch.setattr("keras_transformer.export.serving.saved_model.export_saved_model", export)
    (tmp_path / "4").mkdir()
    for more, expected in ((["--ids-only"], "5 True"), ([], "5 False")):
        line = fails("export", run_dir, tmp_path, "--to", "savedmodel", *more)
        assert line.endswith(f"error: {expected}")


@pytest.mark.parametrize("form, held", [("savedmodel", "new/1"), ("litert", "new")])
def test_of_two_exports_at_once_the_second_is_refused(run_dir, tmp_path, fails, form, held):
    with locked(tmp_path / held):
        line = fails("export", run_dir, tmp_path / "new", "--to", form)
    assert f"{tmp_path / held}, which is being written by process" in line
    assert [path.name for path in tmp_path.rglob("*")] == ["new"] * (form == "savedmodel")


@pytest.mark.parametrize("form", ["savedmodel", "litert"])
def test_export_bounds_the_source(run_dir, tmp_path, fails, monkeypatch, form):
    module = {
        "savedmodel": "serving.saved_model.export_saved_model",
        "litert": "litert.export_translator.export_litert",
    }[form]

    def export(model, tokenizer, path, *, samples, max_source_length, **kwargs):
        longest = max(len(tokenizer.encode(sample)) + 1 for sample in samples)
        raise RuntimeError(f"{max_source_length} {longest <= max_source_length}")

    monkeypatch.setattr(f"keras_transformer.export.{module}", export)

    def exported(*bound):
        return fails("export", run_dir, tmp_path / "new", "--to", form, *bound)

    assert exported().endswith("error: 1024 True")
    assert exported("--max-source-length", "7").endswith("error: 7 True")
    assert "`max_source_length` must be a positive integer" in exported("--max-source-length", "0")
    line = exported("--max-source-length", "1")
    assert "must not be below the shortest of the run's samples, " in line
    assert line.endswith("tokens. Received: max_source_length=1")


def test_lengths_alone_bound_the_source(run_dir, tmp_path, fails, monkeypatch):
    def export(model, tokenizer, path, *, samples, max_source_length, lengths, lengths_only, **_):
        longest = max(len(tokenizer.encode(sample)) + 1 for sample in samples)
        fits = longest <= max_source_length
        raise RuntimeError(f"{lengths} {lengths_only} {max_source_length} {fits}")

    name = "keras_transformer.export.litert.export_translator.export_litert"
    monkeypatch.setattr(name, export)
    command = ["export", run_dir, tmp_path / "new", "--to", "litert", "--lengths", "5,8"]
    assert fails(*command).endswith("error: (5, 8) False 1024 True")
    assert fails(*command, "--lengths-only").endswith("error: (5, 8) True 8 True")


@pytest.mark.slow
def test_a_polite_kill_removes_what_is_half_written(run_dir, tmp_path, repo_root):
    script = (
        "import sys, time; from keras_transformer.command import cli\n"
        "from keras_transformer.export.serving import saved_model\n"
        "saved_model.ServingModule = lambda *_, **__: (print('here', flush=True), time.sleep(60))\n"
        "sys.exit(cli.main())"
    )
    command = [sys.executable, "-c", script, "export", str(run_dir), str(tmp_path / "new" / "out")]
    process = subprocess.Popen(
        [*command, "--to", "savedmodel"],
        env={**os.environ, "PYTHONPATH": str(repo_root), "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout.readline() == b"here\n"
    process.terminate()
    assert process.wait() == 143
    process.stdout.close()
    assert list(tmp_path.iterdir()) == []
