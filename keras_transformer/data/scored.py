"""What teachers say of each target position: their most probable ids, beside the pairs.

Shards of NumPy arrays, `probabilities-00000.npz` and so on, in the folder of `distil`.
"""

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from keras_transformer.data.distilled import NOTE_FILE, read_note
from keras_transformer.data.tokenized import TokenizedCorpus
from keras_transformer_runner.integrity import check_file

TEACHER_IDS, TEACHER_LOG_PROBS = "teacher_ids", "teacher_log_probs"  # names in a batch


def probabilities_file(number):
    """The file of the `number`-th shard."""
    return f"probabilities-{number:05d}.npz"


@dataclasses.dataclass(frozen=True, eq=False)
class ScoredCorpus(TokenizedCorpus):
    """A `TokenizedCorpus` with the teachers' most probable ids of each position.

    It can stand for a `TokenizedCorpus` in `training_batches`, whose inputs then have
    `teacher_ids` (B, T, K) int32 and `teacher_log_probs` (B, T, K) float32, zeros at pads.

    Attributes:
        teacher_ids: int32 `(positions, K)`, of all targets one after the other; a target has a
            position a piece, and one for EOS.
        teacher_log_probs: float16 of the same shape, natural logarithms.

    Example:
        >>> import dataclasses
        >>> from keras_transformer.data import tokenize_corpus
        >>> from keras_transformer.data.scored import ScoredCorpus
        >>> corpus = tokenize_corpus([("a", "b")], kt.CharacterTokenizer("ab"), max_length=4)
        >>> ids, log_probs = np.array([[5], [3]], "int32"), np.zeros((2, 1), "float16")
        >>> scored = ScoredCorpus(
        ...     *(getattr(corpus, field.name) for field in dataclasses.fields(corpus)),
        ...     ids, log_probs,
        ... )
        >>> len(scored), scored.teacher_ids.shape
        (1, (2, 1))
    """

    teacher_ids: np.ndarray = None
    teacher_log_probs: np.ndarray = None

    @property
    def fingerprint(self) -> str:
        """A hash of all ids and of what the teachers say."""
        digest = hashlib.sha256(super().fingerprint.encode())
        for array in (self.teacher_ids, self.teacher_log_probs):
            digest.update(array.tobytes())
        return digest.hexdigest()

    def shard_reader(self) -> Callable:
        """As for a `TokenizedCorpus`, with two further `RaggedTensor`s `(pairs, None, K)`."""
        import tensorflow as tf

        read = super().shard_reader()
        splits = np.concatenate([[0], np.cumsum(self.target_lengths + 1, dtype=np.int64)])
        with tf.device("CPU"):
            teacher = tuple(
                tf.RaggedTensor.from_row_splits(values, splits)
                for values in (self.teacher_ids, self.teacher_log_probs)
            )
        return lambda shard: (*read(shard), *teacher)


def with_probabilities(corpus: TokenizedCorpus, folder: Path | str, tokenizers) -> ScoredCorpus:
    """A tokenized corpus of the pairs in a folder of `distil`, with what its teachers say of them.

    Args:
        corpus: What `tokenize_corpus` makes of the folder's pairs, of any `max_length` up to that
            of the folder.
        folder: The folder.
        tokenizers: The student's, of the source and of the target.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if there are no probabilities, they are of other tokenizers or of other pairs,
            or a file is damaged.
    """
    folder = Path(folder)
    record = read_note(folder).get("probabilities")
    if not record:
        raise ValueError(
            "`training.teacher_weight` needs the teachers' probabilities: `distil` with "
            f"--probabilities. Received: {folder}, which has none"
        )
    if record["tokenizers"] != [each.fingerprint for each in tokenizers]:
        raise ValueError(
            "a student that learns probabilities must have its teachers' tokenizers: name them in "
            f"`tokenizer.file`. Received: {folder}, of other tokenizers"
        )
    shards = []
    for number, expected in enumerate(record["files"]):
        path = folder / probabilities_file(number)
        check_file(path, expected, NOTE_FILE)
        with np.load(path) as arrays:
            shards.append([arrays[name] for name in ("lengths", "ids", "log_probs")])
    lengths, ids, log_probs = map(np.concatenate, zip(*shards, strict=True))
    keep = lengths.max(axis=1) + 1 <= _longest(corpus, lengths)
    ours = np.stack([corpus.source_lengths, corpus.target_lengths], axis=1)
    if not np.array_equal(lengths[keep], ours):
        raise ValueError(
            "the teachers' probabilities must be of the pairs that are trained on: "
            f"`data.max_length` may not be above that of `distil`, {record['max_length']}. "
            f"Received: {folder} with {int(keep.sum()):,} pairs, for {len(corpus):,}"
        )
    rows = np.repeat(keep, lengths[:, 1] + 1)
    fields = (getattr(corpus, field.name) for field in dataclasses.fields(TokenizedCorpus))
    return ScoredCorpus(*fields, ids[rows], log_probs[rows])


def _longest(corpus, lengths):
    """The limit that has left as many pairs as a corpus has, or one more if none has."""
    needed = np.sort(lengths.max(axis=1) + 1)
    return needed[min(len(corpus), len(needed)) - 1]
