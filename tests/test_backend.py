"""The tests' own functions mean the same on TensorFlow and on JAX."""

import keras
import numpy as np
import pytest
from backend import (
    NAME,
    array,
    compiled,
    dtype_of,
    gradients,
    in_graph,
    jax_only,
    record,
    records,
    tensor,
    value_and_gradients,
)
from keras import KerasTensor, ops

both = pytest.mark.parametrize("run", [in_graph, compiled])


class Counter(keras.layers.Layer):
    """Adds a weight to its inputs, and counts its calls."""

    def build(self, input_shape):
        self.count = self.add_weight(name="count", shape=(), initializer="zeros", trainable=False)
        self.shift = self.add_weight(name="shift", shape=(), initializer="ones")

    def call(self, inputs):
        self.count.assign_add(1.0)
        return inputs + self.shift


@both
def test_a_graph_reads_and_changes_variables_and_is_traced_once(run):
    layer, traces = Counter(), []
    layer.build((3,))

    def function(inputs):
        traces.append(1)
        return {"outputs": layer(inputs["x"])}

    call = run(function, of=layer)
    for number in range(3):
        layer.shift.assign(number)
        np.testing.assert_array_equal(
            call({"x": np.ones(3, "float32")})["outputs"], [1 + number] * 3
        )
        assert float(layer.count) == number + 1
    assert len(traces) == 1


@jax_only("TensorFlow's graphs see every variable")
def test_a_change_that_would_be_lost_is_an_error():
    layer = Counter()
    layer.build((3,))
    with pytest.raises(ValueError, match="changes variables that are not of `of`"):
        compiled(layer)(np.ones(3, "float32"))


def test_a_signature_leaves_sizes_open_where_the_backend_can():
    traces = []

    def function(inputs):
        traces.append(1)
        return ops.shape(inputs)[0] * ops.sum(inputs)

    call = in_graph(function, signature=[KerasTensor((None,), "int32")])
    assert [int(call(np.arange(length, dtype="int32"))) for length in (2, 3, 5)] == [2, 9, 50]
    assert len(traces) == {"tensorflow": 1, "jax": 3}[NAME]


@pytest.mark.parametrize("wrap", [None, in_graph, compiled])
def test_gradients(wrap):
    first, second = np.array([1.0, 2.0], "float32"), np.array([3.0, 5.0], "float32")
    found = gradients(lambda x, y: ops.sum(x * x * y), first, second, wrap=wrap)
    np.testing.assert_array_equal(found, [2 * first * second, first**2])


def test_value_and_gradients_of_variables():
    dense = keras.layers.Dense(2, kernel_initializer="ones")
    dense.build((None, 3))
    inputs = np.array([[1.0, 2.0, 4.0]], "float32")
    value, (kernel, bias) = value_and_gradients(lambda: ops.sum(dense(inputs)), dense.weights)
    assert value == 14
    np.testing.assert_array_equal(kernel, np.repeat(inputs.T, 2, axis=1))
    np.testing.assert_array_equal(bias, [1, 1])


def test_records_what_runs_in_a_loop():
    log = []

    def step(number):
        record(log, number, number * tensor([1, 2]))
        return number + 1

    ops.while_loop(lambda number: number < 2, step, tensor(0))
    assert records(log) == [(0, [0, 0]), (1, [1, 2])]
    assert records(log) == []


def test_arrays_and_dtypes():
    low = ops.cast(np.ones(3), "bfloat16")
    assert dtype_of(low) == "bfloat16" and array(low).shape == (3,)
    assert dtype_of(tensor(np.ones(3, "float32"))) == "float32"
    assert dtype_of(tensor([1, 2], "int32")) == "int32"
