"""What lies in an export beside its graphs: versions, warm-up, facts; and the ids-only variant."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import (
    BeamSearch,
    Greedy,
    Sampling,
    Transformer,
    TransformerConfig,
    Translator,
)
from keras_transformer.artifacts import newest_version, next_version, read_description, versions
from keras_transformer.export import ParityError, export_saved_model
from keras_transformer.export.serving import inputs, warmup
from keras_transformer.export.serving import saved_model as exporter
from keras_transformer.export.serving.description import describe
from keras_transformer.export.serving.graphs import ServingGraphs, ServingModule
from keras_transformer_runner.atomic import TargetInUseError, locked
from keras_transformer_runner.tokenizers import VocabularyTokenizer

SIGNATURES = {"serving_default", "translate", "translate_ids", "score", "encode", "embed"}


# --- Versions ------------------------------------------------------------------------------


def test_the_next_version_follows_the_highest_number(tmp_path):
    model = tmp_path / "model"
    assert (versions(model), next_version(model)) == ([], model / "1")
    assert newest_version(model) == model
    for name in ("1", "9", "10", ".11.tmp", "12-old", "x", "\u0663", "-3"):
        (model / name).mkdir(parents=True)
    (model / "99").write_text("a file")
    (model / ".12.lock").write_text("")
    assert versions(model) == [1, 9, 10]
    assert (next_version(model), newest_version(model)) == (model / "11", model / "10")


def test_a_version_that_is_being_written_is_not_the_next(tmp_path):
    (tmp_path / "1").mkdir()
    with locked(tmp_path / "2"), pytest.raises(TargetInUseError, match="Received: .*2, which is"):
        next_version(tmp_path)
    (tmp_path / ".1.lock").touch()  # of one that was killed when all was done
    assert next_version(tmp_path).name == "2" and versions(tmp_path) == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_what_holds_no_versions_is_refused(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(FileExistsError, match="hold numbered versions. Received: .*, a SavedModel"):
        next_version(tmp_path)
    with pytest.raises(FileExistsError, match="hold numbered versions. Received: .*, a file"):
        next_version(tmp_path / "saved_model.pb")


def test_a_poller_sees_a_whole_version_or_none(trained, tokenizer, texts, tmp_path, monkeypatch):
    """Whatever moment it looks at: here, each that the export passes through."""
    model, seen = tmp_path / "model", []

    def look(name):
        original = getattr(exporter, name)

        def looking(*args, **kwargs):
            seen.append(versions(model))
            result = original(*args, **kwargs)
            seen.append(versions(model))
            return result

        monkeypatch.setattr(exporter, name, looking)

    for name in ("ServingModule", "describe", "write_warmup", "_parity"):
        look(name)
    path = next_version(model)
    export_saved_model(trained, tokenizer, path, samples=texts[:2])
    assert seen == [[]] * 8 and versions(model) == [1]
    assert [child.name for child in model.iterdir()] == ["1"]
    # The second to finish does not replace the first.
    with pytest.raises(FileExistsError, match="needs a new folder"):
        export_saved_model(trained, tokenizer, path, samples=texts[:2])
    assert path.stat().st_mode & 0o055 == 0o055  # a server runs as another user


# --- Warm-up -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 127, 128, 300, 2**14, 2**21 + 5])
def test_numbers_of_any_size_in_the_wire_format(size):
    prediction_log_pb2 = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    request = warmup.Request("s" * size, 1, {"x": np.array([b"a" * size])})
    log = prediction_log_pb2.PredictionLog.FromString(warmup.prediction_log(request))
    assert log.predict_log.request.model_spec.signature_name == "s" * size


def test_the_order_of_inputs_changes_no_byte():
    """Signatures of TensorFlow have theirs in another order in every process."""
    inputs = [("text", np.array([b"a"])), ("n_best", np.int32([1]))]
    one, other = (warmup.Request("translate", 1, dict(each)) for each in (inputs, inputs[::-1]))
    assert warmup.prediction_log(one) == warmup.prediction_log(other)


def test_warmup_holds_every_signature_and_batch_size(saved_model, texts):
    prediction_log_pb2 = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    records = tf.data.TFRecordDataset(str(saved_model.path / warmup.WARMUP))
    loaded, seen = tf.saved_model.load(str(saved_model.path)), []
    for record in records:
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        request = log.predict_log.request
        # All is understood: nothing is left over that the official protos do not know.
        again = prediction_log_pb2.PredictionLog()
        again.predict_log.request.model_spec.signature_name = request.model_spec.signature_name
        for name, value in request.inputs.items():
            again.predict_log.request.inputs[name].CopyFrom(value)
        assert again == log and not log.predict_log.HasField("response")
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        (rows,) = {len(values) for values in inputs.values()}
        seen.append((request.model_spec.signature_name, rows))
        if rows == 8:  # it runs, and every row can be answered
            run = loaded.signatures[request.model_spec.signature_name]
            found = run(**{name: tf.constant(values) for name, values in inputs.items()})
            assert set(found.get("status", tf.constant(["ok"] * 8)).numpy()) == {b"ok"}
    assert sorted(seen) == sorted((name, rows) for name in SIGNATURES for rows in (1, 8, 32))


def test_too_many_warmup_requests_are_refused(saved_model):
    signatures = tf.saved_model.load(str(saved_model.path)).signatures
    columns = {"text": np.array([b"a"]), "target": np.array([b"a"])}
    columns["source_ids"] = np.zeros((1, 2), "int32")
    with pytest.raises(ValueError, match="at most 1000 requests. Received: 1002, of 6 signatures"):
        warmup.warmup_requests(signatures, columns, [1] * 167)


@pytest.mark.parametrize("sizes", [(0,), (1, 2.5), (True,)])
def test_wrong_batch_sizes(trained, tokenizer, tmp_path, sizes):
    message = rf"`warmup_batch_sizes` must be positive integers. Received: {re.escape(str(sizes))}"
    with pytest.raises(ValueError, match=message):
        export_saved_model(
            trained, tokenizer, tmp_path / "m", samples=["a"], warmup_batch_sizes=sizes
        )
    assert not (tmp_path / "m").exists()


# --- Facts ---------------------------------------------------------------------------------


def test_facts_say_what_a_reader_needs(saved_model):
    facts = read_description(saved_model.path)
    assert set(facts["signatures"]) == SIGNATURES
    assert facts["signatures"]["translate"]["inputs"] == {
        "text": "string (?)",
        "n_best": "int32 (?)",
    }
    assert all(len(signature["about"]) > 40 for signature in facts["signatures"].values())
    assert facts["bounds"] == {
        **{"source_tokens": 1024, "text_bytes": 65536, "target_tokens": 1074, "n_best": 1}
    }
    assert facts["ops"] == list(saved_model.report.ops)
    assert "SentencepieceTokenizeOp" in facts["requires"]["tensorflow_text"]
    assert facts["requires"]["xla"] is False
    assert tf.__version__ in facts["requires"]["tensorflow"]
    assert facts["latency"] == []


def test_the_most_target_tokens(trained, tokenizer):
    def most(**options):
        translator = Translator(trained, tokenizer, Greedy(**options), max_source_length=7)
        return describe(ServingModule(translator, ids_only=True).graphs, {}, ())["bounds"]

    assert most(extra_length=4) == {
        **{"source_tokens": 7, "text_bytes": None, "target_tokens": 11, "n_best": 1}
    }
    assert most(extra_length=4, max_length=5)["target_tokens"] == 5


@pytest.mark.slow
def test_saved_model_cli_reads_like_documentation(saved_model):
    script = (
        "import tensorflow_text; from tensorflow.python.tools.saved_model_cli import main; main()"
    )
    command = [sys.executable, "-c", script, "show", "--dir", str(saved_model.path), "--all"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    shown = done.stdout
    assert (
        set(re.findall(r"signature_def\['(\w+)'\]", shown)) - {"__saved_model_init_op"}
        == SIGNATURES
    )
    names = {"text", "n_best", "source_ids", "target"}
    assert set(re.findall(r"inputs\['(\w+)'\]", shown)) == names
    # No function beside the signatures, and no argument without a name.
    functions = set(re.findall(r"Function Name: '(\w+)'", shown))
    assert functions <= SIGNATURES
    assert "args_0" not in shown


# --- Ids only, and tokenizers that need nothing ---------------------------------------------


@pytest.mark.slow
def test_ids_only_needs_tensorflow_alone(trained, tokenizer, texts, tmp_path, run_json, live):
    report = export_saved_model(
        trained, tokenizer, tmp_path / "ids", samples=texts, ids_only=True, warmup_batch_sizes=(2,)
    )
    assert report.identical == len(texts)
    assert {op for op in report.ops if not hasattr(tf.raw_ops, op)} == set()
    facts = read_description(tmp_path / "ids")
    assert set(facts["signatures"]) == {"serving_default", "translate_ids"}
    assert facts["requires"]["tensorflow_text"] == [] and facts["bounds"]["text_bytes"] is None
    rows = live.pad([live.source_ids(text) for text in texts[:5]])
    script = (
        "import json, sys, tensorflow as tf\n"
        "loaded = tf.saved_model.load(sys.argv[1])\n"
        "ids = tf.constant(json.loads(sys.argv[2]), tf.int32)\n"
        "for name in ('serving_default', 'translate_ids'):\n"
        "    print(json.dumps(loaded.signatures[name](ids)['target_ids'].numpy().tolist()))\n"
        "assert 'tensorflow_text' not in sys.modules\n"
    )
    for found in run_json(script, tmp_path / "ids", json.dumps(rows.tolist())):
        assert [tokenizer.decode(row) for row in found] == live.translate(texts[:5])


@pytest.mark.slow
def test_a_vocabulary_needs_tensorflow_alone():
    tokenizer = VocabularyTokenizer(["a", "b", "c@@"])
    config = TransformerConfig(
        **dict(vocab_size=tokenizer.vocab_size, model_dim=8, num_heads=2, intermediate_dim=7),
        **dict(encoder_layers=1, decoder_layers=1, dropout=0.0, pad_id=tokenizer.pad_id),
        **dict(unk_id=tokenizer.unk_id, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id),
    )
    module = ServingModule(Translator(Transformer(config), tokenizer, Greedy(extra_length=3)))
    graphs = [function.graph.as_graph_def() for function in module.signatures.values()]
    nodes = [node for graph in graphs for f in graph.library.function for node in f.node_def]
    nodes += [node for graph in graphs for node in graph.node]
    ops = {node.op for node in nodes}
    assert "While" in ops or "StatelessWhile" in ops
    assert {op for op in ops if not hasattr(tf.raw_ops, op)} == set()


def test_a_wrong_ids_only_artefact_is_not_written(trained, tokenizer, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(
        ServingGraphs, "_best_search", property(lambda self: lambda source_ids: source_ids)
    )
    with pytest.raises(ParityError, match="savedmodel must"):
        export_saved_model(trained, tokenizer, tmp_path / "m", samples=texts, ids_only=True)
    assert list(tmp_path.iterdir()) == []


# --- Rows ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_samples_of_a_sampling_export(trained, tokenizer, texts):
    strategy = Sampling(n_best=3, extra_length=5, seed=7)
    live = Translator(trained, tokenizer, strategy)
    some = [*texts[:3], ""]
    found = ServingModule(live).signatures["translate"](
        text=tf.constant(some), n_best=tf.constant([0, 2, 3, 3])
    )
    details = live.translate_with_details(some)
    assert [*found["counts"].numpy()] == [3, 2, 3, 1]
    for row, count, one in zip(found["translations"].numpy(), (3, 2, 3, 1), details, strict=True):
        assert [text.decode() for text in row[:count]] == [t.text for t in one][:count]


def test_a_search_that_needs_no_scores_is_not_traced_twice(trained, tokenizer):
    for strategy, shared in ((Greedy(), False), (Greedy(scores=True), True), (BeamSearch(), True)):
        graphs = ServingModule(Translator(trained, tokenizer, strategy)).graphs
        assert hasattr(graphs._best_search, "get_concrete_function") is not shared


def test_rows_of_ids_are_cut_to_what_is_read():
    config = TransformerConfig(vocab_size=7, model_dim=8, num_heads=2, pad_id=2)

    def run(ids, longest=3):
        found = inputs.rows_of_ids(tf.constant(ids, tf.int32), config, longest)
        return [value.numpy().tolist() for value in found]

    ids, too_long, outside = run([[4, 5, 2, 2, 2], [6, 2, 2, 2, 2]])
    assert (ids, too_long, outside) == ([[4, 5], [6, 2]], [False] * 2, [False] * 2)
    ids, too_long, outside = run([[4, 5, 6, 3, 2], [6, 2, 4, 2, 2], [7, 2, 2, 2, 2]])
    assert (too_long, outside) == ([True, False, False], [False, False, True])
    assert ids == [[2, 2, 2], [6, 2, 4], [2, 2, 2]]
    assert run([[2, 2], [2, 2]])[0] == [[2], [2]]
    assert run(np.zeros((2, 0)))[0] == [[2], [2]]
    assert run(np.zeros((0, 4)))[0] == []


def test_bytes_are_counted_before_tokens(tokenizer):
    letters, spaces = b"ab", b" " * (64 * 5)
    texts = tf.constant([letters, letters + spaces, spaces, letters + spaces[2:]])
    pieces, too_long = inputs.rows_of_text(texts, tokenizer, 5)
    assert too_long.numpy().tolist() == [False, True, False, False]
    assert [len(row) for row in pieces.to_list()] == [3, 0, 0, 3]
