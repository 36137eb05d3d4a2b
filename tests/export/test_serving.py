"""A SavedModel behind a server, as a client sees it: same text, and an answer to every input."""

import json
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

pytest.importorskip("tensorflow_serving")  # the extra `serving`

import grpc
import tensorflow as tf
from serving_process import CLIENT, load_client, serving
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from keras_transformer import BeamSearch, Translator
from keras_transformer.artifacts import newest_version, next_version, versions
from keras_transformer.export import export_saved_model

pytestmark = pytest.mark.slow

client = load_client()
PATIENT = client.Retries(deadline=300.0)  # a slow machine, of which three callers have a part
STRATEGY = BeamSearch(beam_size=3, extra_length=9, n_best=2)
LONGEST = 40  # tokens


@pytest.fixture(scope="module")
def beam(trained, tokenizer):
    return Translator(trained, tokenizer, STRATEGY, max_source_length=LONGEST)


@pytest.fixture(scope="module")
def models(trained, tokenizer, texts, tmp_path_factory):
    """A folder of versions, made elsewhere and moved."""
    root = tmp_path_factory.mktemp("models")
    arguments = {"samples": texts[:9], "strategy": STRATEGY, "max_source_length": LONGEST}
    path = next_version(root / "made")
    export_saved_model(trained, tokenizer, path, warmup_batch_sizes=(1, 3), **arguments)
    return (root / "made").rename(root / "translator")


@pytest.fixture(scope="module")
def server(models):
    with serving(models) as server:
        yield server


@pytest.fixture(scope="module")
def clients(server):
    over_grpc = client.GrpcClient(server.grpc, server.name, batch_size=7, retries=PATIENT)
    over_rest = client.RestClient(server.rest, server.name, batch_size=7, retries=PATIENT)
    with over_grpc, over_rest:
        yield {"grpc": over_grpc, "rest": over_rest}


@pytest.fixture(params=["grpc", "rest"])
def caller(request, clients):
    return clients[request.param]


TOO_LONG = "ab " * 30  # tokens, not bytes
HUGE = "a" * 100_000


# --- The same answers ----------------------------------------------------------------------


def test_text_is_pythons(caller, beam, texts, odd_texts):
    everything = [*texts, *odd_texts]
    expected = beam.translate(everything)
    assert caller.translate(everything) == expected
    assert caller.translate(everything[::-1]) == expected[::-1]
    assert caller.translate([]) == []


def test_n_best_and_scores_are_pythons(caller, beam, texts):
    some = [*texts[:6], ""]
    for n_best in (1, 2, 3):
        answers = caller.translate_n_best(some, n_best)
        for answer, found in zip(
            answers, beam.translate_with_details(some, n_best=n_best), strict=True
        ):
            assert answer.status == "ok"
            assert answer.translations == tuple(one.text for one in found)
            assert answer.truncated == tuple(one.truncated for one in found)
            np.testing.assert_allclose(answer.scores, [one.score for one in found], atol=1e-4)
    # 0 is the export's own number.
    assert [len(a.translations) for a in caller.translate_n_best(some)] == [2] * 6 + [1]


def test_n_best_differs_by_row(caller, texts):
    output = caller.predict("translate", {"text": texts[:4], "n_best": [3, 1, 4, -1]})
    assert [*output["counts"]] == [3, 1, 0, 0]
    status = [s.decode() if isinstance(s, bytes) else s for s in output["status"]]
    assert status == ["ok", "ok", "bad_n_best", "bad_n_best"]
    assert np.shape(output["translations"]) == np.shape(output["scores"]) == (4, 3)
    assert np.all(np.array(output["scores"])[1:, 1:] < -1e29)


def test_scores_are_pythons(caller, beam, texts):
    sources = [*texts[:4], "", "", texts[0], texts[0]]
    targets = ["B", "CD E", "", texts[2], "", "B", TOO_LONG, HUGE]
    found = caller.score(sources, targets)
    expected = [sum(one.token_log_probs) for one in beam.score(sources[:6], targets[:6])]
    np.testing.assert_allclose(found[:6], expected, atol=1e-4)
    assert found[4] == 0 and found[6:] == [None, None]
    output = caller.predict("score", {"text": sources[:6], "target": targets[:6]})
    scores = [one.score for one in beam.score(sources[:6], targets[:6])]
    np.testing.assert_allclose(output["score"], scores, atol=1e-4)
    np.testing.assert_allclose(
        np.sum(output["token_log_probs"], axis=1), output["log_prob"], atol=1e-5
    )


def test_states_and_their_mean(caller, beam, texts):
    some = [texts[0], texts[9], "", TOO_LONG]
    encoded, embedded = (caller.predict(name, {"text": some}) for name in ("encode", "embed"))
    states, mask = np.array(encoded["states"]), np.array(encoded["mask"])
    assert [*mask.sum(1)] == [len(beam.source_ids(text)) for text in some[:3]] + [0]
    for row, text in enumerate(some[:3]):
        memory = beam.model.encode(np.array([beam.source_ids(text)], "int32"))
        own = np.array(memory.states)[0]
        np.testing.assert_allclose(states[row][mask[row]], own, atol=1e-5)
        np.testing.assert_allclose(embedded["embedding"][row], own.mean(0), atol=1e-5)
    assert not states[~mask].any() and not np.any(embedded["embedding"][3])


def test_ids(caller, beam, texts, tokenizer):
    rows = beam.pad([beam.source_ids(text) for text in texts[:5]]).tolist()
    width = len(rows[0])
    bad = [31, -1, *rows[0][2:]]
    pads = [tokenizer.pad_id] * 300
    ids = [row + pads for row in [*rows, bad]] + [[5] * (LONGEST + 1) + pads[: width + 259]]
    output = caller.predict("translate_ids", {"source_ids": ids})
    status = [s.decode() if isinstance(s, bytes) else s for s in output["status"]]
    assert status == ["ok"] * 5 + ["id_outside_vocabulary", "too_long"]
    found = output["target_ids"]
    assert [tokenizer.decode(row) for row in found] == [*beam.translate(texts[:5]), "", ""]
    assert set(found[5]) == set(found[6]) == {tokenizer.pad_id}
    # Pads cost nothing: the answer is as wide as the longest row that can be answered needs.
    assert len(found[0]) == width + STRATEGY.extra_length


# --- Whatever comes ------------------------------------------------------------------------


def test_a_bad_row_changes_no_other(caller, beam, texts):
    bad = [TOO_LONG, HUGE, b"\xff" * 3000]
    good = [*texts[:4], "", b"ab\xffc"]
    alone = caller.translate_n_best(good, 3)
    mixed = caller.translate_n_best([bad[0], *good[:3], bad[1], *good[3:], bad[2]], 3)
    assert [mixed[i].status for i in (0, 4, 8)] == ["too_long"] * 3
    assert mixed[0].translations == mixed[0].scores == ()
    rest = [mixed[i] for i in (1, 2, 3, 5, 6, 7)]
    for one, other in zip(rest, alone, strict=True):
        assert (one.status, one.translations) == (other.status, other.translations)
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-4)
    assert alone[5].translations[0] == beam.translate(["ab\ufffdc"])[0]
    with pytest.raises(client.ServingError, match="OUT_OF_RANGE: text 1: too_long"):
        caller.translate(["ab", TOO_LONG])


def test_the_bound_is_pythons(caller, beam):
    letters = next(n for n in range(80) if len(beam.source_ids("a" * n)) == LONGEST)
    fits, more = "a" * letters, "a" * (letters + 1)
    assert [a.status for a in caller.translate_n_best([fits, more])] == ["ok", "too_long"]
    assert caller.translate([fits]) == beam.translate([fits])
    with pytest.raises(ValueError, match="at most `max_source_length` = 40"):
        beam.translate([more])


def test_the_default_signature_answers_a_long_text_with_nothing(caller, beam, texts):
    output = caller.predict("serving_default", {"text": [texts[0], TOO_LONG, HUGE, ""]})
    found = output.get("translation", output.get("output"))
    found = [text.decode() if isinstance(text, bytes) else text for text in found]
    assert found == [*beam.translate(texts[:1]), "", "", ""]


@pytest.mark.parametrize(
    ("signature", "inputs", "message"),
    [
        ("nothing", {"text": ["a"]}, "Serving signature key"),
        ("serving_default", {"text": [3]}, "Expects string but int32|not string"),
        ("serving_default", {"words": ["a"]}, "does not match signature|no such inputs"),
        ("translate", {"text": ["a"]}, "does not match signature"),
        ("translate", {"text": ["a", "b"], "n_best": [1]}, "(?s)."),
        ("translate_ids", {"source_ids": [3, 4]}, "(?s)."),
    ],
)
def test_a_wrong_call_is_an_error_and_the_next_is_answered(
    caller, signature, inputs, message, beam
):
    encoded = {
        name: [value.encode() if isinstance(value, str) else value for value in values]
        for name, values in inputs.items()
    }
    with pytest.raises(client.ServingError, match=message) as info:
        caller.predict(signature, encoded)
    is_unknown = signature == "nothing" and isinstance(caller, client.GrpcClient)
    assert info.value.code == ("FAILED_PRECONDITION" if is_unknown else "INVALID_ARGUMENT")
    assert caller.translate(["ab"]) == beam.translate(["ab"])


def test_no_rows(server):
    stub, request = _stub(server), predict_pb2.PredictRequest()
    request.model_spec.name = server.name
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(np.zeros(0, object), tf.string))
    response = stub.Predict(request, timeout=PATIENT.deadline)
    assert tf.make_ndarray(response.outputs["translation"]).shape == (0,)
    request.model_spec.signature_name = "translate"
    request.inputs["n_best"].CopyFrom(tf.make_tensor_proto(np.zeros(0, "int32")))
    response = stub.Predict(request, timeout=PATIENT.deadline)
    assert tf.make_ndarray(response.outputs["scores"]).shape == (0, 3)


def _stub(server):
    return prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(server.grpc))


# --- Metadata, other calls -----------------------------------------------------------------


def test_metadata_over_both(server):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = server.name
    response = _stub(server).GetModelMetadata(request, timeout=PATIENT.deadline)
    found = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(found)
    names = {"serving_default", "translate", "translate_ids", "score", "encode", "embed"}
    assert set(found.signature_def) - {"__saved_model_init_op"} == names
    url = f"{server.rest}/v1/models/{server.name}"
    with urllib.request.urlopen(f"{url}/metadata", timeout=PATIENT.deadline) as answer:
        rest = json.loads(answer.read())["metadata"]["signature_def"]["signature_def"]
    assert set(rest) == set(found.signature_def)
    with urllib.request.urlopen(url, timeout=PATIENT.deadline) as answer:
        (status,) = json.loads(answer.read())["model_version_status"]
    assert status["state"] == "AVAILABLE"


def test_rest_rows(server, beam, texts):
    def post(content):
        body = json.dumps(content).encode()
        url = f"{server.rest}/v1/models/{server.name}:predict"
        with urllib.request.urlopen(
            urllib.request.Request(url, body), timeout=PATIENT.deadline
        ) as answer:
            return json.loads(answer.read())

    assert post({"instances": texts[:3]})["predictions"] == beam.translate(texts[:3])
    rows = [{"text": text, "n_best": 2} for text in texts[:3]]
    found = post({"signature_name": "translate", "instances": rows})["predictions"]
    assert [row["translations"][0] for row in found] == beam.translate(texts[:3])
    with pytest.raises(urllib.error.HTTPError, match="400"):
        post({"instances": [3]})


# --- The client ----------------------------------------------------------------------------


def test_the_client_as_a_command(server, beam, texts):
    def run(*arguments, **kwargs):
        command = [sys.executable, str(CLIENT), "--model", server.name, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, **kwargs)

    done = run("--rest", "--address", server.rest, input="\n".join([texts[0], "", TOO_LONG]) + "\n")
    assert done.stdout == beam.translate(texts[:1])[0] + "\n\n\n"
    assert done.returncode == 0 and "too_long" in done.stderr
    done = run("--rest", "--address", server.rest, "--n-best", "2", texts[0])
    assert len(json.loads(done.stdout)["translations"]) == 2
    done = run("--rest", "--address", server.rest, "--version", "99", "a")
    assert (done.returncode, "NOT_FOUND" in done.stderr) == (1, True)


def test_wrong_use_of_the_client(clients):
    with pytest.raises(TypeError, match="`texts` must be a list of strings. Received: 'ab'"):
        clients["rest"].translate("ab")
    with pytest.raises(ValueError, match="must be as many. Received: 1 and 2"):
        clients["rest"].score(["a"], ["b", "c"])
    with pytest.raises(ValueError, match="at least one row. Received: none"):
        clients["grpc"].predict("serving_default", {"text": []})


# --- Versions ------------------------------------------------------------------------------


def test_a_new_version_takes_over_while_calls_run(models, server, clients, beam, texts):
    expected, faults, stop = beam.translate(texts[:3]), [], threading.Event()

    def call():
        while not stop.is_set():
            try:
                if clients["grpc"].translate(texts[:3]) != expected:
                    faults.append("another text")
            except client.ServingError as error:
                faults.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    partial = models / ".2.half"  # what an export that goes on looks like
    shutil.copytree(newest_version(models), partial)
    partial.rename(next_version(models))
    pinned = client.GrpcClient(server.grpc, server.name, version=2, retries=PATIENT)
    found, end = None, time.monotonic() + PATIENT.deadline
    while found is None and time.monotonic() < end:
        try:
            found = pinned.translate(texts[:3])
        except client.ServingError as error:
            if error.code != "NOT_FOUND":
                faults.append(str(error))
                break
            stop.wait(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    pinned.close()
    assert (found, faults, versions(models)) == (expected, [], [1, 2])
