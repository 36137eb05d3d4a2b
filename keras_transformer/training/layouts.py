"""`keras.distribution` on JAX: several devices share the rows of a batch, and also the weights."""

import keras

from keras_transformer.config import TransformerConfig
from keras_transformer.experiment.sections import TrainingSection
from keras_transformer.layers.lowering.head_layout import BY_HEAD

BATCH_AXIS, MODEL_AXIS = "batch", "model"


def layout_map(
    config: TransformerConfig,
    device_mesh: keras.distribution.DeviceMesh,
    *,
    axis: str = MODEL_AXIS,
    split_vocabulary: bool | None = None,
) -> keras.distribution.LayoutMap:
    """Says which weights of a model `keras.distribution.ModelParallel` splits, and how.

    As in Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053): each device has some of the heads,
    some of the feed-forward units and some of the vocabulary. Queries, keys and values come from
    columns of their kernels, what follows from rows, so that a block needs two sums over the
    devices. The fused kernel of queries, keys and values is stored in equal parts, and the columns
    of a head are brought together before the product. Norms, positions and recurrences are whole
    on every device.

    Give it to the distribution before the model is made: Keras lays weights out as it makes them.
    The models of this package all take it; `check_layouts` tells whether a model of your own does.

    Args:
        config: Of the model.
        device_mesh: A mesh with an axis of the devices that share one copy of the weights.
        axis: The name of that axis.
        split_vocabulary: Whether the tables of tokens are split; when `None`, if their rows
            divide by the devices of the axis.

    Returns:
        A `keras.distribution.LayoutMap`, which takes more keys.

    Raises:
        ValueError: if the mesh has no such axis, or heads, feed-forward units or (where asked for)
            the vocabulary do not divide by its devices.

    Example:
        >>> from keras_transformer.training import layout_map
        >>> mesh = keras.distribution.DeviceMesh((2, 4), ("batch", "model"), list(range(8)))
        >>> config = kt.TransformerConfig.preset("base", vocab_size=32000)
        >>> layouts = layout_map(config, mesh)
        >>> layouts["encoder_0/feed_forward/output/kernel"].axes
        ('model', None)
        >>> layouts["embedding/embeddings"].axes
        ('model', None)
        >>> print(layouts["encoder_0/feed_forward_norm/gamma"])
        None
    """
    if axis not in device_mesh.axis_names:
        raise ValueError(
            f"`axis` must be one of the mesh. Received: axis={axis!r}, "
            f"axis_names={tuple(device_mesh.axis_names)}"
        )
    devices = device_mesh.shape[device_mesh.axis_names.index(axis)]
    _check_divides(devices, num_heads=config.num_heads)
    if config.use_feed_forward:
        _check_divides(devices, intermediate_dim=config.intermediate_dim)
    sizes = {"vocab_size": config.vocab_size, "target_size": config.target_size}
    if split_vocabulary:
        _check_divides(devices, **sizes)
    elif split_vocabulary is None:
        split_vocabulary = all(size % devices == 0 for size in sizes.values())
    layouts = keras.distribution.LayoutMap(device_mesh)
    for key, axes in _axes_of_weights(config, axis, split_vocabulary).items():
        layouts[key] = axes
    return layouts


def _axes_of_weights(config, axis, split_vocabulary):
    """The mesh's axis of each axis of a weight, by a regular expression of its whole path."""
    to_heads = ".*attention/(query_key_value|query|key|value)"
    found = {
        f"{to_heads}/kernel": (None, axis),
        ".*attention/output/kernel": (axis, None),
    }
    found[f".*attention/query_key_value/{BY_HEAD}"] = (None, axis)  # of no weight
    if config.use_bias:
        found[f"{to_heads}/bias"] = (axis,)
    if config.attention_score == "additive":
        found[".*attention/score_vector"] = (axis, None)
    if config.use_feed_forward:
        found[".*feed_forward/(intermediate|gate)/kernel"] = (None, axis)
        found[".*feed_forward/output/kernel"] = (axis, None)
        if config.feed_forward_bias:
            found[".*feed_forward/(intermediate|gate)/bias"] = (axis,)
    if split_vocabulary:
        found["(.*[_/])?embedding/embeddings"] = (axis, None)
        if config.output_bias:
            found["(.*[_/])?embedding/output_bias"] = (axis,)
    return found


def _check_divides(devices, **sizes):
    for name, size in sizes.items():
        if size % devices:
            raise ValueError(
                f"`{name}` must be divisible by the devices that share the weights. "
                f"Received: {name}={size}, devices={devices}"
            )


def check_layouts(model: keras.Model, layouts: keras.distribution.LayoutMap) -> None:
    """Checks that every key of a `LayoutMap` is of some weights of a model, and fits them.

    Keras matches keys with whole paths, and keeps a weight whole that no key matches, so that a
    mistake in a key goes unnoticed.

    Args:
        model: A built model.
        layouts: What `layout_map` has made, with any keys of your own.

    Raises:
        ValueError: if a key matches no weight, or a layout another number of axes, or a size that
            does not divide by the devices of its axis.

    Example:
        >>> from keras_transformer.training import check_layouts, layout_map
        >>> mesh = keras.distribution.DeviceMesh((1, 1), ("batch", "model"), [0])
        >>> model = kt.Transformer(kt.TransformerConfig.preset("tiny", vocab_size=11))
        >>> layouts = layout_map(model.config, mesh)
        >>> check_layouts(model, layouts)
        >>> layouts["attention/kernel"] = (None, "model")
        >>> check_layouts(model, layouts)
        Traceback (most recent call last):
        ...
        ValueError: a key of a layout map must match the whole path of some weight. Received: \
'attention/kernel', which matches none of transformer
    """
    unused = {key for key in layouts if not key.endswith(BY_HEAD)}
    mesh = dict(zip(layouts.device_mesh.axis_names, layouts.device_mesh.shape, strict=True))
    for weight in model.weights:
        layout = layouts[weight.path]
        if layout is None:
            continue
        unused -= {key for key in unused if layouts[key] is layout}
        devices = [mesh.get(name, 1) for name in layout.axes]
        fits = len(devices) == len(weight.shape) and not any(
            size % count for size, count in zip(weight.shape, devices, strict=True)
        )
        if not fits:
            raise ValueError(
                "a layout must have as many axes as its weight, whose sizes divide by the devices "
                f"of each. Received: axes={layout.axes} of {devices} devices for {weight.path} of "
                f"shape {tuple(weight.shape)}"
            )
    if unused:
        raise ValueError(
            "a key of a layout map must match the whole path of some weight. Received: "
            f"{sorted(unused)[0]!r}, which matches none of {model.name}"
        )


def make_distribution(
    training: TrainingSection, config: TransformerConfig
) -> keras.distribution.DataParallel | keras.distribution.ModelParallel | None:
    """The `keras.distribution` that `[training]` asks for, over all devices of this machine.

    Args:
        training: A `TrainingSection`.
        config: Of the model.

    Returns:
        `None` for none, and on a single device.

    Raises:
        RuntimeError: if Keras does not run on JAX, or JAX on several machines.
        ValueError: if `model_devices` do not divide all devices, and as `layout_map`.
    """
    if training.distribution == "none":
        return None
    check_backend(training.distribution)
    devices = keras.distribution.list_devices()
    if len(devices) == 1:
        return None
    if training.distribution == "data_parallel":
        made = keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False)
    else:
        shared = training.model_devices or len(devices)
        if len(devices) % shared:
            raise ValueError(
                "`training.model_devices` must divide the devices of the machine. "
                f"Received: model_devices={shared}, devices={len(devices)}"
            )
        shape, axes = (len(devices) // shared, shared), (BATCH_AXIS, MODEL_AXIS)
        mesh = keras.distribution.DeviceMesh(shape, axes, devices)
        made = keras.distribution.ModelParallel(
            layout_map=layout_map(config, mesh), batch_dim_name=BATCH_AXIS, auto_shard_dataset=False
        )
    if made.num_processes > 1:
        raise RuntimeError(
            "`training.distribution` is for the devices of one machine. "
            f"Received: {made.num_processes} processes"
        )
    return made


def check_backend(name):
    """Raises RuntimeError if `training.distribution` is asked for where Keras has none."""
    if name != "none" and keras.backend.backend() != "jax":
        raise RuntimeError(
            "`training.distribution` needs the JAX backend (KERAS_BACKEND=jax); on TensorFlow use "
            f"`training.strategy`. Received: distribution={name!r}, "
            f"backend={keras.backend.backend()!r}"
        )


def row_multiple(distribution):
    """What the rows of a batch must divide by."""
    return 1 if distribution is None else distribution.device_mesh.shape[0]
