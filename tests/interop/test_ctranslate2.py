import random

import ctranslate2
import numpy as np
import pytest
from toy_model import randomise

from keras_transformer.config import TransformerConfig
from keras_transformer.decoding import Greedy
from keras_transformer.interop.ctranslate2 import save_ctranslate2
from keras_transformer.models import Transformer
from keras_transformer.translation import Translator
from keras_transformer_runner.tokenizers import SentencePieceTokenizer

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


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(residual="pre", activation="silu"),
        dict(positions="tensor2tensor", residual="pre"),
        dict(attention_chunk=3, norm_epsilon=1e-3, decoder_tied_layers=(0, 1, 0)),
        dict(output_bias=True, embedding_scale=2.0, activation="gelu_tanh"),
        dict(
            embedding_sharing="source_target",
            embedding_norm=True,
            residual="pre",
            output_bias=True,
            embedding_scale=1.0,
            positions="tensor2tensor",
            first_position=2,
        ),
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
        expected = [tokenizer.pieces.index(piece) for piece in result.hypotheses[0]]
        [ids] = ours.translate_ids(ours.pad([ours.source_ids(sentence)]))
        assert ids == expected
        seen.add(tuple(ids))
    assert len(seen) > 10  # answers that differ, or equality would say little


def test_only_its_own_files_are_replaced(tokenizer, tmp_path):
    model = make_model(tokenizer)
    for _ in range(2):
        save_ctranslate2(model, tokenizer, tmp_path / "a", overwrite=True)
    with pytest.raises(FileExistsError, match="an export needs a new folder. Received: .*a, which"):
        save_ctranslate2(model, tokenizer, tmp_path / "a")
    (tmp_path / "a" / "spm.model").touch()
    with pytest.raises(FileExistsError, match="which also holds spm.model"):
        save_ctranslate2(model, tokenizer, tmp_path / "a", overwrite=True)
    assert (tmp_path / "a" / "model.bin").exists()


def test_what_ctranslate2_lacks_is_refused(tokenizer, tmp_path):
    with pytest.raises(ValueError, match="`activation` must be one of.*Received: 'elu'"):
        save_ctranslate2(make_model(tokenizer, activation="elu"), tokenizer, tmp_path / "a")
    with pytest.raises(ValueError, match=r"must be model_dim / num_heads. Received: key_dim=7"):
        save_ctranslate2(make_model(tokenizer, key_dim=7), tokenizer, tmp_path / "a")
    for name, value in {
        "activation": "swiglu",
        "use_bias": False,
        "feed_forward_bias": False,
        "positions": "alibi",
        "residual": "b2t",
        "use_feed_forward": False,
        "normalization": "rms",
        "attention_score": "dot_product",
        "attention_window": 3,
        "embedding_sharing": "none",
        "decoder_recurrence": "ssru",
    }.items():
        with pytest.raises(ValueError, match=rf"`{name}` must be one of .* Received: {value!r}"):
            save_ctranslate2(make_model(tokenizer, **{name: value}), tokenizer, tmp_path / "a")
    with pytest.raises(ValueError, match="`final_norm` must go with .*Received: final_norm=True"):
        save_ctranslate2(make_model(tokenizer, final_norm=True), tokenizer, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_weights_stored_as_int8_give_what_quantizing_at_loading_gives(
    tokenizer, sentences, tmp_path
):
    model = make_model(tokenizer)
    before = model.get_weights()
    for name, quantization in (("float32", None), ("int8", "int8")):
        save_ctranslate2(
            model, tokenizer, tmp_path / name, max_length=20, quantization=quantization
        )
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("float32", "int8")]
    assert sizes[1] < sizes[0] / 2
    found = []
    for name in ("float32", "int8"):
        theirs = ctranslate2.Translator(str(tmp_path / name), compute_type="int8", intra_threads=1)
        rows = [[tokenizer.pieces[token] for token in tokenizer.encode(s)] for s in sentences]
        results = theirs.translate_batch(rows, beam_size=1, max_decoding_length=12)
        found.append([result.hypotheses[0] for result in results])
    assert found[0] == found[1]


def test_an_unknown_quantization_is_refused(tokenizer, tmp_path):
    with pytest.raises(ValueError, match=r"`quantization` must be one of .* Received: 'int3'"):
        save_ctranslate2(make_model(tokenizer), tokenizer, tmp_path, quantization="int3")
    assert not list(tmp_path.iterdir())
