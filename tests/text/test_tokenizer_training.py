"""Learning a vocabulary: what it takes, what it refuses, and that it is repeatable."""

import itertools
import random

import pytest
from toy_sentences import SENTENCES

from keras_transformer.text import SentencePieceTokenizer


@pytest.mark.parametrize(
    ("sentences", "options", "message"),
    [
        ([], {}, "`sentences` must hold text"),
        (["", " \n"], {}, "`sentences` must hold text"),
        (SENTENCES, {"vocab_size": 6}, "learnt: Vocabulary size is smaller.*vocab_size=6"),
        (SENTENCES, {"byte_fallback": True}, "learnt: Vocabulary size is smaller.*vocab_size=90"),
        (SENTENCES, {"vocab_size": 4}, "`vocab_size` must be an integer >= 5.*4"),
        (SENTENCES, {"vocab_size": 9.5}, "`vocab_size` must be an integer >= 5.*9.5"),
        (SENTENCES, {"model_type": "word"}, "`model_type` must be one of.*'word'"),
        (SENTENCES, {"normalization": "nfc"}, "`normalization` must be one of.*'nfc'"),
        (SENTENCES, {"character_coverage": 0.5}, r"`character_coverage` must be in \[0.98, 1\]"),
        (SENTENCES, {"max_sentences": 100}, "`max_sentences` must be an integer over 100"),
    ],
)
def test_impossible_training_is_explained(sentences, options, message):
    with pytest.raises(ValueError, match=message):
        SentencePieceTokenizer.train(sentences, **{"vocab_size": 90, **options})


def test_an_error_of_the_corpus_comes_through():
    def sentences():
        yield from SENTENCES
        raise UnicodeError("line 16 is broken")

    with pytest.raises(UnicodeError, match="^line 16 is broken$"):
        SentencePieceTokenizer.train(sentences(), 90)


def test_training_is_deterministic():
    words = ["".join(letters) for letters in itertools.product("abcdef", repeat=4)]
    random.shuffle(words)
    many = [" ".join(words[start : start + 4]) for start in range(0, len(words), 4)]
    first, again, all_sentences = (
        SentencePieceTokenizer.train(many, 100, max_sentences=limit).model_proto
        for limit in (101, 101, None)
    )
    assert first == again
    assert first != all_sentences
