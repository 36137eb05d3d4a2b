"""Rank collapse: how far a stack of attention layers makes all tokens of a sentence the same.

Dong, Cordonnier, Loukas, "Attention is not all you need: pure attention loses rank doubly
exponentially with depth" (arXiv 2103.03404).
"""

from collections.abc import Sequence

import keras
import numpy as np

from keras_transformer.layers import EncoderBlock
from keras_transformer.models.base import TransformerModel
from keras_transformer.typing import Tensor


def rank_residual(states: Tensor, mask: Tensor | None = None) -> np.ndarray:
    """The part of each sentence's states that is not one vector repeated for every token.

    ||X - 1 x^T|| / ||X|| in the paper's norm, sqrt(||.||_1 ||.||_inf): the geometric mean of the
    largest absolute column sum and the largest absolute row sum. It is 0 where all tokens are
    equal (rank collapse), and does not depend on the scale of the states. x is the mean token,
    which has a closed form; no other x makes the residual smaller than half of this.

    Example:
        >>> from keras_transformer.diagnostics import rank_residual
        >>> equal, different = [[1.0, 2.0], [1.0, 2.0]], [[1.0, 2.0], [-1.0, -2.0]]
        >>> rank_residual(np.array([equal, different]))
        array([0., 1.])

    Args:
        states: (B, S, D), an array or tensor of numbers.
        mask: Boolean, (B, S), True for real tokens; all are real when `None`.

    Returns:
        (B,) float64; NaN for a sentence without real tokens, 0 for one of zeros.

    Raises:
        ValueError: if `states` or `mask` have another shape.
    """
    states = keras.ops.convert_to_numpy(states).astype("float64")
    if states.ndim != 3 or states.shape[-1] == 0:
        raise ValueError(f"`states` must be (B, S, D). Received: shape {states.shape}")
    mask = np.ones(states.shape[:2], bool) if mask is None else keras.ops.convert_to_numpy(mask)
    if mask.shape != states.shape[:2] or mask.dtype != bool:
        raise ValueError(
            f"`mask` must be boolean and (B, S). Received: {mask.dtype} of shape {mask.shape}, "
            f"states of shape {states.shape}"
        )
    counts_B = mask.sum(axis=1)
    states = np.where(mask[:, :, None], states, 0.0)
    means_BD = states.sum(axis=1) / np.maximum(counts_B, 1)[:, None]
    residuals = np.where(mask[:, :, None], states - means_BD[:, None, :], 0.0)
    norms_B = _composite_norm(states)
    relative_B = _composite_norm(residuals) / np.where(norms_B > 0, norms_B, 1.0)
    return np.where(counts_B > 0, relative_B, np.nan)


def rank_residuals(
    model: keras.Model | Sequence[EncoderBlock], inputs: Tensor, mask: Tensor | None = None
) -> np.ndarray:
    """`rank_residual` by depth: before the first block and after each one.

    Example:
        >>> from keras_transformer.diagnostics import rank_residuals
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> rank_residuals(kt.Transformer(config), np.array([[5, 6, 7, 3]])).shape
        (4,)

    Args:
        model: `EncoderBlock`s to run one after the other, or a functional model that holds some:
            a `Transformer` (its encoder's), a classifier, a `LanguageModel`, one of your own.
        inputs: For blocks, the states (B, S, D) that the first one reads; for a model, what it is
            called with, where a `Transformer` needs only the source ids (B, S).
        mask: Boolean, (B, S), True for real tokens. When `None`, a model of this package finds
            its padding itself, and else all are real. Blocks attend to real tokens only.

    Returns:
        (depth + 1,) float64, the mean over the sentences that have real tokens. A norm after the
        last block is left out.

    Raises:
        ValueError: if there is no block, or no real token.
    """
    if isinstance(model, keras.Model):
        states, mask = _model_states(model, inputs, mask)
    else:
        states = list(_stack_states(model, inputs, mask))
    if len(states) < 2:
        raise ValueError(f"`model` must hold at least one `EncoderBlock`. Received: {model!r}")
    if mask is not None and not np.any(mask):
        raise ValueError("`mask` must have a real token. Received: none in any sentence")
    return np.array([np.nanmean(rank_residual(each, mask)) for each in states])


def _stack_states(blocks, states, mask):
    """What the first block reads, and what each one returns."""
    yield states
    mask_B1S = None if mask is None else mask[:, None, :]
    for block in blocks:
        states = block(states, attention_mask=mask_B1S)
        yield states


def _model_states(model, inputs, mask):
    """The same in a functional model, and its padding."""
    blocks = [layer for layer in model.layers if isinstance(layer, EncoderBlock)]
    if not blocks:
        return [], mask
    source = {tensor.name: tensor for tensor in model.inputs}.get("source_ids", model.input)
    if isinstance(inputs, dict) and "source_ids" in inputs:
        inputs = inputs["source_ids"]
    if mask is None and isinstance(model, TransformerModel):
        mask = keras.ops.convert_to_numpy(inputs) != model.config.pad_id
    first = keras.tree.flatten(blocks[0].input)[0]
    inner = keras.Model(source, [first, *(block.output for block in blocks)])
    return inner(inputs, training=False), mask


def _composite_norm(matrices):
    """sqrt(||.||_1 ||.||_inf) of the last two axes."""
    sizes = np.abs(matrices)
    columns, rows = sizes.sum(axis=-2), sizes.sum(axis=-1)
    return np.sqrt(columns.max(axis=-1)) * np.sqrt(rows.max(axis=-1))
