"""SentencePiece with the special ids of this package, in Python and as TensorFlow graph ops."""

import functools
import hashlib
import io
import itertools
import os
import pathlib
import re
import struct
from collections.abc import Iterable
from typing import Any

from keras_transformer_runner.protobuf import packed_field, read_fields, read_packed
from keras_transformer_runner.tokenizers.base import Tokenizer, strings

MODEL_TYPES = ("unigram", "bpe", "char")
NORMALIZATIONS = ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")

# Scores are rounded to multiples of 1/256 when a vocabulary is learnt: see `_with_exact_scores`.
_SCORE_STEPS = 256

# The `prefix_ids` in a model's file, before all else. SentencePiece's format leaves the numbers
# from 200 on to others, and every reader of it passes over what it does not know.
_PREFIX_FIELD = 4747
_PREFIX_TAG = packed_field(_PREFIX_FIELD, ())[:-1]


class SentencePieceTokenizer(Tokenizer):
    """Text to ids and back, the same in Python and in a TensorFlow graph.

    `encode` and `decode` use the `sentencepiece` library, `tf_encode` and `tf_decode` the ops of
    TensorFlow Text; both run the same model, so they give the same ids and the same text. Text
    that a user types never becomes a control id: `"</s>"` is spelled out in ordinary pieces.
    `""` and text of white space only have no pieces, and no pieces decode to `""`.

    Text that has come out of `decode(encode(text))` may change once more when it goes through
    again: an unknown piece reads as `" ⁇ "`, whose spaces and sign have ids of their own (U+2047 is
    `??` by the rules with NFKC). From the second time on it stays.

    Args:
        model_proto: A serialized SentencePiece model, as `train` makes and `save` writes. It must
            define pad, unk and eos, and pad, bos and eos must be control symbols. Without a bos,
            as T5 and tf-models train them, the decoder starts with pad: `bos_id` is `pad_id`.
            What `save` wrote holds the `prefix_ids` too.

    Raises:
        TypeError: if `model_proto` is not bytes.
        ValueError: if it is no SentencePiece model, or lacks one of the special ids.

    Example:
        >>> sentences = ["a man rides a horse", "a woman rides a bike"] * 20
        >>> tokenizer = kt.SentencePieceTokenizer.train(sentences, vocab_size=40)
        >>> tokenizer.decode(tokenizer.encode("a horse rides a man"))
        'a horse rides a man'
        >>> tokenizer.special_ids
        SpecialIds(pad_id=0, unk_id=1, bos_id=2, eos_id=3)
    """

    def __init__(self, model_proto: bytes):
        if not isinstance(model_proto, bytes):
            raise TypeError(f"`model_proto` must be bytes. Received: {type(model_proto).__name__}")
        self.model_proto, prefix_ids = _split(model_proto)
        self._processor = _load_processor(self.model_proto)
        self.vocab_size = self._processor.get_piece_size()
        self.pad_id = self._processor.pad_id()
        self.unk_id = self._processor.unk_id()
        self.bos_id = self._processor.bos_id()
        if self.bos_id < 0:
            self.bos_id = self.pad_id
        self.eos_id = self._processor.eos_id()
        self._check_special_ids()
        if prefix_ids:
            self.prefix_ids = self.with_prefix(prefix_ids).prefix_ids

    def _check_special_ids(self):
        ids = {name: getattr(self, name) for name in ("pad_id", "unk_id", "eos_id")}
        missing = [name for name, value in ids.items() if value < 0]
        if missing:
            raise ValueError(
                "`model_proto` must define unk, and pad and eos as control symbols, which no "
                "text can produce (train with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3). "
                f"Received a model without: {missing}"
            )

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        vocab_size: int,
        *,
        model_type: str = "unigram",
        character_coverage: float = 1.0,
        byte_fallback: bool = False,
        split_digits: bool = False,
        normalization: str = "nmt_nfkc",
        max_sentences: int | None = None,
    ) -> "SentencePieceTokenizer":
        """Learns a vocabulary: pad 0, unk 1, bos 2, eos 3, then pieces.

        The same sentences and options always give the same vocabulary.

        Args:
            sentences: An iterable of strings, read once; give both languages for a joint
                vocabulary.
            vocab_size: The number of ids wanted. A corpus too small for it gives fewer (see the
                `vocab_size` of the result).
            model_type: `"unigram"`, `"bpe"` or `"char"`.
            character_coverage: Share of the corpus' characters that get a piece; the rest is unk.
            byte_fallback: Whether a character without a piece is spelled in UTF-8 bytes and not
                unk. Takes 256 of the ids.
            split_digits: Whether every digit is a piece of its own.
            normalization: SentencePiece's rule, part of the model and so the same everywhere.
                `"nmt_nfkc"` and `"nfkc"` join e + accent into one character and replace
                compatibility characters (U+FE30 becomes `..`); `"identity"` leaves characters
                as they are, so that NFC and NFD text get different ids. `_cf` also folds case.
                All keep zero-width joiners; and all, `"identity"` too, drop spaces at the ends,
                make one of several, and take U+2581, SentencePiece's sign for a space, for one.
            max_sentences: Learn from at most this many (over 100), drawn at random; `None` for
                all.

        Raises:
            ValueError: if there is no text, an option is unknown, or `vocab_size` is too small
                for the characters (and bytes) that need an id.
            TypeError: if `sentences` is one string, or holds something else.
        """
        check_training_options(
            vocab_size, model_type, character_coverage, normalization, max_sentences
        )
        sentences = (text for text in strings(sentences) if text.strip())
        first = next(sentences, None)
        if first is None:
            raise ValueError("`sentences` must hold text. Received: no sentence that is not empty")
        proto = _train_proto(
            itertools.chain([first], sentences),
            vocab_size=vocab_size,
            model_type=model_type,
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            split_digits=split_digits,
            normalization_rule_name=normalization,
            input_sentence_size=max_sentences or 0,
            shuffle_input_sentence=max_sentences is not None,
        )
        return cls(_with_exact_scores(proto) if model_type == "unigram" else proto)

    @classmethod
    def load(cls, path: os.PathLike | str) -> "SentencePieceTokenizer":
        """Reads a SentencePiece `.model` file.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is not a model with the special ids of this package.
        """
        path = pathlib.Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"`path` must be a SentencePiece model file. Received: {path}")
        try:
            return cls(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    file_suffix = ".model"

    def to_bytes(self) -> bytes:
        """The SentencePiece model, behind the `prefix_ids` if there are any."""
        if not self.prefix_ids:
            return self.model_proto
        return packed_field(_PREFIX_FIELD, self.prefix_ids) + self.model_proto

    def _encode(self, text):
        return self._processor.encode(text)

    def _decode(self, ids):
        return self._processor.decode(ids)

    @functools.cached_property
    def pieces(self) -> list[str]:
        """The pieces of the vocabulary as strings, by id."""
        return [self._processor.id_to_piece(token) for token in range(self.vocab_size)]

    @functools.cached_property
    def tf_tokenizer(self) -> Any:
        """The `tensorflow_text.SentencepieceTokenizer`: an exported module must track it."""
        import tensorflow as tf
        import tensorflow_text
        from tensorflow_text.python.ops import sentencepiece_tokenizer as internals

        def create():
            # With a shared name: `tf.random.set_seed` would delete a tokenizer's own resource
            # (tensorflow/text#570), and all without a name in a SavedModel would be the same one.
            return internals.gen_sentencepiece_tokenizer.sentencepiece_op(
                model=self.model_proto, shared_name=hashlib.sha256(self.model_proto).hexdigest()
            )

        with tf.init_scope():  # also when first used while a graph is traced
            tokenizer = tensorflow_text.SentencepieceTokenizer(self.model_proto, out_type=tf.int32)
            tokenizer._model_resource._resource_handle = create()
            tokenizer._model_resource._create_resource = create  # what a SavedModel calls
        return tokenizer

    @property
    def tf_resources(self) -> Any:
        return self.tf_tokenizer

    def _tf_encode(self, texts):
        return self.tf_tokenizer.tokenize(texts)

    def _tf_decode(self, ids):
        return self.tf_tokenizer.detokenize(ids)


def _split(content):
    """The SentencePiece model in the bytes of a file, and the `prefix_ids` before it."""
    if not content.startswith(_PREFIX_TAG):
        return content, ()
    try:
        _, start, end = next(read_fields(content, 0, len(content)))
        return content[end:], read_packed(content[start:end])
    except IndexError:
        raise ValueError(
            "`model_proto` must be a serialized SentencePiece model. Received: prefix ids that are "
            f"cut off, {len(content)} bytes"
        ) from None


def _load_processor(model_proto):
    import sentencepiece

    rule = "`model_proto` must be a serialized SentencePiece model."
    if not model_proto:  # which SentencePiece would take for "load one later"
        raise ValueError(f"{rule} Received: 0 bytes")
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model_proto)
    except RuntimeError as error:
        raise ValueError(f"{rule} Received: {len(model_proto)} bytes ({error})") from error


def check_training_options(
    vocab_size, model_type, character_coverage, normalization, max_sentences
):
    """Raises a `ValueError` for options of `SentencePieceTokenizer.train` that no text can mend."""
    if model_type not in MODEL_TYPES:
        raise ValueError(f"`model_type` must be one of {MODEL_TYPES}. Received: {model_type!r}")
    if normalization not in NORMALIZATIONS:
        raise ValueError(
            f"`normalization` must be one of {NORMALIZATIONS}. Received: {normalization!r}"
        )
    if not 0.98 <= character_coverage <= 1:
        raise ValueError(
            f"`character_coverage` must be in [0.98, 1]. Received: {character_coverage!r}"
        )
    if not isinstance(vocab_size, int) or vocab_size < 5:
        raise ValueError(
            "`vocab_size` must be an integer >= 5 (four special ids and a piece). "
            f"Received: {vocab_size!r}"
        )
    if max_sentences is not None and (not isinstance(max_sentences, int) or max_sentences < 101):
        raise ValueError(
            f"`max_sentences` must be an integer over 100. Received: {max_sentences!r}"
        )


# SentencePiece leaves out, without a word, lines of more than 4,192 bytes unless told otherwise,
# and those that hold the character with which it ends a sentence while it learns.
_LONGEST, _RESERVED = 1 << 30, "\u2585"


def _train_proto(sentences, *, vocab_size, **options):
    import sentencepiece

    failures = []

    def watched():
        try:
            for text in sentences:
                yield text.replace(_RESERVED, " ")
        except Exception as error:
            failures.append(error)
            raise

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=watched(),
            model_writer=model,
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            max_sentence_length=_LONGEST,
            minloglevel=2,  # errors only
            **options,
        )
    except RuntimeError as error:
        if failures:  # the corpus', not SentencePiece's
            raise failures[0] from None
        reason = re.sub(r"^\w+: \S+ \[.*\] (?=\w)", "", str(error))  # no C++ file and line
        raise ValueError(
            f"a vocabulary could not be learnt: {reason} Received: vocab_size={vocab_size}, "
            + ", ".join(f"{name}={value!r}" for name, value in options.items())
        ) from error
    return model.getvalue()


def _with_exact_scores(model_proto):
    """Rounds a unigram model's scores so that float32 sums of them are exact.

    "0" + "00" and "00" + "0" score the same, and the `sentencepiece` library and TensorFlow Text
    both keep the first of two equal splits. But they add up in different ways, so that rounding
    errors would decide, and the two would give different ids. Multiples of 1/256 have no rounding
    errors below 65,536, thousands of pieces.
    """
    return with_scores(model_proto, lambda score: round(score * _SCORE_STEPS) / _SCORE_STEPS)


def with_scores(model_proto, change):
    """A SentencePiece model whose pieces have other scores.

    They are written in place of the old ones.

    Args:
        model_proto: The model, bytes.
        change: Function of a score that gives the new one.
    """
    content = bytearray(model_proto)
    for number, start, end in read_fields(content, 0, len(content)):
        if number != 1:  # ModelProto.pieces
            continue
        for inner, at, _ in read_fields(content, start, end):
            if inner == 2:  # SentencePiece.score
                (score,) = struct.unpack_from("<f", content, at)
                struct.pack_into("<f", content, at, change(score))
    return bytes(content)
