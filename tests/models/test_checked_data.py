"""Ids outside the vocabulary, and class weights, stop training before a weight has moved."""

import keras
import numpy as np
import pandas
import pytest
from backend import NAME
from toy_model import PAD, V, sources, targets, toy_config, toy_transformer

from keras_transformer.models import LanguageModel, SequenceClassifier, TokenClassifier
from keras_transformer.training import SmoothedCrossEntropy

ROWS, S, T = 5, 7, 3


class Batches(keras.utils.PyDataset):
    def __init__(self, inputs, labels):
        super().__init__()
        self.arrays, self.epochs = (inputs, labels), []

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return self.arrays

    def on_epoch_begin(self):
        self.epochs.append("begin")

    def on_epoch_end(self):
        self.epochs.append("end")


def in_dataset(inputs, labels):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(ROWS)


def generated(inputs, labels):
    yield inputs, labels


FORMS = {
    "arrays": lambda model, *arrays, **o: model.fit(*arrays, shuffle=False, **o),
    "list": lambda model, x, y, **o: model.fit(list(x.values()), y, **o),
    "dataset": lambda model, *arrays, **o: model.fit(in_dataset(*arrays), shuffle=False, **o),
    "generator": lambda model, *arrays, **o: model.fit(generated(*arrays), shuffle=False, **o),
    "PyDataset": lambda model, *arrays, **o: model.fit(Batches(*arrays), shuffle=False, **o),
    "train_on_batch": lambda model, *arrays, **o: model.train_on_batch(*arrays),
    "test_on_batch": lambda model, *arrays, **o: model.test_on_batch(*arrays),
    "evaluate": lambda model, *arrays, **o: model.evaluate(*arrays, **o),
    "evaluate a dataset": lambda model, *arrays, **o: model.evaluate(in_dataset(*arrays), **o),
}
MODES = {"graph": dict(jit_compile=False), "xla": dict(jit_compile=True)}
MODES["eager"] = dict(run_eagerly=True)


@pytest.fixture(scope="module", params=MODES.values(), ids=MODES)
def model(request):
    model = toy_transformer(decoder_layers=1)
    model.compile("sgd", SmoothedCrossEntropy(0.1, PAD), **request.param)
    return model


@pytest.mark.quick(6)
@pytest.mark.filterwarnings("ignore:The structure of `inputs`")  # Keras, of a list
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_an_id_outside_the_vocabulary_is_named_before_any_weight_moves(model, form):
    for name, bad in (
        *(("source_ids", V), ("target_ids", -1), ("labels", V + 2), ("labels", 1.5)),
    ):
        arrays = {
            "source_ids": sources([S] * ROWS),
            "target_ids": targets(ROWS, T),
            "labels": targets(ROWS, T),
        }
        arrays[name] = arrays[name].astype(type(bad))
        arrays[name][3, 1] = bad
        labels, before = arrays.pop("labels"), model.get_weights()
        rule = rf"`{name}` must hold ids in \[0, {V}\). Received: id {bad}, "
        with pytest.raises(ValueError, match=rule):
            form(model, arrays, labels, verbose=0)
        for one, other in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.quick(2)
@pytest.mark.filterwarnings("ignore:Your input ran out of data", "ignore:The structure of")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_known_ids_and_pads_train(form):
    model = toy_transformer(decoder_layers=1)
    model.compile("sgd", SmoothedCrossEntropy(0.1, -100), jit_compile=False)
    labels = targets(ROWS, T)
    labels[:, 1] = -100  # a pad that is no id
    inputs = {"source_ids": sources([S] * ROWS), "target_ids": targets(ROWS, T)}
    form(model, inputs, labels, verbose=0)
    labels[0, 0] = -99
    message = rf"`labels` must hold ids in \[0, {V}\) or be -100. Received: id -99"
    with pytest.raises(ValueError, match=message):
        form(model, inputs, labels, verbose=0)


@pytest.mark.slow
def test_validation_data_and_the_batches_of_a_set_of_batches():
    model = toy_transformer(decoder_layers=1)
    model.compile("sgd", SmoothedCrossEntropy(0.1, PAD), jit_compile=False)
    good = {"source_ids": sources([S] * ROWS), "target_ids": targets(ROWS, T)}, targets(ROWS, T)
    bad = good[0], good[1] + V
    for validation in (bad, in_dataset(*bad) if NAME == "tensorflow" else bad):
        with pytest.raises(ValueError, match="`labels` must hold ids .*Received: id"):
            model.fit(*good, validation_data=validation, verbose=0)
    batches = Batches(*good)
    model.fit(batches, epochs=2, shuffle=False, verbose=0, validation_data=good)
    assert batches.epochs.count("begin") == 2


@pytest.mark.slow
def test_other_models_and_losses():
    config = toy_config(decoder_layers=1)
    ids, rule = sources([S] * ROWS), "must hold ids in .* Received: id 23"
    language_model = LanguageModel(config)
    language_model.compile("sgd", SmoothedCrossEntropy(0.1, PAD), jit_compile=False)
    with pytest.raises(ValueError, match=f"`token_ids` {rule}"):
        language_model.fit(np.where(ids == ids[0, 0], V, ids), ids, verbose=0)
    classifier = SequenceClassifier(config, 3)
    for ignored, labels, message in (
        (None, [0, 1, 2, 3, 0], r"`labels` must hold ids in \[0, 3\). Received: id 3"),
        (9, [0, 1, 9, -1, 0], r"`labels` must hold ids in \[0, 3\) or be 9. Received: id -1"),
    ):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignored)
        classifier.compile("sgd", loss, jit_compile=False)
        with pytest.raises(ValueError, match=message):
            classifier.fit(ids, np.array(labels), verbose=0)
    classifier.compile("sgd", "mse", jit_compile=False)  # whose targets are no ids
    classifier.fit(ids, np.full((ROWS, 3), 7.5), verbose=0)


@pytest.mark.slow
def test_class_weight_is_for_rows():
    model = toy_transformer(decoder_layers=1)
    model.compile("sgd", SmoothedCrossEntropy(0.1, PAD), jit_compile=False)
    inputs = {"source_ids": sources([S] * ROWS), "target_ids": targets(ROWS, T)}
    labels, weights = targets(ROWS, T), {label: 1.0 for label in range(V)}
    message = r"`class_weight` weighs rows .* `sample_weight` \(B, T\).*Received: .* of 23 classes"
    with pytest.raises(ValueError, match=message):
        model.fit(inputs, labels, class_weight=weights, verbose=0)
    with pytest.raises(ValueError, match=message):
        model.train_on_batch(inputs, labels, class_weight=weights)
    tags = TokenClassifier(toy_config(), 3)
    tags.compile("sgd", "sparse_categorical_crossentropy", jit_compile=False)
    with pytest.raises(ValueError, match="`class_weight` weighs rows"):
        tags.fit(inputs["source_ids"], np.zeros((ROWS, S)), class_weight={0: 1.0}, verbose=0)
    classes = SequenceClassifier(toy_config(), 3)
    classes.compile("sgd", "sparse_categorical_crossentropy", jit_compile=False)
    classes.fit(inputs["source_ids"], np.zeros(ROWS), class_weight={0: 1.0}, verbose=0)


def test_ids_in_a_data_frame():
    model = LanguageModel(toy_config())
    model.compile("sgd", SmoothedCrossEntropy(pad_id=PAD))
    ids, labels = pandas.DataFrame([[2, 5, V], [2, 5, 6]]), np.array([[5, 6, 3], [5, 6, 3]])
    message = rf"`token_ids` must hold ids in \[0, {V}\). Received: id {V}, at index \(0, 2\)"
    for call in (model.fit, model.evaluate, model.train_on_batch):
        with pytest.raises(ValueError, match=message):
            call(ids, labels)
    with pytest.raises(ValueError, match="`labels` must hold ids"):
        model.evaluate(ids % V, pandas.DataFrame(labels + V))
    with pytest.raises(ValueError, match="must be whole numbers of at most 31 bits"):
        model.evaluate(ids + 2**32, labels)
    assert np.isfinite(model.evaluate(ids % V, pandas.DataFrame(labels), verbose=0))
