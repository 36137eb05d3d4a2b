"""Clients that each wait for an answer before they ask again, and what they measure."""

import itertools
import threading
import time

import grpc
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

_DEADLINE = 120.0


def request_of(text):
    """A call with one text."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "translator"
    tensor = request.inputs["text"]
    tensor.dtype = types_pb2.DT_STRING
    tensor.tensor_shape.dim.add(size=1)
    tensor.string_val.append(text.encode())
    return request


class Load:
    """Clients of a server on this machine, each with a connection and a thread of its own.

    Args:
        port: The server's.
        clients: How many.
    """

    def __init__(self, port, clients):
        address = f"127.0.0.1:{port}"
        self._channels = [
            grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
            for _ in range(clients)
        ]
        self._calls = [
            prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
            for channel in self._channels
        ]

    def answers(self, requests):
        """The translation of each, asked for once, by all clients together."""
        found = [None] * len(requests)
        self._run(iter(range(len(requests))), requests, found.__setitem__, lambda: False)
        return [response.outputs["translation"].string_val[0] for response in found]

    def measure(self, requests, seconds):
        """Calls without end, in the order of `requests`, for a time.

        Returns:
            The latencies of the calls, seconds, and the seconds until the last was answered.
        """
        latencies, start = [], time.perf_counter()
        self._run(
            itertools.count(), requests, lambda *_: None,
            lambda: time.perf_counter() - start >= seconds, latencies,
        )  # fmt: skip
        return latencies, time.perf_counter() - start

    def _run(self, numbers, requests, keep, is_over, latencies=None):
        lock, faults = threading.Lock(), []

        def work(call):
            try:
                while not is_over():
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return
                    start = time.perf_counter()
                    response = call(requests[number % len(requests)], timeout=_DEADLINE)
                    if latencies is not None:
                        latencies.append(time.perf_counter() - start)
                    keep(number, response)
            except grpc.RpcError as error:
                faults.append(error)

        threads = [threading.Thread(target=work, args=(call,)) for call in self._calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]

    def close(self):
        for channel in self._channels:
            channel.close()
