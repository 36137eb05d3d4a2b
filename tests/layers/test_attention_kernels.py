"""Attention by a TPU's kernel, interpreted here, gives what plain attention gives."""

import json
import os
import subprocess
import sys
import types

import keras
import numpy as np
import pytest
from backend import array, jax_only
from keras import ops
from toy_model import D, H, N, U, sources, targets, toy_transformer

from keras_transformer.layers import CrossAttention, MultiHeadSelfAttention
from keras_transformer.layers.lowering import attention_kernels
from keras_transformer.layers.lowering.attention_kernels import Chips, kernel_of
from keras_transformer.layers.lowering.tracing import traced
from keras_transformer.layers.masks import AttentionMask

pytestmark = jax_only("kernels are Pallas'")

B, T, S = 11, 5, 7  # more rows than a block has, and not a multiple of them
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(B, T, D)).astype("float32")
MEMORY = RNG.normal(size=(B, S, D)).astype("float32")


def padding(keys):
    mask = RNG.random((B, 1, keys)) < 0.7
    mask[2] = False  # a row that sees nothing
    return mask


@pytest.fixture
def kernels(monkeypatch):
    """The kernels that were used, by the sizes of their scores."""
    used = []

    def recorded(layer, sizes, mask):
        kernel = kernel_of(layer, sizes, mask)
        used.extend([sizes] if kernel else [])
        return kernel

    for module in ("multi_head", "cross_attention"):
        monkeypatch.setattr(f"keras_transformer.layers.{module}.kernel_of", recorded)
    return used


def result(layer, *arguments, **options):
    """The output, and the gradients of a weighted sum of it, of the layer's state as it is."""
    import jax

    values = [one.value for one in layer.trainable_variables]
    fixed = [one.value for one in layer.non_trainable_variables]

    def loss(values):
        output, _ = layer.stateless_call(values, fixed, *arguments, **options)
        output = ops.cast(output, "float32")
        weights = np.random.default_rng(3).normal(size=output.shape)
        return ops.sum(output * weights), output

    (_, output), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(values)
    return [np.asarray(one, "float32") for one in (output, *gradients)]


def same(layer, *arguments, tolerance=2e-5, **options):
    expected = result(layer, *arguments, **options)
    with traced(tpu_chips=Chips(interpret=True)):
        found = result(layer, *arguments, **options)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


SELF = {
    "plain": (dict(), dict()),
    "causal, padding": (dict(), dict(use_causal_mask=True, attention_mask=padding(T))),
    "a mask a query": (dict(), dict(attention_mask=RNG.random((B, T, T)) < 0.6)),
    "one row for all": (dict(), dict(attention_mask=RNG.random((1, 1, 1, T)) < 0.6)),
    "dot product": (dict(attention_score="dot_product"), dict(use_causal_mask=True)),
    "no biases, widths": (dict(use_bias=False, value_dim=U, output_dim=3), dict()),
    "dropout": (dict(dropout=0.4), dict(training=True, attention_mask=padding(T))),
    "a chunk of all": (dict(attention_chunk=T), dict()),
    "a window of all": (dict(attention_window=T), dict()),
}


@pytest.mark.parametrize(("options", "call"), SELF.values(), ids=SELF)
def test_self_attention(options, call, kernels):
    layer = MultiHeadSelfAttention(num_heads=N, key_dim=H, **options)
    layer.build(INPUTS.shape)
    same(layer, INPUTS, **call)
    assert set(kernels) == {(B, N, T, T)}


CROSS = {
    "padding": (dict(value_dim=U), dict(attention_mask=padding(S))),
    "dropout": (dict(dropout=0.4), dict(training=True, attention_mask=padding(S))),
    "keys of their own": (dict(), dict(key=MEMORY * 2)),
}


@pytest.mark.parametrize(("options", "call"), CROSS.values(), ids=CROSS)
def test_cross_attention(options, call, kernels):
    layer = CrossAttention(num_heads=N, key_dim=H, **options)
    layer.build(INPUTS.shape, MEMORY.shape)
    same(layer, INPUTS, MEMORY, **call)
    assert set(kernels) == {(B, N, T, S)}


def test_under_a_mixed_policy():
    layer = MultiHeadSelfAttention(num_heads=N, key_dim=H, dtype="mixed_bfloat16")
    layer.build(INPUTS.shape)
    same(layer, INPUTS, tolerance=0.05)


BIAS = RNG.normal(size=(1, T, T)).astype("float32")
OTHERS = {
    "an additive mask": (dict(), dict(attention_bias=BIAS)),
    "a bias by distance": (dict(), dict(position_bias=np.ones((N, 2 * T - 1), "float32"))),
    "a mask a head": (dict(), dict(attention_mask=RNG.random((B, N, T, T)) < 0.6)),
    "a window": (dict(attention_window=2), dict()),
    "chunks": (dict(attention_chunk=2, dropout=0.4), dict(training=True)),
    "rotary": (dict(rotary=True, key_dim=H + 1), dict()),
    "additive scores": (dict(attention_score="additive"), dict()),
}


@pytest.mark.parametrize(("options", "call"), OTHERS.values(), ids=OTHERS)
def test_what_the_kernel_does_not_know_stays_as_it_is(options, call, kernels):
    layer = MultiHeadSelfAttention(num_heads=N, **{"key_dim": H, **options})
    layer.build(INPUTS.shape)
    same(layer, INPUTS, **call)
    assert not kernels


def test_weights_that_are_asked_for_are_given():
    layer = MultiHeadSelfAttention(num_heads=N, key_dim=H)
    with traced(tpu_chips=Chips(interpret=True)):
        _, weights = layer(INPUTS, return_attention_scores=True)
    np.testing.assert_allclose(array(ops.sum(weights, axis=-1)), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [((2, 8, 1024, 1024), "bfloat16"), ((2, 8, None, 64), "bfloat16"), ((2, 8, 64, 64), "float64")],
)
def test_lengths_and_dtypes_that_it_does_not_take(sizes, dtype):
    layer = MultiHeadSelfAttention(num_heads=8, key_dim=64, dtype=dtype)
    known = MultiHeadSelfAttention(num_heads=8, key_dim=64, dtype="mixed_bfloat16")
    with traced(tpu_chips=Chips(interpret=True)):
        assert kernel_of(known, (2, 8, 64, 64), AttentionMask())
        assert kernel_of(layer, sizes, AttentionMask()) is None


def test_a_whole_model_learns_the_same(kernels):
    model = toy_transformer(dropout=0.3, attention_dropout=0.3)
    inputs = {"source_ids": sources([5, 3]), "target_ids": targets(2, 5)}
    same(model, inputs, tolerance=1e-4, training=True)
    assert len(kernels) == 5  # a block of the encoder, two of the decoder


def test_rows_that_share_a_source_see_it(kernels):
    layer = CrossAttention(num_heads=N, key_dim=H)
    layer.build(INPUTS.shape, MEMORY[:1].shape)
    same(layer, INPUTS, MEMORY[:1])
    assert not kernels


def test_an_export_of_any_batch_has_plain_attention(kernels):
    import jax
    from jax import export

    layer = MultiHeadSelfAttention(num_heads=N, key_dim=H)
    layer.build(INPUTS.shape)
    batch = export.symbolic_shape("B")[0]
    with traced(tpu_chips=Chips(interpret=True)):
        exported = export.export(jax.jit(layer.__call__))(
            jax.ShapeDtypeStruct((batch, T, D), "float32")
        )
    np.testing.assert_allclose(exported.call(INPUTS), layer(INPUTS), rtol=2e-5, atol=2e-5)
    assert not any(kernels)


def test_chips_are_those_of_jax(monkeypatch):
    assert attention_kernels.chips() is None  # a CPU
    import jax

    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert attention_kernels.chips() == Chips()
    with keras.device("cpu:0"):
        assert attention_kernels.chips() is None
    with jax.default_device("cpu"):
        assert attention_kernels.chips() is None
    monkeypatch.setattr(jax, "device_count", lambda: 4)
    assert attention_kernels.chips() is None  # nobody says how rows lie
    device = keras.distribution.list_devices("cpu")[:1]
    mesh = keras.distribution.DeviceMesh((1,), ("rows",), device)
    with keras.distribution.DataParallel(device_mesh=mesh).scope():
        assert attention_kernels.chips() == Chips(mesh.backend_mesh, "rows")
    layouts = keras.distribution.LayoutMap(
        keras.distribution.DeviceMesh((1, 1), ("batch", "model"), device)
    )
    split = keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")
    with split.scope():
        assert attention_kernels.chips() is None


def test_rows_that_do_not_divide_by_the_chips():
    mesh = types.SimpleNamespace(shape={"batch": 4})
    layer = MultiHeadSelfAttention(num_heads=2, key_dim=4)
    with traced(tpu_chips=Chips(mesh, "batch", interpret=True)):
        assert kernel_of(layer, (6, 2, 5, 5), AttentionMask()) is None
        assert kernel_of(layer, (8, 2, 5, 5), AttentionMask())


SHARED = """
import json
import jax
import numpy as np
import keras
from keras import ops
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from keras_transformer.layers import MultiHeadSelfAttention
from keras_transformer.layers.lowering.attention_kernels import Chips
from keras_transformer.layers.lowering.tracing import traced

mesh = Mesh(np.array(jax.devices()), ("batch",))
inputs = np.random.default_rng(0).normal(size=(12, 5, 8)).astype("float32")
layer = MultiHeadSelfAttention(num_heads=2, key_dim=4, dropout=0.4)
layer.build(inputs.shape)
values = [one.value for one in layer.trainable_variables]
fixed = [one.value for one in layer.non_trainable_variables]

def loss(values, inputs):
    outputs, _ = layer.stateless_call(values, fixed, inputs, training=True, use_causal_mask=True)
    return ops.sum(outputs * outputs)

found = []
for chips in (None, Chips(interpret=True), Chips(mesh, "batch", interpret=True)):
    rows = inputs if chips is None or chips.mesh is None else jax.device_put(
        inputs, NamedSharding(mesh, PartitionSpec("batch"))
    )
    with traced(tpu_chips=chips):
        value, gradients = jax.jit(jax.value_and_grad(lambda *given: loss(*given)))(values, rows)
    found.append([float(value), *(np.asarray(one).tolist() for one in gradients)])
print(json.dumps([len(jax.devices()), found]))
"""


def test_chips_that_share_the_rows_give_the_same():
    """Dropout too: its masks are those of the rows of all chips."""
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", SHARED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    devices, (plain, *others) = json.loads(done.stdout.splitlines()[-1])
    assert devices == 4
    for other in others:
        for one, expected in zip(other, plain, strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5)
