"""Experiments with several corpora."""

import numpy as np
import pytest
from toy_experiment import write_experiment

from keras_transformer.data import prepare
from keras_transformer.experiment import Experiment, load_run
from keras_transformer.experiment.corpora import open_corpora
from keras_transformer.training import run as run_module
from keras_transformer.training import train
from keras_transformer.training.data import TrainingData, make_tokenizers

SOURCES = """
[data]
max_length = 40

[[data.sources]]
source = "train.src"
target = "train.tgt"
valid_source = "valid.src"
valid_target = "valid.tgt"
weight = 0.5
tag = "<back>"

[[data.sources]]
tsv = "small.tsv"
weight = 4
"""


@pytest.fixture
def path(tmp_path):
    path = write_experiment(tmp_path / "data")
    path.with_name("small.tsv").write_text("ba be\tba be\nko\tko\n")
    text = path.read_text()
    rest = text[text.index("[tokenizer]") :].replace("buckets = [16]", "buckets = [40]")
    path.write_text(SOURCES + rest)
    return path


def data_of(experiment):
    corpora = open_corpora(experiment.data)
    return TrainingData.make(experiment, corpora, make_tokenizers(experiment.tokenizer, corpora[0]))


def rows(batches):
    return [inputs["source_ids"].numpy() for inputs, _ in batches]


def test_the_corpora_of_an_experiment(path, capsys):
    experiment = Experiment.load(path)
    assert [each.weight for each in experiment.data.sources] == [0.5, 4.0]
    assert experiment.data.sources[1].tsv == str(path.with_name("small.tsv"))
    copy = path.with_name("copy.toml")
    copy.write_text(experiment.to_toml())
    assert Experiment.load(copy) == experiment
    data = data_of(experiment)
    said = capsys.readouterr().err
    assert f"training, {path.with_name('train.src')} and" in said and "80 pairs, weight 0.5" in said
    assert len(data.training) == 40 + 8 and len(data.valid) == 17
    # From the middle of the second epoch, as after a kill.
    straight = rows(data.batches(0, 0).take(2 * data.steps))
    resumed = rows(data.batches(1, 2).take(data.steps - 2))
    for one, other in zip(straight[data.steps + 2 :], resumed, strict=True):
        np.testing.assert_array_equal(one, other)
    tagged = [text for batch in straight for text in map(data.tokenizers.source.decode, batch)]
    assert sum(text.startswith("<back> ") for text in tagged) == 80
    assert sum(text in ("ba be", "ko") for text in tagged) == 16


@pytest.mark.slow
def test_a_run_of_several_corpora(path, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "draw_run", lambda *_: None)
    experiment = Experiment.load(path, {"training.max_epochs": "1"})
    run = load_run(train(experiment, tmp_path / "run"))
    assert run.experiment == experiment
    assert all(text.startswith("<back> ") for text in run.samples)


def test_temperatures_and_plain_joins(path):
    text = path.read_text().replace("weight = 0.5\n", "").replace("weight = 4\n", "")
    path.write_text(text)
    joined = data_of(Experiment.load(path))
    assert len(joined.training) == 82
    assert len(data_of(Experiment.load(path, {"training.pack": "true"})).training) < 82
    mixed = data_of(Experiment.load(path, {"data.temperature": "5"}))
    assert len(mixed.training) in range(81, 84)
    tagged = [
        mixed.tokenizers.source.decode(ids).startswith("<back> ")
        for batch in rows(mixed.batches(0, 0).take(mixed.steps))
        for ids in batch
        if ids[0] != 0
    ]
    assert np.mean(tagged) == pytest.approx(80**0.2 / (80**0.2 + 2**0.2), abs=0.03)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_length = 40", 'tsv = "x"', r"`\[\[data.sources\]\]` must name the corpora.*'tsv'"),
        ("weight = 4", "weight = 0", "`weight` of a source must be positive. Received: 0.0"),
        (
            "weight = 4",
            "wight = 4",
            r"a key of \[data.sources\] must.*Did you mean 'weight'",
        ),
        ("weight = 4", 'weight = "4"', "`data.sources.weight` must be of type float"),
        ("weight = 4", 'source = "x"', r"`\[data.sources\]` must have either `tsv` or `source`"),
        ("<back>", " ", "`tag` of a source must be words of a line. Received: ' '"),
        ("max_length = 40", "temperature = 2", "`data.temperature` goes without a `weight`"),
        ("max_length = 40", "temperature = 0", "`data.temperature` must be positive. Received: 0"),
    ],
)
def test_wrong_sources(path, old, new, message):
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        Experiment.load(path)


def test_what_does_not_go_with_sources(path, tmp_path):
    with pytest.raises(ValueError, match=r"`data.sources` must be sections, \[\[data.sources\]\]"):
        Experiment.load(path, {"data.sources": "3"})
    with pytest.raises(ValueError, match=r"must name the corpora.*Received: 0 sources"):
        Experiment.load(path, {"data.sources": "[]"})
    with pytest.raises(ValueError, match="`training.pack` does not go with weights of sources"):
        data_of(Experiment.load(path, {"training.pack": "true"}))
    experiment = Experiment.load(path)
    corpora = open_corpora(experiment.data)
    tokenizers = make_tokenizers(experiment.tokenizer, corpora[0])
    prepare(corpora[1], tokenizers.source, tmp_path / "shards", max_length=16, shards=1)
    sources = f'[{{source = "{tmp_path / "shards"}"}}]'
    with pytest.raises(ValueError, match="a source of several must be text, not what `prepare`"):
        open_corpora(Experiment.load(path, {"data.sources": sources}).data)
    path.with_name("small.tsv").unlink()
    with pytest.raises(FileNotFoundError, match="a text file must exist.*small.tsv"):
        experiment.check_files()
