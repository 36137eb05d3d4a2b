"""The graphs of training and decoding hold only operations that TensorFlow has GPU kernels for.

No GPU is needed: the CPU's wheel of a build with CUDA lists their kernels too, and what XLA
compiles for a GPU. This says that an operation can be placed there, not that it has run.
"""

import collections
import functools

import keras
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels
from toy_model import toy_config, toy_transformer

from keras_transformer.decoding import BeamSearch, Greedy, decode
from keras_transformer.experiment.sections import TrainingSection
from keras_transformer.layers.lowering.tracing import XLA, traced
from keras_transformer.models import LanguageModel
from keras_transformer.training.objective import compile_model

pytestmark = pytest.mark.slow
# What places other operations, and has no kernel of its own on any device.
FUNCTIONS = {"PartitionedCall", "StatefulPartitionedCall", "StatelessWhile", "While", "If"}
FUNCTIONS |= {"StatelessIf", "Placeholder", "_Arg", "_Retval", "NoOp"}
FUNCTIONS |= {"IdentityN"}  # XLA takes it, and registers it for compilation only


PLACED, COMPILED = ("GPU", "DEFAULT"), ("XLA_GPU_JIT",)


@functools.cache
def kernels_of(devices):
    """The types that each operation's kernels ask for, by the name of the operation."""
    found = collections.defaultdict(list)
    # XLA's are listed from its first use on.
    tf.function(lambda x: x + 1, jit_compile=True, autograph=False)(1)
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type in devices:
            types = {each.name: set(each.allowed_values.list.type) for each in kernel.constraint}
            found[kernel.op].append(types)
    return found


def nodes(concrete):
    definition = concrete.graph.as_graph_def()
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def without_kernel(concrete, devices=PLACED):
    """Operations, with their types, that no kernel of the devices takes."""
    found, missing = kernels_of(devices), set()
    if len(found) < 300:
        pytest.skip("this build of TensorFlow has no GPU kernels")
    for node in nodes(concrete):
        if node.op in FUNCTIONS:
            continue
        fits = any(
            all(not allowed or node.attr[name].type in allowed for name, allowed in types.items())
            for types in found[node.op]
        )
        if not fits:
            types = {tf.as_dtype(value.type).name for value in node.attr.values() if value.type}
            missing.add(f"{node.op} of {sorted(types)}")
    return missing


IDS = tf.TensorSpec((None, None), tf.int32)


def of_training(model, **options):
    """What no GPU kernel takes of the step that `fit` traces, and what XLA does not compile."""
    keras.utils.set_random_seed(1)
    compile_model(model, TrainingSection(max_epochs=1, jit_compile=True, clipnorm=1.0, **options))
    model.optimizer.build(model.trainable_variables)
    inputs = IDS if isinstance(model, LanguageModel) else {"source_ids": IDS, "target_ids": IDS}
    step = tf.function(lambda x, y: model.train_step((x, y)), autograph=False)
    concrete = step.get_concrete_function(inputs, IDS)
    return without_kernel(concrete), without_kernel(concrete, COMPILED)


@pytest.mark.parametrize(
    "policy, options, training",
    [
        ("float32", {"dropout": 0.1, "attention_dropout": 0.1}, {"r_drop": 1.0}),
        (
            "mixed_bfloat16",
            {"decoder_recurrence": "ssru", "dropout": 0.1},
            {"optimizer": "adamw", "weight_decay": 0.1, "ema": 0.9},
        ),
        (
            "mixed_bfloat16",
            {"positions": "relative", "attention_chunk": 3},
            {"accumulate_batches": 2},
        ),
    ],
    ids=["dropout", "ssru", "relative"],
)
def test_a_training_step(policy, options, training):
    model = toy_transformer(encoder_layers=1, decoder_layers=1, dtype=policy, **options)
    assert of_training(model, **training) == (set(), set())


def test_a_training_step_of_a_language_model():
    model = LanguageModel(toy_config(decoder_layers=1, dropout=0.1), dtype="mixed_bfloat16")
    assert of_training(model) == (set(), set())


@pytest.mark.parametrize(
    "search, options",
    [
        (Greedy(), {}),
        (BeamSearch(beam_size=3), {}),
        (BeamSearch(beam_size=3), {"decoder_recurrence": "ssru"}),
    ],
    ids=["greedy", "beam", "ssru"],
)
def test_a_search(search, options):
    model = toy_transformer(encoder_layers=1, decoder_layers=1, **options)
    run = tf.function(lambda ids: decode(model, ids, search), autograph=False)
    assert without_kernel(run.get_concrete_function(IDS)) == set()


@pytest.mark.parametrize("search", [Greedy(), BeamSearch(beam_size=3)], ids=["greedy", "beam"])
def test_a_search_that_xla_compiles(search):
    model = toy_transformer(encoder_layers=1, decoder_layers=1)
    with traced(compiled_for=XLA):
        run = tf.function(lambda ids: decode(model, ids, search), autograph=False)
        concrete = run.get_concrete_function(tf.TensorSpec((5, 7), tf.int32))
    assert without_kernel(concrete, COMPILED) == set()


@pytest.mark.parametrize("devices", [PLACED, COMPILED], ids=["placed", "compiled"])
def test_an_operation_without_a_kernel_is_found(devices):
    run = tf.function(lambda text: tf.strings.upper(text), autograph=False)
    concrete = run.get_concrete_function(tf.TensorSpec((None,), tf.string))
    assert "StringUpper" in {each.split()[0] for each in without_kernel(concrete, devices)}
