"""A tokenizer's prefix, such as a language: what a translation begins with, told and not scored."""

import numpy as np
import pytest
from toy_model import talkative_toy

from keras_transformer.decoding import BeamSearch, Ensemble, Greedy, decode
from keras_transformer.translation import Translation, Translator
from keras_transformer_runner.tokenizers import VocabularyTokenizer

TEXTS = ["a b", "b a c", "", "c a b a", "a b c a b c b", "c", "q", "b b b a a a c c"]
SOURCE, TARGET = (11,), (12, 9)
STRATEGIES = {
    "greedy": Greedy(extra_length=5),
    "beam": BeamSearch(beam_size=3, n_best=2, extra_length=5),
}


@pytest.fixture(scope="module")
def tokenizer():
    return VocabularyTokenizer([*"abcdef", "<en>", "<de>", "<fr>", *"ghijkl"])


@pytest.fixture(scope="module")
def model(tokenizer):
    options = {"vocab_size": tokenizer.vocab_size, **tokenizer.special_ids._asdict()}
    return talkative_toy(36, decoder_layers=1, **options)


def translator_of(model, tokenizer, strategy, source=SOURCE, target=TARGET, **options):
    target_tokenizer = tokenizer.with_prefix(target)
    source_tokenizer = tokenizer.with_prefix(source)
    options = {"batch_size": 3, **options, "target_tokenizer": target_tokenizer}
    return Translator(model, source_tokenizer, strategy, **options)


@pytest.fixture(scope="module")
def translators(model, tokenizer):
    return {
        name: translator_of(model, tokenizer, strategy) for name, strategy in STRATEGIES.items()
    }


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", STRATEGIES)
def test_translations_begin_with_the_prefix_which_costs_nothing(translators, name):
    translator, target = translators[name], translators[name].target_tokenizer
    details = translator.translate_with_details(TEXTS, alignments=True)
    assert [found[0].text for found in details] == translator.translate(TEXTS)
    for text, found in zip(TEXTS, details, strict=True):
        if not text:
            assert found == [Translation("", (), 0.0, False, (), ())]
            continue
        for one in found:
            assert one.ids[: len(TARGET)] == TARGET and len(one.ids) > len(TARGET)
            assert one.token_log_probs[: len(TARGET)] == (0.0, 0.0)
            assert all(value < 0 for value in one.token_log_probs[len(TARGET) :])
            assert one.text == target.decode(one.ids) == target.decode(one.ids[len(TARGET) :])
            assert len(one.alignment) == len(one.ids)
            total = sum(one.token_log_probs)
            expected = translator.strategy.score_of(total, len(one.ids))
            np.testing.assert_allclose(one.score, expected, rtol=1e-5)


@pytest.mark.parametrize("name", STRATEGIES)
def test_score_gives_the_numbers_of_the_search(translators, name):
    translator = translators[name]
    found = [each[0] for each in translator.translate_with_details(TEXTS)]
    for each, scored in zip(found, translator.score(TEXTS, [x.ids for x in found]), strict=True):
        assert scored.ids == each.ids and scored.text == each.text
        np.testing.assert_allclose(scored.score, each.score, rtol=1e-4)
        np.testing.assert_allclose(scored.token_log_probs, each.token_log_probs, atol=1e-5)


def test_score_reads_texts_behind_the_prefix(translators, tokenizer):
    translator, eos = translators["greedy"], (tokenizer.eos_id,)
    some, nothing, both = translator.score(["a b", "a b", ""], ["c a", "", ""])
    assert some.ids == (*TARGET, 6, 4, *eos) and some.token_log_probs[:2] == (0.0, 0.0)
    assert nothing.ids == (*TARGET, *eos) and nothing.token_log_probs[2] < 0
    assert both == Translation("", (), 0.0, False, ())
    (without,) = translator.score(["a b"], [(6, 4, *eos)])  # as given: all of it counts
    assert without.token_log_probs[0] < 0


def test_the_prefix_is_what_decode_is_told(translators, model):
    translator = translators["greedy"]
    rows = translator.pad([translator.source_ids(text) for text in TEXTS])
    assert rows[0].tolist()[:4] == [*SOURCE, 4, 5, 3]
    prefixes = np.array([TARGET] * len(rows), "int32")
    found = decode(model, rows, translator.strategy, prefix_ids=prefixes).ids
    assert translator.translate_ids(rows) == translator._content(found)


def test_a_stream_gives_the_text_of_translate(translators):
    translator = translators["greedy"]
    for text, expected in zip(TEXTS, translator.translate(TEXTS), strict=True):
        assert "".join(translator.stream(text)) == expected


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_users_prefix_follows_the_tokenizers(translators, name):
    translator = translators[name]
    prefixes = ["c", "", "a a", "b", "", "c", "d e f", "a"]
    details = translator.translate_with_details(TEXTS, prefixes=prefixes)
    for text, prefix, (found, *_) in zip(TEXTS, prefixes, details, strict=True):
        if text:
            own = len(TARGET) + len(prefix.split())
            assert found.ids[:own] == (*TARGET, *translator.tokenizer.encode(prefix)[1:])
            assert found.text.startswith(prefix)
            assert all(value < 0 for value in found.token_log_probs[len(TARGET) : own])
    plain = translator.translate(TEXTS)
    assert plain == translator.translate(TEXTS, prefixes=[""] * len(TEXTS))
    rows = [translator.tokenizer.encode(prefix)[1:] for prefix in prefixes]  # the same as ids
    by_ids = translator.translate(TEXTS, prefixes=rows)
    assert by_ids == translator.translate(TEXTS, prefixes=prefixes)
    with pytest.raises(ValueError, match=r"ids must lie in \[0, 19\). Received: \[12, 9, 19\]"):
        translator.translate(["a"], prefixes=[[19]])


def test_batch_mates_change_nothing(translators):
    translator = translators["beam"]
    together = translator.translate_with_details(TEXTS)
    alone = [translator.translate_with_details([text])[0] for text in TEXTS]
    assert [[one.ids for one in found] for found in together] == [
        [one.ids for one in found] for found in alone
    ]


def test_another_language_is_another_translation(model, tokenizer, translators):
    expected = translators["greedy"].translate(TEXTS)
    for sides in (dict(source=(12,)), dict(target=(12, 4))):
        other = translator_of(model, tokenizer, translators["greedy"].strategy, **sides)
        assert other.translate(TEXTS[:2]) != expected[:2]


def test_an_ensemble_and_copied_words_take_a_prefix(model, tokenizer, translators):
    one = translator_of(Ensemble([model]), tokenizer, Greedy(extra_length=5))
    assert one.translate(TEXTS) == translators["greedy"].translate(TEXTS)
    copying = translator_of(model, tokenizer, Greedy(extra_length=5), replace_unknown=True)
    target = (*TARGET, 1)  # unk: every translation has a word to copy
    copying.target_tokenizer = tokenizer.with_prefix(TARGET)
    row = copying.source_ids("q b")
    text = copying._text("q b", row, list(target))
    position = copying._positions(row, target)[-1]
    assert text == {0: "⁇", 1: "q", 2: "b"}[position]
