"""Signatures of fixed lengths: the answers of the open one, without any resize."""

import json
import shutil

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from toy_model import randomise

from keras_transformer import BeamSearch, Greedy, Transformer, TransformerConfig, Translator
from keras_transformer.export import export_litert
from keras_transformer.export.litert import flatbuffer, lengths
from keras_transformer.export.litert.export_translator import PythonAnswers
from keras_transformer.export.litert.lengths import check_lengths
from keras_transformer.export.litert.partitions import border_copies
from keras_transformer.export.parity import ParityError
from keras_transformer_runner import Runner, command
from keras_transformer_runner.integrity import sealed

pytestmark = pytest.mark.slow

LENGTHS = (7, 16)
LONGEST = 70  # tokens of a source


@pytest.fixture(scope="module")
def both(trained, tokenizer, texts, tmp_path_factory):
    """A folder with an open signature and two of fixed lengths."""
    path = tmp_path_factory.mktemp("both") / "device"
    options = dict(lengths=LENGTHS, max_source_length=LONGEST)
    export_litert(trained, tokenizer, path, samples=texts, **options)
    return path


@pytest.fixture(scope="module")
def alone(trained, tokenizer, texts, tmp_path_factory):
    """A folder with signatures of fixed lengths alone, of beams, and Python's translator."""
    path, strategy = tmp_path_factory.mktemp("alone") / "device", BeamSearch(beam_size=2, n_best=2)
    options = dict(lengths=(9, LONGEST), lengths_only=True, strategy=strategy)
    export_litert(trained, tokenizer, path, samples=texts[:6], **options)
    return path, Translator(trained, tokenizer, strategy)


def graph_of(path):
    return flatbuffer.read((path / "model.tflite").read_bytes())


def tables(graph, lengths):
    """The shapes of constants with one of these lengths and another axis."""
    constants = [
        tensor.shape
        for each in graph.subgraphs
        for tensor in each.tensors
        if tensor.shape is not None and graph.buffers[tensor.buffer].data is not None
    ]
    assert len(constants) > 50
    return [
        shape.tolist()
        for shape in constants
        if np.sum(shape > 1) > 1 and set(lengths) & set(shape.tolist())
    ]


# --- What is in the file -------------------------------------------------------------------


def test_the_metadata_list_what_the_file_has(both, alone):
    expected = {both: ("translate", "translate_7", "translate_16")}
    expected[alone[0]] = ("translate_70", "translate_9")
    for path, names in expected.items():
        runner = Runner(path)
        assert sorted(runner._tensors) == sorted(names)
        assert runner.metadata["open_length"] == ("translate" in names)
        for row in runner.metadata["lengths"]:
            call = runner._interpreter.get_signature_runner(row["signature"])
            source, target = row["source_length"], row["target_length"]
            assert call.get_input_details()["source_ids"]["shape_signature"].tolist() == [1, source]
            assert call.get_output_details()["target_ids"]["shape"].tolist() == [1, target]
            assert target == source + 50
    assert Runner(both).lengths == LENGTHS and Runner(both).metadata["max_source_length"] == LONGEST
    assert Runner(alone[0]).metadata["max_source_length"] == LONGEST


def test_lengths_share_the_weights_and_bring_no_tables(both, device):
    sizes = [flatbuffer.weight_bytes(graph_of(path)) for path in (device.path, both)]
    assert sizes[1] < sizes[0] + 3000  # shapes, and rows of pads or of places
    assert tables(graph_of(both), {*LENGTHS, *(length + 50 for length in LENGTHS)}) == []


def test_a_cache_of_a_fixed_length_has_two_stages_where_that_saves_slots(both):
    """7 + 8 of 57 slots, and 16 + 8 of 66; the open signature grows in blocks, by two loops."""
    graph = graph_of(both)
    loops = {
        signature.signatureKey.decode(): sum(
            flatbuffer.builtin_of(graph, op) == schema.BuiltinOperator.WHILE
            for op in graph.subgraphs[signature.subgraphIndex].operators
        )
        for signature in graph.signatureDefs
    }
    assert loops == {"translate": 1, "translate_7": 2, "translate_16": 2}


def test_no_copy_stands_at_a_border(both):
    graph = graph_of(both)
    assert [border_copies(graph, index) for index in range(len(graph.subgraphs))] == [
        [] for _ in graph.subgraphs
    ]


def test_the_first_signature_without_a_name_takes_every_source(alone):
    graph = graph_of(alone[0])
    assert [each.signatureKey for each in graph.signatureDefs] == [b"translate_70", b"translate_9"]
    assert graph.signatureDefs[0].subgraphIndex == 0
    assert graph.subgraphs[0].tensors[graph.subgraphs[0].inputs[0]].shape.tolist() == [1, LONGEST]


VARIANTS = {
    "learned": dict(positions="learned", max_positions=37),
    "rotary": dict(positions="rotary", key_dim=14),
    "relative": dict(positions="relative"),
    "alibi": dict(positions="alibi"),
    "first_position": dict(positions="tensor2tensor", first_position=2),
    "window": dict(attention_window=3),
    "recurrence": dict(decoder_recurrence="ssru"),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "relative" else pytest.mark.release)
        for name in VARIANTS
    ],
)
def test_what_hangs_on_positions_is_no_table_either(name, tokenizer, texts, tmp_path):
    options = dict(vocab_size=tokenizer.vocab_size, model_dim=26, num_heads=2, dropout=0.0)
    options |= dict(intermediate_dim=15, encoder_layers=1, decoder_layers=1)
    options |= {each: getattr(tokenizer, each) for each in ("pad_id", "unk_id", "bos_id", "eos_id")}
    model = randomise(Transformer(TransformerConfig(**options, **VARIANTS[name])), seed=1)
    options = dict(lengths=(25,), lengths_only=True, strategy=Greedy(extra_length=29))
    report = export_litert(model, tokenizer, tmp_path / "device", samples=texts[:9], **options)
    assert report.identical == 9
    # The source, the first stage of the cache and the whole, and distances in each.
    assert tables(graph_of(tmp_path / "device"), (25, 33, 54, 49, 65, 107)) == []


# --- The same answers ----------------------------------------------------------------------


def test_a_source_of_each_length_is_answered_as_by_the_open_signature(
    both, device, live, texts, other_texts, odd_texts, monkeypatch
):
    runner, plain, used = Runner(both), Runner(device.path), []
    run = runner._run
    monkeypatch.setattr(
        runner, "_run", lambda name, **tensors: used.append(name) or run(name, **tensors)
    )
    sources = [live.source_ids(text) for text in (*texts, *other_texts, *odd_texts)]
    for ids in sources:
        assert runner.translate_ids(ids) == plain.translate_ids(ids) == live.translate_ids([ids])[0]
    assert set(used) == {"translate", "translate_7", "translate_16"}
    for name, ids in zip(used, sources, strict=True):
        fitting = [f"translate_{length}" for length in LENGTHS if len(ids) <= length]
        assert name == [*fitting, "translate"][0]


def test_a_length_may_be_chosen(both, live, texts):
    runner = Runner(both)
    ids = live.source_ids(texts[1])
    answers = [runner.translate_ids(ids, length=length) for length in (None, *LENGTHS)]
    assert answers == [live.translate_ids([ids])[0]] * 3
    rule = r"`length` must be one of \[7, 16\], and not below the number of ids. Received: length="
    for length, count in ((8, 3), (7, 8), (0, 3)):
        with pytest.raises(ValueError, match=rule + f"{length}, {count} ids"):
            runner.translate_ids([5] * count, length=length)


def test_hypotheses_of_lengths_alone(alone, texts, odd_texts, tmp_path, capsys):
    path, live = alone
    everything = [*texts[:9], *odd_texts]
    expected = live.translate_with_details(everything)
    for runner in (Runner(path), Runner(path, weight_cache=tmp_path)):
        received = runner.translate_with_details(everything)
        for ours, theirs in zip(sum(received, []), sum(expected, []), strict=True):
            assert (ours.text, ours.ids) == (theirs.text, theirs.ids)
            assert ours.score == pytest.approx(theirs.score, abs=1e-4)
    with pytest.raises(ValueError, match="at most `max_source_length` = 70 tokens"):
        runner.translate(["a" * 80])
    assert command.main([str(path), "ab c"]) == 0
    assert capsys.readouterr().out.splitlines() == live.translate(["ab c"])


def test_packed_weights(both, texts, other_texts, tmp_path):
    plain, packed = Runner(both), Runner(both, weight_cache=tmp_path)
    for text in (*texts, *other_texts, *texts[:3]):
        ids = plain._checked(plain.encode(text))
        expected, received = plain._answer(ids), packed._answer(ids)
        assert received["target_ids"].dtype == np.int32
        np.testing.assert_array_equal(received["target_ids"], expected["target_ids"], strict=True)
    assert packed._interpreter is None


# --- As apps call it -----------------------------------------------------------------------


def compiled_model(path):
    from ai_edge_litert.compiled_model import CompiledModel

    return CompiledModel.from_file(str(path / "model.tflite"))


def padded(ids, length):
    return np.array([*ids, *[0] * (length - len(ids))], "int32")


def test_a_compiled_model_runs_it_by_index_and_resizes_nothing(alone, texts, monkeypatch):
    """Kotlin's way: the buffers that the model makes, of the first signature."""
    path, live = alone
    model = compiled_model(path)
    monkeypatch.delattr(type(model), "resize_input_tensor_by_name", raising=False)
    inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
    names = model.get_signature_by_index(0)["outputs"]
    for text in (texts[5], texts[1], texts[9], texts[0]):
        ids = live.source_ids(text)
        inputs[0].write(padded(ids, LONGEST))
        model.run_by_index(0, inputs, outputs)
        row = outputs[names.index("target_ids")].read(LONGEST + 50, np.int32).tolist()
        content = row[: row.index(live.tokenizer.eos_id)]
        assert content == live.translate_ids([ids])[0]


def test_a_compiled_model_runs_it_by_name(both, live, texts):
    model = compiled_model(both)
    for text in texts[:8]:
        ids = live.source_ids(text)
        name, length = ("translate_7", 7) if len(ids) <= 7 else ("translate_16", 16)
        source = model.create_input_buffer_by_name(name, "source_ids")
        target = model.create_output_buffer_by_name(name, "target_ids")
        source.write(padded(ids, length))
        model.run_by_name(name, {"source_ids": source}, {"target_ids": target})
        row = target.read(length + 50, np.int32).tolist()
        assert row[: row.index(live.tokenizer.eos_id)] == live.translate_ids([ids])[0]


def test_an_interpreter_runs_the_main_graph_without_a_signature(alone, texts):
    """react-native-fast-tflite's way: tensors by index, nothing resized."""
    from ai_edge_litert.interpreter import Interpreter

    path, live = alone
    interpreter = Interpreter(model_path=str(path / "model.tflite"))
    interpreter.allocate_tensors()
    (source,) = interpreter.get_input_details()
    *_, target = interpreter.get_output_details()
    for text in texts[:6]:
        ids = live.source_ids(text)
        interpreter.set_tensor(source["index"], padded(ids, LONGEST)[None])
        interpreter.invoke()
        row = interpreter.get_tensor(target["index"])[0].tolist()
        assert row[: row.index(live.tokenizer.eos_id)] == live.translate_ids([ids])[0]


# --- Errors --------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [(32, 8), (8, 8), (0, 8), (-1,)])
def test_lengths_ascend(wrong):
    with pytest.raises(ValueError, match="`lengths` must be positive and ascending. Received: le"):
        check_lengths(wrong, 512)


@pytest.mark.parametrize("wrong", [32, "32", (8.0,), (True,), None])
def test_lengths_are_integers(wrong):
    with pytest.raises(TypeError, match="`lengths` must be a list of integers. Received: lengths="):
        check_lengths(wrong, 512)


def test_lengths_end_with_the_longest_source(trained, tokenizer, tmp_path):
    rule = r"not go beyond `max_source_length` and .* Received: lengths=\(8, 33\), of at most 32"
    with pytest.raises(ValueError, match=rule):
        options = dict(samples=["ab"], lengths=(8, 33), max_source_length=32)
        export_litert(trained, tokenizer, tmp_path / "device", **options)
    assert not (tmp_path / "device").exists()
    with pytest.raises(ValueError, match="`lengths_only` must come with `lengths`. Received"):
        check_lengths((), 512, True)
    with pytest.raises(ValueError, match="must come with the signature 'translate' alone"):
        check_lengths((8,), 512, True, ("translate", "encode"))
    with pytest.raises(ValueError, match="at most `max_source_length` = 5 tokens"):
        options = dict(samples=["abcdef"], lengths=(5,), lengths_only=True)
        export_litert(trained, tokenizer, tmp_path / "device", **options)


def test_each_length_must_keep_the_promise(both, trained, tokenizer, texts, monkeypatch):
    runner, translator = Runner(both), Translator(trained, tokenizer)
    answers = PythonAnswers.translated_by(translator, texts)
    lengths.check_answers(runner, translator, answers, "float32")
    translate, seen = runner.translate_ids, []

    def wrong(ids, length):
        seen.append((len(ids), length))
        return translate(ids, length=length)[: -1 if length == 16 else None]

    monkeypatch.setattr(runner, "translate_ids", wrong)
    rule = "signature of 16 tokens must give at least 100% of Python's tokens. Received: .* of 22 s"
    with pytest.raises(ParityError, match=rule):
        lengths.check_answers(runner, translator, answers, "float32")
    long = PythonAnswers.translated_by(translator, ["abcdefgh", "abcdefghab"])
    seen.clear()
    with pytest.raises(ParityError):
        lengths.check_answers(runner, translator, long, "float32")
    assert seen == [(7, 7), (10, 16), (12, 16)]  # one is cut for the shortest signature


WRONG = {
    "no list": ({"lengths": {}}, "must list signatures with their `source_length`"),
    "no records": ({"lengths": [32]}, "must list signatures"),
    "no target": ({"lengths": [{"signature": "translate_7", "source_length": 7}]}, "must list"),
    "beyond": (
        {"max_source_length": 15},
        "must end at `max_source_length`, where `open_length` is",
    ),
    "short": ({"open_length": False}, "must end at `max_source_length`, where .*open_length=False"),
    "no flag": ({"open_length": 1}, "must end at .*open_length=1"),
    "order": ({"lengths": lambda rows: rows[::-1]}, "shortest first. Received"),
    "names": (
        {"lengths": lambda rows: [{**row, "signature": "translate"} for row in rows]},
        "must list signatures",
    ),
    "kinds": (
        {"lengths": lambda rows: [{**row, "target_length": "9"} for row in rows]},
        "must list signatures",
    ),
    "absent": (
        {
            "lengths": lambda rows: [
                *rows,
                {"signature": "translate_20", "source_length": 20, "target_length": 70},
            ]
        },
        "must have the signature that metadata.json names, .* Received: 'translate_20'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_metadata_that_do_not_fit(case, both, tmp_path):
    changes, rule = WRONG[case]
    folder = shutil.copytree(both, tmp_path / "copy")
    path = folder / "metadata.json"
    metadata = json.loads(path.read_text())
    for name, value in changes.items():
        metadata[name] = value(metadata[name]) if callable(value) else value
    path.write_text(json.dumps(sealed(metadata)))
    with pytest.raises(ValueError, match=rule):
        Runner(folder)
