"""Signatures of fixed lengths: which ones a file gets, and the proof that each answers right."""

from collections.abc import Sequence

from keras_transformer.arguments import check_flag
from keras_transformer.export.litert.modes import MODES
from keras_transformer.export.parity import ParityError, compare
from keras_transformer_runner.lengths import FixedLength, fixed_signature


def check_lengths(lengths, max_source_length, lengths_only=False, signatures=()):
    """The lengths as a tuple.

    Args:
        lengths: Lengths of sources.
        max_source_length: The most tokens of a source.
        lengths_only: Whether these are the only signatures.
        signatures: The names of the open ones otherwise.

    Raises:
        TypeError: if they are no list of integers.
        ValueError: if they are not positive and ascending, go beyond `max_source_length`, or are
            to be the only signatures where there are none, or others.
    """
    check_flag(lengths_only=lengths_only)
    is_listed = isinstance(lengths, Sequence) and not isinstance(lengths, (str, bytes))
    if not is_listed or not all(type(length) is int for length in lengths):
        raise TypeError(f"`lengths` must be a list of integers. Received: lengths={lengths!r}")
    lengths = list(lengths)
    if lengths != sorted(set(lengths)) or min(lengths, default=1) < 1:
        raise ValueError(
            f"`lengths` must be positive and ascending. Received: lengths={tuple(lengths)}"
        )
    if lengths and lengths[-1] > max_source_length:
        raise ValueError(
            "`lengths` must not go beyond `max_source_length` and the model's `max_positions`. "
            f"Received: lengths={tuple(lengths)}, of at most {max_source_length}"
        )
    if lengths_only and not lengths:
        raise ValueError("`lengths_only` must come with `lengths`. Received: lengths=()")
    if lengths_only and len(signatures) > 1:
        raise ValueError(
            f"`lengths_only` must come with the signature {signatures[0]!r} alone, as the others "
            f"have open shapes. Received: signatures={tuple(signatures)}"
        )
    return tuple(lengths)


def fixed_lengths(name, lengths, search, max_positions):
    """A `FixedLength` for each length of a signature of this name.

    Args:
        name: The signature.
        lengths: Source lengths.
        search: The `SearchOptions` within.
        max_positions: Of the model, an integer or `None`.
    """
    bounds = [bound for bound in (search.max_length, max_positions) if bound is not None]
    return [
        FixedLength(
            fixed_signature(name, length), length, min([length + search.extra_length, *bounds])
        )
        for length in lengths
    ]


def check_answers(runner, translator, answers, mode):
    """Raises ParityError unless the signature of each length keeps the mode's promise of tokens.

    Each answers all samples that fit it; if none does, the shortest one, cut.

    Args:
        runner: The `Runner` of the folder.
        translator: The `Translator` that it was made of.
        answers: Its `PythonAnswers`.
        mode: Key of `MODES`.
    """
    pairs = list(zip(answers.source_ids, answers.target_ids, strict=True))
    check_each_length(
        runner.lengths,
        pairs,
        lambda ids: translator.translate_ids([ids])[0],
        runner.translate_ids,
        mode,
    )


def check_each_length(lengths, pairs, python, device, mode):
    """Raises ParityError unless the signature of each length keeps the mode's promise of tokens.

    Args:
        lengths: Those of the file.
        pairs: The ids of each sample, and those of Python's answer.
        python: `python(ids)` -> Python's answer to other ids.
        device: `device(ids, length=…)` -> the answer of the signature of a length.
        mode: Key of `MODES`.
    """
    promised = MODES[mode].promised_agreement
    for length in lengths:
        known = [pair for pair in pairs if len(pair[0]) <= length]
        if not known:
            shortest = min((source for source, _ in pairs), key=len)
            cut = [*shortest[: length - 1], shortest[-1]]
            known = [(cut, python(cut))]
        sources = [str(source) for source, _ in known]
        expected = [("", target) for _, target in known]
        received = [("", device(source, length=length)) for source, _ in known]
        found = compare(sources, expected, received)
        if found["token_agreement"] < promised:
            raise ParityError(
                f"the signature of {length} tokens must give at least {promised:.0%} of Python's "
                f"tokens. Received: {found['token_agreement']:.2%} of the tokens of "
                f"{len(known)} samples. Nothing was written."
            )


def check_steps(runner, samples, texts):
    """Raises ParityError unless `decode_step`, where there is one, gives what the search gives.

    Args:
        runner: The `Runner` of the folder.
        samples: Texts.
        texts: Its answers.
    """
    if "next_ids" not in runner.step_outputs:
        return
    for sample, text in zip(samples, texts, strict=True):
        streamed = "".join(runner.stream(sample))
        if streamed != text:
            raise ParityError(
                "`decode_step` must give what the search gives. Received: "
                f"{streamed[:80]!r} and {text[:80]!r} for {sample[:80]!r}. Nothing was written."
            )
