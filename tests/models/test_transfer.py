"""`transfer_weights`: nested weights too, with an account, and never in silence."""

import keras
import numpy as np
import pytest
from backend import array
from toy_model import D, frozen_toy, randomise, sources, toy_config, toy_transformer

from keras_transformer import SequenceClassifier, Transformer, transfer_weights


def values(model):
    return {weight.path: array(weight) for weight in model.weights}


def test_an_encoder_into_a_classifier():
    transformer, classifier = frozen_toy(), randomise(SequenceClassifier(toy_config(), 5), seed=1)
    before, given = values(classifier), values(transformer)
    report = transfer_weights(transformer, classifier)
    after = values(classifier)
    assert "encoder_0/self_attention/query_key_value/kernel" in report.copied
    assert report.missing == ("classes/kernel", "classes/bias")
    assert report.other_shapes == ()
    assert all(path.startswith("decoder_") for path in report.unused)
    assert {*report.copied, *report.missing} == {*after}
    for path, value in after.items():
        expected = before if path in report.missing else given
        np.testing.assert_array_equal(value, expected[path], err_msg=path)
    states = array(transformer.encode(sources([5])).states)
    np.testing.assert_allclose(
        array(classifier(sources([5]))),
        states.mean(axis=1) @ before["classes/kernel"] + before["classes/bias"],
        atol=1e-5,
    )


def test_from_a_file_with_a_renamed_head(tmp_path):
    old = randomise(SequenceClassifier(toy_config(normalization="batch"), 5), seed=1)
    old.save(tmp_path / "old.keras")
    new = SequenceClassifier(toy_config(normalization="batch"), 7)
    report = transfer_weights(tmp_path / "old.keras", new)
    assert report.other_shapes == ("classes/kernel", "classes/bias")
    assert report.missing == report.unused == ()
    for path in report.copied:
        np.testing.assert_array_equal(values(new)[path], values(old)[path])
    assert any(path.endswith("moving_mean") for path in report.copied)


def test_a_longer_table_of_positions_is_told():
    short, long = (toy_transformer(positions="learned", max_positions=n) for n in (9, 12))
    before = values(long)["source_positions/embeddings"]
    report = transfer_weights(short, long)
    assert report.other_shapes == ("source_positions/embeddings", "target_positions/embeddings")
    np.testing.assert_array_equal(values(long)["source_positions/embeddings"], before)


def test_nothing_in_common_is_an_error():
    other = keras.Sequential([keras.Input((D,)), keras.layers.Dense(3, name="other")])
    target = Transformer(toy_config())
    before = values(target)
    message = (
        "must have a weight of the same path and shape. Received: 2 weights such as '.*other/k"
    )
    with pytest.raises(ValueError, match=message):
        transfer_weights(other, target)
    for path, value in values(target).items():
        np.testing.assert_array_equal(value, before[path])


def test_weights_of_one_path_are_named():
    """The last of them would be copied, and the others would stay without a word."""

    class Two(keras.layers.Layer):
        def build(self, shape):
            self.inner = [keras.layers.Dense(3, name="dense") for _ in range(2)]
            for each in self.inner:
                each.build(shape)

        def call(self, inputs):
            return self.inner[1](self.inner[0](inputs))

    def model(*layers):
        return keras.Sequential([keras.Input((3,)), *layers], name="model")

    one, other = (model(Two(name="two")) for _ in range(2))
    rule = "must have a path each.* Received: 2 and 2 weights of path '.*two/dense/kernel'"
    with pytest.raises(ValueError, match=rule):
        transfer_weights(one, other)
    head, plain = keras.layers.Dense(3, name="head"), keras.layers.Dense(3, name="head")
    transfer = transfer_weights(model(plain), model(head, Two(name="two")))  # in one alone
    assert len(transfer.copied) == 2
