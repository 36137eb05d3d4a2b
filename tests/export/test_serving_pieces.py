"""Large calls in pieces: the same answers, and never more rows at once than fit."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import BeamSearch, Translator
from keras_transformer.export.serving import graphs
from keras_transformer.export.serving.graphs import ServingModule
from keras_transformer.export.serving.pieces import in_pieces

WIDTH = 5


@pytest.mark.parametrize(
    ("rows", "tokens", "sizes"),
    [
        (7, 10, [2, 2, 2, 1]),
        (7, 14, [2, 2, 2, 1]),  # 14 // 5
        (7, 35, [7]),
        (6, 15, [3, 3]),
        (3, 4, [1, 1, 1]),  # a row is a piece, however long it is
        (0, 10, [0]),
    ],
)
def test_as_many_rows_at_once_as_have_so_many_tokens(rows, tokens, sizes):
    def run(ids, others):
        tf.numpy_function(lambda size: seen.append(int(size)), [tf.shape(ids)[0]], [])
        return ids[:, :2] + others[:, :1], tf.fill([tf.shape(ids)[0], 3, 1], tf.shape(ids)[0])

    seen = []
    ids, others = tf.reshape(tf.range(rows * WIDTH), (rows, WIDTH)), tf.ones((rows, 1), tf.int32)
    spec = tf.TensorSpec((None, None), tf.int32)
    whole = tf.function(
        lambda *columns: in_pieces(run, columns, tokens, (tf.int32, tf.int32)),
        input_signature=[spec, spec],
        autograph=False,
    )
    first, second = whole(ids, others)
    assert np.array_equal(first, ids[:, :2] + 1)
    assert second.shape == (rows, 3, 1)
    expected = np.repeat(sizes, sizes) if rows else []
    assert second[:, 0, 0].numpy().tolist() == [*expected]
    assert seen == sizes  # and one after another


@pytest.fixture(scope="module", params=["greedy", pytest.param("beam", marks=pytest.mark.slow)])
def calls(request, trained, tokenizer, texts):
    """Of each signature what comes of one call: whole, and in pieces of a few tokens."""
    strategy = (
        BeamSearch(beam_size=3, n_best=2, extra_length=5) if request.param == "beam" else None
    )
    inputs = {
        "text": [*texts[:6], "", "a" * 90],
        "target": ["B", texts[3].upper(), "", "CD E", "b", "A", "", "B"],
        "n_best": [1, 3, 2, 0, 1, 1, 1, 1] if request.param == "beam" else [1] * 8,
    }
    translator = Translator(trained, tokenizer, strategy, max_source_length=40)
    inputs["source_ids"] = translator.pad([translator.source_ids(text) for text in texts[:8]])

    def found():
        signatures = ServingModule(translator).signatures
        return {
            name: run(*(tf.constant(inputs[one.name]) for one in run.structured_input_signature[0]))
            for name, run in signatures.items()
        }

    whole = found()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SCORED_TOKENS", "ENCODED_TOKENS", "SEARCHED_TOKENS"):
            patch.setattr(graphs, name, 30)
        return whole, found()


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", sorted(graphs.DESCRIPTIONS))
def test_pieces_change_no_answer(calls, name):
    whole, pieces = (each[name] for each in calls)
    assert set(whole) == set(pieces)
    for key, values in whole.items():
        assert values.shape == pieces[key].shape, key
        if values.dtype == tf.float32:
            np.testing.assert_allclose(values, pieces[key], atol=1e-5)
        else:
            assert np.array_equal(values, pieces[key]), key


def test_static_sizes_stand_in_the_signatures(trained, tokenizer):
    signatures = ServingModule(Translator(trained, tokenizer)).signatures
    assert signatures["encode"].structured_outputs["states"].shape.as_list() == [None, None, 29]
    assert signatures["score"].structured_outputs["log_prob"].shape.as_list() == [None]
