import dataclasses
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
from toy_experiment import lines, state, write_experiment

from keras_transformer.decoding import BeamSearch, Greedy
from keras_transformer.experiment import Experiment, load_run
from keras_transformer.experiment.corpora import open_corpora
from keras_transformer.experiment.tokenizers import Tokenizers
from keras_transformer.models import Transformer
from keras_transformer.presets.record import write_record
from keras_transformer.training import run as run_module
from keras_transformer.training import train
from keras_transformer.training.callbacks import Clock, TimeBudget
from keras_transformer.training.data import TrainingData
from keras_transformer.training.objective import compile_model
from keras_transformer_runner.tokenizers import SentencePieceTokenizer


def weights(run_dir):
    return load_run(run_dir).model.get_weights()


def assert_same_run(one, other):
    assert lines(one) == lines(other)
    assert state(one).keys() == state(other).keys()
    for name, value in state(one).items():
        np.testing.assert_array_equal(value, state(other)[name], err_msg=name)
    for a, b in zip(weights(one), weights(other), strict=True):
        np.testing.assert_array_equal(a, b)


def kill_after(monkeypatch, steps, error=KeyboardInterrupt):
    class Killing(run_module.TrainingCheckpoint):
        left = steps

        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            self.left -= 1
            if self.left == 0:
                raise error

    monkeypatch.setattr(run_module, "TrainingCheckpoint", Killing)


LEFT_BEHIND = (
    "../.run.lock",
    ".training.lock",
    ".0123abcd.writing.model.keras",
    "checkpoints/.89abcdef.writing.epoch-0099.weights.h5",
    "checkpoints/.state.npz.lock",
    "plots/.0123abcd.writing.training.png",
)


def test_what_a_run_folder_holds(finished, toy):
    names = sorted(path.name for path in finished.iterdir())
    assert names == [
        "README.md",
        "checkpoints",
        "config.json",
        "experiment.toml",
        "metrics.jsonl",
        "model.keras",
        "plots",
        "run.json",
        "samples.txt",
        "tensorboard",
        "tokenizer.model",
    ]
    assert sorted(path.name for path in (finished / "checkpoints").iterdir()) == [
        "average.weights.h5",
        "best.weights.h5",
        "epoch-0002.weights.h5",
        "epoch-0003.weights.h5",
        "state.npz",
    ]
    assert list((finished / "tensorboard").rglob("events.*"))
    assert sorted(path.name for path in (finished / "plots").iterdir()) == [
        "attention.png",
        "training.png",
    ]
    assert [path.name for path in finished.parent.iterdir()] == [finished.name]
    records = lines(finished)
    assert [record["epoch"] for record in records] == [1, 2, 3]
    assert records[-1]["loss"] < records[0]["loss"]
    assert {"val_loss", "val_perplexity", "val_token_accuracy", "learning_rate"} <= set(records[0])


def test_a_model_of_mixed_precision_is_loaded_in_float32(finished, tmp_path):
    """Its text is then the same on every runtime: low precision leaves near-ties to chance."""
    run_dir = shutil.copytree(finished, tmp_path / "mixed")
    expected = load_run(finished).model
    mixed = Transformer(expected.config, dtype="mixed_bfloat16")
    mixed.set_weights(expected.get_weights())
    mixed.save(run_dir / "model.keras")
    write_record(run_dir, {"model.keras": run_dir / "model.keras"})
    found = load_run(run_dir).model
    assert found.dtype_policy.name == "float32"
    for weight, other in zip(found.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(weight, other)


def test_load_run(finished, toy):
    run = load_run(finished)
    assert run.experiment == Experiment.load(toy)
    assert run.config == run.model.config
    assert run.config.vocab_size == run.tokenizer.vocab_size
    assert run.strategy.extra_length == 50
    assert list(run.samples) == toy.with_name("valid.src").read_text().splitlines()
    translations = run.translator().translate(["ba ke", ""])
    assert len(translations) == 2 and translations[1] == ""


def test_the_search_of_a_run_can_be_changed(finished):
    run = load_run(finished)
    assert run.strategy == Greedy()
    assert run.with_decoding(beam_size=None, max_length=7).strategy == Greedy(max_length=7)
    beams = run.with_decoding(beam_size=3, length_penalty=1.0)
    assert beams.strategy == BeamSearch(beam_size=3, length_penalty=1.0)
    assert run.strategy == Greedy() and beams.model is run.model
    assert len(beams.translator().translate(["ba ke"])) == 1
    with pytest.raises(ValueError, match="`beam_size` must be at least 1. Received: beam_size=0"):
        run.with_decoding(beam_size=0)


@pytest.mark.slow
def test_final_model_is_the_better_of_average_and_best(finished):
    run = load_run(finished)
    compile_model(run.model, run.experiment.training)
    tokenizers = Tokenizers(run.tokenizer, run.target_tokenizer)
    data = TrainingData.make(run.experiment, open_corpora(run.experiment.data), tokenizers)
    loss = run.model.evaluate(data.validation_batches(), verbose=0, return_dict=True)["loss"]
    candidates = {}
    for name in ("average", "best"):
        other = keras.models.load_model(finished / "model.keras", compile=False)
        other.load_weights(finished / "checkpoints" / f"{name}.weights.h5")
        compile_model(other, run.experiment.training)
        candidates[name] = other.evaluate(data.validation_batches(), verbose=0, return_dict=True)[
            "loss"
        ]
    assert loss == min(candidates.values())
    assert candidates["average"] != candidates["best"]
    assert candidates["best"] == pytest.approx(min(r["val_loss"] for r in lines(finished)))


@pytest.mark.slow
@pytest.mark.parametrize("steps", [pytest.param(1, marks=pytest.mark.slow), 8])
def test_resumed_equals_never_killed(finished, toy, tmp_path, monkeypatch, steps):
    with monkeypatch.context() as context:
        kill_after(context, steps)
        with pytest.raises(KeyboardInterrupt):
            train(Experiment.load(toy), tmp_path / "run")
    run_dir = tmp_path / "run"
    assert not (run_dir / "model.keras").exists()
    for name in LEFT_BEHIND:  # as by a kill
        (run_dir / name).parent.mkdir(exist_ok=True)
        (run_dir / name).touch()
    (run_dir / ".mine.lock").write_text("mine")

    train(Experiment.load(toy), run_dir)

    assert_same_run(run_dir, finished)
    assert list(tmp_path.rglob(".*")) == [run_dir / ".mine.lock"]


@pytest.mark.release
def test_resumed_in_a_new_process_after_sigkill(toy, tmp_path, repo_root):
    """With XLA, killed at a moment that nobody chose."""
    text = toy.read_text().replace("jit_compile = false", "jit_compile = true")
    experiment = toy.with_name("jit.toml")
    experiment.write_text(text.replace("max_epochs = 3", "max_epochs = 8"))
    environment = {**os.environ, "PYTHONPATH": str(repo_root)}

    def start(run_dir):
        command = [
            sys.executable,
            "-m",
            "keras_transformer_command",
            "train",
            experiment,
            run_dir,
        ]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    assert start(tmp_path / "straight").wait() == 0
    process = start(tmp_path / "killed")
    metrics = tmp_path / "killed" / "metrics.jsonl"
    while not metrics.exists() or len(lines(tmp_path / "killed")) < 3:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "model.keras").exists()
    assert start(tmp_path / "killed").wait() == 0
    assert not list(tmp_path.rglob(".*"))

    assert_same_run(tmp_path / "killed", tmp_path / "straight")


@pytest.mark.slow
def test_killed_after_the_last_step_only_finishes(finished, toy, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    for name in ("model.keras", "run.json"):  # the first runs had no record
        (tmp_path / "run" / name).unlink()
    train(Experiment.load(toy), tmp_path / "run")
    assert_same_run(tmp_path / "run", finished)


@pytest.mark.slow
def test_time_budget_counts_all_parts(toy, tmp_path, monkeypatch):
    # A clock that advances 1 s with every look at it: about 40 looks in all.
    seconds = itertools.count()
    monkeypatch.setattr(Clock, "seconds", lambda self: self.before + next(seconds))
    limits = {"training.max_epochs": "1000", "training.max_minutes": "0.5"}
    experiment = Experiment.load(toy, limits)
    with monkeypatch.context() as context:
        kill_after(context, 5)
        with pytest.raises(KeyboardInterrupt):
            train(experiment, tmp_path / "run")
    seconds = itertools.count()

    train(experiment, tmp_path / "run")

    with np.load(tmp_path / "run" / "checkpoints" / "state.npz") as file:
        progress = json.loads(str(file["progress"]))
    assert 30 <= progress["seconds"] < 45
    assert next(seconds) < 30  # the second part alone was shorter than the budget
    assert 1 <= lines(tmp_path / "run")[-1]["epoch"] < 10
    assert (tmp_path / "run" / "model.keras").exists()


def test_time_budget_stops_fit():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    clock = Clock()
    budget = TimeBudget(clock, max_minutes=1)
    seen = []

    class Later(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            seen.append(batch)
            if batch == 2:
                clock.before = 60.0

    model.fit(np.ones((9, 1)), np.ones((9, 1)), 1, verbose=0, callbacks=[Later(), budget])
    assert seen == [0, 1, 2]


@pytest.mark.slow
def test_without_validation_the_average_is_kept(toy, tmp_path, capsys):
    experiment = Experiment.load(toy)
    data = dataclasses.replace(experiment.data, valid_source=None, valid_target=None)
    run_dir = train(dataclasses.replace(experiment, data=data), tmp_path / "run")
    model = load_run(run_dir).model
    kept = model.get_weights()
    model.load_weights(run_dir / "checkpoints" / "average.weights.h5")
    for a, b in zip(kept, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not (run_dir / "checkpoints" / "best.weights.h5").exists()
    assert "## Scores" not in (run_dir / "README.md").read_text()
    captured = capsys.readouterr()
    assert captured.out == ""  # progress goes to standard error
    assert "Epoch 1/3" in captured.err and "lengths [16]" in captured.err


def test_optimizer_of_the_paper(toy):
    experiment = Experiment.load(toy, {"training.clipnorm": "0.7"})
    model = Transformer(experiment.config(vocab_size=11))
    compile_model(model, experiment.training)
    optimizer = model.optimizer
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.98, 1e-9)
    assert optimizer.global_clipnorm == 0.7
    assert model.jit_compile is False


def test_folders_that_are_refused(finished, toy, tmp_path):
    experiment = Experiment.load(toy)
    with pytest.raises(FileExistsError, match="a finished run is not trained again"):
        train(experiment, finished)
    other = Experiment.load(toy, {"training.seed": "3", "model.dropout": "0.0"})
    with pytest.raises(FileExistsError, match="differs in model.dropout, training.seed"):
        train(other, finished)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("text")
    with pytest.raises(FileExistsError, match="a run needs a new or empty folder.*mine"):
        train(experiment, tmp_path / "mine")
    with pytest.raises(FileExistsError, match="a run needs a new or empty folder.*thesis"):
        train(experiment, tmp_path / "mine" / "thesis.txt")
    shutil.copytree(finished, tmp_path / "part")
    (tmp_path / "part" / "model.keras").unlink()
    with pytest.raises(FileExistsError, match="goes on only with `resume=True`"):
        train(experiment, tmp_path / "part", resume=False)
    with pytest.raises(FileNotFoundError, match="a run must be finished.*part"):
        load_run(tmp_path / "part")
    with pytest.raises(FileNotFoundError, match="a run folder must hold experiment.toml"):
        load_run(tmp_path)


@pytest.mark.slow
def test_a_changed_corpus_is_refused(toy, tmp_path, monkeypatch):
    experiment = Experiment.load(write_experiment(tmp_path / "data"))
    with monkeypatch.context() as context:
        kill_after(context, 5)
        with pytest.raises(KeyboardInterrupt):
            train(experiment, tmp_path / "run")
    for part, what in (("valid", "validation corpus"), ("train", "corpus")):
        for side in ("src", "tgt"):
            with open(tmp_path / "data" / f"{part}.{side}", "a") as file:
                file.write("ba\n")
        with pytest.raises(ValueError, match=f"the {what} has changed"):
            train(experiment, tmp_path / "run")


CHARACTERS = {"tokenizer.model_type": "char"}


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        ({"data.target": "none.txt"}, FileNotFoundError, "a text file must exist.*none.txt"),
        ({"data.target": "short.txt"}, ValueError, "same number of lines.*short.txt with 1"),
        ({"data.valid_target": "short.txt"}, ValueError, "same number of lines.*short.txt with 1"),
        ({"tokenizer.vocab_size": "5"}, ValueError, "a vocabulary could not be learnt"),
        ({"tokenizer.model_type": "word"}, ValueError, "`model_type` must be one of"),
        ({"training.buckets": "[2]", **CHARACTERS}, ValueError, "`corpus` must hold a pair"),
        ({"data.max_length": "2", **CHARACTERS}, ValueError, "`corpus` must hold a pair"),
    ],
)
def test_a_start_that_fails_leaves_no_folder(toy, tmp_path, monkeypatch, overrides, error, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.txt").write_text("ba\n")
    with pytest.raises(error, match=message):
        train(Experiment.load(toy, overrides), tmp_path / "new" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["short.txt"]


def test_a_folder_that_cannot_be_written_is_not_left_half_written(toy, tmp_path, monkeypatch):
    def fail(self, path):
        raise OSError("no space left")

    monkeypatch.setattr(SentencePieceTokenizer, "save", fail)
    with pytest.raises(OSError, match="no space left"):
        train(Experiment.load(toy), tmp_path / "run")
    assert not list(tmp_path.iterdir())
