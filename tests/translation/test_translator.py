"""Decoding and translating: each sentence gets what it would get alone, whatever lies beside it."""

import dataclasses
import functools

import numpy as np
import pytest
from backend import NAME, array, compiled, in_graph, tensorflow_only
from keras import KerasTensor
from toy_model import (
    BOS,
    EOS,
    PAD,
    UNK,
    V,
    frozen_toy,
    logits,
    sources,
    talkative_toy,
)

from keras_transformer.decoding import Greedy, decode
from keras_transformer.translation import Translator
from keras_transformer_runner.tokenizers import SentencePieceTokenizer

EXTRA = 13
LENGTHS = [3, 7, 5, 2, 11, 4, 6, 9, 3, 8, 5, 0, 13, 2, 7, 6, 4, 10, 3, 29]
SOURCES = sources(LENGTHS)
TEXTS = ["ab", "b a c", "cab a", "aa", "abc abc b", "c", "a b c a b c", "bbb aaa ccc abc cba"]


def decoded(source_ids, strategy=None, model=None, jit=False):
    """Ids and truncation as arrays, from one graph for all shapes, or from XLA."""
    strategy = strategy or Greedy(extra_length=EXTRA)
    run = _graph(strategy, model or talkative_toy(), jit)
    return [array(part) for part in run(source_ids)[:2]]


@functools.cache
def _graph(strategy, model, jit):
    def run(source_ids):
        return decode(model, source_ids, strategy)

    return compiled(run) if jit else in_graph(run, signature=[KerasTensor((None, None), "int32")])


def tokens_of(row):
    """A row up to its first pad, after which there are pads only."""
    length = int(np.argmax(np.append(row, PAD) == PAD))
    assert np.all(row[length:] == PAD)
    return row[:length].tolist()


@pytest.fixture(scope="module")
def alone():
    """What each sentence gets in a batch of its own, without padding."""
    return [
        tokens_of(decoded(SOURCES[[row], : max(length, 1)])[0][0])
        for row, length in enumerate(LENGTHS)
    ]


def test_the_toy_is_worth_decoding(alone):
    ends = [EOS in row for row in alone]
    assert 5 <= sum(ends) <= 15
    assert len(set(map(tuple, alone))) > 12
    assert all(PAD not in row and BOS not in row for row in alone)


def test_greedy_is_the_likeliest_token_of_the_full_pass_at_every_position(alone):
    target = np.full((len(alone), max(map(len, alone)) + 1), PAD, "int32")
    target[:, 0] = BOS
    for row, tokens in zip(target, alone, strict=True):
        row[1 : len(tokens) + 1] = tokens
    full = logits(talkative_toy(), SOURCES, target)
    for row, tokens in zip(full, alone, strict=True):
        assert row[: len(tokens)].argmax(-1).tolist() == tokens


@pytest.mark.quick(2)
@pytest.mark.parametrize("batch_size", [1, 3, len(LENGTHS)])
@pytest.mark.parametrize("shuffled", [False, True])
def test_batch_mates_change_nothing(alone, batch_size, shuffled):
    order = np.arange(len(LENGTHS))
    if shuffled:
        order = np.random.default_rng(3).permutation(order)
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        for row, ids in zip(rows, decoded(SOURCES[rows])[0], strict=True):
            assert tokens_of(ids) == alone[row]


@pytest.mark.parametrize("times", [2, 4])
def test_padding_changes_nothing(alone, times):
    width = times * SOURCES.shape[1]
    padded = np.pad(SOURCES, [(0, 0), (0, width - SOURCES.shape[1])], constant_values=PAD)
    for expected, ids in zip(alone, decoded(padded)[0], strict=True):
        assert tokens_of(ids) == expected


@pytest.mark.quick(1)
@pytest.mark.parametrize("max_length", [1, 5, 16, 64, 256])
def test_max_length_only_cuts(alone, max_length):
    ids, truncated = decoded(SOURCES, Greedy(EXTRA, max_length))
    for expected, row, cut in zip(alone, ids, truncated, strict=True):
        tokens = tokens_of(row)
        assert tokens == expected[:max_length]
        assert cut == (bool(expected) and EOS not in tokens)


def test_limits_and_truncation(alone):
    ids, truncated = decoded(SOURCES)
    assert ids.dtype == np.int32 and ids.shape == (len(LENGTHS), max(LENGTHS) + EXTRA)
    for length, tokens, cut in zip(LENGTHS, alone, truncated, strict=True):
        if length == 0:
            assert tokens == [] and not cut
        else:
            assert cut == (EOS not in tokens)
            assert len(tokens) == length + EXTRA if cut else tokens.index(EOS) == len(tokens) - 1


def test_rows_without_content_stay_empty():
    empty = np.full((3, 5), PAD, "int32")
    empty[1, 0] = EOS
    empty[2] = SOURCES[1, :5]
    ids, truncated = decoded(empty)
    assert np.all(ids[:2] == PAD) and not np.any(truncated[:2])
    assert tokens_of(ids[2]) == tokens_of(decoded(empty[2:])[0][0]) != []
    assert np.all(decoded(empty[:2])[0] == PAD)


@pytest.mark.slow
def test_xla_gives_the_same_ids(alone):
    ids, truncated = decoded(SOURCES, jit=True)
    assert [tokens_of(row) for row in ids] == alone
    np.testing.assert_array_equal(truncated, decoded(SOURCES)[1])


def test_eager_gives_the_same_ids(alone):
    ids = array(decode(talkative_toy(), SOURCES[:7, :11], Greedy(extra_length=EXTRA)).ids)
    assert [tokens_of(row) for row in ids] == alone[:7]


def test_any_id_may_be_the_pad(alone):
    model = talkative_toy()
    names = np.arange(V)
    names[[PAD, V - 1]] = names[[V - 1, PAD]]
    config = dataclasses.replace(model.config, pad_id=V - 1)
    renamed = type(model)(config)
    for weight, value in zip(renamed.trainable_weights, model.trainable_weights, strict=True):
        value = value.numpy()
        weight.assign(value[names] if "embeddings" in weight.path else value)
    ids = decoded(names[SOURCES].astype("int32"), model=renamed)[0]
    assert [tokens_of(names[row]) for row in ids] == alone


# --- Text ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train(TEXTS * 3, 13, model_type="char")


@pytest.fixture(scope="module")
def text_model(tokenizer):
    special = {name: getattr(tokenizer, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    return talkative_toy(36, vocab_size=tokenizer.vocab_size, decoder_layers=1, **special)


@pytest.fixture(scope="module")
def translator(text_model, tokenizer):
    return Translator(text_model, tokenizer, Greedy(extra_length=5), batch_size=3)


@pytest.mark.smoke
def test_a_translation_is_the_decoded_text_of_its_ids(translator, text_model, tokenizer):
    expected = []
    for text in TEXTS:
        ids = np.array([[*tokenizer.encode(text), tokenizer.eos_id]], "int32")
        row = decoded(ids, Greedy(extra_length=5), text_model)[0][0]
        expected.append(tokenizer.decode(row))
    assert translator.translate(TEXTS) == expected
    assert len(set(expected)) > 3


@pytest.mark.smoke
def test_order_and_batches_change_nothing(translator):
    expected = dict(zip(TEXTS, translator.translate(TEXTS), strict=True))
    for seed in range(3):
        texts = np.random.default_rng(seed).permutation([*TEXTS, "", *TEXTS[:3]]).tolist()
        assert translator.translate(texts) == [expected.get(text, "") for text in texts]
    for text in TEXTS:
        assert translator.translate([text]) == [expected[text]]


@pytest.mark.parametrize("text", ["", "   ", "\n", "\u3000", "\t \n"])
def test_no_text_gives_no_text(translator, text):
    assert translator.translate([text]) == [""]
    with_mate = translator.translate([text, TEXTS[4], text])
    assert with_mate == ["", *translator.translate([TEXTS[4]]), ""]


def test_no_texts():
    translator = Translator(frozen_toy(), _VocabularyOf(V))
    assert translator.translate([]) == []


def test_traces_once_or_on_jax_once_for_each_of_few_sizes(text_model, tokenizer):
    traces = []

    @dataclasses.dataclass(frozen=True)
    class CountingGreedy(Greedy):
        def search(self, *args, **kwargs):
            traces.append(1)
            return super().search(*args, **kwargs)

    translator = Translator(text_model, tokenizer, CountingGreedy(extra_length=5), batch_size=3)
    sizes = [(3, 5), (4, 16), (1, 1), (3, 11), (1, 9), (5, 17), (7, 31)]  # (4|1, 16), (8, 32)
    for _ in range(2):
        for size in sizes:
            translator.translate_ids(np.full(size, 7))
        translator.translate([TEXTS[0], "", TEXTS[1], TEXTS[3]])
        assert len(traces) == {"tensorflow": 1, "jax": 3}[NAME]


def test_weights_that_change_are_seen(translator, text_model, tokenizer):
    model = type(text_model)(text_model.config)
    model.set_weights(text_model.get_weights())
    changing = Translator(model, tokenizer, translator.strategy, batch_size=3)
    before = translator.translate(TEXTS)
    assert changing.translate(TEXTS) == before
    embeddings = model.get_layer("embedding").embeddings
    embeddings.assign(embeddings.numpy()[::-1])
    after = changing.translate(TEXTS)
    assert after == Translator(model, tokenizer, translator.strategy).translate(TEXTS)
    assert sum(a != b for a, b in zip(after, before, strict=True)) > 3
    model.set_weights(text_model.get_weights())
    assert changing.translate(TEXTS) == before


@pytest.mark.slow
def test_a_source_as_long_as_learned_positions_allow():
    model = frozen_toy(positions="learned", max_positions=19)
    translator = Translator(model, _VocabularyOf(V), Greedy(extra_length=3))
    source_ids = sources([19, 4, 11])
    rows = decoded(source_ids, Greedy(extra_length=3), model)[0].tolist()
    expected = [[token for token in row if token not in (PAD, EOS)] for row in rows]
    assert translator.translate_ids(source_ids) == expected and all(expected)


def test_ids_in_ids_out(translator, tokenizer):
    source_ids = translator.pad([translator.source_ids(text) for text in TEXTS])
    rows = translator.translate_ids(source_ids)
    assert [tokenizer.decode(row) for row in rows] == translator.translate(TEXTS)
    for row in rows:
        assert all(isinstance(token, int) for token in row)
        assert not {tokenizer.pad_id, tokenizer.eos_id} & set(row)
    assert translator.translate_ids(np.zeros((0, 3))) == []
    assert translator.translate_ids([]) == []


def test_source_ids_end_with_eos_and_padding_is_at_the_end(translator, tokenizer):
    ids = translator.source_ids("ab")
    assert ids == [*tokenizer.encode("ab"), tokenizer.eos_id]
    assert translator.pad([[5], [6, 7, 8]]).tolist() == [[5, 0, 0], [6, 7, 8]]
    assert translator.pad([[5]]).dtype == np.int32


@pytest.mark.parametrize("bad", [-1, V, 10**6])
def test_ids_outside_the_vocabulary_are_an_error(bad):
    translator = Translator(frozen_toy(), _VocabularyOf(V))
    low, high = min(bad, 5), max(bad, EOS)
    message = rf"ids must lie in \[0, {V}\)\. Received: {low} to {high}"
    with pytest.raises(ValueError, match=message):
        translator.translate_ids([[5, bad, EOS]])


@pytest.mark.parametrize("bad", [[5, 6], [[5.0, 6.0]], [["a"]]])
def test_ids_that_are_not_rows_of_integers_are_an_error(bad):
    translator = Translator(frozen_toy(), _VocabularyOf(V))
    with pytest.raises(TypeError, match=r"`source_ids` must be \(B, S\) integers. Received: "):
        translator.translate_ids(bad)


def test_the_special_ids_must_be_the_same():
    class Other(_VocabularyOf):
        eos_id = EOS + 1

    message = f"same `eos_id`. Received: tokenizer {EOS + 1}, model {EOS}"
    with pytest.raises(ValueError, match=message):
        Translator(frozen_toy(), Other(V))


def test_a_text_that_is_too_long_is_an_error(text_model, tokenizer):
    translator = Translator(text_model, tokenizer, max_source_length=7)
    longest = "abcab"  # and the mark of its beginning, and EOS
    assert len(translator.source_ids(longest)) == 7
    translator.translate([longest])
    message = "must have at most `max_source_length` = 7 tokens. Received: 8 tokens, 'abcabc'"
    with pytest.raises(ValueError, match=message):
        translator.translate(["a", longest + "c"])


def test_a_text_of_more_bytes_than_its_tokens_can_have_is_not_read(text_model, tokenizer):
    """As the SavedModel and the device have it, whatever the tokenizer would make of it."""
    translator = Translator(text_model, tokenizer, max_source_length=7)
    assert translator.translate([" " * 448, "\u2003" * 149]) == ["", ""]
    message = "`max_source_length` = 7 tokens, and so at most 448 bytes. Received: 450 bytes"
    for white in (" " * 450, "\u2003" * 150, "\ud800" * 150):
        with pytest.raises(ValueError, match=message):
            translator.translate([white])


@pytest.mark.parametrize("texts", ["abc", b"abc"])
def test_one_string_is_not_a_list(translator, texts):
    with pytest.raises(TypeError, match="`texts` must be a list of strings. Received: b?'abc'"):
        translator.translate(texts)


def test_what_a_tokenizer_lacks_is_named():
    class Own:
        pad_id = unk_id = bos_id = eos_id = 0

    message = "`tokenizer` must have `vocab_size` and .*Received: Own without vocab_size$"
    with pytest.raises(TypeError, match=message):
        Translator(frozen_toy(), Own())
    with pytest.raises(TypeError, match="`target_tokenizer` must have .* without vocab_size, pad"):
        Translator(frozen_toy(), _VocabularyOf(V), target_tokenizer=1)


def test_the_vocabularies_must_be_of_one_size(tokenizer):
    message = f"same `vocab_size`. Received: tokenizer {tokenizer.vocab_size}, model {V}"
    with pytest.raises(ValueError, match=message):
        Translator(frozen_toy(), tokenizer)


def test_default_strategy_is_greedy_with_the_papers_limit():
    assert Translator(frozen_toy(), _VocabularyOf(V)).strategy == Greedy(extra_length=50)


class _VocabularyOf:
    """A tokenizer as far as ids are concerned."""

    pad_id, unk_id, bos_id, eos_id = PAD, UNK, BOS, EOS

    def __init__(self, vocab_size):
        self.vocab_size = vocab_size


@tensorflow_only("a count of traces")
def test_several_translators_are_no_retracing(translator, caplog):
    caplog.set_level("WARNING", logger="tensorflow")
    for _ in range(6):
        own = Translator(translator.model, translator.tokenizer)
        assert own.translate(["ab"]) and list(own.stream("ab"))
    assert not caplog.records
