"""Translations with scores, rescoring, and text that grows: all tell the same story."""

import numpy as np
import pytest
from backend import NAME
from toy_model import talkative_toy

from keras_transformer.decoding import BeamSearch, Ensemble, Greedy, Sampling, align
from keras_transformer.translation import Translation, Translator
from keras_transformer_runner.incremental_text import growing_text
from keras_transformer_runner.tokenizers import SentencePieceTokenizer
from keras_transformer_runner.tokenizers.tables import (
    BytesTokenizer,
    CharacterTokenizer,
    VocabularyTokenizer,
)

TEXTS = ["ab", "b a c", "", "cab a", "abc abc b", "c", " ", "bbb aaa ccc abc cba"]
STRATEGIES = {
    "greedy": Greedy(extra_length=5),
    "beam": BeamSearch(beam_size=3, n_best=2, extra_length=5),
    "sampling": Sampling(n_best=2, extra_length=5, seed=3),
}
KINDS = {"words": VocabularyTokenizer, "characters": CharacterTokenizer, "bytes": BytesTokenizer}


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train([*TEXTS, "a b c"] * 3, 13, model_type="char")


def model_for(tokenizer, seed=36, **options):
    special = {name: getattr(tokenizer, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    special["vocab_size"] = tokenizer.vocab_size
    return talkative_toy(seed, **{"decoder_layers": 1, **special, **options})


@pytest.fixture(scope="module")
def translators(tokenizer):
    model = model_for(tokenizer)
    return {
        name: Translator(model, tokenizer, strategy, batch_size=3)
        for name, strategy in STRATEGIES.items()
    }


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", STRATEGIES)
def test_details_tell_what_translate_gives(translators, tokenizer, name):
    translator = translators[name]
    details = translator.translate_with_details(TEXTS, alignments=True)
    assert [found[0].text for found in details] == translator.translate(TEXTS)
    for text, found in zip(TEXTS, details, strict=True):
        if not text.strip():
            assert found == [Translation("", (), 0.0, False, (), ())]
            continue
        assert len(found) == translator.strategy.beams if name != "beam" else len(found) == 2
        for one in found:
            assert one.text == tokenizer.decode(one.ids)
            assert len(one.token_log_probs) == len(one.ids) == len(one.alignment) > 0
            assert one.truncated == (tokenizer.eos_id not in one.ids)
            assert tokenizer.pad_id not in one.ids and tokenizer.eos_id not in one.ids[:-1]
            expected = translator.strategy.score_of(sum(one.token_log_probs), len(one.ids))
            np.testing.assert_allclose(one.score, expected, atol=1e-4)
    assert {one.truncated for found in details for one in found} == {True, False}


@pytest.mark.parametrize("name", STRATEGIES)
def test_scores_of_given_translations_are_those_of_the_search(translators, name):
    translator = translators[name]
    details = translator.translate_with_details(TEXTS)
    pairs = [(text, one) for text, found in zip(TEXTS, details, strict=True) for one in found]
    again = translator.score([text for text, _ in pairs], [one.ids for _, one in pairs])
    for (_, one), other in zip(pairs, again, strict=True):
        assert (other.text, other.ids, other.truncated) == (one.text, one.ids, one.truncated)
        np.testing.assert_allclose(other.score, one.score, atol=1e-4)
        np.testing.assert_allclose(other.token_log_probs, one.token_log_probs, atol=1e-4)


def test_scores_of_texts_are_those_of_their_ids(translators, tokenizer):
    translator = translators["beam"]
    ids = (*tokenizer.encode("ab c"), tokenizer.eos_id)
    texts, rows = translator.score(["cab", "", "a"], ["ab c", "", ""]), [ids, (), (ids[-1],)]
    assert [one.ids for one in texts] == rows
    assert texts[1] == Translation("", (), 0.0, False, ())
    assert texts[2].score < 0 and not texts[0].truncated
    assert translator.score(["cab"], [ids])[0].ids == texts[0].ids


def test_n_best_is_the_callers(translators):
    for name in ("beam", "sampling"):
        found = translators[name].translate_with_details(TEXTS[:2], n_best=3)
        assert [len(each) for each in found] == [3, 3]
    with pytest.raises(ValueError, match="`n_best` must be 1 for Greedy. Received: n_best=2"):
        translators["greedy"].translate_with_details(TEXTS, n_best=2)
    with pytest.raises(ValueError, match="`n_best` must be at most `beam_size`"):
        translators["beam"].translate_with_details(TEXTS, n_best=4)


def test_alignments_are_those_of_align(translators):
    translator = translators["greedy"]
    ((one,),) = translator.translate_with_details(["abc b"], alignments=True)
    source = translator.pad([translator.source_ids("abc b")])
    expected = np.asarray(align(translator.model, source, translator.pad([one.ids])).positions)
    assert one.alignment == tuple(expected[0].tolist())
    assert max(one.alignment) < source.shape[1] - 1


def test_score_checks_its_arguments(translators):
    translator = translators["greedy"]
    with pytest.raises(TypeError, match="`targets` must be a list of strings. Received: 'ab'"):
        translator.score(["a", "b"], "ab")
    with pytest.raises(TypeError, match="`sources` must be a list of strings. Received: 'ab'"):
        translator.score("ab", ["a", "b"])
    with pytest.raises(ValueError, match="must be as many. Received: 1 and 2"):
        translator.score(["a"], ["a", "b"])
    with pytest.raises(ValueError, match=r"ids must lie in \[0, .*Received: \[99\]"):
        translator.score(["a"], [[99]])


def test_a_target_beyond_learned_positions_is_an_error(tokenizer):
    model = model_for(tokenizer, positions="learned", max_positions=4)
    translator = Translator(model, tokenizer)
    with pytest.raises(ValueError, match="a target must have at most 4 tokens. Received: 5"):
        translator.score(["a"], [[5, 5, 5, 5, 5]])


@pytest.mark.slow
def test_an_ensemble_translates_in_every_way(tokenizer):
    models = [model_for(tokenizer), model_for(tokenizer, 3)]
    translator = Translator(Ensemble(models), tokenizer, Greedy(extra_length=5))
    (found,) = translator.translate_with_details(["abc b"])
    (again,) = translator.score(["abc b"], [found[0].ids])
    np.testing.assert_allclose(again.score, found[0].score, atol=1e-4)
    assert "".join(translator.stream("abc b")) == translator.translate(["abc b"])[0]
    with pytest.raises(TypeError, match="`model` must be a `Transformer`.*Received: Ensemble"):
        translator.translate_with_details(["abc b"], alignments=True)


# --- Unknown words -------------------------------------------------------------------------


def test_unknown_words_come_from_the_source():
    tokenizer = VocabularyTokenizer(["a", "b", "c"])
    model = model_for(tokenizer)
    forced = Greedy(extra_length=3, forbidden_ids=tuple(tokenizer.encode("a b c")), min_length=3)
    plain = Translator(model, tokenizer, forced)
    translator = Translator(model, tokenizer, forced, replace_unknown=True)
    texts = ["a Zürich", "Äpfel b c"]
    for text, found, before in zip(
        texts, translator.translate(texts), plain.translate(texts), strict=True
    ):
        words = found.split()
        assert words and set(words) <= set(text.split()) and set(before.split()) == {"⁇"}
        assert "".join(translator.stream(text)) == found
        assert translator.translate_with_details([text])[0][0].text == found
    with pytest.raises(ValueError, match="`replace_unknown` must be True or False. Received"):
        Translator(model, tokenizer, replace_unknown="yes")


# --- Streams -------------------------------------------------------------------------------


def tokenizer_of(kind, tokenizer):
    if kind == "bytes":
        return BytesTokenizer()
    if kind == "words":
        return VocabularyTokenizer(["a", "b@@", "@@", "cé@@", "\ufffd"])
    if kind == "characters":
        return CharacterTokenizer("ab \u200d\u0301é\ufffd")
    if kind == "byte fallback":
        texts = ["ab ba", "cab a b", "abc abc b"] * 5
        return SentencePieceTokenizer.train(texts, 275, byte_fallback=True)
    return tokenizer


@pytest.mark.parametrize("kind", [*KINDS, "pieces", "byte fallback"])
def test_pieces_join_to_the_text_of_any_ids(kind, tokenizer):
    tokenizer = tokenizer_of(kind, tokenizer)
    rng, special = np.random.default_rng(0), {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
    utf8 = "é漢a 😀\ufffd".encode()
    more = 0
    for length in [0, 1, 2, 3, *[11] * 60]:
        ids = [int(t) for t in rng.integers(0, tokenizer.vocab_size, length) if t not in special]
        if kind in ("bytes", "byte fallback") and length % 2:
            first = tokenizer.pieces.index("<0x00>")
            ids = [first + byte for byte in utf8[rng.integers(0, 3) :]] + ids
        pieces = list(growing_text(ids, tokenizer))
        assert "".join(pieces) == tokenizer.decode(ids)
        assert "" not in pieces
        more += len(pieces) > 3
    assert more > 10


def test_white_space_at_the_end_waits_for_what_follows():
    class Stripping:
        def decode(self, ids):
            return {1: "a ", 2: "a b\n", 3: "a b"}.get(len(ids), "")

    assert list(growing_text([5, 6, 7], Stripping())) == ["a", " b"]


def test_a_tokenizer_that_takes_text_back_is_an_error():
    class Fickle:
        def decode(self, ids):
            return "ab" if len(ids) == 1 else "ba"

    pieces = growing_text([5, 6], Fickle())
    assert next(pieces) == "ab"
    with pytest.raises(RuntimeError, match="must begin with the text of fewer.*'ab', then 'ba'"):
        next(pieces)


@pytest.mark.quick(1)
@pytest.mark.parametrize("strategy", [Greedy(extra_length=5), Sampling(extra_length=5, seed=3)])
def test_a_stream_is_the_translation_and_is_traced_once(tokenizer, strategy, monkeypatch):
    model, traces = model_for(tokenizer), []
    step = type(model).step
    translator = Translator(model, tokenizer, strategy)
    expected = translator.translate(TEXTS)
    monkeypatch.setattr(
        type(model), "step", lambda self, *a, **k: traces.append(1) or step(self, *a, **k)
    )
    assert "".join(translator.stream(TEXTS[1])) == expected[1]
    first = len(traces)
    streams = [list(translator.stream(text)) for text in TEXTS]
    assert ["".join(pieces) for pieces in streams] == expected
    assert max(map(len, streams)) > 3 and streams[2] == streams[6] == []
    sizes = 1 if NAME == "tensorflow" else 2  # up to 16 tokens, and up to 32
    assert first > 0 and len(traces) == first * sizes


def test_streams_need_a_search_that_goes_forward(translators):
    message = "a stream must have a search that takes no token back.*Received: {}"
    for name in ("beam", "sampling"):
        kind = type(STRATEGIES[name]).__name__
        with pytest.raises(ValueError, match=message.format(kind)):
            translators[name].stream("ab")
    with pytest.raises(TypeError, match="`text` must be a string. Received: list"):
        translators["greedy"].stream(["ab"])
