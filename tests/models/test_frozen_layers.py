"""What is frozen, and each layer's dtype policy, stay: in configs, files, and what reads them."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from backend import array
from toy_model import PAD, D, F, H, N, V, sources, targets, toy_config

from keras_transformer import layers
from keras_transformer.models import (
    LanguageModel,
    SequenceClassifier,
    TokenClassifier,
    Transformer,
)
from keras_transformer.models.transfer import in_float32
from keras_transformer.training import PaperSchedule, SmoothedCrossEntropy

C, T, S = 5, 5, 7
BATCH = {"source_ids": sources([S, 3]), "target_ids": targets(2, T)}
LABELS = targets(2, T, seed=3)
SMALL = toy_config(encoder_layers=2, decoder_layers=1, dropout=0.1)
MODELS = {
    "Transformer": lambda: Transformer(SMALL),
    "LanguageModel": lambda: LanguageModel(SMALL),
    "SequenceClassifier": lambda: SequenceClassifier(SMALL, C),
    "TokenClassifier": lambda: TokenClassifier(SMALL, C, dtype="mixed_bfloat16"),
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def changed(model):
    """Half frozen: a layer, a block but for one layer in it, a layer in a layer; two policies."""
    model.get_layer("embedding").trainable = False
    block = model.get_layer("decoder_0" if isinstance(model, LanguageModel) else "encoder_1")
    block.trainable = False
    block.feed_forward.trainable = True
    block.feed_forward.outer.trainable = False
    block.self_attention.dtype_policy = "mixed_float16"
    if isinstance(model, TokenClassifier):
        model.get_layer("classes").dtype_policy = model.dtype_policy
    return model


def state(layer):
    """Every layer within by its path, with what is to stay."""
    found = {}
    for each in layer._flatten_layers(include_self=False):
        if not isinstance(each, keras.layers.InputLayer):
            policy = keras.dtype_policies.serialize(each.dtype_policy)
            found[each.path] = (each.trainable, policy)
    return found, [weight.path for weight in layer.trainable_weights]


def through_a_file(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return keras.models.load_model(tmp_path / "model.keras")


@every_model
def test_configs_and_files_keep_them(make, tmp_path):
    model = changed(make())
    config = json.loads(json.dumps(model.get_config()))
    for again in (type(model).from_config(config), through_a_file(model, tmp_path)):
        assert type(again) is type(model) and again.get_config() == model.get_config()
        assert state(again) == state(model)
    clone = keras.models.clone_model(model)
    assert state(clone) == state(model)
    assert 0 < len(model.trainable_weights) < len(make().trainable_weights)


@pytest.mark.quick(1)
@every_model
def test_a_model_that_is_frozen_as_a_whole(make, tmp_path):
    model = make()
    model.trainable = False
    clone, loaded = keras.models.clone_model(model), through_a_file(model, tmp_path)
    for again in (type(model).from_config(model.get_config()), clone, loaded):
        assert again.trainable_weights == [] and state(again) == state(model)
    again.trainable = True
    assert len(again.trainable_weights) == len(make().trainable_weights)


def test_files_without_such_settings_load_as_ever():
    config = TokenClassifier(SMALL, C, dtype="mixed_bfloat16").get_config()
    del config["sublayers"], config["trainable"]
    again = TokenClassifier.from_config(config)
    assert again.get_layer("classes").compute_dtype == "float32"
    assert len(again.trainable_weights) > 0


def test_a_map_of_policies_stays(tmp_path):
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="float32")
    for path in ("decoder_0/feed_forward", "encoder_1"):  # and not what is in them
        policies[path] = keras.DTypePolicy("mixed_bfloat16")
    model = Transformer(SMALL, dtype=policies)
    again = through_a_file(model, tmp_path)
    for each in (model, again, Transformer.from_config(model.get_config())):
        found = [layer.path for layer in each._flatten_layers() if "16" in layer.compute_dtype]
        assert sorted(found) == ["decoder_0/feed_forward", "encoder_1"]
    np.testing.assert_array_equal(array(again(BATCH)), array(model(BATCH)))
    exact = in_float32(model)
    assert in_float32(exact) is exact is not model
    assert {layer.compute_dtype for layer in exact._flatten_layers()} <= {"float32", "int32"}
    for one, same in zip(exact.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, same)


def test_low_rank_adapters_stay(tmp_path):
    model = Transformer(SMALL)
    model.trainable = False
    projection = model.get_layer("encoder_0").self_attention.query_key_value
    projection.trainable = True
    projection.enable_lora(2, lora_alpha=3)
    projection.lora_kernel_b.assign(np.ones(projection.lora_kernel_b.shape))
    model.trainable = True
    model.get_layer("embedding").trainable = False
    projection._kernel.trainable = False
    again = through_a_file(model, tmp_path)
    assert state(again) == state(model)
    inner = again.get_layer("encoder_0").self_attention.query_key_value
    assert (inner.lora_rank, inner.lora_alpha) == (2, 3) and not inner._kernel.trainable
    np.testing.assert_allclose(array(again(BATCH)), array(model(BATCH)), atol=1e-5)
    # The kernel has taken the factors in. They learn on from there, which two of zeros would not.
    assert array(inner.lora_kernel_a).any() and not array(inner.lora_kernel_b).any()


# --- Layers in a model of one's own ------------------------------------------------------------

LAYERS = {
    "self-attention": lambda **k: layers.MultiHeadSelfAttention(
        N, H, attention_score="additive", **k
    ),
    "feed-forward": lambda **k: layers.PositionwiseFFN(F, activation="swiglu", **k),
    "block": lambda **k: layers.EncoderBlock(N, H, F, **k),
}


def own_model(layer):
    inputs = keras.Input((None, D))
    return keras.Model(inputs, layer(inputs))


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_a_layer_that_is_made_frozen_has_nothing_to_train(make, tmp_path):
    model = own_model(make(trainable=False))
    assert model.trainable_weights == [] and model.weights
    assert through_a_file(model, tmp_path).trainable_weights == []


def test_layers_in_layers_of_ones_own_model(tmp_path):
    memory = keras.Input((None, D))
    inputs, block = keras.Input((None, D)), layers.DecoderBlock(N, H, F, name="block")
    model = keras.Model([inputs, memory], block(inputs, memory))
    block.cross_attention.trainable = False
    block.cross_attention.key_projection.trainable = True
    block.feed_forward.dtype_policy = "mixed_bfloat16"
    block.feed_forward_norm.dtype_policy = "mixed_bfloat16"
    unbuilt = layers.DecoderBlock.from_config(json.loads(json.dumps(block.get_config())))
    assert unbuilt.get_config() == block.get_config()  # and not built yet
    for again in (through_a_file(model, tmp_path), keras.models.clone_model(model)):
        assert state(again) == state(model)
        assert again.get_layer("block").get_config() == block.get_config()


# --- Training goes on --------------------------------------------------------------------------


def half_frozen():
    model = Transformer(toy_config(encoder_layers=1, decoder_layers=1, dropout=0.0))
    model.get_layer("encoder_0").trainable = False
    model.get_layer("decoder_0").cross_attention.key_projection.trainable = False
    optimizer = keras.optimizers.Adam(PaperSchedule(D, warmup_steps=3))
    model.compile(optimizer, SmoothedCrossEntropy(0.1, pad_id=PAD), run_eagerly=True)
    return model


def test_the_optimizer_goes_on(tmp_path):
    """From a file of `save`, and from one of `ModelCheckpoint`, as if nothing had happened."""
    model = half_frozen()
    frozen = {weight.path: array(weight) for weight in model.get_layer("encoder_0").weights}
    checkpoint = keras.callbacks.ModelCheckpoint(str(tmp_path / "best.keras"))
    model.fit(BATCH, LABELS, shuffle=False, verbose=0, callbacks=[checkpoint])
    loaded = [through_a_file(model, tmp_path), keras.models.load_model(tmp_path / "best.keras")]
    model.fit(BATCH, LABELS, shuffle=False, verbose=0)
    for each in loaded:
        each.fit(BATCH, LABELS, shuffle=False, verbose=0)
        assert each.optimizer.iterations == 2
        for one, same in zip(each.variables, model.variables, strict=True):
            np.testing.assert_array_equal(one, same, err_msg=same.path)
        for one, same in zip(each.optimizer.variables, model.optimizer.variables, strict=True):
            np.testing.assert_array_equal(one, same, err_msg=same.path)
    for weight in model.get_layer("encoder_0").weights:
        np.testing.assert_array_equal(weight, frozen[weight.path])


GO_ON = """
import sys, warnings, keras, numpy
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
import keras_transformer
folder, epochs = sys.argv[1], int(sys.argv[2])
batch = dict(numpy.load(f"{folder}/batch.npz"))
labels = batch.pop("labels")
model = keras.models.model_from_json(open(f"{folder}/model.json").read())
model.load_weights(f"{folder}/first.weights.h5")
model.compile(keras.optimizers.Adam(0.01), keras_transformer.SmoothedCrossEntropy(0.1, pad_id=4),
              run_eagerly=True)
backup = keras.callbacks.BackupAndRestore(f"{folder}/backup", delete_checkpoint=False)
model.fit(batch, labels, epochs=epochs, callbacks=[backup], shuffle=False, verbose=0)
numpy.savez(f"{folder}/{epochs}.npz", *[keras.ops.convert_to_numpy(v) for v in
            (*model.variables, *model.optimizer.variables)])
"""


@pytest.mark.slow
def test_a_backup_goes_on_in_a_new_process(tmp_path):
    model = Transformer.from_config(half_frozen().get_config())  # not compiled
    (tmp_path / "model.json").write_text(model.to_json())
    model.save_weights(tmp_path / "first.weights.h5")
    np.savez(tmp_path / "batch.npz", **BATCH, labels=LABELS)
    for epochs in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", GO_ON, str(tmp_path), epochs],
            env=os.environ.copy(), capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr[-3000:]
    model = keras.models.model_from_json((tmp_path / "model.json").read_text())
    model.load_weights(tmp_path / "first.weights.h5")
    model.compile(
        keras.optimizers.Adam(0.01), SmoothedCrossEntropy(0.1, pad_id=PAD), run_eagerly=True
    )
    model.fit(BATCH, LABELS, epochs=2, shuffle=False, verbose=0)
    with np.load(tmp_path / "2.npz") as found:
        expected = [*model.variables, *model.optimizer.variables]
        assert len(found) == len(expected)
        for name, variable in zip(found, expected, strict=True):
            np.testing.assert_allclose(found[name], array(variable), atol=1e-6)
    assert len(model.trainable_weights) < len(model.weights)


# --- Quantization ------------------------------------------------------------------------------

MESSAGE = "quantized when they are exported.*call `export_litert`.*mode='int8'.*Received: "


@pytest.mark.filterwarnings("ignore:Layer (InputLayer|Dropout) does not have a `quantize`")
def test_quantization_says_what_to_call():
    """In one sentence, and before anything has changed."""
    for make in MODELS.values():
        with pytest.raises(ValueError, match=f"{MESSAGE}mode='int8', model="):
            make().quantize("int8")
    for make in LAYERS.values():
        model = own_model(make())
        with pytest.raises(ValueError, match=f"{MESSAGE}mode='int8', layer="):
            model.layers[1].quantize("int8")
        with pytest.warns(UserWarning, match=f"{MESSAGE}mode='int8', layer="):
            model.quantize("int8")
        assert {layer.dtype_policy.name for layer in model._flatten_layers()} == {"float32"}
    embedding = layers.TokenEmbedding(V, D)
    embedding.build((None, None))
    with pytest.raises(ValueError, match=MESSAGE):
        embedding.quantize("int8")
    with pytest.raises(NotImplementedError, match="does not have a `quantize` method"):
        layers.SinusoidalPositions().quantize("int8")  # there is nothing to quantize in it


@pytest.mark.parametrize("make", [lambda **k: Transformer(SMALL, **k), *LAYERS.values()])
def test_a_quantized_policy_is_refused(make):
    with pytest.raises(ValueError, match=f"{MESSAGE}dtype='int8_from_float32'"):
        make(dtype="int8_from_float32")
