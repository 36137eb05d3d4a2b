"""Lexical shortlists: the target ids that a sentence may need, by the ids of its source."""

import hashlib
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from keras import ops

from keras_transformer.arguments import check_count, check_flag, check_size
from keras_transformer.layers.lowering.places import arange
from keras_transformer.typing import Tensor
from keras_transformer_runner.atomic import write_file
from keras_transformer_runner.integrity import check_sealed_file, seal_file

_FIELDS = {"frequent": 1, "starts": 1, "ids": 1, "target_size": 0, "joint": 0}
_ADVICE = "make it again with `keras-transformer shortlist`"


class Shortlist:
    """The target ids that a translation may need: the most frequent, and some of each source id.

    With it a search computes the output for these ids alone (see `candidate_ids` of `decode`),
    which makes a step cheaper. Text that needs another id becomes other text: how often that is,
    `keras-transformer shortlist --check` tells.

    Args:
        frequent: Target ids for every sentence, a sequence of int.
        lists: Target ids of each source id, as many sequences as the source's vocabulary has ids.
        target_size: Ids of the target's vocabulary.
        joint: Whether source and target have one vocabulary: the ids of a source are candidates of
            its translation then, which copies names and numbers.

    Raises:
        ValueError: if an id lies outside the target's vocabulary, or there are no lists.

    Example:
        >>> from keras_transformer.decoding.shortlist import Shortlist
        >>> shortlist = Shortlist([3, 5], [[], [4], [], [], [7, 4]], target_size=9)
        >>> shortlist.ids_for([1, 4, 1])
        [3, 4, 5, 7]
        >>> shortlist.save("shortlist.npz")
        >>> Shortlist.load("shortlist.npz") == shortlist
        True
        >>> shortlist.candidate_ids(np.array([[4, 1]]), pad_id=0).numpy()  # as a graph finds them
        array([[3, 5, 4, 7, 4, 0]], dtype=int32)
    """

    def __init__(
        self,
        frequent: Iterable[int],
        lists: Iterable[Iterable[int]],
        *,
        target_size: int,
        joint: bool = False,
    ):
        lists = [np.unique(np.fromiter(each, "int64")) for each in lists]
        starts = np.cumsum([0, *map(len, lists)])
        ids = np.concatenate([*lists, np.zeros(0, "int64")])
        self._settle(np.unique(np.fromiter(frequent, "int64")), starts, ids, target_size, joint)

    def _settle(self, frequent, starts, ids, target_size, joint):
        check_size(target_size=target_size)
        check_flag(joint=joint)
        if len(starts) < 2:
            raise ValueError("`lists` must have one for each source id. Received: none")
        if joint and len(starts) - 1 != target_size:
            raise ValueError(
                "a joint vocabulary must have as many ids on both sides. Received: "
                f"{len(starts) - 1} and {target_size}"
            )
        for given in (frequent, ids):
            if given.size and not 0 <= given.min() <= given.max() < target_size:
                raise ValueError(
                    f"ids must lie in [0, {target_size}). Received: {given.min()} to {given.max()}"
                )
        self.frequent, self.starts, self.ids = (
            each.astype("int32") for each in (frequent, starts, ids)
        )
        self.target_size, self.joint = target_size, joint

    @property
    def source_size(self) -> int:
        """Ids of the source's vocabulary."""
        return len(self.starts) - 1

    @property
    def longest(self) -> int:
        """The most ids that a source id has."""
        return int(np.diff(self.starts).max())

    @property
    def summary(self) -> dict[str, int]:
        """How large it is, for the records of exports."""
        return {"frequent_ids": len(self.frequent), "most_ids_of_a_source_id": self.longest}

    @property
    def fingerprint(self) -> str:
        """A hash of all that it holds."""
        digest = hashlib.sha256(f"{self.target_size} {self.joint}".encode())
        for each in (self.frequent, self.starts, self.ids):
            digest.update(each.tobytes())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shortlist) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in _FIELDS
        )

    __hash__ = None

    def ids_for(self, source_ids: Iterable[int]) -> list[int]:
        """The target ids for the ids of one sentence, ascending, each once."""
        known = {token for token in map(int, source_ids) if 0 <= token < self.source_size}
        lists = [self.ids[self.starts[token] : self.starts[token + 1]] for token in known]
        found = {*self.frequent.tolist(), *np.concatenate([*lists, self.ids[:0]]).tolist()}
        return sorted(found | known if self.joint else found)

    def candidate_ids(self, source_ids: Tensor, pad_id: int) -> Tensor:
        """The same for a batch, in a graph too: (B, S) int32 -> (B, A) int32, some of them twice.

        Args:
            source_ids: Ids in [0, V), then pads, which add nothing.
            pad_id: What fills up.
        """
        source_ids = ops.cast(source_ids, "int32")
        rows = ops.shape(source_ids)[0]
        starts = ops.convert_to_tensor(self.starts, "int32")
        first = ops.expand_dims(ops.take(starts, source_ids, axis=0), 2)
        last = ops.expand_dims(ops.take(starts, source_ids + 1, axis=0), 2)
        places = first + arange(max(self.longest, 1))
        ids = ops.convert_to_tensor(np.append(self.ids, pad_id), "int32")
        inside = ops.logical_and(places < last, ops.expand_dims(source_ids != pad_id, 2))
        found = ops.take(ids, ops.where(inside, places, len(self.ids)), axis=0)
        width = ops.shape(source_ids)[1] * max(self.longest, 1)
        frequent = ops.convert_to_tensor(self.frequent[None], "int32")
        parts = [frequent + ops.zeros((rows, 1), "int32"), ops.reshape(found, (rows, width))]
        return ops.concatenate([*parts, source_ids] if self.joint else parts, axis=1)

    def save(self, path: os.PathLike | str, *, owner: str = "") -> None:
        """Writes a file that `load` reads, which appears whole.

        Args:
            path: The file, which is replaced.
            owner: Names what the shortlist belongs to, as the fingerprints of tokenizers do.
        """

        def write(temporary):
            with open(temporary, "wb") as file:
                np.savez_compressed(file, **{name: getattr(self, name) for name in _FIELDS})
            seal_file(temporary, owner)

        write_file(path, write)

    @classmethod
    def load(cls, path: os.PathLike | str, *, owner: str | None = None) -> "Shortlist":
        """Reads what `save` wrote.

        Args:
            path: The file.
            owner: What it must belong to; `None` for anything.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is damaged, no such file, or another's.
        """
        if not os.path.isfile(path):
            raise FileNotFoundError(
                "a shortlist must be made first, by `keras-transformer shortlist`. "
                f"Received: {path}"
            )
        check_sealed_file(path, _ADVICE, owner=owner)
        with np.load(path, allow_pickle=False) as content:
            if {name: content[name].ndim for name in content.files} != _FIELDS:
                raise ValueError(f"{path} must be a shortlist. Received: {content.files}")
            fields = {name: content[name] for name in _FIELDS}
        made = cls.__new__(cls)
        target_size, joint = int(fields.pop("target_size")), bool(fields.pop("joint"))
        made._settle(*fields.values(), target_size, joint)
        return made

    @classmethod
    def from_scores(
        cls,
        source_ids: np.ndarray,
        target_ids: np.ndarray,
        scores: np.ndarray,
        *,
        source_size: int,
        target_size: int,
        best: int = 100,
        threshold: float = 0.0,
        frequent: Iterable[int] = (),
        joint: bool = False,
    ) -> "Shortlist":
        """The shortlist of a table of scores: of each source id its `best` target ids.

        Args:
            source_ids, target_ids, scores: Arrays of equal length, such as of a dictionary's
                probabilities.
            source_size, target_size: Ids of the vocabularies.
            best: Most ids of a source id.
            threshold: Least score of an id.
            frequent, joint: See `Shortlist`.

        Raises:
            ValueError: if an id lies outside its vocabulary.

        Example:
            >>> from keras_transformer.decoding.shortlist import Shortlist
            >>> sources, targets = np.array([1, 1, 1, 2]), np.array([4, 5, 6, 4])
            >>> scores = np.array([0.1, 0.6, 0.3, 1])
            >>> shortlist = Shortlist.from_scores(
            ...     sources, targets, scores, source_size=3, target_size=7, best=2
            ... )
            >>> shortlist.ids_for([1]), shortlist.ids_for([2])
            ([5, 6], [4])
        """
        check_size(source_size=source_size)
        check_count(best=best)
        if len(source_ids) and not 0 <= min(source_ids) <= max(source_ids) < source_size:
            raise ValueError(
                f"source ids must lie in [0, {source_size}). Received: {min(source_ids)} to "
                f"{max(source_ids)}"
            )
        kept = scores >= threshold
        source_ids, target_ids, scores = (each[kept] for each in (source_ids, target_ids, scores))
        order = np.lexsort((target_ids, -scores, source_ids))  # of equals the lower id first
        source_ids, target_ids = source_ids[order], target_ids[order]
        starts = np.searchsorted(source_ids, np.arange(source_size + 1))
        lists = [
            target_ids[first : min(first + best, last)]
            for first, last in zip(starts[:-1], starts[1:], strict=True)
        ]
        return cls(frequent, lists, target_size=target_size, joint=joint)


def candidate_inputs(shortlist: Shortlist | None, source_ids: Tensor, pad_id: int) -> dict:
    """The inputs of `decode` for a shortlist; none for no shortlist."""
    if shortlist is None:
        return {}
    return {"candidate_ids": shortlist.candidate_ids(source_ids, pad_id)}


def check_shortlist(shortlist: Any, config: Any) -> None:
    """Raises unless a shortlist is one, for vocabularies of the model's sizes.

    Raises:
        TypeError: if it is no `Shortlist`, or anything with its fields.
        ValueError: if the sizes differ.
    """
    if not hasattr(shortlist, "candidate_ids"):
        raise TypeError(f"`shortlist` must be a `Shortlist`. Received: {type(shortlist).__name__}")
    sizes = (shortlist.source_size, shortlist.target_size)
    expected = (config.vocab_size, config.target_size)
    if sizes != expected:
        raise ValueError(
            "`shortlist` must be for the model's vocabularies. Received: a shortlist for "
            f"{sizes[0]} and {sizes[1]} ids, a model of {expected[0]} and {expected[1]}"
        )
