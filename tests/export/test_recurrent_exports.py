"""A decoder with a recurrence on a device: a state of one size is all that its steps carry."""

import keras
import numpy as np
import pytest

from keras_transformer import BeamSearch, Greedy, Translator
from keras_transformer.export import export_litert
from keras_transformer.export.litert import flatbuffer
from keras_transformer.export.litert.calibration import Calibration, statistics
from keras_transformer.export.litert.conversion import float_file
from keras_transformer.export.litert.graphs import SIGNATURES, DeviceModule
from keras_transformer.layers.lowering.tracing import traced
from keras_transformer_runner import Runner

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def live(recurrent, tokenizer):
    return Translator(recurrent, tokenizer)


@pytest.fixture(scope="module")
def steps(recurrent, tokenizer, texts, tmp_path_factory):
    """An int8 folder with all signatures, which has kept its promise."""
    path = tmp_path_factory.mktemp("device") / "int8"
    options = dict(samples=texts, mode="int8", signatures=SIGNATURES)
    export_litert(recurrent, tokenizer, path, **options)
    return Runner(path)


def test_the_model_has_learnt_something(live, texts):
    answers = live.translate(texts)
    assert len(set(answers)) > len(texts) // 2, answers


def test_steps_carry_a_state_by_its_name(steps, recurrent):
    details = steps._interpreter.get_signature_runner("decode_step").get_input_details()
    dim = recurrent.config.model_dim
    assert details["cache_0_state"]["shape_signature"].tolist() == [1, 1, dim]
    assert details["cache_0_state"]["dtype"] is np.float32
    assert {name for name in details if name.startswith("cache")} == {"cache_0_state"}
    assert set(steps.step_outputs) == {"cache_0_state", "logits", "next_ids"}


def test_steps_are_the_full_pass_and_a_stream_is_the_translation(steps, recurrent, live, texts):
    for text in texts[:6]:
        assert "".join(steps.stream(text)) == steps.translate([text])[0]
    ids = live.source_ids(texts[5])
    target = [recurrent.config.bos_id, *live.translate_ids([ids])[0]]
    inputs = {"source_ids": np.array([ids]), "target_ids": np.array([target])}
    expected = keras.ops.convert_to_numpy(recurrent(inputs, training=False))[0]
    state = steps._run("encode", source_ids=np.array([ids], "int32"))
    state |= steps._empty_caches(len(ids) + 50)
    del state["limit"]
    for position, token in enumerate(target):
        last = dict(token_ids=np.array([[token]], "int32"), position=np.array([position], "int32"))
        outputs = steps._run("decode_step", **last, **state)
        assert np.abs(outputs["logits"][0] - expected[position]).max() < 1  # in 8 bits
        state = {name: outputs.get(name, value) for name, value in state.items()}


def test_states_follow_their_beams(recurrent, tokenizer, texts, tmp_path):
    strategy = BeamSearch(beam_size=3, n_best=2, extra_length=5)
    path = tmp_path / "device"
    report = export_litert(recurrent, tokenizer, path, samples=texts[:12], strategy=strategy)
    assert report.identical == 12
    expected = Translator(recurrent, tokenizer, strategy).translate_with_details(texts[12:])
    for actual, wanted in zip(
        Runner(path).translate_with_details(texts[12:]), expected, strict=True
    ):
        assert [each.text for each in actual] == [each.text for each in wanted]
        scores = [each.score for each in wanted]
        np.testing.assert_allclose([each.score for each in actual], scores, atol=1e-4)


@pytest.mark.slow
def test_its_products_are_known_to_the_calibration(recurrent, live, texts):
    """The scan of the full pass and the steps have the same two products."""
    rows = [
        {"source_ids": ids, "target_ids": [recurrent.config.bos_id, *live.translate_ids([ids])[0]]}
        for ids in map(live.source_ids, texts[:3])
    ]
    seen = statistics(Calibration(recurrent, rows), float_file)
    with traced(weight_folding=False):
        module = DeviceModule(recurrent, Greedy())
        content = float_file(module, module.signatures)
    products = list(flatbuffer.products(flatbuffer.read(content)))
    assert len(products) > 8
    assert all(seen.statistics_of(product) is not None for product in products)
