"""tf-models-official as the oracle of our model: logits, gradients, greedy search."""

import numpy as np
import pytest
import tensorflow as tf
from toy_tf_models import EOS, logits_of, rows, shifted, toy_seq2seq

from keras_transformer.decoding import Greedy, decode
from keras_transformer.interop.tf_models import from_tf_models

# One change at a time of what tf-models calls its defaults, then several at once.
SETTINGS = {
    "defaults": dict(),
    "post-norm": dict(norm_first=False),
    "biases": dict(use_bias=True),
    "post-norm, biases": dict(norm_first=False, use_bias=True),
    "gelu": dict(activation="gelu"),
    "swish, post-norm": dict(activation="swish", norm_first=False),
    "one head": dict(num_attention_heads=1),
    "narrow heads": dict(num_attention_heads=5, use_bias=True),
    "one block each": dict(num_layers=1),
    "wide": dict(width=34, intermediate_size=7, vocab_size=11),
}
EXTRA = 5  # tokens that an answer may be longer than its source
# Tokens of each source, pads up to the longest, and of the targets.
LENGTHS = [((1,), 1), ((7, 3, 5), 4), ((2, 13), 17), ((41, 11), 29)]


@pytest.fixture(scope="module", params=SETTINGS.values(), ids=SETTINGS)
def pair(request):
    """A model of tf-models and ours, with the same weights."""
    seq2seq = toy_seq2seq(seed=3, **request.param)
    return seq2seq, from_tf_models(seq2seq)


@pytest.mark.quick(8)
@pytest.mark.parametrize("lengths, target_length", LENGTHS)
def test_the_logits_are_equal(pair, lengths, target_length):
    seq2seq, ours = pair
    vocab_size = ours.config.vocab_size
    source_ids = rows(lengths, vocab_size=vocab_size)
    target_ids = rows([target_length] * len(lengths), vocab_size=vocab_size, seed=1)
    target_ids[:, target_length // 2] = 0  # pads too can stand there
    expected = logits_of(seq2seq, source_ids, target_ids)
    received = ours({"source_ids": source_ids, "target_ids": shifted(target_ids)})
    assert np.abs(expected).max() > 0.5  # logits that are all zero would be equal too
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-5)


@pytest.mark.quick(2)
def test_the_gradients_are_equal(pair):
    seq2seq, ours = pair
    vocab_size = ours.config.vocab_size
    source_ids = rows((7, 3), vocab_size=vocab_size)
    target_ids = rows((5, 5), vocab_size=vocab_size, seed=1)

    def gradient(forward, embeddings):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(target_ids, forward())
            loss = tf.reduce_mean(losses)
        return tf.convert_to_tensor(tape.gradient(loss, embeddings)).numpy()

    expected = gradient(
        lambda: seq2seq({"inputs": source_ids, "targets": target_ids}),
        seq2seq.embedding_lookup.embeddings,
    )
    inputs = {"source_ids": source_ids, "target_ids": shifted(target_ids)}
    received = gradient(lambda: ours(inputs), ours.get_layer("embedding").embeddings.value)
    assert np.abs(expected).max() > 1e-2
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-6)


def greedy_by_full_passes(seq2seq, source, limit):
    """The likeliest token but 0 at each step, by tf-models' logits of the whole row so far."""
    ids = []
    while len(ids) < limit and EOS not in ids:
        logits = logits_of(seq2seq, source[np.newaxis], np.array([[*ids, 0]], "int32"))
        ids.append(1 + int(np.argmax(logits[0, -1, 1:])))
    return ids


@pytest.fixture(scope="module", params=[(14, True), (33, True), (38, False)])
def searched(request):
    """A model of tf-models, sources with their lengths, and our greedy rows for them."""
    seed, norm_first = request.param
    seq2seq = toy_seq2seq(seed, norm_first=norm_first, use_bias=True)
    embeddings = seq2seq.embedding_lookup.embeddings
    embeddings.assign(embeddings * 0.2)  # or a token would just repeat itself
    seq2seq._extra_decode_length = EXTRA
    lengths = (7, 2, 11, 5, 3, 13)
    source_ids = rows(lengths)
    received = decode(from_tf_models(seq2seq), source_ids, Greedy(extra_length=EXTRA)).ids.numpy()
    sources = [row[:length] for row, length in zip(source_ids, lengths, strict=True)]
    return seq2seq, sources, [list(row[row != 0]) for row in received]


@pytest.mark.slow
def test_greedy_takes_what_full_passes_of_tf_models_would(searched):
    seq2seq, sources, received = searched
    for source, ids in zip(sources, received, strict=True):
        assert ids == greedy_by_full_passes(seq2seq, source, len(source) + EXTRA)
    # Of several kinds, or equality would say little.
    assert len({tuple(ids) for ids in received}) > 3
    assert max(map(len, received)) > 6


@pytest.mark.slow
def test_tf_models_own_search_is_greedy_or_stops_earlier(searched):
    seq2seq, sources, received = searched
    differing = 0
    for source, ids in zip(sources, received, strict=True):
        answer = seq2seq({"inputs": source[np.newaxis]})["outputs"][0].numpy()
        answer = list(answer[answer != 0])
        assert answer in (ids, [*ids[: len(answer) - 1], EOS])
        differing += answer != ids
    assert 0 < differing < len(sources)


@pytest.mark.release
def test_the_base_model_of_the_paper():
    sizes = dict(num_layers=6, num_attention_heads=8, intermediate_size=2048)
    seq2seq = toy_seq2seq(seed=2, width=512, vocab_size=101, **sizes)
    source_ids = rows((17, 31), vocab_size=101)
    target_ids = rows((13, 13), vocab_size=101, seed=1)
    ours = from_tf_models(seq2seq)
    assert ours.count_params() == sum(weight.numpy().size for weight in seq2seq.weights)
    expected = logits_of(seq2seq, source_ids, target_ids)
    received = ours({"source_ids": source_ids, "target_ids": shifted(target_ids)})
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
