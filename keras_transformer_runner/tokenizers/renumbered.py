"""A SentencePiece model whose pieces have the ids of another project's model.

Other projects keep a SentencePiece model and a table from its pieces to ids: in a file, or by rules
such as fairseq's order. Here both become one SentencePiece model with these ids, so that the
library in Python, TensorFlow Text, a phone and a browser give them without a table.
"""

import dataclasses
import functools
import struct
from collections.abc import Collection, Mapping
from typing import NamedTuple

from keras_transformer_runner.protobuf import bytes_field, read_fields, read_number, varint_field
from keras_transformer_runner.tokenizers.base import SpecialIds
from keras_transformer_runner.tokenizers.sentence_piece import SentencePieceTokenizer

# Kinds of pieces.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2  # kinds of models

# Fields of a model, of its trainer's settings and of a piece.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_MODEL_TYPE, _BYTE_FALLBACK = 3, 35
_CHARSMAP, _ADDS_SPACE = 2, 3
_NAMES = {"unk_id": 45, "bos_id": 46, "eos_id": 47, "pad_id": 48}
_PIECE, _SCORE, _KIND = 1, 2, 3

# How much less likely than its rarest piece SentencePiece takes what it does not know to be.
_UNKNOWN_PENALTY = 10
# Scores are multiples of 1/8192: float32 adds them exactly below 2,048, some 200 pieces.
_SCORE_STEPS = 8192


class Piece(NamedTuple):
    """A piece of a SentencePiece model."""

    text: str
    score: float
    kind: int = NORMAL


@dataclasses.dataclass(frozen=True)
class PieceTable:
    """A SentencePiece model: its pieces, and its settings as they are written.

    Example:
        >>> from keras_transformer_runner.tokenizers.renumbered import PieceTable
        >>> model = kt.SentencePieceTokenizer.train(["a man rides a horse"] * 9, vocab_size=20)
        >>> table = PieceTable.read(model.to_bytes())
        >>> [piece.text for piece in table.pieces[:4]]
        ['<pad>', '<unk>', '<s>', '</s>']
    """

    pieces: list[Piece]
    settings: bytes  # fields of the model

    @classmethod
    def read(cls, model_proto: bytes) -> "PieceTable":
        """Reads a SentencePiece model.

        Raises:
            ValueError: if it is none.
        """
        pieces, settings = [], b""
        try:
            for number, start, end in read_fields(model_proto, 0, len(model_proto)):
                if end > len(model_proto):
                    raise ValueError("the model ends within a field")
                if number == _PIECES:
                    pieces.append(_read_piece(model_proto[start:end]))
                elif number in (_TRAINER, _NORMALIZER):
                    settings += bytes_field(number, model_proto[start:end])
        except (IndexError, struct.error, ValueError) as error:
            raise ValueError(
                f"`model_proto` must be a serialized SentencePiece model ({error}). "
                f"Received: {len(model_proto)} bytes"
            ) from error
        return cls(pieces, settings)

    @classmethod
    def make(
        cls, pieces: list[Piece], model_type: int, *, charsmap: bytes = b"", adds_space: bool = True
    ) -> "PieceTable":
        """A model of pieces.

        Args:
            pieces: The pieces.
            model_type: `UNIGRAM` or `BPE`.
            charsmap: What becomes of characters, as SentencePiece compiles it; empty for nothing.
            adds_space: Whether a text gets a space before it.
        """
        has_bytes = any(piece.kind == BYTE for piece in pieces)
        trainer = varint_field(_MODEL_TYPE, model_type) + varint_field(_BYTE_FALLBACK, has_bytes)
        normalizer = bytes_field(_CHARSMAP, charsmap) + varint_field(_ADDS_SPACE, adds_space)
        return cls(pieces, bytes_field(_TRAINER, trainer) + bytes_field(_NORMALIZER, normalizer))

    @functools.cached_property
    def model_type(self) -> int:
        """`UNIGRAM`, `BPE`, or another kind."""
        return self._trainer(_MODEL_TYPE, UNIGRAM)

    @functools.cached_property
    def lowest_score(self) -> float:
        return min((piece.score for piece in self.pieces if piece.kind == NORMAL), default=0.0)

    @functools.cached_property
    def has_bytes(self) -> bool:
        """Whether it spells what it does not know in bytes."""
        return sum(piece.kind == BYTE for piece in self.pieces) == 256

    def _trainer(self, wanted, default):
        value = default
        for number, start, end in read_fields(self.settings, 0, len(self.settings)):
            if number == _TRAINER:
                for inner, at, _ in read_fields(self.settings, start, end):
                    value = read_number(self.settings, at) if inner == wanted else value
        return value

    def to_bytes(self, special_ids: SpecialIds) -> bytes:
        """The model as bytes, with these special ids.

        A unigram model's scores are rounded to multiples of 1/8192. Sums of them are exact, so that
        libraries that add them up in different ways find the same pieces; and a choice that is not
        a tie stays.
        """
        rounded = self.model_type == UNIGRAM
        content = b"".join(_piece_field(piece, rounded) for piece in self.pieces)
        # A message that follows another of the same field is merged into it.
        names = {
            number: self.pieces[getattr(special_ids, name)].text.encode()
            for name, number in _NAMES.items()
        }
        trainer = b"".join(bytes_field(number, name) for number, name in names.items())
        if not self.has_bytes:
            trainer += varint_field(_BYTE_FALLBACK, 0)
        return content + self.settings + bytes_field(_TRAINER, trainer)


def _read_piece(content):
    text, score, kind = "", 0.0, NORMAL
    for number, start, end in read_fields(content, 0, len(content)):
        if number == _PIECE:
            text = content[start:end].decode()
        elif number == _SCORE:
            (score,) = struct.unpack_from("<f", content, start)
        elif number == _KIND:
            kind = read_number(content, start)
    return Piece(text, score, kind)


def _piece_field(piece, rounded):
    score = round(piece.score * _SCORE_STEPS) / _SCORE_STEPS if rounded else piece.score
    body = bytes_field(_PIECE, piece.text.encode()) + b"\x15" + struct.pack("<f", score)
    return bytes_field(_PIECES, body + varint_field(_KIND, piece.kind))


def renumbered(
    table: PieceTable,
    ids: Mapping[str, int],
    special_ids: SpecialIds,
    vocab_size: int,
    *,
    controls: Collection[str] = (),
) -> SentencePieceTokenizer:
    """The tokenizer of a SentencePiece model whose pieces get the ids of a table.

    Pieces that only the table has are decoded and never encoded, such as those of the other
    language of a joint vocabulary. But where the model knows none of a piece's characters, such a
    piece is found, as by programs that look up in the table what SentencePiece hands out as it was.
    Pieces that only the model has are spelled in others.

    Args:
        table: The SentencePiece model.
        ids: Pieces with their ids, special ones included.
        special_ids: The special ids. BOS may be the pad or EOS.
        vocab_size: V; ids without a piece become control symbols.
        controls: Pieces of `ids`, besides the special ones, that no text may produce, such as those
            of languages.

    Returns:
        A `SentencePieceTokenizer`.

    Raises:
        ValueError: if an id is outside [0, vocab_size) or has two pieces, the model is damaged, or
            a piece of a BPE model has no id and there is none to spare.

    Example:
        >>> from keras_transformer_runner.tokenizers.base import SpecialIds
        >>> from keras_transformer_runner.tokenizers.renumbered import PieceTable, renumbered
        >>> model = kt.SentencePieceTokenizer.train(["a man rides a horse"] * 9, vocab_size=20)
        >>> ids = {piece: 100 - token for token, piece in enumerate(model.pieces)}
        >>> special_ids = SpecialIds(pad_id=100, unk_id=99, bos_id=100, eos_id=97)
        >>> tokenizer = renumbered(PieceTable.read(model.to_bytes()), ids, special_ids, 101)
        >>> [100 - token for token in tokenizer.encode("a man")] == model.encode("a man")
        True
    """
    _check_ids(ids, special_ids, vocab_size)
    own = {piece.text: piece for piece in table.pieces}
    if any(piece.kind == BYTE and piece.text not in ids for piece in table.pieces):
        # It spells with all bytes or none.
        own = {text: _without_byte(piece) for text, piece in own.items()}
    placed = {}
    for text, token in ids.items():
        is_control = text in controls or not text
        placed[token] = _control(text, token, ids) if is_control else _piece_of(text, own, table)
    for name, token in special_ids._asdict().items():
        text = placed[token].text if token in placed else ""
        kind = UNKNOWN if name == "unk_id" else CONTROL
        placed[token] = _control(text, token, ids)._replace(kind=kind)
    spare = _without_id(table, ids) if table.model_type == BPE else []
    free = [token for token in range(vocab_size) if token not in placed]
    if len(spare) > len(free):
        raise ValueError(
            "each piece of a BPE model must have an id, since others are merged from it. "
            f"Received: {len(spare)} without one, such as {spare[0].text!r}, and {len(free)} free"
        )
    placed |= {token: _control("", token, ids) for token in free}
    placed |= dict(zip(free, (piece._replace(kind=UNUSED) for piece in spare), strict=False))
    pieces = [placed[token] for token in range(vocab_size)]
    return SentencePieceTokenizer(PieceTable(pieces, table.settings).to_bytes(special_ids))


def _check_ids(ids, special_ids, vocab_size):
    placed: dict[int, str] = {}
    for text, token in ids.items():
        if type(token) is not int or not 0 <= token < vocab_size:
            raise ValueError(
                f"an id of a piece must be in [0, vocab_size) with vocab_size={vocab_size}. "
                f"Received: {text!r} with id {token!r}"
            )
        if token in placed:
            raise ValueError(
                "an id must have one piece. "
                f"Received: {placed[token]!r} and {text!r} with id {token}"
            )
        placed[token] = text
    for name, token in special_ids._asdict().items():
        if not 0 <= token < vocab_size:
            raise ValueError(
                f"`{name}` must be in [0, vocab_size) with vocab_size={vocab_size}. "
                f"Received: {token}"
            )


def _control(text, token, taken):
    """A control symbol, with a name of its own where it has no text."""
    name = text or f"<unused_{token}>"
    while not text and name in taken:
        name += "_"
    return Piece(name, 0.0, CONTROL)


def _without_byte(piece):
    return piece._replace(kind=CONTROL) if piece.kind == BYTE else piece


def _without_byte(piece):
    return piece._replace(kind=CONTROL) if piece.kind == BYTE else piece


def _piece_of(text, own, table):
    """The piece of a table's entry that is not special."""
    if text in own and own[text].kind != UNKNOWN:
        return own[text]
    if own.keys().isdisjoint(text) and not table.has_bytes:  # none of its characters has a piece
        return Piece(text, table.lowest_score - _UNKNOWN_PENALTY)
    # In a BPE model such pieces take part in merges, and are taken apart after the last of them.
    return Piece(text, table.lowest_score - 1 if table.model_type == BPE else 0.0, UNUSED)


def _without_id(table, ids):
    special = (UNKNOWN, CONTROL)
    return [each for each in table.pieces if each.kind not in special and each.text not in ids]
