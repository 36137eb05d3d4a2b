"""Ids before every text, such as a language's: encoded, dropped by decode, and saved."""

import numpy as np
import pytest
import sentencepiece

from keras_transformer_runner.protobuf import packed_field
from keras_transformer_runner.tokenizers import (
    BytesTokenizer,
    SentencePieceTokenizer,
    VocabularyTokenizer,
    load_tokenizer,
)

TEXTS = ["a b", "", "  ", "ba", "b a c a b"]
PREFIX = (7, 290)  # two bytes of a varint


@pytest.fixture(scope="module")
def sentence_piece():
    """Control pieces at the end, nearly 300 ids in all."""
    import io

    model = io.BytesIO()
    languages = [f"<{number}>" for number in range(290)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c", "c b a"] * 9),
        model_writer=model,
        **dict(model_type="char", vocab_size=301, hard_vocab_limit=False, minloglevel=2),
        **dict(pad_id=0, unk_id=1, bos_id=2, eos_id=3, control_symbols=languages),
    )
    return SentencePieceTokenizer(model.getvalue())


@pytest.fixture(scope="module")
def words():
    return VocabularyTokenizer(["<de>", "a", "b", "<x>", *map(str, range(400))])


@pytest.fixture(params=["sentence_piece", "words"])
def plain(request):
    return request.getfixturevalue(request.param)


def test_a_prefix_goes_before_every_text_but_an_empty_one(plain):
    tokenizer = plain.with_prefix(PREFIX)
    assert plain.prefix_ids == () and tokenizer.prefix_ids == PREFIX
    for text in TEXTS:
        ids = plain.encode(text)
        assert tokenizer.encode(text) == ([*PREFIX, *ids] if ids else [])
        assert tokenizer.decode(tokenizer.encode(text)) == plain.decode(ids)
    assert tokenizer.with_prefix([]).encode("a") == plain.encode("a")


def test_decode_drops_what_a_row_has_of_the_prefix_at_its_start(plain):
    tokenizer, (first, second) = plain.with_prefix(PREFIX), PREFIX
    a, eos, pad = *plain.encode("a")[-1:], plain.eos_id, plain.pad_id
    for row, kept in (
        ([first, second, a, eos, a], [a]),
        ([pad, first, pad, second, a], [a]),
        ([first, a, second], [a, second]),
        ([second, first, a], [second, first, a]),
        ([first, second, first, second, a], [first, second, a]),
        ([first, eos, second], []),
        ([], []),
    ):
        assert tokenizer.decode(np.array(row, int)) == plain.decode(kept)
        if row:
            graph = tokenizer.tf_decode([row, [*row[:1], *[pad] * (len(row) - 1)]]).numpy()
            assert graph[0].decode() == plain.decode(kept)
            assert graph[1].decode() == tokenizer.decode(row[:1])


def test_graph_ops_give_the_same_ids(plain):
    tokenizer = plain.with_prefix(PREFIX)
    expected = [tokenizer.encode(text) for text in TEXTS]
    assert tokenizer.tf_encode(TEXTS).to_list() == expected
    assert tokenizer.tf_encode([""]).to_list() == [[]]
    rows = tokenizer.tf_encode(TEXTS).to_tensor(tokenizer.pad_id)
    decoded = [text.decode() for text in tokenizer.tf_decode(rows).numpy()]
    assert decoded == [tokenizer.decode(ids) for ids in expected]


def test_a_file_holds_the_prefix(plain, tmp_path):
    tokenizer, path = plain.with_prefix(PREFIX), tmp_path / f"t{plain.file_suffix}"
    tokenizer.save(path)
    loaded = load_tokenizer(path)
    assert loaded.prefix_ids == PREFIX and loaded.to_bytes() == tokenizer.to_bytes()
    assert [loaded.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]
    assert tokenizer.fingerprint == loaded.fingerprint != plain.fingerprint
    assert loaded.with_prefix(()).to_bytes() == plain.to_bytes()  # as before there were any


def test_other_programs_read_a_sentence_piece_file_with_a_prefix(sentence_piece):
    content = sentence_piece.with_prefix(PREFIX).to_bytes()
    import tensorflow_text

    ids = sentence_piece.encode("a b")
    assert sentencepiece.SentencePieceProcessor(model_proto=content).encode("a b") == ids
    others = tensorflow_text.SentencepieceTokenizer(content)
    assert others.tokenize(["a b"]).to_list() == [ids]


def test_a_prefix_is_given_by_pieces_too(sentence_piece, words):
    assert words.with_prefix(["<de>", 5]).prefix_ids == (4, 5)
    language = sentence_piece.with_prefix(["<3>"])
    assert sentence_piece.pieces[language.prefix_ids[0]] == "<3>"
    assert language.model_proto is sentence_piece.model_proto  # nothing large twice


def test_what_is_no_prefix_is_refused(words, sentence_piece):
    with pytest.raises(TypeError, match="`prefix` must be a list of ids or pieces. Received: 'de'"):
        words.with_prefix("de")
    with pytest.raises(ValueError, match="`prefix` must hold pieces of the vocab.* Received: '<f"):
        words.with_prefix(["<fr>"])
    for wrong in (-1, words.vocab_size, words.pad_id, words.bos_id, words.eos_id):
        with pytest.raises(ValueError, match=rf"not those of pad.*\[0, 2, 3\]. Received: {wrong}"):
            words.with_prefix([5, wrong])
    with pytest.raises(ValueError, match="must hold ids in"):
        SentencePieceTokenizer(packed_field(4747, [9999]) + sentence_piece.model_proto)
    with pytest.raises(ValueError, match="Received: prefix ids that are cut off, 3 bytes"):
        SentencePieceTokenizer(packed_field(4747, [9999])[:3])


@pytest.mark.parametrize("value", ['"de"', "[true]", "[1.5]", "7"])
def test_a_table_file_with_another_prefix_is_refused(value, tmp_path):
    BytesTokenizer().with_prefix([9]).save(tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text()
    (tmp_path / "t.json").write_text(text.replace("[9]", value))
    with pytest.raises(ValueError, match="`prefix_ids` must be a list of integers. Received: "):
        load_tokenizer(tmp_path / "t.json")
