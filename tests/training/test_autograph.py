"""Nothing that feeds a run is traced with AutoGraph, which takes most of the time of a trace."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.autograph.impl import api
from toy_experiment import write_experiment
from toy_model import toy_transformer

from keras_transformer.data import (
    MixedCorpus,
    PreparedCorpus,
    prepare,
    tokenize_corpus,
    training_batches,
)
from keras_transformer.experiment import Experiment
from keras_transformer.experiment.corpora import open_corpora
from keras_transformer.training.data import TrainingData, make_tokenizers
from keras_transformer.training.distribution import distributed, with_rows_filled
from keras_transformer_runner.tokenizers import CharacterTokenizer


@pytest.fixture
def converted(monkeypatch):
    """The functions that AutoGraph is asked to convert, as they come."""
    names = []

    convert = api._convert_actual

    def record(function, context):
        names.append(function.__qualname__)
        return convert(function, context)

    monkeypatch.setattr(api, "_convert_actual", record)
    return names


def test_the_fixture_sees_autograph(converted):
    tf.data.Dataset.range(2).map(lambda number: number + 1)
    assert len(converted) == 1


def test_batches_of_a_run_are_made_without_it(converted, tmp_path):
    changes = {"training.r_drop": "1.0", "training.accumulate_batches": "2"}
    described = Experiment.load(write_experiment(tmp_path), changes)
    corpora = open_corpora(described.data)
    data = TrainingData.make(
        described, corpora, make_tokenizers(described.tokenizer, corpora[0]), None, 7
    )
    for batches in (data.batches(0, 0), data.validation_batches()):
        next(iter(batches))
    assert converted == []


def test_shares_and_checks_are_made_without_it(converted):
    ids = np.arange(1, 11, dtype="int32").reshape(5, 2)

    def make():
        return tf.data.Dataset.from_tensors(({"source_ids": ids, "target_ids": ids}, ids))

    checks = toy_transformer().ids()
    for batch in distributed(tf.distribute.get_strategy(), make, 0, checks):
        assert batch
    (filled,) = with_rows_filled(make(), 3, 0)
    assert filled[1].shape == (6, 2)
    assert converted == []


def test_prepared_and_mixed_corpora_are_read_without_it(converted, tmp_path):
    tokenizer = CharacterTokenizer(["a", "b"])
    pairs = [("a", "b"), ("ab", "ba")]
    prepare(pairs, tokenizer, tmp_path / "corpus", max_length=8)
    parts = [tokenize_corpus(pairs, tokenizer, max_length=8)] * 2
    for corpus in (PreparedCorpus(tmp_path / "corpus"), MixedCorpus(parts, weights=[1, 0.5])):
        assert list(training_batches(corpus, tokenizer, batch_tokens=16, epochs=1))
    assert converted == []
