"""Text to text in Python: tokenize, batch by length, decode, detokenize."""

import functools

import keras
import numpy as np

from keras_transformer.arguments import check_size
from keras_transformer.decoding.compiled import compiled
from keras_transformer.decoding.greedy import Greedy
from keras_transformer.decoding.result import decode


class Translator:
    """Translates lists of strings with a model and its tokenizer.

    Sentences are sorted by length and decoded in batches; each gets the text that it would get
    alone. A second call traces nothing.

    Args:
        model: A `Transformer`.
        tokenizer: The tokenizer it was trained with; that of the source, where the target has
            another.
        strategy: A search strategy.
        target_tokenizer: The target's tokenizer; `tokenizer` when `None`.
        batch_size: Sentences a batch.
        max_source_length: Longest source in tokens, EOS included. A longer one is an error, as
            what was cut off would be missing from the answer. A model with learned positions
            also limits it to `max_positions`.

    Raises:
        TypeError: if `model` has no encoder or no decoder; a `LanguageModel` continues prompts
            with `decoding.generate`.
        ValueError: if a tokenizer and the model disagree on the vocabulary or a special id.
    """

    def __init__(
        self,
        model,
        tokenizer,
        strategy=None,
        *,
        target_tokenizer=None,
        batch_size=64,
        max_source_length=1024,
    ):
        if not all(hasattr(model, name) for name in ("config", "encode", "start", "step")):
            raise TypeError(
                "`model` must be a `Transformer`, or have its `config`, `encode`, `start` and "
                f"`step`. Received: {type(model).__name__}"
            )
        target_tokenizer = target_tokenizer or tokenizer
        _check_tokenizer(tokenizer, "tokenizer", model.config, model.config.vocab_size)
        _check_tokenizer(
            target_tokenizer, "target_tokenizer", model.config, model.config.target_size
        )
        check_size(batch_size=batch_size, max_source_length=max_source_length)
        self.model = model
        self.tokenizer = tokenizer
        self.target_tokenizer = target_tokenizer
        self.strategy = strategy or Greedy()
        self.batch_size = batch_size
        self.max_source_length = min(
            max_source_length, model.config.max_positions or max_source_length
        )
        self._decode = compiled(functools.partial(decode, model, strategy=self.strategy), model)

    def translate(self, texts):
        """A translation for each text, in order; an empty text gives an empty one.

        Args:
            texts: Sequence of `str`.

        Raises:
            TypeError: if `texts` is one string.
            ValueError: if a text is longer than `max_source_length` tokens.
        """
        if isinstance(texts, (str, bytes)):
            raise TypeError(f"`texts` must be a list of strings. Received: {texts!r}")
        sources = [self.source_ids(text) for text in texts]
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        translations = [""] * len(sources)
        for first in range(0, len(order), self.batch_size):
            chosen = order[first : first + self.batch_size]
            rows = self.translate_ids(self.pad([sources[index] for index in chosen]))
            for index, row in zip(chosen, rows, strict=True):
                translations[index] = self.target_tokenizer.decode(row)
        return translations

    def translate_ids(self, source_ids):
        """(B, S) int ids, pieces and EOS, then pads -> list of B lists of ids, without EOS or pads.

        Raises:
            TypeError: if `source_ids` are not rows of integers.
            ValueError: if an id lies outside [0, vocab_size).
        """
        config = self.model.config
        source_ids = np.asarray(source_ids)
        if not len(source_ids):
            return []
        if source_ids.ndim != 2 or (source_ids.size and source_ids.dtype.kind not in "iu"):
            raise TypeError(
                "`source_ids` must be (B, S) integers. Received: "
                f"shape={source_ids.shape}, dtype={source_ids.dtype}"
            )
        if source_ids.size and not (source_ids.min() >= 0 and source_ids.max() < config.vocab_size):
            raise ValueError(
                f"ids must lie in [0, {config.vocab_size}). Received: "
                f"{source_ids.min()} to {source_ids.max()}"
            )
        source_ids = source_ids.astype("int32")
        ids = keras.ops.convert_to_numpy(self._decode(source_ids).ids)
        return [
            [int(token) for token in row if token not in (config.pad_id, config.eos_id)]
            for row in ids
        ]

    def source_ids(self, text):
        """The ids of one text, EOS at the end, as the encoder takes them."""
        ids = [*self.tokenizer.encode(text), self.tokenizer.eos_id]
        if len(ids) > self.max_source_length:
            raise ValueError(
                f"a text must have at most `max_source_length` = {self.max_source_length} tokens. "
                f"Received: {len(ids)} tokens, {text[:60]!r}…"
            )
        return ids

    def pad(self, rows):
        """Lists of ids -> (B, longest) int32 with pads."""
        padded = np.full((len(rows), max(map(len, rows))), self.tokenizer.pad_id, "int32")
        for row, ids in zip(padded, rows, strict=True):
            row[: len(ids)] = ids
        return padded


def _check_tokenizer(tokenizer, role, config, vocab_size):
    expected = {name: getattr(config, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    for name, ours in {"vocab_size": vocab_size, **expected}.items():
        theirs = getattr(tokenizer, name)
        if ours != theirs:
            raise ValueError(
                f"`{role}` and the model must have the same `{name}`. "
                f"Received: tokenizer {theirs}, model {ours}"
            )
