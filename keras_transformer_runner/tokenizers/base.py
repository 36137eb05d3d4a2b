"""What every tokenizer is: text to ids and back, the same in Python and in a TensorFlow graph."""

import abc
import copy
import functools
import hashlib
import itertools
import operator
import os
from collections.abc import Iterable, Sequence
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

    Ids that go before every text, such as that of a language in a model of many, are the
    `prefix_ids`; `with_prefix` sets them. They are part of what `encode` gives, and `decode` drops
    them. A search starts the target with those of the target's tokenizer.

    Attributes:
        vocab_size: V; ids lie in [0, V).
        pad_id, unk_id, bos_id, eos_id: The special ids.
        prefix_ids: A tuple of ids before every text but an empty one; `()` by default.

    Example:
        >>> tokenizer = kt.BytesTokenizer()
        >>> ids = tokenizer.encode("Hi!")
        >>> ids
        [76, 109, 37]
        >>> tokenizer.decode([*ids, tokenizer.eos_id, tokenizer.pad_id])
        'Hi!'
        >>> tokenizer.tf_encode(["Hi!", ""]).to_list()
        [[76, 109, 37], []]
        >>> tokenizer = kt.VocabularyTokenizer(["<2de>", "a", "dog"]).with_prefix(["<2de>"])
        >>> tokenizer.encode("a dog"), tokenizer.encode(""), tokenizer.decode([4, 5, 6])
        ([4, 5, 6], [], 'a dog')
    """

    vocab_size: int
    pad_id: int
    unk_id: int
    bos_id: int
    eos_id: int
    prefix_ids: tuple[int, ...] = ()

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

    def corpus_text(self, ids: Sequence[int]) -> str:
        """The text of a corpus that `encode` gives these ids for: `decode`, split as before."""
        return self.decode(ids)

    def with_prefix(self, prefix: Iterable[int | str]) -> "Tokenizer":
        """The same tokenizer with other `prefix_ids`; both share what takes memory.

        Args:
            prefix: Ids, or pieces such as `"deu_Latn"`, in their order; none for no prefix.

        Raises:
            TypeError: if it is one string.
            ValueError: if a piece is not in the vocabulary, an id lies outside it, or is that of
                pad, BOS or EOS.
        """
        if isinstance(prefix, (str, bytes)):
            raise TypeError(f"`prefix` must be a list of ids or pieces. Received: {prefix!r}")
        ids = tuple(self._id_of(entry) for entry in prefix)
        others = {self.pad_id, self.bos_id, self.eos_id}
        wrong = [each for each in ids if not 0 <= each < self.vocab_size or each in others]
        if wrong:
            raise ValueError(
                f"`prefix` must hold ids in [0, {self.vocab_size}), not those of pad, BOS and EOS, "
                f"{sorted(others)}. Received: {wrong[0]}"
            )
        other = copy.copy(self)
        vars(other).pop("fingerprint", None)
        other.prefix_ids = ids
        return other

    def _id_of(self, entry):
        if not isinstance(entry, str):
            return operator.index(entry)
        try:
            return self.pieces.index(entry)
        except ValueError:
            raise ValueError(
                f"`prefix` must hold pieces of the vocabulary. Received: {entry!r}"
            ) from None

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides the ids."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def save(self, path: os.PathLike | str) -> None:
        """Writes the tokenizer to one file, which is never seen half-written."""
        from keras_transformer_runner.atomic import write_file  # which a device does not need

        write_file(path, lambda temporary: temporary.write_bytes(self.to_bytes()))

    def encode(self, text: str) -> list[int]:
        """The ids of `text`'s pieces behind the `prefix_ids`, a list of int without BOS and EOS.

        A lone surrogate, which UTF-8 cannot hold, counts as invalid bytes: U+FFFD.

        Raises:
            TypeError: if `text` is not a string.
        """
        if not isinstance(text, str):
            raise TypeError(f"`text` must be a string. Received: {type(text).__name__}")
        ids = self._encode(without_surrogates(text))
        return [*self.prefix_ids, *ids] if self.prefix_ids and ids else ids

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of one row of ids, up to the first EOS; pads, BOS and the prefix are dropped.

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
        ids = ids[(ids != self.pad_id) & (ids != self.bos_id)].tolist()
        return self._decode(ids[self._prefix_length(ids) :])

    def _prefix_length(self, ids):
        """How many ids at the start are the first of the `prefix_ids`."""
        pairs = zip(ids, self.prefix_ids, strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))

    def tf_encode(self, texts: Any) -> Any:
        """`encode` for a batch, as graph ops.

        Args:
            texts: String tensor `(B,)`. Bytes that are not UTF-8 are read as
                `bytes.decode("utf-8", "replace")` reads them.

        Returns:
            int32 `RaggedTensor` `(B, None)`, the prefix and pieces.
        """
        import tensorflow as tf

        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        ids = self._tf_encode(texts)
        return self._tf_with_prefix(ids) if self.prefix_ids else ids

    def _tf_with_prefix(self, ids):
        """A `RaggedTensor` (B, None) with the `prefix_ids` before each row that is not empty."""
        import tensorflow as tf

        has_ids = tf.cast(ids.row_lengths() > 0, tf.int32)
        prefixes = tf.tile(tf.constant(self.prefix_ids, tf.int32), [tf.reduce_sum(has_ids)])
        lengths = tf.cast(has_ids, ids.row_splits.dtype) * len(self.prefix_ids)
        prefixes = tf.RaggedTensor.from_row_lengths(prefixes, lengths, validate=False)
        return tf.concat([prefixes, ids], axis=1)

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
        ids = tf.ragged.boolean_mask(ids, keep)
        return self._tf_decode(self._tf_without_prefix(ids) if self.prefix_ids else ids)

    def _tf_without_prefix(self, ids):
        """A `RaggedTensor` (B, None) without what `_prefix_length` counts of each row."""
        import tensorflow as tf

        length = len(self.prefix_ids)
        first = ids.to_tensor(-1, shape=(None, length))  # -1 is no id
        same = tf.cast(first == tf.constant(self.prefix_ids, tf.int32), tf.int64)
        counts = tf.reduce_sum(tf.math.cumprod(same, axis=1), axis=1)
        places = tf.ragged.range(ids.row_lengths())
        keep = places >= tf.expand_dims(tf.cast(counts, places.dtype), 1)
        return tf.ragged.boolean_mask(ids, keep)

    @property
    def _id_rule(self):
        return f"`ids` must be in [0, vocab_size) with vocab_size={self.vocab_size}."


def check_text_size(text, max_length):
    """Raises a ValueError if a string has more bytes than any text of so many tokens.

    Args:
        text: What `Tokenizer.encode` is to read.
        max_length: The most tokens that may come of it, EOS included.
    """
    if isinstance(text, str) and not fits_size(text, max_length):
        size = len(text.encode("utf-8", "surrogatepass"))
        raise ValueError(
            f"a text must have at most `max_source_length` = {max_length} tokens, and so at most "
            f"{BYTES_A_TOKEN * max_length} bytes. Received: {size} bytes, {text[:60]!r}…"
        )


def fits_size(text, max_length):
    """Whether a string has no more bytes than a text of so many tokens may have."""
    most = BYTES_A_TOKEN * max_length
    return 4 * len(text) <= most or len(text.encode("utf-8", "surrogatepass")) <= most


def strings(sentences):
    """An iterator over sentences to learn from, without surrogates.

    Raises:
        TypeError: if they are one string, or one of them is none.
    """
    if isinstance(sentences, (str, bytes)):
        raise TypeError(
            f"`sentences` must be several strings, such as a list. Received: {sentences!r:.60}"
        )
    return map(_string, sentences)


def _string(sentence):
    if not isinstance(sentence, str):
        raise TypeError(
            f"`sentences` must hold strings. Received: an item of type {type(sentence).__name__}"
        )
    return without_surrogates(sentence)


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
