"""`TransformerConfig`: every number that defines a model, validated once, in one place."""

import dataclasses
import difflib
import json

from keras_transformer.arguments import check_choice, check_rate, check_size

RESIDUALS = ("post", "pre")

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

    Attributes:
        vocab_size: Rows of the one embedding that source, target and output share (V).
        model_dim: Width of every layer's input and output (D, the paper's d_model).
        num_heads: Attention heads (N, the paper's h).
        encoder_layers: Encoder blocks.
        decoder_layers: Decoder blocks.
        intermediate_dim: Inner width of the feed-forward layer (F, the paper's d_ff).
        key_dim: Query and key width per head (H, d_k); `model_dim // num_heads` when `None`.
        value_dim: Value width per head (U, d_v); `key_dim` when `None`.
        activation: Name of a Keras activation for the feed-forward layer.
        residual: Where the norm stands: `"post"` (the paper, after the residual sum) or `"pre"`
            (before each sub-layer, with one more norm after the last block).
        dropout: Rate for sub-layer outputs and for embeddings, as in section 5.4 of the paper.
        attention_dropout: Rate for attention weights.
        pad_id: Id that fills the end of a row; never attended to, never scored.
        unk_id: Id of a piece that the vocabulary lacks.
        bos_id: Id that starts the decoder's input.
        eos_id: Id that ends source and target.
    """

    vocab_size: int
    model_dim: int = 512
    num_heads: int = 8
    encoder_layers: int = 6
    decoder_layers: int = 6
    intermediate_dim: int = 2048
    key_dim: int | None = None
    value_dim: int | None = None
    activation: str = "relu"
    residual: str = "post"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    pad_id: int = 0
    unk_id: int = 1
    bos_id: int = 2
    eos_id: int = 3

    def __post_init__(self):
        check_size(
            vocab_size=self.vocab_size,
            model_dim=self.model_dim,
            num_heads=self.num_heads,
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            intermediate_dim=self.intermediate_dim,
        )
        check_size(optional=True, key_dim=self.key_dim, value_dim=self.value_dim)
        check_choice(RESIDUALS, residual=self.residual)
        check_rate(dropout=self.dropout, attention_dropout=self.attention_dropout)
        if self.key_dim is None and self.model_dim % self.num_heads:
            raise ValueError(
                "`model_dim` must be divisible by `num_heads` when `key_dim` is not given. "
                f"Received: model_dim={self.model_dim}, num_heads={self.num_heads}"
            )
        self._check_special_ids()

    def _check_special_ids(self):
        ids = {name: getattr(self, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
        for name, value in ids.items():
            if not isinstance(value, int) or not 0 <= value < self.vocab_size:
                raise ValueError(
                    f"`{name}` must be an id in [0, vocab_size). Received: {name}={value!r}, "
                    f"vocab_size={self.vocab_size}"
                )
        if len({self.pad_id, self.bos_id, self.eos_id}) < 3:
            raise ValueError(
                "`pad_id`, `bos_id` and `eos_id` must be three different ids. Received: "
                f"pad_id={self.pad_id}, bos_id={self.bos_id}, eos_id={self.eos_id}"
            )

    @property
    def head_key_dim(self):
        """Query and key width per head (H), resolved."""
        return self.key_dim or self.model_dim // self.num_heads

    @property
    def head_value_dim(self):
        """Value width per head (U), resolved."""
        return self.value_dim or self.head_key_dim

    @classmethod
    def preset(cls, name, *, vocab_size, **overrides):
        """A named size, with any field replaced by keyword.

        Raises:
            ValueError: if `name` is not a preset.
        """
        check_choice(PRESETS, preset=name)
        return cls.from_dict({**PRESETS[name], "vocab_size": vocab_size, **overrides})

    @classmethod
    def from_dict(cls, values):
        """The inverse of `to_dict`; an unknown field is an error that names the nearest one."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"a model field must be one of {known}. Received: {name!r}.{hint}")
        return cls(**values)

    def to_dict(self):
        """All fields as plain values, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, text):
        """The inverse of `to_json`."""
        return cls.from_dict(json.loads(text))

    def to_json(self):
        """The fields as a JSON object with one field a line."""
        return json.dumps(self.to_dict(), indent=2) + "\n"
