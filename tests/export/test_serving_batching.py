"""Calls that share a batch on the server, by the kit's own configuration: each as if alone."""

import concurrent.futures
import json
import random
import shutil
import threading
import urllib.request

import numpy as np
import pytest

pytest.importorskip("tensorflow_serving")  # the extra `serving`

from google.protobuf import text_format
from serving_process import BATCHING, SERVER, load, load_client, serving

from keras_transformer.export.serving import warmup

client = load_client()
batching = load(SERVER.with_name("serving_batching.py"))
THREADS = 16
TOO_LONG = "ab " * 40_000  # bytes, for the export's bound
INVALID, FAILED = "INVALID_ARGUMENT", "FAILED_PRECONDITION"


@pytest.fixture(scope="module")
def server(saved_model, tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    shutil.copytree(saved_model.path, models / "1")
    with serving(models, batching=BATCHING) as server:
        yield server


@pytest.fixture(scope="module")
def caller(server):
    with client.GrpcClient(server.grpc, server.name, retries=client.Retries(tries=9)) as caller:
        yield caller


def at_once(*calls):
    """The results of all, each called in its own thread at the same moment."""
    barrier = threading.Barrier(len(calls))

    def wait_and(call):
        barrier.wait()
        return call()

    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [*pool.map(wait_and, calls)]


def merged(server):
    """How many runs of the server had so many calls."""
    with urllib.request.urlopen(f"{server.rest}/merged", timeout=300) as answer:
        return {int(calls): runs for calls, runs in json.loads(answer.read()).items()}


def code_of(call):
    try:
        call()
    except client.ServingError as error:
        return error.code
    return "OK"


# --- The server ----------------------------------------------------------------------------


def test_merged_calls_get_what_each_gets_alone(server, caller, live, texts, odd_texts):
    everything = [*texts, *odd_texts]
    expected = dict(zip(everything, live.translate(everything), strict=True))
    assert [caller.translate([text])[0] for text in everything] == [*expected.values()]
    before = merged(server)

    def work(number):
        rng, found = random.Random(number), []
        for _round in range(5):
            some = rng.choices(everything, k=rng.randint(1, 7))
            found.append((some, caller.translate(some)))
        return found

    for found in at_once(*(lambda n=n: work(n) for n in range(THREADS))):
        for some, answers in found:
            assert answers == [expected[text] for text in some]
    # They were merged indeed: of 16 calls at once, at most 4 are run as they come.
    assert sum(runs for calls, runs in merged(server).items() if calls > 1) > 10
    assert sum(runs for _, runs in merged(server).items()) - sum(before.values()) < 70


def test_every_signature_is_split_as_it_was_merged(caller, live, texts):
    def work(number):
        some = texts[number : number + 1 + number % 3]
        ids = [
            ids + [live.model.config.pad_id] * (40 - len(ids)) for ids in map(live.source_ids, some)
        ]
        return [
            caller.predict("translate", {"text": some, "n_best": [1] * len(some)}),
            caller.predict("translate_ids", {"source_ids": ids}),
            caller.predict("score", {"text": some, "target": [*reversed(some)]}),
            caller.predict("encode", {"text": some}),
            caller.predict("embed", {"text": some}),
        ]

    together = at_once(*(lambda n=n: work(n) for n in range(THREADS)))
    for number, found in enumerate(together):
        for outputs, alone in zip(found, work(number), strict=True):
            assert set(outputs) == set(alone)
            for name, values in outputs.items():
                one, other = np.array(values), np.array(alone[name])
                if one.ndim > 1:  # as wide as the longest row of the batch; pads to the right
                    narrow = tuple(map(slice, other.shape))
                    assert not np.any(one[:, other.shape[1] :]) or one.shape == other.shape
                    one = one[narrow]
                if one.dtype.kind in "fc":
                    np.testing.assert_allclose(one, other, atol=1e-4, err_msg=name)
                else:
                    np.testing.assert_array_equal(one, other, err_msg=name)


def test_a_bad_row_changes_no_call_in_its_batch(caller, live, texts):
    expected = live.translate(texts[:4])

    def good():
        return caller.translate(texts[:4])

    def bad():
        answers = caller.translate_n_best([texts[0], TOO_LONG, texts[1]])
        return [answer.status for answer in answers], answers[2].translations

    def worse():
        found = caller.predict("translate", {"text": texts[:2], "n_best": [-1, 9]})
        return [status.decode() for status in found["status"]]

    found = at_once(*[good, bad, worse, good] * 4)
    assert found[0::4] == found[3::4] == [expected] * 4
    assert found[1::4] == [(["ok", "too_long", "ok"], (expected[1],))] * 4
    assert found[2::4] == [["bad_n_best"] * 2] * 4


def test_a_malformed_call_costs_its_batch_mates_a_second_try_and_no_more(server, live, texts):
    """TF Serving refuses the whole batch, so the client calls again."""
    expected, codes = live.translate(texts[:2]), []

    def good(make, address):
        with make(address, server.name, retries=client.Retries(tries=12)) as caller:
            return [caller.translate(texts[:2]) for _ in range(3)]

    def wrong(make, address, inputs):
        with make(address, server.name, retries=client.Retries(tries=1)) as caller:
            codes.extend(code_of(lambda: caller.predict("translate", inputs)) for _ in range(3))
            return [expected] * 3

    over_grpc, over_rest = (client.GrpcClient, server.grpc), (client.RestClient, server.rest)
    dtype, axes = {"text": [3], "n_best": [1]}, {"text": [[b"a"]], "n_best": [1]}
    calls = [lambda: good(*over_grpc)] * 5 + [lambda: good(*over_rest)] * 3
    calls += [lambda: wrong(*over_grpc, dtype)] * 2 + [lambda: wrong(*over_rest, axes)] * 2
    assert at_once(*calls) == [[expected] * 3] * len(calls)
    assert set(codes) <= {INVALID, FAILED, "INTERNAL"} and len(codes) == 12


def test_bounds_of_a_batch(server, caller, live, texts):
    some = (texts * 2)[:33]
    assert caller.translate(some) == live.translate(some)  # the client splits
    assert code_of(lambda: caller.predict("serving_default", {"text": some})) == INVALID
    uneven = {"text": texts[:2], "n_best": [1]}
    assert code_of(lambda: caller.predict("translate", uneven)) == INVALID
    # No rows, alone and among others; the client itself makes no such call.
    body = json.dumps({"signature_name": "embed", "inputs": {"text": []}}).encode()

    def nothing():
        url = f"{server.rest}/v1/models/{server.name}:predict"
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=300) as answer:
            return json.loads(answer.read())["outputs"]["embedding"]

    assert nothing() == []
    found = at_once(nothing, lambda: len(caller.predict("embed", {"text": texts[:3]})["embedding"]))
    assert found == [[], 3]


# --- The stand-in itself, and the file -----------------------------------------------------


def test_the_kits_file_fits_the_warmup():
    found = batching.read_parameters(BATCHING)
    assert found.max_batch_size == max(warmup.BATCH_SIZES)
    assert found.allowed_batch_sizes == () and not found.pad_variable_length_inputs
    assert 0 < found.batch_timeout_micros <= 10_000
    assert found.num_batch_threads > 1 and found.max_enqueued_batches > found.num_batch_threads


def test_what_the_server_would_not_read(tmp_path):
    path = tmp_path / "file"
    for content in ("max_batch_sizes { value: 3 }", "max_batch_size: 3", "max_batch_size {"):
        path.write_text(content)
        with pytest.raises(text_format.ParseError):
            batching.read_parameters(path)
    for sizes in ((4, 2, 8), (2, 4)):
        lines = "".join(f"allowed_batch_sizes: {size}\n" for size in sizes)
        path.write_text(lines + "max_batch_size { value: 8 }")
        with pytest.raises(ValueError, match="must rise to `max_batch_size`"):
            batching.read_parameters(path)


def test_calls_are_merged_as_they_come():
    seen = []

    def double(inputs):
        seen.append(inputs["x"].tolist())
        return {"y": inputs["x"] * 2}

    def run(*calls, **options):
        options = {"max_batch_size": 8, "batch_timeout_micros": 300_000} | options
        batcher = batching.Batcher(batching.Parameters(**options, num_batch_threads=2))

        def call(rows):
            found = batcher.run("f", double, {"x": np.array(rows)})["y"].tolist()
            assert found == (np.array(rows) * 2).tolist()

        faults = at_once(*(lambda rows=rows: fault_of(lambda: call(rows)) for rows in calls))
        assert not batcher.queues
        return faults

    def fault_of(call):
        try:
            call()
        except batching.Fault as fault:
            return fault.code.name

    assert run([1, 2, 3], [4, 5, 6], [7, 8]) == [None] * 3  # full: none waits
    assert [sorted(rows) for rows in seen] == [[1, 2, 3, 4, 5, 6, 7, 8]]
    seen.clear()
    assert run([1] * 5, [2] * 5) == [None] * 2
    assert sorted(seen) == [[1] * 5, [2] * 5]
    seen.clear()
    assert run([3, 4, 5], allowed_batch_sizes=(2, 4, 8)) == [None]
    assert seen == [[3, 4, 5, 3]]
    assert run([1] * 9) == [INVALID]
    assert run([[1]], [[1, 2]]) == [FAILED] * 2
    assert run([1], [1.5]) == ["INTERNAL"] * 2
    assert run([1] * 8, [2] * 8, [3] * 8, max_enqueued_batches=0) == ["UNAVAILABLE"] * 3
