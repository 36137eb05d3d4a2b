"""`[data]` and `[[data.sources]]`: the corpora of an experiment."""

import dataclasses

from keras_transformer.arguments import check_choice, check_least

PATHS = ("source", "target", "tsv", "valid_source", "valid_target", "valid_tsv")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _NamesCorpus:
    """The keys that name a corpus: those of `DataSection`."""

    source: str | None = None
    target: str | None = None
    tsv: str | None = None
    valid_source: str | None = None
    valid_target: str | None = None
    valid_tsv: str | None = None
    format: str | None = None
    source_key: str | None = None
    target_key: str | None = None
    split: str = "train"
    valid_split: str = "validation"

    PATHS = PATHS


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceSection(_NamesCorpus):
    """`[[data.sources]]`: a corpus of several, with keys that `[data]` has of a single one.

    Attributes:
        source, target, tsv, valid_source, valid_target, valid_tsv, format, source_key, target_key,
            split, valid_split: As in `[data]`.
        weight: How often an epoch has its pairs: 1 is once, 0.5 every second one, in turn.
        tag: Words before each of its sources, such as `"<de>"`; they are in front of what is to be
            translated, too.
    """

    weight: float | None = None
    tag: str | None = None

    def __post_init__(self):
        _check_corpus(self, "data.sources")
        if self.weight is not None and not 0 < self.weight < float("inf"):
            raise ValueError(f"`weight` of a source must be positive. Received: {self.weight}")
        if self.tag is not None and (not self.tag.strip() or len(self.tag.splitlines()) != 1):
            raise ValueError(f"`tag` of a source must be words of a line. Received: {self.tag!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSection(_NamesCorpus):
    """`[data]`: the sentence pairs to train on, and those to validate on.

    Attributes:
        source: Sentences of the source language, one a line; or, without `target`, a file with
            both sides (tab-separated, or JSON lines by its name), a dataset `"tfds:NAME/CONFIG"`,
            or a folder that `prepare` wrote, tokenizers included. Files may be gzip.
        target: The translations, line for line.
        tsv: The same as `source` for a tab-separated file.
        valid_source, valid_target, valid_tsv: The same for validation; may be left out.
        format: What `source` and `valid_source` are, where the name does not tell: see
            `data.open_corpus`.
        source_key, target_key: Keys of JSON lines, or features of a dataset.
        split, valid_split: Of a dataset.
        invalid: What becomes of a faulty line: `"error"` or `"skip"`.
        max_length: Pairs with a side of more ids than this, EOS included, are left out. A prepared
            corpus has its own.
        imported: Where a model comes from that was imported, and not trained here. Such a run has
            no corpus.
        sources: `SourceSection`s, `[[data.sources]]` in a file: several corpora in the place of
            `source` or `tsv`.
        temperature: An epoch has their pairs in proportion to this root of their number, in the
            place of a `weight` of each: 1 as they are, 5 nearly equal.
        distilled: A folder that `keras-transformer distil` has made of these corpora: its pairs,
            whose targets teachers have written, are trained on in their place. Validation stays.
        original_weight: How often an epoch has the original pairs too, where there is `distilled`:
            1 is once, beside the others, and a source's `weight` multiplies it.
    """

    invalid: str = "error"
    max_length: int = 128
    imported: str | None = None
    sources: tuple[SourceSection, ...] | None = None
    temperature: float | None = None
    distilled: str | None = None
    original_weight: float | None = None

    FOLDERS = ("distilled",)

    def __post_init__(self):
        self._check_distilled()
        if self.temperature is not None and not self.temperature > 0:
            raise ValueError(f"`data.temperature` must be positive. Received: {self.temperature}")
        if self.sources is not None:
            self._check_sources()
        elif self.imported is None:
            _check_corpus(self, "data")
        elif any(getattr(self, name) for name in (*self.PATHS, *self.FOLDERS)):
            raise ValueError(
                "`data.imported` goes without a corpus: write an experiment of your own, with "
                f"`training.start_from`. Received: imported={self.imported!r}"
            )
        check_choice(("error", "skip"), **{"data.invalid": self.invalid})
        check_least(2, max_length=self.max_length)

    def _check_distilled(self):
        weight = self.original_weight
        if weight is not None and not 0 < weight < float("inf"):
            raise ValueError(f"`data.original_weight` must be positive. Received: {weight}")
        if weight is not None and self.distilled is None:
            raise ValueError(
                "`data.original_weight` goes with `data.distilled`. "
                f"Received: original_weight={weight}, distilled=None"
            )

    def _check_sources(self):
        own = [
            name
            for name in (*self.PATHS, "format", "source_key", "target_key", "imported")
            if getattr(self, name)
        ]
        if own or not self.sources:
            raise ValueError(
                "`[[data.sources]]` must name the corpora, and `[data]` none. "
                f"Received: {len(self.sources)} sources, and in [data] {own}"
            )
        if self.temperature is not None and any(each.weight is not None for each in self.sources):
            raise ValueError(
                "`data.temperature` goes without a `weight` of a source. Received: "
                f"temperature={self.temperature}, weights={[each.weight for each in self.sources]}"
            )

    @property
    def corpora(self) -> "tuple[DataSection | SourceSection, ...]":
        """The sections that name corpora: the sources, or this one."""
        return (self,) if self.sources is None else self.sources


def _check_corpus(section, name):
    """Raises a `ValueError` unless a section names a corpus, and at most one for validation."""
    prefixes = ["", "valid_"] if any(getattr(section, path) for path in PATHS[3:]) else [""]
    for prefix in prefixes:
        values = (getattr(section, prefix + key) for key in ("tsv", "source", "target"))
        tsv, source, target = values
        if bool(tsv) == bool(source) or (target is not None and not (source and target)):
            raise ValueError(
                f"`[{name}]` must have either `{prefix}tsv` or `{prefix}source`, which "
                f"`{prefix}target` may go with. Received: {prefix}source={source}, "
                f"{prefix}target={target}, {prefix}tsv={tsv}"
            )
