"""A stand-in for TF Serving's binary, where no container engine runs.

    python serving_server.py NAME FOLDER [BATCHING]

It serves the numbered versions below FOLDER as `tensorflow_model_server` does: loaded by
TensorFlow's C++ session loader with tags and main op, warmed up, the newest version swapped in
while requests run; gRPC `PredictionService` (Predict, GetModelMetadata), `ModelService`, and REST
`:predict`, status and metadata. With BATCHING, a `--batching_parameters_file`, calls share runs.
It prints its ports as JSON and ends with its standard input. It never imports the package that
made the model.
"""

import base64
import concurrent.futures
import functools
import http.server
import json
import os
import pathlib
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


class Refuse:
    """Makes sure of it."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("keras_transformer", "sentencepiece"):
            raise ImportError(f"a server has no {name}")


sys.meta_path.insert(0, Refuse())

import grpc  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401  (TF Serving's binary links these ops)
from google.protobuf import json_format  # noqa: E402
from serving_batching import Batcher, Fault, read_parameters  # noqa: E402
from tensorflow_serving.apis import (  # noqa: E402
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

# Of http_server.cc; all others that occur here are 400.
REST_CODES = {
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
}
WARMUP = "assets.extra/tf_serving_warmup_requests"


class Version:
    """One loaded SavedModel."""

    def __init__(self, folder, batcher=None):
        self.number, self.batcher = int(folder.name), batcher
        self.session = tf.compat.v1.Session(graph=tf.Graph())
        with self.session.graph.as_default():
            meta_graph = tf.compat.v1.saved_model.load(self.session, ["serve"], str(folder))
        self.signatures = dict(meta_graph.signature_def)
        self.runners = {}
        self.lock = threading.Lock()
        if (folder / WARMUP).exists():
            for record in tf.data.TFRecordDataset(str(folder / WARMUP)):
                log = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log
                inputs = {k: tf.make_ndarray(v) for k, v in log.request.inputs.items()}
                self.run(log.request.model_spec.signature_name, inputs)

    def signature(self, name):
        name = name or "serving_default"
        if name not in self.signatures:
            message = f'Serving signature key "{name}" not found.'
            raise Fault(grpc.StatusCode.FAILED_PRECONDITION, message)
        return self.signatures[name]

    def run(self, name, inputs, outputs=()):
        name = name or "serving_default"
        signature, invalid = self.signature(name), grpc.StatusCode.INVALID_ARGUMENT
        if set(inputs) != set(signature.inputs):
            names = f"{sorted(inputs)} != {sorted(signature.inputs)}"
            raise Fault(invalid, f"input size does not match signature: {names}")
        if unknown := set(outputs) - set(signature.outputs):
            raise Fault(invalid, f"output tensor alias not found in signature: {sorted(unknown)}")
        names = frozenset(outputs or signature.outputs)
        if self.batcher is None:
            return self.run_alone(name, names, inputs)
        run = functools.partial(self.run_alone, name, names)
        return self.batcher.run((self, name, names), run, inputs)

    def run_alone(self, name, outputs, inputs):
        """What the session does, which alone looks at dtypes and shapes."""
        signature, invalid = self.signatures[name], grpc.StatusCode.INVALID_ARGUMENT
        for key, values in inputs.items():
            expected = tf.as_dtype(signature.inputs[key].dtype)
            received = tf.string if values.dtype == object else tf.as_dtype(values.dtype)
            if received != expected:
                raise Fault(
                    invalid, f"{key}: Expects {expected.name} but {received.name} is provided"
                )
        with self.lock:
            if (name, outputs) not in self.runners:  # one handle each, as a session's callables
                feeds = [signature.inputs[key].name for key in sorted(signature.inputs)]
                fetches = {key: signature.outputs[key].name for key in sorted(outputs)}
                self.runners[name, outputs] = self.session.make_callable(fetches, feed_list=feeds)
        try:
            return self.runners[name, outputs](*(inputs[key] for key in sorted(inputs)))
        except (tf.errors.OpError, ValueError) as error:
            raise Fault(invalid, str(error)[:1000]) from error


class Model:
    """The newest version of a folder, looked for again and again."""

    def __init__(self, name, folder, batcher=None, every=0.2):
        self.name, self.folder, self.every = name, pathlib.Path(folder), every
        self.version, self.faults, self.batcher = None, [], batcher
        self.poll()
        threading.Thread(target=self._watch, daemon=True).start()

    def poll(self):
        numbers = [int(p.name) for p in self.folder.iterdir() if p.name.isdigit()]
        newest = max(numbers, default=0)
        if newest > (self.version.number if self.version else 0):
            # Calls that run keep the old one until they are done.
            self.version = Version(self.folder / str(newest), self.batcher)

    def _watch(self):
        while True:
            time.sleep(self.every)
            try:
                self.poll()
            except Exception as error:  # half a model, say: told by the status call
                self.faults.append(repr(error))

    def of(self, name, number=None):
        version = self.version
        if name != self.name or version is None or number not in (None, version.number):
            message = f"Servable not found for request: {name}, version {number}"
            raise Fault(grpc.StatusCode.NOT_FOUND, message)
        return version


class Service(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    def __init__(self, model):
        self.model = model

    def _version(self, spec):
        number = spec.version.value if spec.HasField("version") else None
        return self.model.of(spec.name, number)

    def Predict(self, request, context):  # noqa: N802 (the protocol's name)
        try:
            version = self._version(request.model_spec)
            inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
            name = request.model_spec.signature_name
            found = version.run(name, inputs, request.output_filter)
        except Fault as fault:
            context.abort(fault.code, str(fault))
        response = predict_pb2.PredictResponse()
        response.model_spec.name, response.model_spec.version.value = (
            self.model.name,
            version.number,
        )
        for key, value in found.items():
            response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
        return response

    def GetModelMetadata(self, request, context):  # noqa: N802
        try:
            version = self._version(request.model_spec)
        except Fault as fault:
            context.abort(fault.code, str(fault))
        return metadata(self.model, version)

    def GetModelStatus(self, request, context):  # noqa: N802
        response = get_model_status_pb2.GetModelStatusResponse()
        state = response.model_version_status.add()
        state.version = self.model.of(self.model.name).number
        state.state = get_model_status_pb2.ModelVersionStatus.AVAILABLE
        return response


def metadata(model, version):
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name, response.model_spec.version.value = model.name, version.number
    signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=version.signatures)
    response.metadata["signature_def"].Pack(signatures)
    return response


def readable(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def column(values, dtype):
    """A column of JSON as an array; `{"b64": ...}` is bytes."""

    def plain(value):
        if isinstance(value, dict):
            return base64.b64decode(value["b64"])
        if isinstance(value, list):
            return [plain(item) for item in value]
        if dtype == tf.string:
            if not isinstance(value, str):
                raise TypeError(f"JSON Value: {value!r} is not string")
            return value.encode("utf-8", "surrogatepass")
        if type(value) is not int:
            raise TypeError(f"JSON Value: {value!r} is not {dtype.name}")
        return value

    return tf.make_ndarray(tf.make_tensor_proto(plain(values), dtype=dtype))


def as_json(values):
    def text(value):
        if isinstance(value, list):
            return [text(item) for item in value]
        return value.decode() if isinstance(value, bytes) else value

    return text(values.tolist())


def handler(model, service):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, code, content):
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

        def do_GET(self):  # noqa: N802
            if self.path == "/merged":  # of this stand-in alone: runs by their number of calls
                return self.answer(200, model.batcher.merged)
            try:
                name, _, what = self.path.removeprefix("/v1/models/").partition("/")
                version = model.of(name)
            except Fault as fault:
                return self.answer(404, {"error": str(fault)})
            if what == "metadata":
                return self.answer(200, readable(metadata(model, version)))
            status = service.GetModelStatus(None, None)
            self.answer(200, readable(status))

        def do_POST(self):  # noqa: N802
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                path, _, verb = self.path.removeprefix("/v1/models/").partition(":")
                name, _, number = path.partition("/versions/")
                version = model.of(name, int(number) if number else None)
                self.answer(200, self.predicted(version, json.loads(body)))
            except Fault as fault:
                self.answer(REST_CODES.get(fault.code, 400), {"error": str(fault)})
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                self.answer(400, {"error": f"{type(error).__name__}: {error}"})

        def predicted(self, version, request):
            signature = version.signature(request.get("signature_name"))
            in_rows = "instances" in request
            columns = request["instances"] if in_rows else request["inputs"]
            (first, *others) = sorted(signature.inputs)
            if in_rows and columns and isinstance(columns[0], dict) and "b64" not in columns[0]:
                columns = {key: [row[key] for row in columns] for key in columns[0]}
            elif not isinstance(columns, dict) and not others:
                columns = {first: columns}
            unknown = set(columns) - set(signature.inputs)
            if unknown:
                raise ValueError(f"no such inputs: {sorted(unknown)}")
            inputs = {
                key: column(values, tf.as_dtype(signature.inputs[key].dtype))
                for key, values in columns.items()
            }
            found = version.run(request.get("signature_name"), inputs)
            found = {key: as_json(value) for key, value in found.items()}
            if not in_rows:
                return {"outputs": found if len(found) > 1 else next(iter(found.values()))}
            if len(found) == 1:
                return {"predictions": next(iter(found.values()))}
            names = list(found)
            rows = zip(*found.values(), strict=True)
            return {"predictions": [dict(zip(names, row, strict=True)) for row in rows]}

    return Handler


def main(name, folder, batching=None):
    batcher = Batcher(read_parameters(batching)) if batching else None
    model = Model(name, folder, batcher)
    service = Service(model)
    grpc_server = grpc.server(concurrent.futures.ThreadPoolExecutor(32))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, grpc_server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(service, grpc_server)
    grpc_port = grpc_server.add_insecure_port("127.0.0.1:0")
    grpc_server.start()
    rest = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(model, service))
    threading.Thread(target=rest.serve_forever, daemon=True).start()
    assert not any(module.startswith("keras_transformer") for module in sys.modules)
    print(json.dumps({"grpc": grpc_port, "rest": rest.server_port, "pid": os.getpid()}), flush=True)
    sys.stdin.read()  # until the test closes it
    last = {"faults": model.faults, "version": model.version.number}
    print(json.dumps(last | {"merged": batcher and dict(batcher.merged)}), flush=True)
    grpc_server.stop(0)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
