"""`TransformerConfig`: every number that defines a model, validated once, in one place."""

import dataclasses
import json
from typing import Any

from keras_transformer.arguments import (
    check_block,
    check_buckets,
    check_choice,
    check_count,
    check_flag,
    check_key_dim,
    check_name,
    check_positive,
    check_rate,
    check_reach,
    check_size,
    check_tied_layers,
)
from keras_transformer_runner.tokenizers.base import SpecialIds

RESIDUALS = ("post", "pre", "b2t")
NORMALIZATIONS = ("layer", "rms", "batch", "none")
# The first three are added to the embeddings, the others act inside self-attention.
POSITIONS = ("sinusoidal", "tensor2tensor", "learned", "rotary", "relative", "alibi", "none")
SCORES = ("scaled_dot_product", "dot_product", "additive")
RECURRENCES = ("ssru",)
SHARING = ("all", "target_output", "source_target", "none")

# Shazeer 2020 (arXiv 2002.05202): activation(x W) * (x V), by the name of the pair.
GATED_ACTIVATIONS = {
    **{"glu": "sigmoid", "reglu": "relu", "geglu": "gelu", "swiglu": "silu"},
    "geglu_tanh": "gelu_tanh",
}
ACTIVATIONS = (
    *(
        "relu",
        "gelu",
        "gelu_tanh",
        "silu",
        "swish",
        "elu",
        "selu",
        "celu",
        "leaky_relu",
        "relu6",
        "mish",
    ),
    *("softplus", "softsign", "squareplus", "tanh", "sigmoid", "hard_sigmoid", "hard_silu"),
    *("hard_swish", "hard_tanh", "exponential", "linear"),
    *GATED_ACTIVATIONS,
)

# Vaswani et al. 2017, table 3 ("base", "big"); "tiny" is the size that fits a phone and a small
# corpus (the setting published for Multi30k: 4+4 layers, width 128).
PRESETS = {
    "tiny": dict(
        model_dim=128, num_heads=4, encoder_layers=4, decoder_layers=4, intermediate_dim=256
    ),
    "base": dict(
        model_dim=512, num_heads=8, encoder_layers=6, decoder_layers=6, intermediate_dim=2048
    ),
    "big": dict(
        model_dim=1024,
        num_heads=16,
        encoder_layers=6,
        decoder_layers=6,
        intermediate_dim=4096,
        dropout=0.3,
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Hyper-parameters of a `Transformer`, in the paper's terms.

    All are keywords, and all are checked when the config is made. It cannot be changed later.

    Attributes:
        vocab_size: Rows of the source's embedding (V), and of the target's where there is no
            `target_vocab_size`.
        target_vocab_size: Ids of the target where it has a vocabulary of its own.
        embedding_sharing: Which matrices are one: `"all"` (the paper: source, target and output),
            `"target_output"`, `"source_target"` (T5 v1.1: the output has its own), or `"none"`.
        embedding_scale: Factor of the embeddings that come in; sqrt(D), the paper's, when `None`.
        embedding_norm: Whether a norm follows the sum of embeddings and positions (BART).
        output_bias: Whether the logits have a bias, (V,) (Marian).
        model_dim: Width of every layer's input and output (D, the paper's d_model).
        num_heads: Attention heads (N, the paper's h).
        encoder_layers: Encoder blocks.
        decoder_layers: Decoder blocks.
        encoder_tied_layers: Which encoder blocks are one and the same: for each the number of the
            block whose weights it has, such as `(0, 0, 0, 3, 3, 3)` for two that each come three
            times (cross-layer sharing: Dabre & Fujita 2019; Marian's `transformer-tied-layers`,
            which counts from 1). Each has its own when `None`.
        decoder_tied_layers: The same for the decoder.
        intermediate_dim: Inner width of the feed-forward layer (F, the paper's d_ff).
        key_dim: Query and key width per head (H, d_k); `model_dim // num_heads` when `None`.
        value_dim: Value width per head (U, d_v); `key_dim` when `None`.
        activation: Of the feed-forward layer: a Keras name, or a gated pair of
            `GATED_ACTIVATIONS`, such as `"swiglu"`; `"gelu_tanh"` and `"geglu_tanh"` are GELU by
            its approximation with a hyperbolic tangent.
        use_bias: Whether attention's projections have biases.
        feed_forward_bias: Whether the products of the feed-forward layer have biases.
        positions: `"sinusoidal"` (the paper), `"tensor2tensor"` (its first code: all sines, then
            all cosines), `"learned"`, `"rotary"` (RoFormer), `"relative"` (T5), `"alibi"`, or
            `"none"`.
        max_positions: Rows of the learned table; the longest sequence there is.
        first_position: Number of a sequence's first position, for the two kinds of sinusoids (2
            in fairseq and its descendants).
        relative_buckets: Distances that `"relative"` tells apart.
        relative_max_distance: The distance from which all share the last bucket.
        residual: Where the norm stands: `"post"` (the paper, after the residual sum), `"pre"`
            (before each sub-layer), or `"b2t"` (post, and the block's input once more before its
            last norm; arXiv 2206.00330).
        use_residual: Whether there is a residual path at all.
        use_feed_forward: Whether blocks have a feed-forward layer.
        normalization: `"layer"` (the paper), `"rms"`, `"batch"` (for comparison: its statistics
            mix positions and batch mates in training), or `"none"`.
        norm_epsilon: Added to the variance.
        final_norm: Whether one more norm follows the last block; with `"pre"` alone when `None`.
        attention_score: `"scaled_dot_product"` (the paper), `"dot_product"`, or `"additive"`
            (Bahdanau et al. 2015).
        attention_chunk: Queries that attend at once. The result is the same; the memory grows
            with the length, not with its square.
        attention_window: Self-attention sees the `attention_window` nearest tokens to each side,
            itself included; time and memory grow with the length alone.
        decoder_recurrence: What stands in the decoder in the place of self-attention: `"ssru"`, the
            Simpler Simple Recurrent Unit (Kim et al. 2019), whose steps cost the same at every
            position. Positions are still added; `"rotary"`, `"relative"`, `"alibi"` and
            `attention_window` act in the encoder alone. Self-attention when `None`.
        alignment_layer: The decoder block whose cross-attention says what a token comes from; the
            last but one when `None`.
        alignment_head: The head of it that says so; the mean of all when `None`.
        packed: Whether a row may hold several pairs in training, kept apart by their EOS and BOS.
            A row of one pair gives the same as without.
        dropout: Rate for sub-layer outputs and for embeddings, as in section 5.4 of the paper.
        attention_dropout: Rate for attention weights.
        intermediate_dropout: Rate inside the feed-forward layer.
        pad_id: Id that fills the end of a row; never attended to, never scored.
        unk_id: Id of a piece that the vocabulary lacks.
        bos_id: Id that starts the decoder's input; may be the pad's (T5) or EOS' (M2M-100).
        eos_id: Id that ends source and target.

    Raises:
        ValueError: if a value is out of range, or values do not fit together.

    Example:
        >>> config = kt.TransformerConfig.preset("base", vocab_size=8000, dropout=0.2)
        >>> config.model_dim, config.num_heads, config.head_key_dim, config.dropout
        (512, 8, 64, 0.2)
        >>> kt.TransformerConfig.from_json(config.to_json()) == config
        True
        >>> kt.TransformerConfig(vocab_size=8000, model_dim=10, num_heads=4)
        Traceback (most recent call last):
        ValueError: `model_dim` must be divisible by `num_heads` when `key_dim` is not given. \
Received: model_dim=10, num_heads=4
    """

    vocab_size: int
    target_vocab_size: int | None = None
    embedding_sharing: str = "all"
    embedding_scale: float | None = None
    embedding_norm: bool = False
    output_bias: bool = False
    model_dim: int = 512
    num_heads: int = 8
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_tied_layers: tuple[int, ...] | None = None
    decoder_tied_layers: tuple[int, ...] | None = None
    intermediate_dim: int = 2048
    key_dim: int | None = None
    value_dim: int | None = None
    activation: str = "relu"
    use_bias: bool = True
    feed_forward_bias: bool = True
    positions: str = "sinusoidal"
    max_positions: int | None = None
    first_position: int = 0
    relative_buckets: int = 32
    relative_max_distance: int = 128
    residual: str = "post"
    use_residual: bool = True
    use_feed_forward: bool = True
    normalization: str = "layer"
    norm_epsilon: float = 1e-6
    final_norm: bool | None = None
    attention_score: str = "scaled_dot_product"
    attention_chunk: int | None = None
    attention_window: int | None = None
    decoder_recurrence: str | None = None
    alignment_layer: int | None = None
    alignment_head: int | None = None
    packed: bool = False
    dropout: float = 0.1
    attention_dropout: float = 0.0
    intermediate_dropout: float = 0.0
    pad_id: int = 0
    unk_id: int = 1
    bos_id: int = 2
    eos_id: int = 3

    def __post_init__(self):
        self._check_fields()
        self._check_combinations()
        self._check_special_ids()

    def _check_fields(self):
        check_flag(
            embedding_norm=self.embedding_norm,
            output_bias=self.output_bias,
            use_bias=self.use_bias,
            feed_forward_bias=self.feed_forward_bias,
            use_residual=self.use_residual,
            use_feed_forward=self.use_feed_forward,
            packed=self.packed,
        )
        check_flag(optional=True, final_norm=self.final_norm)
        check_size(
            vocab_size=self.vocab_size,
            model_dim=self.model_dim,
            num_heads=self.num_heads,
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            intermediate_dim=self.intermediate_dim,
            relative_buckets=self.relative_buckets,
            relative_max_distance=self.relative_max_distance,
        )
        check_size(
            optional=True,
            target_vocab_size=self.target_vocab_size,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            max_positions=self.max_positions,
            attention_chunk=self.attention_chunk,
            attention_window=self.attention_window,
        )
        check_count(first_position=self.first_position)
        check_choice(SHARING, embedding_sharing=self.embedding_sharing)
        check_choice(ACTIVATIONS, activation=self.activation)
        check_choice(POSITIONS, positions=self.positions)
        check_choice(RESIDUALS, residual=self.residual)
        check_choice(NORMALIZATIONS, normalization=self.normalization)
        check_choice(SCORES, attention_score=self.attention_score)
        check_choice((None, *RECURRENCES), decoder_recurrence=self.decoder_recurrence)
        check_positive(norm_epsilon=self.norm_epsilon)
        check_positive(optional=True, embedding_scale=self.embedding_scale)
        check_rate(
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            intermediate_dropout=self.intermediate_dropout,
        )

    def _check_combinations(self):
        if self.key_dim is None and self.model_dim % self.num_heads:
            raise ValueError(
                "`model_dim` must be divisible by `num_heads` when `key_dim` is not given. "
                f"Received: model_dim={self.model_dim}, num_heads={self.num_heads}"
            )
        check_key_dim(self.positions == "rotary", self.head_key_dim)
        check_reach(self.attention_chunk, self.attention_window)
        for bidirectional in (True, False):  # the encoder's, and the decoder's
            check_buckets(
                bidirectional,
                relative_buckets=self.relative_buckets,
                relative_max_distance=self.relative_max_distance,
            )
        check_block(self.residual, self.use_residual, self.use_feed_forward)
        if (self.positions == "learned") != (self.max_positions is not None):
            raise ValueError(
                "`max_positions` must be given for learned positions, and for no others. "
                f"Received: positions={self.positions!r}, max_positions={self.max_positions}"
            )
        if self.packed and (self.attention_chunk or self.attention_window):
            raise ValueError(
                "`packed` does not go with `attention_chunk` and `attention_window`. Received: "
                f"attention_chunk={self.attention_chunk}, attention_window={self.attention_window}"
            )
        if self.packed and self.bos_id in (self.pad_id, self.eos_id):
            raise ValueError(
                "`packed` needs a `bos_id` of its own, which tells where a target begins. "
                f"Received: bos_id={self.bos_id}, pad_id={self.pad_id}, eos_id={self.eos_id}"
            )
        self._check_embeddings()
        for side in ("encoder", "decoder"):
            name = f"{side}_tied_layers"
            layers = check_tied_layers(
                getattr(self, f"{side}_layers"), **{name: getattr(self, name)}
            )
            object.__setattr__(self, name, layers)
        for name, count in (("layer", self.decoder_layers), ("head", self.num_heads)):
            value = getattr(self, f"alignment_{name}")
            if value is not None and not (type(value) is int and 0 <= value < count):
                raise ValueError(
                    f"`alignment_{name}` must be an integer in [0, {count}). Received: {value!r}"
                )

    def _check_embeddings(self):
        shares_source = self.embedding_sharing in ("all", "source_target")
        if shares_source and self.target_vocab_size not in (None, self.vocab_size):
            raise ValueError(
                "`embedding_sharing` must be 'target_output' or 'none' where source and target "
                "have different vocabularies. Received: "
                f"embedding_sharing={self.embedding_sharing!r}, "
                f"vocab_size={self.vocab_size}, target_vocab_size={self.target_vocab_size}"
            )
        if self.embedding_norm and self.normalization == "none":
            raise ValueError(
                "`embedding_norm` needs a normalization. Received: embedding_norm=True, "
                "normalization='none'"
            )
        if self.first_position and self.positions not in ("sinusoidal", "tensor2tensor"):
            raise ValueError(
                "`first_position` is for sinusoidal and tensor2tensor positions. Received: "
                f"first_position={self.first_position}, positions={self.positions!r}"
            )

    def _check_special_ids(self):
        smallest = min(self.vocab_size, self.target_size)
        for name, value in self.special_ids._asdict().items():
            if not isinstance(value, int) or not 0 <= value < smallest:
                raise ValueError(
                    f"`{name}` must be an id in [0, vocab_size). Received: {name}={value!r}, "
                    f"vocab_size={smallest}"
                )
        if self.eos_id == self.pad_id:
            raise ValueError(
                "`eos_id` must be another id than `pad_id`. Received: "
                f"pad_id={self.pad_id}, eos_id={self.eos_id}"
            )

    @property
    def special_ids(self) -> SpecialIds:
        """`pad_id`, `unk_id`, `bos_id` and `eos_id`, which a tokenizer must have too."""
        return SpecialIds.of(self)

    @property
    def target_size(self) -> int:
        """Ids of the target (V), resolved."""
        return self.target_vocab_size or self.vocab_size

    @property
    def encoder_blocks(self) -> tuple[int, ...]:
        """The number of the block that each encoder layer is: `encoder_tied_layers`, resolved."""
        return self.encoder_tied_layers or tuple(range(self.encoder_layers))

    @property
    def decoder_blocks(self) -> tuple[int, ...]:
        """The same of the decoder."""
        return self.decoder_tied_layers or tuple(range(self.decoder_layers))

    @property
    def has_final_norm(self) -> bool:
        """`final_norm`, resolved."""
        return self.residual == "pre" if self.final_norm is None else self.final_norm

    @property
    def head_key_dim(self) -> int:
        """Query and key width per head (H), resolved."""
        return self.key_dim or self.model_dim // self.num_heads

    @property
    def head_value_dim(self) -> int:
        """Value width per head (U), resolved."""
        return self.value_dim or self.head_key_dim

    @classmethod
    def preset(cls, name: str, *, vocab_size: int, **overrides: Any) -> "TransformerConfig":
        """A named size, with any field replaced by keyword.

        Args:
            name: `"tiny"` (128 wide, 4 blocks a side), or the paper's `"base"` or `"big"`.
            vocab_size: As the field.
            **overrides: Other fields.

        Raises:
            ValueError: if `name` is not a preset.
        """
        check_choice(PRESETS, preset=name)
        return cls.from_dict({**PRESETS[name], "vocab_size": vocab_size, **overrides})

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TransformerConfig":
        """The inverse of `to_dict`; an unknown field is an error that names the nearest one."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            check_name("a model field", name, known)
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, text: str) -> "TransformerConfig":
        """The inverse of `to_json`."""
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise ValueError(f"a config must be a JSON object. Received: {text[:80]!r}")
        return cls.from_dict(fields)

    def to_json(self) -> str:
        """The fields as a JSON object with one field a line."""
        return json.dumps(self.to_dict(), indent=2) + "\n"
