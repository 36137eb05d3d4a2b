"""Translations of one test set by several systems: which is better, and is that chance?

Scores, resampling and signatures are sacreBLEU's. Needs no Keras.
"""

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from keras_transformer.arguments import check_choice, check_size
from keras_transformer.evaluation import METRICS, SentenceBleu, TextScorer

__all__ = ["Comparison", "compare_translations"]

SENTENCE_METRICS = ("chrf", "bleu")
_SEED = "SACREBLEU_SEED"


class SystemScore(NamedTuple):
    """A system's score of one metric.

    Attributes:
        value: The score, 0 to 100 (TER: 0 and more).
        mean: Its mean over the resampled test sets.
        interval: Half of the width of their 95% confidence interval.
        p_value: How probable a difference from the baseline as large as this is by chance;
            `None` for the baseline.
    """

    value: float
    mean: float
    interval: float
    p_value: float | None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What `compare_translations` finds.

    Attributes:
        names: The systems, the baseline first.
        scores: `SystemScore` by the metric's name in sacreBLEU, such as `"chrF2"`, and by system.
        signatures: Of each metric, with the seed and the number of samples.
        by: The metric of sentences: one of `SENTENCE_METRICS`.
        sentences: Its value for each sentence, by system.

    Example:
        >>> from keras_transformer.comparison import Comparison
        >>> sentences = {"old": [40.0, 60.0, 50.0], "new": [70.0, 55.0, 50.0]}
        >>> found = Comparison(("old", "new"), {}, {}, "chrf", sentences)
        >>> found.differences("new"), found.extremes("new", 2)
        ([30.0, -5.0, 0.0], ([0], [1]))
    """

    names: tuple[str, ...]
    scores: dict[str, dict[str, SystemScore]]
    signatures: dict[str, str]
    by: str
    sentences: dict[str, list[float]]

    def differences(self, name: str) -> list[float]:
        """Of each sentence, how much higher a system scores than the baseline."""
        pairs = zip(self.sentences[name], self.sentences[self.names[0]], strict=True)
        return [score - base for score, base in pairs]

    def extremes(self, name: str, count: int) -> tuple[list[int], list[int]]:
        """The sentences in which a system is most above and most below the baseline.

        Args:
            name: The system.
            count: Sentences of each kind at most.

        Returns:
            Two lists of places from 0, the largest difference first.
        """
        ranked = sorted(enumerate(self.differences(name)), key=lambda item: -item[1])
        better = [place for place, difference in ranked[:count] if difference > 0]
        worse = [place for place, difference in ranked[::-1][:count] if difference < 0]
        return better, worse

    def to_dict(self) -> dict[str, Any]:
        """The figures as dictionaries, for JSON; without those of each sentence."""
        return {
            "baseline": self.names[0],
            "metrics": {
                metric: {
                    "signature": self.signatures[metric],
                    "systems": {name: score._asdict() for name, score in systems.items()},
                }
                for metric, systems in self.scores.items()
            },
            "sentences": {
                "metric": self.by,
                "differences": {name: self._summary(name) for name in self.names[1:]},
            },
        }

    def _summary(self, name):
        differences = self.differences(name)
        return {
            "better": sum(each > 0 for each in differences),
            "equal": sum(each == 0 for each in differences),
            "worse": sum(each < 0 for each in differences),
            "mean": sum(differences) / len(differences),
        }


def compare_translations(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    metrics: Sequence[str] = METRICS[:2],
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = 1000,
    seed: int = 12345,
    by: str = "chrf",
) -> Comparison:
    """Scores systems, and tests each against the first by paired bootstrap resampling.

    The test is sacreBLEU's (Koehn 2004): the p-value is the share of resampled test sets whose
    difference, about its mean, is as large as that of the whole. Below 0.05 a difference is
    commonly called significant. Of a system with the baseline's very score it is 1.

    Args:
        systems: Translations of the test set by the system's name; the first is the baseline.
        references: A reference for each.
        metrics: Some of `evaluation.METRICS`.
        tokenize: sacreBLEU's name of BLEU's tokenizer.
        lowercase: Whether case is ignored.
        samples: Test sets to resample.
        seed: Of their random choice.
        by: What sentences are compared by: `"chrf"` or `"bleu"`.

    Raises:
        ImportError: if `sacrebleu` is not installed.
        ValueError: if there are fewer than two systems, no references, or not as many translations
            as references; if an option is not one that there is.

    Example:
        >>> from keras_transformer.comparison import compare_translations
        >>> references = ["a man rides a horse", "two dogs play in the snow"]
        >>> found = compare_translations(
        ...     {"old": ["a man rides", "two dogs play"], "new": references}, references
        ... )
        >>> round(found.scores["BLEU"]["new"].value), found.extremes("new", 1)[1]
        (100, [])
    """
    check_size(samples=samples, seed=seed)
    check_choice(SENTENCE_METRICS, by=by)
    scorer = TextScorer(tokenize=tokenize, lowercase=lowercase, metrics=metrics)
    _check_systems(systems, references)
    from sacrebleu.significance import PairedTest

    references = list(references)
    with _seeded(seed):
        test = PairedTest(
            [(name, list(texts)) for name, texts in systems.items()],
            scorer.metrics,
            [references],
            test_type="bs",
            n_samples=samples,
        )
        signatures, columns = test()
    names = tuple(columns.pop("System"))
    for baseline, *others in columns.values():
        for result in others:
            if result.score == baseline.score:
                # To sacreBLEU's count of larger differences none at all is the rarest of cases.
                result.p_value = 1.0
    sentence = _sentence_scorer(by, tokenize, lowercase)
    return Comparison(
        names,
        {
            metric: {
                name: SystemScore(*map(_plain, (each.score, each.mean, each.ci, each.p_value)))
                for name, each in zip(names, results, strict=True)
            }
            for metric, results in columns.items()
        },
        {metric: str(signature) for metric, signature in signatures.items()},
        by,
        {name: list(map(sentence, texts, references)) for name, texts in systems.items()},
    )


def _check_systems(systems, references):
    if len(systems) < 2:
        raise ValueError(f"`systems` must be two or more. Received: {list(systems)}")
    if not references:
        raise ValueError("`references` must hold a line. Received: none")
    for name, texts in systems.items():
        if len(texts) != len(references):
            raise ValueError(
                "translations must be as many lines as references. Received: "
                f"{len(texts):,} of {name}, {len(references):,} references"
            )


def _sentence_scorer(by, tokenize, lowercase):
    if by == "bleu":
        return SentenceBleu(tokenize=tokenize, lowercase=lowercase)
    metric = TextScorer(lowercase=lowercase, metrics=("chrf",)).metrics["chrf"]
    return lambda text, reference: float(metric.sentence_score(text, [reference]).score)


def _plain(number):
    """sacreBLEU's numbers are NumPy's in part, which JSON does not take."""
    return None if number is None else float(number)


@contextlib.contextmanager
def _seeded(seed):
    """sacreBLEU takes its seed from the environment alone."""
    before = os.environ.get(_SEED)
    os.environ[_SEED] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SEED]
        else:
            os.environ[_SEED] = before
