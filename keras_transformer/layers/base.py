"""What every layer of the package shares: its sub-layers' settings are kept, bad input is named."""

import types

import keras
from keras import ops


class BaseLayer:
    """Stands before a Keras layer in the bases of every layer here.

    Keras' config of a layer says whether the layer itself is trained, and in which dtype; layers
    that it makes in `build` are not in it. Here they are, under `sublayers`, where they differ.
    """

    _settings = None  # of the sub-layers, in a layer that comes from a config and is not built yet

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.quantization_mode is not None:
            raise ValueError(f"{NO_QUANTIZATION}. Received: dtype={self.dtype_policy.name!r}")

    def __call__(self, *args, **kwargs):
        for value in (*args, *kwargs.values()):
            check_dense(f"inputs of {type(self).__name__}", value)
        return super().__call__(*args, **kwargs)

    def quantize(self, mode=None, **kwargs):
        """Not supported.

        Raises:
            QuantizationError: if the layer has weights. `quantize` of a user's model makes it a
                warning, and leaves the layer as it is.
        """
        if not self.weights:  # as all of Keras' layers that have nothing to quantize
            return super().quantize(mode, **kwargs)
        raise QuantizationError(f"{NO_QUANTIZATION}. Received: mode={mode!r}, layer={self.name!r}")

    def get_config(self):
        config = super().get_config()
        settings = settings_of_sublayers(self) if self.built else self._settings
        return {**config, "sublayers": dict(settings)} if settings else config

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        settings = config.pop("sublayers", None)
        layer = super().from_config(config)
        # A proxy: Keras would make a plain dict part of the layer's own state.
        layer._settings = types.MappingProxyType(settings) if settings else None
        return layer

    def _settle(self):
        """Last in `build` of a layer with sub-layers: they get the settings that they had."""
        if not self.trainable:  # `build` has made them after the layer was frozen
            for each in sublayers_of(self):
                each.trainable = False
        if self._settings:
            set_sublayers(self, self._settings)


NO_QUANTIZATION = (
    "layers and models of this package are quantized when they are exported, not in Keras: call "
    "`export_litert`, `export.export_classifier` or `export.export_language_model` with "
    "`mode='int8'`; in a model of your own these layers stay as they are, and `filters` leaves "
    "them out"
)


class QuantizationError(ValueError, NotImplementedError):
    """Keras is asked to quantize a layer or a model that it cannot.

    A NotImplementedError, so that Keras goes on with the other layers of a user's model: an end in
    the middle would leave a part of it quantized.
    """


def at_least_float32(values):
    """`values` in float32, or as they are in float64."""
    return ops.cast(values, keras.backend.result_type(values.dtype, "float32"))


def check_states(**states):
    """Raises ValueError for states, by name, that are not (B, T, D); `None` is left out."""
    for name, value in states.items():
        if value is not None and len(value.shape) != 3:
            raise ValueError(
                f"`{name}` must have shape (B, T, D). Received: shape={tuple(value.shape)}"
            )


# Of TensorFlow's sparse tensors and their specs, of JAX' and SciPy's.
_OF_SPARSE = ("dense_shape", "todense")


def check_dense(what, value):
    """Raises ValueError if the value, or the spec of one, is a ragged or a sparse tensor."""
    if getattr(value, "ragged_rank", None):
        raise ValueError(
            f"{what} must be dense: pad ragged tensors, for example with "
            f"`ragged.to_tensor(pad_id)`. Received: a ragged tensor of shape {value.shape}"
        )
    is_sparse = getattr(value, "sparse", None) is True  # of an input
    if is_sparse or any(hasattr(value, name) for name in _OF_SPARSE):
        raise ValueError(
            f"{what} must be dense: fill sparse tensors, for example with "
            f"`tf.sparse.to_dense(sparse, pad_id)`. Received: a sparse tensor of shape "
            f"{value.shape}"
        )


def sublayers_of(layer):
    """The layers right inside a layer or a model, but for a model's inputs."""
    if isinstance(layer, keras.Model):
        return [each for each in layer.layers if not isinstance(each, keras.layers.InputLayer)]
    found = {
        id(each): each for each in vars(layer).values() if isinstance(each, keras.layers.Layer)
    }
    return list(found.values())


def layers_within(layer):
    """All layers inside a layer or a model, and inside those."""
    for each in sublayers_of(layer):
        yield each
        yield from layers_within(each)


def settings_of_sublayers(layer, prefix=""):
    """What all inner layers have that the layer around them has not, by path.

    That is `trainable`, the dtype policy, and the rank and alpha of LoRA.

    Args:
        layer: A built layer, or a model.
        prefix: Of the paths.

    Returns:
        A dict such as `{"self_attention/output": {"trainable": False}}`, ready for JSON.
    """
    found = {}
    for each in sublayers_of(layer):
        path, own = f"{prefix}{each.name}", {}
        if each.trainable != layer.trainable:
            own["trainable"] = each.trainable
        if not _same(each.dtype_policy, layer.dtype_policy):
            own["dtype"] = keras.dtype_policies.serialize(each.dtype_policy)
        if getattr(each, "lora_enabled", False):
            own["lora"] = [each.lora_rank, each.lora_alpha]
        if own:
            found[path] = own
        found |= settings_of_sublayers(each, prefix=f"{path}/")
    return found


def _same(*policies):
    """Whether two dtype policies are; Keras cannot compare maps."""
    one, other = map(keras.dtype_policies.serialize, policies)
    return one == other


def set_sublayers(layer, settings, prefix=""):
    """Makes all inner layers what `settings_of_sublayers` has found.

    Args: as there; `settings` is what it gave.
    """
    for each in sublayers_of(layer):
        path = f"{prefix}{each.name}"
        own = settings.get(path, {})
        wanted = own.get("trainable", layer.trainable)
        if each.trainable != wanted:
            each.trainable = wanted
        wanted = keras.dtype_policies.get(own.get("dtype", layer.dtype_policy))
        if not _same(each.dtype_policy, wanted):
            each.dtype_policy = wanted
        if "lora" in own:
            each.enable_lora(*own["lora"])
        set_sublayers(each, settings, prefix=f"{path}/")
