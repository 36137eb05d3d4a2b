"""More requests than runners, answers that nobody waits for, and what Prometheus is told."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from http_service import Capitals, ask, served
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from keras_transformer_runner.server import command
from keras_transformer_runner.server.fields import Limits

PAIR = dict(source="en", target="de")


def samples(address, model=None):
    """The values of the metrics by name and labels, the model's own alone with `model`."""
    text = ask(address, "/metrics").body
    found = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            labels = dict(each.labels)
            if model is None or labels.pop("model", None) == model:
                name = each.name.removeprefix("keras_transformer_")
                found[name, *sorted(labels.values())] = each.value
    return found


def until(holds):
    end = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def gate():
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
def requests(gate):
    """Sends requests from threads of their own."""
    with ThreadPoolExecutor(8) as threads:
        yield lambda address, q: threads.submit(ask, address, "/translate", {**PAIR, "q": q})
        gate.set()


def test_who_does_not_fit_into_the_queue_is_told_to_come_back(gate, requests):
    runners = [Capitals(gate=gate), Capitals(gate=gate)]
    with served({"en:de": runners, "de:en": Capitals()}, queue=1) as address:
        running = [requests(address, "a"), requests(address, "b")]
        until(lambda: samples(address, "en:de")["running",] == 2)
        waiting = requests(address, "c")
        until(lambda: samples(address, "en:de")["waiting",] == 1)
        refused = ask(address, "/translate", {**PAIR, "q": "d"})
        assert refused.status == 503 and refused.headers["retry-after"] == "1"
        assert refused.body == {"error": "too many requests wait for an answer: try again"}
        # Another model, and the server itself, have no part in it.
        assert ask(address, "/translate", dict(q="e", source="de", target="en")).status == 200
        assert ask(address, "/healthz").body == {"status": "ok", "models": ["en:de", "de:en"]}
        gate.set()
        answers = [each.result() for each in (*running, waiting)]
        assert [each.body["translatedText"] for each in answers] == ["A", "B", "C"]
        until(lambda: samples(address, "en:de")["running",] == 0)
    assert sorted(runners[0].sentences + runners[1].sentences) == ["a", "b", "c"]


def test_an_answer_that_takes_too_long_ends_at_its_next_sentence(gate):
    runner = Capitals(gate=gate)
    with served({"en:de": runner}, limits=Limits(seconds=1.0)) as address:
        answer = ask(address, "/translate", {**PAIR, "q": "One.\nTwo.\nThree."})
        assert answer.status == 503 and answer.headers["retry-after"] == "1"
        assert "the answer took longer than 1 s" in answer.body["error"]
        assert samples(address, "en:de")["running",] == 1  # until the sentence has ended
        waited = ask(address, "/translate", {**PAIR, "q": "Four."})
        assert waited.status == 503  # and is not answered any more, when its turn comes
        gate.set()
        until(lambda: samples(address, "en:de")["running",] == 0)
        assert runner.sentences == ["One."]
        five = {**PAIR, "q": "Five."}  # a busy machine may take longer than it has, more than once
        until(lambda: ask(address, "/translate", five).body == {"translatedText": "FIVE."})


def test_nobody_works_for_a_client_that_has_gone(gate):
    runner = Capitals(gate=gate)
    with served({"en:de": runner}) as address:
        body = json.dumps({**PAIR, "q": "One.\nTwo."})
        with contextlib.closing(http.client.HTTPConnection(*address, timeout=60)) as client:
            client.request("POST", "/translate", body, {"Content-Type": "application/json"})
            assert runner.reached.acquire(timeout=60)
        until(lambda: samples(address).get(("requests_total", "/translate", "499")) == 1)
        gate.set()
        until(lambda: samples(address, "en:de")["running",] == 0)
        assert runner.sentences == ["One."]


def test_a_body_that_does_not_come():
    with served({"en:de": Capitals()}, limits=Limits(seconds=0.2)) as address:
        with socket.create_connection(address, timeout=60) as slow:
            slow.sendall(b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n")
            slow.sendall(b"Content-Type: application/json\r\n\r\n{")
            answer = b""
            while b"}" not in answer and (more := slow.recv(4096)):  # head and body may come apart
                answer += more
        assert answer.startswith(b"HTTP/1.1 408 ") and b"must be sent within 0.2 s" in answer


def test_what_runs_is_answered_before_the_server_ends(gate, requests):
    runner = Capitals(gate=gate)
    with served({"en:de": runner}) as address:
        answers = [requests(address, "One."), requests(address, "Two.")]
        until(lambda: samples(address, "en:de")["waiting",] == 1)
        threading.Timer(0.5, gate.set).start()
    assert [each.result().status for each in answers] == [200, 200]


def test_what_prometheus_is_told():
    with served({"en:de": Capitals(), "de:en": Capitals()}) as address:
        ask(address, "/translate", {**PAIR, "q": ["ab", "ä"]})
        ask(address, "/translate", {**PAIR, "q": 7})
        ask(address, "/a/b")
        answer = ask(address, "/metrics", accept="application/openmetrics-text; version=1.0.0")
        assert list(openmetrics(answer.body))
        assert "openmetrics" in answer.headers["content-type"]
        found = samples(address)
        assert found["requests_total", "/translate", "200"] == 1
        assert found["requests_total", "/translate", "400"] == 1
        assert found["requests_total", "404", "other"] == 1
        assert found["request_seconds_count", "/translate"] == 2
        assert found["texts_total", "en:de"] == 2 and found["texts_total", "de:en"] == 0
        assert found["characters_total", "en:de"] == 3
        assert found["model", "abc", "en:de", "float32", "translate"] == 1
        assert found["process_resident_memory_bytes",] > 0


def test_parts_of_an_answer_are_sent_at_once():
    """Else the second, the body, waits for the client's delayed word that the first has come."""

    async def option_of_a_connection():
        accepted = asyncio.get_running_loop().create_future()

        class Connection(asyncio.Protocol):
            def connection_made(self, transport):
                accepted.set_result(transport.get_extra_info("socket"))

        with command.bound("127.0.0.1", 0) as listener:
            server = await asyncio.get_running_loop().create_server(Connection, sock=listener)
            async with server:
                with socket.create_connection(listener.getsockname()):
                    found = await accepted
                    return found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    assert asyncio.run(option_of_a_connection())
