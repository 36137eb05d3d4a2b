"""The pieces of a `tokenizer.json`, as the SentencePiece model that it was made from.

Newer folders of Hugging Face's hold no other file. Only what SentencePiece does too is taken over:
its normalization, spaces as pieces, and the models unigram and BPE.
"""

import base64
import re

from keras_transformer_runner.tokenizers.renumbered import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    Piece,
    PieceTable,
)

# What SentencePiece does of itself: one space for several, and none at the ends.
_SPACES = ("Replace", "Strip", "WhitespaceSplit")
_BYTE = re.compile("<0x[0-9A-F]{2}>")


def read_pieces(content: dict) -> PieceTable:
    """A `PieceTable` of the content of a `tokenizer.json`, with its pieces at their ids.

    Raises:
        ValueError: if it is damaged, or does what SentencePiece does not.
    """
    try:
        return _read(content)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"a tokenizer.json must have its fields ({error!r})") from error


def _read(content):
    model = content["model"]
    readers = {"Unigram": (UNIGRAM, _unigram), "BPE": (BPE, _bpe)}
    if model["type"] not in readers:
        raise ValueError(f"`model` must be one of {list(readers)}. Received: {model['type']!r}")
    model_type, read = readers[model["type"]]
    scores, unknown = read(model)
    has_bytes = bool(model.get("byte_fallback"))
    special = {each["content"] for each in content["added_tokens"] if each["special"]}
    pieces = []
    for token, (text, score) in enumerate(scores):
        kind = CONTROL if text in special else NORMAL
        if token == unknown:
            kind = UNKNOWN
        elif has_bytes and _BYTE.fullmatch(text):
            kind = BYTE
        pieces.append(Piece(text, float(score), kind))
    return PieceTable.make(
        pieces,
        model_type,
        charsmap=_charsmap(content["normalizer"]),
        adds_space=_adds_space(content["pre_tokenizer"]),
    )


def _unigram(model):
    """Pieces with scores, by id, and the id of what is unknown."""
    return [(text, score) for text, score in model["vocab"]], model["unk_id"]


def _bpe(model):
    """The same, of merges in their order: SentencePiece makes the piece of the best score first."""
    extras = ("continuing_subword_prefix", "end_of_word_suffix", "dropout")
    if odd := [name for name in extras if model.get(name)]:
        raise ValueError(f"`{odd[0]}` of a BPE model must be none. Received: {model[odd[0]]!r}")
    scores = {}
    for rank, pair in enumerate(model["merges"]):
        left, right = pair.split(" ") if isinstance(pair, str) else pair
        scores.setdefault(left + right, -rank)
    ids = model["vocab"]
    pieces = sorted(ids, key=ids.get)
    if [ids[text] for text in pieces] != list(range(len(pieces))):
        raise ValueError("`vocab` of a BPE model must have the ids from 0 on, each once")
    last = -len(model["merges"])
    return [(text, scores.get(text, last)) for text in pieces], ids[model["unk_token"]]


def _steps(part, inner):
    """The steps of a normalizer or a pre-tokenizer, which may be a sequence of them or none."""
    if part is None:
        return []
    return part[inner] if part["type"] == "Sequence" else [part]


def _charsmap(normalizer):
    """SentencePiece's own table of what becomes of characters; nothing for none."""
    charsmap = b""
    for step in _steps(normalizer, "normalizers"):
        if step["type"] == "Precompiled":
            charsmap = base64.b64decode(step["precompiled_charsmap"] or "", validate=True)
        elif step["type"] not in _SPACES:
            raise ValueError(
                "`normalizer` must be one of SentencePiece's, 'Precompiled' and spaces. "
                f"Received: {step['type']!r}"
            )
    return charsmap


def _adds_space(pre_tokenizer):
    """Whether a text gets a space before it."""
    adds_space = True
    for step in _steps(pre_tokenizer, "pretokenizers"):
        if step["type"] == "Metaspace":
            adds_space = step.get("prepend_scheme") != "never" and step.get(
                "add_prefix_space", True
            )
        elif step["type"] not in _SPACES:
            raise ValueError(
                f"`pre_tokenizer` must be SentencePiece's, 'Metaspace'. Received: {step['type']!r}"
            )
    return adds_space
