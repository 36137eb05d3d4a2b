"""What a `Translator` is given beside the texts, once it is known to fit the model."""


def guides_of(translator, count, prefixes, allowed_ids):
    """What `decode` takes beside the source: lists of rows of ids, by its argument's name.

    Args:
        translator: The `Translator`.
        count: Texts.
        prefixes, allowed_ids: As of `Translator.translate`.

    Raises:
        TypeError: if `prefixes` is one string.
        ValueError: if there is not one for each text, or an id lies outside the vocabulary.
    """
    config, guides = translator.model.config, {}
    if isinstance(prefixes, (str, bytes)):
        raise TypeError(f"`prefixes` must be a list of strings. Received: {prefixes!r}")
    if prefixes is not None:
        guides["prefix_ids"] = [translator.target_tokenizer.encode(text) for text in prefixes]
    if allowed_ids is not None:
        # EOS may always come, and stands for an empty list.
        guides["allowed_ids"] = [[*map(int, ids)] or [config.eos_id] for ids in allowed_ids]
    for name, rows in guides.items():
        if len(rows) != count:
            given = {"prefix_ids": "prefixes"}.get(name, name)
            raise ValueError(
                f"`{given}` must be as many as the texts. Received: {len(rows)} for {count} texts"
            )
        for ids in rows:
            if not all(0 <= token < config.target_size for token in ids):
                raise ValueError(f"ids must lie in [0, {config.target_size}). Received: {ids}")
    return guides


def check_tokenizer(tokenizer, role, config, vocab_size):
    """Raises unless a tokenizer is one, and agrees with the model on vocabulary and special ids.

    Args:
        tokenizer: The tokenizer.
        role: The argument that it came in.
        config: The model's.
        vocab_size: V of its side.

    Raises:
        TypeError: if it lacks one of these attributes.
        ValueError: if it disagrees with the model.
    """
    ids = ("pad_id", "unk_id", "bos_id", "eos_id")
    missing = [name for name in ("vocab_size", *ids) if not hasattr(tokenizer, name)]
    if missing:
        raise TypeError(
            f"`{role}` must have `vocab_size` and the special ids `pad_id`, `unk_id`, `bos_id` and "
            f"`eos_id`. Received: {type(tokenizer).__name__} without {', '.join(missing)}"
        )
    expected = {name: getattr(config, name) for name in ids}
    for name, ours in {"vocab_size": vocab_size, **expected}.items():
        theirs = getattr(tokenizer, name)
        if ours != theirs:
            raise ValueError(
                f"`{role}` and the model must have the same `{name}`. "
                f"Received: tokenizer {theirs}, model {ours}"
            )
