"""The contract that every public layer keeps, checked by one helper."""

import inspect
import json

import keras
import numpy as np
from backend import array, compiled, dtype_of, in_graph, value_and_gradients
from keras import ops
from toy_model import randomise

PACKAGE = "keras_transformer"

# A key's bias adds one number to all scores of a query, and the softmax cancels it.
WITHOUT_GRADIENT = "key/bias"


def check_layer(
    layer_class,
    arguments,
    inputs,
    *,
    tmp_path,
    output_dtype=None,
    open_width=False,
    **call_arguments,
):
    """Holds a layer to the contract of all layers.

    Args:
        layer_class: The class.
        arguments: Its constructor arguments.
        inputs: Name of a call argument -> example array, in the order of `call`.
        tmp_path: Folder for a saved model.
        output_dtype: Dtype of the output; that of the policy's computations when `None`.
        open_width: Whether the last size of the output depends on open sizes of the inputs.
        **call_arguments: Call arguments that are no arrays.
    """

    def make(policy):
        return layer_class(**arguments, dtype=policy, name="layer")

    call = _Call(inputs, call_arguments)
    layer = make("float32")
    check_config(layer_class, layer, call)
    check_frozen(layer_class, make("float32"), call)
    check_build(make("mixed_bfloat16"), layer, call)
    randomise(layer)
    check_output_shape(layer, call, open_width)
    check_execution(layer, call)
    check_gradients(layer, call)
    for policy in ("mixed_bfloat16", "mixed_float16"):
        check_policy(make(policy), layer, call, output_dtype)
        check_saving(make(policy), call, tmp_path / f"{policy}.keras")
    check_saving(layer, call, tmp_path / "float32.keras")


class _Call:
    """The call of a layer, with everything but the layer fixed."""

    def __init__(self, inputs, arguments):
        self.inputs = inputs
        self.arguments = arguments

    def __call__(self, layer, inputs=None):
        others = dict(inputs or self.inputs)
        first = others.pop(next(iter(self.inputs)))
        return layer(first, **others, **self.arguments)

    def symbolic(self):
        """A `keras.Input` for each input."""
        return {
            name: keras.Input(_open_shape(array), dtype=array.dtype.name, name=name)
            for name, array in self.inputs.items()
        }


def _open_shape(array):
    """The shape without the batch, every size that may vary unknown."""
    sizes = [None if size > 1 else 1 for size in array.shape[1:]]
    return [*sizes[:-1], array.shape[-1]] if array.dtype == "float32" else sizes


def check_config(layer_class, layer, call):
    """The config survives JSON, is the same before and after build, and is all of the layer."""
    name = f"{PACKAGE}>{layer_class.__name__}"
    assert keras.saving.get_registered_name(layer_class) == name
    assert keras.saving.get_registered_object(name) is layer_class
    before = layer.get_config()
    assert json.loads(json.dumps(before)) == before
    call(layer)
    assert layer.get_config() == before
    rebuilt = layer_class.from_config(json.loads(json.dumps(before)))
    assert rebuilt.get_config() == before
    call(rebuilt)
    assert _named_shapes(rebuilt) == _named_shapes(layer)


def check_frozen(layer_class, layer, call):
    """What is frozen, of the layers in it too, stays so in a config; all of it, if made frozen."""
    call(layer)
    children = list(layer._flatten_layers(include_self=False))
    for child in children[::2]:
        child.trainable = False
    again = layer_class.from_config(json.loads(json.dumps(layer.get_config())))
    call(again)
    found = [child.trainable for child in again._flatten_layers(include_self=False)]
    assert found == [child.trainable for child in children]
    frozen = layer_class.from_config({**again.get_config(), "trainable": False, "sublayers": {}})
    call(frozen)
    assert not any(variable.trainable for variable in frozen.variables)


def check_build(layer, called, call):
    """`build` alone makes every weight, in children with fixed names and the layer's policy."""
    shapes = {f"{name}_shape": array.shape for name, array in call.inputs.items()}
    parameters = list(inspect.signature(layer.build).parameters)
    if len(parameters) == 1:
        layer.build(next(iter(shapes.values())))
    else:
        layer.build(**{name: shapes[name] for name in parameters if name in shapes})
    for child in layer._flatten_layers(include_self=False):
        assert child.built, child.path
        assert child.dtype_policy == layer.dtype_policy, child.path
    assert _named_shapes(layer) == _named_shapes(called)
    assert all(weight.dtype == "float32" for weight in layer.trainable_weights)


def check_output_shape(layer, call, open_width):
    """`compute_output_shape` and the symbolic call agree with the real output."""
    real = call(layer)
    shapes = [array.shape for array in call.inputs.values()]
    parameters = inspect.signature(layer.compute_output_shape).parameters.values()
    wanted = sum(p.kind is p.POSITIONAL_OR_KEYWORD and p.name.endswith("shape") for p in parameters)
    extra = {p.name: call.arguments[p.name] for p in parameters if p.name in call.arguments}
    assert layer.compute_output_shape(*shapes[:wanted], **extra) == tuple(real.shape)
    symbolic = call(layer, call.symbolic())
    assert symbolic.dtype == dtype_of(real)
    for known, size in zip(symbolic.shape, real.shape, strict=True):
        assert known in (None, size)
    assert open_width or symbolic.shape[-1] == real.shape[-1]


def check_execution(layer, call):
    """Eager, graph and XLA give one result."""
    eager = array(call(layer))
    assert np.all(np.isfinite(eager)) and np.any(eager != 0)
    for run in (in_graph, compiled):
        actual = run(lambda inputs: call(layer, inputs), of=layer)(call.inputs)
        np.testing.assert_allclose(actual, eager, atol=1e-5 * max(1, np.abs(eager).max()))


def check_gradients(layer, call):
    """Each trainable weight moves the output."""
    factors = np.random.default_rng(1).normal(size=call(layer).shape).astype("float32")
    weights = layer.trainable_weights
    _, gradients = value_and_gradients(lambda: ops.sum(call(layer) * factors), weights)
    for weight, gradient in zip(weights, gradients, strict=True):
        assert gradient is not None, weight.path
        assert np.all(np.isfinite(gradient)), weight.path
        if not weight.path.endswith(WITHOUT_GRADIENT):
            assert np.abs(gradient).max() > 1e-4, weight.path


def check_policy(layer, reference, call, output_dtype):
    """Mixed precision: float32 weights, outputs in the compute dtype and close to float32."""
    call(layer)
    for weight, value in zip(layer.weights, reference.weights, strict=True):
        weight.assign(value)
    assert all(weight.dtype == "float32" for weight in layer.trainable_weights)
    outputs, expected = call(layer), array(call(reference))
    assert dtype_of(outputs) == (output_dtype or layer.compute_dtype)
    assert call(layer, call.symbolic()).dtype == dtype_of(outputs)
    outputs = array(ops.cast(outputs, "float32"))
    assert np.all(np.isfinite(outputs))
    unit = 2.0**-8 if layer.compute_dtype == "bfloat16" else 2.0**-11
    assert np.abs(outputs - expected).max() <= 20 * unit * np.abs(expected).max()


def check_saving(layer, call, path):
    """A functional model that holds the layer loads without `custom_objects`, bit for bit."""
    inputs = call.symbolic()
    model = keras.Model(inputs, call(layer, inputs))
    model.save(path)
    loaded = keras.models.load_model(path)
    assert loaded.get_layer("layer").get_config() == layer.get_config()
    assert _named_shapes(loaded.get_layer("layer")) == _named_shapes(layer)
    np.testing.assert_array_equal(loaded(call.inputs), model(call.inputs))


def _named_shapes(layer):
    return [(weight.path, tuple(weight.shape)) for weight in layer.weights]
