"""Runs with every other option at once: they train, stop, resume to the same weights, translate."""

import dataclasses
import json

import numpy as np
import pytest
from toy_experiment import write_experiment

from keras_transformer.data import prepare
from keras_transformer.experiment import Experiment, load_run
from keras_transformer.experiment.corpora import open_corpora
from keras_transformer.experiment.tokenizers import Tokenizers
from keras_transformer.training import run as run_module
from keras_transformer.training import train
from keras_transformer.training.data import TrainingData, make_tokenizers
from keras_transformer.training.validation_bleu import ValidationBleu
from keras_transformer_runner.tokenizers import (
    BytesTokenizer,
    SentencePieceTokenizer,
    VocabularyTokenizer,
)

EVERYTHING = {
    "tokenizer.type": "vocabulary",
    "tokenizer.joint": "false",
    "tokenizer.vocab_size": None,
    "training.optimizer": "adamw",
    "training.weight_decay": "0.01",
    "training.schedule": "inverse_sqrt",
    "training.learning_rate": "0.05",
    "training.r_drop": "1.0",
    "training.ema": "0.9",
    "training.accumulate_batches": "2",
    "training.score_every_epochs": "1",
    "training.best_by": "chrf",
    "training.clipnorm": "1.0",
    "training.rematerialize": "true",
}


def experiment(folder, overrides):
    path = write_experiment(folder)
    text = path.read_text()
    for name, value in overrides.items():
        if value is None:  # take the line away
            text = "".join(
                line for line in text.splitlines(True) if not line.startswith(name.split(".")[1])
            )
    path.write_text(text)
    kept = {name: value for name, value in overrides.items() if value is not None}
    return Experiment.load(path, kept)


def records(run_dir):
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in record.items() if k != "seconds"} for record in lines]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    folder = tmp_path_factory.mktemp("everything")
    described = experiment(folder / "data", EVERYTHING)
    return described, train(described, folder / "straight")


@pytest.mark.slow
def test_scores_join_the_figures(everything):
    _, run_dir = everything
    found = records(run_dir)
    assert [record["epoch"] for record in found] == [1, 2, 3]
    for record in found:
        assert 0 <= record["val_bleu"] <= 100 and 0 <= record["val_chrf"] <= 100
    # Five batches an epoch, two an update: the third epoch ends in the middle of an update.
    assert [record["step"] for record in found] == [2, 5, 7]
    assert (run_dir / "plots" / "training.png").stat().st_size > 10_000


def test_scores_say_once_which_pairs_they_lack(monkeypatch, capsys):
    bytes_of = BytesTokenizer()
    pairs = [("ab", "ba"), (" ", "x"), ("abcd", "x"), ("abc", "cba")]
    callback = ValidationBleu(None, Tokenizers(bytes_of, bytes_of), pairs, max_source_length=4)
    monkeypatch.setattr(callback, "scores", lambda: {})
    callback.on_epoch_end(0, {})
    expected = "2 pairs; left out: 2 with a source that is blank or longer than 4 ids\n"
    assert capsys.readouterr().err == f"val_bleu and val_chrf of {expected}"
    callback._translator = "made by the first scores"
    callback.on_epoch_end(1, {})
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_resumed_equals_never_killed(everything, tmp_path, monkeypatch):
    described, straight = everything

    class Killing(run_module.TrainingCheckpoint):
        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt

    for steps in (3, 5):  # the third batch and the seventh, each the first of an update
        Killing.left = steps
        with monkeypatch.context() as context:
            context.setattr(run_module, "TrainingCheckpoint", Killing)
            with pytest.raises(KeyboardInterrupt):
                train(described, tmp_path / "run")
    train(described, tmp_path / "run")
    assert records(tmp_path / "run") == records(straight)
    one, other = (load_run(folder).model.get_weights() for folder in (tmp_path / "run", straight))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_validated_and_kept_are_the_averages(everything):
    _, run_dir = everything
    kept = load_run(run_dir).model
    kept.load_weights(run_dir / "checkpoints" / "epoch-0003.weights.h5")
    with np.load(run_dir / "checkpoints" / "state.npz") as state:
        trained = [state[f"model/{number}"] for number in range(len(kept.weights))]
        averages = [
            state[f"optimizer/{number}"]
            for number in range(len(state.files))
            if f"optimizer/{number}" in state.files
        ]
    weight = kept.weights[0].numpy()
    assert not any(np.array_equal(weight, value) for value in trained)
    assert any(np.array_equal(weight, value) for value in averages)


def test_each_side_has_its_vocabulary(everything):
    _, run_dir = everything
    run = load_run(run_dir)
    assert isinstance(run.tokenizer, VocabularyTokenizer)
    assert run.tokenizer.pieces != run.target_tokenizer.pieces
    assert run.config.target_size == run.target_tokenizer.vocab_size
    assert run.config.embedding_sharing == "target_output"
    (text,) = run.translator().translate([run.samples[0]])
    assert set(text.split()) <= {*run.target_tokenizer.pieces, "⁇"}
    assert sorted(path.name for path in run_dir.glob("*tokenizer*")) == [
        "target_tokenizer.json",
        "tokenizer.json",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bytes", pytest.param("characters", marks=pytest.mark.slow)])
def test_other_kinds_of_tokenizers_train(tmp_path, kind):
    described = experiment(
        tmp_path / "data",
        {
            "tokenizer.type": kind,
            "tokenizer.vocab_size": None,
            "training.max_epochs": "1",
            "training.buckets": "[32]",
            "data.max_length": "32",
        },
    )
    run = load_run(train(described, tmp_path / "run"))
    assert run.tokenizer.kind == kind
    assert run.target_tokenizer is run.tokenizer
    assert run.translator().translate([""]) == [""]


@pytest.mark.slow
def test_training_stops_without_progress(tmp_path, monkeypatch):
    described = experiment(
        tmp_path / "data",
        {"training.max_epochs": "9", "training.patience": "2", "training.learning_rate_scale": "9"},
    )
    # Figures that get worse after the second epoch, whatever the weights.
    losses = iter([3.0, 2.0, 2.5, 2.4, 2.3, 2.2])

    class Watching(run_module.TrainingCheckpoint):
        def on_epoch_end(self, epoch, logs=None):
            super().on_epoch_end(epoch, {**logs, "val_loss": next(losses)})

    monkeypatch.setattr(run_module, "TrainingCheckpoint", Watching)
    run_dir = train(described, tmp_path / "run")
    assert [record["epoch"] for record in records(run_dir)] == [1, 2, 3, 4]
    # Killed before the end: it does not go on training.
    (run_dir / "model.keras").unlink()
    train(described, run_dir)
    assert len(records(run_dir)) == 4
    assert (run_dir / "model.keras").exists()


def test_tokenizers_are_learnt_or_read(tmp_path):
    pairs = [("ab a", "xy x"), ("b", "y")]
    section = Experiment.from_dict(
        {"data": {"tsv": "x"}, "training": {"max_epochs": 1}, "tokenizer": {"type": "bytes"}}
    ).tokenizer
    tokenizers = Tokenizers.make(section, pairs)
    assert isinstance(tokenizers.source, BytesTokenizer) and tokenizers.are_joint
    tokenizers.save(tmp_path)
    one = VocabularyTokenizer.train(["a b"])
    two = VocabularyTokenizer.train(["x"])
    one.save(tmp_path / "one.json")
    two.save(tmp_path / "two.json")
    read = {"file": str(tmp_path / "one.json"), "target_file": str(tmp_path / "two.json")}
    for fields, joint in (({**read}, False), ({"file": read["file"]}, True)):
        section = Experiment.from_dict(
            {"data": {"tsv": "x"}, "training": {"max_epochs": 1}, "tokenizer": fields}
        ).tokenizer
        tokenizers = Tokenizers.make(section, pairs)
        assert tokenizers.source.pieces == one.pieces
        assert tokenizers.are_joint is joint
        folder = tmp_path / str(joint)
        folder.mkdir()
        tokenizers.save(folder)
        assert Tokenizers.load(folder).target.pieces == (one if joint else two).pieces
    with pytest.raises(FileNotFoundError, match="a run folder must hold its tokenizer"):
        Tokenizers.load(tmp_path / "one.json")


def test_special_ids_of_both_sides_must_agree():
    pieces = SentencePieceTokenizer.train(["abc"] * 5, 8, model_type="char")
    tokenizers = Tokenizers(pieces, BytesTokenizer())
    tokenizers.config_fields()
    pieces.eos_id = 2
    with pytest.raises(ValueError, match="both tokenizers must have the same special ids"):
        tokenizers.config_fields()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": "words"}, "`tokenizer.type` must be one of .*'words'"),
        ({"type": "bytes", "vocab_size": 9}, "`tokenizer.vocab_size` does not go with 'bytes'"),
        ({"joiner": "x"}, "`tokenizer.joiner` does not go with 'sentencepiece'"),
        ({"file": "a", "vocab_size": 9}, "does not go with a tokenizer that is read from a file"),
        ({"target_file": "a"}, "`tokenizer.target_file` goes with `tokenizer.file`"),
    ],
)
def test_options_that_mean_nothing_are_refused(fields, message):
    values = {"data": {"tsv": "x"}, "training": {"max_epochs": 1}, "tokenizer": fields}
    with pytest.raises(ValueError, match=message):
        Experiment.from_dict(values)


@pytest.mark.slow
def test_batch_figures_do_not_hide_a_divergence(tmp_path):
    described = experiment(tmp_path / "data", {"training.learning_rate_scale": "1e30"})
    with pytest.raises(ValueError, match="training has diverged"):
        train(described, tmp_path / "run")


SPLIT = {"tokenizer.type": "vocabulary", "tokenizer.vocab_size": None}


def _data(described):
    corpora = open_corpora(described.data)
    return TrainingData.make(described, corpora, make_tokenizers(described.tokenizer, corpora[0]))


def test_pairs_beyond_the_last_bucket_are_left_out_and_counted(tmp_path, capsys):
    whole = _data(experiment(tmp_path / "a", SPLIT | {"training.buckets": None}))
    described = experiment(tmp_path / "b", SPLIT | {"training.buckets": "[3, 4]"})
    capsys.readouterr()
    cut = _data(described)
    longer = int((whole.training.pair_lengths > 4).sum())
    assert 0 < longer == cut.training.skipped["too_long"] == len(whole.training) - len(cut.training)
    assert f"; left out: too_long: {longer} (lines " in capsys.readouterr().err
    assert len(cut.valid) == len(whole.valid)  # which has buckets of its own
    shapes = {inputs["source_ids"].shape[1] for inputs, _ in cut.batches(0, 0).take(cut.steps)}
    assert shapes == {3, 4}

    prepared = {}
    for name, corpus in zip(("train", "valid"), open_corpora(described.data), strict=True):
        prepared[name] = str(tmp_path / name)
        prepare(corpus, cut.tokenizers.source, prepared[name], max_length=16, shards=2)
    sections = {**described.to_dict(), "tokenizer": {}}
    sections["data"] = {"source": prepared["train"], "valid_source": prepared["valid"]}
    again = _data(Experiment.from_dict(sections))
    assert again.training.skipped == cut.training.skipped and len(again.training) == len(
        cut.training
    )
    assert len(again.valid) == len(whole.valid)


@pytest.mark.slow
def test_a_model_with_fewer_places_than_the_longest_pair_trains(tmp_path, capsys):
    options = {
        "model.positions": "learned",
        "model.max_positions": "5",
        "training.buckets": None,
        "training.max_epochs": "1",
        "training.score_every_epochs": "1",
    }
    described = experiment(tmp_path / "data", SPLIT | options)
    run_dir = train(described, tmp_path / "run")
    assert "pairs; left out: too_long: " in capsys.readouterr().err  # of the validation set too
    assert records(run_dir)[0]["val_bleu"] >= 0
    run = load_run(run_dir)
    assert len(run.samples) > 3
    run.translator().translate(run.samples)  # none is too long for it
    with pytest.raises(
        ValueError, match="`training.buckets` must be at most `model.max_positions`"
    ):
        experiment(tmp_path / "data", SPLIT | options | {"training.buckets": "[4, 8]"})


@pytest.mark.parametrize("option", ["score_every_epochs", "patience"])
def test_what_needs_validation_data_is_refused_without(tmp_path, option):
    described = experiment(tmp_path / "data", {f"training.{option}": "1"})
    data = dataclasses.replace(described.data, valid_source=None, valid_target=None)
    described = dataclasses.replace(described, data=data)
    with pytest.raises(ValueError, match=f"need validation data.*{option}': 1"):
        train(described, tmp_path / "run")
    assert not (tmp_path / "run").exists()
