"""Rewrites of a LiteRT flatbuffer that the converter and the quantizer leave undone."""

import collections
import hashlib
import struct
import typing

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

_IDENTIFIER = b"TFL3"
_FULLY_CONNECTED = schema.BuiltinOperator.FULLY_CONNECTED
_EMBEDDING_LOOKUP = schema.BuiltinOperator.EMBEDDING_LOOKUP
_LEAST_APART = 1024  # bytes of a buffer that `write_apart` puts behind the flatbuffer
_OFFSET_FIELD, _SIZE_FIELD = 6, 8  # of a Buffer in the schema, as places in its table


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
    """The inverse of `read`. Equal vectors are stored once.

    Each sub-graph that uses a weight repeats its scales, a float and an int64 a row: for a small
    model a tenth of the file.
    """
    builder = _SharingBuilder(1 << 20)
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    return bytes(builder.Output())


def write_apart(model):
    """As `write`, of any size: the numbers of weights lie behind the flatbuffer proper.

    A flatbuffer's own offsets end at 2 GiB. Nothing is stored twice on the way.
    """
    apart = {
        index: np.ravel(buffer.data).view(np.uint8)
        for index, buffer in enumerate(model.buffers)
        if buffer.data is not None and len(buffer.data) >= _LEAST_APART
    }
    for index in apart:
        buffer = model.buffers[index]
        buffer.data, buffer.offset, buffer.size = None, 1, 1  # a 0 would not be written
    try:
        head = bytearray(write(model))
    finally:
        for index, data in apart.items():
            buffer = model.buffers[index]
            buffer.data, buffer.offset, buffer.size = data, 0, 0
    places, end = {}, _aligned(len(head))
    for index, data in apart.items():
        places[index], end = end, _aligned(end + len(data))
    written = schema.Model.GetRootAs(head, 0)
    for index, place in places.items():
        table = written.Buffers(index)._tab
        for field, number in ((_OFFSET_FIELD, place), (_SIZE_FIELD, len(apart[index]))):
            struct.pack_into("<Q", head, table.Pos + table.Offset(field), number)
    content = bytearray(end)
    content[: len(head)] = head
    for index, place in places.items():
        content[place : place + len(apart[index])] = apart[index].data
    return content


def _aligned(offset):
    return -(-offset // _SharingBuilder.ALIGNED) * _SharingBuilder.ALIGNED


class _SharingBuilder(flatbuffers.Builder):
    """Writes a vector of numbers once, however often it occurs."""

    ALIGNED = 16  # the schema wants this of weights, but the Python packer does not know
    _start = None  # of the vector that is being written; strings have none
    _holds_offsets = False

    def __init__(self, size):
        super().__init__(size)
        self._shared = {}

    def StartVector(self, elemSize, numElems, alignment):
        if elemSize == 1 and numElems >= self.ALIGNED:
            alignment = self.ALIGNED
        self._start, self._holds_offsets = self.Offset(), False
        self._size = elemSize
        return super().StartVector(elemSize, numElems, alignment)

    def PrependUOffsetTRelative(self, off):
        self._holds_offsets = True  # relative to where they stand: equal bytes mean other things
        super().PrependUOffsetTRelative(off)

    def EndVector(self, numElems=None):
        start, self._start = self._start, None
        length = self.vectorNumElems
        offset = super().EndVector(numElems)
        if start is None or self._holds_offsets:
            return offset
        end = self.head + 4 + length * self._size
        key = hashlib.sha256(self.Bytes[self.head : end]).digest()
        known = self._shared.setdefault(key, offset)
        if known != offset:
            self.head += self.Offset() - start  # written in vain
        return known


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
        if builtin_of(model, op) != schema.BuiltinOperator.GATHER:
            continue
        table, ids = (graph.tensors[index] for index in op.inputs[:2])
        is_weight = model.buffers[table.buffer].data is not None
        is_float = table.type == schema.TensorType.FLOAT32
        by_rows = op.builtinOptions is None or op.builtinOptions.axis == 0
        is_matrix = len(table.shape) == 2 and len(ids.shape) == 1
        if is_weight and is_float and is_matrix and by_rows:
            op.opcodeIndex = operator_code(model, _EMBEDDING_LOOKUP)
            op.inputs = [op.inputs[1], op.inputs[0]]
            op.builtinOptions, op.builtinOptionsType = None, 0
            count += 1
    return count


def argmax_for_top_1(model):
    """Turns the best of a row's numbers from TOPK_V2 and RESHAPE into ARG_MAX, in place.

    TOPK_V2 looks at each number with a heap in hand; over a vocabulary that is a tenth of a step
    of greedy search. Of equal numbers both take the first.

    Returns:
        How many there were.
    """
    count = 0
    for graph in model.subgraphs:
        users = collections.Counter(index for op in graph.operators for index in op.inputs)
        users.update(graph.outputs)
        for op in list(graph.operators):
            if builtin_of(model, op) != schema.BuiltinOperator.TOPK_V2:
                continue
            row = graph.tensors[op.inputs[0]]
            wanted = numbers(model, graph, op.inputs[1])
            values, indices = op.outputs
            readers = [other for other in graph.operators if indices in other.inputs]
            is_best = wanted is not None and wanted.tolist() == [1]
            if not is_best or users[values] or len(row.shape) != 2 or len(readers) != 1:
                continue
            (reader,) = readers
            if builtin_of(model, reader) != schema.BuiltinOperator.RESHAPE:
                continue
            if len(graph.tensors[reader.outputs[0]].shape) != 1:
                continue
            op.opcodeIndex = operator_code(model, schema.BuiltinOperator.ARG_MAX)
            op.inputs, op.outputs = (
                [op.inputs[0], add_constant(model, graph, np.int32(1))],
                reader.outputs,
            )
            op.builtinOptionsType = schema.BuiltinOptions.ArgMaxOptions
            op.builtinOptions = schema.ArgMaxOptionsT()
            op.builtinOptions.outputType = schema.TensorType.INT32
            graph.operators.remove(reader)
            count += 1
    return count


def write_small(model):
    """`write` without names and notes that nobody reads."""
    _drop_unread(model)
    return write(model)


def put_first(model, signature):
    """Makes a signature and its sub-graph the first ones, in place."""
    place = next(
        index
        for index, each in enumerate(model.signatureDefs)
        if each.signatureKey == signature.encode()
    )
    chosen = model.signatureDefs.pop(place)
    model.signatureDefs.insert(0, chosen)
    swapped = {0: chosen.subgraphIndex, chosen.subgraphIndex: 0}
    graphs = model.subgraphs
    graphs[0], graphs[chosen.subgraphIndex] = graphs[chosen.subgraphIndex], graphs[0]
    options = [op.builtinOptions for _, op in _operators(model) if op.builtinOptions is not None]
    for holder in (*model.signatureDefs, *options):
        for name, index in vars(holder).items():
            if name.lower().endswith("subgraphindex"):
                setattr(holder, name, swapped.get(index, index))


def weight_bytes(model):
    """The bytes of all constants; equal ones are stored once and count once."""
    kept = {hashlib.sha256(data).digest(): len(data) for data in map(_data, model.buffers)}
    return sum(kept.values())


def builtin_of(model, op):
    """Which `BuiltinOperator` an op is."""
    return _builtin(model.operatorCodes[op.opcodeIndex])


def add_constant(model, graph, values):
    """The index of a new tensor of these int32, int64 or float32 numbers in a sub-graph."""
    values = np.asarray(values)
    buffer, tensor = schema.BufferT(), schema.TensorT()
    buffer.data = np.frombuffer(values.tobytes(), np.uint8)
    model.buffers.append(buffer)
    tensor.name, tensor.shape = b"", list(values.shape)
    tensor.type = getattr(schema.TensorType, values.dtype.name.upper())
    tensor.buffer = len(model.buffers) - 1
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def numbers(model, graph, tensor):
    """The int32 numbers of a constant tensor, flat; `None` of one that is not constant."""
    data = model.buffers[graph.tensors[tensor].buffer].data
    return None if data is None else np.frombuffer(bytes(data), np.int32)


def operator_code(model, builtin):
    """The index of an op's code, which is added where the model lacks it."""
    for index, code in enumerate(model.operatorCodes):
        if _builtin(code) == builtin:
            return index
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = builtin, min(builtin, 127), 1
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


class WeightOp(typing.NamedTuple):
    """A product with a constant matrix (FULLY_CONNECTED), or a lookup of its rows."""

    graph: object
    op: object
    is_lookup: bool
    weight: object  # the tensor, (outputs, inputs)
    data: bytes  # its numbers

    @property
    def key(self):
        """The same for equal matrices, in whatever file."""
        return hashlib.sha256(self.data).digest()

    def row_keys(self):
        """The same for equal rows; rows of zeros, which are alike everywhere, have none."""
        length = len(self.data) // self.weight.shape[0]
        starts = range(0, len(self.data), length)
        rows = (self.data[start : start + length] for start in starts)
        return {hashlib.sha256(row).digest() for row in rows if any(row)}


def weight_ops(model):
    """Every `WeightOp` of the model, graph by graph, in the order in which they run."""
    for graph, op in _operators(model):
        builtin = builtin_of(model, op)
        if builtin in (_FULLY_CONNECTED, _EMBEDDING_LOOKUP):
            weight = graph.tensors[op.inputs[1]]
            data = _data(model.buffers[weight.buffer])
            if data:
                yield WeightOp(graph, op, builtin == _EMBEDDING_LOOKUP, weight, data)


def products(model):
    """Every `WeightOp` that is a product."""
    return [found for found in weight_ops(model) if not found.is_lookup]


def looked_up(model):
    """The indices of the buffers whose rows are looked up."""
    return {found.weight.buffer for found in weight_ops(model) if found.is_lookup}


def name_tensors(model):
    """Gives every tensor a name of its own, as the quantizer tells tensors by their names.

    Signatures know their tensors by index, and keep their own names.
    """
    for graph_index, graph in enumerate(model.subgraphs):
        for tensor_index, tensor in enumerate(graph.tensors):
            tensor.name = f"{graph_index}:{tensor_index}".encode()


def _data(buffer):
    return b"" if buffer.data is None else np.asarray(buffer.data, np.uint8).tobytes()


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
