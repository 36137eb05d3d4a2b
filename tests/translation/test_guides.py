"""Prefixes and shortlists of a `Translator`, and its graphs under XLA."""

import pytest
from backend import NAME
from toy_model import talkative_toy

from keras_transformer.decoding import BeamSearch, Greedy
from keras_transformer.translation import Translator
from keras_transformer_runner.tokenizers import SentencePieceTokenizer

TEXTS = ["ab", "b a c", "", "cab a", "abc abc b", "c", " ", "bbb aaa ccc abc cba"]
STRATEGIES = [Greedy(extra_length=5), BeamSearch(beam_size=3, extra_length=5)]
PREFIXES = ["c", "", "a", "ba", "", "cc b", "a", "b"]


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train([*TEXTS, "a b c"] * 3, 13, model_type="char")


@pytest.fixture(scope="module")
def model(tokenizer):
    special = {name: getattr(tokenizer, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    return talkative_toy(36, decoder_layers=1, vocab_size=tokenizer.vocab_size, **special)


@pytest.mark.quick(1)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
def test_translations_begin_with_their_prefixes(model, tokenizer, strategy):
    translator = Translator(model, tokenizer, strategy, batch_size=3)
    found = translator.translate_with_details(TEXTS, prefixes=PREFIXES)
    assert [row[0].text for row in found] == translator.translate(TEXTS, prefixes=PREFIXES)
    plain = translator.translate(TEXTS)
    for text, prefix, row, free in zip(TEXTS, PREFIXES, found, plain, strict=True):
        ids = tokenizer.encode(prefix)
        if not text.strip():
            assert row[0].ids == ()
        else:
            assert list(row[0].ids[: len(ids)]) == ids[: len(row[0].ids)]
        if not prefix:
            assert row[0].text == free
    assert [row[0].text for row in found] != plain
    assert translator.translate(TEXTS, prefixes=[""] * len(TEXTS)) == plain


def test_shortlists_hold(model, tokenizer):
    translator = Translator(model, tokenizer, STRATEGIES[1], batch_size=3)
    a, b = (tokenizer.encode(letter) for letter in "ab")
    lists = [a, b, [], (*a, *b), set(a), b, a, b]
    found = translator.translate_with_details(TEXTS, allowed_ids=lists)
    for allowed, row in zip(lists, found, strict=True):
        assert set(row[0].ids) <= {*allowed, tokenizer.eos_id}
    both = translator.translate_with_details(TEXTS, allowed_ids=lists, prefixes=PREFIXES)
    ids = tokenizer.encode(PREFIXES[0])
    assert list(both[0][0].ids[: len(ids)]) == ids


def test_guides_that_do_not_fit_are_refused(model, tokenizer):
    translator = Translator(model, tokenizer)
    with pytest.raises(TypeError, match="`prefixes` must be a list of strings. Received: 'a'"):
        translator.translate(["a"], prefixes="a")
    with pytest.raises(ValueError, match="`prefixes` must be as many as the texts. Received: 2 f"):
        translator.translate(["a"], prefixes=["a", "b"])
    with pytest.raises(ValueError, match="`allowed_ids` must be as many as the texts. Received: 0"):
        translator.translate(["a"], allowed_ids=[])
    with pytest.raises(ValueError, match=r"ids must lie in \[0, 8\). Received: \[5, 13\]"):
        translator.translate(["a"], allowed_ids=[[5, 13]])


@pytest.mark.slow
@pytest.mark.skipif(NAME != "tensorflow", reason="TensorFlow only: JAX always compiles")
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
def test_xla_gives_the_same(model, tokenizer, strategy):
    plain = Translator(model, tokenizer, strategy, batch_size=5)
    fast = Translator(model, tokenizer, strategy, batch_size=5, jit_compile=True)
    assert fast.translate(TEXTS) == plain.translate(TEXTS)
    for one, two in zip(*(t.translate_with_details(TEXTS) for t in (fast, plain)), strict=True):
        assert [found.ids for found in one] == [found.ids for found in two]


def test_jit_compile_is_checked(model, tokenizer):
    with pytest.raises(ValueError, match="`jit_compile` must be True or False. Received: jit_com"):
        Translator(model, tokenizer, jit_compile="yes")


def test_texts_may_come_from_anything_that_gives_them(model, tokenizer):
    class Labelled(list):
        """As a pandas Series with labels of its own: an index is a label."""

        def __getitem__(self, label):
            return list.__getitem__(self, len(self) - 1 - label)

    translator = Translator(model, tokenizer, STRATEGIES[0], replace_unknown=True)
    texts, prefixes = ["ab x", "b y", "a z"], [[tokenizer.unk_id]] * 3
    expected = translator.translate(texts, prefixes=prefixes)
    assert len(set(expected)) == 3
    for given in (Labelled(texts), (text for text in texts)):
        assert translator.translate(given, prefixes=prefixes) == expected
    details = translator.translate_with_details(Labelled(texts), prefixes=iter(prefixes))
    assert [row[0].text for row in details] == expected
    for odd in (None, 5):
        with pytest.raises(TypeError, match=f"`texts` must be a list of strings. Received: {odd}"):
            translator.translate(odd)
    assert translator.translate(["a \ud800 b"], prefixes=prefixes[:1])  # a lone surrogate


def test_prefixes_that_no_search_follows_are_named(model, tokenizer):
    translator, a = Translator(model, tokenizer), tokenizer.encode("a")[0]
    for odd in ([a, tokenizer.eos_id, a], [tokenizer.pad_id, a]):
        with pytest.raises(ValueError, match="`prefixes` must hold no pad, and EOS at most at the"):
            translator.translate(["ab"], prefixes=[odd])
    for name in ("prefixes", "allowed_ids"):
        with pytest.raises(TypeError, match=f"`{name}` must hold rows of integers. Received: "):
            translator.translate(["ab"], **{name: [[a + 0.9]]})


def test_rows_of_ids_are_as_long_as_their_tokens(tokenizer):
    special = {name: getattr(tokenizer, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    learned = dict(positions="learned", max_positions=8)
    model = talkative_toy(36, vocab_size=tokenizer.vocab_size, **special, **learned)
    translator = Translator(model, tokenizer, Greedy(max_length=7), max_source_length=6)
    row = [*tokenizer.encode("ab"), tokenizer.eos_id]
    wide = [row + [tokenizer.pad_id] * 10]
    (found,) = translator.translate_ids(wide)
    assert found == translator.translate_ids([row])[0] != []
    with pytest.raises(ValueError, match="must have at most `max_source_length` = 6 .*: 7"):
        translator.translate_ids([[row[0]] * 7])
    assert translator.translate_ids([[tokenizer.pad_id] * 9]) == [[]]
    with pytest.raises(ValueError, match="`source_ids` must have pads only behind"):
        translator.translate_ids([[tokenizer.pad_id, *row]])
