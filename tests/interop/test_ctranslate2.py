import random

import ctranslate2
import pytest
from toy_model import randomise

from keras_transformer.config import TransformerConfig
from keras_transformer.decoding import Greedy, Translator
from keras_transformer.interop.ctranslate2 import save_ctranslate2
from keras_transformer.models import Transformer
from keras_transformer.text import SentencePieceTokenizer

WORDS = [a + b + c for a in "bdk" for b in "aeiou" for c in "lmn"]


@pytest.fixture(scope="module")
def sentences():
    generator = random.Random(3)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, 9))) for _ in range(40)]


@pytest.fixture(scope="module")
def tokenizer(sentences):
    return SentencePieceTokenizer.train(sentences, 40)


def make_model(tokenizer, **overrides):
    fields = dict(model_dim=26, num_heads=2, encoder_layers=2, decoder_layers=3)
    config = TransformerConfig(
        vocab_size=tokenizer.vocab_size, intermediate_dim=31, **{**fields, **overrides}
    )
    return randomise(Transformer(config), seed=5)


@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(residual="pre", activation="silu"),
        dict(positions="tensor2tensor", residual="pre"),
        dict(attention_chunk=3, norm_epsilon=1e-3),
    ],
    ids=str,
)
def test_gives_the_same_tokens(tokenizer, sentences, tmp_path, options):
    model = make_model(tokenizer, **options)
    save_ctranslate2(model, tokenizer, tmp_path / "new" / "model")
    theirs = ctranslate2.Translator(str(tmp_path / "new" / "model"), intra_threads=1)
    ours = Translator(model, tokenizer, Greedy(extra_length=9))
    seen = set()
    for sentence in sentences:
        tokens = [tokenizer.pieces[token] for token in tokenizer.encode(sentence)]
        [result] = theirs.translate_batch(
            [tokens], beam_size=1, min_decoding_length=0,
            max_decoding_length=len(tokens) + 1 + 9,
            suppress_sequences=[[tokenizer.pieces[tokenizer.pad_id]],
                                [tokenizer.pieces[tokenizer.bos_id]]],
        )  # fmt: skip
        expected = [tokenizer.piece_ids[piece] for piece in result.hypotheses[0]]
        [ids] = ours.translate_ids(ours.pad([ours.source_ids(sentence)]))
        assert ids == expected
        seen.add(tuple(ids))
    assert len(seen) > 10  # answers that differ, or equality would say little


def test_what_ctranslate2_lacks_is_refused(tokenizer, tmp_path):
    with pytest.raises(ValueError, match="`activation` must be one of.*Received: 'elu'"):
        save_ctranslate2(make_model(tokenizer, activation="elu"), tokenizer, tmp_path / "a")
    with pytest.raises(ValueError, match=r"must be model_dim / num_heads. Received: key_dim=7"):
        save_ctranslate2(make_model(tokenizer, key_dim=7), tokenizer, tmp_path / "a")
    for name, value in {
        "activation": "swiglu",
        "use_bias": False,
        "positions": "alibi",
        "residual": "b2t",
        "use_feed_forward": False,
        "normalization": "rms",
        "attention_score": "dot_product",
        "attention_window": 3,
        "embedding_sharing": "none",
    }.items():
        with pytest.raises(ValueError, match=rf"`{name}` must be one of .* Received: {value!r}"):
            save_ctranslate2(make_model(tokenizer, **{name: value}), tokenizer, tmp_path / "a")
    with pytest.raises(ValueError, match="`final_norm` must go with .*Received: final_norm=True"):
        save_ctranslate2(make_model(tokenizer, final_norm=True), tokenizer, tmp_path / "a")
    assert not (tmp_path / "a").exists()
