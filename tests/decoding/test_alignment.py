"""Alignments are the cross-attention of a teacher-forced pass; unknown words come from them."""

import numpy as np
import pytest
from backend import array, compiled
from toy_model import BOS, EOS, PAD, frozen_toy, sources, toy_config

from keras_transformer.decoding import align
from keras_transformer.models import LanguageModel, attention_scores
from keras_transformer.translation.copy_unknown import source_words, with_source_words
from keras_transformer_runner.tokenizers import SentencePieceTokenizer
from keras_transformer_runner.tokenizers.tables import CharacterTokenizer, VocabularyTokenizer

LENGTHS, TARGET_LENGTHS = [7, 3, 1], [5, 2, 4]


def pair():
    target_ids = sources(TARGET_LENGTHS, seed=3)
    return sources(LENGTHS), target_ids


def toy():
    return frozen_toy(decoder_layers=3)


@pytest.mark.parametrize(("layer", "head"), [(None, None), (0, 2), (-1, None), (2, 0)])
def test_equals_the_attention_by_hand(layer, head):
    model, (source_ids, target_ids) = toy(), pair()
    inputs = np.concatenate([np.full((3, 1), BOS, "int32"), target_ids[:, :-1]], axis=1)
    weights = attention_scores(model, source_ids, inputs).cross[1 if layer is None else layer]
    weights = weights.mean(axis=1) if head is None else weights[:, head]
    found = align(model, source_ids, target_ids, layer=layer, head=head)
    positions, probabilities = array(found.positions), array(found.probabilities)
    for row, (length, target_length) in enumerate(zip(LENGTHS, TARGET_LENGTHS, strict=True)):
        own = weights[row, :target_length]
        np.testing.assert_allclose(probabilities[row, :target_length], own, atol=1e-6)
        content = max(length - 1, 1)  # not EOS, but where it is all there is
        expected = own[:, :content].argmax(axis=1)
        np.testing.assert_array_equal(positions[row, :target_length], expected)
        assert np.all(positions[row, target_length:] == -1)
        assert np.all(probabilities[row, target_length:] == 0)
        assert np.all(probabilities[row, :, length:] == 0)
    assert positions.dtype == np.int32


def test_pads_and_xla_change_nothing():
    model, ids = toy(), pair()
    expected = array(align(model, *ids).positions)
    padded = [np.pad(x, ((0, 0), (0, 4)), constant_values=PAD) for x in ids]
    found = array(compiled(lambda *x: align(model, *x).positions)(*padded))
    np.testing.assert_array_equal(found[:, : expected.shape[1]], expected)
    assert np.all(found[:, expected.shape[1] :] == -1)


def test_never_eos_though_all_look_at_it(monkeypatch):
    model, (source_ids, target_ids) = toy(), pair()

    def looks_at_eos(source_ids, inputs):
        is_eos = np.asarray(source_ids == EOS, "float32")[:, None, None]
        return [], [], [np.broadcast_to(is_eos, (3, 3, 5, 7)).copy()] * 3

    monkeypatch.setattr(model, "attention_scores", looks_at_eos)
    positions = array(align(model, source_ids, target_ids).positions)
    assert positions[0].tolist() == [0] * 5 and positions[2].tolist() == [0] * 4 + [-1]


@pytest.mark.parametrize("arguments", [dict(layer=3), dict(layer=-4), dict(head=3), dict(head=-4)])
def test_layers_and_heads_that_are_not_there(arguments):
    ((name, value),) = arguments.items()
    message = rf"`{name}` must be in \[-3, 3\). Received: {name}={value}"
    with pytest.raises(ValueError, match=message):
        align(toy(), *pair(), **arguments)


def test_a_language_model_has_nothing_to_align():
    with pytest.raises(TypeError, match="`model` must be a `Transformer`.*LanguageModel"):
        align(LanguageModel(toy_config()), *pair())


# --- Unknown words -------------------------------------------------------------------------

WORDS = VocabularyTokenizer(["a", "b@@", "c", "the"])
CHARACTERS = CharacterTokenizer("ab c")
UNK = WORDS.unk_id


@pytest.fixture(scope="module")
def pieces():
    return SentencePieceTokenizer.train(["ab", "b a c", "cab a", "abc abc b"] * 3, 13)


def test_words_of_a_source(pieces):
    assert source_words(WORDS, " a Zürich b@@ c") == ["a", "Zürich", "b@@", "c"]
    assert source_words(CHARACTERS, " aéb xa") == ["a", "é", "b", " ", "x", "a"]
    text = "ab 漢字 c"
    found = source_words(pieces, text)
    assert len(found) == len(pieces.encode(text))
    unknown = [w for w, t in zip(found, pieces.encode(text), strict=True) if t == pieces.unk_id]
    assert unknown == ["漢字"]
    assert source_words(WORDS, "") == []


def test_an_id_stands_for_its_text_where_stretches_are_not_known():
    class Twice:
        unk_id = 1

        def encode(self, text):
            return [5, 1, 5, 1]

        def decode(self, ids):
            return "x" if ids == [5] else "?"

    assert source_words(Twice(), "abc def") == ["x", "", "x", ""]


def test_unknown_words_are_replaced_in_their_place(pieces):
    ids = [*WORDS.encode("the"), UNK, *WORDS.encode("b@@ c"), UNK]
    words = ["Zürich", "⁇", "x"]
    assert WORDS.decode(ids) == "the ⁇ bc ⁇"
    assert with_source_words(WORDS, ids, [0, 0, 2, 2, 2], words) == "the Zürich bc x"
    assert with_source_words(WORDS, ids, [0, 9, 2, 2, -1], words) == "the ⁇ bc ⁇"
    assert with_source_words(WORDS, ids, [0, 1, 2, 2, 0], words) == "the ⁇ bc Zürich"
    ids = [*pieces.encode("ab"), *pieces.encode("漢"), *pieces.encode("c")]
    positions = [1 if token == pieces.unk_id else 0 for token in ids]
    assert with_source_words(pieces, ids, positions, ["ab", "漢"]).split() == ["ab", "漢", "c"]
    ids = [CHARACTERS.unk_id, *CHARACTERS.encode("a"), CHARACTERS.unk_id]
    assert with_source_words(CHARACTERS, ids, [1, 0, 0], ["q", "⁇r"]) == "⁇raq"
