"""The proof at export: the artefact's answers against Python's, on the user's own sentences."""

import dataclasses
import json

_END = -1  # no id


class ParityError(RuntimeError):
    """The artefact's answers differ from Python's by more than its mode promises."""


@dataclasses.dataclass(frozen=True)
class ParityReport:
    """What an export found when it ran its own artefact.

    Attributes:
        artefact: `"savedmodel"` or `"litert"`.
        mode: Number format: one of `litert.MODES`, or a SavedModel's compute dtype.
        samples: Sentences compared.
        identical: Sentences with the same text as Python's.
        token_agreement: Share of Python's tokens, EOS included, that the artefact has at the same
            position.
        promised_agreement: The share below which the export fails.
        size_bytes: Of the whole artefact, tokenizer included.
        seconds_a_sample: Mean latency of the artefact, one sentence at a time, after one warm-up.
        ops: Names of the ops inside, sorted.
        first_difference: `[source, Python's answer, the artefact's]`, or `None`. Texts, or ids
            where all texts are equal.
    """

    artefact: str
    mode: str
    samples: int
    identical: int
    token_agreement: float
    promised_agreement: float
    size_bytes: int
    seconds_a_sample: float
    ops: tuple
    first_difference: tuple | None

    def write(self, path):
        """Writes the report as JSON."""
        text = json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"
        # A lone surrogate in a sample becomes its JSON escape.
        path.write_text(text, encoding="utf-8", errors="backslashreplace")

    def check(self):
        """Raises `ParityError` if the promise is broken; returns the report if it is kept."""
        # Where all tokens are promised, so is the text that they make.
        texts_differ = self.promised_agreement == 1 and self.identical < self.samples
        if self.token_agreement < self.promised_agreement or texts_differ:
            source, expected, received = self.first_difference
            raise ParityError(
                f"a {self.mode} {self.artefact} must give at least {self.promised_agreement:.0%} "
                f"of Python's tokens. Received: {self.token_agreement:.2%} of the tokens and "
                f"{self.identical} of {self.samples} texts, first at {source[:80]!r}: "
                f"Python {expected[:80]!r}, artefact {received[:80]!r}. Nothing was written."
            )
        return self


def checked_samples(samples):
    """The samples as a list.

    Raises:
        TypeError: if it is one string, or holds anything but strings.
        ValueError: if there is none.
    """
    if isinstance(samples, (str, bytes)):
        raise TypeError(f"`samples` must be a list of strings. Received: {samples!r}")
    samples = list(samples)
    for sample in samples:
        if not isinstance(sample, str):
            raise TypeError(f"`samples` must be a list of strings. Received: {sample!r} in it")
    if not samples:
        raise ValueError(
            "`samples` must hold at least one sentence to compare the artefact with Python. "
            "Received: none"
        )
    return samples


def compare(samples, expected, received):
    """Counts what two systems have in common.

    Args:
        samples: Source sentences.
        expected: Python's `(text, ids)` for each.
        received: The artefact's.

    Returns:
        A dict with the fields `samples`, `identical`, `token_agreement` and `first_difference`
        of `ParityReport`.
    """
    pairs = list(zip(samples, expected, received, strict=True))
    differences = [(source, a[0], b[0]) for source, a, b in pairs if a[0] != b[0]]
    # The same text may be made of other pieces.
    others = [(source, str(a[1]), str(b[1])) for source, a, b in pairs if a[1] != b[1]]
    agreeing = total = 0
    for _, (_, expected_ids), (_, received_ids) in pairs:
        # The end of a row counts as a token: a row that stops early or late disagrees there.
        rows = zip([*expected_ids, _END], [*received_ids, _END], strict=False)
        agreeing += sum(a == b for a, b in rows)
        total += len(expected_ids) + 1
    return {
        "samples": len(pairs),
        "identical": len(pairs) - len(differences),
        "token_agreement": agreeing / total,
        "first_difference": next(iter(differences + others), None),
    }
