import subprocess
import sys

import numpy as np
import pytest
from toy_tf_models import (
    EOS,
    PAD,
    UNK,
    D,
    F,
    N,
    V,
    logits_of,
    models,
    rows,
    shifted,
    tf_keras,
    toy_seq2seq,
)

from keras_transformer.config import TransformerConfig
from keras_transformer.interop.tf_models import from_tf_models

RATES = dict(dropout_rate=0.1, attention_dropout_rate=0.2, intermediate_dropout=0.3)


def assert_same_logits(seq2seq, ours, atol=1e-5):
    source_ids, target_ids = rows((5, 11, 2)), rows((7, 7, 7), seed=1)
    received = ours({"source_ids": source_ids, "target_ids": shifted(target_ids)}, training=False)
    expected = logits_of(seq2seq, source_ids, target_ids)
    np.testing.assert_allclose(np.asarray(received), expected, rtol=0, atol=atol)


def test_settings_are_taken_over():
    seq2seq = toy_seq2seq(activation="gelu", use_bias=True, norm_first=False, **RATES)
    expected = TransformerConfig(
        **dict(vocab_size=V, model_dim=D, num_heads=N, intermediate_dim=F, activation="gelu"),
        **dict(encoder_layers=2, decoder_layers=3, use_bias=True, residual="post"),
        **dict(positions="tensor2tensor", final_norm=True, norm_epsilon=1e-6),
        **dict(dropout=0.1, attention_dropout=0.2, intermediate_dropout=0.3),
        **dict(pad_id=PAD, bos_id=PAD, eos_id=EOS, unk_id=UNK),
    )
    assert from_tf_models(seq2seq).config == expected


def test_the_defaults_of_tf_models():
    config = from_tf_models(toy_seq2seq(vocab_size=np.int32(V))).config  # as its own task has it
    assert type(config.vocab_size) is int
    assert (config.residual, config.use_bias, config.activation) == ("pre", False, "relu")
    assert (config.dropout, config.attention_dropout, config.intermediate_dropout) == (0, 0, 0)


def test_dropout_rates_that_differ_must_be_given():
    seq2seq = toy_seq2seq(encoder=RATES, decoder={**RATES, "attention_dropout_rate": 0.5})
    message = (
        r"`dropout` must be given where .* differ in `dropout_rate`. Received: \[0.0, 0.1, 0.1\]"
    )
    with pytest.raises(ValueError, match=message):
        from_tf_models(seq2seq)
    with pytest.raises(ValueError, match=r"`attention_dropout` must be given.*\[0.2, 0.5\]"):
        from_tf_models(seq2seq, dropout=0.4)
    ours = from_tf_models(seq2seq, dropout=0.4, attention_dropout=0.0)
    rates = ours.config.dropout, ours.config.attention_dropout, ours.config.intermediate_dropout
    assert rates == (0.4, 0.0, 0.3)
    assert_same_logits(seq2seq, ours)
    seq2seq = toy_seq2seq(encoder=RATES)
    with pytest.raises(ValueError, match=r"`intermediate_dropout` must be given.*\[0.3, 0.0\]"):
        from_tf_models(seq2seq, dropout=0, attention_dropout=0)


def test_special_ids():
    seq2seq = toy_seq2seq()
    seq2seq._eos_id = [7]  # as tf-models' beam search takes it
    config = from_tf_models(seq2seq, unk_id=5).config
    assert (config.eos_id, config.unk_id, config.pad_id, config.bos_id) == (7, 5, 0, 0)
    for unk_id in (0, 7):
        with pytest.raises(ValueError, match=f"`unk_id` must be another .*unk_id={unk_id}, pad 0"):
            from_tf_models(seq2seq, unk_id=unk_id)
    with pytest.raises(ValueError, match=r"`unk_id` must be an id in \[0, vocab_size\).*=23,"):
        from_tf_models(seq2seq, unk_id=23)
    seq2seq._eos_id = [1, 7]
    with pytest.raises(ValueError, match=r"`eos_id` must be one id. Received: \[1, 7\]"):
        from_tf_models(seq2seq)


@pytest.mark.slow
def test_activations_are_known_by_what_they_compute():
    import tensorflow as tf
    from official.modeling import activations

    def clipped(x):
        return tf.clip_by_value(x, 0, 6)

    for activation, name in (
        (clipped, "relu6"),
        (activations.simple_swish, "silu"),
        (activations.gelu, "gelu_tanh"),
        (None, "linear"),
    ):
        seq2seq = toy_seq2seq(activation=activation)
        ours = from_tf_models(seq2seq)
        assert ours.config.activation == name
        assert_same_logits(seq2seq, ours)
    # Keras 2 and 3 mean different things by it.
    with pytest.raises(ValueError, match="`activation` must compute.*Received: hard_sigmoid$"):
        from_tf_models(toy_seq2seq(activation="hard_sigmoid"))
    with pytest.raises(ValueError, match="in all blocks.*Received: relu, gelu$"):
        from_tf_models(
            toy_seq2seq(encoder=dict(activation="relu"), decoder=dict(activation="gelu"))
        )


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "name, encoder, decoder",
    [
        ("num_attention_heads", 1, 2),
        ("intermediate_size", 7, 13),
        ("use_bias", True, False),
        ("norm_first", False, True),
        ("norm_epsilon", 1e-5, 1e-6),
    ],
)
def test_settings_that_differ_between_the_stacks(name, encoder, decoder):
    seq2seq = toy_seq2seq(encoder={name: encoder}, decoder={name: decoder})
    message = f"`{name}` must be the same in encoder and decoder. Received: {encoder} and {decoder}"
    with pytest.raises(ValueError, match=message):
        from_tf_models(seq2seq)


def test_an_epsilon_that_the_last_norm_does_not_share():
    with pytest.raises(ValueError, match="`norm_epsilon` must be 1e-06: .*Received: 1e-05"):
        from_tf_models(toy_seq2seq(norm_epsilon=1e-5))


def test_widths_and_scales_of_another_model():
    with pytest.raises(ValueError, match="`embedding_width` must be even and at least 4.*: 2"):
        from_tf_models(toy_seq2seq(width=2))
    with pytest.raises(ValueError, match="`embedding_width` must be even.*: 11"):
        from_tf_models(toy_seq2seq(width=11, built=False))  # tf-models itself fails when called
    seq2seq = toy_seq2seq()
    seq2seq.embedding_lookup._scale_factor = None
    with pytest.raises(
        ValueError, match="must have a `scale_factor` .*scale_factor=None, emb.*=10"
    ):
        from_tf_models(seq2seq)
    seq2seq = toy_seq2seq()
    seq2seq.position_embedding._max_timescale = 2e4
    with pytest.raises(ValueError, match="`position_embedding` must .*: 1.0 and 20000.0"):
        from_tf_models(seq2seq)


def test_a_model_without_weights():
    with pytest.raises(
        ValueError, match="call it once on `inputs` and `targets`. Received: a model"
    ):
        from_tf_models(toy_seq2seq(built=False))


@pytest.mark.slow
def test_layers_of_other_classes():
    class Encoder(models.TransformerEncoder):
        pass

    from official.nlp.modeling import layers

    class Attention(layers.CachedAttention):
        pass

    with pytest.raises(TypeError, match="`seq2seq` must be of the class Seq2SeqTr.*: builtins.str"):
        from_tf_models("a model")
    with pytest.raises(TypeError, match="`encoder_layer` must .* builtins.NoneType"):
        from_tf_models(models.Seq2SeqTransformer())
    seq2seq = toy_seq2seq()
    seq2seq.encoder_layer = Encoder()
    with pytest.raises(TypeError, match="`encoder_layer` must be of.*no subclass. .*Encoder"):
        from_tf_models(seq2seq)
    seq2seq.encoder_layer, seq2seq.decoder_layer = toy_seq2seq().encoder_layer, None
    with pytest.raises(TypeError, match="`decoder_layer` must .* builtins.NoneType"):
        from_tf_models(seq2seq)
    seq2seq = toy_seq2seq(decoder=dict(self_attention_cls=Attention))
    with pytest.raises(
        TypeError, match="`self_attention_cls` must be of the class CachedAttention"
    ):
        from_tf_models(seq2seq)
    seq2seq = toy_seq2seq(decoder=dict(cross_attention_cls=layers.TalkingHeadsAttention))
    with pytest.raises(TypeError, match="`cross_attention_cls` must.*TalkingHeadsAttention"):
        from_tf_models(seq2seq)


def test_blocks_of_other_classes_and_settings():
    from official.nlp.modeling import layers

    common = dict(num_attention_heads=N, inner_dim=F, inner_activation="relu", use_bias=False)
    common |= dict(norm_first=True, norm_epsilon=1e-6)

    def with_block(block):
        seq2seq = toy_seq2seq()
        block(np.zeros((1, 3, D), "float32"))
        seq2seq.encoder_layer.encoder_layers[1] = block
        return seq2seq

    block = layers.TransformerEncoderBlock(**common, num_kv_heads=1)
    with pytest.raises(TypeError, match="`self-attention` must .*multi_query_attention"):
        from_tf_models(with_block(block))
    block = layers.TransformerEncoderBlock(**common, use_rms_norm=True)
    with pytest.raises(TypeError, match="`norm` must be of the class LayerNormalization.*RMSNorm"):
        from_tf_models(with_block(block))
    with pytest.raises(TypeError, match="`encoder_layers` must .*ReZeroTransformer"):
        from_tf_models(with_block(layers.ReZeroTransformer(N, F, "relu")))
    # A setting that nothing here reads is found by what it does.
    block = layers.TransformerEncoderBlock(**common, use_query_residual=False)
    with pytest.raises(ValueError, match="`seq2seq` must give the logits of tf-models' own code"):
        from_tf_models(with_block(block))


def test_weights_that_are_not_numbers():
    seq2seq = toy_seq2seq()
    seq2seq.decoder_layer.output_normalization.gamma.assign(np.full(D, np.nan))
    with pytest.raises(ValueError, match="that differ from the converted model's by nan"):
        from_tf_models(seq2seq)


def test_the_result_is_an_ordinary_model(tmp_path):
    import keras

    seq2seq = toy_seq2seq(use_bias=True, norm_first=False)
    from_tf_models(seq2seq).save(tmp_path / "model.keras")
    assert_same_logits(seq2seq, keras.models.load_model(tmp_path / "model.keras"))


@pytest.mark.slow
def test_precision():
    seq2seq = toy_seq2seq()
    ours = from_tf_models(seq2seq, dtype="mixed_bfloat16")
    assert ours.get_layer("embedding").compute_dtype == "bfloat16"
    assert_same_logits(seq2seq, ours, atol=0.1)
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        half = toy_seq2seq()
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    assert half.compute_dtype == "bfloat16"
    assert_same_logits(seq2seq, from_tf_models(half))  # the weights themselves are float32


@pytest.mark.slow
def test_tf_models_is_never_imported(repo_root):
    script = (
        "import sys, keras_transformer.interop.tf_models\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('official', 'tf_keras')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=repo_root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
