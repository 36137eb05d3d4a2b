"""The graphs of training and decoding hold only operations that TensorFlow has GPU kernels for.

No GPU is needed: the CPU's wheel of a build with CUDA lists their kernels too. This says that an
operation can be placed there, not that it has run.
"""

import collections

import keras
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels
from toy_model import toy_transformer

from keras_transformer.decoding import BeamSearch, Greedy, decode
from keras_transformer.experiment.sections import TrainingSection
from keras_transformer.training.objective import compile_model

pytestmark = pytest.mark.slow
# What places other operations, and has no kernel of its own on any device.
FUNCTIONS = {"PartitionedCall", "StatefulPartitionedCall", "StatelessWhile", "While", "If"}
FUNCTIONS |= {"StatelessIf", "Placeholder", "_Arg", "_Retval", "NoOp"}


def gpu_kernels():
    """The types that each operation's GPU kernels ask for, by the name of the operation."""
    found = collections.defaultdict(list)
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type in ("GPU", "DEFAULT"):
            types = {each.name: set(each.allowed_values.list.type) for each in kernel.constraint}
            found[kernel.op].append(types)
    return found


def nodes(concrete):
    definition = concrete.graph.as_graph_def()
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def without_kernel(concrete):
    """Operations, with their types, that no GPU kernel takes."""
    found, missing = gpu_kernels(), set()
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


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_training_step(policy):
    keras.utils.set_random_seed(1)
    model = toy_transformer(encoder_layers=1, decoder_layers=1, dropout=0.1, dtype=policy)
    compile_model(model, TrainingSection(max_epochs=1, jit_compile=False, clipnorm=1.0))
    model.optimizer.build(model.trainable_variables)
    inputs = {"source_ids": IDS, "target_ids": IDS}
    step = tf.function(lambda x, y: model.train_step((x, y)), autograph=False)
    assert without_kernel(step.get_concrete_function(inputs, IDS)) == set()


@pytest.mark.parametrize("search", [Greedy(), BeamSearch(beam_size=3)], ids=["greedy", "beam"])
def test_a_search(search):
    model = toy_transformer(encoder_layers=1, decoder_layers=1)
    run = tf.function(lambda ids: decode(model, ids, search), autograph=False)
    assert without_kernel(run.get_concrete_function(IDS)) == set()


def test_an_operation_without_a_kernel_is_found():
    run = tf.function(lambda text: tf.strings.upper(text), autograph=False)
    found = without_kernel(run.get_concrete_function(tf.TensorSpec((None,), tf.string)))
    assert {each.split()[0] for each in found} == {"StringUpper"}
