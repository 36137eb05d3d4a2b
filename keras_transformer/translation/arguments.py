"""Checks of what a `Translator` is given."""

import operator

from keras_transformer_runner.tokenizers.base import SpecialIds


def listed(name, items, of="strings"):
    """What an argument holds, as a list: a generator, and a series with labels of its own, too."""
    try:
        if not isinstance(items, (str, bytes)):
            return list(items)
    except TypeError:
        pass
    raise TypeError(f"`{name}` must be a list of {of}. Received: {items!r:.100}")


def integers(name, ids):
    """A row of ids as a list of `int`."""
    try:
        return [*map(operator.index, ids)]
    except TypeError:
        raise TypeError(f"`{name}` must hold rows of integers. Received: {ids!r:.100}") from None


def check_prefixes_and_shortlists(inputs, count, vocab_size):
    """Raises ValueError unless each text has a row, and all ids lie in the target's vocabulary.

    Args:
        inputs: Lists of rows of ids, by their names in `decode`.
        count: Texts.
        vocab_size: V of the target.
    """
    for name, rows in inputs.items():
        if len(rows) != count:
            argument = "prefixes" if name == "prefix_ids" else name
            raise ValueError(
                f"`{argument}` must be as many as the texts. Received: {len(rows)} for {count} "
                "texts"
            )
        for ids in rows:
            if not all(0 <= token < vocab_size for token in ids):
                raise ValueError(f"ids must lie in [0, {vocab_size}). Received: {ids}")


def check_tokenizer(tokenizer, role, config, vocab_size):
    """Raises unless a tokenizer is one, and agrees with the model on vocabulary and special ids.

    Args:
        tokenizer: The tokenizer.
        role: Name of the argument that it was given as.
        config: The model's.
        vocab_size: V of its side.

    Raises:
        TypeError: if it lacks one of these attributes.
        ValueError: if it disagrees with the model.
    """
    ids = SpecialIds._fields
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
