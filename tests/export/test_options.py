"""One change of the config at a time, through both exports: the answers are Python's."""

import pytest
from toy_model import randomise

from keras_transformer import Greedy, Transformer, TransformerConfig, Translator
from keras_transformer.export import Runner, export_litert, export_saved_model
from keras_transformer.layers import TokenEmbedding

OPTIONS = {
    "pre": dict(residual="pre"),
    "b2t": dict(residual="b2t"),
    "rms": dict(normalization="rms"),
    "batch": dict(normalization="batch"),
    "no norm": dict(normalization="none"),
    "no residual": dict(use_residual=False),
    "no feed-forward": dict(use_feed_forward=False),
    "norm at the end": dict(final_norm=True),
    "tensor2tensor": dict(positions="tensor2tensor"),
    "learned": dict(positions="learned", max_positions=47),
    "rotary": dict(positions="rotary"),
    "relative": dict(positions="relative"),
    "alibi": dict(positions="alibi"),
    "no positions": dict(positions="none"),
    "unscaled": dict(attention_score="dot_product"),
    "additive": dict(attention_score="additive"),
    "chunks": dict(attention_chunk=5),
    "window": dict(attention_window=3),
    "chunks of relative positions": dict(attention_chunk=5, positions="relative"),
    "window of rotary positions": dict(attention_window=3, positions="rotary"),
    "gelu": dict(activation="gelu"),
    "swiglu": dict(activation="swiglu"),
    "geglu": dict(activation="geglu"),
    "no biases": dict(use_bias=False),
    "target and output shared": dict(embedding_sharing="target_output"),
    "nothing shared": dict(embedding_sharing="none"),
}


def model_of(tokenizer, **changes):
    """A model of random weights, whose tokens do not just repeat themselves."""
    config = TransformerConfig(
        **{
            **dict(vocab_size=tokenizer.vocab_size, model_dim=29, num_heads=3, key_dim=14),
            **dict(value_dim=17, intermediate_dim=37, encoder_layers=1, decoder_layers=2),
            **dict(pad_id=tokenizer.pad_id, unk_id=tokenizer.unk_id, dropout=0.0),
            **dict(bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id),
            **changes,
        }
    )
    model = randomise(Transformer(config), seed=3)
    for layer in model.layers:
        if isinstance(layer, TokenEmbedding):
            layer.embeddings.assign(0.2 * layer.embeddings)
    return model


@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_every_option_exports_to_both(changes, tokenizer, texts, tmp_path):
    model, strategy, texts = model_of(tokenizer, **changes), Greedy(extra_length=9), texts[:12]
    served = export_saved_model(
        model, tokenizer, tmp_path / "served", samples=texts, strategy=strategy
    )
    device = export_litert(model, tokenizer, tmp_path / "device", samples=texts, strategy=strategy)
    assert served.identical == device.identical == len(texts)
    answers = Translator(model, tokenizer, strategy).translate(texts)
    assert len(set(answers)) > len(texts) // 2, answers  # they could differ
    assert Runner(tmp_path / "device").translate(texts) == answers
