"""What Prometheus may ask the server."""

import time
from collections.abc import Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder

from keras_transformer_runner.folder import MODEL_FILE
from keras_transformer_runner.server.pool import Pool

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counts requests, as ASGI middleware of `app`, and texts, by name of a model.

    No label comes from a client, so that there are never more of them.

    Args:
        pools: The `Pool` of each model by its name.
        paths: The paths that are told apart; all others are `other`.
    """

    def __init__(self, pools: Mapping[str, Pool], paths: frozenset[str]):
        self.registry = registry = CollectorRegistry()
        self._paths = paths
        ProcessCollector(registry=registry)
        prefix, by_model = "keras_transformer", dict(labelnames=["model"], registry=registry)
        self._requests = Counter(
            f"{prefix}_requests", "Requests by status", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            f"{prefix}_request_seconds",
            "From the headers of a request to the end of its answer",
            ["path"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._texts = Counter(f"{prefix}_texts", "Texts that were answered", **by_model)
        self._characters = Counter(
            f"{prefix}_characters", "Characters of the texts that were answered", **by_model
        )
        running = Gauge(f"{prefix}_running", "Requests that a runner works on", **by_model)
        waiting = Gauge(f"{prefix}_waiting", "Requests that wait for a runner", **by_model)
        about = Gauge(
            f"{prefix}_model",
            "1 for each model",
            ["model", "signature", "mode", "sha256"],
            registry=registry,
        )
        for name, pool in pools.items():
            running.labels(name).set_function(lambda pool=pool: pool.running)
            waiting.labels(name).set_function(lambda pool=pool: pool.waiting)
            about.labels(name, *_about(pool.runner.metadata)).set(1)
            self._texts.labels(name)
            self._characters.labels(name)

    def count_texts(self, model: str, texts: list[str]) -> None:
        """Counts texts that were answered."""
        self._texts.labels(model).inc(len(texts))
        self._characters.labels(model).inc(sum(map(len, texts)))

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """All of it and its content type, in the format that an Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def around(self, app):
        """An ASGI application that counts what another answers."""

        async def counted(scope, receive, send):
            path = scope["path"] if scope["path"] in self._paths else "other"
            status, start = 499, time.perf_counter()  # nobody has been answered

            async def tell(message):
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive, tell)
            finally:
                self._requests.labels(path, status).inc()
                self._seconds.labels(path).observe(time.perf_counter() - start)

        return counted


def _about(metadata):
    return metadata["signature"], metadata.get("mode", ""), metadata["sha256"][MODEL_FILE]
