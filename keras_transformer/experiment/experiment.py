"""An experiment: everything that `train` needs to know, read from one TOML file."""

import dataclasses
import math
import os
import tomllib
import typing
from pathlib import Path
from typing import Any

import tomli_w

from keras_transformer.arguments import check_finite, check_name, is_finite
from keras_transformer.config import TransformerConfig
from keras_transformer.data.distilled import open_distilled
from keras_transformer.data.places import is_remote
from keras_transformer.evaluation import TextScorer
from keras_transformer.experiment.data_sections import DataSection
from keras_transformer.experiment.sections import (
    DecodingSection,
    TokenizerSection,
    TrainingSection,
)
from keras_transformer_runner.lines import check_file
from keras_transformer_runner.tokenizers.base import SpecialIds

# Fields of the model that the tokenizer decides.
_FROM_TOKENIZER = ("vocab_size", "target_vocab_size", *SpecialIds._fields)
# What may be infinite: no end, and corpora as often as each other.
_ENDLESS = ("training.max_minutes", "data.temperature")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that `train` needs to know, as the sections of a TOML file.

    `[data]` and `[training]` must be there; a section or key that is left out has its default.

    - `[data]`: `source` and `target`, or `tsv`; `valid_source` and `valid_target`, or
      `valid_tsv`; `format`, `source_key`, `target_key`, `split`, `valid_split`, `invalid`,
      `max_length`, `temperature`, `distilled`, `original_weight`; or several `[[data.sources]]`
    - `[tokenizer]`: `type`, `joint`, `vocab_size`, `file`, `target_file`, `model_type`,
      `character_coverage`, `byte_fallback`, `split_digits`, `normalization`, `max_sentences`,
      `min_count`, `joiner`
    - `[model]`: `preset`, and fields of `TransformerConfig` that replace the preset's. The
      vocabulary's size and the special ids come from the tokenizer. With `training.start_from`
      and no `preset` they replace the fields of that folder's model.
    - `[training]`: `start_from`, `freeze`, `max_minutes`, `max_epochs`, `batch_tokens`, `buckets`,
      `pack`, `accumulate_batches`, `schedule`, `warmup_steps`, `learning_rate_scale`,
      `learning_rate`, `optimizer`, `weight_decay`, `label_smoothing`, `r_drop`, `teacher_weight`,
      `teacher_temperature`, `clipnorm`, `ema`, `seed`, `jit_compile`, `rematerialize`,
      `average_checkpoints`, `save_every_steps`, `score_every_epochs`, `best_by`, `patience`,
      `strategy`, `distribution`, `model_devices`
    - `[decoding]`: `strategy`, `beam_size`, `max_length`, `extra_length`, `min_length`,
      `no_repeat_ngram`, `repetition_penalty`, `forbidden_ids`, `forced_eos`, `n_best`,
      `length_penalty`, `length_normalization`, `coverage_penalty`, `stopping`, `candidates`,
      `temperature`, `top_k`, `top_p`, `min_p`, `seed`

    The classes of `experiment.sections` tell what each key means. Paths are absolute: a relative
    one is of the working directory, or in a file of that file's folder.

    Attributes:
        data: A `DataSection`: the corpus.
        tokenizer: A `TokenizerSection`: the vocabulary.
        model: A dictionary: the keys of `[model]`.
        training: A `TrainingSection`: length, speed and seed.
        decoding: A `DecodingSection`: how the trained model translates.

    Raises:
        ValueError: if a value is out of range, or values do not go together.

    Example:
        >>> with open("experiment.toml", "w") as file:
        ...     _ = file.write('''
        ... [data]
        ... source = "train.en"
        ... target = "train.de"
        ...
        ... [model]
        ... preset = "base"
        ... dropout = 0.2
        ...
        ... [training]
        ... max_epochs = 10
        ... ''')
        >>> experiment = kt.Experiment.load("experiment.toml", {"training.seed": "7"})
        >>> experiment.training.max_epochs, experiment.training.seed
        (10, 7)
        >>> experiment.config(vocab_size=8000).model_dim
        512
        >>> kt.Experiment.load("experiment.toml", {"training.max_epoch": "7"})
        ... # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: ... Received: 'max_epoch'. Did you mean 'max_epochs'?
    """

    data: DataSection
    tokenizer: TokenizerSection = dataclasses.field(default_factory=TokenizerSection)
    model: dict = dataclasses.field(default_factory=lambda: {"preset": "tiny"})
    training: TrainingSection
    decoding: DecodingSection = dataclasses.field(default_factory=DecodingSection)

    def __post_init__(self):
        for name in ("data", "tokenizer", "training"):  # the run's folder keeps them, elsewhere
            object.__setattr__(self, name, _with_absolute_paths(getattr(self, name)))
        for name in _FROM_TOKENIZER:
            if name in self.model:
                raise ValueError(
                    f"`model.{name}` is given by the tokenizer and must be left out. "
                    f"Received: {name}={self.model[name]!r}"
                )
        if self.training.teacher_weight and (self.data.sources or self.data.original_weight):
            raise ValueError(
                "`training.teacher_weight` goes with one corpus, which teachers know. "
                f"Received: {len(self.data.sources or ())} sources, "
                f"original_weight={self.data.original_weight}"
            )
        if not self.inherits_model:  # or what it inherits would be missing
            self._check_config()

    def _check_config(self):
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
    def inherits_model(self) -> bool:
        """Whether `[model]` replaces fields of the model that training starts from."""
        return self.training.start_from is not None and "preset" not in self.model

    def inheriting(self, config: TransformerConfig) -> "Experiment":
        """The experiment with all fields of its model, the missing ones from another config.

        Raises:
            ValueError: if a field is unknown, or values do not fit together.
        """
        if not self.inherits_model:
            return self
        own = (*_FROM_TOKENIZER, "packed")  # `training.pack` says anew whether rows are packed
        fields = {
            name: value
            for name, value in config.to_dict().items()
            if value is not None and name not in own
        }
        if self.model.get("positions", "learned") != "learned":
            fields.pop("max_positions", None)  # which go with the positions that are replaced
        if config.embedding_sharing == "all" and config.target_vocab_size is None:
            # Two vocabularies cannot have that, but for tokenizers of the same ids, as in models
            # of several languages.
            del fields["embedding_sharing"]
        # All fields are given, so the preset decides none.
        return dataclasses.replace(self, model={"preset": "tiny", **fields, **self.model})

    @property
    def max_length(self) -> int:
        """Most ids of a side, EOS included: `data.max_length`, or the model's `max_positions`."""
        return min(self.data.max_length, self.model.get("max_positions", self.data.max_length))

    def config(self, **from_tokenizer: int) -> TransformerConfig:
        """The `TransformerConfig`, with `vocab_size` and special ids as keywords.

        Raises:
            ValueError: if the preset or a field is unknown, or values do not fit together.
        """
        fields = dict(self.model)
        if "target_vocab_size" in from_tokenizer or not self.tokenizer.is_joint:
            # Two vocabularies cannot share a matrix.
            fields.setdefault("embedding_sharing", "target_output")
        if self.training.pack:
            fields["packed"] = True
        return TransformerConfig.preset(fields.pop("preset", "tiny"), **from_tokenizer, **fields)

    def check_files(self) -> None:
        """Raises an error if a file is missing, before anything is read or learnt.

        Raises:
            FileNotFoundError: if a file of `[data]` or `[tokenizer]` is missing.
            ValueError: if there is no corpus, since the model was not trained here.
            ImportError: if BLEU is wanted and `sacrebleu` is not installed.
        """
        if self.data.imported is not None:
            raise ValueError(
                "a preset and an imported run have no corpus: write an experiment of yours, with "
                f"`training.start_from`. Received: data.imported={self.data.imported!r}"
            )
        for section in (*self.data.corpora, self.tokenizer):
            for name in section.PATHS:
                path = getattr(section, name)
                if _is_path(path):
                    check_file(path)
        if self.data.distilled:
            open_distilled(self.data.distilled, len(self.data.corpora))
        if self.training.score_every_epochs:
            TextScorer()

    @classmethod
    def load(
        cls,
        path: os.PathLike | str,
        overrides: dict[str, str] | None = None,
        *,
        data_folder: os.PathLike | str | None = None,
    ) -> "Experiment":
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
            check_name("a section", section, _section_types(), cutoff=0)
            if isinstance(values.setdefault(section, {}), dict):  # or it is named below
                values[section][key] = _toml_value(text)
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: dict[str, dict[str, Any]]) -> "Experiment":
        """The experiment of nested dictionaries, as TOML gives them."""
        types = _section_types()
        sections = {}
        for name, section in values.items():
            check_name("a section", name, types, cutoff=0)
            if not isinstance(section, dict):
                raise ValueError(f"`{name}` must be a section, [{name}]. Received: {section!r}")
            sections[name] = section if types[name] is dict else _section(types, name, section)
        if "start_from" in values.get("training", {}):
            sections.setdefault("model", {})  # no preset, but what training starts from
        for name in ("data", "training"):
            if name not in sections:
                raise ValueError(
                    f"an experiment must have the section [{name}]. "
                    f"Received: {sorted(sections) or 'no section'}"
                )
        return cls(**sections)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Nested dictionaries of what is set."""
        return _without_none(dataclasses.asdict(self))

    def to_toml(self) -> str:
        """The experiment as TOML that `load` reads back to an equal one."""
        return tomli_w.dumps(self.to_dict())


def _without_none(values):
    """Nested dictionaries and lists of them, without the keys that have no value."""
    if isinstance(values, dict):
        return {key: _without_none(each) for key, each in values.items() if each is not None}
    if isinstance(values, (list, tuple)) and values and isinstance(values[0], dict):
        return [_without_none(each) for each in values]
    return values


def section_from_text(name, options):
    """A section made of `{key: text}`, each value as TOML or as bare text."""
    values = {key: _toml_value(text) for key, text in options.items()}
    return _section(_section_types(), name, values)


def _section_types():
    return {field.name: field.type for field in dataclasses.fields(Experiment)}


def _section(types, name, values):
    return _made(types[name], name, values)


def _made(kind, name, values):
    kinds = typing.get_type_hints(kind)
    for key, value in values.items():
        check_name(f"a key of [{name}]", key, kinds, cutoff=0)
        values = {**values, key: _checked(f"{name}.{key}", value, kinds[key])}
    return kind(**values)


def _checked(name, value, kind):
    """`value` in the type `kind`; TOML's integers may stand for floats, its lists for tuples."""
    kinds = [option for option in (typing.get_args(kind) or (kind,)) if option is not type(None)]
    if typing.get_origin(kinds[0]) is tuple:
        item = typing.get_args(kinds[0])[0]
        if dataclasses.is_dataclass(item):
            if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
                raise ValueError(f"`{name}` must be sections, [[{name}]]. Received: {value!r}")
            return tuple(_made(item, name, each) for each in value)
        if isinstance(value, (list, tuple)) and all(type(each) is item for each in value):
            return tuple(value)
        of = {int: "integers", str: "strings"}[item]
        raise ValueError(f"`{name}` must be a list of {of}. Received: {value!r}")
    if kinds[0] is float and type(value) in (int, float):
        return _float(name, value)
    if type(value) is not kinds[0]:
        raise ValueError(f"`{name}` must be of type {kinds[0].__name__}. Received: {value!r}")
    return value


def _float(name, value):
    if name not in _ENDLESS:
        check_finite(**{name: value})
    elif value != math.inf and not is_finite(value):
        raise ValueError(f"`{name}` must be a finite number or inf. Received: {value!r:.40}")
    return float(value)


def _resolve_paths(name, section, folder):
    """Makes the paths of a section absolute."""
    if isinstance(section, dict):
        kind = _section_types()[name]
        for key in _path_keys(kind):
            if _is_path(value := section.get(key)):
                section[key] = os.path.abspath(folder / value)
        sources = section.get("sources") if name == "data" else None
        for each in sources if isinstance(sources, list) else ():
            _resolve_paths(name, each, folder)


def _with_absolute_paths(section):
    """A section whose relative paths are of the working directory."""
    values = {key: getattr(section, key) for key in _path_keys(section)}
    changes = {key: os.path.abspath(value) for key, value in values.items() if _is_path(value)}
    if getattr(section, "sources", None):
        changes["sources"] = tuple(map(_with_absolute_paths, section.sources))
    return dataclasses.replace(section, **changes)


def _path_keys(section):
    return (*getattr(section, "PATHS", ()), *getattr(section, "FOLDERS", ()))


def _is_path(value):
    """Whether a value names one of this machine's files: no dataset, nothing remote or streamed."""
    is_name = isinstance(value, str) and value not in ("", "-")
    return is_name and not (value.startswith("tfds:") or is_remote(value))


def _toml_value(text):
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
