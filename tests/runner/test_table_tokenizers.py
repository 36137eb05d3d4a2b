"""Bytes, characters and fixed vocabularies: Python and the graph agree, and files come back."""

import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer_runner.tokenizers import (
    BytesTokenizer,
    CharacterTokenizer,
    SentencePieceTokenizer,
    VocabularyTokenizer,
    find_tokenizer,
    load_tokenizer,
)

TEXTS = [
    "ca@@ t s@@ at",
    "",
    "   ",
    "\n",
    " a  b\tc\x0bd \r\n",
    "\u3000",
    "a\u3000b\u00a0c",
    "</s> hi <pad> <s> <unk>",
    "e\u0301 \u00e9 \u0130",
    "\U0001f468\u200d\U0001f469",
    "a\x00b\ufffd \x1c\x85",
    "@@ @@@@ x@@",
]
KINDS = {
    "bytes": BytesTokenizer,
    "bytes of ByT5": lambda: BytesTokenizer(layout="byt5"),
    "characters": lambda: CharacterTokenizer.train(TEXTS[::2]),
    "vocabulary": lambda: VocabularyTokenizer.train(TEXTS[::2]),
    "no joiner": lambda: VocabularyTokenizer.train(TEXTS[::2], joiner=""),
}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return KINDS[request.param]()


def check_in_the_graph(tokenizer, texts):
    ids = [tokenizer.encode(text) for text in texts]
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    assert tokenizer.tf_encode(tf.constant(encoded)).to_list() == ids
    width = max([1, *map(len, ids)])
    rows = np.full((len(ids), width), tokenizer.pad_id, "int32")
    for row, found in zip(rows, ids, strict=True):
        row[: len(found)] = found
    decoded = [text.decode() for text in tokenizer.tf_decode(rows).numpy()]
    assert decoded == [tokenizer.decode(found) for found in ids]


def test_awkward_text_has_the_same_ids_and_text_in_the_graph(tokenizer):
    check_in_the_graph(tokenizer, TEXTS)


@pytest.mark.quick(1)
@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(codec=None)) | st.text("ab@ \t\x0b\u00e9"), min_size=1))
@pytest.mark.parametrize("kind", KINDS)
def test_any_text_has_the_same_ids_in_the_graph(kind, texts):
    check_in_the_graph(CACHED[kind], texts)


CACHED = {kind: make() for kind, make in KINDS.items()}


@pytest.mark.quick(1)
@settings(max_examples=100, deadline=None)
@given(st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_any_ids_have_the_same_text_in_the_graph(kind, data):
    tokenizer = CACHED[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=9))
    found = tokenizer.tf_decode(np.array([[*ids, tokenizer.eos_id]], "int32")).numpy()[0]
    assert found.decode() == tokenizer.decode(ids)


@settings(max_examples=100, deadline=None)
@given(raw=st.binary(max_size=12))
def test_bytes_that_are_not_utf8_are_replaced_as_python_does(raw):
    for tokenizer in CACHED.values():
        ids = tokenizer.tf_encode(tf.constant([raw])).to_list()[0]
        assert ids == tokenizer.encode(raw.decode("utf-8", "replace"))


def test_no_text_makes_a_special_id_but_unk(tokenizer):
    special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
    of_byt5 = getattr(tokenizer, "layout", None) == "byt5"
    assert tokenizer.special_ids == ((0, 2, 0, 1) if of_byt5 else (0, 1, 2, 3))
    for text in [*TEXTS, *tokenizer.pieces]:
        assert not special & set(tokenizer.encode(text))


@pytest.mark.parametrize("text", ["", "   ", "\n", "\t \x0b"])
def test_text_without_content_has_no_ids(tokenizer, text):
    assert tokenizer.encode(text) == []
    assert tokenizer.tf_encode(tf.constant([text, "a"])).to_list()[0] == []
    assert tokenizer.decode([]) == ""


def test_bytes_spell_every_text():
    tokenizer = BytesTokenizer()
    assert tokenizer.vocab_size == 260
    assert tokenizer.encode("Aé") == [4 + 0x41, 4 + 0xC3, 4 + 0xA9]
    for text in TEXTS:
        # What bytes.strip() takes for white space.
        assert tokenizer.decode(tokenizer.encode(text)) == text.encode().strip().decode()
    assert tokenizer.decode([4 + 0xC3]) == "\ufffd"
    assert tokenizer.pieces[4 + 0x41] == "<0x41>"


def test_bytes_with_the_ids_of_byt5(tmp_path):
    tokenizer = BytesTokenizer(layout="byt5", vocab_size=300)
    assert tokenizer.encode("Aé") == [3 + 0x41, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode([259, 3 + 0x41, 299, 2, 1, 3 + 0x42]) == "A⁇"  # others have no text
    assert tokenizer.pieces[:4] + tokenizer.pieces[258:260] == [
        *("<pad>", "</s>", "<unk>", "<0x00>", "<0xFF>", "<unused_259>")
    ]
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert (loaded.vocab_size, loaded.special_ids) == (300, tokenizer.special_ids)
    assert BytesTokenizer(layout="byt5").vocab_size == 384
    assert load_tokenizer(tmp_path / "tokenizer.json").fingerprint == tokenizer.fingerprint


def test_the_layout_of_bytes_is_checked():
    with pytest.raises(ValueError, match="`layout` must be None or 'byt5'. Received: 'utf16'"):
        BytesTokenizer(layout="utf16")
    for size in (258, 300.0):
        with pytest.raises(ValueError, match="`vocab_size` must be an integer of at least 259"):
            BytesTokenizer(layout="byt5", vocab_size=size)


def test_characters_are_ordered_by_count_and_others_are_unknown():
    tokenizer = CharacterTokenizer.train(["abba", "c b", "d"], min_count=2)
    assert tokenizer.pieces[4:] == ["b", "a"]
    assert tokenizer.encode("abc") == [5, 4, 1]
    assert tokenizer.decode([5, 4, 1]) == "ab⁇"


def test_all_characters_of_the_trained_text_are_known():
    """At its ends too, where other white space than that of ASCII is kept."""
    texts = ["\u3000abc\u00a0", "ab\x1c", "\x85a\u2028", " \t\x0b a \u2003 \r\n", *TEXTS]
    tokenizer = CharacterTokenizer.train(texts)
    assert all(tokenizer.unk_id not in tokenizer.encode(text) for text in texts)
    read = {token for text in texts for token in tokenizer.encode(text)}
    assert len(read) == tokenizer.vocab_size - 4  # and none that is never read


def test_a_vocabulary_joins_what_was_split():
    tokenizer = VocabularyTokenizer.train(["ca@@ t ca@@ r", "t"])
    assert tokenizer.pieces[4:] == ["ca@@", "t", "r"]
    assert tokenizer.encode(" ca@@  t dog ") == [4, 5, 1]
    assert tokenizer.decode([4, 5, 6, 3, 6]) == "cat r"
    assert tokenizer.decode([5, 1, 4]) == "t ⁇ ca"
    assert VocabularyTokenizer.train(["ca@@ t"], joiner="").decode([4, 5]) == "ca@@ t"


def test_a_vocabulary_is_cut_by_size_and_count():
    sentences = ["a b c", "a b", "a"]
    assert VocabularyTokenizer.train(sentences, vocab_size=6).pieces[4:] == ["a", "b"]
    assert VocabularyTokenizer.train(sentences, min_count=3).pieces[4:] == ["a"]


def test_a_list_with_counts_is_a_vocabulary(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("ca@@ 12\nt 7\n\n<unk> 3\n\u3000 1\n", encoding="utf-8")
    assert VocabularyTokenizer.from_file(path).pieces[4:] == ["ca@@", "t", "\u3000"]
    with pytest.raises(FileNotFoundError, match="a vocabulary file must exist"):
        VocabularyTokenizer.from_file(tmp_path / "none")
    path.write_bytes(b"a 1\n\xff 2\n")
    with pytest.raises(ValueError, match="must be UTF-8, a piece a line: .*dict.txt"):
        VocabularyTokenizer.from_file(path)


def test_save_and_load(tokenizer, tmp_path):
    path = tmp_path / f"tokenizer{tokenizer.file_suffix}"
    tokenizer.save(path)
    loaded = load_tokenizer(path)
    assert type(loaded) is type(tokenizer)
    assert loaded.pieces == tokenizer.pieces
    assert loaded.fingerprint == tokenizer.fingerprint
    assert [loaded.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]
    assert find_tokenizer(tmp_path) == path
    assert find_tokenizer(tmp_path, "target_tokenizer") is None


def test_any_kind_is_loaded_by_its_content(tmp_path):
    tokenizer = SentencePieceTokenizer.train(["abc"] * 5, 8, model_type="char")
    tokenizer.save(tmp_path / "tokenizer.model")
    assert load_tokenizer(tmp_path / "tokenizer.model").model_proto == tokenizer.model_proto
    assert find_tokenizer(tmp_path) == tmp_path / "tokenizer.model"


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"type": "bytes"}, "must have format 1 .* Received: format=None, type='bytes'"),
        ({"format": 1, "type": "words"}, "one of the types .* Received: format=1, type='words'"),
        ({"format": 1, "type": ["words"]}, r"tokenizer.json: .* one of the types .*\['words'\]"),
        ({"format": 1, "type": "characters"}, "of type 'characters' must have its fields"),
        ({"format": 1, "type": "characters", "characters": ""}, "at least one entry"),
        ({"format": 1, "type": "vocabulary", "words": ["a", "a"]}, "Received twice: 'a'"),
        ({"format": 1, "type": "vocabulary", "words": ["a b"]}, "without white space. .*'a b'"),
        ({"format": 1, "type": "vocabulary", "words": [""]}, "without white space. .*''"),
        ({"format": 1, "type": "vocabulary", "words": ["a", 1.5]}, "`words` must hold str.* 1.5"),
        ({"format": 1, "type": "vocabulary", "words": 7}, "`words` must hold strings.* 7"),
        ({"format": 1, "type": "vocabulary", "words": "ab"}, "must be a list of strings.* 'ab'"),
        ({"format": 1, "type": "vocabulary", "words": ["a"], "joiner": 0}, "`joiner` must .* 0"),
        ({"format": 1, "type": "characters", "characters": ["a", None]}, "`characters` .* None"),
    ],
)
def test_wrong_files_are_refused(tmp_path, fields, message):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=message):
        load_tokenizer(path)


def test_a_file_that_is_no_tokenizer(tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(FileNotFoundError, match="must be a tokenizer's file"):
        load_tokenizer(path)
    for content in (b"{]", b'{"type":' * 100_000):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="tokenizer.json"):
            load_tokenizer(path)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="one character each. Received: 'ab'"):
        CharacterTokenizer(["a", "ab"])
    for kind in (CharacterTokenizer, VocabularyTokenizer):
        with pytest.raises(ValueError, match="`sentences` must hold text"):
            kind.train(["", " "])
    with pytest.raises(TypeError, match="`text` must be a string"):
        BytesTokenizer().encode(b"a")
    with pytest.raises(ValueError, match="vocab_size=260. Received: 260"):
        BytesTokenizer().decode([260])


def test_both_directions_export_without_ops_of_tensorflow_text(tokenizer, tmp_path):
    module = tf.Module()
    module.resources = tokenizer.tf_resources
    module.encode = tf.function(
        lambda texts: tokenizer.tf_encode(texts).to_tensor(tokenizer.pad_id),
        input_signature=[tf.TensorSpec((None,), tf.string)],
    )
    module.decode = tf.function(
        tokenizer.tf_decode, input_signature=[tf.TensorSpec((None, None), tf.int32)]
    )
    tf.saved_model.save(module, tmp_path / "m")
    loaded = tf.saved_model.load(tmp_path / "m")
    ids = loaded.encode(tf.constant(TEXTS))
    found = [text.decode() for text in loaded.decode(ids).numpy()]
    assert found == [tokenizer.decode(tokenizer.encode(text)) for text in TEXTS]
    assert b"Sentencepiece" not in (tmp_path / "m" / "saved_model.pb").read_bytes()
