"""What becomes of the translations that teachers find."""

import dataclasses

from keras_transformer.arguments import check_choice, check_size
from keras_transformer.evaluation import SentenceBleu

SELECTIONS = ("best", "best-bleu", "all", "original")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationOptions:
    """Which of the teachers' translations a student is trained on.

    Attributes:
        n_best: Translations that are found of each source.
        select: `"best"`: that with the highest score (sequence-level distillation, Kim & Rush 2016,
            arXiv 1606.07947, sec. 3.2). `"best-bleu"`: that with the highest sentence BLEU against
            the pair's own target (their sequence-level interpolation, sec. 3.3; of equal ones the
            first). `"all"`: each, as a pair of its own. `"original"`: the corpus' own target, and
            nothing is translated.
        top_k: Ids of each target position whose probabilities are written, by teachers that see the
            target before it, for `training.teacher_weight` (word-level distillation, sec. 3.1);
            none when `None`.

    Raises:
        ValueError: if a value is out of range, or the two do not go together.
        ImportError: if BLEU is wanted and `sacrebleu` is not installed.

    Example:
        >>> from keras_transformer.distillation import DistillationOptions
        >>> options = DistillationOptions(n_best=2, select="best-bleu")
        >>> options.chosen(["a dog runs", "a man rides"], "a man walks")
        ['a man rides']
    """

    n_best: int = 1
    select: str = "best"
    top_k: int | None = None

    def __post_init__(self):
        check_size(n_best=self.n_best)
        check_choice(SELECTIONS, select=self.select)
        check_size(optional=True, top_k=self.top_k)
        if self.select == "original" and self.top_k is None:
            raise ValueError(
                "`select` 'original' must go with `top_k`, or teachers have nothing to write. "
                "Received: top_k=None"
            )
        if (self.n_best == 1) != (self.select in ("best", "original")):
            raise ValueError(
                "`n_best` above 1 must go with `select` 'best-bleu' or 'all', and they with it. "
                f"Received: n_best={self.n_best}, select={self.select!r}"
            )
        bleu = SentenceBleu() if self.select == "best-bleu" else None
        object.__setattr__(self, "_bleu", bleu)

    @property
    def translates(self) -> bool:
        """Whether anything is translated."""
        return self.select != "original"

    def chosen(self, translations: list[str], target: str) -> list[str]:
        """The translations to train on.

        Args:
            translations: Those that were found, the best first.
            target: That of the corpus; where it is empty, `"best-bleu"` takes the best.
        """
        if self.select == "original":
            return [target] if target.strip() else []
        if self.select == "all" or not translations:
            return translations
        if self._bleu is None or not target.strip():
            return translations[:1]
        return [max(translations, key=lambda text: self._bleu(text, target))]
