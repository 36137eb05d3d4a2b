"""SSRU: the formula, all tokens at once and one by one, its gradient, several in a row."""

import keras
import numpy as np
import numpy_reference as reference
import pytest
from backend import array, compiled, dtype_of, gradients, in_graph, tensorflow_only
from keras import ops
from toy_model import D, F, H, N, U, randomise

from keras_transformer.layers import SSRU, DecoderBlock
from keras_transformer.layers.lowering.cache_slots import slots_of_states
from keras_transformer.layers.recurrence import linear_recurrence

B, S, E = 2, 7, 29
SIZES = dict(num_heads=N, key_dim=H, intermediate_dim=F, value_dim=U)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def made(**arguments):
    layer = SSRU(**arguments)
    layer.build((None, None, D))
    return randomise(layer)


def decoder(**arguments):
    block = DecoderBlock(**SIZES, recurrence="ssru", **arguments)
    block.build((B, None, D), (B, S, E))
    return randomise(block)


@pytest.mark.smoke
def test_by_hand():
    """D = 1, W = 1, a gate of 1/2 whatever the input: c = 1, -1/2 and 3/4."""
    layer = SSRU(use_bias=False)
    layer.build((1, 3, 1))
    layer.input_projection.kernel.assign([[1.0]])
    layer.forget_gate.kernel.assign([[0.0]])
    outputs = layer(np.array([[[2.0], [-2.0], [2.0]]], "float32"))
    np.testing.assert_allclose(outputs, [[[1.0], [0.0], [0.75]]], atol=1e-6)


@pytest.mark.smoke
@pytest.mark.parametrize("length", [1, 2, 3, 8, 21])
def test_equals_the_reference_in_every_mode(length):
    """In a graph of an open length the scan is a loop of its own."""
    layer, inputs = made(), normal(B, length, D)
    starts = np.random.default_rng(1).random((B, length)) < 0.3
    expected = reference.ssru(layer, inputs)
    apart = reference.ssru(layer, inputs, starts)
    assert length < 3 or np.abs(apart - expected).max() > 1e-2
    spec = keras.KerasTensor((None, None, D), "float32")
    for run in (layer, in_graph(layer, of=layer, signature=[spec]), compiled(layer, of=layer)):
        np.testing.assert_allclose(run(inputs), expected, atol=1e-5)
    np.testing.assert_allclose(layer(inputs, segment_starts=starts), apart, atol=1e-5)


@pytest.mark.parametrize("wrap", [None, in_graph, compiled])
def test_the_gradient_is_that_of_one_token_after_the_other(wrap):
    decay, updates, weights = (normal(B, 6, 3, seed=seed) for seed in range(3))
    decay = 1 / (1 + np.exp(-decay))

    def at_once(decay, updates):
        return ops.sum(linear_recurrence(decay, updates) * weights)

    def one_by_one(decay, updates):
        state, total = ops.zeros((B, 3)), 0.0
        for t in range(6):
            state = decay[:, t] * state + updates[:, t]
            total = total + ops.sum(state * weights[:, t])
        return total

    expected = gradients(one_by_one, decay, updates)
    for actual, wanted in zip(gradients(at_once, decay, updates, wrap=wrap), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-5)


def test_a_gate_that_is_shut_lets_nothing_through():
    """And nothing overflows: a product of a thousand gates is 0, not a quotient of two of them."""
    updates = normal(1, 1000, 2)
    for decay in (0.0, 1e-30, 1.0):
        states = array(linear_recurrence(np.full_like(updates, decay), updates))
        expected = np.cumsum(updates, axis=1) if decay == 1 else updates
        np.testing.assert_allclose(states, expected, atol=1e-4)


@pytest.mark.parametrize("lengths", [[1] * 5, [3, 1, 1], [2, 3]], ids=str)
def test_steps_equal_the_full_pass(lengths):
    layer, inputs = made(), normal(B, 5, D)
    full, state, position = array(layer(inputs)), layer.start(B), 0
    for length in lengths:
        part, slots = inputs[:, position : position + length], slots_of_states(length, position)
        outputs, state = layer.step(part, state, slots)
        np.testing.assert_allclose(outputs, full[:, position : position + length], atol=1e-5)
        assert tuple(state.values.shape) == (B, 1, D)
        position += length


def test_a_step_of_beams_is_one_of_each():
    layer, inputs, beams = made(), normal(B, 2, 3, D), 3  # (B, T, K, D)
    state = layer.start(B, beams)
    for t in range(2):
        outputs, state = layer.step(inputs[:, t], state, slots_of_states(1, t, beams))
        for beam in range(beams):
            expected = reference.ssru(layer, inputs[:, :, beam])[:, t]
            np.testing.assert_allclose(outputs[:, beam], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [("float32", "float32"), ("mixed_float16", "float32"), ("bfloat16", "float32"),
     pytest.param("float64", "float64", marks=tensorflow_only("64 bits without a setting"))],
)  # fmt: skip
def test_the_state_is_float32_at_least(policy, wanted):
    layer = made(dtype=policy)
    outputs, state = layer.step(normal(B, 1, D), layer.start(B), slots_of_states(1, 0))
    assert dtype_of(layer.start(B).values) == dtype_of(state.values) == wanted
    assert dtype_of(outputs) == layer.compute_dtype == dtype_of(layer(normal(B, 4, D)))


# --- In a block ----------------------------------------------------------------------------


@pytest.mark.parametrize("residual", ["post", "pre", "b2t"])
def test_the_block_equals_the_reference(residual):
    block, inputs, memory = decoder(residual=residual), normal(B, 5, D), normal(B, S, E, seed=1)
    options = {**SIZES, "residual": residual, "recurrence": "ssru"}
    expected, (weights,) = reference.decoder_block(block, options, inputs, memory)
    actual = block(inputs, memory, return_attention_scores=True)
    np.testing.assert_allclose(actual[0], expected, atol=1e-5)
    np.testing.assert_allclose(actual[1], weights, atol=1e-5)
    assert len(actual) == 2


def test_symbolic_calls_of_a_block():
    block = decoder()
    inputs, memory = keras.Input((None, D)), keras.Input((S, E))
    states, weights = block(inputs, memory, return_attention_scores=True)
    assert states.shape == (None, None, D) and weights.shape == (None, N, None, S)


def test_a_block_has_no_self_attention_beside_it():
    def inner(**options):
        return {weight.path.split("/", 1)[1] for weight in decoder(**options).weights}

    paths = inner()
    assert not any(path.startswith("self_attention") for path in paths)
    assert {path for path in paths if path.startswith("recurrence/")} == {
        *("recurrence/input/kernel", "recurrence/forget_gate/kernel"),
        "recurrence/forget_gate/bias",
    }
    assert "recurrence/forget_gate/bias" not in inner(use_bias=False)


@pytest.mark.parametrize("option", [dict(rotary=True), dict(attention_window=3)], ids=str)
def test_options_of_self_attention_are_refused(option):
    with pytest.raises(ValueError, match=f"are for self-attention.*{next(iter(option))}="):
        DecoderBlock(**{**SIZES, "key_dim": 14}, recurrence="ssru", **option)


def test_an_unknown_recurrence():
    message = r"`recurrence` must be one of \(None, 'ssru'\)\. Received: 'gru'"
    with pytest.raises(ValueError, match=message):
        DecoderBlock(**SIZES, recurrence="gru")


@pytest.mark.parametrize(
    "masks",
    [
        dict(attention_mask=np.ones((B, 5, 5), bool)),
        dict(attention_bias=np.zeros((B, 5, 5), "float32")),
        dict(position_bias=np.zeros((N, 9), "float32")),
    ],
    ids=lambda masks: next(iter(masks)),
)
def test_masks_are_refused(masks):
    inputs, memory = normal(B, 5, D), normal(B, S, E)
    with pytest.raises(ValueError, match=f"in the place of masks. Received: {next(iter(masks))}"):
        decoder()(inputs, memory, **masks)


def test_segment_starts_are_checked():
    inputs, memory, starts = normal(B, 5, D), normal(B, S, E), np.zeros((B, 5), bool)
    block = DecoderBlock(**SIZES)
    with pytest.raises(ValueError, match="`segment_starts` is for a block with a `recurrence`"):
        block(inputs, memory, segment_starts=starts)
    with pytest.raises(ValueError, match=r"`segment_starts` must have shape \(B, T\)"):
        made()(inputs, segment_starts=starts[:, :4])
    with pytest.raises(ValueError, match="`segment_starts`"):
        made()(inputs, segment_starts=np.full((B, 5), 0.5, "float32"))


def test_the_bias_is_a_flag():
    with pytest.raises(ValueError, match="`use_bias` must be True or False. Received: use_bias=1"):
        SSRU(use_bias=1)
