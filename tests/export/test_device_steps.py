"""The signatures for apps that stream, n-best and scores: the same answers as `translate`."""

import concurrent.futures
import itertools
import json
import math
import mmap
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from toy_model import logits, toy_transformer

from keras_transformer import BeamSearch, Greedy, Translator
from keras_transformer.export import export_litert
from keras_transformer.export.litert import flatbuffer
from keras_transformer.export.litert.conversion import convert
from keras_transformer.export.litert.graphs import (
    SIGNATURES,
    DeviceModule,
    check_signatures,
)
from keras_transformer_runner import Runner, command, folder
from keras_transformer_runner.integrity import sealed


def folder_of(model, strategy, device, path, signatures=SIGNATURES, mode="float32"):
    """A copy of an exported folder with a file of other signatures."""
    shutil.copytree(device.path, path)
    content, _ = convert(DeviceModule(model, strategy, signatures), mode)
    (path / "model.tflite").write_bytes(content)
    metadata = json.loads((path / "metadata.json").read_text())
    sums = folder.checksums(path)
    metadata["sha256"] = {name: sums[name] for name in metadata["sha256"]}
    (path / "metadata.json").write_text(json.dumps(sealed(metadata)))
    return path


@pytest.fixture(scope="module")
def steps_path(trained, device, tmp_path_factory):
    return folder_of(trained, Greedy(), device, tmp_path_factory.mktemp("steps") / "device")


@pytest.fixture(scope="module")
def steps(steps_path):
    return Runner(steps_path)


# --- Signatures ----------------------------------------------------------------------------


def test_names_shapes_and_ranks_are_what_an_app_relies_on(steps, trained):
    config, interpreter = trained.config, steps._interpreter
    heads, key_dim, value_dim = config.num_heads, config.key_dim, config.value_dim
    own, source = {}, {}
    for name, width in (("keys", key_dim), ("values", value_dim)):
        own[f"cache_0_{name}"] = source[f"memory_0_{name}"] = ("float32", [1, heads, -1, width])
    source["memory_mask"] = ("int32", [1, -1])
    ids = {"source_ids": ("int32", [1, -1])}
    last = {"token_ids": ("int32", [1, 1]), "position": ("int32", [1])}
    inputs = {"translate": ids, "encode": ids, "decode_step": {**own, **source, **last}}
    assert sorted(interpreter.get_signature_list()) == sorted(inputs)
    for name, expected in inputs.items():
        details = interpreter.get_signature_runner(name).get_input_details()
        received = {
            key: (value["dtype"].__name__, value["shape_signature"].tolist())
            for key, value in details.items()
        }
        assert received == expected
    outputs = {
        name: set(interpreter.get_signature_runner(name).get_output_details()) for name in inputs
    }
    assert outputs == {
        "translate": {"target_ids"},
        "encode": {*source, "limit"},
        "decode_step": {*own, "logits", "next_ids"},
    }


def test_weights_are_shared_by_all_signatures(steps_path, device):
    sizes = [
        flatbuffer.weight_bytes(flatbuffer.read((path / "model.tflite").read_bytes()))
        for path in (device.path, steps_path)
    ]
    assert sizes[1] < sizes[0] + 1000  # constants, such as shapes


def test_steps_give_the_logits_of_the_full_pass(steps, trained, live, texts):
    for text in texts[:4]:
        ids = live.source_ids(text)
        target = [trained.config.bos_id, *live.translate_ids([ids])[0]]
        inputs = {"source_ids": np.array([ids]), "target_ids": np.array([target])}
        expected = keras.ops.convert_to_numpy(trained(inputs, training=False))[0]
        state = steps._run("encode", source_ids=np.array([ids], "int32"))
        assert state.pop("limit").tolist() == [len(ids) + 50]
        assert state["memory_mask"].tolist() == [[1] * len(ids)]
        state |= steps._empty_caches(len(ids) + 50)
        for position, token in enumerate(target):
            last = {"token_ids": [[token]], "position": [position]}
            last = {name: np.array(value, "int32") for name, value in last.items()}
            outputs = steps._run("decode_step", **last, **state)
            np.testing.assert_allclose(outputs["logits"][0], expected[position], atol=2e-4)
            assert outputs["next_ids"].tolist() == [expected[position].argmax()]
            state = {name: outputs.get(name, value) for name, value in state.items()}


@pytest.mark.parametrize(
    "signatures",
    [(), ("encode",), ("translate", "encode"), ("encode", "decode_step"), ("translate", "other")],
)
def test_wrong_signatures(signatures):
    with pytest.raises(ValueError, match="`signatures` must be .*'translate',.*, or all of .*Rec"):
        check_signatures(signatures)


def test_right_signatures():
    assert check_signatures(["translate"]) == ("translate",)
    assert check_signatures(reversed(SIGNATURES)) == SIGNATURES
    with pytest.raises(TypeError, match="must be several names. Received: 'translate'"):
        check_signatures("translate")


def compiled_outputs(model, signature, shapes, **inputs):
    """What `CompiledModel` writes to memory of these shapes, by name."""
    from ai_edge_litert.tensor_buffer import TensorBuffer

    received = {}
    for name, shape in shapes.items():
        kind = "float32" if name.startswith(("memory_0", "logits")) else "int32"
        # A page of its own: memory that does not begin at a multiple of 64 is not written to.
        words = np.frombuffer(mmap.mmap(-1, 4 * math.prod(shape)), kind)
        words[:] = 77
        received[name] = words.reshape(shape)
    buffers = {name: TensorBuffer.create_from_host_memory(each) for name, each in received.items()}
    given = {}
    for name, values in inputs.items():
        model.resize_input_tensor_by_name(signature, name, values.shape, strict=False)
        given[name] = model.create_input_buffer_by_name(signature, name)
        given[name].write(values.reshape(-1))
    model.run_by_name(signature, given, buffers)
    return received


def test_a_compiled_model_encodes_again_and_again(steps, steps_path, trained, live, texts):
    """As apps run it. Empty caches among the outputs failed each call but the first."""
    from ai_edge_litert.compiled_model import CompiledModel

    model, config = CompiledModel.from_file(str(steps_path / "model.tflite")), trained.config
    for text in (texts[5], texts[1], texts[5], texts[9], texts[0]):
        ids = np.array([live.source_ids(text)], "int32")
        shape = (1, config.num_heads, ids.size)
        shapes = {"memory_0_keys": (*shape, config.key_dim), "limit": (1,)}
        shapes |= {"memory_0_values": (*shape, config.value_dim), "memory_mask": (1, ids.size)}
        received = compiled_outputs(model, "encode", shapes, source_ids=ids)
        expected = steps._run("encode", source_ids=ids)
        assert expected.keys() == received.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(received[name], values)


@pytest.mark.parametrize("recurrence", [None, "ssru"])
def test_tied_blocks_have_one_memory(recurrence):
    """Two outputs that are one tensor fail in LiteRT's C interface."""
    tied = dict(decoder_layers=3, decoder_tied_layers=(0, 1, 0), decoder_recurrence=recurrence)
    model = toy_transformer(**tied)
    config = model.config
    signatures = DeviceModule(model, Greedy(max_length=5), SIGNATURES).signatures
    source_ids = np.array([[5, 7, config.eos_id]], "int32")
    state = signatures["encode"](tf.constant(source_ids))
    names = {name for name in state if name.startswith("memory_") and name.endswith("_keys")}
    assert names == {"memory_0_keys", "memory_1_keys"}
    slots = int(state.pop("limit")[0])
    (*_, carried), _ = signatures["decode_step"].structured_input_signature
    for name, spec in carried.items():
        if name.startswith("cache_"):
            state[name] = tf.zeros([size or slots for size in spec.shape])
    target = [config.bos_id, 4, 8]
    full = logits(model, source_ids, np.array([target]))
    for position, token in enumerate(target):
        outputs = signatures["decode_step"](tf.constant([[token]]), tf.constant([position]), state)
        np.testing.assert_allclose(outputs["logits"][0], full[0, position], rtol=0, atol=1e-5)
        state = {name: outputs.get(name, value) for name, value in state.items()}


def test_a_file_that_brings_its_caches_streams_too(steps, live, texts, monkeypatch):
    """`encode` gave them in older exports."""
    run = steps._run

    def older(signature, **tensors):
        made = steps._empty_caches(60) if signature == "encode" else {}
        assert all(values.shape[2] == 60 for name, values in tensors.items() if "cache" in name)
        return {**run(signature, **tensors), **made}

    monkeypatch.setattr(steps, "_run", older)
    assert "".join(steps.stream(texts[3])) == live.translate([texts[3]])[0]


# --- Streams -------------------------------------------------------------------------------


def test_a_stream_is_the_translation_and_takes_nothing_back(
    steps, live, texts, other_texts, odd_texts
):
    for text in [*texts, *other_texts, *odd_texts]:
        pieces = list(steps.stream(text))
        assert all(pieces) and "".join(pieces) == live.translate([text])[0]
    assert len(list(steps.stream(other_texts[3]))) > 5  # not all at the end


def test_streams_do_not_disturb_each_other(steps, live, other_texts):
    """Nor a call in between: what a stream carries lies outside of the interpreter."""
    streams = [steps.stream(text) for text in other_texts]
    rounds = itertools.zip_longest(*streams, fillvalue="")
    grown = ["".join(pieces) for pieces in zip(*rounds, strict=True)]
    assert grown == live.translate(other_texts)
    stream = steps.stream(other_texts[4])
    first = next(stream)
    assert steps.translate(other_texts[:2]) == live.translate(other_texts[:2])
    assert first + "".join(stream) == live.translate([other_texts[4]])[0]


def test_streams_of_several_threads(steps, live, texts):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda text: "".join(steps.stream(text)), texts * 2))
    assert answers == live.translate(texts * 2)


@pytest.mark.slow
def test_a_stream_keeps_the_rules_of_the_search(trained, tokenizer, device, texts, tmp_path):
    strategy = Greedy(extra_length=2, max_length=9, min_length=6, forbidden_ids=(7,))
    path = folder_of(trained, strategy, device, tmp_path / "device")
    expected = Translator(trained, tokenizer, strategy).translate(texts)
    assert expected != Translator(trained, tokenizer).translate(texts)
    runner = Runner(path)
    assert ["".join(runner.stream(text)) for text in texts] == runner.translate(texts) == expected


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [Greedy(no_repeat_ngram=2), BeamSearch(beam_size=2)], ids=str)
def test_a_search_that_needs_more_than_a_step_has_logits_only(strategy, trained, device, tmp_path):
    path = folder_of(trained, strategy, device, tmp_path / "device")
    runner = Runner(path)
    outputs = runner._interpreter.get_signature_runner("decode_step").get_output_details()
    assert set(outputs) == {"cache_0_keys", "cache_0_values", "logits"}
    with pytest.raises(ValueError, match="a stream must have .* Received: signatures .'decode_st"):
        runner.stream("ab")


def test_a_file_without_steps_does_not_stream(device):
    with pytest.raises(ValueError, match=r"signatures=SIGNATURES`. Received: signatures .'transl"):
        Runner(device.path).stream("ab")


def test_wrong_streams(steps):
    with pytest.raises(TypeError, match="`text` must be a string. Received: list"):
        steps.stream(["ab"])
    with pytest.raises(ValueError, match="at most `max_source_length` = 512 tokens"):
        steps.stream("a" * 600)  # at once, not when it is read


def test_a_stream_on_the_command_line(steps_path, live, capsys):
    assert command.main([str(steps_path), "--stream", "ab c", "", "hg"]) == 0
    assert capsys.readouterr().out.splitlines() == live.translate(["ab c", "", "hg"])


# --- N-best and scores ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def beams(trained, tokenizer, texts, tmp_path_factory):
    """A file of the three best, and Python's translator of the same search."""
    path, strategy = tmp_path_factory.mktemp("beams") / "device", BeamSearch(beam_size=4, n_best=3)
    export_litert(trained, tokenizer, path, samples=texts[:6], strategy=strategy)
    return path, Translator(trained, tokenizer, strategy)


@pytest.mark.slow
def test_hypotheses_are_pythons(beams, texts, odd_texts):
    path, live = beams
    runner, texts = Runner(path), [*texts[:8], *odd_texts]
    received = runner.translate_with_details(texts)
    expected = live.translate_with_details(texts)
    assert [len(found) for found in received] == [len(found) for found in expected]
    assert any(len(found) == 3 for found in received)
    for ours, theirs in zip(itertools.chain(*received), itertools.chain(*expected), strict=True):
        assert (ours.text, ours.ids, ours.truncated) == (theirs.text, theirs.ids, theirs.truncated)
        assert ours.score == pytest.approx(theirs.score, abs=1e-4)
    assert [found[0].text for found in received] == runner.translate(texts)
    fewer = runner.translate_with_details(texts, n_best=2)
    assert fewer == [found[:2] for found in received]


def test_what_the_search_has_not_found_is_left_out(beams, monkeypatch):
    runner = Runner(beams[0])
    rows = np.array([[[7, 8, 3, 0], [7, 9, 9, 9], [0, 0, 0, 0]]])
    scores = np.array([[-0.5, -1.5, -1e30]], "float32")
    outputs = {"target_ids": rows[:, 0], "hypotheses": rows, "scores": scores}
    monkeypatch.setattr(runner, "_run", lambda signature, **tensors: outputs)
    best, cut = runner.translate_with_details(["ab"])[0]
    assert (best.ids, best.score, best.truncated) == ((7, 8, 3), -0.5, False)
    assert (cut.ids, cut.score, cut.truncated) == ((7, 9, 9, 9), -1.5, True)
    assert best.text == runner.decode([7, 8]) and cut.text == runner.decode([7, 9, 9, 9])
    assert len(runner.translate_with_details([""])[0]) == 1  # as in Python, whatever the search


def test_wrong_numbers_of_hypotheses(beams, device):
    runner = Runner(beams[0])
    for wrong in (0, -1, True, 1.0, "2"):
        with pytest.raises(ValueError, match="`n_best` must be a positive integer. Received: n_b"):
            runner.translate_with_details(["ab"], n_best=wrong)
    with pytest.raises(ValueError, match="at most what the file gives, 3: .*Received: n_best=4"):
        runner.translate_with_details(["ab"], n_best=4)
    with pytest.raises(TypeError, match="`texts` must be a list of strings"):
        runner.translate_with_details("ab")
    rule = "scores must be in the file: .*Received: outputs .'target_ids'."
    with pytest.raises(ValueError, match=rule):
        Runner(device.path).translate_with_details(["ab"])


def test_the_best_on_the_command_line(beams, capsys):
    path, live = beams
    assert command.main([str(path), "--n-best", "2", "ab c", "", "hg"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    found = live.translate_with_details(["ab c", "", "hg"], n_best=2)
    expected = list(itertools.chain(*found))
    assert [text for _, text in lines] == [each.text for each in expected] and len(lines) == 5
    for (score, _), each in zip(lines, expected, strict=True):
        assert float(score) == pytest.approx(each.score, abs=1e-3)
    assert command.main([str(path), "--n-best", "9", "ab"]) == 1
    assert "keras-transformer-run: error: `n_best` must be at most" in capsys.readouterr().err
