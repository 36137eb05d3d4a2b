"""The corpora that `[data]` names: what is trained on, with which weights, and what validates."""

from keras_transformer.data import (
    Corpus,
    JoinedCorpus,
    PreparedCorpus,
    TaggedCorpus,
    open_corpus,
    weights_of_temperature,
)
from keras_transformer.data.distilled import open_distilled
from keras_transformer.experiment.data_sections import DataSection, SourceSection
from keras_transformer_runner.streams import log


def open_corpora(section: DataSection) -> list:
    """The training and the validation corpus (or `None`), both read through once.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a corpus is not usable.
    """
    corpora = []
    valid = [open_part(section, each, "valid_") for each in section.corpora]
    for name, parts in (("training", _training_parts(section)), ("validation", valid)):
        parts = [part for part in parts if part is not None]
        joined = bool(section.sources) or len(parts) > 1
        for part in parts:
            log(f"{f'{name}, {part.name}' if joined else name}: {part.check()}")
        if joined and parts:
            parts = [JoinedCorpus(parts)]
        corpora.append(parts[0] if parts else None)
    return corpora


def _training_parts(section):
    """What `[data]` trains on: its corpora, or what teachers have made of them, or both."""
    parts = open_distilled(section.distilled, len(section.corpora)) if section.distilled else []
    if not parts or section.original_weight:
        parts += [open_part(section, each) for each in section.corpora]
    return parts


def training_weights(section: DataSection, sizes: list[int]) -> dict[str, float]:
    """How often an epoch has the pairs of each training corpus, by a name of it.

    A temperature looks at the distilled corpora and at the original ones by themselves.

    Args:
        section: The section.
        sizes: The pairs of each.
    """
    count, weights = len(section.corpora), {}
    for first in range(0, len(sizes), count):
        is_distilled = bool(section.distilled) and not first
        own = [_weight(one) for one in section.corpora]
        if section.temperature is not None:
            own = weights_of_temperature(sizes[first : first + count], section.temperature)
        factor = 1.0 if is_distilled else section.original_weight or 1.0
        for number, (one, weight) in enumerate(zip(section.corpora, own, strict=True)):
            name = f"{number}: {one.source or one.tsv}{', distilled' if is_distilled else ''}"
            weights[name] = weight * factor
    return weights


def _weight(section):
    weight = getattr(section, "weight", None)  # which a single corpus has not
    return 1.0 if weight is None else weight


def open_part(section: DataSection, each, prefix: str = "") -> Corpus | PreparedCorpus | None:
    """The training or the validation corpus that one of `section.corpora` names, or `None`."""
    tsv, source, target = (getattr(each, f"{prefix}{key}") for key in ("tsv", "source", "target"))
    if not (tsv or source):
        return None
    corpus = open_corpus(
        tsv or source,
        target,
        format="tsv" if tsv else each.format,
        source_key=each.source_key,
        target_key=each.target_key,
        split=getattr(each, f"{prefix}split"),
        invalid=section.invalid,
    )
    if not isinstance(each, SourceSection):
        return corpus
    if isinstance(corpus, PreparedCorpus):
        raise ValueError(
            "a source of several must be text, not what `prepare` made of it. "
            f"Received: {corpus.name}"
        )
    return corpus if each.tag is None else TaggedCorpus(corpus, each.tag.strip())
