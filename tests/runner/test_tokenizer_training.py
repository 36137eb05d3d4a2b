"""Learning a vocabulary: what it takes, what it refuses, and that it is repeatable."""

import itertools
import random

import pytest
from toy_sentences import SENTENCES

from keras_transformer_runner.atomic import TargetInUseError, locked
from keras_transformer_runner.tokenizers import (
    CharacterTokenizer,
    SentencePieceTokenizer,
    VocabularyTokenizer,
)


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


def test_one_process_learns_a_file(tmp_path):
    """The second is refused before it has learnt for hours."""
    from keras_transformer.experiment import learn_tokenizer

    (tmp_path / "in").write_text("\n".join(SENTENCES))
    options = {"vocab_size": 60}
    with locked(tmp_path / "a.model"), pytest.raises(TargetInUseError, match="written by process"):
        learn_tokenizer([tmp_path / "in"], tmp_path / "a.model", options)
    with pytest.raises(FileNotFoundError, match="none"):
        learn_tokenizer([tmp_path / "none"], tmp_path / "new" / "a.model", options)
    (tmp_path / ".1f00ba47.writing.a.model").touch()  # of a dead one
    made = learn_tokenizer([tmp_path / "in"], tmp_path / "a.model", options)
    with pytest.raises(FileExistsError, match="a tokenizer needs a new file"):
        learn_tokenizer([tmp_path / "in"], tmp_path / "a.model", options)
    assert (tmp_path / "a.model").read_bytes() == made.to_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.model", "in"]


def test_no_line_is_left_out():
    """SentencePiece does so with long ones, and with those that hold its sign of an end."""
    long = "omega zeta " * 700
    learnt = SentencePieceTokenizer.train([*SENTENCES, long, "qx \u2585 qx"] * 3, 90)
    assert learnt.unk_id not in learnt.encode("omega zeta qx")


@pytest.mark.parametrize(
    "train",
    [
        lambda sentences: SentencePieceTokenizer.train(sentences, 90),
        CharacterTokenizer.train,
        VocabularyTokenizer.train,
    ],
)
def test_one_string_is_no_corpus(train):
    for odd, message in (
        ("hello world", "`sentences` must be several strings, such as a list. Received: 'hello"),
        (b"hello", "`sentences` must be several strings"),
        (["a", None], "`sentences` must hold strings. Received: an item of type NoneType"),
        ([b"a"], "`sentences` must hold strings. Received: an item of type bytes"),
    ):
        with pytest.raises(TypeError, match=message):
            train(odd)


def test_bounds_of_a_vocabulary_are_named():
    for odd in (2, 4, 5.5, float("nan"), "9", True):
        with pytest.raises(ValueError, match="`vocab_size` must be an integer above 4"):
            VocabularyTokenizer.train(["a b"], vocab_size=odd)
    for kind in (VocabularyTokenizer, CharacterTokenizer):
        with pytest.raises(ValueError, match="`min_count` must be reached.* 2 times.*min_count=3"):
            kind.train(["a b", "a"], min_count=3)


def test_a_list_of_pieces_with_a_mark_and_other_spaces(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_bytes("\ufeffthe 5\na 3\n\u3000\n\u00a0\n\n \t\nb 1\n".encode())
    assert VocabularyTokenizer.from_file(path).pieces[4:] == ["the", "a", "\u3000", "\u00a0", "b"]
