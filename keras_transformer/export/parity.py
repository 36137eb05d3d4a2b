"""The proof at export: the artefact's answers against Python's, on the user's own sentences."""

import dataclasses
import json
import os

from keras_transformer_runner.atomic import write_text

_END = -1  # no id
_CONSTANT_BYTES = 2**15  # of a graph that are no weights


class ParityError(RuntimeError):
    """The artefact's answers differ from Python's by more than its mode promises."""


@dataclasses.dataclass(frozen=True)
class ParityReport:
    """What an export found when it ran its own artefact.

    Example:
        >>> from keras_transformer.export import ParityReport
        >>> report = ParityReport(artefact="litert", mode="int8", samples=4, identical=3,
        ...     token_agreement=0.97, promised_agreement=0.8, size_bytes=1_000_000,
        ...     seconds_a_sample=0.004, ops=(), first_difference=("Hi.", "Hallo.", "Hello."))
        >>> report.broken_promises()
        []

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
        bleu: The artefact's BLEU, 0 to 100, where there are references.
        python_bleu: Python's, on the same sentences.
        promised_bleu_loss: The loss of BLEU above which the export fails; `None` for no promise.
        parameters: Numbers in the model's weights.
        weight_bytes: Of the constants in the artefact, each stored once.
        promised_bytes: Bytes of weights a parameter above which the export fails.
        runtime: Name and version of what ran the artefact.
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
    bleu: float | None = None
    python_bleu: float | None = None
    promised_bleu_loss: float | None = None
    parameters: int | None = None
    weight_bytes: int | None = None
    promised_bytes: float | None = None
    runtime: str | None = None

    def write(self, path: os.PathLike | str):
        """Writes the report as JSON."""
        text = json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"
        # A lone surrogate in a sample becomes its JSON escape.
        write_text(path, text.encode("utf-8", "backslashreplace").decode())

    def broken_promises(self) -> list[str]:
        """What the mode promises and the artefact does not keep, a sentence each."""
        return [*self._tokens(), *self._bleu(), *self._size()]

    def check(self) -> "ParityReport":
        """Raises `ParityError` if a promise is broken; returns the report if all are kept."""
        broken = self.broken_promises()
        if broken:
            raise ParityError("; ".join(broken) + ". Nothing was written.")
        return self

    def _tokens(self):
        # Where all tokens are promised, so is the text that they make.
        texts_differ = self.promised_agreement == 1 and self.identical < self.samples
        if self.token_agreement < self.promised_agreement or texts_differ:
            source, expected, received = self.first_difference or ("", "", "")
            yield (
                f"a {self.mode} {self.artefact} must give at least {self.promised_agreement:.0%} "
                f"of Python's tokens. Received: {self.token_agreement:.2%} of the tokens and "
                f"{self.identical} of {self.samples} texts, first at {source[:80]!r}: "
                f"Python {expected[:80]!r}, artefact {received[:80]!r}"
            )

    def _bleu(self):
        if None in (self.bleu, self.python_bleu, self.promised_bleu_loss):
            return
        loss = self.python_bleu - self.bleu
        if loss > self.promised_bleu_loss:
            yield (
                f"a {self.mode} {self.artefact} must lose at most {self.promised_bleu_loss:g} "
                f"BLEU. Received: {self.bleu:.2f}, and {self.python_bleu:.2f} in Python, on "
                f"{self.samples} sentences"
            )

    def _size(self):
        if None in (self.parameters, self.weight_bytes, self.promised_bytes):
            return
        most = self.promised_bytes * self.parameters + _CONSTANT_BYTES
        if self.weight_bytes > most:
            yield (
                f"a {self.mode} {self.artefact} must hold at most {self.promised_bytes:g} bytes of "
                f"weights a parameter, and {_CONSTANT_BYTES:,} more. Received: "
                f"{self.weight_bytes:,} bytes for {self.parameters:,} parameters; a "
                "weight may be stored twice"
            )


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


def checked_references(references, samples, tokenize):
    """The references as a list, or `None`.

    Raises:
        TypeError: if it is one string, or holds anything but strings.
        ValueError: if there are not as many as samples, or sacreBLEU knows no such `tokenize`.
        ImportError: if `sacrebleu` is not installed.
    """
    if references is None:
        return None
    is_text = isinstance(references, (str, bytes))
    references = [references] if is_text else list(references)
    if is_text or not all(isinstance(reference, str) for reference in references):
        raise TypeError(f"`references` must be a list of strings. Received: {references[:1]!r}")
    if len(references) != len(samples):
        raise ValueError(
            "`references` must have one line for each of `samples`. "
            f"Received: {len(references)} for {len(samples)}"
        )
    bleu(references, references, tokenize)  # before the work begins
    return references


def bleu(translations, references, tokenize):
    """BLEU, 0 to 100, or `None` without references."""
    from keras_transformer.evaluation import text_scores

    if references is None:
        return None
    return text_scores(translations, references, tokenize=tokenize)["bleu"].value


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
