"""What tests ask of the backend: arrays, graphs, XLA, gradients. Tests name neither of the two.

Run them on JAX with `KERAS_BACKEND=jax python -m pytest tests/layers tests/models tests/decoding`.
"""

import contextlib

import keras
import numpy as np
import pytest
from keras import ops

NAME = keras.backend.backend()

if NAME == "tensorflow":
    import tensorflow as tf
elif NAME == "jax":
    import jax


def tensorflow_only(reason):
    """Marks a test of what only TensorFlow has, such as sizes that are unknown in a graph."""
    return pytest.mark.skipif(NAME != "tensorflow", reason=f"TensorFlow only: {reason}")


def jax_only(reason):
    """Marks the sibling of a test that is marked with `tensorflow_only`."""
    return pytest.mark.skipif(NAME != "jax", reason=f"JAX only: {reason}")


def array(x):
    """A tensor, variable or sparse gradient as a NumPy array."""
    return ops.convert_to_numpy(x)


def tensor(x, dtype=None):
    """A NumPy array as a tensor, with its own dtype."""
    return ops.convert_to_tensor(x, dtype=dtype)


def dtype_of(x):
    """The name of an array's dtype."""
    return keras.backend.standardize_dtype(x.dtype)


@contextlib.contextmanager
def floatx(name):
    """Inside, `name` is what Keras makes floats of that have no dtype, and integers as wide."""
    keras.config.dtype_policy()  # the first to ask makes it of `floatx`
    before = keras.config.floatx()
    keras.config.set_floatx(name)
    try:
        yield
    finally:
        keras.config.set_floatx(before)


# --- Graphs --------------------------------------------------------------------------------


def in_graph(function, of=None, signature=None):
    """`function` as a graph: on TensorFlow as the tensors come, on JAX through XLA.

    Args:
        function: Takes structures of arrays, and nothing that is to be constant.
        of: The layer or model whose variables `function` reads or changes. On JAX, without it,
            variables are constants and may not change.
        signature: A list of structures of `keras.KerasTensor`, one an argument. TensorFlow then
            makes one graph for all sizes that it leaves open; JAX always knows all sizes.
    """
    if NAME == "jax":
        return _jax_jit(function, of)
    if signature is not None:
        signature = keras.tree.map_structure(_tensor_spec, signature)
    return _of_tensors(tf.function(function, input_signature=signature, autograph=False))


def compiled(function, of=None):
    """`function` through XLA; its arguments are those of `in_graph`."""
    if NAME == "jax":
        return _jax_jit(function, of)
    return _of_tensors(tf.function(function, jit_compile=True, autograph=False))


def _tensor_spec(spec):
    return tf.TensorSpec(spec.shape, spec.dtype)


def _of_tensors(function):
    """Hands TensorFlow tensors only: a Python number would be a constant of its own graph."""
    return lambda *inputs: function(*keras.tree.map_structure(tf.convert_to_tensor, inputs))


def _jax_jit(function, of):
    variables = [] if of is None else of.variables
    run = jax.jit(_without_state(function, variables))

    def call(*inputs):
        outputs, values = run([variable.value for variable in variables], *inputs)
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        return outputs

    return call


def _without_state(function, variables):
    """`function` with the values of `variables` as an argument and, when changed, a result."""

    def run(values, *inputs):
        state = list(zip(variables, values, strict=True))
        with keras.StatelessScope(state) as scope:
            outputs = function(*inputs)
        if len(scope.state_mapping) > len(variables):
            raise ValueError("the function changes variables that are not of `of`")
        return outputs, [scope.get_current_value(variable) for variable in variables]

    return run


# --- Gradients -----------------------------------------------------------------------------


def gradients(function, *inputs, wrap=None):
    """The gradients of the scalar `function(*inputs)` with respect to its inputs, as a list.

    `wrap`, such as `compiled`, makes a graph that holds the gradients too.
    """

    def run(*inputs):
        if NAME == "jax":
            return jax.grad(function, argnums=tuple(range(len(inputs))))(*inputs)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = function(*inputs)
        return tape.gradient(value, inputs)

    run = run if wrap is None else wrap(run)
    return [array(gradient) for gradient in run(*map(tensor, inputs))]


def value_and_gradients(function, variables):
    """A scalar `function()` and its gradients with respect to Keras variables.

    Returns:
        A float and a list of arrays; `None` for a variable that TensorFlow finds no path to,
        where JAX gives zeros.
    """
    if NAME == "jax":
        run = _without_state(function, variables)
        values = [variable.value for variable in variables]
        value, found = jax.value_and_grad(lambda values: run(values)[0])(values)
    else:
        with tf.GradientTape() as tape:
            value = function()
        found = tape.gradient(value, [variable.value for variable in variables])
    return float(value), [None if gradient is None else array(gradient) for gradient in found]


# --- What runs -----------------------------------------------------------------------------


def record(log, *arrays):
    """Appends the arrays, as lists, to `log`, each time that this place is run and not traced."""

    def append(*values):
        log.append(tuple(np.asarray(value).tolist() for value in values))

    if NAME == "jax":
        jax.debug.callback(append, *arrays, ordered=True)
    else:
        append(*map(array, arrays))


def records(log):
    """What `record` has written to `log` so far, which is emptied."""
    if NAME == "jax":
        jax.effects_barrier()
    taken = list(log)
    log.clear()
    return taken
