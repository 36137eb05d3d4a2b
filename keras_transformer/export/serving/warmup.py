"""Requests that TF Serving runs before a version answers: no user waits for a first call.

A `tf_serving_warmup_requests` file is a TFRecord file of `PredictionLog` protos
(tensorflow_serving/apis/prediction_log.proto). Their wire format is written here, as the
package with those protos pins TensorFlow to its own version, and an export needs three of its
messages. A test reads the file with the official protos.
"""

import itertools
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer_runner.protobuf import bytes_field

WARMUP = "assets.extra/tf_serving_warmup_requests"
BATCH_SIZES = (1, 8, 32)  # up to `max_batch_size` of export/serving/batching.config
_MOST_RECORDS = 1000  # TF Serving refuses a longer file

# Field numbers: PredictionLog.predict_log, PredictLog.request, PredictRequest.model_spec and
# .inputs, ModelSpec.signature_name, and the two of an entry of a protobuf map.
_PREDICT_LOG, _REQUEST, _MODEL_SPEC, _INPUTS, _SIGNATURE_NAME, _KEY, _VALUE = 6, 1, 1, 2, 3, 1, 2


class Request(NamedTuple):
    """A call of a signature."""

    signature: str
    rows: int
    inputs: dict  # NumPy arrays by name


def warmup_requests(signatures, columns, batch_sizes=BATCH_SIZES):
    """A request for every signature and batch size.

    Args:
        signatures: Concrete functions by name.
        columns: Arrays of as many rows by the name of the input that takes them, `text` among
            them; rows are repeated as often as a batch needs. `n_best` is 0.
        batch_sizes: Rows of the requests.

    Raises:
        ValueError: if there are more requests than TF Serving takes.
    """
    count = len(columns["text"])
    # As many as the strategy gives.
    columns, requests = {"n_best": np.zeros(count, "int32"), **columns}, []
    for name, rows in itertools.product(signatures, batch_sizes):
        chosen = [index % count for index in range(rows)]
        names = signatures[name].structured_input_signature[1]
        inputs = {column: np.asarray(columns[column])[chosen] for column in names}
        requests.append(Request(name, rows, inputs))
    if len(requests) > _MOST_RECORDS:
        raise ValueError(
            f"a warm-up must have at most {_MOST_RECORDS} requests. Received: {len(requests)}, "
            f"of {len(signatures)} signatures and batch_sizes={batch_sizes}"
        )
    return requests


def write_warmup(path, requests):
    """Writes the file that TF Serving looks for in `assets.extra`."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for request in requests:
            writer.write(prediction_log(request))


def prediction_log(request):
    """A serialized `PredictionLog` of a `Request`."""
    content = bytes_field(_MODEL_SPEC, bytes_field(_SIGNATURE_NAME, request.signature.encode()))
    for name, values in sorted(request.inputs.items()):
        tensor = tf.make_tensor_proto(values).SerializeToString()
        content += bytes_field(
            _INPUTS, bytes_field(_KEY, name.encode()) + bytes_field(_VALUE, tensor)
        )
    return bytes_field(_PREDICT_LOG, bytes_field(_REQUEST, content))


def latencies(signatures, requests):
    """What each request takes, the first time and the second.

    Args:
        signatures: Concrete functions of a SavedModel that has just been loaded, by name.
        requests: `Request`s.

    Returns:
        A list of dicts: `signature`, `rows`, `cold_seconds`, `warm_seconds`.
    """
    found = []
    for request in requests:
        inputs = {name: tf.constant(values) for name, values in request.inputs.items()}
        cold, warm = (_seconds(signatures[request.signature], inputs) for _ in range(2))
        found.append(
            {
                "signature": request.signature,
                "rows": request.rows,
                "cold_seconds": round(cold, 6),
                "warm_seconds": round(warm, 6),
            }
        )
    return found


def _seconds(run, inputs):
    start = time.perf_counter()
    for output in run(**inputs).values():
        output.numpy()
    return time.perf_counter() - start
