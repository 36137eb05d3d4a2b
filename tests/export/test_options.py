"""Every option of the config through both exports: the answers are Python's."""

import numpy as np
import pytest
import tensorflow as tf
from toy_model import randomise
from toy_options import EXPORTED, OPTIONS

from keras_transformer import (
    BeamSearch,
    Greedy,
    LanguageModel,
    SentencePieceTokenizer,
    Transformer,
    TransformerConfig,
    Translator,
)
from keras_transformer.export import export_litert, export_saved_model
from keras_transformer.export.litert import flatbuffer
from keras_transformer.export.litert.conversion import convert
from keras_transformer.export.litert.graphs import DeviceModule
from keras_transformer.layers import TokenEmbedding
from keras_transformer_runner import Runner


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
    model = randomise(Transformer(config), seed=1)
    for layer in model.layers:
        if isinstance(layer, TokenEmbedding):
            layer.embeddings.assign(0.2 * layer.embeddings)
    return model


# Half a minute each: those in which most options meet come first.
QUICK = ("rotary, window, b2t",)
SLOW = (
    "like Flan-T5",
    "ssru, tensor2tensor",
    "alibi, chunk, additive",
    "learned, nothing shared, gelu",
    "relative, window, pre, batch",
)


def marks(name):
    return () if name in QUICK else pytest.mark.slow if name in SLOW else pytest.mark.release


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in EXPORTED])
def test_every_option_exports_to_both(name, tokenizer, texts, tmp_path):
    changes = {**OPTIONS[name]}
    if "max_positions" in changes:
        changes["max_positions"] = 47
    model, strategy, texts = model_of(tokenizer, **changes), Greedy(extra_length=9), texts[:12]
    options = dict(samples=texts, strategy=strategy, warmup_batch_sizes=())
    served = export_saved_model(model, tokenizer, tmp_path / "served", **options)
    device = export_litert(model, tokenizer, tmp_path / "device", samples=texts, strategy=strategy)
    assert served.identical == device.identical == len(texts)
    answers = Translator(model, tokenizer, strategy).translate(texts)
    assert len(set(answers)) > len(texts) // 2, answers  # they could differ
    assert Runner(tmp_path / "device").translate(texts) == answers


def test_a_bias_of_the_logits_does_not_store_their_table_twice():
    """Even where a norm before them has a gain and an offset, which a converter would fold in."""
    options = dict(model_dim=64, num_heads=2, intermediate_dim=16, dropout=0.0, output_bias=True)
    config = TransformerConfig(vocab_size=251, encoder_layers=1, decoder_layers=1, **options)
    model = randomise(Transformer(config))
    content, _ = convert(DeviceModule(model, Greedy()), "float32")
    size = flatbuffer.weight_bytes(flatbuffer.read(content))
    assert size < 4 * (model.count_params() + config.vocab_size * config.model_dim // 2)


@pytest.mark.slow
def test_equal_sums_are_ordered_alike_everywhere(tokenizer, texts, tmp_path):
    """All weights are 0, so all ids are equally likely at every step: only the rule chooses."""
    model = model_of(tokenizer)
    model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    strategy, texts = BeamSearch(beam_size=3, n_best=3, extra_length=2, min_length=2), texts[:3]
    export_saved_model(model, tokenizer, tmp_path / "served", samples=texts, strategy=strategy)
    export_litert(model, tokenizer, tmp_path / "device", samples=texts, strategy=strategy)
    served, runner = (
        tf.saved_model.load(tmp_path / "served").signatures,
        Runner(tmp_path / "device"),
    )
    for text in texts:
        (expected,) = Translator(model, tokenizer, strategy).translate_with_details([text])
        wanted = [hypothesis.ids for hypothesis in expected]
        assert len({*map(tuple, wanted)}) == 3
        (found,) = runner.translate_with_details([text])
        assert [hypothesis.text for hypothesis in found] == [each.text for each in expected]
        answer = served["translate"](text=tf.constant([text]), n_best=tf.constant([3]))
        assert [piece.decode() for piece in answer["translations"][0].numpy()] == [
            each.text for each in expected
        ]
        (compiled,) = Translator(
            model, tokenizer, strategy, jit_compile=True
        ).translate_with_details([text])
        assert [hypothesis.ids for hypothesis in compiled] == wanted


@pytest.mark.parametrize("export", [export_saved_model, export_litert])
def test_exports_are_made_on_tensorflow(export, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    message = "are made on TensorFlow: `model.save.*Received: backend='jax'"
    with pytest.raises(RuntimeError, match=message):
        export(None, tokenizer, tmp_path / "out", samples=["a"])
    assert not (tmp_path / "out").exists()


def test_a_model_without_an_encoder_is_refused(tokenizer, tmp_path):
    config = TransformerConfig(vocab_size=tokenizer.vocab_size, model_dim=8, num_heads=2)
    with pytest.raises(TypeError, match="must be a `Transformer`.*Received: LanguageModel"):
        export_litert(LanguageModel(config), tokenizer, tmp_path / "out", samples=["a"])
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def other_tokenizer():
    """The target's: capitals only, so another number of ids and other ids for the same letter."""
    return SentencePieceTokenizer.train(["ABCDEFGH"] * 5, 13, model_type="char")


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["target_output", pytest.param("none", marks=pytest.mark.slow)])
def test_a_vocabulary_for_each_side(sharing, tokenizer, other_tokenizer, texts, tmp_path):
    assert other_tokenizer.vocab_size != tokenizer.vocab_size
    model = model_of(
        tokenizer, target_vocab_size=other_tokenizer.vocab_size, embedding_sharing=sharing
    )
    arguments = dict(
        samples=texts, strategy=Greedy(extra_length=9), target_tokenizer=other_tokenizer
    )
    served = export_saved_model(model, tokenizer, tmp_path / "served", **arguments)
    device = export_litert(model, tokenizer, tmp_path / "device", **arguments)
    assert served.identical == device.identical == len(texts)
    answers = Translator(
        model, tokenizer, Greedy(extra_length=9), target_tokenizer=other_tokenizer
    ).translate(texts)
    assert len(set(answers)) > 5 and "".join(answers).isupper()
    assert Runner(tmp_path / "device").translate(texts) == answers
    files = {path.name for path in (tmp_path / "device").iterdir()}
    assert {"tokenizer.model", "target_tokenizer.model"} <= files
    with pytest.raises(
        ValueError, match="`target_tokenizer` and the model must have the same `voc"
    ):
        Translator(model, tokenizer)


@pytest.mark.slow
def test_a_target_tokenizer_of_another_export_is_noticed(
    tokenizer, other_tokenizer, texts, tmp_path
):
    model = model_of(
        tokenizer,
        target_vocab_size=other_tokenizer.vocab_size,
        embedding_sharing="target_output",
    )
    export_litert(
        model, tokenizer, tmp_path / "device", samples=texts, target_tokenizer=other_tokenizer
    )
    tokenizer.save(tmp_path / "device" / "target_tokenizer.model")
    with pytest.raises(ValueError, match="target_tokenizer.model must be the file"):
        Runner(tmp_path / "device")


@pytest.mark.slow
def test_a_source_longer_than_the_learned_table_is_an_error(tokenizer, texts, tmp_path):
    """In Python, in the SavedModel, on the device: with the limit, and never another text."""
    import tensorflow as tf

    limit = 47
    model = model_of(tokenizer, positions="learned", max_positions=limit)
    strategy = Greedy(extra_length=3)
    served = tmp_path / "served"
    export_saved_model(
        model, tokenizer, served, samples=texts, strategy=strategy, warmup_batch_sizes=()
    )
    export_litert(model, tokenizer, tmp_path / "device", samples=texts, strategy=strategy)
    text = "abcdefgh" * 9
    for system in (Translator(model, tokenizer, strategy), Runner(tmp_path / "device")):
        with pytest.raises(ValueError, match=f"`max_source_length` = {limit} tokens"):
            system.translate([text])
    served = tf.saved_model.load(str(served)).signatures
    answer = served["translate"](text=tf.constant([text]), n_best=tf.constant([0]))
    assert answer["status"].numpy().tolist() == [b"too_long"]
    assert served["serving_default"](text=tf.constant([text]))["translation"].numpy()[0] == b""
    answer = served["translate_ids"](source_ids=tf.fill((1, limit + 1), 5))
    assert answer["status"].numpy().tolist() == [b"too_long"]
