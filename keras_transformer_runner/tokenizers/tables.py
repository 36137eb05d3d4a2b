"""Tokenizers that look pieces up in a table: bytes, characters, and words split beforehand.

Their graph ops are TensorFlow's own, so that a server needs no TensorFlow Text.
"""

import collections
import functools
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from keras_transformer_runner.lines import BYTE_ORDER_MARK
from keras_transformer_runner.tokenizers.base import (
    UNKNOWN,
    Tokenizer,
    strings,
    without_surrogates,
)

_SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
_FORMAT = 1


class _TableTokenizer(Tokenizer):
    """Special ids, pad 0, unk 1, bos 2 and eos 3 but in another layout, then a table's entries.

    Args:
        keys: What `_split` may give, as bytes, in the order of their ids.
        surfaces: What each of them adds to a decoded text, as bytes.
        unused: How many ids without text follow.
    """

    pad_id, unk_id, bos_id, eos_id = range(len(_SPECIAL))
    kind = None  # names the class in a file
    _special = _SPECIAL  # the pieces before the table's

    def __init__(self, keys, surfaces, unused=0):
        start = len(self._special)
        self.vocab_size = start + len(keys) + unused
        self._keys = keys
        self._ids = {key: token for token, key in enumerate(keys, start=start)}
        self._surfaces = [b""] * start + surfaces + [b""] * unused
        self._surfaces[self.unk_id] = self._surface_of_unknown()

    def _surface_of_unknown(self):
        return UNKNOWN.encode()

    def _fields(self):
        """What tells this tokenizer from others of its kind."""
        return {}

    def to_bytes(self) -> bytes:
        fields = {"format": _FORMAT, "type": self.kind, **self._fields()}
        if self.prefix_ids:
            fields["prefix_ids"] = self.prefix_ids
        return (json.dumps(fields, ensure_ascii=False) + "\n").encode()

    @functools.cached_property
    def pieces(self) -> list[str]:
        return [*self._special, *(key.decode() for key in self._keys)]

    def _encode(self, text):
        return [self._ids.get(key, self.unk_id) for key in self._split(text)]

    def _decode(self, ids):
        text = b"".join(self._surfaces[token] for token in ids)
        return text.decode("utf-8", "replace")

    @functools.cached_property
    def tf_table(self) -> Any:
        """The `tf.lookup.StaticHashTable` from pieces to ids."""
        import tensorflow as tf

        with tf.init_scope():  # also when first used while a graph is traced
            ids = len(self._special) + tf.range(len(self._keys), dtype=tf.int64)
            entries = tf.lookup.KeyValueTensorInitializer(tf.constant(self._keys), ids)
            return tf.lookup.StaticHashTable(entries, default_value=self.unk_id)

    @property
    def tf_resources(self) -> Any:
        return self.tf_table

    def _tf_encode(self, texts):
        import tensorflow as tf

        ids = self.tf_table.lookup(self._tf_split(texts))
        return tf.cast(ids, tf.int32)

    def _tf_decode(self, ids):
        import tensorflow as tf

        surfaces = tf.gather(tf.constant(self._surfaces), ids)
        text = tf.strings.reduce_join(surfaces, axis=1)
        return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")


class BytesTokenizer(_TableTokenizer):
    """The bytes of UTF-8: 260 ids, no training, no unknown text, as ByT5 (arXiv 2105.13626).

    ASCII white space at the ends of a text is dropped. Bytes that are no UTF-8 decode to U+FFFD.

    Args:
        layout: `None` for the special ids of this package, or `"byt5"` for those of ByT5's models:
            pad 0, which also is BOS, eos 1, unk 2.
        vocab_size: V of a model with more ids than these, which stand for no text; `None` for 260,
            or 384 in ByT5's layout.

    Raises:
        ValueError: if the layout is unknown or `vocab_size` too small.

    Example:
        >>> tokenizer = kt.BytesTokenizer()
        >>> tokenizer.vocab_size, tokenizer.encode("é")
        (260, [199, 173])
        >>> tokenizer.decode([199, 173])
        'é'
        >>> kt.BytesTokenizer(layout="byt5").encode("é")
        [198, 172]
    """

    kind = "bytes"

    def __init__(self, *, layout: str | None = None, vocab_size: int | None = None):
        if layout not in (None, "byt5"):
            raise ValueError(f"`layout` must be None or 'byt5'. Received: {layout!r}")
        self.layout = layout
        size = 260
        if layout == "byt5":
            self._special = ("<pad>", "</s>", "<unk>")
            self.pad_id, self.eos_id, self.unk_id, self.bos_id = 0, 1, 2, 0
            size = 384
        size = size if vocab_size is None else vocab_size
        keys = [bytes([value]) for value in range(256)]
        unused = size - len(self._special) - len(keys) if type(size) is int else -1
        if unused < 0:
            raise ValueError(
                f"`vocab_size` must be an integer of at least {len(self._special) + len(keys)}. "
                f"Received: {vocab_size!r}"
            )
        super().__init__(keys, list(keys), unused)

    def _fields(self):
        if self.layout is None and self.vocab_size == 260:
            return {}
        return {"layout": self.layout, "vocab_size": self.vocab_size}

    @functools.cached_property
    def pieces(self) -> list[str]:
        pieces = [*self._special, *(f"<0x{value:02X}>" for value in range(256))]
        return pieces + [f"<unused_{token}>" for token in range(len(pieces), self.vocab_size)]

    def _split(self, text):
        content = _stripped(text)
        return [content[index : index + 1] for index in range(len(content))]

    def _tf_split(self, texts):
        import tensorflow as tf

        return tf.strings.bytes_split(tf.strings.strip(texts))


class CharacterTokenizer(_TableTokenizer):
    """Unicode code points, one id each; others are unk.

    Nothing is normalised: give NFC or NFD, but the same in training and use. ASCII white space at
    the ends of a text is dropped.

    Args:
        characters: Different characters, in the order of their ids.

    Raises:
        ValueError: if an item is not one character, or comes twice.

    Example:
        >>> tokenizer = kt.CharacterTokenizer.train(["banana"])
        >>> tokenizer.pieces
        ['<pad>', '<unk>', '<s>', '</s>', 'a', 'n', 'b']
        >>> tokenizer.encode("nab!")
        [5, 4, 6, 1]
    """

    kind = "characters"

    def __init__(self, characters: Iterable[str]):
        characters = _strings("characters", characters)
        wrong = next((item for item in characters if len(item) != 1), None)
        _check_entries("characters", "one character each", characters, wrong)
        keys = [character.encode() for character in characters]
        super().__init__(keys, keys)

    @classmethod
    def train(cls, sentences: Iterable[str], *, min_count: int = 1) -> "CharacterTokenizer":
        """The characters that occur at least `min_count` times, the most frequent first.

        Raises:
            ValueError: if there is no text, or nothing is left.
            TypeError: if `sentences` is one string, or holds something else.
        """
        counts = collections.Counter()
        for sentence in strings(sentences):
            counts.update(_stripped(sentence).decode())
        return cls(_frequent(counts, min_count, None))

    def _fields(self):
        return {"characters": "".join(self.pieces[len(_SPECIAL) :])}

    def _split(self, text):
        return [character.encode() for character in _stripped(text).decode()]

    def _tf_split(self, texts):
        import tensorflow as tf

        return tf.strings.unicode_split(tf.strings.strip(texts), "UTF-8", errors="replace")


class VocabularyTokenizer(_TableTokenizer):
    """A fixed vocabulary over text that is already split: white space ends a piece.

    A piece that ends in `joiner`, as subword-nmt writes `ca@@ t@@ s`, joins the next one when
    decoded; the others are followed by a space. ASCII white space splits, nothing is normalised,
    and pieces outside the vocabulary are unk.

    Args:
        words: Different pieces without white space, in the order of their ids.
        joiner: What marks a piece that goes on; `""` for none.

    Raises:
        ValueError: if a piece is empty, holds white space, or comes twice.

    Example:
        >>> tokenizer = kt.VocabularyTokenizer(["a", "ca@@", "t"])
        >>> tokenizer.encode("a ca@@ t")
        [4, 5, 6]
        >>> tokenizer.decode([4, 5, 6])
        'a cat'
    """

    kind = "vocabulary"

    def __init__(self, words: Iterable[str], *, joiner: str = "@@"):
        if isinstance(words, str):
            raise ValueError(f"`words` must be a list of strings. Received: {words[:60]!r}")
        words = _strings("words", words)
        _strings("joiner", [joiner])
        wrong = next((word for word in words if [word.encode()] != word.encode().split()), None)
        _check_entries("words", "pieces without white space", words, wrong)
        self.joiner = joiner
        keys = [word.encode() for word in words]
        super().__init__(keys, [self._surface(key) for key in keys])

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        *,
        vocab_size: int | None = None,
        min_count: int = 1,
        joiner: str = "@@",
    ) -> "VocabularyTokenizer":
        """The most frequent pieces of split text; of equals, the first in alphabetical order.

        Args:
            sentences: An iterable of strings.
            vocab_size: The most ids, special ones included; `None` for no limit.
            min_count: Pieces that occur less often are left out.
            joiner: What marks a piece that goes on.

        Raises:
            ValueError: if there is no text, or nothing is left.
            TypeError: if `sentences` is one string, or holds something else.
        """
        counts = collections.Counter()
        if vocab_size is not None and (type(vocab_size) is not int or vocab_size <= len(_SPECIAL)):
            raise ValueError(
                f"`vocab_size` must be an integer above {len(_SPECIAL)}, the special ids. "
                f"Received: {vocab_size!r}"
            )
        for sentence in strings(sentences):
            counts.update(word.decode() for word in sentence.encode().split())
        return cls(_frequent(counts, min_count, vocab_size), joiner=joiner)

    @classmethod
    def from_file(cls, path: os.PathLike | str, *, joiner: str = "@@") -> "VocabularyTokenizer":
        """Reads a list with a piece a line, such as fairseq's `dict.txt`.

        What follows white space in a line, such as a count, is ignored.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is not UTF-8 or holds no pieces, or one twice.
        """
        path = pathlib.Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"a vocabulary file must exist. Received: {path}")
        try:
            lines = path.read_bytes().removeprefix(BYTE_ORDER_MARK)
            lines.decode("utf-8")
            # White space of ASCII alone parts: other spaces may be pieces.
            words = [line.split()[0].decode() for line in lines.split(b"\n") if line.split()]
            return cls([word for word in words if word not in _SPECIAL], joiner=joiner)
        except ValueError as error:
            raise ValueError(f"a vocabulary must be UTF-8, a piece a line: {path}: {error}") from (
                error
            )

    def plain_text(self, text: str) -> str:
        pieces = without_surrogates(text).encode().split()
        return b"".join(map(self._surface, pieces)).decode().removesuffix(" ")

    def corpus_text(self, ids: Sequence[int]) -> str:
        control = {self.pad_id, self.bos_id, self.eos_id, *self.prefix_ids}
        return " ".join(self.pieces[each] for each in ids if each not in control)

    def _surface_of_unknown(self):
        return self._surface(UNKNOWN.encode())

    def _surface(self, key):
        joiner = self.joiner.encode()
        if joiner and key.endswith(joiner):
            return key.removesuffix(joiner)
        return key + b" "

    def _fields(self):
        return {"joiner": self.joiner, "words": self.pieces[len(_SPECIAL) :]}

    def _split(self, text):
        return text.encode().split()

    def _decode(self, ids):
        return super()._decode(ids).removesuffix(" ")

    def _tf_split(self, texts):
        import tensorflow as tf

        return tf.strings.split(texts)

    def _tf_decode(self, ids):
        import tensorflow as tf

        return tf.strings.regex_replace(super()._tf_decode(ids), r" \z", "")


def _stripped(text):
    """UTF-8 without the white space of ASCII at its ends, as `tf.strings.strip` leaves it."""
    return text.encode().strip()


_KINDS = {kind.kind: kind for kind in (BytesTokenizer, CharacterTokenizer, VocabularyTokenizer)}


def from_fields(fields):
    """The tokenizer of a file's fields, as `to_bytes` wrote them.

    Raises:
        ValueError: if they describe none.
    """
    fields = dict(fields)
    version, kind = fields.pop("format", None), fields.pop("type", None)
    if version != _FORMAT or kind not in [*_KINDS]:  # which takes what cannot be a key too
        raise ValueError(
            f"a tokenizer's file must have format {_FORMAT} and one of the types {list(_KINDS)}. "
            f"Received: format={version!r}, type={kind!r}"
        )
    prefix_ids = fields.pop("prefix_ids", [])
    if type(prefix_ids) is not list or any(type(each) is not int for each in prefix_ids):
        raise ValueError(
            f"a tokenizer's `prefix_ids` must be a list of integers. Received: {prefix_ids!r}"
        )
    try:
        return _KINDS[kind](**fields).with_prefix(prefix_ids)
    except TypeError as error:
        raise ValueError(
            f"a file of type {kind!r} must have its fields. Received: {list(fields)}"
        ) from error


def _strings(name, entries):
    try:
        entries = list(entries)
    except TypeError:
        entries = [entries]
    if others := [entry for entry in entries if not isinstance(entry, str)]:
        raise ValueError(f"`{name}` must hold strings. Received: {others[0]!r}")
    return entries


def _check_entries(name, rule, entries, wrong):
    if not entries:
        raise ValueError(f"`{name}` must hold at least one entry. Received: none")
    if wrong is not None:
        raise ValueError(f"`{name}` must be {rule}. Received: {wrong!r}")
    if len(set(entries)) < len(entries):
        twice = next(entry for entry, count in collections.Counter(entries).items() if count > 1)
        raise ValueError(f"`{name}` must be different. Received twice: {twice!r}")


def _frequent(counts, min_count, vocab_size):
    """Entries by falling count."""
    if not counts:
        raise ValueError("`sentences` must hold text. Received: no sentence that is not empty")
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    kept = (entry for entry, count in ordered if count >= min_count)
    if ordered[0][1] < min_count:
        raise ValueError(
            f"`min_count` must be reached by an entry: the most frequent one occurs "
            f"{ordered[0][1]} times. Received: min_count={min_count}"
        )
    return list(itertools.islice(kept, None if vocab_size is None else vocab_size - len(_SPECIAL)))
