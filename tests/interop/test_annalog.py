"""A checkpoint that was really trained: ANNalog 1.0.6 (PyPI, MIT), molecules to like molecules.

An encoder-decoder of 4 million weights from torch, which becomes ours by the same readers as the
models of Hugging Face's. `ANNALOG_WHEEL` names its wheel; without it pip downloads 15 MB.
"""

import io
import os
import pathlib
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.evaluation import saved_model_translate
from keras_transformer.export.litert.export_translator import export_litert
from keras_transformer.export.serving.saved_model import export_saved_model
from keras_transformer.interop.arrays import read_arrays
from keras_transformer.interop.pretrained import Pretrained
from keras_transformer.interop.torch_layers import TorchLayers
from keras_transformer_runner import Runner

HEADS, LAYERS, WIDTH = 8, 3, 256
SPECIAL = [1, 0, 2, 3]  # theirs of our pad, unknown, BOS and EOS
MOLECULES = [
    "C C O c 1 c c c c c 1",
    "C C ( = O ) N c 1 c c c ( O ) c c 1",
    "C N 1 C = N C 2 = C 1 C ( = O ) N ( C ) C ( = O ) N 2 C",
    "O = C ( O ) c 1 c c c c c 1 Cl",
    "N c 1 c c n c c 1",
]


class PlainUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"no classes here, such as {module}.{name}")


@pytest.fixture(scope="module")
def annalog(tmp_path_factory):
    """The checkpoint's arrays, and the pieces of its vocabulary."""
    folder = tmp_path_factory.mktemp("annalog")
    wheel = os.environ.get("ANNALOG_WHEEL")
    if wheel is None:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(folder)]
        subprocess.run([*command, "annalog==1.0.6"], check=True)
        (wheel,) = pathlib.Path(folder).glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract("annalog/ckpt_and_vocab/Lev_extended.pt", folder)
        pieces = archive.read("annalog/ckpt_and_vocab/stereo_experiment_vocab_ttf.pkl")
    pieces = PlainUnpickler(io.BytesIO(pieces)).load()["itos"]
    return read_arrays(folder / "annalog/ckpt_and_vocab/Lev_extended.pt"), pieces


@pytest.fixture(scope="module")
def pretrained(annalog):
    """The model as ours; its sources begin with BOS, so that is a piece of the source as well."""
    arrays, pieces = annalog
    target = kt.VocabularyTokenizer(pieces[4:])
    source = kt.VocabularyTokenizer([*pieces[4:], "<sos>"]).with_prefix(["<sos>"])
    config = kt.TransformerConfig(
        vocab_size=source.vocab_size,
        target_vocab_size=target.vocab_size,
        embedding_sharing="none",
        model_dim=WIDTH,
        num_heads=HEADS,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        intermediate_dim=512,
        positions="learned",
        max_positions=102,
        norm_epsilon=1e-5,
        output_bias=True,
    )
    model, layers = kt.Transformer(config), TorchLayers(arrays)
    order = [*SPECIAL, *range(4, len(pieces))]
    rows = arrays.take("encoder.tok_embedding.weight")
    model.get_layer("source_embedding").embeddings.assign(rows[[*order, SPECIAL[2]]])
    rows = arrays.take("decoder.tok_embedding.weight")
    model.get_layer("target_embedding").embeddings.assign(rows[order])
    output = model.get_layer("output_embedding")
    output.embeddings.assign(arrays.take("decoder.fc_out.weight")[order])
    output.output_bias.assign(arrays.take("decoder.fc_out.bias")[order])
    for side, ours in (("encoder", "source"), ("decoder", "target")):
        table = model.get_layer(f"{ours}_positions").embeddings
        layers.table(table, [f"{side}.pos_embedding.weight"])
        for index in range(LAYERS):
            fill_block(model.get_layer(f"{side}_{index}"), layers, f"{side}.layers.{index}")
    assert arrays.unused() == []
    return Pretrained(model, source, target, kt.Greedy(), origin="annalog 1.0.6", licence="MIT")


def fill_block(ours, layers, name):
    attention = f"{name}.self_attention"
    layers.linear(ours.self_attention.query_key_value, *(f"{attention}.fc_{x}" for x in "qkv"))
    layers.linear(ours.self_attention.output_projection, f"{attention}.fc_o")
    layers.norm(ours.self_attention_norm, f"{name}.self_attn_layer_norm")
    if hasattr(ours, "cross_attention"):
        attention, cross = f"{name}.encoder_attention", ours.cross_attention
        for part in ("query", "key", "value"):
            projection = getattr(cross, f"{part}_projection")
            layers.linear(projection, f"{attention}.fc_{part[0]}")
        layers.linear(cross.output_projection, f"{attention}.fc_o")
        layers.norm(ours.cross_attention_norm, f"{name}.enc_attn_layer_norm")
    layers.linear(ours.feed_forward.intermediate, f"{name}.positionwise_feedforward.fc_1")
    layers.linear(ours.feed_forward.outer, f"{name}.positionwise_feedforward.fc_2")
    layers.norm(ours.feed_forward_norm, f"{name}.ff_layer_norm")


class Reference:
    """The model in NumPy with the ids of its own, from the code of annalog."""

    def __init__(self, arrays):
        self.arrays = {name: array.astype("float64") for name, array in arrays.items()}

    def logits(self, source, target):
        memory = self.states("encoder", source)
        states = self.states("decoder", target, memory)
        return self.linear(states, "decoder.fc_out")

    def states(self, side, ids, memory=None):
        tokens = self.arrays[f"{side}.tok_embedding.weight"][ids]
        x = tokens * WIDTH**0.5 + self.arrays[f"{side}.pos_embedding.weight"][: len(ids)]
        causal = None if memory is None else np.tril(np.ones((len(ids), len(ids)), bool))
        for index in range(LAYERS):
            name = f"{side}.layers.{index}"
            x = self.norm(x + self.attend(x, x, f"{name}.self_attention", causal), name, "self")
            if memory is not None:
                attended = self.attend(x, memory, f"{name}.encoder_attention")
                x = self.norm(x + attended, name, "enc")
            inner = np.maximum(self.linear(x, f"{name}.positionwise_feedforward.fc_1"), 0)
            fed = self.linear(inner, f"{name}.positionwise_feedforward.fc_2")
            x = self.norm(x + fed, name, "ff")
        return x

    def attend(self, x, memory, name, mask=None):
        q, k, v = (
            self.linear(rows, f"{name}.fc_{part}").reshape(len(rows), HEADS, -1).swapaxes(0, 1)
            for rows, part in ((x, "q"), (memory, "k"), (memory, "v"))
        )
        scores = q @ k.swapaxes(1, 2) / (WIDTH // HEADS) ** 0.5
        if mask is not None:
            scores = np.where(mask, scores, -1e10)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return self.linear((weights @ v).swapaxes(0, 1).reshape(len(x), -1), f"{name}.fc_o")

    def linear(self, x, name):
        return x @ self.arrays[f"{name}.weight"].T + self.arrays[f"{name}.bias"]

    def norm(self, x, name, kind):
        name = f"{name}.ff_layer_norm" if kind == "ff" else f"{name}.{kind}_attn_layer_norm"
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * self.arrays[f"{name}.weight"] + self.arrays[f"{name}.bias"]


def theirs(ids, sos):
    """Our ids as ids of the checkpoint."""
    return [SPECIAL[token] if token < 4 else SPECIAL[2] if token == sos else token for token in ids]


@pytest.mark.release
def test_logits_are_those_of_its_own_code(annalog, pretrained):
    reference, source, target = Reference(annalog[0]), *pretrained.tokenizers
    sos = source.vocab_size - 1
    for one, two in zip(MOLECULES, MOLECULES[::-1], strict=True):
        source_ids = [*source.encode(one), source.eos_id]
        target_ids = [target.bos_id, *target.encode(two)]
        inputs = {"source_ids": np.array([source_ids]), "target_ids": np.array([target_ids])}
        logits = np.asarray(pretrained.model(inputs, training=False))[0]
        expected = reference.logits(theirs(source_ids, sos), theirs(target_ids, sos))
        expected = expected[:, [*SPECIAL, *range(4, expected.shape[1])]]
        np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.release
def test_it_answers_the_same_on_a_server_and_on_a_device(pretrained, tmp_path):
    run = kt.load_run(pretrained.checked().save_run(tmp_path / "run", samples=MOLECULES))
    expected = run.translator().translate(MOLECULES)
    assert all(expected) and len({*expected}) == len(MOLECULES)
    options = dict(
        samples=run.samples,
        strategy=run.strategy,
        target_tokenizer=run.target_tokenizer,
        max_source_length=64,
    )
    export_litert(run.model, run.tokenizer, tmp_path / "device", **options)
    assert Runner(tmp_path / "device").translate(MOLECULES) == expected
    export_saved_model(run.model, run.tokenizer, tmp_path / "served", **options)
    assert saved_model_translate(tmp_path / "served")(MOLECULES) == expected
