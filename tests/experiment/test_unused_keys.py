"""A new run refuses keys that mean nothing where they stand; reading an experiment does not."""

import re

import pytest

from keras_transformer.data import ParallelCorpus, prepare
from keras_transformer.experiment import Experiment
from keras_transformer.experiment.unused_keys import check_keys
from keras_transformer.training import train
from keras_transformer_runner.tokenizers import BytesTokenizer

PAIRS = "ab\tba\nabc\tcba\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    (tmp_path / "pairs.jsonl").write_text('{"a": "ab", "b": "ba"}\n')
    prepare(
        ParallelCorpus(tmp_path / "pairs.tsv"), BytesTokenizer(), tmp_path / "shards", max_length=60
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment(data, **training):
    return Experiment.from_dict({"data": data, "training": {"max_epochs": 1, **training}})


TSV, JSON, DATASET = {"tsv": "pairs.tsv"}, {"source": "pairs.jsonl"}, {"source": "tfds:it/pt_en"}
KEYS = {"source_key": "a", "target_key": "b"}


@pytest.mark.parametrize(
    "data, message",
    [
        (TSV | {"source_key": "a"}, "`data.source_key` does not go with .*pairs.tsv"),
        ({"source": "pairs.tsv", "target_key": "b"}, "`data.target_key` does not go with"),
        (TSV | {"split": "test"}, "`data.split` does not go with .*pairs.tsv. Received: 'test'"),
        (JSON | KEYS | {"split": "test"}, "`data.split` does not go with .*pairs.jsonl"),
        (TSV | {"valid_tsv": "pairs.tsv", "valid_split": "x"}, "`data.valid_split` does not go"),
        (DATASET | KEYS | {"valid_split": "x"}, "`data.valid_split` .* without `valid_source`"),
        (TSV | {"format": "jsonl"}, "`data.format` does not go with .*pairs.tsv"),
        (TSV | {"temperature": 5}, "`data.temperature` goes with several corpora"),
        ({"sources": [TSV], "temperature": 5}, "`data.temperature` goes with several corpora"),
        ({"sources": [TSV], "valid_split": "x"}, "`data.valid_split` does not go with the corp"),
        ({"sources": [TSV | {"source_key": "a"}]}, "`data.sources.source_key` does not go with"),
        ({"source": "shards", "max_length": 12}, "`data.max_length` .*Received: max_length=12"),
    ],
)
def test_a_key_without_use_is_refused(folder, data, message):
    with pytest.raises(ValueError, match=message):
        check_keys(experiment(data))


@pytest.mark.parametrize(
    "data",
    [
        JSON | KEYS,
        {"source": "pairs.tsv", "format": "tsv"},
        TSV | {"valid_source": "pairs.jsonl"} | KEYS,
        DATASET | KEYS | {"split": "a", "valid_source": "tfds:it/pt_en", "valid_split": "b"},
        {"sources": [TSV, JSON | KEYS | {"tag": "<x>"}], "temperature": 5},
        {"source": "shards", "max_length": 300},
        {"source": "shards", "max_length": 12, "valid_tsv": "pairs.tsv"},
        {"source": "shards"},
    ],
)
def test_a_key_that_means_something_is_taken(folder, data):
    check_keys(experiment(data))


def test_a_new_run_is_refused_before_anything_is_written(folder):
    refused = experiment(TSV, teacher_temperature=2.0)
    message = re.escape("teacher_temperature=2.0, teacher_weight=0")
    with pytest.raises(ValueError, match=f"`training.teacher_temperature` goes with .*{message}"):
        train(refused, folder / "run")
    assert not (folder / "run").exists()
