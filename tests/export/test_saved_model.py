"""The SavedModel: Python's text, by name, from any folder, in any process with TensorFlow Text."""

import dataclasses
import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer import Greedy, Transformer, Translator
from keras_transformer.artifacts import check_whole, read_description
from keras_transformer.export import ParityError, export_saved_model
from keras_transformer.export.serving import graphs
from keras_transformer.export.serving import saved_model as exporter
from keras_transformer_runner.atomic import new_folder
from keras_transformer_runner.tokenizers import SentencePieceTokenizer

TEXT_OPS = {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}


@pytest.fixture(scope="module")
def loaded(saved_model):
    return tf.saved_model.load(str(saved_model.path))


@pytest.fixture(scope="module")
def serve(loaded):
    def serve(texts):
        answers = loaded.signatures["serving_default"](text=tf.constant(texts, tf.string))
        return [answer.decode() for answer in answers["translation"].numpy()]

    return serve


@pytest.fixture(scope="module")
def serve_ids(loaded):
    return lambda ids: loaded.signatures["translate_ids"](source_ids=tf.constant(ids, tf.int32))[
        "target_ids"
    ].numpy()


# --- The same text -------------------------------------------------------------------------


@pytest.mark.smoke
def test_text_equals_python_for_any_batch_and_length(serve, live, texts, other_texts, odd_texts):
    everything = [*texts, *other_texts, *odd_texts]
    expected = live.translate(everything)
    assert len(set(expected)) > 35
    assert serve(everything) == expected
    for rows in (1, 3):
        for first in range(0, len(everything), 5):
            batch = everything[first : first + rows]
            assert serve(batch) == expected[first : first + rows]


@pytest.mark.quick(1)
@pytest.mark.parametrize("empty", ["", "   ", "\n", "\u3000"])
def test_no_text_gives_no_text_and_changes_no_batch_mate(serve, texts, empty):
    assert serve([empty]) == [""]
    assert serve([empty, texts[9], empty]) == ["", *serve([texts[9]]), ""]


def test_no_rows(serve, serve_ids):
    assert serve([]) == []
    assert serve_ids(np.zeros((0, 5), "int32")).shape[0] == 0


def test_invalid_utf8_reads_as_replacement_characters(serve, live):
    raw = [b"ab\xffc", b"\xe2\x82", b"\xed\xa0\x80 b", b"ab"]
    assert serve(raw) == live.translate([text.decode("utf-8", "replace") for text in raw])


def test_control_symbols_that_a_user_types_are_text(serve, serve_ids, live, tokenizer):
    special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
    for text in ("</s> <pad>", "a</s>b", "<s>", "<pad>"):
        assert not special & set(live.source_ids(text)[:-1])
        assert serve([text]) == live.translate([text])
    # An EOS in the middle is not the same.
    assert serve(["a</s>b"]) != serve(["a"])


# --- Ids -----------------------------------------------------------------------------------


def test_translate_ids_equals_python_and_ends_in_pads(serve_ids, live, texts, tokenizer):
    rows = live.pad([live.source_ids(text) for text in texts[3:12]])
    ids = serve_ids(rows)
    assert ids.dtype == np.int32 and len(ids) == 9
    eos, pad = tokenizer.eos_id, tokenizer.pad_id
    for row, expected in zip(ids.tolist(), live.translate_ids(rows), strict=True):
        assert row == [*expected, eos, *[pad] * (len(row) - len(expected) - 1)]
    np.testing.assert_array_equal(serve_ids(rows[:2])[:, :5], ids[:2, :5])


@pytest.mark.parametrize("outside", [-1, 31, 2**31 - 1])
def test_an_id_outside_the_vocabulary_is_named_and_its_row_empty(
    loaded, serve_ids, outside, tokenizer
):
    ids = tf.constant([[5, 4, 3], [5, outside, 3]])
    found = loaded.signatures["translate_ids"](source_ids=ids)
    assert [*found["status"].numpy()] == [b"ok", b"id_outside_vocabulary"]
    assert set(found["target_ids"].numpy()[1]) == {tokenizer.pad_id}
    np.testing.assert_array_equal(found["target_ids"][:1], serve_ids([[5, 4, 3]]))


@pytest.mark.slow
def test_the_strategy_is_exported(trained, tokenizer, texts):
    strategy = Greedy(extra_length=2, max_length=5)
    live = Translator(trained, tokenizer, strategy)
    module = graphs.ServingModule(live)
    rows = live.pad([live.source_ids(text) for text in texts[:7]])
    ids = module.signatures["translate_ids"](source_ids=tf.constant(rows))["target_ids"].numpy()
    assert ids.shape == (7, 5)
    assert sum(tokenizer.eos_id not in row for row in ids.tolist()) >= 2  # cut by the limit
    for row, expected in zip(ids.tolist(), live.translate_ids(rows), strict=True):
        ended = [tokenizer.eos_id] if len(expected) < 5 else []
        assert row == [*expected, *ended, *[tokenizer.pad_id] * (5 - len(expected) - len(ended))]
    answers = module.signatures["serving_default"](text=tf.constant(texts))["translation"]
    assert [text.decode() for text in answers.numpy()] == live.translate(texts)


@pytest.mark.slow
def test_a_frozen_model_exports_and_a_sample_may_hold_a_surrogate(
    trained, tokenizer, texts, tmp_path
):
    frozen = Transformer(trained.config)
    frozen.set_weights(trained.get_weights())
    frozen.trainable = False
    report = export_saved_model(
        frozen, tokenizer, tmp_path / "frozen", samples=[*texts[:3], "a\ud800b"]
    )
    assert report.identical == 4


# --- Names ---------------------------------------------------------------------------------


def test_signatures_have_the_documented_names(loaded):
    def shapes(tensors):
        return {name: (spec.dtype.name, *spec.shape) for name, spec in tensors.items()}

    text, status = {"text": ("string", None)}, {"status": ("string", None)}
    assert {
        name: (shapes(function.structured_input_signature[1]), shapes(function.structured_outputs))
        for name, function in loaded.signatures.items()
    } == {
        "serving_default": (text, {"translation": ("string", None)}),
        "translate": (
            {**text, "n_best": ("int32", None)},
            {
                "translations": ("string", None, 1),
                "scores": ("float32", None, 1),
                "truncated": ("bool", None, 1),
                "counts": ("int32", None),
                **status,
            },
        ),
        "translate_ids": (
            {"source_ids": ("int32", None, None)},
            {"target_ids": ("int32", None, None), **status},
        ),
        "score": (
            {**text, "target": ("string", None)},
            {
                "log_prob": ("float32", None),
                "score": ("float32", None),
                "target_ids": ("int32", None, None),
                "token_log_probs": ("float32", None, None),
                **status,
            },
        ),
        "encode": (
            text,
            {"states": ("float32", None, None, 29), "mask": ("bool", None, None), **status},
        ),
        "embed": (text, {"embedding": ("float32", None, 29), **status}),
    }


def _op_names(folder):
    proto = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    (graph,) = [meta_graph.graph_def for meta_graph in proto.meta_graphs]
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return {node.op for node in nodes}


def test_ops_are_tensorflows_and_the_tokenizers_only(saved_model):
    ops = _op_names(saved_model.path)
    assert saved_model.report.ops == tuple(sorted(ops))
    # All that TF Serving's binary runs: no XLA op, which it refuses, and no Python.
    assert not {op for op in ops if "Xla" in op or "Py" in op}
    assert {op for op in ops if not hasattr(tf.raw_ops, op)} <= TEXT_OPS
    assert "SentencepieceTokenizeOp" in ops


def test_no_file_names_a_path_of_this_machine(saved_model, repo_root):
    folders = {tempfile.gettempdir(), str(saved_model.path.parents[1]), str(repo_root)}
    folders |= {str(pathlib.Path.home()), sys.prefix, str(pathlib.Path(tf.__file__).parent)}
    files = [path for path in saved_model.path.rglob("*") if path.is_file()]
    assert {path.name for path in files} > {"saved_model.pb", "parity.json"}
    for path in files:
        content = path.read_bytes()
        for folder in folders:
            assert f"{folder}/".encode() not in content, (path.name, folder)
        # The card, which is for people, says what has made it.
        assert path.name == "README.md" or b"keras_transformer" not in content, path.name


def test_report(saved_model, texts):
    report = saved_model.report
    assert (report.artefact, report.mode) == ("savedmodel", "float32")
    assert (report.samples, report.identical) == (len(texts), len(texts))
    assert report.token_agreement == report.promised_agreement == 1
    assert report.first_difference is None and report.seconds_a_sample > 0
    path = saved_model.path / "assets.extra" / "parity.json"
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written["samples"] == len(texts) and written["ops"] == list(report.ops)
    files = [path for path in saved_model.path.rglob("*") if path.is_file()]
    files = [file for file in files if file not in (path, saved_model.path / "README.md")]
    assert report.size_bytes == sum(file.stat().st_size for file in files)


# --- Another process, another folder -------------------------------------------------------

ELSEWHERE = """
import json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("keras_transformer", "sentencepiece"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
import tensorflow as tf

folder, again, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
error = None
try:
    tf.saved_model.load(folder)
except Exception as raised:
    error = f"{type(raised).__name__}: {raised}"
import tensorflow_text
loaded = tf.saved_model.load(folder)
answers = loaded.signatures["serving_default"](text=tf.constant(texts))["translation"]
print(json.dumps([error, [text.decode() for text in answers.numpy()]]))
if again:
    tf.saved_model.save(loaded, again, signatures=loaded.signatures)
"""


@pytest.mark.slow
def test_answers_in_a_process_that_has_tensorflow_only(
    saved_model, live, texts, odd_texts, run_json, tmp_path
):
    everything = [*texts, *odd_texts]
    second = tmp_path / "second"
    arguments = (saved_model.path, second, json.dumps(everything))
    ((error, answers),) = run_json(ELSEWHERE, *arguments)
    assert answers == live.translate(everything)
    # Without TensorFlow Text, the message names what is missing.
    assert "Op type not registered 'Sentencepiece" in error
    # What that process loaded can be saved again.
    ((_, answers),) = run_json(ELSEWHERE, second, "", json.dumps(everything))
    assert answers == live.translate(everything)


# --- Failures ------------------------------------------------------------------------------


def test_a_wrong_artefact_is_not_written(trained, tokenizer, texts, tmp_path, monkeypatch):
    decode = graphs.decode

    def short(model, source_ids, strategy):
        return decode(model, source_ids, dataclasses.replace(strategy, max_length=2))

    monkeypatch.setattr(graphs, "decode", short)
    with pytest.raises(ParityError, match="savedmodel must give at least 100% of Python's tokens"):
        export_saved_model(trained, tokenizer, tmp_path / "new" / "model", samples=texts)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_kept(trained, tokenizer, texts, tmp_path):
    (tmp_path / "precious").write_text("x")
    with pytest.raises(FileExistsError, match="needs a new folder. Received: .*, which exists"):
        export_saved_model(trained, tokenizer, tmp_path, samples=texts)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_tokenizer_of_another_vocabulary_is_refused(trained, texts, tmp_path):
    other = SentencePieceTokenizer.train(["abc"] * 5, 8, model_type="char")
    with pytest.raises(ValueError, match="same `vocab_size`. Received: tokenizer 8, model 31"):
        export_saved_model(trained, other, tmp_path / "model", samples=texts)
    assert list(tmp_path.iterdir()) == []


# --- The folder ----------------------------------------------------------------------------


def test_overwrite_replaces_an_export_only(saved_model, tmp_path):
    path = shutil.copytree(saved_model.path, tmp_path / "1")
    options = {"replaces": exporter._FILES, "mark": exporter.REPORT}
    (path / "assets.extra" / "mine").touch()
    with pytest.raises(FileExistsError, match="which also holds assets.extra/mine"):
        new_folder(path, **options).__enter__()
    (path / "assets.extra" / "mine").unlink()
    with new_folder(path, **options):
        pass
    assert not list(path.iterdir())
    (path / "saved_model.pb").touch()  # of another program
    with pytest.raises(FileExistsError, match="does not hold assets.extra/parity.json"):
        new_folder(path, **options).__enter__()


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.index", "serving.json"])
def test_a_damaged_saved_model_is_told(name, saved_model, tmp_path):
    check_whole(saved_model.path)
    path = shutil.copytree(saved_model.path, tmp_path / "1")
    file = path / ("assets.extra" if name == "serving.json" else "") / name
    content = file.read_bytes()
    file.write_bytes(content.replace(b"1024", b"1025") if name == "serving.json" else content[:-1])
    with pytest.raises(
        ValueError, match=f"{name} must be (as it was written|the file that serving)"
    ):
        check_whole(path)
    (path / "assets.extra" / "serving.json").unlink()
    check_whole(path)  # of another program


def test_damaged_facts_are_told(saved_model, tmp_path):
    path = shutil.copytree(saved_model.path, tmp_path / "1") / "assets.extra" / "serving.json"
    for content in ("", "[]", '{"signatures": 1}'):
        path.write_text(content)
        with pytest.raises(ValueError, match="serving.json must (be the facts of|have a field)"):
            read_description(tmp_path / "1")
    path.unlink()
    with pytest.raises(FileNotFoundError, match="serving.json must be the facts of an exported"):
        read_description(tmp_path / "1")
