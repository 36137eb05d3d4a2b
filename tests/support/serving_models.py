"""What TF Serving keeps of its models: which versions are loaded, and what they are called.

After tensorflow_serving/model_servers/server_core.cc.
"""

import functools
import pathlib
import threading
import time

import grpc
import tensorflow as tf
from serving_batching import Fault
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

WARMUP = "assets.extra/tf_serving_warmup_requests"
_INVALID = grpc.StatusCode.INVALID_ARGUMENT


class Version:
    """One loaded SavedModel."""

    def __init__(self, folder, batcher=None, config=None):
        self.number, self.batcher = int(folder.name), batcher
        self.session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
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
    """One model of a configuration: the versions that its policy asks for, and its labels."""

    def __init__(self, config, batcher=None, root=None):
        self.name, self.batcher, self.root = config.name, batcher, root
        self.versions, self.labels = {}, {}  # by number; numbers by label
        self.update(config)

    def update(self, config):
        path, self.policy = pathlib.Path(config.base_path), config.model_version_policy
        self.folder = path if self.root is None else self.root / path.name

    def poll(self):
        """Loads what is asked for and there, and then lets go of what is not asked for.

        Calls that run keep theirs until they are done.
        """
        numbers = sorted(int(p.name) for p in self.folder.iterdir() if p.name.isdigit())
        wanted = self._wanted(numbers)
        for number in wanted:
            if number not in self.versions:
                version = Version(self.folder / str(number), self.batcher)
                self.versions = {**self.versions, number: version}
        if set(wanted) != set(self.versions) and wanted:
            self.versions = {number: self.versions[number] for number in wanted}

    def _wanted(self, numbers):
        if self.policy.HasField("specific"):
            return [number for number in numbers if number in self.policy.specific.versions]
        if self.policy.HasField("all"):
            return numbers
        return numbers[-max(self.policy.latest.num_versions, 1) :]

    def set_labels(self, labels, unused_may_wait):
        """Replaces the labels; each is of a version that is loaded, or new where these may wait."""
        for label, number in labels.items():
            if number not in self.versions and not (unused_may_wait and label not in self.labels):
                raise Fault(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"Request to assign label to version {number} of model {self.name}, which is "
                    "not currently available for inference",
                )
        self.labels = dict(labels)

    def version(self, number=None, label=None):
        if label is not None:
            if label not in self.labels:
                raise Fault(_INVALID, f"Unrecognized servable version label: {label}")
            number = self.labels[label]
        versions = self.versions
        number = max(versions, default=None) if number is None else number
        if number not in versions:
            message = f"Servable not found for request: {self.name}, version {number}"
            raise Fault(grpc.StatusCode.NOT_FOUND, message)
        return versions[number]


class Models:
    """All of them, looked after again and again.

    Args:
        config: A `ModelServerConfig`.
        root: Where the folders of its models lie, whose paths are those of a container.
        unused_may_wait: `--allow_version_labels_for_unavailable_models`.
    """

    def __init__(self, config, batcher=None, root=None, unused_may_wait=False, every=0.2):
        self.batcher, self.root = batcher, root
        self.unused_may_wait, self.every = unused_may_wait, every
        self.models, self.faults, self.lock = {}, [], threading.Lock()
        self.reload(config)
        threading.Thread(target=self._watch, daemon=True).start()

    def reload(self, config):
        """Takes over a whole configuration; what it does not name is let go.

        Waits for models that are new to it, and for no new version of an old one. A label that
        cannot be given leaves the old ones, while versions come and go already.
        """
        if config.WhichOneof("config") != "model_config_list":
            raise Fault(_INVALID, "ServerModelConfig type not supported")
        wanted = {each.name: each for each in config.model_config_list.config}
        with self.lock:
            models = {name: self.models.get(name) for name in wanted}
            for name, each in wanted.items():
                if models[name] is None:
                    models[name] = Model(each, self.batcher, self.root)
                    models[name].poll()
                else:
                    models[name].update(each)
            self.models = models
            for name, each in wanted.items():
                models[name].set_labels(each.version_labels, self.unused_may_wait)

    def of(self, name):
        if name not in self.models:
            raise Fault(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {name}")
        return self.models[name]

    def _watch(self):
        while True:
            time.sleep(self.every)
            with self.lock:
                for model in self.models.values():
                    try:
                        model.poll()
                    except Exception as error:  # half a model, say: told by the status call
                        self.faults.append(repr(error))


def one_model(name, folder):
    """The configuration of `--model_name` and `--model_base_path`: its newest version."""
    config = model_server_config_pb2.ModelServerConfig()
    config.model_config_list.config.add(
        name=name, base_path=str(folder), model_platform="tensorflow"
    )
    return config
