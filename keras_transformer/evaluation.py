"""Scores of a translated test set, and the translator inside a SavedModel. Needs no Keras."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_transformer_runner.folders import received

METRICS = ("bleu", "chrf", "ter")
_BATCH = 32


class Score(NamedTuple):
    """A metric of sacreBLEU."""

    value: float  # 0 to 100
    text: str  # the line that sacreBLEU prints, with all parts
    signature: str


class TextScorer:
    """BLEU, chrF and TER of a corpus, computed and signed by sacreBLEU.

    Make it before the translations, so that wrong options are an error early; then call it.

    Args:
        tokenize: sacreBLEU's name of BLEU's tokenizer; `"none"` for text that is already tokenized.
        lowercase: Whether case is ignored. TER ignores it always, as sacreBLEU does.
        metrics: Some of `METRICS`. Of TER, edits for 100 words, less is better.

    Attributes:
        metrics: sacreBLEU's metric objects by name.

    Raises:
        ImportError: if `sacrebleu` is not installed.
        ValueError: if `tokenize` or a metric is unknown.

    Example:
        >>> from keras_transformer.evaluation import TextScorer
        >>> scores = TextScorer()(["a man rides a horse"], ["a man rides a horse"])
        >>> round(scores["bleu"].value, 1), round(scores["chrf"].value, 1)
        (100.0, 100.0)
    """

    def __init__(
        self,
        *,
        tokenize: str = "13a",
        lowercase: bool = False,
        metrics: Sequence[str] = METRICS[:2],
    ):
        try:
            from sacrebleu.metrics import BLEU, CHRF, TER
        except ImportError as error:
            raise ImportError("scores need the package sacrebleu: pip install sacrebleu") from error
        if tokenize not in BLEU.TOKENIZERS:
            raise ValueError(
                f"`tokenize` must be one of {sorted(BLEU.TOKENIZERS)}. Received: {tokenize!r}"
            )
        if not metrics or not {*metrics} <= {*METRICS}:
            raise ValueError(f"`metrics` must be some of {METRICS}. Received: {metrics!r}")
        # force: sacreBLEU would warn that tokenized text is not what it expects, as asked for here.
        try:
            bleu = BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")
        except (ImportError, RuntimeError, OSError) as error:  # a package or a download of its own
            raise ValueError(
                "`tokenize` must be a tokenizer whose packages and files this machine has. "
                f"Received: {tokenize!r}: {' '.join(str(error).split())}"
            ) from error
        known = {"bleu": bleu, "chrf": CHRF(lowercase=lowercase), "ter": TER()}
        self.metrics = {name: known[name] for name in metrics}

    def __call__(self, translations: Iterable[str], references: Iterable[str]) -> dict[str, Score]:
        """The `Score` of each metric by its name, of translations with one reference each.

        Raises:
            ValueError: if the counts differ, or there is none.
        """
        translations, references = list(translations), list(references)
        if not references or len(translations) != len(references):
            raise ValueError(
                "`translations` and `references` must have the same number of lines, at least one. "
                f"Received: {len(translations)} and {len(references)}"
            )
        scores = {}
        for name, metric in self.metrics.items():
            score = metric.corpus_score(translations, [references])
            scores[name] = Score(float(score.score), str(score), str(metric.get_signature()))
        return scores


class SentenceBleu:
    """BLEU of single sentences, 0 to 100, by sacreBLEU's smoothing, of the n-grams that there are.

    Args:
        tokenize, lowercase: As for `TextScorer`.

    Raises:
        ImportError: if `sacrebleu` is not installed.
        ValueError: if `tokenize` is unknown.

    Example:
        >>> from keras_transformer.evaluation import SentenceBleu
        >>> bleu = SentenceBleu()
        >>> round(bleu("a man rides", "a man rides"), 1), bleu("a dog", "two cats")
        (100.0, 0.0)
    """

    def __init__(self, *, tokenize: str = "13a", lowercase: bool = False):
        TextScorer(tokenize=tokenize)  # raises what is to be raised
        from sacrebleu.metrics import BLEU

        self._metric = BLEU(
            tokenize=tokenize,
            lowercase=lowercase,
            force=tokenize == "none",
            effective_order=True,
        )

    def __call__(self, translation: str, reference: str) -> float:
        """The BLEU of a translation with one reference."""
        return float(self._metric.sentence_score(translation, [reference]).score)


def text_scores(
    translations: Iterable[str],
    references: Iterable[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> dict[str, Score]:
    """The scores of a `TextScorer`, in one call, with its arguments and errors.

    Example:
        >>> from keras_transformer.evaluation import text_scores
        >>> scores = text_scores(["a man rides"], ["a man walks"])
        >>> 0 < scores["chrf"].value < 100
        True
    """
    return TextScorer(tokenize=tokenize, lowercase=lowercase)(translations, references)


def check_saved_model(path: os.PathLike | str) -> None:
    """Raises a `FileNotFoundError` that says what lies there, if it is no SavedModel."""
    if not (Path(path) / "saved_model.pb").is_file():
        raise FileNotFoundError(
            f"a SavedModel must hold saved_model.pb. Received: {received(path)}"
        )


def saved_model_translate(
    path: os.PathLike | str,
) -> Callable[[list[str]], list[str]]:
    """A function `list[str] -> list[str]` that runs an exported SavedModel.

    The function raises a ValueError for a text that is too long.

    Args:
        path: The folder that `export_saved_model` has made.

    Raises:
        FileNotFoundError: if it is no SavedModel.
    """
    check_saved_model(path)
    import numpy as np
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers the tokenizer's ops)

    loaded = tf.saved_model.load(str(path))  # its signatures live only as long as it does

    def translate(texts):
        translations = []
        for start in range(0, len(texts), _BATCH):
            batch = tf.constant(list(texts[start : start + _BATCH]))
            found = loaded.signatures["serving_default"](text=batch)["translation"].numpy()
            check_empty(texts, [start + int(place) for place in np.flatnonzero(found == b"")])
            translations += [text.decode("utf-8") for text in found]
        return translations

    def check_empty(texts, places):
        """`serving_default` leaves empty what it cannot answer; `translate` says what that is."""
        if not places or "translate" not in loaded.signatures:  # as in old exports
            return
        batch = tf.constant([texts[place] for place in places])
        found = loaded.signatures["translate"](text=batch, n_best=tf.zeros(len(places), tf.int32))
        for place, status in zip(places, found["status"].numpy(), strict=True):
            if status != b"ok":
                raise ValueError(
                    "a text must be within the bounds that assets.extra/serving.json states. "
                    f"Received: {status.decode()} for text {place + 1}, {texts[place]!r:.80}"
                )

    return translate
