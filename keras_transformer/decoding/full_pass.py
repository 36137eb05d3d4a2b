"""What one teacher-forced pass says about given translations: their scores and alignment."""

from typing import NamedTuple

from keras import ops

from keras_transformer.decoding.checked_ids import check_one_source, checked_rows
from keras_transformer.models.transformer import alignment_layer
from keras_transformer.typing import Tensor


class PairScores(NamedTuple):
    """What a model thinks of given targets, see `score`."""

    log_probs: Tensor  # (B, T) float32 of each target token, 0 at pads
    totals: Tensor  # (B,) float32, their sums; what a search reports for the same tokens


class Alignment(NamedTuple):
    """Which source token each target token attends to most, see `align`."""

    positions: Tensor  # (B, T) int32, index of the source token; -1 at pads
    probabilities: Tensor  # (B, T, S) float32, sum 1 over the source's real tokens; 0 at pads


def score(model, source_ids: Tensor, target_ids: Tensor) -> PairScores:
    """Log-probabilities of target tokens, given the source and the tokens before.

    Args:
        model: A `Transformer`.
        source_ids: (B, S) int32, pieces and EOS, then pads.
        target_ids: (B, T) int32, pieces and EOS, then pads; no BOS.

    Returns:
        `PairScores`, before any length penalty. In a graph, a row with an id outside the
        vocabulary is NaN.

    Raises:
        ValueError: where ids are known and one is outside the vocabulary or stands behind a pad,
            or a packed model's source has EOS before its end.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> model = kt.Transformer(config)
        >>> found = kt.decoding.score(model, np.array([[5, 7, 3]]), np.array([[6, 3]]))
        >>> tuple(found.log_probs.shape), tuple(found.totals.shape)
        ((1, 2), (1,))
    """
    source_ids, target_ids = _checked_pair(source_ids, target_ids, model.config)
    is_real = ops.not_equal(target_ids, model.config.pad_id)
    inputs = _shifted(target_ids, model.config)
    logits = model({"source_ids": source_ids, "target_ids": inputs}, training=False)
    log_probs = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    size = ops.shape(log_probs)[-1]
    is_known = ops.logical_and(target_ids >= 0, target_ids < size)
    places = ops.expand_dims(ops.where(is_known, target_ids, 0), -1)
    chosen = ops.take_along_axis(log_probs, places, axis=-1)[..., 0]
    chosen = ops.where(is_known, chosen, float("nan"))
    log_probs = ops.where(is_real, chosen, 0.0)
    return PairScores(log_probs, ops.sum(log_probs, axis=1))


def align(
    model,
    source_ids: Tensor,
    target_ids: Tensor,
    *,
    layer: int | None = None,
    head: int | None = None,
) -> Alignment:
    """The source position of every target token.

    The attention of a token is that of the step which predicts it. Its position is the source
    token with the highest weight, of equals the first; never a pad, and EOS only if there is no
    other token.

    Args:
        model: A `Transformer`.
        source_ids: (B, S) int32, pieces and EOS, then pads.
        target_ids: (B, T) int32, pieces and EOS if there is one, then pads; no BOS.
        layer: Decoder block whose cross-attention is read, from 0, or from the end if negative.
            By default the config's `alignment_layer` and `alignment_head`; where it has none, the
            last but one, if there are two: its heads' mean agrees best with alignments made by
            people (Garg et al. 2019, arXiv 1909.02074, sec. 4.1).
        head: One of its heads; the mean of all when `None` and a layer is given.

    Returns:
        An `Alignment`.

    Raises:
        TypeError: if the model has no cross-attention to read.
        ValueError: if there is no such layer or head; or where `score` raises it.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> model = kt.Transformer(config)
        >>> found = kt.align(model, np.array([[5, 7, 3]]), np.array([[6, 3]]))
        >>> tuple(found.positions.shape), tuple(found.probabilities.shape)
        ((1, 2), (1, 2, 3))
    """
    layer, head = _checked(model, layer, head)
    config = model.config
    source_ids, target_ids = _checked_pair(source_ids, target_ids, config)
    inputs = _shifted(target_ids, config)
    weights_BNTS = ops.cast(model.attention_scores(source_ids, inputs)[2][layer], "float32")
    weights_BTS = ops.mean(weights_BNTS, axis=1) if head is None else weights_BNTS[:, head]
    is_token = ops.not_equal(target_ids, config.pad_id)
    weights_BTS = ops.where(ops.expand_dims(is_token, 2), weights_BTS, 0.0)
    if source_ids.shape[1] == 0:
        return Alignment(ops.full(ops.shape(target_ids), -1, "int32"), weights_BTS)
    is_real = ops.not_equal(source_ids, config.pad_id)
    is_content = ops.logical_and(is_real, ops.not_equal(source_ids, config.eos_id))
    rank_BS = ops.cast(is_real, "int32") + ops.cast(is_content, "int32")
    is_best_BS = ops.equal(rank_BS, ops.max(rank_BS, axis=1, keepdims=True))
    candidates_BTS = ops.where(ops.expand_dims(is_best_BS, 1), weights_BTS, -1.0)
    best = ops.argmax(candidates_BTS, axis=2)
    return Alignment(ops.where(is_token, ops.cast(best, "int32"), -1), weights_BTS)


def _checked_pair(source_ids, target_ids, config):
    """Both as tensors of the same rows."""
    source_ids = checked_rows("source_ids", source_ids, config.vocab_size, config.pad_id)
    check_one_source(source_ids, config)
    rows = source_ids.shape[0]
    target_ids = checked_rows(
        "target_ids", target_ids, config.target_size, config.pad_id, rows=rows
    )
    return source_ids, target_ids


def _shifted(target_ids, config):
    """(B, T) target ids -> the decoder's inputs: BOS, then all ids but the last."""
    starts = ops.full((ops.shape(target_ids)[0], 1), config.bos_id, "int32")
    return ops.concatenate([starts, target_ids[:, :-1]], axis=1)


def _checked(model, layer, head):
    """The layer and the head, if the model has them."""
    if not (hasattr(model, "attention_scores") and hasattr(model, "encode")):
        raise TypeError(
            "`model` must be a `Transformer`, whose cross-attention can be read. Received: "
            f"{type(model).__name__}"
        )
    layers, heads = model.config.decoder_layers, model.config.num_heads
    if layer is None:
        layer = alignment_layer(model.config)
        head = model.config.alignment_head if head is None else head
    for name, value, count in (("layer", layer, layers), ("head", head, heads)):
        if value is not None and not -count <= value < count:
            raise ValueError(f"`{name}` must be in [-{count}, {count}). Received: {name}={value}")
    return layer, head
