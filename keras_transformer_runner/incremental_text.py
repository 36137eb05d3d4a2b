"""Text that grows with its tokens, and of which nothing is taken back."""


def growing_text(tokens, tokenizer, finish=None):
    """Pieces of text whose concatenation is the text of all tokens.

    What later tokens might change is held back: replacement characters at the end, which may be
    the first bytes of a character, and white space there; with `finish` all from the first unk
    on.

    Args:
        tokens: Iterable of int.
        tokenizer: Of the target.
        finish: `finish(ids) -> str`, the text of all ids; `tokenizer.decode` when `None`.

    Yields:
        Pieces of text, none empty.

    Raises:
        RuntimeError: if the text of more tokens does not begin with the text of fewer.
    """
    ids, given = [], ""
    for token in tokens:
        ids.append(token)
        if finish is None or tokenizer.unk_id not in ids:
            text = tokenizer.decode(ids).rstrip("\ufffd \t\n\r\u3000")
            if text.startswith(given) and text != given:
                yield text[len(given) :]
                given = text
    text = (finish or tokenizer.decode)(ids)
    if not text.startswith(given):
        raise RuntimeError(
            "the text of more tokens must begin with the text of fewer, to be streamed. Received: "
            f"{given!r}, then {text!r}"
        )
    if text != given:
        yield text[len(given) :]
