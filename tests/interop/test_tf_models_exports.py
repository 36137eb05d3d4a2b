"""From a model that tf-models trained to both exports: it spells words in the next capitals."""

import io
import random

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from toy_tf_models import EOS, PAD, UNK, logits_of, models, shifted, tf_keras

from keras_transformer.decoding import Greedy
from keras_transformer.export import export_litert, export_saved_model
from keras_transformer.interop.tf_models import from_tf_models
from keras_transformer.translation import Translator
from keras_transformer_runner.runner import Runner
from keras_transformer_runner.tokenizers import SentencePieceTokenizer

pytestmark = pytest.mark.slow

LETTERS = "abcdefgh"
LONGEST = 11  # tokens, EOS included
EXTRA = 4


def sentence(rng):
    return "".join(rng.choice(LETTERS + " ") for _ in range(rng.randint(1, LONGEST - 3))).strip()


def answer(text):
    return text.translate(str.maketrans(LETTERS, LETTERS[1:] + LETTERS[0])).upper()


@pytest.fixture(scope="module")
def tokenizer():
    """With the ids that tf-models' `train_sentencepiece.py` gives: no BOS."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([f"{LETTERS} {LETTERS.upper()}"] * 5),
        model_writer=model,
        model_type="char",
        vocab_size=20,
        **dict(bos_id=-1, pad_id=PAD, eos_id=EOS, unk_id=UNK, minloglevel=2),
    )
    return SentencePieceTokenizer(model.getvalue())


def padded(rows):
    return np.array([[*row, EOS, *[PAD] * (LONGEST - 1 - len(row))] for row in rows], "int32")


@pytest.fixture(
    scope="module",
    params=[True, pytest.param(False, marks=pytest.mark.release)],
    ids=["pre-norm", "post-norm"],
)
def seq2seq(request, tokenizer):
    """Trained in tf_keras for some seconds, with dropout."""
    tf_keras.utils.set_random_seed(3)
    stack = dict(
        **dict(num_layers=1, num_attention_heads=2, intermediate_size=37, dropout_rate=0.01),
        **dict(attention_dropout_rate=0.01, norm_first=request.param, use_bias=request.param),
    )
    seq2seq = models.Seq2SeqTransformer(
        **dict(vocab_size=tokenizer.vocab_size, embedding_width=26, dropout_rate=0.01),
        **dict(extra_decode_length=EXTRA, beam_size=1, alpha=0.0),
        encoder_layer=models.TransformerEncoder(**stack),
        decoder_layer=models.TransformerDecoder(**stack),
    )
    rng = random.Random(5)
    texts = [sentence(rng) for _ in range(3000)]
    sources = padded([tokenizer.encode(text) for text in texts])
    targets = padded([tokenizer.encode(answer(text)) for text in texts])

    def loss(labels, logits):
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(labels, tf.int32), logits)
        real = tf.cast(labels != PAD, tf.float32)
        return tf.reduce_sum(losses * real) / tf.reduce_sum(real)

    seq2seq.compile(optimizer=tf_keras.optimizers.Adam(5e-3), loss=loss)
    seq2seq.fit(
        {"inputs": sources, "targets": targets}, targets, batch_size=64, epochs=8, verbose=0
    )
    return seq2seq


@pytest.fixture(scope="module")
def ours(seq2seq):
    return from_tf_models(seq2seq)


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(7)
    return [sentence(rng) for _ in range(24)]


@pytest.fixture(scope="module")
def expected(seq2seq, tokenizer, texts):
    """The answers of tf-models' own search."""
    answers = []
    for text in texts:
        source = np.array([[*tokenizer.encode(text), EOS]], "int32")
        answers.append(tokenizer.decode(seq2seq({"inputs": source})["outputs"][0].numpy()))
    return answers


def test_it_has_learnt_something(texts, expected):
    right = sum(answer(text) == received for text, received in zip(texts, expected, strict=True))
    assert right > 0.8 * len(texts)


def test_trained_logits_are_equal(seq2seq, ours, tokenizer, texts):
    sources = padded([tokenizer.encode(text) for text in texts])
    targets = padded([tokenizer.encode(answer(text)) for text in texts])
    expected = logits_of(seq2seq, sources, targets)
    received = ours({"source_ids": sources, "target_ids": shifted(targets)}).numpy()
    np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-5)


def test_the_translator_gives_the_same_text(ours, tokenizer, texts, expected):
    assert Translator(ours, tokenizer, Greedy(extra_length=EXTRA)).translate(texts) == expected


def test_the_saved_model_gives_the_same_text(ours, tokenizer, texts, expected, tmp_path):
    report = export_saved_model(ours, tokenizer, tmp_path / "serving", samples=texts)
    assert report.token_agreement == 1 and report.identical == len(texts)
    run = tf.saved_model.load(str(tmp_path / "serving")).signatures["serving_default"]
    received = run(text=tf.constant(texts))["translation"].numpy()
    assert [text.decode() for text in received] == expected


@pytest.mark.parametrize("mode", ["float32", "int8"])
def test_the_device_gives_the_same_text(ours, tokenizer, texts, expected, tmp_path, mode):
    report = export_litert(ours, tokenizer, tmp_path / mode, samples=texts, mode=mode)
    assert report.token_agreement >= report.promised_agreement
    received = Runner(tmp_path / mode).translate(texts)
    same = sum(a == b for a, b in zip(received, expected, strict=True))
    assert same == len(texts) if mode == "float32" else same > 0.8 * len(texts)
