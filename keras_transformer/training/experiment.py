"""An experiment: everything that `train` needs to know, read from one TOML file."""

import dataclasses
import difflib
import json
import os
import tomllib
import typing
from pathlib import Path

from keras_transformer.config import TransformerConfig

# Fields of the model that the tokenizer decides.
_FROM_TOKENIZER = ("vocab_size", "pad_id", "unk_id", "bos_id", "eos_id")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSection:
    """`[data]`: files of sentence pairs; each may be gzip.

    Attributes:
        source: One sentence a line, in the source language.
        target: Its translations, line for line.
        tsv: Instead of both: source, tab, target.
        valid_source, valid_target, valid_tsv: The same for validation; may be left out.
        max_length: Pairs with a side of more ids than this, EOS included, are left out.
    """

    source: str | None = None
    target: str | None = None
    tsv: str | None = None
    valid_source: str | None = None
    valid_target: str | None = None
    valid_tsv: str | None = None
    max_length: int = 128

    def __post_init__(self):
        _check_files(self, "")
        if any((self.valid_source, self.valid_target, self.valid_tsv)):
            _check_files(self, "valid_")
        _check_least(self, max_length=2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerSection:
    """`[tokenizer]`: arguments of `SentencePieceTokenizer.train`; one vocabulary for both sides."""

    vocab_size: int = 8000
    model_type: str = "unigram"
    character_coverage: float = 1.0
    byte_fallback: bool = False
    split_digits: bool = False
    normalization: str = "nmt_nfkc"
    max_sentences: int | None = None

    def __post_init__(self):
        _check_least(self, vocab_size=5, max_sentences=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSection:
    """`[training]`.

    Attributes:
        max_minutes: Stop after this wall time, XLA compilation included, over all resumed parts.
        max_epochs: Stop after this many passes over the data.
        batch_tokens: Positions in a batch, a side.
        buckets: Lengths to pad to; chosen from the data when left out.
        warmup_steps, learning_rate_scale: Of the `PaperSchedule`.
        label_smoothing: Of the loss.
        clipnorm: Global norm to clip gradients to; none when left out.
        seed: Decides weights, dropout and the order of the data.
        jit_compile: Whether XLA compiles the training step.
        average_checkpoints: Epoch snapshots that are kept and averaged at the end.
        save_every_steps: Steps between two saves of the state inside an epoch.
    """

    max_minutes: float | None = None
    max_epochs: int | None = None
    batch_tokens: int = 4096
    buckets: tuple[int, ...] | None = None
    warmup_steps: int = 4000
    learning_rate_scale: float = 1.0
    label_smoothing: float = 0.1
    clipnorm: float | None = None
    seed: int = 1
    jit_compile: bool = True
    average_checkpoints: int = 5
    save_every_steps: int = 500

    def __post_init__(self):
        if self.max_minutes is None and self.max_epochs is None:
            raise ValueError(
                "`[training]` must have `max_minutes` or `max_epochs`. Received: neither"
            )
        _check_least(
            self,
            max_epochs=1,
            batch_tokens=1,
            warmup_steps=1,
            average_checkpoints=1,
            save_every_steps=1,
            seed=0,
        )
        for name in ("max_minutes", "learning_rate_scale", "clipnorm"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"`training.{name}` must be positive. Received: {value}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(
                "`training.label_smoothing` must be a rate in [0, 1). "
                f"Received: {self.label_smoothing}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingSection:
    """`[decoding]`: how the trained model translates.

    Attributes:
        max_length: Most tokens of a translation; no limit of its own when left out.
        extra_length: It may be this many tokens longer than its source.
        beam_size: Hypotheses of `BeamSearch`; 1 for `Greedy`.
        length_penalty: Of `BeamSearch`.
    """

    max_length: int | None = None
    extra_length: int = 50
    beam_size: int = 1
    length_penalty: float = 0.6

    def __post_init__(self):
        _check_least(self, max_length=1, extra_length=1, beam_size=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """A training run, described.

    Attributes:
        data: The corpus.
        tokenizer: The vocabulary.
        model: `preset` and fields of `TransformerConfig` that replace the preset's.
        training: Length, speed and seed.
        decoding: How the trained model translates.
    """

    data: DataSection
    tokenizer: TokenizerSection = dataclasses.field(default_factory=TokenizerSection)
    model: dict = dataclasses.field(default_factory=lambda: {"preset": "tiny"})
    training: TrainingSection
    decoding: DecodingSection = dataclasses.field(default_factory=DecodingSection)

    def __post_init__(self):
        for name in _FROM_TOKENIZER:
            if name in self.model:
                raise ValueError(
                    f"`model.{name}` is given by the tokenizer and must be left out. "
                    f"Received: {name}={self.model[name]!r}"
                )
        self.config(vocab_size=max(self.tokenizer.vocab_size, 8))

    def config(self, **from_tokenizer):
        """The `TransformerConfig`, with `vocab_size` and special ids as keywords.

        Raises:
            ValueError: if the preset or a field is unknown, or values do not fit together.
        """
        fields = dict(self.model)
        return TransformerConfig.preset(fields.pop("preset", "tiny"), **from_tokenizer, **fields)

    @classmethod
    def load(cls, path, overrides=None, *, data_folder=None):
        """Reads a TOML file.

        Args:
            path: The file.
            overrides: `{"training.batch_tokens": "2048"}`: values that replace the file's, as
                TOML or as bare text. Paths here are relative to the current folder.
            data_folder: What the file's own paths are relative to; its folder when `None`.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is not TOML, or a section, key or value is wrong.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"an experiment file must exist. Received: {path}")
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:  # not TOML, or not UTF-8
            raise ValueError(f"an experiment must be TOML. Received: {path}: {error}") from error
        _resolve_paths(values.get("data"), Path(data_folder or path.parent))
        for name, text in (overrides or {}).items():
            section, dot, key = name.partition(".")
            if not dot or not key:
                raise ValueError(f"an override must be section.key=value. Received: {name}={text}")
            _check_name("a section", section, _section_types())
            new = {key: _toml_value(text)}
            if section == "data":
                _resolve_paths(new, Path.cwd())
            values.setdefault(section, {}).update(new)
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values):
        """The experiment of nested dictionaries, as TOML gives them."""
        types = _section_types()
        sections = {}
        for name, section in values.items():
            _check_name("a section", name, types)
            if not isinstance(section, dict):
                raise ValueError(f"`{name}` must be a section, [{name}]. Received: {section!r}")
            sections[name] = section if types[name] is dict else _section(types, name, section)
        for name in ("data", "training"):
            if name not in sections:
                raise ValueError(
                    f"an experiment must have the section [{name}]. "
                    f"Received: {sorted(sections) or 'no section'}"
                )
        return cls(**sections)

    def to_dict(self):
        """Nested dictionaries of what is set."""
        values = dataclasses.asdict(self)
        return {
            section: {key: value for key, value in content.items() if value is not None}
            for section, content in values.items()
        }

    def to_toml(self):
        """The experiment as TOML that `load` reads back to an equal one."""
        blocks = []
        for section, content in self.to_dict().items():
            lines = [f"{key} = {_to_toml(value)}" for key, value in content.items()]
            blocks.append("\n".join([f"[{section}]", *lines]) + "\n")
        return "\n".join(blocks)


def _section_types():
    return {field.name: field.type for field in dataclasses.fields(Experiment)}


def _section(types, name, values):
    kinds = typing.get_type_hints(types[name])
    for key, value in values.items():
        _check_name(f"a key of [{name}]", key, kinds)
        values = {**values, key: _checked(f"{name}.{key}", value, kinds[key])}
    return types[name](**values)


def _checked(name, value, kind):
    """`value` in the type `kind`; TOML's integers may stand for floats, its lists for tuples."""
    kinds = [option for option in (typing.get_args(kind) or (kind,)) if option is not type(None)]
    if typing.get_origin(kinds[0]) is tuple:
        if isinstance(value, (list, tuple)) and all(type(item) is int for item in value):
            return tuple(value)
        raise ValueError(f"`{name}` must be a list of integers. Received: {value!r}")
    if kinds[0] is float and type(value) is int:
        return float(value)
    if type(value) is not kinds[0]:
        raise ValueError(f"`{name}` must be of type {kinds[0].__name__}. Received: {value!r}")
    return value


def _check_name(what, name, known):
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{what} must be one of {list(known)}. Received: {name!r}.{hint}")


def _check_files(data, prefix):
    tsv, source, target = (getattr(data, prefix + name) for name in ("tsv", "source", "target"))
    if (bool(tsv), bool(source), bool(target)) not in ((True, False, False), (False, True, True)):
        raise ValueError(
            f"`[data]` must have either `{prefix}tsv` or both `{prefix}source` and "
            f"`{prefix}target`. Received: {prefix}source={source}, {prefix}target={target}, "
            f"{prefix}tsv={tsv}"
        )


def _check_least(section, **least):
    for name, minimum in least.items():
        value = getattr(section, name)
        if value is not None and value < minimum:
            raise ValueError(f"`{name}` must be at least {minimum}. Received: {name}={value}")


def _resolve_paths(data, folder):
    if isinstance(data, dict):
        for key, value in data.items():
            if value and isinstance(value, str):
                data[key] = os.path.abspath(folder / value)


def _toml_value(text):
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _to_toml(value):
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_to_toml(item) for item in value) + "]"
    if isinstance(value, float):
        return repr(value)  # TOML writes inf and nan, JSON Infinity and NaN
    # TOML's strings, numbers and booleans are written as JSON's, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
