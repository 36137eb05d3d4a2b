"""The model as a Keras model: shapes, weights, `predict`, `fit`, configuration."""

import keras
import numpy as np
import pytest
from toy_model import (
    BOS,
    PAD,
    D,
    F,
    H,
    N,
    U,
    V,
    frozen_toy,
    logits,
    sources,
    targets,
    toy_config,
    toy_transformer,
)

from keras_transformer.models import Transformer
from keras_transformer.training import SmoothedCrossEntropy

T, S = 5, 7


def test_shapes_names_and_dtypes():
    model = frozen_toy()
    assert isinstance(model, keras.Model)
    assert {x.name: (x.shape, x.dtype) for x in model.inputs} == {
        "source_ids": ((None, None), "int32"),
        "target_ids": ((None, None), "int32"),
    }
    assert (model.output.shape, model.output.dtype) == ((None, None, V), "float32")
    assert logits(model, sources([S, 3]), targets(2, T)).shape == (2, T, V)


def test_number_of_weights():
    """The paper's model: one embedding for source, target and output, and no other large matrix."""
    self_attention = D * N * (2 * H + U) + N * (2 * H + U) + N * U * D + D
    feed_forward = D * F + F + F * D + D
    encoder = self_attention + feed_forward + 2 * 2 * D
    decoder = 2 * self_attention + feed_forward + 3 * 2 * D
    expected = V * D + 2 * encoder + 3 * decoder
    deep = dict(encoder_layers=2, decoder_layers=3)
    post, pre = frozen_toy(**deep), frozen_toy(**deep, residual="pre")
    assert sum(w.numpy().size for w in post.trainable_weights) == expected
    assert sum(w.numpy().size for w in pre.trainable_weights) == expected + 2 * 2 * D


@pytest.mark.parametrize("jit", [False, True])
def test_predict_equals_the_call(jit):
    model = toy_transformer()
    model.compile(jit_compile=jit)
    inputs = {"source_ids": sources([S, 3, 0]), "target_ids": targets(3, T)}
    np.testing.assert_allclose(model.predict(inputs, verbose=0), model(inputs), atol=1e-5)


def test_fit_refuses_text_with_advice():
    tf = pytest.importorskip("tensorflow")  # its strings and data sets, whatever the backend
    inputs = {"source_ids": tf.constant([["a", "b"]]), "target_ids": targets(1, T)}
    labels = targets(1, T)
    message = "`fit` takes token ids.*tokenize in tf.data.*Received: dtype=string"
    with pytest.raises(ValueError, match=message):
        frozen_toy().fit(inputs, labels)
    with pytest.raises(ValueError, match=message):
        frozen_toy().fit(tf.data.Dataset.from_tensors((inputs, labels)))
    with pytest.raises(ValueError, match="`fit` takes token ids"):
        frozen_toy().fit({**inputs, "source_ids": np.array([["a", "b"]])}, labels)


@pytest.mark.smoke
def test_fits_a_tiny_task():
    """Copying three tokens, with dropout off, is learnt by heart in a few steps."""
    model = Transformer(toy_config(encoder_layers=1, decoder_layers=1))
    loss = SmoothedCrossEntropy(0.0, pad_id=PAD)
    model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)
    source_ids = sources([4] * 8)
    target_ids = np.insert(source_ids[:, :-1], 0, BOS, axis=1)
    inputs = {"source_ids": source_ids, "target_ids": target_ids}
    losses = [float(model.train_on_batch(inputs, source_ids)) for _ in range(60)]
    assert losses[0] > 2 and losses[-1] < 0.3


@pytest.mark.smoke
def test_config_round_trip():
    model = frozen_toy(residual="pre", dropout=0.1)
    config = model.get_config()
    rebuilt = Transformer.from_config(config)
    assert rebuilt.config == model.config and rebuilt.get_config() == config
    shapes = [[(w.path, w.shape) for w in m.trainable_weights] for m in (model, rebuilt)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_config_keeps_the_policy(policy):
    model = Transformer(toy_config(), dtype=policy)
    rebuilt = Transformer.from_config(model.get_config())
    assert [layer.dtype_policy.name for layer in rebuilt.layers[2:]] == [
        layer.dtype_policy.name for layer in model.layers[2:]
    ]
    assert rebuilt.get_layer("decoder_0").compute_dtype == policy.removeprefix("mixed_")


@pytest.mark.quick(1)
@pytest.mark.parametrize("way", ["argument", "global"])
def test_half_precision_scales_the_loss_and_goes_on_when_loaded(way, tmp_path):
    if way == "global":
        keras.config.set_dtype_policy("mixed_float16")
    try:
        options = {"dtype": "mixed_float16"} if way == "argument" else {}
        model = Transformer(toy_config(dropout=0.0), **options)
        model.compile("adam", SmoothedCrossEntropy(pad_id=PAD), run_eagerly=True)
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.dtype_policy.name == "mixed_float16"
    x = {"source_ids": sources([S, 3]), "target_ids": targets(2, T)}
    batch = x, targets(2, T)
    model.train_on_batch(*batch)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.optimizer, keras.optimizers.LossScaleOptimizer)
    for _ in range(2):
        losses = [float(each.train_on_batch(*batch)) for each in (model, loaded)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
