"""Corpora in other forms: JSON lines and TensorFlow Datasets; and one way to open them all."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Sequence

from keras_transformer.data.corpus import (
    Corpus,
    FaultyLine,
    ParallelCorpus,
    check_invalid,
    decoded,
    file_bytes,
    parsed_pairs,
)
from keras_transformer.data.faults import Faults
from keras_transformer.data.places import is_remote
from keras_transformer.data.shards import PreparedCorpus
from keras_transformer_runner.lines import read_byte_lines

_TFDS = "tfds:"
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_COLUMNS_SUFFIX = ".tsv"
FORMATS = ("lines", "tsv", "jsonl", "tfds", "prepared")


@dataclasses.dataclass(frozen=True)
class JsonLinesCorpus(Corpus):
    """Sentence pairs in a file with a JSON object a line.

    Args:
        path: The file: UTF-8, plain or gzip. `"-"` is standard input, which can be read only once.
        source_key: Where an object holds the source.
        target_key: Where it holds the target. Other keys are ignored.
        invalid: What to do with a faulty line: `"error"` or `"skip"`, see `Corpus`. A blank line is
            faulty, and so is a string with a lone surrogate (`"\\ud800"`), which is no text.

    Raises:
        ValueError: if `invalid` is neither.

    Example:
        >>> from keras_transformer.data import JsonLinesCorpus
        >>> with open("pairs.jsonl", "w") as file:
        ...     _ = file.write('{"en": "A man.", "de": "Ein Mann."}\\n')
        >>> list(JsonLinesCorpus("pairs.jsonl", source_key="en", target_key="de"))
        [('A man.', 'Ein Mann.')]
    """

    path: str | pathlib.Path
    source_key: str = "source"
    target_key: str = "target"
    invalid: str = "error"

    def __post_init__(self):
        check_invalid(self.invalid)

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def files(self) -> Sequence[os.PathLike | str]:
        return (self.path,)

    def text_bytes(self) -> int | None:
        return file_bytes(self.path)

    def numbered_pairs(self, faults: Faults) -> Iterator[tuple[int, str, str]]:
        return self.pairs_of_lines(read_byte_lines(self.path), faults)

    def pairs_of_lines(self, lines, faults, first=1):
        """`numbered_pairs` of some lines as bytes, the first of which has the number `first`."""
        return parsed_pairs(lines, self._parse, self.invalid, faults, first)

    def _parse(self, line, number):
        place = f"{self.path}, line {number}"
        text = decoded(line, place)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise FaultyLine(
                "not_object",
                f"every line must be a JSON object. Received: {place}: {text[:80]!r}",
            )
        return tuple(self._side(value, key, place) for key in (self.source_key, self.target_key))

    @staticmethod
    def _side(value, key, place):
        if not isinstance(value.get(key), str):
            raise FaultyLine(
                "no_text",
                f"every object must have a string at {key!r}. Received: {place} with "
                + (f"{value[key]!r:.80}" if key in value else f"keys {list(value)!r:.80}"),
            )
        try:
            value[key].encode()
        except UnicodeEncodeError as error:
            raise FaultyLine(
                "invalid_utf8", f"text must be UTF-8. Received: {place}, {key!r}: {error}"
            ) from error
        return value[key]


@dataclasses.dataclass(frozen=True)
class TfdsCorpus(Corpus):
    """Sentence pairs of a dataset of TensorFlow Datasets (`pip install tensorflow-datasets`).

    The dataset is read in the order of its files; the numbers of pairs count its examples from 1.

    Args:
        dataset: Its name, `"NAME"` or `"NAME/CONFIG:VERSION"`.
        source_key: The feature with the source, a string.
        target_key: The feature with the target.
        split: Which part, such as `"train"` or `"train[:10%]"`.
        data_dir: Where datasets are kept; `None` for the library's own place.
        invalid: What to do with an example that is not UTF-8: `"error"` or `"skip"`.

    Raises:
        ValueError: if `invalid` is neither.

    Example:
        >>> from keras_transformer.data import TfdsCorpus
        >>> corpus = TfdsCorpus("ted_hrlr_translate/pt_to_en", "pt", "en", split="train[:1%]")
        >>> corpus.name
        'tfds:ted_hrlr_translate/pt_to_en, train[:1%]'
    """

    dataset: str
    source_key: str
    target_key: str
    split: str = "train"
    data_dir: str | None = None
    invalid: str = "error"

    def __post_init__(self):
        check_invalid(self.invalid)

    @property
    def name(self) -> str:
        return f"{_TFDS}{self.dataset}, {self.split}"

    def numbered_pairs(self, faults: Faults) -> Iterator[tuple[int, str, str]]:
        """Yields `(number, source, target)`.

        Raises:
            ImportError: if the library is missing, with the command that installs it.
            ValueError: if a feature is not there or no string, or an example is not UTF-8.
        """
        return parsed_pairs(self._examples(), self._parse, self.invalid, faults)

    def _examples(self):
        import tensorflow as tf

        try:
            import tensorflow_datasets as tfds
        except ImportError as error:
            raise ImportError(
                f"`{self.name}` needs TensorFlow Datasets: pip install tensorflow-datasets"
            ) from error
        data = tfds.load(
            self.dataset, split=self.split, data_dir=self.data_dir, shuffle_files=False
        )
        keys = self.source_key, self.target_key
        for key in keys:
            if key not in data.element_spec or data.element_spec[key].dtype != "string":
                raise ValueError(
                    f"a feature must be a string of the dataset. Received: {key!r}, where "
                    f"{self.name} has {list(data.element_spec)}"
                )
        # Only what is asked for: other features may be large.

        @tf.autograph.experimental.do_not_convert
        def asked(example):
            return tuple(example[key] for key in keys)

        return data.map(asked).as_numpy_iterator()

    def _parse(self, example, number):
        place = f"{self.name}, example {number}"
        return tuple(decoded(text, place) for text in example)


def open_corpus(
    source: os.PathLike | str,
    target: os.PathLike | str | None = None,
    *,
    format: str | None = None,
    source_key: str | None = None,
    target_key: str | None = None,
    split: str = "train",
    invalid: str = "error",
) -> Corpus | PreparedCorpus:
    """Opens a corpus of any kind.

    Args:
        source: A file; two with `target`; `"-"` for standard input; `"tfds:NAME/CONFIG"` for
            TensorFlow Datasets; or a folder that `prepare` wrote, which may be remote
            (`"gs://bucket/prepared"`, see `PreparedCorpus`).
        target: The target sentences, line for line, where they are in a file of their own. The
            same file as `source` again, where its name tells that it holds both sides, is none.
        format: `"lines"` (two files), `"tsv"`, `"jsonl"`, `"tfds"` or `"prepared"`. `None` takes
            it from the name: two files are lines, `.jsonl`, `.ndjson` and `.json` (and `.gz`
            behind them) are JSON lines, and all else is tab-separated, standard input too.
        source_key: The JSON key, or the feature's name. `"source"` for JSON when `None`.
        target_key: The same for the target. `"target"` for JSON when `None`.
        split: The split of a dataset.
        invalid: What to do with a faulty line: `"error"` or `"skip"`, see `Corpus`.

    Returns:
        A `Corpus`, or a `PreparedCorpus`.

    Raises:
        ValueError: if the arguments do not go together.

    Example:
        >>> from keras_transformer.data import open_corpus
        >>> with open("pairs.tsv", "w") as file:
        ...     _ = file.write("A man.\\tEin Mann.\\n")
        >>> list(open_corpus("pairs.tsv"))
        [('A man.', 'Ein Mann.')]
        >>> type(open_corpus("train.en", "train.de")).__name__
        'ParallelCorpus'
    """
    if target is not None and str(target) == str(source) and holds_both(source):
        target = None
    format = _format_of(source, target) if format is None else format
    if format not in FORMATS:
        raise ValueError(f"`format` must be one of {', '.join(FORMATS)}. Received: {format!r}")
    if (target is not None) != (format == "lines"):
        raise ValueError(
            "`target` must be given with lines, and with nothing else. "
            f"Received: format={format!r}, target={str(target)!r}"
        )
    if format in ("lines", "tsv"):
        return ParallelCorpus(source, target, invalid=invalid)
    if format == "jsonl":
        return JsonLinesCorpus(
            source, source_key or "source", target_key or "target", invalid=invalid
        )
    if format == "prepared":
        return PreparedCorpus(source)
    if not (source_key and target_key):
        raise ValueError(
            "`source_key` and `target_key` must name the features of a dataset. "
            f"Received: source_key={source_key!r}, target_key={target_key!r}"
        )
    dataset = str(source).removeprefix(_TFDS)
    return TfdsCorpus(dataset, source_key, target_key, split=split, invalid=invalid)


def holds_both(source):
    """Whether a name tells of both sides: columns, JSON lines, a dataset or a prepared corpus."""
    stem = str(source).removesuffix(".gz")
    suffixes = (*_JSON_SUFFIXES, _COLUMNS_SUFFIX)
    return stem.startswith(_TFDS) or stem.endswith(suffixes) or _may_be_folder(source)


def _may_be_folder(source):
    """Whether a name can be a prepared corpus: text is read from files of this machine only."""
    return is_remote(source) or os.path.isdir(source)


def _format_of(source, target):
    if target is not None:
        json_files = [
            str(path)
            for path in (source, target)
            if str(path).removesuffix(".gz").endswith(_JSON_SUFFIXES)
        ]
        if json_files:
            raise ValueError(
                "JSON lines must hold both sides, so that `source` goes without `target`; "
                f"format 'lines' takes them for text. Received: {', '.join(json_files)}"
            )
        return "lines"
    if str(source).startswith(_TFDS):
        return "tfds"
    if _may_be_folder(source):
        return "prepared"
    return "jsonl" if str(source).removesuffix(".gz").endswith(_JSON_SUFFIXES) else "tsv"
