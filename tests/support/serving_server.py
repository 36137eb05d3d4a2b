"""A stand-in for TF Serving's binary, where no container engine runs.

    python serving_server.py NAME FOLDER [--batching FILE] [--models FILE] [--tls FILE]

It serves the numbered versions below FOLDER as `tensorflow_model_server` does: loaded by
TensorFlow's C++ session loader with tags and main op, warmed up, the newest version swapped in
while requests run; gRPC `PredictionService` (Predict, GetModelMetadata), `ModelService`, and REST
`:predict`, status and metadata. The files are those of the server's `--batching_parameters_file`,
with which calls share runs, `--model_config_file`, whose models lie below FOLDER, and
`--ssl_config_file`.
It prints its ports as JSON and ends with its standard input. It never imports the package that
made the model.
"""

import argparse
import base64
import concurrent.futures
import http.server
import json
import os
import pathlib
import sys
import threading

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
from serving_models import Models, one_model  # noqa: E402
from serving_protos import read_text  # noqa: E402
from tensorflow_serving.apis import (  # noqa: E402
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.config import model_server_config_pb2  # noqa: E402

# Of http_server.cc; all others that occur here are 400.
REST_CODES = {
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
}


class Service(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    def __init__(self, models):
        self.models = models

    def _version(self, spec):
        number = spec.version.value if spec.HasField("version") else None
        label = spec.version_label if spec.HasField("version_label") else None
        return self.models.of(spec.name).version(number, label)

    def Predict(self, request, context):  # noqa: N802 (the protocol's name)
        try:
            version = self._version(request.model_spec)
            inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
            name = request.model_spec.signature_name
            found = version.run(name, inputs, request.output_filter)
        except Fault as fault:
            context.abort(fault.code, str(fault))
        response = predict_pb2.PredictResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = version.number
        for key, value in found.items():
            response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
        return response

    def GetModelMetadata(self, request, context):  # noqa: N802
        try:
            version = self._version(request.model_spec)
        except Fault as fault:
            context.abort(fault.code, str(fault))
        return metadata(request.model_spec.name, version)

    def GetModelStatus(self, request, context):  # noqa: N802
        try:
            return status(self.models.of(request.model_spec.name))
        except Fault as fault:
            context.abort(fault.code, str(fault))

    def HandleReloadConfigRequest(self, request, context):  # noqa: N802
        try:
            self.models.reload(request.config)
        except Fault as fault:
            context.abort(fault.code, str(fault))
        return model_management_pb2.ReloadConfigResponse()


def status(model):
    response = get_model_status_pb2.GetModelStatusResponse()
    for number in sorted(model.versions, reverse=True):
        state = response.model_version_status.add(version=number)
        state.state = get_model_status_pb2.ModelVersionStatus.AVAILABLE
    return response


def metadata(name, version):
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name, response.model_spec.version.value = name, version.number
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


def version_of(models, path):
    """The version that the path of a call names, such as `translator/labels/stable`."""
    name, *rest = path.split("/")
    kind, value = rest if len(rest) == 2 else ("", None)
    return models.of(name).version(
        int(value) if kind == "versions" else None, value if kind == "labels" else None
    )


def handler(models):
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
                return self.answer(200, models.batcher.merged)
            try:
                name, _, what = self.path.removeprefix("/v1/models/").partition("/")
                model = models.of(name)
                version = model.version()
            except Fault as fault:
                return self.answer(404, {"error": str(fault)})
            if what == "metadata":
                return self.answer(200, readable(metadata(name, version)))
            self.answer(200, readable(status(model)))

        def do_POST(self):  # noqa: N802
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                path = self.path.removeprefix("/v1/models/").partition(":")[0]
                self.answer(200, self.predicted(version_of(models, path), json.loads(body)))
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


def credentials(path):
    """What gRPC makes of an `--ssl_config_file`."""
    found = read_text(path, "SSLConfig")
    pair = (found.server_key.encode(), found.server_cert.encode())
    roots = found.custom_ca.encode() or None
    return grpc.ssl_server_credentials([pair], roots, found.client_verify)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("folder", type=pathlib.Path)
    for name in ("batching", "models", "tls"):
        parser.add_argument(f"--{name}")
    arguments = parser.parse_args()
    batcher = Batcher(read_parameters(arguments.batching)) if arguments.batching else None
    if arguments.models:
        config = read_text(arguments.models, model_server_config_pb2.ModelServerConfig())
        models = Models(config, batcher, root=arguments.folder, unused_may_wait=True)
    else:
        models = Models(one_model(arguments.name, arguments.folder), batcher)
    service = Service(models)
    grpc_server = grpc.server(concurrent.futures.ThreadPoolExecutor(32))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, grpc_server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(service, grpc_server)
    if arguments.tls:
        grpc_port = grpc_server.add_secure_port("127.0.0.1:0", credentials(arguments.tls))
    else:
        grpc_port = grpc_server.add_insecure_port("127.0.0.1:0")
    grpc_server.start()
    rest = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(models))
    threading.Thread(target=rest.serve_forever, daemon=True).start()
    assert not any(module.startswith("keras_transformer") for module in sys.modules)
    print(json.dumps({"grpc": grpc_port, "rest": rest.server_port, "pid": os.getpid()}), flush=True)
    sys.stdin.read()  # until the test closes it
    last = {"faults": models.faults, "version": models.of(arguments.name).version().number}
    print(json.dumps(last | {"merged": batcher and dict(batcher.merged)}), flush=True)
    grpc_server.stop(0)
    os._exit(0)


if __name__ == "__main__":
    main()
