"""An experiment: everything that `train` needs to know, read from one TOML file."""

import dataclasses
import difflib
import json
import os
import tomllib
import typing
from pathlib import Path

from keras_transformer.config import TransformerConfig
from keras_transformer.evaluation import TextScorer
from keras_transformer.experiment.decoding_section import DecodingSection
from keras_transformer.experiment.sections import DataSection, TokenizerSection, TrainingSection
from keras_transformer_runner.lines import check_file

# Fields of the model that the tokenizer decides.
_FROM_TOKENIZER = ("vocab_size", "target_vocab_size", "pad_id", "unk_id", "bos_id", "eos_id")


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
        size = max(self.tokenizer.vocab_size or 8, 8)
        sizes = {"vocab_size": size}
        if not self.tokenizer.is_joint:
            sizes["target_vocab_size"] = size
        limit, buckets = self.config(**sizes).max_positions, self.training.buckets
        if None not in (limit, buckets) and buckets[-1] > limit:
            raise ValueError(
                "`training.buckets` must be at most `model.max_positions`. "
                f"Received: buckets={buckets}, max_positions={limit}"
            )

    @property
    def max_length(self):
        """Most ids of a side, EOS included: `data.max_length`, or fewer as the model has places."""
        return min(self.data.max_length, self.model.get("max_positions", self.data.max_length))

    def config(self, **from_tokenizer):
        """The `TransformerConfig`, with `vocab_size` and special ids as keywords.

        Raises:
            ValueError: if the preset or a field is unknown, or values do not fit together.
        """
        fields = dict(self.model)
        if not self.tokenizer.is_joint:  # two vocabularies cannot share a matrix
            fields.setdefault("embedding_sharing", "target_output")
        if self.training.pack:
            fields["packed"] = True
        return TransformerConfig.preset(fields.pop("preset", "tiny"), **from_tokenizer, **fields)

    def check_files(self):
        """Raises an error for what is missing, before anything is read or learnt.

        Raises:
            FileNotFoundError: if a file of `[data]` or `[tokenizer]` is missing.
            ImportError: if BLEU is wanted and `sacrebleu` is not installed.
        """
        for section in (self.data, self.tokenizer):
            for name in section.PATHS:
                path = getattr(section, name)
                if path and not path.startswith("tfds:"):
                    check_file(path)
        if self.training.score_every_epochs:
            TextScorer()

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
        for name in _section_types():
            _resolve_paths(name, values.get(name), Path(data_folder or path.parent))
        for name, text in (overrides or {}).items():
            section, dot, key = name.partition(".")
            if not dot or not key:
                raise ValueError(f"an override must be section.key=value. Received: {name}={text}")
            _check_name("a section", section, _section_types())
            new = {key: _toml_value(text)}
            _resolve_paths(section, new, Path.cwd())
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


def section_from_text(name, options):
    """A section made of `{key: text}`, each value as TOML or as bare text."""
    values = {key: _toml_value(text) for key, text in options.items()}
    return _section(_section_types(), name, values)


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


def _resolve_paths(name, section, folder):
    """Makes the paths of a section absolute."""
    if isinstance(section, dict):
        for key in getattr(_section_types()[name], "PATHS", ()):
            value = section.get(key)
            if value and isinstance(value, str) and value != "-" and not value.startswith("tfds:"):
                section[key] = os.path.abspath(folder / value)


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
