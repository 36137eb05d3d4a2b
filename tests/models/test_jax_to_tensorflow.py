"""A model that was trained on JAX, in another process, is a model of TensorFlow's."""

import importlib.util
import json
import os
import random
import subprocess
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from backend import tensorflow_only
from toy_model import logits

from keras_transformer import Greedy, SentencePieceTokenizer, TransformerConfig, Translator
from keras_transformer.export import export_litert, export_saved_model
from keras_transformer_runner import Runner

pytestmark = [
    pytest.mark.slow,
    tensorflow_only("it starts the process that runs JAX"),
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs JAX"),
]

LETTERS = "abcdef"
LONGEST = 9  # tokens, EOS included
EXTRA = 3

TRAIN = """
import json, pathlib, random, sys, warnings
import keras, numpy
from keras_transformer import (
    Greedy, PaperSchedule, SmoothedCrossEntropy, Transformer, TransformerConfig, Translator
)
from keras_transformer.quiet import quiet
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)

folder = pathlib.Path(sys.argv[1])
config = TransformerConfig.from_json((folder / "config.json").read_text())
arrays = dict(numpy.load(folder / "arrays.npz"))
labels = arrays.pop("labels")
assert keras.backend.backend() == "jax"
random.seed(3), numpy.random.seed(3)  # Keras' own function for it imports TensorFlow
model = Transformer(config)
model.compile(
    keras.optimizers.Adam(PaperSchedule(config.model_dim, warmup_steps=100)),
    SmoothedCrossEntropy(0.0, pad_id=config.pad_id),
)
with quiet():
    losses = model.fit(arrays, labels, batch_size=64, epochs=6, verbose=0).history["loss"]

class Ids:  # a tokenizer as far as ids are concerned
    vocab_size, pad_id, unk_id = config.vocab_size, config.pad_id, config.unk_id
    bos_id, eos_id = config.bos_id, config.eos_id

translator = Translator(model, Ids, Greedy(extra_length=int(sys.argv[2])))
rows = translator.translate_ids(arrays["source_ids"][:16])
few = {name: ids[:16] for name, ids in arrays.items()}
numpy.savez(folder / "logits.npz", keras.ops.convert_to_numpy(model(few)))
report = {"losses": losses, "rows": rows}
(folder / "report.json").write_text(json.dumps(report))
model.save(folder / "model.keras")
"""


def sentences(count, seed):
    rng = random.Random(seed)
    return ["".join(rng.choices(LETTERS, k=rng.randint(1, LONGEST - 2))) for _ in range(count)]


def answer(text):
    """In capitals, each letter moved on by one."""
    return text.translate(str.maketrans(LETTERS, LETTERS[1:] + LETTERS[0])).upper()


def padded(rows, pad_id):
    return np.array([[*row, *[pad_id] * (LONGEST - len(row))] for row in rows], "int32")


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train([LETTERS + LETTERS.upper()] * 5, 17, model_type="char")


@pytest.fixture(scope="module")
def trained(tokenizer, repo_root, tmp_path_factory):
    """What the process on JAX was given and what it said, and its model as TensorFlow loads it."""
    folder, ids = tmp_path_factory.mktemp("jax"), tokenizer
    config = TransformerConfig(
        **dict(vocab_size=ids.vocab_size, model_dim=29, num_heads=2, key_dim=13, dropout=0.05),
        **dict(value_dim=17, intermediate_dim=37, encoder_layers=1, decoder_layers=1),
        **dict(pad_id=ids.pad_id, unk_id=ids.unk_id, bos_id=ids.bos_id, eos_id=ids.eos_id),
    )
    (folder / "config.json").write_text(config.to_json())
    texts = sentences(3000, 5)
    sources, targets = ([ids.encode(text) for text in s] for s in (texts, map(answer, texts)))
    arrays = {
        "source_ids": padded([[*row, ids.eos_id] for row in sources], ids.pad_id),
        "target_ids": padded([[ids.bos_id, *row] for row in targets], ids.pad_id),
    }
    labels = padded([[*row, ids.eos_id] for row in targets], ids.pad_id)
    np.savez(folder / "arrays.npz", labels=labels, **arrays)
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, str(folder), str(EXTRA)],
        env={**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(repo_root)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(folder / "logits.npz") as file:
        return SimpleNamespace(
            model=keras.models.load_model(folder / "model.keras"),
            arrays=arrays,
            logits=file["arr_0"],
            **json.loads((folder / "report.json").read_text()),
        )


def test_trains_on_jax(trained):
    assert trained.losses[-1] < 0.3 * trained.losses[0]


def test_gives_the_same_logits(trained):
    source_ids, target_ids = (trained.arrays[name][:16] for name in ("source_ids", "target_ids"))
    actual = logits(trained.model, source_ids, target_ids)
    np.testing.assert_allclose(actual, trained.logits, rtol=1e-5, atol=1e-5)
    assert np.ptp(actual) > 3


def test_gives_the_same_tokens(trained, tokenizer):
    translator = Translator(trained.model, tokenizer, Greedy(extra_length=EXTRA))
    assert translator.translate_ids(trained.arrays["source_ids"][:16]) == trained.rows
    assert len(set(map(tuple, trained.rows))) > 10


def test_trains_on(trained):
    """Its optimizer was loaded too: the schedule goes on where it stood."""
    assert int(trained.model.optimizer.iterations) == 6 * -(-3000 // 64)


def test_exports_to_both(trained, tokenizer, tmp_path):
    samples = sentences(12, 7)
    expected = Translator(trained.model, tokenizer).translate(samples)
    serving = export_saved_model(trained.model, tokenizer, tmp_path / "serving", samples=samples)
    assert serving.identical == len(samples)
    device = export_litert(trained.model, tokenizer, tmp_path / "device", samples=samples)
    assert device.identical == len(samples)
    assert Runner(tmp_path / "device").translate(samples) == expected
