"""Copies words that the target vocabulary lacks from the source."""

import functools

from keras_transformer_runner.tokenizers.base import without_surrogates

_OLDER_NAME = "encode_as_immutable_proto"


def source_words(tokenizer, text):
    """The part of `text` that each id of `tokenizer.encode(text)` stands for, as a list.

    SentencePiece knows these parts. For other tokenizers, if there are as many words between white
    space as ids, or as many characters, the parts are these. Otherwise an id stands for the text
    that it decodes to, and unk, whose text is then unknown, for `""`, as the ids of a prefix do.
    """
    text = without_surrogates(text)
    ids = tokenizer.encode(text)
    nothing = [""] * len(getattr(tokenizer, "prefix_ids", ()) if ids else ())
    ids = ids[len(nothing) :]
    if hasattr(tokenizer, "model_proto"):
        processor = _processor(tokenizer.model_proto)
        # SentencePiece of earlier versions has another name for it.
        name = "encode_as_proto" if hasattr(processor, "encode_as_proto") else _OLDER_NAME
        pieces = getattr(processor, name)(text).pieces
        return [*nothing, *(piece.surface.strip() for piece in pieces)]
    for parts in (text.split(), list(text.strip())):
        if len(parts) == len(ids):
            return [*nothing, *parts]
    decoded = ["" if token == tokenizer.unk_id else tokenizer.decode([token]) for token in ids]
    return [*nothing, *decoded]


def with_source_words(tokenizer, ids, positions, words):
    """`tokenizer.decode(ids)` with the source's words instead of unknown ones.

    Args:
        tokenizer: The target's.
        ids: List of int, a row of the target.
        positions: Source position of each id.
        words: Source words by position; an unk whose word is missing or `""` stays.
    """
    text = whole = tokenizer.decode(ids)
    sign = tokenizer.decode([tokenizer.unk_id])
    for place in reversed(range(len(ids))):  # from the end, so that earlier offsets hold
        position = positions[place]
        word = words[position] if 0 <= position < len(words) else ""
        if ids[place] != tokenizer.unk_id or not word:
            continue
        start, end = (tokenizer.decode(ids[:count]) for count in (place, place + 1))
        if not (whole.startswith(end) and end.startswith(start)):
            continue
        span = end[len(start) :]
        found = sign if sign in span else sign.strip()
        text = text[: len(start)] + span.replace(found, word, 1) + text[len(end) :]
    return text


@functools.lru_cache(maxsize=4)
def _processor(model_proto):
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_proto=model_proto)
