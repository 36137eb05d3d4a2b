"""The row-wise projection and the fixed-size cache."""

import keras
import numpy as np
import pytest
from backend import NAME, array, dtype_of, in_graph, tensor, value_and_gradients
from keras import KerasTensor, ops
from toy_model import D, F

from keras_transformer.layers import MultiHeadSelfAttention, Projection
from keras_transformer.layers.lowering.cache_slots import (
    empty_slots,
    more_slots,
    next_beam_slots,
    next_slots,
    no_ancestors,
    write_slots,
)
from keras_transformer.layers.lowering.tracing import ANYTHING, TENSORFLOW_CPU, XLA, traced
from keras_transformer.layers.projection import reshape

B, N, S, H = 2, 3, 7, 5


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.mark.parametrize("shape", [(2, D), (2, 3, D), (2, 3, 5, D)])
@pytest.mark.parametrize("arguments", [{}, {"activation": "relu", "use_bias": False}])
def test_projection_is_a_dense_layer(shape, arguments):
    layer, peer = Projection(F, **arguments), keras.layers.Dense(F, **arguments)
    inputs = normal(*shape)
    layer.build(shape), peer.build(shape)
    peer.set_weights(layer.get_weights())
    np.testing.assert_allclose(layer(inputs), peer(inputs), atol=1e-5)
    (_, ours), (_, theirs) = (
        value_and_gradients(lambda each=each: ops.sum(each(inputs) ** 2), each.weights)
        for each in (layer, peer)
    )
    for actual, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_projection_of_an_empty_batch():
    layer = Projection(F)
    assert layer(np.zeros((0, 3, D), "float32")).shape == (0, 3, F)


@pytest.mark.parametrize("unknown", [(), (0,), (1,), (0, 1)])
def test_reshape_takes_sizes_known_and_unknown(unknown):
    inputs = normal(2, 3, 5)
    shape = [tensor(size) if axis in unknown else size for axis, size in enumerate((2, 15))]
    np.testing.assert_array_equal(reshape(inputs, shape), inputs.reshape(2, 15))


def test_reshape_infers_one_unknown_size():
    shapes = []

    def flatten(inputs):
        outputs = reshape(inputs, (ops.shape(inputs)[0], 15))
        shapes.append(tuple(outputs.shape))
        return outputs

    call = in_graph(flatten, signature=[KerasTensor((None, 3, 5))])
    inputs = normal(2, 3, 5)
    np.testing.assert_array_equal(call(inputs), inputs.reshape(2, 15))
    assert shapes == [(2 if NAME == "jax" else None, 15)]


@pytest.fixture(params=[ANYTHING, TENSORFLOW_CPU, XLA])
def way(request):
    """Every way in which slots are written; on JAX they are one."""
    with traced(compiled_for=request.param):
        yield


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, S])
def test_write_slots_changes_the_slots_and_no_other(length, as_tensor, way):
    buffer, update = normal(B, N, S, H), normal(B, N, length, H, seed=1)
    for position in range(S - length + 1):
        expected, before = buffer.copy(), buffer.copy()
        expected[:, :, position : position + length] = 0.25 * update
        before[:, :, position : position + length] = 0
        place = tensor(position) if as_tensor else position
        slots = next_slots(length, ops.arange(S), place).in_buffers(B, N)
        written = write_slots(tensor(before), update, slots, 0.25)
        np.testing.assert_array_equal(written, expected)


@pytest.mark.parametrize("position", [0, 1, S - 1])
def test_write_slots_writes_every_beam(position, way):
    beams = 4
    buffer, update = normal(B, N, S * beams, H), normal(B, N, beams, H, seed=1)
    buffer[:, :, beams * position : beams * (position + 1)] = 0
    expected = buffer.copy()
    expected[:, :, beams * position : beams * (position + 1)] = update
    slots, _ = next_beam_slots(no_ancestors(B * beams, S, beams), ops.arange(S), position)
    slots = slots.in_buffers(B, N)
    np.testing.assert_array_equal(write_slots(tensor(buffer), update, slots), expected)


@pytest.mark.parametrize("length", [1, 3])
def test_write_slots_in_a_graph_of_unknown_sizes(length, way):
    def write(buffer, update, position):
        slot_ids = ops.arange(ops.shape(buffer)[2])
        slots = next_slots(ops.shape(update)[2], slot_ids, position)
        slots = slots.in_buffers(ops.shape(buffer)[0], N)
        return write_slots(buffer, update, slots)

    part = KerasTensor((None, N, None, H))
    call = in_graph(write, signature=[part, part, KerasTensor((), "int32")])
    buffer, update = normal(B, N, S, H), normal(B, N, length, H, seed=1)
    buffer[:, :, 2 : 2 + length] = 0
    expected = buffer.copy()
    expected[:, :, 2 : 2 + length] = update
    np.testing.assert_array_equal(call(buffer, update, np.int32(2)), expected)


def test_write_slots_keeps_the_dtype_of_the_cache(way):
    buffer = ops.zeros((B, N, S, H), "float16")
    slots = next_slots(1, ops.arange(S), 0).in_buffers(B, N)
    written = write_slots(buffer, normal(B, N, 1, H), slots, 0.5)
    assert dtype_of(written) == "float16" and np.any(array(written))


def test_buffers_that_begin_alike_are_written_apart(way):
    """A graph optimizer makes one tensor of equal ones, and writing may be in place."""
    attention = MultiHeadSelfAttention(N, H)

    def write(update, count):
        buffers = empty_slots(ops.shape(update)[0], attention, 0)
        keys, values = (more_slots(more_slots(each, count), 1) for each in buffers)
        slot_ids = ops.arange(count + 1)
        slots = next_slots(1, slot_ids, count).in_buffers(ops.shape(update)[0], N)
        return write_slots(keys, update, slots), write_slots(values, 2 * update, slots)

    signature = [KerasTensor((None, N, 1, H)), KerasTensor((), "int32")]
    call = in_graph(write, signature=signature) if NAME != "jax" else write
    update = normal(B, N, 1, H)
    expected = np.zeros((B, N, 4, H), "float32")
    expected[:, :, 3:] = update
    keys, values = call(update, np.int32(3) if NAME != "jax" else 3)
    np.testing.assert_array_equal(keys, expected)
    np.testing.assert_array_equal(values, 2 * expected)
