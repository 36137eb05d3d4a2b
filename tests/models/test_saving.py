"""A saved model loads in a new process that knows nothing but the package, bit for bit."""

import contextlib
import json
import os
import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest
from backend import array
from toy_model import PAD, sources, targets, tokens, toy_config, toy_transformer

from keras_transformer.models import Transformer
from keras_transformer.training import PaperSchedule, SmoothedCrossEntropy

BATCH = {"source_ids": sources([7, 3, 0]), "target_ids": targets(3, 5)}
LABELS = tokens(np.random.default_rng(5), 3, 5)
SMALL = dict(encoder_layers=1, decoder_layers=1, dropout=0.1)

LOAD = """
import json, pathlib, sys, warnings
import keras_transformer, keras, numpy
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
folder = pathlib.Path(sys.argv[1])
batch = dict(numpy.load(folder / "batch.npz"))
for file in sorted(folder.glob("*.keras")):
    model = keras.models.load_model(file)
    assert type(model) is keras_transformer.Transformer, type(model)
    arrays = {f"{i:03}": weight.numpy() for i, weight in enumerate(model.weights)}
    logits = keras.ops.convert_to_numpy(model(batch))
    numpy.savez(file.with_suffix(".loaded.npz"), logits=logits, **arrays)
    paths = [variable.path for variable in model.variables]
    file.with_suffix(".loaded.json").write_text(json.dumps(paths))
"""


def compiled(model, **arguments):
    optimizer = keras.optimizers.Adam(PaperSchedule(11, warmup_steps=3))
    model.compile(optimizer, SmoothedCrossEntropy(0.1, pad_id=PAD), **arguments)
    return model


@contextlib.contextmanager
def global_policy(policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    yield
    keras.config.set_dtype_policy(before)


def trained():
    model = compiled(toy_transformer(**SMALL), run_eagerly=True)
    model.train_on_batch(BATCH, LABELS)
    return model


def jitted():
    model = compiled(toy_transformer(residual="pre", **SMALL), jit_compile=True)
    model.optimizer.build(model.trainable_variables)
    model.predict(BATCH, verbose=0)
    return model


MODELS = {
    "unbuilt": lambda: Transformer(toy_config(**SMALL)),
    "built": lambda: toy_transformer(residual="pre", activation="gelu", attention_dropout=0.1),
    "trained": trained,
    "jit": jitted,
    "bfloat16": lambda: toy_transformer(dtype="mixed_bfloat16", **SMALL),
    "mixed_float16": lambda: toy_transformer(**SMALL),  # made under that global policy
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every model saved, and what a new process says of it."""
    folder = tmp_path_factory.mktemp("models")
    np.savez(folder / "batch.npz", **BATCH)
    for name, make in MODELS.items():
        with global_policy(name if name.startswith("mixed") else "float32"):
            model = make()
            model.save(folder / f"{name}.keras")
            arrays = {f"{i:03}": weight.numpy() for i, weight in enumerate(model.weights)}
            np.savez(folder / f"{name}.saved.npz", logits=array(model(BATCH)), **arrays)
        paths = [variable.path for variable in model.variables]
        (folder / f"{name}.saved.json").write_text(json.dumps(paths))
    run = python(LOAD, str(folder))
    assert run.returncode == 0, run.stderr[-3000:]
    return folder


def python(code, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("name", MODELS)
def test_loads_in_a_new_process(folder, name):
    saved, loaded = (dict(np.load(folder / f"{name}.{when}.npz")) for when in ("saved", "loaded"))
    logits = saved.pop("logits")
    assert logits.dtype == np.float32 and np.all(np.isfinite(logits))
    np.testing.assert_array_equal(loaded.pop("logits"), logits)
    assert list(loaded) == list(saved)
    for number, value in saved.items():
        np.testing.assert_array_equal(loaded[number], value)


@pytest.mark.parametrize("name", MODELS)
def test_variables_keep_their_names(folder, name):
    saved, loaded = (
        json.loads((folder / f"{name}.{when}.json").read_text()) for when in ("saved", "loaded")
    )
    assert loaded == saved and len(saved) > 30


FIND = """
for name in ("Transformer", "DecoderBlock", "SmoothedCrossEntropy", "PaperSchedule"):
    assert keras.saving.get_registered_object(f"keras_transformer>{name}"), name
"""


@pytest.mark.quick(1)
@pytest.mark.parametrize("imports", ["import keras, keras_transformer", "import keras_transformer"])
def test_the_package_registers_its_classes(imports):
    run = python(f"{imports}\nimport keras\n{FIND}")
    assert run.returncode == 0, run.stderr[-3000:]


# --- The tied embedding --------------------------------------------------------------------


def test_the_embedding_is_saved_once_and_stays_tied(tmp_path):
    rows, path = 10007, tmp_path / "model.keras"
    model = toy_transformer(vocab_size=rows, **SMALL)
    model.save(path)
    model.save_weights(tmp_path / "model.weights.h5")
    shapes = []
    with h5py.File(tmp_path / "model.weights.h5") as file:
        file.visititems(lambda _, item: shapes.append(getattr(item, "shape", None)))
    assert shapes.count((rows, 11)) == 1
    assert path.stat().st_size < 1.5 * 4 * rows * 11
    loaded = keras.models.load_model(path)
    assert loaded.count_params() == model.count_params()
    assert [tuple(w.shape) for w in loaded.weights].count((rows, 11)) == 1
    embedding = loaded.get_layer("embedding")
    assert np.any(loaded(BATCH)) and np.any(embedding(BATCH["target_ids"]))
    embedding.embeddings.assign(np.zeros((rows, 11)))
    assert not np.any(loaded(BATCH)) and not np.any(embedding(BATCH["target_ids"]))


def test_training_goes_on_as_if_it_had_not_been_saved(tmp_path):
    """Without dropout: its seeds are no part of a `.keras` file, here as in Keras."""
    model = compiled(toy_transformer(**{**SMALL, "dropout": 0.0}), run_eagerly=True)
    model.train_on_batch(BATCH, LABELS)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    before = [weight.numpy() for weight in model.trainable_weights]
    for each in (model, loaded):
        each.train_on_batch(BATCH, LABELS)
    assert loaded.optimizer.iterations == 2
    for actual, expected, old in zip(
        loaded.trainable_weights, model.trainable_weights, before, strict=True
    ):
        np.testing.assert_array_equal(actual, expected, err_msg=expected.path)
        assert np.any(expected.numpy() != old)


def test_two_models_name_their_variables_alike():
    first, second = (Transformer(toy_config(**SMALL)) for _ in range(2))
    assert [v.path for v in first.variables] == [v.path for v in second.variables]
