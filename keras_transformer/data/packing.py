"""Several short pairs in one row, so that fewer positions are pads."""

import numpy as np

from keras_transformer.config import TransformerConfig
from keras_transformer.data.tokenized import TokenizedCorpus
from keras_transformer_runner.tokenizers.base import Tokenizer

_OPEN_ROWS = 256
_NEVER = np.iinfo(np.int64).max


def pack_corpus(
    tokenized: TokenizedCorpus, ids: Tokenizer | TransformerConfig, *, length: int
) -> TokenizedCorpus:
    """Joins pairs until their rows are full.

    Best fit: each pair goes into the fullest of 256 open rows that holds both of its sides. In a
    row the pairs stand one behind the other, each side's ids and EOS; batches then give each
    target its own BOS, and a model with `packed=True` keeps the pairs apart.

    Args:
        tokenized: A `TokenizedCorpus`.
        ids: Has the `eos_id`: a tokenizer or a `TransformerConfig`.
        length: Most ids of a row, a side, EOS included.

    Returns:
        A `TokenizedCorpus` whose pairs are rows.

    Raises:
        ValueError: if `length` does not hold the longest pair.

    Example:
        >>> from keras_transformer.data import pack_corpus, tokenize_corpus
        >>> tokenizer = kt.CharacterTokenizer("abc")
        >>> corpus = tokenize_corpus([("a", "b"), ("bc", "a")], tokenizer, max_length=5)
        >>> packed = pack_corpus(corpus, tokenizer, length=6)
        >>> len(packed), packed.source_values.tolist()
        (1, [4, 3, 5, 6])
    """
    needed = np.stack([tokenized.source_lengths, tokenized.target_lengths], axis=1) + 1
    if needed.max() > length:
        raise ValueError(
            "`length` must hold the longest pair, EOS included. "
            f"Received: length={length}, longest={needed.max()}"
        )
    rows = _best_fit(needed, length)
    columns = []
    for values, lengths in (
        (tokenized.source_values, tokenized.source_lengths),
        (tokenized.target_values, tokenized.target_lengths),
    ):
        sides = np.split(values, np.cumsum(lengths)[:-1])
        packed = [_joined([sides[pair] for pair in row], ids.eos_id) for row in rows]
        columns += [np.concatenate(packed), np.array(list(map(len, packed)), np.int32)]
    return type(tokenized)(*columns, tokenized.skipped)


def _best_fit(needed, length):
    """Lists of pairs by row; a pair needs (source, target) positions."""
    rows, open_rows = [], [[] for _ in range(_OPEN_ROWS)]
    room = np.full((_OPEN_ROWS, 2), length)
    for pair, need in enumerate(needed):
        spare = room - need
        spare_sum = np.where(spare.min(axis=1) >= 0, spare.sum(axis=1), _NEVER)
        best = int(spare_sum.argmin())
        if spare_sum[best] == _NEVER:  # none holds it: the fullest is done
            best = int(room.sum(axis=1).argmin())
            rows.append(open_rows[best])
            open_rows[best], room[best] = [], length
        open_rows[best].append(pair)
        room[best] -= need
    return rows + [row for row in open_rows if row]


def _joined(sides, eos_id):
    """Ids with EOS between them; batches add the last one."""
    parts = [sides[0]]
    for side in sides[1:]:
        parts += [np.array([eos_id], np.int32), side]
    return np.concatenate(parts).astype(np.int32)
