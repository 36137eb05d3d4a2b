"""What is wrong with files is known before TensorFlow is imported, and before any long work."""

import json
import os
import subprocess
import sys
import uuid

import pytest
from checkpoint_folders import FIXTURES, nllb_folder

from keras_transformer.command import cli, commands
from keras_transformer.data import open_corpus
from keras_transformer_runner.tokenizers import BytesTokenizer

# Runs commands where nothing heavy can be imported, and prints how each ended.
WITHOUT_TENSORFLOW = """
import contextlib, io, json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text", "keras", "jax", "torch"):
            raise AssertionError(name)

sys.meta_path.insert(0, Refuse())
import keras_transformer_command as cli
found = []
for command in json.loads(sys.argv[1]):
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        code = cli.main(command)
    found.append((code, errors.getvalue()))
print(json.dumps(found))
"""


@pytest.fixture
def without_tensorflow(repo_root):
    def run(*commands):
        commands = [[str(word) for word in command] for command in commands]
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_TENSORFLOW, json.dumps(commands)],
            env={**os.environ, "PYTHONPATH": str(repo_root)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_a_typo_is_answered_without_tensorflow(without_tensorflow, toy, run_dir, tmp_path):
    no, new, src, tgt = tmp_path / "no", tmp_path / "new", toy.with_name("valid.src"), toy.parent
    tgt, tokenizer = tgt / "valid.tgt", run_dir / "tokenizer.model"
    (tmp_path / "there").touch()
    nllb = nllb_folder(tmp_path / "nllb")
    sides, export = ["--source", src, "--target", tgt], ["export", run_dir, new, "--to"]
    text, model = "a text file must exist", "`path` must be a tokenizer's file"
    cases = {
        ("tokenizer", new.with_suffix(".model"), "--input", src, no): text,
        ("prepare", new, "--source", no, "--tokenizer", tokenizer): text,
        ("prepare", new, *sides, "--tokenizer", no): model,
        ("prepare", new, *sides, "--tokenizer", tokenizer, "--target-tokenizer", no): model,
        (
            "prepare",
            tmp_path,
            *sides,
            "--tokenizer",
            tokenizer,
        ): "needs a new folder",
        ("train", no, new): "an experiment file must exist",
        ("train", toy, new, "--set", f"data.valid_target={no}"): text,
        ("train", toy, new, "--set", f"tokenizer.file={no}"): "`tokenizer.vocab_size` does not go",
        ("train", toy, tmp_path): "a run needs a new or empty folder",
        ("train", toy, tmp_path / "there" / "run"): "an output must be in a folder",
        ("train", toy, new, "--set", "training.buckets=[9, 8]"): "`training.buckets` must be ascen",
        (
            "train",
            toy,
            new,
            "--set",
            f"training.start_from={no}",
        ): "the folder of a run or of a pre",
        ("train", toy, new, "--set", "training.freeze=['encodr']"): "Did you mean 'encoder'?",
        ("train", toy, new, "--more-epochs", "1"): "`more_epochs` is for a finished run",
        ("stop", no): "a run folder must hold experiment.toml",
        ("stop", run_dir): "a run to stop must not be finished",
        ("import", no, new): "a pretrained model must be a folder with config.json",
        ("import", nllb, tmp_path): "an imported run needs a new folder",
        ("import", nllb, tmp_path / "there" / "x"): "an output must be in a folder",
        ("import", nllb, new, "--samples", no): text,
        ("import", nllb, new): "`source_language` must be given for a model of several languages",
        ("import", FIXTURES / "marian", new): "a tokenizer's file must exist",
        ("translate", no, "x"): "a run folder must hold experiment.toml",
        ("translate", run_dir, "--input", no): text,
        ("translate", run_dir, "--input", no, "--output", new): text,
        ("translate", run_dir, "--input", src, "--output", tmp_path / "there"): "need a new file",
        ("translate", run_dir, "--input", src, "--output", tmp_path / "there" / "x"): "in a folder",
        ("evaluate", no, *sides): "a run folder must hold experiment.toml",
        ("evaluate", run_dir, "--source", src, "--target", no): text,
        ("evaluate", run_dir, *sides, "--tokenize", "no"): "`tokenize` must be one of",
        ("evaluate", run_dir, *sides, "--with", "savedmodel", "--artifact", no): "saved_model.pb",
        ("evaluate", run_dir, *sides, "--with", "litert", "--artifact", no): "metadata.json",
        ("compare", run_dir, no, *sides): text,
        ("compare", run_dir, src, "--source", src, "--target", no): text,
        ("compare", run_dir, tmp_path, *sides): "`compare` takes a run or a preset",
        ("compare", run_dir, toy, *sides): "must have as many lines as references",
        (*export, "litert", "--samples", no): text,
        (*export, "litert", "--calibration", no): text,
        (*export, "litert", "--samples", src, "--references", no): text,
        ("export", run_dir, tmp_path, "--to", "litert"): "the artifact needs a new folder",
        ("export", run_dir, tmp_path / "there" / "x", "--to", "savedmodel"): "in a folder",
        ("export", no, new, "--to", "litert"): "a run folder must hold experiment.toml",
    }
    before = sorted(tmp_path.iterdir())
    for (command, expected), (code, errors) in zip(
        cases.items(), without_tensorflow(*cases), strict=True
    ):
        assert code == 1, (command, errors)
        (line,) = errors.splitlines()
        assert line.startswith("keras-transformer: error: ") and expected in line, command
    assert sorted(tmp_path.iterdir()) == before


def test_a_tokenizer_is_learnt_without_tensorflow(without_tensorflow, toy, tmp_path):
    new = tmp_path / "t.json"
    command = ["tokenizer", new, "--input", toy.with_name("valid.src"), "--set", "type=characters"]
    (((code, _),), made) = without_tensorflow(command), new.exists()
    assert code == 0 and made


def test_every_kind_of_folder_is_told_from_a_run(fails, run_dir, tmp_path):
    (tmp_path / "metadata.json").touch()
    (tmp_path / "model.tflite").touch()
    line = fails("translate", tmp_path, "x")
    assert "a run folder must hold experiment.toml. Received: " in line
    assert "which is a LiteRT folder of `export`, which `keras-transformer-run`" in line
    test_set = ["--source", run_dir / "samples.txt", "--target", run_dir / "samples.txt"]
    for backend in ("litert", "savedmodel"):
        line = fails("evaluate", run_dir, *test_set, "--with", backend, "--artifact", run_dir)
        assert "which is a run folder of `train`" in line


def test_decoding_options_are_known_before_the_corpus_is_read(fails, toy, tmp_path, monkeypatch):
    from keras_transformer.training import run

    monkeypatch.setattr(run, "open_corpora", None)
    options = ["--set", "decoding.repetition_penalty=-1.0"]
    assert "`repetition_penalty` must be" in fails("train", toy, tmp_path / "run", *options)


def test_bleu_while_training_needs_sacrebleu_at_once(fails, toy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    options = ["--set", "training.score_every_epochs=1"]
    assert "pip install sacrebleu" in fails("train", toy, tmp_path / "run", *options)


def test_beam_pipelines_need_apache_beam_at_once(fails, run_dir, toy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam.options.pipeline_options", None)
    command = ["translate", run_dir, "--input", toy.with_name("valid.src"), "--output"]
    line = fails(*command, tmp_path / "out", "--beam-pipeline", "")
    assert "--beam-pipeline needs Apache Beam: pip install apache-beam" in line


@pytest.mark.parametrize(
    "error, expected",
    [
        (KeyError("x"), "KeyError: 'x' (not expected: `keras-transformer --traceback COMMAND ...`"),
        (OSError(28, "No space left on device"), "No space left on device, in `export` of OUT"),
        (OSError(28, "No space left on device", "a/b"), "No space left on device: 'a/b'"),
        (MemoryError(), "there must be enough memory"),
    ],
)
def test_any_other_error_is_a_line_too(fails, monkeypatch, error, expected):
    def export(arguments):
        raise error

    monkeypatch.setattr(commands, "export", export)
    line = fails("export", "RUN", "OUT", "--to", "litert")
    assert expected in line
    with pytest.raises(type(error)):
        cli.main(["--traceback", "export", "RUN", "OUT", "--to", "litert"])


def test_workers_have_a_bound(capsys):
    command = ["translate", "RUN", "--input", "a", "--output", "b", "--workers", "100000"]
    with pytest.raises(SystemExit) as info:
        cli.main(command)
    assert info.value.code == 2
    assert "--workers must be in [1, 256]. Received: 100000" in capsys.readouterr().err


def test_a_lock_that_a_killed_preparation_left_beside_its_folder_is_removed(fails, tmp_path):
    (tmp_path / "lines").write_text("a\n")
    (tmp_path / "lines.b").write_text("b\n")
    BytesTokenizer().save(tmp_path / "t.json")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "prepared.json").touch()
    (tmp_path / ".out.lock").touch()
    sides = ("--source", tmp_path / "lines", "--target", tmp_path / "lines.b")
    line = fails("prepare", tmp_path / "out", *sides, "--tokenizer", tmp_path / "t.json")
    assert "needs a new folder" in line
    assert not (tmp_path / ".out.lock").exists()


def test_a_remote_folder_is_prepared_and_a_run_stays_on_this_machine(fails, tmp_path):
    (tmp_path / "pairs.tsv").write_text("ab\tc\na\tb\n")
    BytesTokenizer().save(tmp_path / "t.json")
    folder = f"ram://bucket-{uuid.uuid4().hex}/prepared"
    source = ("--source", str(tmp_path / "pairs.tsv"), "--tokenizer", str(tmp_path / "t.json"))
    assert cli.main(["prepare", folder, *source, "--max-length", "8"]) == 0
    assert len(open_corpus(folder)) == 2
    assert "needs a new folder" in fails("prepare", folder, *source)
    assert "'none' not implemented" in fails("prepare", "none://bucket/prepared", *source)
    experiment = tmp_path / "experiment.toml"
    experiment.write_text(
        f'[data]\nsource = "{folder}"\n[model]\npreset = "tiny"\n'
        "[training]\nbatch_tokens = 64\nmax_epochs = 1\n"
    )
    assert "a folder of this machine" in fails("train", experiment, "gs://bucket/run")
