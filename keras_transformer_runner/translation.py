"""What a search tells of one answer beside its text."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Translation:
    """One answer to one text.

    Example:
        >>> from keras_transformer_runner import Translation
        >>> best = Translation("Ein Mann.", (5, 3), score=-1.5, truncated=False)
        >>> best.text, best.score
        ('Ein Mann.', -1.5)

    Attributes:
        text: The answer.
        ids: Its tokens, a tuple of int, with EOS at the end unless `truncated`; none for an empty
            text.
        score: What the search ranks by.
        truncated: Whether the limit has cut it: it has no EOS.
        token_log_probs: The model's log-probability of each of `ids`; `None` on a device.
        alignment: The source position of each of `ids`, where a `Translator` was asked for it.
    """

    text: str
    ids: tuple[int, ...]
    score: float
    truncated: bool
    token_log_probs: tuple[float, ...] | None = None
    alignment: tuple[int, ...] | None = None


Hypothesis = Translation  # what a search calls it
