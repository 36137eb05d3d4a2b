"""Keeps copies away from where XNNPACK's parts of a graph begin and end.

LiteRT gives runs of ops to XNNPACK. All such parts keep their temporary tensors in one workspace.
XNNPACK skips a copy (a reshape, for example) from an address to itself, and decides so only when
sizes change. When larger sizes move the workspace, it decides again for the copies of all parts,
and some of these still point to memory that LiteRT has freed. If the workspace now lies at that
address, a copy between the two is skipped from then on, and now and then a text is wrong.
Copies inside one part, and copies that LiteRT makes itself, are never concerned: so copies at a
border are left to LiteRT. Seen in ai-edge-litert 2.3.0, not in 2.1.0. Another version may cut the
graph elsewhere; in a file that one of these two has cleared, the other finds no such copy either.
"""

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from keras_transformer.export.litert import flatbuffer
from keras_transformer.quiet import quiet

_OPS = schema.BuiltinOperator
_MOST_ROUNDS = 10  # each moves a border by an op


def without_border_copies(model):
    """Rewrites every copy at a border, in place.

    Args:
        model: What `flatbuffer.read` gives.

    Returns:
        How many there were.

    Raises:
        RuntimeError: if one cannot be rewritten.
    """
    count = 0
    for index, graph in enumerate(model.subgraphs):
        for _ in range(_MOST_ROUNDS):
            found = border_copies(model, index)
            if not found:
                break
            for op in found:
                _LEFT_TO_LITERT[flatbuffer.builtin_of(model, op)](model, graph, op)
            count += len(found)
        else:
            raise RuntimeError(
                f"{_MOST_ROUNDS} rounds must be enough to take all copies away from the borders. "
                f"Received: {len(found)} are left in sub-graph {index}"
            )
    return count


def border_copies(model, index):
    """The ops of a sub-graph that copy between memory of LiteRT's and of XNNPACK's, a list."""
    graph = model.subgraphs[index]
    found = []
    for inputs, outputs in _parts(model, index):
        outside = inputs | outputs
        for op in _made_from(graph, inputs, outputs):
            if flatbuffer.builtin_of(model, op) not in _LEFT_TO_LITERT:
                continue
            tensors = {  # constants stay where they are for good
                int(tensor)
                for tensor in (*op.inputs, *op.outputs)
                if not _is_constant(model, graph, tensor)
            }
            if tensors & outside and tensors - outside:
                found.append(op)
    return found


def _reshape_by_option(model, graph, op):
    """The shape becomes int64: LiteRT then reads the op's options instead."""
    shape = flatbuffer.numbers(model, graph, op.inputs[1])
    op.inputs = [op.inputs[0], flatbuffer.add_constant(model, graph, shape.astype(np.int64))]
    op.builtinOptionsType = schema.BuiltinOptions.ReshapeOptions
    op.builtinOptions = schema.ReshapeOptionsT()
    op.builtinOptions.newShape = shape


def _split_by_sizes(model, graph, op):
    """SPLIT -> SPLIT_V."""
    axis, value = op.inputs
    (place,) = flatbuffer.numbers(model, graph, axis)
    shapes = [graph.tensors[output].shape for output in op.outputs]
    sizes = np.array([shape[place] for shape in shapes], np.int32)
    op.opcodeIndex = flatbuffer.operator_code(model, _OPS.SPLIT_V)
    op.inputs = [value, flatbuffer.add_constant(model, graph, sizes), axis]
    op.builtinOptionsType = schema.BuiltinOptions.SplitVOptions
    op.builtinOptions = schema.SplitVOptionsT()
    op.builtinOptions.numSplits = len(op.outputs)


def _join_as_integers(model, graph, op):
    """CONCATENATION of the same bits as int32."""
    bitcast = flatbuffer.operator_code(model, _OPS.BITCAST)

    def cast(source, target):
        made = schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = bitcast, [source], [target]
        return made

    inputs = [_as_integers(graph, tensor) for tensor in op.inputs]
    (output,) = op.outputs
    before = [cast(*pair) for pair in zip(op.inputs, inputs, strict=True)]
    op.inputs, op.outputs = inputs, [_as_integers(graph, output)]
    place = next(index for index, other in enumerate(graph.operators) if other is op)
    graph.operators[place : place + 1] = [*before, op, cast(op.outputs[0], output)]


def _as_integers(graph, index):
    """The index of a new int32 tensor of the shape of a float32 one."""
    tensor = _like(graph.tensors[index])
    if tensor.type != schema.TensorType.FLOAT32:
        raise RuntimeError(
            f"tensors that are joined must be of float32. Received: type {tensor.type}"
        )
    tensor.type = schema.TensorType.INT32
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


# The copies that XNNPACK takes, and what turns each into the same by means that it does not take.
_LEFT_TO_LITERT = {
    _OPS.RESHAPE: _reshape_by_option,
    _OPS.SPLIT: _split_by_sizes,
    _OPS.CONCATENATION: _join_as_integers,
}


def _made_from(graph, inputs, outputs):
    """The ops that make the outputs of the inputs, all of them sets of tensors."""
    makers = {int(tensor): op for op in graph.operators for tensor in op.outputs}
    found, todo = {}, set(outputs)
    while todo:
        tensor = todo.pop()
        op = makers.get(tensor)
        if tensor not in inputs and op is not None and id(op) not in found:
            found[id(op)] = op
            todo.update(int(index) for index in op.inputs if index >= 0)
    return list(found.values())


def _parts(model, index):
    """What XNNPACK takes of a sub-graph: pairs of sets of tensors, inputs and outputs."""
    from ai_edge_litert.interpreter import Interpreter

    with quiet():
        interpreter = Interpreter(model_content=_alone(model, index), num_threads=1)
        interpreter.allocate_tensors()
    # The ops of the file come first, then those that stand for several of them.
    parts = interpreter._get_ops_details()[len(model.subgraphs[index].operators) :]
    return [
        tuple({int(tensor) for tensor in part[side]} for side in ("inputs", "outputs"))
        for part in parts
    ]


def _alone(model, index):
    """The bytes of a model whose main graph this one is; the others are outlines."""
    graphs = [_outline(graph) for graph in model.subgraphs]
    graphs[index], graphs[0] = graphs[0], model.subgraphs[index]
    used = {tensor.buffer for tensor in graphs[0].tensors}
    alone = schema.ModelT()
    alone.version, alone.operatorCodes, alone.subgraphs = model.version, model.operatorCodes, graphs
    alone.buffers = [
        buffer if number in used else schema.BufferT()
        for number, buffer in enumerate(model.buffers)
    ]
    return flatbuffer.write(alone)


def _outline(graph):
    """A sub-graph that takes and gives the same as this one, and does nothing."""
    outline = schema.SubGraphT()
    sides = [*graph.inputs, *graph.outputs]
    outline.tensors = [_like(graph.tensors[index]) for index in sides]
    outline.inputs = list(range(len(graph.inputs)))
    outline.outputs = list(range(len(graph.inputs), len(sides)))
    outline.operators = []
    return outline


def _like(tensor):
    """A tensor of the same type and shape, without a name and not constant."""
    new = schema.TensorT()
    new.type, new.shape, new.shapeSignature = tensor.type, tensor.shape, tensor.shapeSignature
    new.name, new.buffer = b"", 0
    return new


def _is_constant(model, graph, tensor):
    return model.buffers[graph.tensors[tensor].buffer].data is not None
