"""Rewrites of a LiteRT flatbuffer that the converter and the quantizer leave undone."""

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

_IDENTIFIER = b"TFL3"


def read(content):
    """The model of a flatbuffer as a tree of objects.

    The quantizer appends weights after the flatbuffer proper; they are read back into it, where
    a plain unpack would drop them.
    """
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    for buffer in model.buffers:
        if buffer.offset > 1:
            buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    return model


def write(model):
    """The inverse of `read`."""
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    return bytes(builder.Output())


def op_names(model):
    """The names of the ops in use, sorted; custom ops as `CUSTOM:name`."""
    names = {code: name for name, code in vars(schema.BuiltinOperator).items() if name[0] != "_"}
    used = {op.opcodeIndex for _, op in _operators(model)}
    codes = [model.operatorCodes[index] for index in used]  # one name may have several versions
    return tuple(
        sorted(
            {
                f"CUSTOM:{code.customCode.decode()}" if code.customCode else names[_builtin(code)]
                for code in codes
            }
        )
    )


def lookups_for_gathers(model):
    """Turns row lookups in weight matrices from GATHER into EMBEDDING_LOOKUP, in place.

    The quantizer can quantize EMBEDDING_LOOKUP by rows, just as the FULLY_CONNECTED of the tied
    output projection, so that both go on sharing one matrix; it cannot quantize GATHER.

    Returns:
        How many there were.
    """
    count = 0
    for graph, op in _operators(model):
        if _builtin(model.operatorCodes[op.opcodeIndex]) != schema.BuiltinOperator.GATHER:
            continue
        table, ids = (graph.tensors[index] for index in op.inputs[:2])
        is_weight = model.buffers[table.buffer].data is not None
        is_float = table.type == schema.TensorType.FLOAT32
        by_rows = op.builtinOptions is None or op.builtinOptions.axis == 0
        is_matrix = len(table.shape) == 2 and len(ids.shape) == 1
        if is_weight and is_float and is_matrix and by_rows:
            op.opcodeIndex = _operator_code(model, schema.BuiltinOperator.EMBEDDING_LOOKUP)
            op.inputs = [op.inputs[1], op.inputs[0]]
            op.builtinOptions, op.builtinOptionsType = None, 0
            count += 1
    return count


def write_small(model):
    """`write`, with every vector of scales stored once and without names that nobody reads.

    Each sub-graph that uses a weight repeats its scales, a float and an int64 a row: for a small
    model a tenth of the file.
    """
    _drop_unread(model)
    shared = {}
    pack = schema.QuantizationParametersT.Pack

    def pack_once(self, builder):
        if self.scale is None or len(self.scale) < 2 or self.details is not None:
            return pack(self, builder)
        zeros = np.asarray(self.zeroPoint, np.int64)
        zero_key = ("zero points", zeros.tobytes())
        key = (np.asarray(self.scale).tobytes(), zero_key, self.quantizedDimension)
        if key not in shared:
            if zero_key not in shared:
                shared[zero_key] = builder.CreateNumpyVector(zeros)
            scales = builder.CreateNumpyVector(np.asarray(self.scale, np.float32))
            schema.QuantizationParametersStart(builder)
            schema.QuantizationParametersAddScale(builder, scales)
            schema.QuantizationParametersAddZeroPoint(builder, shared[zero_key])
            schema.QuantizationParametersAddQuantizedDimension(builder, self.quantizedDimension)
            shared[key] = schema.QuantizationParametersEnd(builder)
        return shared[key]

    schema.QuantizationParametersT.Pack = pack_once
    try:
        return write(model)
    finally:
        schema.QuantizationParametersT.Pack = pack


def _drop_unread(model):
    named = {
        (signature.subgraphIndex, tensor.tensorIndex)
        for signature in model.signatureDefs
        for tensor in (*signature.inputs, *signature.outputs)
    }
    for graph_index, graph in enumerate(model.subgraphs):
        for tensor_index, tensor in enumerate(graph.tensors):
            if (graph_index, tensor_index) not in named:
                tensor.name = b""
            quantization = tensor.quantization
            if quantization is not None:
                quantization.min = quantization.max = None
                if quantization.scale is None and quantization.details is None:
                    tensor.quantization = None
    keep = (b"min_runtime_version",)
    model.metadata = [entry for entry in model.metadata or [] if entry.name in keep]


def _operators(model):
    for graph in model.subgraphs:
        for op in graph.operators:
            yield graph, op


def _builtin(code):
    # Codes beyond 127 stand in the newer field, the others in both.
    return max(code.builtinCode, code.deprecatedBuiltinCode)


def _operator_code(model, builtin):
    for index, code in enumerate(model.operatorCodes):
        if _builtin(code) == builtin:
            return index
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = builtin, min(builtin, 127), 1
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1
