"""Every number format: small, what it says it is, and as near to Python as it promises."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from toy_model import randomise

from keras_transformer import Greedy, SentencePieceTokenizer, Transformer, TransformerConfig
from keras_transformer.export import (
    MODES,
    ParityError,
    Runner,
    conversion,
    export_litert,
    flatbuffer,
    litert,
)
from keras_transformer.export.calibration import Calibration, FullPass, statistics
from keras_transformer.export.conversion import check_size, convert, float_file
from keras_transformer.export.device_graphs import DeviceModule
from keras_transformer.layers.folding import kept_apart

TYPE = schema.TensorType
WEIGHT_TYPES = {
    "float32": TYPE.FLOAT32,
    "float16": TYPE.FLOAT16,
    "int8": TYPE.INT8,
    "int8_weight_only": TYPE.INT8,
    "int8_full": TYPE.INT8,
    "int4": TYPE.INT4,
}
QUANTIZED = [mode for mode in MODES if mode != "float32"]


@pytest.fixture(scope="module", autouse=True)
def one_conversion_of_each_graph():
    """All modes begin with the same float32 file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversion, "float_file", cached(float_file))
        yield


def cached(function):
    kept = {}

    def call(module, signatures):
        model_id = module.model_variables[0].ref()
        key = (model_id, *signatures)
        if key not in kept:
            kept[key] = function(module, signatures)
        return kept[key]

    return call


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


def python_ids(live, texts):
    return live.translate_ids(live.pad([live.source_ids(text) for text in texts]))


@pytest.fixture(scope="module")
def rows(live, texts):
    """What the trained model is calibrated on."""
    targets = python_ids(live, texts)
    bos_id = live.tokenizer.bos_id
    pairs = zip(texts, targets, strict=True)
    return [
        {"source_ids": live.source_ids(text), "target_ids": [bos_id, *ids]} for text, ids in pairs
    ]


@pytest.fixture(scope="module")
def files(trained, rows):
    """`{mode: (content, graph)}` of the trained model."""
    module, calibration = DeviceModule(trained, Greedy()), Calibration(trained, rows)
    return {mode: convert(module, mode, calibration) for mode in MODES}


def answers(content, live, texts, **options):
    """Ids of the translations of texts, in file order."""
    translate = Interpreter(model_content=content, **options).get_signature_runner("translate")
    eos_id, found = live.tokenizer.eos_id, []
    for text in texts:
        ids = np.array([live.source_ids(text)], "int32")
        row = translate(source_ids=ids)["target_ids"][0].tolist()
        found.append(row[: row.index(eos_id)] if eos_id in row else row)
    return found


def agreement(live, texts, found):
    expected = python_ids(live, texts)
    pairs = list(zip(expected, found, strict=True))
    return litert.compare(texts, [("", a) for a, _ in pairs], [("", b) for _, b in pairs])[
        "token_agreement"
    ]


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


def test_more_bits_are_nearer(even):
    order = ["float32", "float16", "int8_weight_only", "int8", "int8_full", "int4"]
    errors = [even.error(mode) for mode in order]
    assert errors == sorted(errors)


# --- What is in the file -------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(MODES))
def test_weights_have_the_type_of_the_mode(mode, even):
    types = even.types[mode]
    assert len(types) > 10 and set(types) == {WEIGHT_TYPES[mode]}


@pytest.mark.parametrize("mode", list(MODES))
def test_ops_are_builtin(mode, files):
    names = flatbuffer.op_names(files[mode][1])
    assert {"EMBEDDING_LOOKUP", "FULLY_CONNECTED", "WHILE"} <= set(names)
    assert not [name for name in names if name.startswith(("CUSTOM", "FLEX"))]
    assert ("QUANTIZE" in names) == (mode == "int8_full")


@pytest.mark.parametrize("mode", list(MODES))
def test_keeps_its_promise_on_other_sentences_too(mode, files, live, texts, other_texts):
    """And listens to the source: static files of other projects answer all sources alike."""
    everything = [*texts, *other_texts]
    found = answers(files[mode][0], live, everything)
    assert agreement(live, everything, found) >= MODES[mode].promised_agreement
    expected = python_ids(live, everything)
    distinct = len(set(map(tuple, expected)))
    assert distinct > 25 and len(set(map(tuple, found))) >= 0.9 * distinct


@pytest.mark.parametrize("mode", ["float32", "int8", "int8_full"])
def test_answers_do_not_depend_on_the_delegate(mode, files, live, texts):
    reference = answers(
        files[mode][0],
        live,
        texts,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    for options in ({}, {"num_threads": 2}):
        found = answers(files[mode][0], live, texts, **options)
        same = sum(a == b for a, b in zip(reference, found, strict=True))
        assert same >= len(texts) * (1 if mode == "float32" else 0.8)


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


@pytest.mark.slow
@pytest.mark.parametrize("mode, most", [("int8", 1.12), ("int8_full", 1.14), ("int4", 0.63)])
def test_bytes_a_parameter_at_the_size_of_the_paper(mode, most, tiny):
    model, calibration = tiny
    content, _ = convert(DeviceModule(model, Greedy()), mode, calibration)
    assert len(content) / model.count_params() < most


@pytest.fixture(scope="module")
def tiny():
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=10_000))
    return model, Calibration(model, [{"source_ids": [7, 300, 3], "target_ids": [2, 9, 5000]}])


# --- Calibration ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seen(trained, rows):
    return statistics(Calibration(trained, rows), conversion.float_file)


def test_statistics_are_those_of_the_model(seen, trained, rows):
    """The last product gives the logits, and what goes into it is its own kind of numbers."""
    logits = [
        np.asarray(trained({name: np.array([ids]) for name, ids in row.items()}, training=False))
        for row in rows
    ]
    (last,) = {
        id(statistic): statistic for statistic in seen._by_row.values() if statistic.is_last
    }.values()
    low, high = min(map(np.min, logits)), max(map(np.max, logits))
    np.testing.assert_allclose(last.output_range, (min(low, 0), max(high, 0)), rtol=1e-4)
    positions = sum(len(row["target_ids"]) for row in rows)
    # Normed to a mean square of about 1 a feature, but for the norm's own gain.
    assert 0.1 < np.trace(last.gram) / len(last.gram) / positions < 10
    assert np.linalg.eigvalsh(last.gram).min() > -1e-3 * np.trace(last.gram)


def test_all_weights_of_the_loop_are_known_from_the_full_pass(seen, trained):
    """Where the converter may not fold anything into them, as in every quantized mode."""
    module = DeviceModule(trained, Greedy())
    with kept_apart():
        content = float_file(module, module.signatures)
    products = flatbuffer.products(flatbuffer.read(content))
    found = [seen.of(product) for product in products]
    known = [pair for pair in zip(products, found, strict=True) if pair[1] is not None]
    assert len(known) == len(products) > 8
    assert sum(statistic.is_last for _, statistic in known) == 1
    for product, statistic in known:
        assert statistic.gram.shape == (product.weight.shape[1],) * 2
        low, high = statistic.input_range
        assert low <= 0 <= high and high - low > 0
    product = known[0][0]
    changed = product._replace(data=product.data[:-4] + b"abcd")
    assert seen.of(changed) is None


def test_masks_stay_out_of_what_is_quantized(files):
    """A mask of -1e9 inside an 8-bit range would leave one level to all scores."""
    scales = [
        tensor.quantization.scale[0]
        for sub in files["int8_full"][1].subgraphs
        for tensor in sub.tensors
        if tensor.type == TYPE.INT8
        and tensor.quantization is not None
        and len(tensor.quantization.scale) == 1
    ]
    assert len(scales) > 10 and max(scales) < 1


def test_full_pass_of_one_input(tokenizer):
    from keras_transformer import LanguageModel

    config = TransformerConfig(vocab_size=tokenizer.vocab_size, model_dim=8, num_heads=2)
    model = LanguageModel(config)
    ids = np.array([[2, 5, 6]])
    (found,) = FullPass(model).run(token_ids=ids.astype("int32")).values()
    np.testing.assert_allclose(found, model(ids, training=False), atol=1e-5)


@pytest.mark.parametrize("mode", ["int4", "int8_full"])
def test_a_calibrated_mode_without_sentences(mode, trained):
    for calibration in (None, Calibration(trained, [])):
        with pytest.raises(ValueError, match=f"mode '{mode}' must have sentences to calibrate on"):
            convert(DeviceModule(trained, Greedy()), mode, calibration)


# --- Promises ------------------------------------------------------------------------------


def test_bleu_is_in_the_report(trained, tokenizer, live, texts, device, tmp_path):
    references = live.translate(texts)
    report = export_litert(
        trained, tokenizer, tmp_path / "a", samples=texts, references=references, mode="float16",
        bleu_tokenize="char",
    )  # fmt: skip
    assert report.python_bleu == pytest.approx(100)
    assert 90 < report.bleu <= 100.0001 and report.promised_bleu_loss == 0.1
    assert json.loads((tmp_path / "a" / "parity.json").read_text())["bleu"] == report.bleu
    assert device.report.bleu is None is device.report.python_bleu


def test_a_broken_promise_of_bleu_writes_nothing(trained, tokenizer, live, texts, tmp_path):
    """4 bits of a toy model lose more than a toy promise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODES, "int4", dataclasses.replace(MODES["int4"], promised_bleu_loss=-200))
        with pytest.raises(ParityError, match="int4 litert must lose at most -200 BLEU. Received"):
            export_litert(
                trained, tokenizer, tmp_path / "a", samples=texts, mode="int4",
                references=live.translate(texts), calibration_samples=texts[:9],
            )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_second_embedding_breaks_the_promise_of_size(large, monkeypatch, tmp_path):
    """Here as the quantizer leaves it when lookups are not rewritten."""
    model, file = large
    kept = flatbuffer.weight_bytes(file("int8")[1])
    monkeypatch.setattr(flatbuffer, "lookups_for_gathers", lambda graph: 0)
    _, graph = convert(DeviceModule(model, Greedy()), "int8")
    promise = MODES["int8"].promised_bytes * model.count_params() + 2**15
    assert flatbuffer.weight_bytes(graph) > promise > kept


def test_a_model_beyond_2_gib_is_refused_before_any_work(trained, tokenizer, tmp_path, monkeypatch):
    class Huge:
        def count_params(self):
            return 2**29

    with pytest.raises(ValueError, match=r"at most .* parameters.*Received: 536,870,912 .* 2.00 G"):
        check_size(Huge())
    monkeypatch.setattr(conversion, "MOST_BYTES", 4 * trained.count_params())
    check_size(trained)
    monkeypatch.setattr(conversion, "MOST_BYTES", 4 * trained.count_params() - 1)
    monkeypatch.setattr(litert, "convert", functools.partial(pytest.fail, "converted"))
    with pytest.raises(ValueError, match="a smaller vocabulary|A smaller vocabulary"):
        export_litert(trained, tokenizer, tmp_path / "a", samples=["a"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_streaming_signatures_share_the_weights(trained, tokenizer, texts, tmp_path, files):
    from keras_transformer.export.device_graphs import SIGNATURES

    report = export_litert(
        trained, tokenizer, tmp_path / "a", samples=texts[:3], mode="int8", signatures=SIGNATURES
    )
    assert report.weight_bytes < 1.2 * flatbuffer.weight_bytes(files["int8"][1])
    assert Runner(tmp_path / "a").translate(texts[:1])
