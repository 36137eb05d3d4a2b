"""The numbers in the file of each mode: few bytes, of the mode's type, as near as its bits allow.

The models are random, and large in what is tested; `test_modes.py` has one that has learnt.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from toy_model import randomise

from keras_transformer import (
    Greedy,
    LanguageModel,
    SentencePieceTokenizer,
    Transformer,
    TransformerConfig,
)
from keras_transformer.export import MODES
from keras_transformer.export.litert import flatbuffer
from keras_transformer.export.litert.calibration import Calibration, FullPass
from keras_transformer.export.litert.conversion import convert
from keras_transformer.export.litert.graphs import DeviceModule

pytestmark = pytest.mark.usefixtures("one_conversion_of_each_graph")

TYPE = schema.TensorType
WEIGHT_TYPES = {
    "float32": TYPE.FLOAT32,
    "float16": TYPE.FLOAT16,
    "int8": TYPE.INT8,
    "int8_weight_only": TYPE.INT8,
    "int8_full": TYPE.INT8,
    "int4": TYPE.INT4,
}


class Logits(tf.Module):
    """A random model of even widths, whose whole output can be looked at, in every mode."""

    def __init__(self, tokenizer):
        super().__init__()
        config = TransformerConfig(
            **dict(vocab_size=tokenizer.vocab_size, model_dim=22, num_heads=3, key_dim=10),
            **dict(value_dim=14, intermediate_dim=26, encoder_layers=2, decoder_layers=2),
            **dict(dropout=0.0, activation="swiglu", residual="pre"),
        )
        self.model = randomise(Transformer(config), seed=3)
        full_pass = FullPass(self.model)
        self.model_variables = full_pass.model_variables
        self.graphs = {"full_pass": full_pass.run}
        rng = np.random.default_rng(7)
        self.rows = [
            {"source_ids": rng.integers(4, 31, 9).tolist(), "target_ids": [2, *[5] * n]}
            for n in range(1, 9)
        ]
        self.contents, self.types = {}, {}

    def convert(self, mode):
        module = SimpleModule(self.graphs, self.model_variables)
        content, graph = convert(module, mode, Calibration(self.model, self.rows))
        self.contents[mode] = content
        self.types[mode] = [
            tensor.type
            for sub in graph.subgraphs
            for tensor in sub.tensors
            if len(tensor.shape) == 2 and graph.buffers[tensor.buffer].data is not None
            and len(graph.buffers[tensor.buffer].data) >= 22 * 22 / 2
        ]  # fmt: skip

    def error(self, mode):
        """Of the logits, as a share of their own size."""
        run = Interpreter(model_content=self.contents[mode]).get_signature_runner("full_pass")
        errors = []
        for row in self.rows:
            inputs = {name: np.array([ids], "int32") for name, ids in row.items()}
            expected = np.asarray(self.model(inputs, training=False))
            errors.append(np.abs(run(**inputs)["output"] - expected).mean() / expected.std())
        return np.mean(errors)


class SimpleModule(tf.Module):
    def __init__(self, graphs, model_variables):
        super().__init__()
        self.model_variables, self._graphs = model_variables, graphs

    @property
    def signatures(self):
        return self._graphs


@pytest.fixture(scope="module")
def even(tokenizer):
    made = Logits(tokenizer)
    for mode in MODES:
        made.convert(mode)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode, at_most",
    [
        ("float32", 1e-5),
        ("float16", 2e-3),
        ("int8", 0.04),
        ("int8_weight_only", 0.04),
        ("int8_full", 0.1),
        ("int4", 0.35),
    ],
)
def test_logits_are_as_near_as_the_bits_allow(mode, at_most, even):
    error = even.error(mode)
    assert error <= at_most
    assert error > 1e-5 or mode == "float32"


@pytest.mark.slow
def test_more_bits_are_nearer(even):
    order = ["float32", "float16", "int8_weight_only", "int8", "int8_full", "int4"]
    errors = [even.error(mode) for mode in order]
    assert errors == sorted(errors)


@pytest.mark.parametrize("mode", list(MODES))
def test_weights_have_the_type_of_the_mode(mode, even):
    types = even.types[mode]
    assert len(types) > 10 and set(types) == {WEIGHT_TYPES[mode]}


@pytest.fixture(scope="module")
def large():
    """A model that is mostly vocabulary, not trained: `(model, mode -> (content, graph))`."""
    words = [chr(0x4E00 + index) for index in range(6000)]
    tokenizer = SentencePieceTokenizer.train(words, 6005, model_type="char")
    model = Transformer(
        TransformerConfig(
            **dict(vocab_size=tokenizer.vocab_size, model_dim=24, num_heads=2, dropout=0.0),
            **dict(intermediate_dim=48, encoder_layers=1, decoder_layers=1),
        )
    )
    rows = [{"source_ids": [7, 300, 3], "target_ids": [2, 9, 5000]}]
    module, calibration = DeviceModule(model, Greedy()), Calibration(model, rows)
    return model, functools.cache(lambda mode: convert(module, mode, calibration))


@pytest.mark.quick(2)
@pytest.mark.parametrize("mode", list(MODES))
def test_the_embedding_is_stored_once(mode, large):
    model, file = large
    numbers = model.config.vocab_size * model.config.model_dim
    content, graph = file(mode)
    bits = MODES[mode].weight_bits
    sizes = [0 if buffer.data is None else len(buffer.data) for buffer in graph.buffers]
    assert [size for size in sizes if size >= numbers / 2] == [numbers * bits // 8]
    index = sizes.index(numbers * bits // 8)
    users = [t for sub in graph.subgraphs for t in sub.tensors if t.buffer == index]
    assert len(users) > 1 and {tensor.type for tensor in users} == {WEIGHT_TYPES[mode]}
    rows = 12 * model.config.vocab_size if bits <= 8 else 0
    assert len(content) < 1.1 * bits / 8 * model.count_params() + rows + 70_000
    # What the export itself checks, and would refuse if there were a second copy.
    promise = MODES[mode].promised_bytes * model.count_params() + 2**15
    stored = flatbuffer.weight_bytes(graph)
    assert stored <= promise < stored + numbers * bits // 8


def test_a_second_embedding_breaks_the_promise_of_size(large, monkeypatch, tmp_path):
    """Here as the quantizer leaves it when lookups are not rewritten."""
    model, file = large
    kept = flatbuffer.weight_bytes(file("int8")[1])
    monkeypatch.setattr(flatbuffer, "lookups_for_gathers", lambda graph: 0)
    _, graph = convert(DeviceModule(model, Greedy()), "int8")
    promise = MODES["int8"].promised_bytes * model.count_params() + 2**15
    assert flatbuffer.weight_bytes(graph) > promise > kept


@pytest.fixture(scope="module")
def tiny():
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=10_000))
    return model, Calibration(model, [{"source_ids": [7, 300, 3], "target_ids": [2, 9, 5000]}])


@pytest.mark.release
@pytest.mark.parametrize("mode, most", [("int8", 1.12), ("int8_full", 1.14), ("int4", 0.63)])
def test_bytes_a_parameter_at_the_size_of_the_paper(mode, most, tiny):
    model, calibration = tiny
    content, _ = convert(DeviceModule(model, Greedy()), mode, calibration)
    assert len(content) / model.count_params() < most


def test_full_pass_of_one_input(tokenizer):
    config = TransformerConfig(vocab_size=tokenizer.vocab_size, model_dim=8, num_heads=2)
    model = LanguageModel(config)
    ids = np.array([[2, 5, 6]])
    (found,) = FullPass(model).run(token_ids=ids.astype("int32")).values()
    np.testing.assert_allclose(found, model(ids, training=False), atol=1e-5)
