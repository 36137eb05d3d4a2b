"""A model's inputs are those it has: a key too many or too few is an error that names it."""

import keras
import numpy as np
import pytest
from backend import array, tensorflow_only
from keras import ops
from toy_model import PAD, D, V, frozen_toy, sources, targets, toy_config, toy_transformer

from keras_transformer.decoding import Greedy, align, decode
from keras_transformer.layers import TokenEmbedding
from keras_transformer.models import LanguageModel, SequenceClassifier, TokenClassifier
from keras_transformer.training import SmoothedCrossEntropy

T, S = 5, 7
BATCH = {"source_ids": sources([S, 3]), "target_ids": targets(2, T)}
LABELS = targets(2, T, seed=3)
FURTHER = {**BATCH, "id": targets(2, T)}  # sorts before the others
UNKNOWN = r"must be \['source_ids', 'target_ids'\].*where \['id'\] are unknown and \[\] are missing"
MISSING = r"where \[\] are unknown and \['target_ids'\] are missing"
WAYS = {
    "a call": lambda model, x, y: model(x),
    "fit": lambda model, x, y: model.fit(x, y, verbose=0),
    "validation": lambda model, x, y: model.fit(BATCH, y, validation_data=(x, y), verbose=0),
    "evaluate": lambda model, x, y: model.evaluate(x, y, verbose=0),
    "predict": lambda model, x, y: model.predict(x, verbose=0),
    "train_on_batch": lambda model, x, y: model.train_on_batch(x, y),
    "test_on_batch": lambda model, x, y: model.test_on_batch(x, y),
    "predict_on_batch": lambda model, x, y: model.predict_on_batch(x),
}


@pytest.fixture(scope="module")
def model():
    model = toy_transformer(encoder_layers=1, decoder_layers=1)
    model.compile("sgd", SmoothedCrossEntropy(0.1, pad_id=PAD), jit_compile=False)
    return model


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_keys_too_many_and_too_few_are_named(model, way):
    before = model.get_weights()
    for inputs, message in (
        (FURTHER, UNKNOWN),
        ({**FURTHER, "id": np.array(["a", "b"])}, UNKNOWN),  # and not that it is text
        ({"source_ids": BATCH["source_ids"]}, MISSING),
        ({"source_ids": BATCH["source_ids"], "id": LABELS}, r"\['id'\] .* \['target_ids'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            way(model, inputs, LABELS)
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


@tensorflow_only("tf.data")
def test_in_data_sets_too(model):
    import tensorflow as tf

    data = tf.data.Dataset.from_tensors((FURTHER, LABELS))
    for way in (model.fit, model.evaluate, model.predict):
        with pytest.raises(ValueError, match=UNKNOWN):
            way(data, verbose=0)
    with pytest.raises(ValueError, match=UNKNOWN):
        model.predict(data.map(lambda inputs, labels: inputs), verbose=0)
    with pytest.raises(ValueError, match=UNKNOWN):
        model.fit(BATCH, LABELS, validation_data=data, verbose=0)


def test_from_a_generator_too():
    """Whose batches nobody sees before the first step, nor before a later one."""
    for is_built in (False, True):
        model = toy_transformer(encoder_layers=1, decoder_layers=1)
        model.compile("sgd", SmoothedCrossEntropy(0.1, pad_id=PAD), jit_compile=False)
        if is_built:
            model.train_on_batch(BATCH, LABELS)
        batches = ((FURTHER, LABELS) for _ in range(2))
        with pytest.raises((ValueError, RuntimeError), match=UNKNOWN):  # Keras wraps it on JAX
            model.fit(batches, steps_per_epoch=1, shuffle=False, verbose=0)


KERAS_WARNS = pytest.mark.filterwarnings("ignore:The structure of `inputs` doesn't match")


@KERAS_WARNS
@pytest.mark.parametrize("make", [SequenceClassifier, TokenClassifier, LanguageModel])
def test_of_models_with_one_input(make):
    model = make(toy_config(), *([] if make is LanguageModel else [3]))
    ids, name = BATCH["source_ids"], model.inputs[0].name
    np.testing.assert_array_equal(model({name: ids}), model(ids))
    with pytest.raises(ValueError, match=r"where \['id'\] are unknown and \[\] are missing"):
        model({name: ids, "id": ids})
    with pytest.raises(ValueError, match=rf"\['ids'\] are unknown and \['{name}'\] are missing"):
        model.predict({"ids": ids}, verbose=0)


@KERAS_WARNS
def test_lists_in_the_order_of_inputs_still_work():
    model = frozen_toy()
    np.testing.assert_array_equal(model([*BATCH.values()]), model(BATCH))


def test_a_mask_is_refused():
    """A model finds its padding itself; Keras would drop the mask with a warning."""
    with pytest.raises(ValueError, match="`mask` must be None: a Transformer finds its padding"):
        frozen_toy()(BATCH, mask=np.ones((2, S), bool))


@tensorflow_only("ragged tensors")
def test_ragged_ids_are_refused(model):
    import tensorflow as tf

    ragged = {**BATCH, "source_ids": tf.ragged.constant([[9, 7, 6], [5, 6]], dtype="int32")}
    message = r"must be dense.*to_tensor\(pad_id\).*Received: a ragged tensor of shape \(2, None\)"
    for way in WAYS.values():
        with pytest.raises(ValueError, match=message):
            way(model, ragged, LABELS)
    data = tf.data.Dataset.from_tensors((ragged, LABELS))
    with pytest.raises(ValueError, match=message):
        model.fit(data, verbose=0)


def test_a_model_inside_another_model():
    """Keras calls it with a mask for each input, of which each is `None`."""
    inner = toy_transformer(encoder_layers=1, decoder_layers=1)
    ids = [keras.Input((None,), dtype="int32") for _ in range(2)]
    given = dict(zip(("source_ids", "target_ids"), ids, strict=True))
    outer = keras.Model(ids, keras.layers.Softmax()(inner(given)))
    batch = [BATCH["source_ids"], BATCH["target_ids"]]
    expected = ops.convert_to_numpy(ops.softmax(inner(BATCH)))
    np.testing.assert_allclose(ops.convert_to_numpy(outer(batch)), expected, atol=1e-6)
    np.testing.assert_allclose(outer.predict(batch, verbose=0), expected, atol=1e-6)
    outer.compile("sgd", "sparse_categorical_crossentropy")
    outer.fit(batch, BATCH["target_ids"], verbose=0)


@pytest.mark.parametrize("way", ["a call", "predict", "predict_on_batch"])
def test_ids_that_int32_changes_are_named(model, way):
    for odd in (np.int64(2**32 + 5), np.float64(5.5), np.float32("nan")):
        ids = np.asarray(BATCH["source_ids"]).astype(odd.dtype)
        ids[1, 2] = odd
        rule = "inputs of a Transformer must be whole numbers of at most 31 bits. Received: "
        with pytest.raises(ValueError, match=rule):
            WAYS[way](model, {**BATCH, "source_ids": ids}, None)
        WAYS[way](model, {**BATCH, "source_ids": BATCH["source_ids"].astype(odd.dtype)}, None)


@pytest.mark.quick(1)
@tensorflow_only("tf.data")
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_sets_of_other_numbers_are_read(model, dtype):
    import tensorflow as tf

    inputs = {name: np.asarray(ids).astype(dtype) for name, ids in BATCH.items()}
    batches = tf.data.Dataset.from_tensor_slices((inputs, LABELS.astype("int64"))).batch(2)
    model.fit(batches, shuffle=False, verbose=0)
    model.evaluate(batches, verbose=0)
    found = model.predict(batches, verbose=0)
    np.testing.assert_allclose(found, model.predict(BATCH, verbose=0), atol=1e-6)


@tensorflow_only("sparse tensors")
def test_sparse_tensors_are_named():
    import tensorflow as tf

    ids = tf.sparse.from_dense([[5, 6], [5, 0]])
    model = LanguageModel(toy_config())
    model.compile("sgd", SmoothedCrossEntropy(pad_id=PAD))
    for call in (model, TokenEmbedding(V, D), model.predict, lambda ids: model.fit(ids, ids)):
        with pytest.raises(ValueError, match="must be dense: fill sparse tensors"):
            call(ids)


@pytest.mark.parametrize(
    "options", [{}, {"positions": "relative"}, {"attention_chunk": 2}], ids=str
)
def test_no_token_at_all(options):
    """Rows without tokens have no answers, and no options have another word for that."""
    model, nothing = toy_transformer(**options), np.zeros((2, 0), "int32")
    assert not array(decode(model, nothing, Greedy(extra_length=2)).ids != PAD).any()
    assert model({"source_ids": sources([3, 2]), "target_ids": nothing}).shape == (2, 0, V)
    np.testing.assert_array_equal(align(model, nothing, targets(2, 3)).positions, -1)
