"""Training with attention in one kernel of a GPU, on JAX."""

import keras

from keras_transformer.layers.base import layers_within
from keras_transformer.layers.multi_head import MultiHeadAttention


def fuse_attention(model: keras.Model) -> None:
    """Lets cuDNN compute the attentions of a model in one kernel each, on JAX and an NVIDIA GPU.

    The weights of attention, the largest arrays of a long sequence, are then not in memory, in
    either direction. An attention is computed so where that gives what our own ops give, up to
    rounding: under `mixed_bfloat16` or `mixed_float16`; heads at most 128 wide, and a multiple
    of 8; even lengths; no dropout of the weights in training; no `attention_bias` nor positions
    that are a bias; not additive scores, not keys and values of different widths, not in chunks or
    windows, and not where the weights are asked for. All others stay as they are.

    It is a setting of this process: files do not keep it. Set it before `fit` compiles its step.

    Args:
        model: A model of this package, or any with its layers inside.

    Raises:
        RuntimeError: if the backend is not JAX, or its default device is not a GPU.
        ValueError: if the model has no attention of this package.

    Example:
        >>> from keras_transformer.training import fuse_attention
        >>> model = kt.Transformer(kt.TransformerConfig.preset("tiny", vocab_size=11))
        >>> try:
        ...     fuse_attention(model)
        ... except RuntimeError as error:
        ...     print(str(error)[:48])
        `fuse_attention` needs the JAX backend and a GPU
    """
    backend, device = keras.backend.backend(), None
    if backend == "jax":
        import jax

        device = jax.default_backend()
    if device != "gpu":
        raise RuntimeError(
            "`fuse_attention` needs the JAX backend and a GPU. "
            f"Received: backend={backend!r}, device={device!r}"
        )
    set_implementation(model, "cudnn")


def set_implementation(model, implementation):
    """Which of JAX's implementations attends, `"cudnn"` or `"xla"`; our own ops for `None`."""
    layers = [each for each in layers_within(model) if isinstance(each, MultiHeadAttention)]
    if not layers:
        raise ValueError(
            f"`fuse_attention` is for a model with attention. Received: {model.name}, without"
        )
    for layer in layers:
        layer.fused = implementation
