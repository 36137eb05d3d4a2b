"""`Transformer`: the encoder-decoder of the paper as a functional Keras model."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.config import TransformerConfig
from keras_transformer.layers import TokenEmbedding, masks
from keras_transformer.models import packed_sequences
from keras_transformer.models.base import TransformerModel, as_config
from keras_transformer.models.candidates import CandidateOutput, candidate_output
from keras_transformer.models.stack import (
    Stack,
    decoder_blocks,
    encoder_blocks,
    step_logits,
    token_embedding,
)
from keras_transformer.typing import Tensor


class Memory(NamedTuple):
    """What the encoder gives the decoder.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> memory = kt.Transformer(config).encode(np.array([[5, 6, 3, 0]]))
        >>> memory.states.shape, memory.mask.numpy()
        (TensorShape([1, 4, 6]), array([[[ True,  True,  True, False]]]))
    """

    states: Tensor  # (B, S, D), compute dtype
    mask: Tensor  # (B, 1, S) boolean, True at real source tokens


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(TransformerModel):
    """The Transformer of "Attention Is All You Need".

    A functional model: `{"source_ids": (B, S), "target_ids": (B, T)}`, both int32, to float32
    logits (B, T, V). `target_ids` start with `bos_id`; logits at position t are of the token
    after it. Train it with `compile` and `fit`; decode with `encode`, `start` and `step`, which
    use the same weights, or with `keras_transformer.Translator`.

    Ids must lie in [0, V); one that does not makes its row's logits NaN, in every mode.

    With `config.packed` a row may hold several pairs: source ids with EOS behind each, target ids
    with BOS before each (see `data.pack_corpus`). Each pair gets the logits it would get alone.

    Args:
        config: A `TransformerConfig`.
        **kwargs: `name`, `dtype` (a policy for all layers) and `trainable`, as for a Keras model.

    Example:
        >>> keras.utils.set_random_seed(1)
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> model = kt.Transformer(config)
        >>> inputs = {"source_ids": np.array([[5, 6, 3, 0]]), "target_ids": np.array([[2, 7]])}
        >>> model(inputs).shape  # (B, T, V)
        TensorShape([1, 2, 11])
        >>> model.compile("adam", kt.SmoothedCrossEntropy(0.1, pad_id=0), run_eagerly=True)
        >>> history = model.fit(inputs, np.array([[7, 3]]), verbose=0)
        >>> list(history.history)
        ['loss']
        >>> model.save_to_preset("preset", license="MIT")
        >>> kt.Transformer.from_preset("preset").config == config
        True
    """

    def __init__(self, config: TransformerConfig | dict[str, Any], **kwargs: Any):
        config, dtype = as_config(config), kwargs.pop("dtype", None)
        source, target, output = _embeddings(config, dtype)
        encoder = encoder_blocks(config, config.encoder_blocks, "encoder", dtype)
        encoder = Stack(config, "source", source, encoder, dtype)
        decoder = Stack(config, "target", target, decoder_blocks(config, dtype), dtype)
        inputs = {
            "source_ids": keras.Input((None,), dtype="int32", name="source_ids"),
            "target_ids": keras.Input((None,), dtype="int32", name="target_ids"),
        }
        states = _states(encoder, decoder, **inputs)
        states = encoder.nan_where_ids_invalid(states, inputs["source_ids"])
        states = decoder.nan_where_ids_invalid(states, inputs["target_ids"])
        logits = output(states, reverse=True)
        kwargs.setdefault("name", "transformer")
        super().__init__(config, inputs, logits, dtype, **kwargs)
        self._encoder, self._decoder, self._output = encoder, decoder, output

    @property
    def token_embeddings(self) -> dict[str, TokenEmbedding]:
        """The `TokenEmbedding` of `"source"`, `"target"` and `"output"`; some may be one layer."""
        source, target = self._encoder.embedding, self._decoder.embedding
        return {"source": source, "target": target, "output": self._output}

    def encode(self, source_ids):
        """(B, S) int32 source ids -> `Memory`."""
        return _encode(self._encoder, source_ids)

    def start(self, memory, max_length, beams=1):
        """An empty `Cache` with room for `max_length` target tokens.

        The keys and values of the source are projected here, once.

        Args:
            memory: The `Memory` of the source.
            max_length: Integer or scalar int tensor.
            beams: Hypotheses K of each source. They stand next to each other, B * K rows, and
                share their source's keys and values.
        """
        blocks = tuple(
            block.start(memory.states, max_length, beams, memory.mask)
            for block in self._decoder.blocks
        )
        bias = ops.expand_dims(masks.additive(memory.mask), 1)
        rows = ops.shape(memory.states)[0] * beams
        return self._decoder.start(blocks, max_length, beams, rows, bias)

    def step(
        self,
        token_ids,
        cache,
        position,
        beams=1,
        return_attention_scores=False,
        vocab_first=False,
        candidates=None,
    ):
        """Logits of the token after each of `token_ids`, and the cache that holds them too.

        Args:
            token_ids: (B, T) int32 in [0, V), the tokens at `position`, `position + 1`, …; T is
                usually 1, and with beams always. Not checked: they come from a search.
            cache: The `Cache` of the tokens before. A slot of it is written once.
            position: Scalar int, tokens already in the cache. `position + T` must not exceed
                the cache's `max_length`.
            beams: As given to `start`; B is then B * K.
            return_attention_scores: Whether to return, third, (B, T, S) float32 weights of the
                source too, with beams (B, K, S): those that `decoding.align` reads, of the
                config's `alignment_layer` and `alignment_head`.
            vocab_first: Whether the logits are to come as (V, B); T is 1 then.
            candidates: What `candidate_output` gave, for logits (B, T, C) of these alone; or
                `None`.

        Returns:
            (B, T, V) float32 logits, equal to those of the full pass, and the new `Cache`.
        """
        scores = [] if return_attention_scores else None
        states, cache = self._decoder.step(token_ids, cache, position, beams, scores)
        logits = step_logits(self._output, states, beams, vocab_first, candidates)
        if not return_attention_scores:
            return logits, cache
        weights_BNTS = ops.cast(scores[alignment_layer(self.config)], "float32")
        head = self.config.alignment_head
        weights_BTS = ops.mean(weights_BNTS, axis=1) if head is None else weights_BNTS[:, head]
        return logits, cache, weights_BTS

    def candidate_output(self, ids: Tensor, bias: Tensor) -> CandidateOutput:
        """What makes `step` compute the logits of some ids alone.

        Args:
            ids: (C,) int32 in [0, V).
            bias: (B, C) float32, added to the logits of each source.
        """
        return candidate_output(self._output, ids, bias)

    def attention_scores(
        self, source_ids: Tensor, target_ids: Tensor
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Weights of every block: lists of encoder, decoder and cross-attention's.

        (B, N, S, S), (B, N, T, T) and (B, N, T, S) a block, in the compute dtype. A decoder with a
        recurrence has none of the second.
        """
        encoder, decoder = [], []
        _states(self._encoder, self._decoder, source_ids, target_ids, (encoder, decoder))
        own = [] if self.config.decoder_recurrence else [pair[0] for pair in decoder]
        return encoder, own, [pair[-1] for pair in decoder]


def alignment_layer(config):
    """The decoder block whose cross-attention tells best what a token comes from.

    The config's, or the last but one, if there are two: the mean of its heads agrees best with
    alignments made by people (Garg et al. 2019, arXiv 1909.02074, sec. 4.1).
    """
    if config.alignment_layer is not None:
        return config.alignment_layer
    return max(config.decoder_layers - 2, 0)


def _states(encoder, decoder, source_ids, target_ids, scores=(None, None)):
    """The decoder's (B, T, D) states in a full pass; for `scores` see `Stack.encode`, `decode`."""
    if not encoder.config.packed:
        memory = _encode(encoder, source_ids, scores[0])
        return decoder.decode(target_ids, memory, scores[1])
    config = encoder.config
    sources = packed_sequences.segments_ending_with(source_ids, config.eos_id, config.pad_id)
    targets = packed_sequences.segments_starting_with(target_ids, config.bos_id)
    real_B1S = ops.expand_dims(masks.padding_mask(source_ids, config.pad_id), 1)
    states = encoder.encode(
        source_ids,
        masks.merge(real_B1S, packed_sequences.same_segment(sources, sources)),
        scores=scores[0],
        positions=packed_sequences.positions_within(sources),
    )
    return decoder.decode(
        target_ids,
        Memory(states, masks.merge(real_B1S, packed_sequences.same_segment(targets, sources))),
        scores[1],
        mask=packed_sequences.same_segment(targets, targets),
        positions=packed_sequences.positions_within(targets),
    )


def _encode(encoder, source_ids, scores=None):
    mask_B1S = ops.expand_dims(masks.padding_mask(source_ids, encoder.config.pad_id), 1)
    return Memory(encoder.encode(source_ids, mask_B1S, scores=scores), mask_B1S)


def _embeddings(config, dtype):
    """The source's, the target's and the output's embedding; some of them are one layer."""
    if config.embedding_sharing == "all":
        shared = token_embedding(config.vocab_size, config, dtype, "embedding", True)
        return shared, shared, shared
    if config.embedding_sharing == "target_output":
        source = token_embedding(config.vocab_size, config, dtype, "source_embedding", False)
        target = token_embedding(config.target_size, config, dtype, "target_embedding", True)
        return source, target, target
    if config.embedding_sharing == "source_target":
        source = target = token_embedding(config.vocab_size, config, dtype, "embedding", False)
    else:
        source = token_embedding(config.vocab_size, config, dtype, "source_embedding", False)
        target = token_embedding(config.target_size, config, dtype, "target_embedding", False)
    output = token_embedding(config.target_size, config, dtype, "output_embedding", True)
    return source, target, output
