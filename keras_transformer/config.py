"""`TransformerConfig`: every number that defines a model, validated once, in one place."""

import dataclasses
import difflib
import json

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
        if self.key_dim is None:
            if (
                _is_size(self.model_dim)
                and _is_size(self.num_heads)
                and (self.model_dim % self.num_heads)
            ):
                raise ValueError(
                    "`model_dim` must be divisible by `num_heads` when `key_dim` is not given. "
                    f"Received: model_dim={self.model_dim}, num_heads={self.num_heads}"
                )
        for name in ("model_dim", "num_heads", "intermediate_dim", "vocab_size"):
            _check_size(name, getattr(self, name), minimum=1)
        for name in ("encoder_layers", "decoder_layers"):
            _check_size(name, getattr(self, name), minimum=1)
        for name in ("key_dim", "value_dim"):
            if getattr(self, name) is not None:
                _check_size(name, getattr(self, name), minimum=1)
        if self.residual not in RESIDUALS:
            raise ValueError(f"`residual` must be one of {RESIDUALS}. Received: {self.residual!r}")
        for name in ("dropout", "attention_dropout"):
            rate = getattr(self, name)
            if not isinstance(rate, (int, float)) or not 0 <= rate < 1:
                raise ValueError(f"`{name}` must be a rate in [0, 1). Received: {rate!r}")
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
        if name not in PRESETS:
            raise ValueError(f"`preset` must be one of {tuple(PRESETS)}. Received: {name!r}")
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


def _is_size(value):
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _check_size(name, value, minimum):
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"`{name}` must be an integer >= {minimum}. Received: {name}={value!r}")
