"""Every number format of a model that has learnt: answers as near to Python's as it promises."""

import dataclasses
import json

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from keras_transformer import Greedy
from keras_transformer.export import MODES, ParityError, export_litert, parity
from keras_transformer.export.litert import conversion, flatbuffer
from keras_transformer.export.litert.calibration import Calibration, statistics
from keras_transformer.export.litert.conversion import (
    convert,
    float_file,
)
from keras_transformer.export.litert.graphs import DeviceModule
from keras_transformer.export.litert.partitions import border_copies
from keras_transformer.layers.lowering.tracing import traced
from keras_transformer_runner import Runner

pytestmark = pytest.mark.usefixtures("one_conversion_of_each_graph")


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
    return parity.compare(texts, [("", a) for a, _ in pairs], [("", b) for _, b in pairs])[
        "token_agreement"
    ]


@pytest.mark.parametrize("mode", list(MODES))
def test_ops_are_builtin(mode, files):
    names = flatbuffer.op_names(files[mode][1])
    assert {"EMBEDDING_LOOKUP", "FULLY_CONNECTED", "WHILE"} <= set(names)
    assert not [name for name in names if name.startswith(("CUSTOM", "FLEX"))]
    assert ("QUANTIZE" in names) == (mode == "int8_full")


@pytest.mark.parametrize("mode", list(MODES))
def test_no_copy_stands_at_a_border_of_xnnpacks(mode, files):
    graph = files[mode][1]
    assert not any(border_copies(graph, index) for index in range(len(graph.subgraphs)))


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


# --- Calibration ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seen(trained, rows):
    return statistics(Calibration(trained, rows), conversion.float_file)


@pytest.mark.slow
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


@pytest.mark.slow
def test_all_weights_of_the_loop_are_known_from_the_full_pass(seen, trained):
    """Where the converter may not fold anything into them, as in every quantized mode."""
    module = DeviceModule(trained, Greedy())
    with traced(weight_folding=False):
        content = float_file(module, module.signatures)
    products = flatbuffer.products(flatbuffer.read(content))
    found = [seen.statistics_of(product) for product in products]
    known = [pair for pair in zip(products, found, strict=True) if pair[1] is not None]
    assert len(known) == len(products) > 8
    assert sum(statistic.is_last for _, statistic in known) == 1
    for product, statistic in known:
        assert statistic.gram.shape == (product.weight.shape[1],) * 2
        low, high = statistic.input_range
        assert low <= 0 <= high and high - low > 0
    product = known[0][0]
    changed = product._replace(data=product.data[:-4] + b"abcd")
    assert seen.statistics_of(changed) is None


def test_masks_stay_out_of_what_is_quantized(files):
    """A mask of -1e9 inside an 8-bit range would leave one level to all scores."""
    scales = [
        tensor.quantization.scale[0]
        for sub in files["int8_full"][1].subgraphs
        for tensor in sub.tensors
        if tensor.type == schema.TensorType.INT8
        and tensor.quantization is not None
        and len(tensor.quantization.scale) == 1
    ]
    assert len(scales) > 10 and max(scales) < 1


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


@pytest.mark.slow
def test_streaming_signatures_share_the_weights(trained, tokenizer, texts, tmp_path, files):
    from keras_transformer.export.litert.graphs import SIGNATURES

    report = export_litert(
        trained, tokenizer, tmp_path / "a", samples=texts[:3], mode="int8", signatures=SIGNATURES
    )
    assert report.weight_bytes < 1.2 * flatbuffer.weight_bytes(files["int8"][1])
    assert Runner(tmp_path / "a").translate(texts[:1])
