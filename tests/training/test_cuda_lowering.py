"""Training steps and searches as JAX lowers them for CUDA, without a GPU.

Lowering says what a program asks of the device, not that it has run.
`benchmarks/accelerators.py` compiles the same programs for a GPU.
"""

import collections
import importlib.util
import re

import keras
import numpy as np
import pytest
from backend import NAME, jax_only
from keras import ops
from toy_model import toy_transformer

import keras_transformer as kt
from keras_transformer.decoding import BeamSearch, Greedy, decode
from keras_transformer.experiment.sections import TrainingSection
from keras_transformer.training.fused_attention import set_implementation
from keras_transformer.training.objective import compile_model

if NAME == "jax":
    import jax

pytestmark = jax_only("lowering for a device that is not there")
POLICY = "mixed_bfloat16"
ROWS, LENGTH = 6, 8
_PRODUCT = re.compile(r"stablehlo\.dot_general .*: \(tensor<([^>]*)>, tensor<([^>]*)>\)")


def lowered(function, *arguments):
    """The text of `function` for CUDA; a call of the host is an error already here."""
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()


def faults(text, others=()):
    """What a program for a GPU must not hold, with the types of products that are not bfloat16."""
    found = collections.Counter(re.findall(r"custom_call @([\w$.]+)", text))
    found["float64"] = len(re.findall(r"[<x]f64>", text))
    found["dynamic shapes"] = len(re.findall(r"tensor<\?|x\?x", text))
    for operands in _PRODUCT.findall(text):
        found.update(kind for each in operands if (kind := each.rpartition("x")[2]) != "bf16")
    return {name for name, count in found.items() if count} - set(others)


def like(variable):
    return jax.ShapeDtypeStruct(variable.value.shape, variable.value.dtype)


def ids(rows=ROWS, length=LENGTH):
    return jax.ShapeDtypeStruct((rows, length), np.dtype("int32"))


def training_step(model, **options):
    """The step that `fit` jits, as text."""
    compile_model(model, TrainingSection(max_epochs=1, clipnorm=1.0, **options))
    model.optimizer.build(model.trainable_variables)
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([like(each) for each in group] for group in groups)
    return lowered(model.train_step, state, ({"source_ids": ids(), "target_ids": ids()}, ids()))


def search(model, strategy):
    def run(values, source_ids):
        with keras.StatelessScope(list(zip(model.weights, values, strict=True))):
            return decode(model, source_ids, strategy)

    return lowered(run, [like(weight) for weight in model.weights], ids())


@pytest.mark.parametrize(
    "options, training",
    [
        ({"dropout": 0.1, "attention_dropout": 0.1}, {"ema": 0.9}),
        ({}, {"r_drop": 1.0, "accumulate_batches": 2}),
        ({"decoder_recurrence": "ssru"}, {"optimizer": "adamw", "weight_decay": 0.1}),
        ({"attention_chunk": 3}, {}),
        ({"positions": "relative"}, {}),
    ],
    ids=str,
)
def test_a_training_step(options, training):
    text = training_step(toy_transformer(dtype=POLICY, **options), **training)
    assert faults(text) == set()
    assert "dot_general" in text


@pytest.mark.parametrize("strategy", [Greedy(), BeamSearch(beam_size=3)], ids=["greedy", "beam"])
def test_a_search(strategy):
    # A beam search finds its ancestors by a product of float32.
    text = search(toy_transformer(dtype=POLICY), strategy)
    assert faults(text, others={"f32"} if strategy != Greedy() else ()) == set()


@pytest.mark.release
def test_steps_of_base_and_tiny():
    for preset in ("tiny", "base"):
        config = kt.TransformerConfig.preset(preset, vocab_size=32_000)
        assert faults(training_step(kt.Transformer(config, dtype=POLICY))) == set()


def test_attention_in_cudnns_kernels():
    if importlib.util.find_spec("jax_cuda12_plugin") is None:
        pytest.skip("JAX asks its CUDA plugin for cuDNN's version: pip install 'jax[cuda12]'")
    model = toy_transformer(dtype=POLICY, key_dim=16, value_dim=None)
    set_implementation(model, "cudnn")
    kernels = {"__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaScaleBiasSoftmaxBackward"}
    assert faults(training_step(model)) == kernels


def test_faults_are_found():
    square = jax.ShapeDtypeStruct((3, 3), np.float32)
    assert faults(lowered(ops.matmul, square, square)) == {"f32"}
    with pytest.raises(ValueError, match="lowering platform cuda"):
        lowered(lambda x: jax.pure_callback(np.sin, square, x), square)
    with jax.enable_x64(True):
        double = lowered(lambda x: x + 1, jax.ShapeDtypeStruct((3, 5), np.float64))
    assert faults(double) == {"float64"}
