"""The lexical shortlists that come with students of Bergamot and Firefox Translations."""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.interop.settings import reading
from keras_transformer_runner.lines import read_lines

_MOST_FREQUENT = 2**24  # more than any vocabulary has
_MAGIC = 0xF11A48D5013417F5
_HEADER = 6  # numbers of 8 bytes: mark, checksum, counts of frequent and best ids, two lengths


class LexicalShortlist:
    """The target ids that a sentence may need, by the ids of its source.

    They are the most frequent ids and those that a dictionary has for each source id. `shortlist`
    makes of them what a `Translator` takes. Marian takes the ids of all sentences of a batch, and
    fills them up to a multiple of eight; here each sentence has its own, so that no batch mate
    changes it.

    The format is that of `BinaryShortlistGenerator` in marian-dev (`lex.*.s2t.bin`). Its checksum
    is not looked at, but its bounds are.

    Args:
        path: The file.
        joint_vocabulary: Whether source and target have one vocabulary: the ids of the source are
            allowed too then.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is none of this format, or damaged.

    Example:
        >>> from keras_transformer.interop.lexical_shortlist import LexicalShortlist
        >>> numbers = [0xF11A48D5013417F5, 0, 2, 1, 4, 3, 0, 0, 1, 3]  # 2 frequent ids, 3 sources
        >>> ids = np.array([7, 5, 6], "<u4").tobytes()
        >>> with open("lex.bin", "wb") as file:
        ...     size = file.write(np.array(numbers, "<u8").tobytes() + ids)
        >>> LexicalShortlist("lex.bin", joint_vocabulary=False).allowed_ids([2, 0])
        [0, 1, 5, 6]
    """

    def __init__(self, path: os.PathLike | str, *, joint_vocabulary: bool = True):
        self._path, content = Path(path), Path(path).read_bytes()
        if len(content) < 8 * _HEADER or int.from_bytes(content[:8], "little") != _MAGIC:
            raise ValueError(
                f"`path` must be a binary lexical shortlist of Marian's. Received: {path}"
            )
        header = np.frombuffer(content, "<u8", _HEADER).tolist()
        frequent, _, sources, targets = header[2:]
        if frequent > _MOST_FREQUENT:
            raise ValueError(
                f"{path}: must have at most {_MOST_FREQUENT:,} frequent ids. Received: {frequent:,}"
            )
        size = 8 * (_HEADER + sources) + 4 * targets
        if len(content) != size:
            raise ValueError(f"{path}: must have {size} bytes. Received: {len(content)}")
        self._starts = np.frombuffer(content, "<u8", sources, 8 * _HEADER).astype("int64")
        self._ids = np.frombuffer(content, "<u4", targets, 8 * (_HEADER + sources))
        bounds = np.concatenate([[0], self._starts, [targets]])
        if not sources or self._starts[-1] != targets or np.any(np.diff(bounds) < 0):
            raise ValueError(
                f"{path}: lists of ids must follow each other and fill the file. Received others"
            )
        self._frequent, self.joint_vocabulary = frequent, joint_vocabulary

    def allowed_ids(self, source_ids: Iterable[int]) -> list[int]:
        """The target ids for the ids of one sentence, in their order, each once.

        Args:
            source_ids: Ids of the source; those that the file does not know add nothing.
        """
        found = set(range(self._frequent))
        known = {token for token in source_ids if 0 <= token < len(self._starts) - 1}
        for token in known:
            found.update(self._ids[self._starts[token] : self._starts[token + 1]].tolist())
        return sorted(found | known if self.joint_vocabulary else found)

    def shortlist(self, source_size: int, target_size: int) -> Shortlist:
        """The same as a `Shortlist`, for a model with vocabularies of these sizes.

        Raises:
            ValueError: if the file is of larger ones.
        """
        count = len(self._starts) - 1
        if count > source_size:
            raise ValueError(
                f"{self._path} must be for at most {source_size} source ids. Received: {count}"
            )
        bounds = zip(self._starts[:-1], self._starts[1:], strict=True)
        lists = [self._ids[start:end].astype("int64") for start, end in bounds]
        with reading(self._path):
            return Shortlist(
                range(min(self._frequent, target_size)),
                [*lists, *[[]] * (source_size - count)],
                target_size=target_size,
                joint=self.joint_vocabulary,
            )


def is_binary(path: os.PathLike | str) -> bool:
    """Whether a file begins as those that `LexicalShortlist` reads."""
    with open(path, "rb") as file:
        return file.read(8) == _MAGIC.to_bytes(8, "little")


def read_lex(path: os.PathLike | str, source_pieces, target_pieces) -> tuple[np.ndarray, ...]:
    """The table of a dictionary in Marian's text format: a target, a source and P(target | source).

    That is what `extract-lex` writes as `lex.s2t`. Lines of pieces that a vocabulary lacks, such as
    of `NULL`, are left out.

    Args:
        path: The file, plain or gzip.
        source_pieces, target_pieces: The pieces of the vocabularies, by id.

    Returns:
        Source ids, target ids and probabilities, for `Shortlist.from_scores`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if a line is none of this format, or no line is of the vocabularies.

    Example:
        >>> from keras_transformer.interop.lexical_shortlist import read_lex
        >>> with open("lex.s2t", "w") as file:
        ...     _ = file.write("Hund dog 0.9\\nNULL dog 0.1\\n")
        >>> read_lex("lex.s2t", ["<pad>", "dog"], ["<pad>", "Katze", "Hund"])
        (array([1]), array([2]), array([0.9]))
    """
    sources, targets = (
        {piece: token for token, piece in enumerate(pieces)}
        for pieces in (source_pieces, target_pieces)
    )
    rows = []
    for number, line in enumerate(read_lines(path, plain=True), start=1):
        try:
            target, source, probability = line.split()
            probability = float(probability)
            if not 0 <= probability < float("inf"):
                raise ValueError("a probability must be a finite number of at least 0")
        except ValueError as error:
            raise ValueError(
                "a line of a lexicon must be a target, a source and a probability. "
                f"Received: {path}, line {number}: {line[:80]!r}"
            ) from error
        if source in sources and target in targets:
            rows.append((sources[source], targets[target], probability))
    if not rows:
        raise ValueError(f"{path} must hold pieces of the vocabularies. Received: none of them")
    source_ids, target_ids, probabilities = zip(*rows, strict=True)
    return np.array(source_ids), np.array(target_ids), np.array(probabilities)
