"""One side of a model: embedding, positions, dropout, blocks, and the norm after them."""

import dataclasses

from keras import ops

from keras_transformer.layers import (
    AlibiBias,
    DecoderBlock,
    Dropout,
    EncoderBlock,
    LearnedPositions,
    RelativePositionBias,
    SinusoidalPositions,
    TokenEmbedding,
    masks,
)
from keras_transformer.layers.lowering.cache_slots import (
    next_beam_slots,
    next_slots,
    no_ancestors,
    slots_of_states,
)
from keras_transformer.layers.lowering.places import arange
from keras_transformer.layers.lowering.tracing import unfolded
from keras_transformer.layers.normalization import normalization_of, normalized
from keras_transformer.layers.projection import reshape
from keras_transformer.models.cache import Cache


class Stack:
    """The layers of the source's or the target's side, as functions of ids.

    Args:
        config: A `TransformerConfig`.
        side: `"source"` or `"target"`, the first part of layers' names.
        embedding: The side's `TokenEmbedding`.
        blocks: Its `EncoderBlock`s or `DecoderBlock`s; one may come several times.
        dtype: Dtype policy of the layers, or `None` for Keras' own.
    """

    def __init__(self, config, side, embedding, blocks, dtype):
        self.config = config
        self.embedding = embedding
        self.positions = added_positions(config, dtype, f"{side}_positions")
        self.embedding_norm = None
        if config.embedding_norm:
            self.embedding_norm = _norm(config, dtype, f"{side}_embedding_norm")
        # A recurrence needs no slots, and nothing that says which of them a token sees.
        self.is_recurrent = side == "target" and config.decoder_recurrence is not None
        self.position_bias = None if self.is_recurrent else _position_bias(config, side, dtype)
        self.dropout = Dropout(config.dropout, dtype=dtype, name=f"{side}_dropout")
        self.blocks = blocks
        self.norm = None
        if config.has_final_norm:
            name = {"source": "encoder_norm", "target": "decoder_norm"}[side]
            self.norm = _norm(config, dtype, name)

    def encode(self, ids, mask, causal=False, scores=None, positions=None):
        """(B, S) ids -> (B, S, D) states.

        Args:
            ids: (B, S) int32.
            mask: (B, 1, S) or (B, S, S) boolean, True at keys that may be seen, or `None`.
            causal: Whether a position sees only positions up to itself.
            scores: A list that gets the (B, N, S, S) attention weights of each block, or `None`.
            positions: (B, S) integers where they do not just count up, or `None`.
        """
        states, options = self._enter(ids, positions)
        for block in self.blocks:
            outputs = block(
                states,
                attention_mask=mask,
                use_causal_mask=causal,
                return_attention_scores=scores is not None,
                **options,
            )
            states = outputs if scores is None else outputs[0]
            if scores is not None:
                scores.append(outputs[1])
        return self._leave(states, ids)

    def decode(self, ids, memory, scores=None, mask=None, positions=None):
        """(B, T) ids and a `Memory` -> (B, T, D) states.

        `scores`, a list or `None`, gets a pair of (B, N, T, T) and (B, N, T, S) weights a block.
        `mask` (B, T, T) and `positions` (B, T) are for rows of several pairs. Blocks with a
        recurrence give no weights of the first kind.
        """
        # No padding mask on the target: pads follow the real tokens, and the causal mask hides
        # them.
        states, options = self._enter(ids, positions)
        if not self.is_recurrent:
            options["attention_mask"] = mask
        elif positions is not None:
            options["segment_starts"] = ops.equal(positions, 0)
        for block in self.blocks:
            outputs = block(
                states,
                memory.states,
                memory_mask=memory.mask,
                return_attention_scores=scores is not None,
                **options,
            )
            states = outputs if scores is None else outputs[0]
            if scores is not None:
                scores.append(outputs[1:])
        return self._leave(states, ids)

    def start(self, blocks, size, beams, rows, memory_bias=()):
        """The empty `Cache` of `rows` rows, with the caches that the blocks have started."""
        if self.is_recurrent:
            return Cache(blocks, memory_bias, (), ())
        ancestors = no_ancestors(rows, size, beams) if beams > 1 else ()
        return Cache(blocks, memory_bias, arange(size), ancestors)

    def step(self, token_ids, cache, position, beams=1, scores=None):
        """(B, T) ids from `position` on -> (B, T, D) states and the new `Cache`.

        With K beams the ids are (B * K, 1) and the states (B, K, D). `scores`, a list or `None`,
        gets the (B, N, T, S) or (B, N, K, S) weights of cross-attention of each block that has it.
        """
        slots, ancestors = self._slots(token_ids, cache, position, beams)
        if not self.is_recurrent:
            slots = slots.in_buffers(ops.shape(token_ids)[0] // beams, self.config.num_heads)
        if beams > 1:
            token_ids = reshape(token_ids, (ops.shape(token_ids)[0] // beams, beams))
        states = self.embedding.lookup(token_ids)
        if self.positions is not None:
            where = {"positions": slots.positions} if beams > 1 else {"first_position": position}
            states = self.positions(states, **self._counted(**where))
        states = normalized(self.embedding_norm, states)
        options, blocks = {}, []
        if not isinstance(cache.memory_bias, tuple):
            options["memory_bias"] = cache.memory_bias
        if scores is not None:
            options["return_attention_scores"] = True
        for block, own in zip(self.blocks, cache.blocks, strict=True):
            states, own, *weights = block.step(states, own, slots, **options)
            blocks.append(own)
            if scores is not None:
                scores.extend(weights)
        return self._last_norm(states), cache._replace(blocks=tuple(blocks), ancestors=ancestors)

    def _slots(self, token_ids, cache, position, beams):
        if self.is_recurrent:
            return slots_of_states(ops.shape(token_ids)[1], position, beams), ()
        bias = self.position_bias and self.position_bias.between
        options = dict(window=self.config.attention_window, position_bias=bias)
        if beams > 1:
            return next_beam_slots(cache.ancestors, cache.slot_ids, position, **options)
        return next_slots(ops.shape(token_ids)[1], cache.slot_ids, position, **options), ()

    def nan_where_ids_invalid(self, states, ids):
        """(B, T, D) states, all NaN in a row of (B, S) ids that this side cannot know.

        The NaN of its embedding need not get that far: a graph optimizer may fuse an activation
        that turns it into 0.
        """
        known = ops.all(ops.logical_and(ids >= 0, ids < self.embedding.vocab_size), axis=1)
        if self.config.max_positions is not None:
            lengths_B = ops.sum(ops.ones_like(ids), axis=1)  # a symbolic input has no size yet
            known = ops.logical_and(known, lengths_B <= self.config.max_positions)
        mark_B = ops.where(known, 0.0, float("nan"))
        return states + ops.cast(ops.expand_dims(mark_B, (1, 2)), states.dtype)

    def _enter(self, ids, positions=None):
        """The first block's input, and what every block is called with."""
        states = self.embedding(ids)
        if self.positions is not None:
            states = self.positions(states, **self._counted(positions=positions))
        padding_mask = self._padding_for_batch_norm(ids)
        states = normalized(self.embedding_norm, states, padding_mask=padding_mask)
        states = self.dropout(states)
        options = {"padding_mask": padding_mask}
        if self.position_bias is not None:
            options["position_bias"] = self.position_bias(states)
        return states, options

    def _counted(self, first_position=0, positions=None):
        """What `positions` is called with: positions counted from `config.first_position` on."""
        first = self.config.first_position
        if positions is None:
            return {"first_position": first_position + first if first else first_position}
        return {"positions": positions + first if first else positions}

    def _leave(self, states, ids):
        return self._last_norm(states, padding_mask=self._padding_for_batch_norm(ids))

    def _last_norm(self, states, **options):
        states = normalized(self.norm, states, **options)
        # A converter multiplies the scale of an RMS norm, which no offset parts from the logits'
        # product, into the table, which is then in the file twice.
        return unfolded(states) if self.config.normalization == "rms" else states

    def _padding_for_batch_norm(self, ids):
        """Which positions batch normalization counts."""
        if self.config.normalization != "batch":
            return None
        return masks.padding_mask(ids, self.config.pad_id)


def encoder_blocks(config, numbers, name, dtype):
    """Blocks of self-attention and feed-forward network; those of equal numbers are one."""
    options = _block_options(config, dtype)
    made = {each: EncoderBlock(**options, name=f"{name}_{each}") for each in dict.fromkeys(numbers)}
    return tuple(made[each] for each in numbers)


def decoder_blocks(config, dtype):
    """The blocks that also attend to the encoder's output."""
    options = _block_options(config, dtype)
    if config.decoder_recurrence is not None:
        options.update(recurrence=config.decoder_recurrence, rotary=False, attention_window=None)
    numbers = config.decoder_blocks
    made = {
        each: DecoderBlock(**options, name=f"decoder_{each}") for each in dict.fromkeys(numbers)
    }
    return tuple(made[each] for each in numbers)


def token_embedding(vocab_size, config, dtype, name, makes_logits):
    """A (V, D) embedding; if it makes logits, with their bias where the config has one."""
    return TokenEmbedding(
        vocab_size,
        config.model_dim,
        embedding_scale=config.embedding_scale,
        output_bias=makes_logits and config.output_bias,
        dtype=dtype,
        name=name,
    )


def step_logits(output, states, beams, vocab_first, candidates=None):
    """The logits of `step`, of its states and a `TokenEmbedding`, or of its `CandidateOutput`."""
    if candidates is not None:
        logits = candidates.logits(states)
        return logits if beams == 1 else ops.reshape(logits, (-1, 1, ops.shape(logits)[-1]))
    if vocab_first:
        return output.vocab_first_logits(states)
    logits = output(states, reverse=True)
    return logits if beams == 1 else ops.reshape(logits, (-1, 1, logits.shape[-1]))


def added_positions(config, dtype, name):
    """The layer that adds positions to embeddings, or `None` where they act in attention."""
    if config.positions == "sinusoidal":
        return SinusoidalPositions(dtype=dtype, name=name)
    if config.positions == "tensor2tensor":
        return SinusoidalPositions("split", dtype=dtype, name=name)
    if config.positions == "learned":
        return LearnedPositions(config.max_positions, dtype=dtype, name=name)
    return None


def _norm(config, dtype, name):
    return normalization_of(config.normalization, config.norm_epsilon, dtype, name)


def _position_bias(config, side, dtype):
    name = f"{side}_position_bias"
    if config.positions == "alibi":
        return AlibiBias(config.num_heads, dtype=dtype, name=name)
    if config.positions == "relative":
        return RelativePositionBias(
            config.num_heads,
            config.relative_buckets,
            config.relative_max_distance,
            bidirectional=side == "source",
            dtype=dtype,
            name=name,
        )
    return None


def _block_options(config, dtype):
    """What both blocks are made with: the fields of the config that are named as their options."""
    fields = {field.name for field in dataclasses.fields(config)}
    return {
        **{name: getattr(config, name) for name in EncoderBlock.OPTIONS if name in fields},
        "key_dim": config.head_key_dim,
        "value_dim": config.head_value_dim,
        "rotary": config.positions == "rotary",
        "dtype": dtype,
    }
