"""What a SavedModel says of itself: its calls, its bounds, its ops and what a server needs."""

import pathlib

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer_runner.integrity import checksum


def describe(graphs, signatures, ops):
    """The contents of `assets.extra/serving.json`, but for the latencies.

    Args:
        graphs: The graphs of the `ServingModule`.
        signatures: Their concrete functions as loaded, by name.
        ops: Names of all ops, sorted.
    """
    return {
        "signatures": {
            name: {
                "about": graphs.about(name),
                "inputs": _specs(function.structured_input_signature[1]),
                "outputs": _specs(function.structured_outputs),
            }
            for name, function in signatures.items()
        },
        **graphs.facts(),
        "ops": list(ops),
        "requires": requirements(ops),
    }


def checksums(folder):
    """The SHA-256 of each file of a SavedModel by its path, but for those that servers ignore."""
    folder = pathlib.Path(folder)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in files]
    return {name: checksum(folder / name) for name in names if not name.startswith("assets.extra/")}


def requirements(ops):
    """What a server must link beside TensorFlow's own ops, and what it must allow.

    Args:
        ops: Names of all ops.
    """
    others = [op for op in ops if not hasattr(tf.raw_ops, op)]
    return {
        "tensorflow": f"as new as {tf.__version__}, which made it; an older one may lack ops",
        "tensorflow_text": others,  # which the official TF Serving binaries link
        "xla": any("Xla" in op for op in ops),
    }


def op_names(folder):
    """Names of all ops in the graphs of a SavedModel, sorted."""
    content = (pathlib.Path(folder) / "saved_model.pb").read_bytes()
    nodes = []
    for meta_graph in saved_model_pb2.SavedModel.FromString(content).meta_graphs:
        nodes.extend(meta_graph.graph_def.node)
        for function in meta_graph.graph_def.library.function:
            nodes.extend(function.node_def)
    return tuple(sorted({node.op for node in nodes}))


def _specs(tensors):
    """Dtype and shape of each, `?` where a size is free."""

    def sizes(shape):
        return ", ".join("?" if size is None else str(size) for size in shape)

    return {name: f"{one.dtype.name} ({sizes(one.shape)})" for name, one in tensors.items()}
