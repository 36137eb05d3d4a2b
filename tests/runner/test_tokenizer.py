"""The tokenizer: Python and the graph agree on every text, and no text makes a control id."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from toy_sentences import SENTENCES

from keras_transformer_runner.tokenizers import SentencePieceTokenizer
from keras_transformer_runner.tokenizers.sentence_piece import with_scores

AWKWARD = [
    "",
    "a",
    "   ",
    "\n",
    "\u00a0",
    "\u3000",
    "</s> hi <pad> <s> <unk> [START]",
    "e\u0301 \u00e9",
    "\ufe30 \u0149 \ufb01 \uff12 \u2026",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u0dc1\u0dca\u200d\u0dbb\u0dd3",
    "\u05e9\u05dc\u05d5\u05dd 123",
    "a\u2581b",
    "a\x00b\ufffd",
    "line one\nline two\r\n",
    "000000 hahahahaha 10000",
]


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train(SENTENCES, 90)


@pytest.fixture(
    scope="module",
    params=[
        {},
        {"model_type": "bpe"},
        {"model_type": "char"},
        {"byte_fallback": True, "vocab_size": 330, "normalization": "identity"},
        {"split_digits": True, "normalization": "nfkc_cf"},
    ],
    ids=["unigram", "bpe", "char", "bytes", "digits"],
)
def any_tokenizer(request):
    return SentencePieceTokenizer.train(SENTENCES, **{"vocab_size": 90, **request.param})


def test_special_ids_are_fixed_and_distinct(tokenizer):
    ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id)
    assert ids == (0, 1, 2, 3)
    assert 5 <= tokenizer.vocab_size <= 90


@pytest.mark.smoke
def test_corpus_text_survives(tokenizer):
    for text in SENTENCES:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", ["", "   ", "\n", "\u00a0", "\u3000"])
def test_text_without_content_has_no_pieces(tokenizer, text):
    assert tokenizer.encode(text) == []
    assert tokenizer.tf_encode([text, "a"]).to_list() == [[], tokenizer.encode("a")]
    assert tokenizer.decode([]) == ""


def test_an_empty_batch_stays_empty(tokenizer):
    assert tokenizer.tf_encode(tf.constant([], tf.string)).to_list() == []
    assert tokenizer.tf_decode(np.zeros((0, 7), np.int32)).shape == (0,)
    assert tokenizer.tf_decode(np.zeros((2, 0), np.int32)).numpy().tolist() == [b"", b""]


def test_awkward_text_has_the_same_ids_in_the_graph(any_tokenizer):
    expected = [any_tokenizer.encode(text) for text in AWKWARD]
    ids = any_tokenizer.tf_encode(AWKWARD)
    assert ids.dtype == tf.int32
    assert ids.to_list() == expected
    batch_mates_gone = [any_tokenizer.tf_encode([text]).to_list()[0] for text in AWKWARD]
    assert batch_mates_gone == expected


@settings(max_examples=200, deadline=None)
@given(text=st.one_of(st.text(), st.text("0a hn"), st.lists(st.sampled_from(AWKWARD)).map("".join)))
def test_any_text_has_the_same_ids_in_the_graph(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.tf_encode([text]).to_list() == [ids]
    assert not {0, 2, 3} & set(ids)
    assert tokenizer.tf_decode([ids]).numpy()[0].decode() == tokenizer.decode(ids)


@settings(max_examples=200, deadline=None)
@given(raw=st.one_of(st.binary(), st.lists(st.sampled_from([b"a", b"\xe2", b"\x82", b"\xed\xa0"]))))
def test_bytes_that_are_not_utf8_are_replaced_as_python_does(tokenizer, raw):
    raw = raw if isinstance(raw, bytes) else b"".join(raw)
    expected = tokenizer.encode(raw.decode("utf-8", "replace"))
    assert tokenizer.tf_encode(tf.constant([raw])).to_list() == [expected]


def scores_of(model_proto):
    processor = SentencePieceProcessor(model_proto=model_proto)
    return [processor.get_score(token) for token in range(processor.get_piece_size())]


def test_equally_good_splits_are_the_same_in_the_graph():
    # "0" + "00" and "00" + "0" have equal scores; only rounding errors could tell them apart.
    tokenizer = SentencePieceTokenizer.train(SENTENCES, 90)
    scores = scores_of(tokenizer.model_proto)
    assert all((score * 256).is_integer() for score in scores)
    assert len(set(scores)) > 20
    tied = SentencePieceTokenizer(with_scores(tokenizer.model_proto, lambda score: -8.0))
    assert set(scores_of(tied.model_proto)) == {-8.0}
    assert tied.pieces == tokenizer.pieces
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("0ahn "), 60)) for _ in range(200)]
    assert tied.tf_encode(texts).to_list() == [tied.encode(text) for text in texts]


def test_a_damaged_message_is_an_error():
    with pytest.raises(ValueError, match="must have known fields. Received: type 7"):
        with_scores(b"\x0f\x00", abs)


def test_user_text_never_becomes_a_control_id(any_tokenizer):
    control = {any_tokenizer.pad_id, any_tokenizer.bos_id, any_tokenizer.eos_id}
    for text in AWKWARD:
        assert not control & set(any_tokenizer.encode(text))


def test_control_text_in_the_training_data_makes_no_control_id():
    tokenizer = SentencePieceTokenizer.train(["a </s> <pad> <s> b"] * 5, 60)
    assert not {0, 2, 3} & set(tokenizer.encode("a </s> <pad> <s> b"))


def test_composed_and_decomposed_accents_are_one_and_joiners_survive():
    family = "\U0001f468\u200d\U0001f469"
    tokenizer = SentencePieceTokenizer.train([*SENTENCES, family], 90)
    assert tokenizer.encode("cafe\u0301") == tokenizer.encode("caf\u00e9")
    assert tokenizer.decode(tokenizer.encode(family)) == family
    exact = SentencePieceTokenizer.train(["\ufe30 .."], 20, normalization="identity")
    assert exact.decode(exact.encode("\ufe30")) == "\ufe30"


def test_lone_surrogates_count_as_invalid_bytes(tokenizer):
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("a\ufffd\ufffd\ufffdb")
    assert SentencePieceTokenizer.train(["a\ud800b"], 20).encode("a") != []


def test_decoding_stops_at_eos_and_drops_pads_and_bos(any_tokenizer):
    ids = any_tokenizer.encode("a dog runs")
    row = [2, 0, *ids[:3], 2, 0, *ids[3:], 3, *ids, 3, 0]
    expected = any_tokenizer.decode(ids)
    assert expected == "a dog runs"
    assert any_tokenizer.decode(row) == expected
    assert any_tokenizer.decode(np.array(row, np.int32)) == expected
    assert any_tokenizer.tf_decode([row]).numpy().tolist() == [expected.encode()]


def test_any_ids_have_the_same_text_in_the_graph(any_tokenizer):
    ids = np.random.default_rng(0).integers(0, any_tokenizer.vocab_size, (500, 11))
    expected = [any_tokenizer.decode(row) for row in ids]
    assert [text.decode() for text in any_tokenizer.tf_decode(ids).numpy()] == expected


@pytest.mark.parametrize("position", [0, 3])
@pytest.mark.parametrize("bad", [-1, "vocab_size"])
def test_an_id_outside_the_vocabulary_is_an_error(tokenizer, position, bad):
    bad = tokenizer.vocab_size if bad == "vocab_size" else bad
    row = [5, 3, 0, 0]  # position 3 is behind EOS
    row[position] = bad
    rule = rf"`ids` must be in \[0, vocab_size\) with vocab_size={tokenizer.vocab_size}"
    with pytest.raises(ValueError, match=rf"{rule}\. Received: {bad}"):
        tokenizer.decode(row)
    for decode in (tokenizer.tf_decode, tf.function(tokenizer.tf_decode)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=rule):
            decode(tf.constant([[4, 4, 4, 4], row]))


@pytest.mark.parametrize("ids", [[[4, 5]], [4.0], 4, ["a"]])
def test_ids_must_be_one_row_of_integers(tokenizer, ids):
    with pytest.raises(TypeError, match="`ids` must be one row of integers. Received: shape="):
        tokenizer.decode(ids)


def test_only_strings_are_encoded(tokenizer):
    with pytest.raises(TypeError, match="`text` must be a string. Received: bytes"):
        tokenizer.encode(b"a")


def test_save_and_load(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(b"an older file")
    tokenizer.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.model"]
    loaded = SentencePieceTokenizer.load(str(path))
    assert loaded.model_proto == tokenizer.model_proto
    assert loaded.encode("A dog") == tokenizer.encode("A dog")


def test_a_failed_save_leaves_the_old_file(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(b"an older file")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        tokenizer.save(path)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"an older file"]


def test_load_names_the_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="must be a SentencePiece model.*none.model"):
        SentencePieceTokenizer.load(tmp_path / "none.model")
    (tmp_path / "bad.model").write_bytes(b"garbage")
    with pytest.raises(ValueError, match="bad.model: `model_proto` must be a serialized"):
        SentencePieceTokenizer.load(tmp_path / "bad.model")


def test_model_proto_is_checked():
    with pytest.raises(TypeError, match="`model_proto` must be bytes. Received: str"):
        SentencePieceTokenizer("model")
    with pytest.raises(ValueError, match="must be a serialized SentencePiece model.*0 bytes"):
        SentencePieceTokenizer(b"")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"as control symbols.*without: \['pad_id'\]"),
        (
            {"pad_id": 3, "user_defined_symbols": ["<pad>"]},
            r"as control symbols.*without: \['pad_id'\]",
        ),
    ],
)
def test_models_of_others_need_the_special_ids(tmp_path, options, message):
    prefix = tmp_path / "other"
    SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_prefix=str(prefix),
        vocab_size=90,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    with pytest.raises(ValueError, match=message):
        SentencePieceTokenizer.load(f"{prefix}.model")


def test_both_directions_export_and_run_elsewhere(tokenizer, tmp_path):
    module = tf.Module()
    module.tokenizer = tokenizer.tf_tokenizer
    module.round_trip = tf.function(
        lambda text: tokenizer.tf_decode(tokenizer.tf_encode(text).to_tensor(0)),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(tmp_path / "saved"))
    again = tf.saved_model.load(str(tmp_path / "saved"))
    texts = [*SENTENCES[:5], *AWKWARD]
    expected = [tokenizer.decode(tokenizer.encode(text)) for text in texts]
    assert [text.decode() for text in again.round_trip(tf.constant(texts)).numpy()] == expected


def test_the_graph_tokenizer_can_be_first_used_inside_a_graph():
    tokenizer = SentencePieceTokenizer.train(SENTENCES, 90)
    dataset = tf.data.Dataset.from_tensors(SENTENCES[:2]).map(tokenizer.tf_encode)
    expected = [tokenizer.encode(text) for text in SENTENCES[:2]]
    assert next(iter(dataset)).to_list() == expected
    assert tokenizer.tf_encode(SENTENCES[:2]).to_list() == expected


def test_setting_the_seed_does_not_break_the_graph_tokenizer():
    tokenizer = SentencePieceTokenizer.train(SENTENCES, 91)
    twin, other = (
        SentencePieceTokenizer(tokenizer.model_proto),
        SentencePieceTokenizer.train(SENTENCES, 70),
    )
    tokenizers = (tokenizer, twin, other)
    graphs = [tf.function(each.tf_encode) for each in tokenizers]
    texts = tf.constant(SENTENCES[:3])
    expected = [[each.encode(text) for text in SENTENCES[:3]] for each in tokenizers]
    assert [graph(texts).to_list() for graph in graphs] == expected
    keras.utils.set_random_seed(1)
    keras.utils.clear_session()
    assert [graph(texts).to_list() for graph in graphs] == expected
    assert [each.tf_encode(texts).to_list() for each in tokenizers] == expected


def test_python_use_never_loads_tensorflow(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "t.model")
    code = (
        "import sys, keras_transformer_runner.tokenizers as text\n"
        "assert not {'tensorflow', 'sentencepiece', 'keras'} & set(sys.modules)\n"
        "t = text.SentencePieceTokenizer.load(sys.argv[1])\n"
        "assert t.decode(t.encode('A dog')) == 'A dog'\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "t.model")]
    subprocess.run(command, check=True, timeout=60)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*plain text has a tab")  # a line of the German side
def test_a_whole_corpus_has_the_same_ids_and_text_in_the_graph(shared_data):
    from keras_transformer.data import ParallelCorpus

    folder = shared_data / "multi30k"
    lines = list(ParallelCorpus(folder / "train.en.gz", folder / "train.de.gz").sentences())
    tokenizer = SentencePieceTokenizer.train(lines, 10_000)
    expected = [tokenizer.encode(line) for line in lines]
    ids = tokenizer.tf_encode(lines)
    assert ids.to_list() == expected
    texts = tokenizer.tf_decode(ids.to_tensor(tokenizer.pad_id)).numpy()
    assert [text.decode() for text in texts] == [tokenizer.decode(row) for row in expected]
