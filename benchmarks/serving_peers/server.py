"""A child process that serves one translator over gRPC, with calls batched as TF Serving does.

`PredictionService.Predict` of `text` (B,) gives `translation` (B,), on 127.0.0.1. Batches are made
by `tests/support/serving_batching.py`, after TF Serving's source: the same for every translator.
Orders:

    {"do": "port"}                  the port
    {"do": "batching", "max_batch_size": 32, "batch_timeout_micros": 2000}    from now on
    {"do": "times"}                 what the calls since the last such order have spent where
"""

import concurrent.futures
import pathlib
import statistics
import sys
import time

import grpc
import numpy as np
import orders
import systems
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tests" / "support"))
from serving_batching import Batcher, Fault, Parameters  # noqa: E402

_MOST_CALLS = 64  # at once, so above the number of clients


class MeasuredBatcher(Batcher):
    """Notes of each run its rows, how long each of its calls has waited, and what it took."""

    def __init__(self, parameters):
        super().__init__(parameters)
        self.runs = []

    def _answer(self, function, tasks):
        start, seconds = time.monotonic(), []

        def timed(inputs):
            before = time.monotonic()
            outputs = function(inputs)
            seconds.append(time.monotonic() - before)
            return outputs

        super()._answer(timed, tasks)
        whole = time.monotonic() - start
        waits = [start - task.since for task in tasks]
        self.runs.append((sum(task.rows for task in tasks), waits, seconds[0], whole))


class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, translate, threads):
        self._translate, self._threads = translate, threads

    def batch(self, **parameters):
        self.batcher = MeasuredBatcher(
            Parameters(max_enqueued_batches=64, num_batch_threads=self._threads, **parameters)
        )

    def Predict(self, request, context):  # noqa: N802 (the protocol's name)
        inputs = {"text": np.array([*request.inputs["text"].string_val], object)}
        try:
            outputs = self.batcher.run("serving_default", self._run, inputs)
        except Fault as fault:
            context.abort(fault.code, str(fault))
        response = predict_pb2.PredictResponse()
        translation = response.outputs["translation"]
        translation.dtype = types_pb2.DT_STRING
        translation.tensor_shape.dim.add(size=len(outputs["translation"]))
        translation.string_val.extend(outputs["translation"])
        return response

    def _run(self, inputs):
        return {"translation": self._translate(inputs["text"])}

    def times(self):
        """Means over calls, in seconds: of waiting, of merging and splitting, of the model."""
        runs, self.batcher.runs = self.batcher.runs, []
        if not runs:
            return {}
        calls = [(wait, whole - model, model) for _, waits, model, whole in runs for wait in waits]
        queue, batch, model = (statistics.fmean(times) for times in zip(*calls, strict=True))
        rows = statistics.fmean(run[0] for run in runs)
        return {"queue": queue, "batch": batch, "model": model, "rows": rows}


def start(folder, task, settings):
    versions, translate = systems.make(task, settings, folder)
    service = Service(translate, settings.batch_threads)
    service.batch(max_batch_size=32, batch_timeout_micros=0)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(_MOST_CALLS))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    service.server = server  # which stops when nobody holds it

    def answer(do, **parameters):
        if do == "port":
            return {"port": port}
        if do == "batching":
            service.batch(**parameters)
            return {}
        return service.times()

    return versions | {"grpc": grpc.__version__}, answer


if __name__ == "__main__":
    orders.answer_orders(start)
