"""The HTTP server in a thread of the test, with a model that only writes capitals; and a client."""

import contextlib
import http.client
import json
import socket
import threading
import urllib.parse
from typing import NamedTuple

import numpy as np
import uvicorn

from keras_transformer_runner import Translation
from keras_transformer_runner.server.app import make_app
from keras_transformer_runner.server.fields import Limits
from keras_transformer_runner.server.pool import Pool

LONGEST = 20  # characters, of a sentence


class Capitals:
    """Stands for a `Runner`: a sentence in capitals, other answers with marks behind them.

    Args:
        n_best: Answers to a sentence.
        gate: What a sentence waits for, where there is one; `reached` says that one does.
    """

    def __init__(self, n_best=0, gate=None, signature="translate"):
        self.metadata = {"signature": signature, "max_source_length": LONGEST, "mode": "float32"}
        self.metadata["sha256"] = {"model.tflite": "abc"}
        self.n_best, self.gate, self.sentences = n_best, gate, []
        self.reached = threading.Semaphore(0)

    def fits(self, text):
        return len(text) <= LONGEST

    def encode(self, text):
        return list(text.encode())

    def classify(self, texts):
        return [np.array([0.125, 0.5, 0.375], np.float32) for _ in texts]

    def translate(self, sentences):
        for sentence in sentences:
            self.sentences.append(sentence)
            self.reached.release()
            if self.gate:
                self.gate.wait(60)
            if "fault" in sentence:
                raise ValueError("a fault of the model")
        return [sentence.upper() for sentence in sentences]

    def translate_with_details(self, sentences, n_best):
        # The search finds one fewer for a sentence that ends in "?".
        return [
            [
                Translation(sentence.upper() + "~" * rank, (), 0.0, False)
                for rank in range(n_best - sentence.endswith("?"))
            ]
            for sentence in sentences
        ]


class Answer(NamedTuple):
    """What a server answered: its status, headers, and body from JSON where it is that."""

    status: int
    headers: http.client.HTTPMessage
    body: object


def ask(address, path, fields=None, *, form=None, body=None, method=None, timeout=60, **headers):
    """The `Answer` to a request: a GET, or a POST of JSON fields, of a form or of bytes."""
    if fields is not None:
        body, headers["content-type"] = json.dumps(fields), "application/json"
    if form is not None:
        body = urllib.parse.urlencode(form)
        headers["content-type"] = "application/x-www-form-urlencoded"
    connection = http.client.HTTPConnection(*address, timeout=timeout)
    with contextlib.closing(connection):
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        is_json = answer.headers["content-type"] == "application/json"
        content = json.loads(content) if is_json else content.decode()
        return Answer(answer.status, answer.headers, content)


@contextlib.contextmanager
def served(pairs, *, queue=2, limits=None, **options):
    """The address of a server of runners, or of lists of runners, by `SOURCE:TARGET`.

    A name without a colon is that of another kind of model.
    """
    pools = {
        name: Pool(runners if isinstance(runners, list) else [runners], queue)
        for name, runners in pairs.items()
    }
    names = {tuple(name.split(":")): name for name in pools if ":" in name}
    app = make_app(pools, names, limits=limits or Limits(), **options)
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=10)
    )
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
        for pool in pools.values():
            pool.close()
