"""Logits of a few candidates of a vocabulary: only their rows of the output matrix are read."""

from typing import NamedTuple

from keras import ops

from keras_transformer.layers.lowering.tracing import ANYTHING, compiled_for
from keras_transformer.layers.projection import reshape
from keras_transformer.typing import Tensor


class CandidateOutput(NamedTuple):
    """What makes the logits of C candidates, gathered once for all steps of a search."""

    rows: Tensor  # (C, D) of the output matrix, compute dtype; (D, C) where that is faster
    bias: Tensor  # (B, 1, C) float32, added to the logits of a source

    def logits(self, states):
        """(B, K, D) states, of K beams or tokens -> (B, K, C) float32 logits."""
        batch, beams, dim = ops.shape(states)
        flat = ops.reshape(states, (-1, dim))
        if _rows_come_first():
            logits = ops.transpose(ops.matmul(self.rows, ops.transpose(flat)))
        else:
            logits = ops.matmul(flat, self.rows)
        logits = ops.cast(logits, "float32")
        return reshape(logits, (batch, beams, ops.shape(self.bias)[2])) + self.bias

    def selected(self, sources):
        """The output for some sources, (C,) int32 indices below B."""
        return self._replace(bias=ops.take(self.bias, sources, axis=0))


def candidate_output(embedding, ids, bias):
    """The `CandidateOutput` of a `TokenEmbedding`.

    Args:
        embedding: The one that makes the logits.
        ids: (C,) int32 in [0, V), the candidates.
        bias: (B, C) float32, what is added to the logits beside the embedding's own bias.
    """
    rows = ops.cast(ops.take(embedding.embeddings, ids, axis=0), embedding.compute_dtype)
    if embedding.output_bias is not None:
        bias = bias + ops.take(ops.cast(embedding.output_bias, "float32"), ids, axis=0)
    rows = rows if _rows_come_first() else ops.transpose(rows)
    return CandidateOutput(rows, ops.expand_dims(bias, 1))


def _rows_come_first():
    """Whether rows times columns is the faster product: LiteRT packs the right side every time."""
    return compiled_for() == ANYTHING
