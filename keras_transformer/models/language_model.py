"""`LanguageModel`: the decoder alone, as a functional Keras model."""

from typing import Any

import keras

from keras_transformer.config import TransformerConfig
from keras_transformer.models.base import TransformerModel, as_config
from keras_transformer.models.stack import Stack, encoder_blocks, step_logits, token_embedding
from keras_transformer.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_transformer")
class LanguageModel(TransformerModel):
    """A decoder-only Transformer: (B, T) int32 ids to float32 logits (B, T, V) of the next ones.

    It has `decoder_layers` blocks of causal self-attention over `target_vocab_size` (or else
    `vocab_size`) ids, and nothing of the config's encoder. Input and output embeddings are one
    matrix, unless `embedding_sharing` is `"none"` or `"source_target"`. A row starts with `bos_id`.

    Args:
        config: A `TransformerConfig`.
        **kwargs: `name`, `dtype` (a policy for all layers) and `trainable`, as for a Keras model.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> model = kt.LanguageModel(config)
        >>> model(np.array([[2, 7, 8]])).shape  # (B, T, V)
        TensorShape([1, 3, 11])
        >>> kt.generate(model, [[7, 8]], kt.Greedy(max_length=4)).ids.shape  # without BOS
        TensorShape([1, 4])
    """

    def __init__(self, config: TransformerConfig | dict[str, Any], **kwargs: Any):
        config, dtype = as_config(config), kwargs.pop("dtype", None)
        if config.decoder_recurrence is not None:
            raise ValueError(
                "`decoder_recurrence` is for a Transformer. Received: LanguageModel with "
                f"decoder_recurrence={config.decoder_recurrence!r}"
            )
        is_tied = config.embedding_sharing in ("all", "target_output")
        size = config.target_size
        embedding = output = token_embedding(size, config, dtype, "embedding", is_tied)
        if not is_tied:
            output = token_embedding(size, config, dtype, "output_embedding", True)
        blocks = encoder_blocks(config, config.decoder_blocks, "decoder", dtype)
        decoder = Stack(config, "target", embedding, blocks, dtype)
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        # No padding mask: pads follow the real tokens, and the causal mask hides them.
        states = decoder.nan_where_ids_invalid(
            decoder.encode(token_ids, None, causal=True), token_ids
        )
        logits = output(states, reverse=True)
        kwargs.setdefault("name", "language_model")
        super().__init__(config, token_ids, logits, dtype, **kwargs)
        self._decoder, self._output = decoder, output

    def start(self, batch_size, max_length, beams=1):
        """An empty `Cache` for `batch_size` prompts of at most `max_length` tokens, for `step`."""
        blocks = tuple(block.start(batch_size, max_length, beams) for block in self._decoder.blocks)
        return self._decoder.start(blocks, max_length, beams, batch_size * beams)

    def step(self, token_ids, cache, position, beams=1, vocab_first=False):
        """As `Transformer.step`: (B, T) ids from `position` on -> (B, T, V) logits, new cache."""
        states, cache = self._decoder.step(token_ids, cache, position, beams)
        return step_logits(self._output, states, beams, vocab_first), cache

    def attention_scores(self, token_ids: Tensor) -> tuple[list, list[Tensor], list]:
        """The (B, N, T, T) weights of every block, in lists as those of a `Transformer`."""
        decoder = []
        self._decoder.encode(token_ids, None, causal=True, scores=decoder)
        return [], decoder, []
