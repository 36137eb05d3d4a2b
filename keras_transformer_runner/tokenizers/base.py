"""What every tokenizer is: text to ids and back, the same in Python and in a TensorFlow graph."""

import abc
import functools
import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

UNKNOWN = "⁇"  # what an unknown id reads as: SentencePiece's sign

# A SentencePiece piece has at most 16 characters, of at most 4 bytes. A longer text cannot fit,
# unless it is mostly white space, and is refused on every runtime before a tokenizer reads it.
BYTES_A_TOKEN = 64


class SpecialIds(NamedTuple):
    """The ids that stand for no text of their own. A model has one set for both of its sides."""

    pad_id: int  # fills the end of a row
    unk_id: int  # a piece that the vocabulary lacks
    bos_id: int  # starts the decoder's input; may be the pad's
    eos_id: int  # ends source and target

    @classmethod
    def of(cls, owner) -> "SpecialIds":
        """The special ids of a tokenizer or a `TransformerConfig`, from its attributes."""
        return cls(*(getattr(owner, name) for name in cls._fields))


class Tokenizer(abc.ABC):
    """Text to ids and back, the same in Python and in a TensorFlow graph.

    `encode` and `decode` are Python and run on a device without TensorFlow. `tf_encode` and
    `tf_decode` are graph ops, for training and serving. Both give the same ids and the same text.
    Text that a user types never becomes a control id. `""` and text without content have no ids,
    and no ids decode to `""`.

    Attributes:
        vocab_size: V; ids lie in [0, V).
        pad_id, unk_id, bos_id, eos_id: The special ids.

    Example:
        >>> tokenizer = kt.BytesTokenizer()
        >>> ids = tokenizer.encode("Hi!")
        >>> ids
        [76, 109, 37]
        >>> tokenizer.decode([*ids, tokenizer.eos_id, tokenizer.pad_id])
        'Hi!'
        >>> tokenizer.tf_encode(["Hi!", ""]).to_list()
        [[76, 109, 37], []]
    """

    vocab_size: int
    pad_id: int
    unk_id: int
    bos_id: int
    eos_id: int

    @property
    def special_ids(self) -> SpecialIds:
        """The four special ids."""
        return SpecialIds.of(self)

    @abc.abstractmethod
    def to_bytes(self) -> bytes:
        """The tokenizer as the bytes of one file, which `load_tokenizer` reads."""

    @abc.abstractmethod
    def _encode(self, text):
        """The ids of a string that holds no lone surrogate."""

    @abc.abstractmethod
    def _decode(self, ids):
        """The text of a list of ids without special ones but unk."""

    @abc.abstractmethod
    def _tf_encode(self, texts):
        """Strings (B,) in valid UTF-8 -> int32 `RaggedTensor` (B, None)."""

    @abc.abstractmethod
    def _tf_decode(self, ids):
        """int32 `RaggedTensor` (B, None) without special ids but unk -> strings (B,)."""

    @property
    @abc.abstractmethod
    def tf_resources(self) -> Any:
        """What the graph ops need: an exported module must track it."""

    @functools.cached_property
    @abc.abstractmethod
    def pieces(self) -> list[str]:
        """The pieces of the vocabulary as strings, by id."""

    @property
    def file_suffix(self) -> str:
        """`.model` of a SentencePiece model, which other programs read too; else `.json`."""
        return ".json"

    def plain_text(self, text: str) -> str:
        """`text` of a corpus as `decode` writes text: without the marks of an earlier splitting."""
        return text

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides the ids."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def save(self, path: os.PathLike | str) -> None:
        """Writes the tokenizer to one file, which is never seen half-written."""
        from keras_transformer_runner.atomic import write_file  # which a device does not need

        write_file(path, lambda temporary: temporary.write_bytes(self.to_bytes()))

    def encode(self, text: str) -> list[int]:
        """The ids of `text`'s pieces, as a list of int without BOS and EOS.

        A lone surrogate, which UTF-8 cannot hold, counts as invalid bytes: U+FFFD.

        Raises:
            TypeError: if `text` is not a string.
        """
        if not isinstance(text, str):
            raise TypeError(f"`text` must be a string. Received: {type(text).__name__}")
        return self._encode(without_surrogates(text))

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of one row of ids, up to the first EOS; pads and BOS are dropped.

        Args:
            ids: A sequence or 1D array of integers.

        Raises:
            TypeError: if `ids` is not one row of integers.
            ValueError: if an id, before or after EOS, is outside `[0, vocab_size)`.
        """
        ids = np.asarray(ids)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise TypeError(
                f"`ids` must be one row of integers. Received: shape={ids.shape}, dtype={ids.dtype}"
            )
        outside = ids[(ids < 0) | (ids >= self.vocab_size)]
        if outside.size:
            raise ValueError(f"{self._id_rule} Received: {outside[0]}")
        ends = np.flatnonzero(ids == self.eos_id)
        ids = ids[: ends[0]] if ends.size else ids
        ids = ids[(ids != self.pad_id) & (ids != self.bos_id)]
        return self._decode(ids.tolist())

    def tf_encode(self, texts: Any) -> Any:
        """`encode` for a batch, as graph ops.

        Args:
            texts: String tensor `(B,)`. Bytes that are not UTF-8 are read as
                `bytes.decode("utf-8", "replace")` reads them.

        Returns:
            int32 `RaggedTensor` `(B, None)`, pieces only.
        """
        import tensorflow as tf

        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        return self._tf_encode(texts)

    def tf_decode(self, ids: Any) -> Any:
        """`decode` for a batch, as graph ops.

        Args:
            ids: int32 tensor `(B, T)`.

        Returns:
            String tensor `(B,)`.

        Raises:
            tf.errors.InvalidArgumentError: when it runs on an id outside `[0, vocab_size)`.
        """
        import tensorflow as tf

        ids = tf.convert_to_tensor(ids, dtype_hint=tf.int32)
        inside = (ids >= 0) & (ids < self.vocab_size)
        received = [f"{self._id_rule} Received:", ids[~inside]]
        check = tf.debugging.Assert(tf.reduce_all(inside), received, summarize=1)
        with tf.control_dependencies([check]):
            ids = tf.identity(tf.cast(ids, tf.int32))  # waits for the check
        ended = tf.cumsum(tf.cast(ids == self.eos_id, tf.int32), axis=1) > 0
        keep = ~ended & (ids != self.pad_id) & (ids != self.bos_id)
        return self._tf_decode(tf.ragged.boolean_mask(ids, keep))

    @property
    def _id_rule(self):
        return f"`ids` must be in [0, vocab_size) with vocab_size={self.vocab_size}."


def check_text_size(text, max_length):
    """Raises a ValueError if a string has more bytes than any text of so many tokens.

    Args:
        text: What `Tokenizer.encode` is to read.
        max_length: The most tokens that may come of it, EOS included.
    """
    most = BYTES_A_TOKEN * max_length
    if not isinstance(text, str) or 4 * len(text) <= most:
        return
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > most:
        raise ValueError(
            f"a text must have at most `max_source_length` = {max_length} tokens, and so at most "
            f"{most} bytes. Received: {size} bytes, {text[:60]!r}…"
        )


def without_surrogates(text):
    """`text` as UTF-8 can hold it: lone surrogates become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


def check_special_ids(source, target):
    """Raises a `ValueError` if two tokenizers differ in a special id: a model has one set."""
    if source.special_ids != target.special_ids:
        raise ValueError(
            "both tokenizers must have the same special ids. "
            f"Received: source {source.special_ids._asdict()}, "
            f"target {target.special_ids._asdict()}"
        )
