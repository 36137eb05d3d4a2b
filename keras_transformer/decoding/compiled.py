"""Decoding as a graph: traced once, and always with the current weights."""

import functools

import keras
import numpy as np

from keras_transformer.layers.lowering.tracing import XLA, traced

_COLUMNS = 16


def compiled(function, model, arguments=1, few_sizes=False):
    """`function(ids, …)` as a graph of the backend's own kind.

    On TensorFlow one graph serves every (B, S). JAX compiles for one size at a time: there the
    rows are filled up to a power of two and the columns to a multiple of 16, which changes no
    result and leaves a handful of sizes.

    Args:
        function: Takes (B, S) int32 ids, returns a structure of arrays with B rows each, and
            reads no variables except the weights of `model`.
        model: The model.
        arguments: How many arrays of ids it takes.
        few_sizes: Whether rows and columns are filled up on TensorFlow too, as a function that
            calls the result of `xla` needs.

    Returns:
        A function of the same ids. On JAX and with few sizes it gives NumPy arrays.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        run = _traced_once(function, [_ids_spec()] * arguments)
        if not few_sizes:
            return run
        of_structure = tf.nest.map_structure
    elif keras.backend.backend() == "jax":
        import jax

        run, of_structure = _jit_with_weights(function, model), jax.tree.map
    else:
        return function

    def call(*ids):
        rows = len(ids[0])
        outputs = run(*(_filled(each, model.config) for each in ids))
        return of_structure(lambda x: None if x is None else np.asarray(x)[:rows], outputs)

    return call


def xla(function):
    """A function of tensors, part of a TensorFlow graph, that XLA compiles for each size.

    It may read tensors of the graph around it, and keeps the structures of its arguments.
    """
    import tensorflow as tf

    def run(*inputs):
        with traced(compiled_for=XLA):
            return function(*inputs)

    return tf.function(run, jit_compile=True, autograph=False)


def compiled_steps(begin, advance, model):
    """Two functions as graphs: `begin(ids) -> state` and `advance(ids, state) -> state`.

    On TensorFlow each is one graph for all sizes, on JAX one for each multiple of 16 columns.

    Args:
        begin: Takes (1, S) int32 ids, returns a structure of arrays.
        advance: Takes the same ids and such a structure, returns the next.
        model: The model, whose weights are the only variables that they read.

    Returns:
        The pair of functions. Their ids are NumPy arrays.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        begin = tf.function(begin, input_signature=[_ids_spec()], autograph=False)
        state = tf.nest.map_structure(
            lambda output: tf.TensorSpec(output.shape, output.dtype),
            begin.get_concrete_function().structured_outputs,
        )
        return begin, _traced_once(advance, [_ids_spec(), state])
    if keras.backend.backend() != "jax":
        return begin, advance
    begin, advance = (_jit_with_weights(function, model) for function in (begin, advance))
    return (
        lambda ids: begin(_filled(ids, model.config)),
        lambda ids, state: advance(_filled(ids, model.config), state),
    )


def _traced_once(function, signature):
    """A function as one TensorFlow graph, made at its first call.

    Its concrete function is called: to TensorFlow the first calls of the functions of five models
    are one function that is traced again and again, and it warns of that.
    """
    import tensorflow as tf

    # Nothing here is Python's `if` or `while` over tensors, and AutoGraph needs several times as
    # long to rewrite all code as TensorFlow needs to trace it.
    run = tf.function(function, input_signature=signature, autograph=False)
    graph = functools.cache(run.get_concrete_function)
    return lambda *inputs: graph()(*tf.nest.map_structure(tf.convert_to_tensor, inputs))


def _ids_spec():
    import tensorflow as tf

    return tf.TensorSpec((None, None), tf.int32)


def _jit_with_weights(function, model):
    """`function` through JAX's compiler, with the current weights at every call."""
    import jax

    weights = model.weights

    @jax.jit
    def run(values, *inputs):
        # As arguments: a value that a trace reads from a variable becomes a constant.
        with keras.StatelessScope(list(zip(weights, values, strict=True))):
            return function(*inputs)

    return lambda *inputs: run([weight.value for weight in weights], *inputs)


def _filled(ids, config):
    """Ids with more rows, copies of the last one, and more columns, which hold pads."""
    rows, columns = np.shape(ids)
    more_rows = (1 << (rows - 1).bit_length()) - rows
    more_columns = -columns % _COLUMNS
    if config.max_positions is not None:  # no more columns than learned positions
        more_columns = max(0, min(more_columns, config.max_positions - columns))
    ids = np.pad(ids, [(0, 0), (0, more_columns)], constant_values=config.pad_id)
    return np.pad(ids, [(0, more_rows), (0, 0)], mode="edge")
