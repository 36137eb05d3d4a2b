"""`Transformer`: the encoder-decoder of the paper as a functional Keras model."""

import dataclasses
from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.config import TransformerConfig
from keras_transformer.layers import (
    DecoderBlock,
    Dropout,
    EncoderBlock,
    SinusoidalPositions,
    TokenEmbedding,
    masks,
)
from keras_transformer.layers.blocks import LAYER_NORM_EPSILON


class Memory(NamedTuple):
    """What the encoder gives the decoder."""

    states: object  # (B, S, D), compute dtype
    mask: object  # (B, 1, S) boolean, True at real source tokens


class Cache(NamedTuple):
    """What cached decoding carries from step to step, all of fixed size."""

    blocks: tuple  # a decoder block: ((keys, values) (B, N, T, H|U), (same of the source))
    memory_mask: object  # (B, 1, S) boolean


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(keras.Model):
    """The Transformer of "Attention Is All You Need".

    A functional model: `{"source_ids": (B, S), "target_ids": (B, T)}`, both int32, to float32
    logits (B, T, V). `target_ids` start with `bos_id`; logits at position t are of the token
    after it. Train it with `compile` and `fit`; decode with `encode`, `start` and `step`, which
    use the same weights, or with `keras_transformer.Translator`.

    Ids must lie in [0, V). Text that comes through a tokenizer does; under XLA nothing else
    could say so.

    Args:
        config: A `TransformerConfig`.
    """

    def __init__(self, config, **kwargs):
        if isinstance(config, dict):
            config = TransformerConfig.from_dict(config)
        layers = _make_layers(config, kwargs.get("dtype"))
        inputs = {
            "source_ids": keras.Input((None,), dtype="int32", name="source_ids"),
            "target_ids": keras.Input((None,), dtype="int32", name="target_ids"),
        }
        memory = _encode(config, layers, inputs["source_ids"])
        logits = _decode(layers, inputs["target_ids"], memory)
        kwargs.setdefault("name", "transformer")
        super().__init__(inputs=inputs, outputs=logits, **kwargs)
        self.config = config
        self._stages = layers

    def fit(self, x=None, y=None, *args, **kwargs):
        """`keras.Model.fit`; text instead of token ids is refused before anything compiles."""
        for item in keras.tree.flatten((getattr(x, "element_spec", x), y)):
            dtype = getattr(item, "dtype", "")
            if "string" in str(dtype) or getattr(dtype, "kind", "") in ("U", "S", "O"):
                raise ValueError(
                    "`fit` takes token ids, since XLA cannot compile string operations: tokenize "
                    "in tf.data, for example with `dataset.map`. Received: dtype=string"
                )
        return super().fit(x, y, *args, **kwargs)

    def encode(self, source_ids):
        """(B, S) int32 source ids -> `Memory`."""
        return _encode(self.config, self._stages, source_ids)

    def start(self, memory, max_length):
        """An empty `Cache` with room for `max_length` target tokens.

        The keys and values of the source are projected here, once.

        Args:
            memory: The `Memory` of the source.
            max_length: Integer or scalar int tensor.
        """
        blocks = tuple(block.start(memory.states, max_length) for block in self._stages.decoder)
        return Cache(blocks, memory.mask)

    def step(self, token_ids, cache, position):
        """Logits of the token after each of `token_ids`, and the cache that holds them too.

        Args:
            token_ids: (B, T) int32, the tokens at `position`, `position + 1`, …; T is usually 1.
            cache: The `Cache` of the tokens before.
            position: Scalar int, tokens already in the cache. `position + T` must not exceed
                the cache's `max_length`.

        Returns:
            (B, T, V) float32 logits, equal to those of the full pass, and the new `Cache`.
        """
        layers = self._stages
        slots = ops.shape(cache.blocks[0][0][0])[2]
        mask = masks.causal_mask(ops.shape(token_ids)[1], slots, position)
        states = layers.target_positions(layers.embedding(token_ids), first_position=position)
        blocks = []
        for block, block_cache in zip(layers.decoder, cache.blocks, strict=True):
            states, block_cache = block.step(states, block_cache, position, mask, cache.memory_mask)
            blocks.append(block_cache)
        if layers.decoder_norm is not None:
            states = layers.decoder_norm(states)
        return layers.embedding(states, reverse=True), Cache(tuple(blocks), cache.memory_mask)

    def get_config(self):
        # The layers' policy: a functional model does not take note of its own `dtype`.
        policy = self._stages.embedding.dtype_policy
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(policy),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


@dataclasses.dataclass(frozen=True)
class _Stages:
    """The model's layers by their part in it."""

    embedding: TokenEmbedding
    source_positions: SinusoidalPositions
    source_dropout: Dropout
    encoder: tuple
    encoder_norm: object  # with pre-norm blocks, else None
    target_positions: SinusoidalPositions
    target_dropout: Dropout
    decoder: tuple
    decoder_norm: object


def _make_layers(config, dtype):
    block = dict(
        num_heads=config.num_heads,
        key_dim=config.head_key_dim,
        value_dim=config.head_value_dim,
        intermediate_dim=config.intermediate_dim,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        activation=config.activation,
        residual=config.residual,
        dtype=dtype,
    )

    def final_norm(name):
        if config.residual == "post":
            return None
        return keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, dtype=dtype, name=name)

    return _Stages(
        embedding=TokenEmbedding(
            config.vocab_size, config.model_dim, dtype=dtype, name="embedding"
        ),
        source_positions=SinusoidalPositions(dtype=dtype, name="source_positions"),
        source_dropout=Dropout(config.dropout, dtype=dtype, name="source_dropout"),
        encoder=tuple(
            EncoderBlock(**block, name=f"encoder_{i}") for i in range(config.encoder_layers)
        ),
        encoder_norm=final_norm("encoder_norm"),
        target_positions=SinusoidalPositions(dtype=dtype, name="target_positions"),
        target_dropout=Dropout(config.dropout, dtype=dtype, name="target_dropout"),
        decoder=tuple(
            DecoderBlock(**block, name=f"decoder_{i}") for i in range(config.decoder_layers)
        ),
        decoder_norm=final_norm("decoder_norm"),
    )


def _encode(config, layers, source_ids):
    mask_B1S = ops.expand_dims(masks.padding_mask(source_ids, config.pad_id), 1)
    states = layers.source_dropout(layers.source_positions(layers.embedding(source_ids)))
    for block in layers.encoder:
        states = block(states, attention_mask=mask_B1S)
    if layers.encoder_norm is not None:
        states = layers.encoder_norm(states)
    return Memory(states, mask_B1S)


def _decode(layers, target_ids, memory):
    # No padding mask on the target: pads follow the real tokens, and the causal mask hides them.
    states = layers.target_dropout(layers.target_positions(layers.embedding(target_ids)))
    for block in layers.decoder:
        states = block(states, memory.states, memory_mask=memory.mask)
    if layers.decoder_norm is not None:
        states = layers.decoder_norm(states)
    return layers.embedding(states, reverse=True)
