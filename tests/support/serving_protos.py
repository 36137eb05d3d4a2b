"""TF Serving's own configuration files: messages that no Python package has.

Fields and numbers are those of `monitoring_config.proto`, `ssl_config.proto` and
`session_bundle_config.proto` in tensorflow_serving's source.
"""

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

# By message the fields in the order of their numbers, from 1. Another message stands for itself.
_MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": "Int64Value",
        "batch_timeout_micros": "Int64Value",
        "max_enqueued_batches": "Int64Value",
        "num_batch_threads": "Int64Value",
        "thread_pool_name": "StringValue",
        "allowed_batch_sizes": "repeated int64",
        "pad_variable_length_inputs": "bool",
    },
    "SSLConfig": {
        "server_key": "string",
        "server_cert": "string",
        "custom_ca": "string",
        "client_verify": "bool",
    },
    "PrometheusConfig": {"enable": "bool", "path": "string"},
    "MonitoringConfig": {"prometheus_config": "PrometheusConfig"},
}
_PACKAGE = "tensorflow.serving"


def read_text(path, message):
    """Reads a file as the server does: by the names of `message` alone.

    Args:
        path: A file in protobuf's text format.
        message: A name of `_MESSAGES`, such as `"SSLConfig"`, or an empty message.
    """
    found = _CLASSES[message]() if isinstance(message, str) else message
    with open(path, encoding="utf-8") as lines:
        return text_format.Parse(lines.read(), found)


def _classes():
    field = descriptor_pb2.FieldDescriptorProto
    plain = {"bool": field.TYPE_BOOL, "string": field.TYPE_STRING, "int64": field.TYPE_INT64}
    wrappers = wrappers_pb2.DESCRIPTOR
    file = descriptor_pb2.FileDescriptorProto(name="own.proto", syntax="proto3", package=_PACKAGE)
    file.dependency.append(wrappers.name)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field_name, kind) in enumerate(fields.items(), start=1):
            one = message.field.add(name=field_name, number=number, label=field.LABEL_OPTIONAL)
            if kind.startswith("repeated "):
                one.label, kind = field.LABEL_REPEATED, kind.removeprefix("repeated ")
            if kind in plain:
                one.type = plain[kind]
            else:
                package = _PACKAGE if kind in _MESSAGES else wrappers.package
                one.type, one.type_name = field.TYPE_MESSAGE, f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers.serialized_pb)
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return {n: message_factory.GetMessageClass(find(f"{_PACKAGE}.{n}")) for n in _MESSAGES}


_CLASSES = _classes()
