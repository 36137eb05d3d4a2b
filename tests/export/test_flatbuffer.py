"""Rewrites of LiteRT files, on a file of a few ops that is written by hand."""

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from keras_transformer.export.litert import flatbuffer

BUILTIN, TYPE = schema.BuiltinOperator, schema.TensorType
TABLE = np.random.default_rng(3).normal(size=(7, 5)).astype("float32")
IDS = [6, 0, 3]


def tensor(name, shape, kind=TYPE.FLOAT32, buffer=0, scale=None, zero_point=0):
    made = schema.TensorT()
    made.name, made.shape, made.type, made.buffer = name.encode(), list(shape), kind, buffer
    if scale is not None:
        made.quantization = schema.QuantizationParametersT()
        made.quantization.scale = np.full(shape[0], scale, "float32")
        made.quantization.zeroPoint = np.full(shape[0], zero_point, "int64")
        made.quantization.quantizedDimension = 0
    return made


def operator(code, inputs, outputs, axis=None):
    made = schema.OperatorT()
    made.opcodeIndex, made.inputs, made.outputs = code, inputs, outputs
    if axis is not None:
        made.builtinOptions = schema.GatherOptionsT()
        made.builtinOptions.axis = axis
        made.builtinOptionsType = schema.BuiltinOptions.GatherOptions
    return made


def operator_code(builtin, version=1, custom=None):
    made = schema.OperatorCodeT()
    made.builtinCode, made.deprecatedBuiltinCode = builtin, min(builtin, 127)
    made.version, made.customCode = version, custom
    return made


def buffer(data=None):
    made = schema.BufferT()
    if data is not None:
        made.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
    return made


def model_of(tensors, operators, codes, buffers, inputs, outputs):
    graph = schema.SubGraphT()
    graph.name, graph.tensors, graph.operators = b"main", tensors, operators
    graph.inputs, graph.outputs = inputs, outputs
    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = b"run", 0
    signature.inputs, signature.outputs = [], []
    for maps, indices in ((signature.inputs, inputs), (signature.outputs, outputs)):
        for index in indices:
            maps.append(schema.TensorMapT())
            maps[-1].name, maps[-1].tensorIndex = tensors[index].name, index
    model = schema.ModelT()
    model.version, model.subgraphs, model.signatureDefs = 3, [graph], [signature]
    model.operatorCodes, model.buffers = codes, buffers
    return model


def gather_model(axis=0, ids=IDS):
    shape = (len(ids), 5) if axis == 0 else (7, len(ids))
    return model_of(
        tensors=[
            tensor("ids", (len(ids),), TYPE.INT32),
            tensor("table", TABLE.shape, buffer=1),
            tensor("rows", shape),
        ],
        operators=[operator(0, [1, 0], [2], axis)],
        codes=[operator_code(BUILTIN.GATHER)],
        buffers=[buffer(), buffer(TABLE)],
        inputs=[0],
        outputs=[2],
    )


def answer(model, **inputs):
    content = model if isinstance(model, bytes) else flatbuffer.write(model)
    run = Interpreter(model_content=content).get_signature_runner("run")
    (output,) = run(**{name: np.array(value, "int32") for name, value in inputs.items()}).values()
    return output


def test_read_is_the_inverse_of_write():
    content = flatbuffer.write(gather_model())
    again = flatbuffer.read(content)
    assert flatbuffer.write(again) == content
    np.testing.assert_array_equal(again.buffers[1].data.view("float32"), TABLE.ravel())
    np.testing.assert_array_equal(answer(content, ids=IDS), TABLE[IDS])


def test_reads_weights_that_stand_after_the_flatbuffer():
    model = gather_model()
    model.buffers[1] = schema.BufferT()
    model.buffers[1].offset, model.buffers[1].size = 2**20, TABLE.nbytes  # as long as the real one
    offset = len(flatbuffer.write(model)) + -len(flatbuffer.write(model)) % 16
    model.buffers[1].offset = offset
    content = flatbuffer.write(model).ljust(offset, b"\0") + TABLE.tobytes()
    np.testing.assert_array_equal(answer(content, ids=IDS), TABLE[IDS])
    again = flatbuffer.read(content)
    assert again.buffers[1].offset == again.buffers[1].size == 0
    np.testing.assert_array_equal(answer(again, ids=IDS), TABLE[IDS])


def test_op_names():
    model = gather_model()
    model.operatorCodes += [
        operator_code(BUILTIN.ADD, version=2),
        operator_code(BUILTIN.BROADCAST_TO),  # a code beyond 127
        operator_code(BUILTIN.ADD, version=1),
        operator_code(BUILTIN.CUSTOM, custom=b"FlexSin"),
        operator_code(BUILTIN.MUL),  # not in use
    ]
    graph = model.subgraphs[0]
    graph.operators += [operator(code, [2, 2], [2]) for code in (1, 2, 3, 4)]
    names = ("ADD", "BROADCAST_TO", "CUSTOM:FlexSin", "GATHER")
    assert flatbuffer.op_names(model) == names
    assert flatbuffer.op_names(flatbuffer.read(flatbuffer.write(model))) == names


def test_lookups_of_rows():
    model = gather_model()
    assert flatbuffer.lookups_for_gathers(model) == 1
    assert flatbuffer.op_names(model) == ("EMBEDDING_LOOKUP",)
    np.testing.assert_array_equal(answer(model, ids=IDS), TABLE[IDS])
    assert flatbuffer.lookups_for_gathers(model) == 0


def test_other_gathers_stay():
    columns = gather_model(axis=1, ids=[4, 0, 3])
    assert flatbuffer.lookups_for_gathers(columns) == 0
    np.testing.assert_array_equal(answer(columns, ids=[4, 0, 3]), TABLE[:, [4, 0, 3]])
    for change in ("integers", "computed", "a block of ids"):
        model = gather_model()
        ids, table, rows = model.subgraphs[0].tensors
        if change == "integers":
            table.type = rows.type = TYPE.INT32
        elif change == "computed":
            table.buffer = 0
        else:
            ids.shape = [1, 3]
        assert flatbuffer.lookups_for_gathers(model) == 0, change
        assert flatbuffer.op_names(model) == ("GATHER",)


def scaled_model(scales, zero_points, rows=257):
    """As many int8 lookups as `scales`, whose float results are summed up."""
    weights = np.random.default_rng(5).integers(-100, 100, (rows, 4)).astype("int8")
    tensors, operators = [tensor("ids", (1,), TYPE.INT32)], []
    for index, (scale, zero_point) in enumerate(zip(scales, zero_points, strict=True)):
        tensors.append(tensor(f"w{index}", weights.shape, TYPE.INT8, 1, scale, zero_point))
        tensors.append(tensor(f"r{index}", (1, 4)))
        operators.append(operator(0, [0, len(tensors) - 2], [len(tensors) - 1]))
    tensors.append(tensor("sum", (1, 4)))
    operators.append(operator(1, list(range(2, len(tensors), 2)), [len(tensors) - 1]))
    codes = [operator_code(BUILTIN.EMBEDDING_LOOKUP), operator_code(BUILTIN.ADD_N)]
    return model_of(tensors, operators, codes, [buffer(), buffer(weights)], [0], [len(tensors) - 1])


def scales_in(content):
    return [
        (float(entry.quantization.scale[0]), int(entry.quantization.zeroPoint[0]))
        for entry in flatbuffer.read(content).subgraphs[0].tensors
        if entry.quantization is not None
    ]


def test_equal_vectors_are_stored_once():
    alike = flatbuffer.write(scaled_model([0.5, 0.5, 0.5, 0.5], [0, 0, 0, 0]))
    unlike = flatbuffer.write(scaled_model([0.5, 0.5, 0.5, 0.25], [0, 0, 3, 0]))
    # 257 scales and 257 zero points, of 4 and 8 bytes.
    assert abs(len(unlike) - len(alike) - 257 * (4 + 8)) < 64
    again = flatbuffer.read(unlike)
    assert flatbuffer.write(again) == unlike
    assert scales_in(unlike) == [(0.5, 0), (0.5, 0), (0.5, 3), (0.25, 0)]
    weights = again.buffers[1].data.view("int8").reshape(257, 4)
    found = answer(flatbuffer.write(scaled_model([0.5, 0.5, 0.5, 0.25], [0, 0, 0, 0])), ids=[200])
    np.testing.assert_allclose(found[0], weights[200] * 1.75)


def test_equal_weights_in_two_buffers_are_stored_once():
    model = gather_model()
    one = len(flatbuffer.write(model))
    model.buffers.append(buffer(TABLE))
    assert len(flatbuffer.write(model)) - one < TABLE.nbytes / 2
    assert flatbuffer.weight_bytes(model) == TABLE.nbytes
    model.buffers.append(buffer(TABLE + 1))
    assert len(flatbuffer.write(model)) - one > TABLE.nbytes
    assert flatbuffer.weight_bytes(model) == 2 * TABLE.nbytes


def test_vectors_of_offsets_are_never_shared():
    """Their bytes are relative to where they stand: equal ones may mean different things."""
    model = gather_model()
    model.signatureDefs.append(gather_model().signatureDefs[0])
    model.signatureDefs[1].signatureKey = b"two"
    again = flatbuffer.read(flatbuffer.write(model))
    for key, signature in zip((b"run", b"two"), again.signatureDefs, strict=True):
        assert signature.signatureKey == key
        assert [entry.name for entry in signature.inputs] == [b"ids"]
        assert [entry.name for entry in signature.outputs] == [b"rows"]


def test_weights_are_aligned_as_processors_like():
    content = flatbuffer.write(scaled_model([0.5], [0]))
    weights = flatbuffer.read(content).buffers[1].data.tobytes()
    assert content.index(weights) % 16 == 0


def test_weight_ops():
    model = scaled_model([0.5, 0.25], [0, 0])
    found = list(flatbuffer.weight_ops(model))
    assert [op.is_lookup for op in found] == [True, True] and flatbuffer.products(model) == []
    assert {op.weight.buffer for op in found} == flatbuffer.looked_up(model) == {1}
    assert found[0].key == found[1].key  # one matrix
    model.operatorCodes[0] = operator_code(BUILTIN.FULLY_CONNECTED)
    assert len(flatbuffer.products(model)) == 2 and flatbuffer.looked_up(model) == set()
    model.buffers[1].data = None
    assert list(flatbuffer.weight_ops(model)) == []  # computed, not a weight


def test_every_tensor_gets_a_name_of_its_own():
    model = scaled_model([0.5, 0.5], [0, 0])
    for entry in model.subgraphs[0].tensors:
        entry.name = b"same"
    flatbuffer.name_tensors(model)
    names = [entry.name for entry in model.subgraphs[0].tensors]
    assert len(set(names)) == len(names)
    assert answer(model, ids=[3]).shape == (1, 4)  # its signature still knows them


def test_write_small_keeps_unequal_zero_points():
    small = flatbuffer.write_small(scaled_model([0.5, 0.5, 0.5], [0, 3, 0]))
    assert scales_in(small) == [(0.5, 0), (0.5, 3), (0.5, 0)]


def test_write_small_keeps_the_names_of_signatures_only():
    model = scaled_model([0.5], [0])
    entry = schema.MetadataT()
    entry.name, entry.buffer = b"CONVERSION_METADATA", 0
    version = schema.MetadataT()
    version.name, version.buffer = b"min_runtime_version", 0
    model.metadata = [entry, version]
    small = flatbuffer.read(flatbuffer.write_small(model))
    names = [entry.name for entry in small.subgraphs[0].tensors]
    assert [name for name in names if name] == [b"ids", b"sum"]
    assert [entry.name for entry in small.metadata] == [b"min_runtime_version"]


# --- The best of a row ---------------------------------------------------------------------


def top_model(count=1, outputs=("best",)):
    """TOPK_V2 of (3, 7) numbers and a RESHAPE of its indices."""
    tensors = [
        tensor("scores", (3, 7)),
        tensor("count", (), TYPE.INT32, buffer=1),
        tensor("values", (3, count)),
        tensor("indices", (3, count), TYPE.INT32),
        tensor("shape", (1,), TYPE.INT32, buffer=2),
        tensor("best", (3 * count,), TYPE.INT32),
    ]
    names = [each.name.decode() for each in tensors]
    model = model_of(
        tensors,
        operators=[operator(0, [0, 1], [2, 3]), operator(1, [3, 4], [5])],
        codes=[operator_code(BUILTIN.TOPK_V2), operator_code(BUILTIN.RESHAPE)],
        buffers=[buffer(), buffer(np.int32(count)), buffer(np.array([-1], "int32"))],
        inputs=[0],
        outputs=[names.index(name) for name in outputs],
    )
    return model


SCORES = np.array([[1, 5, 2, 5, 0, 4, 5], [0] * 7, [-9, -8, -7, -3, -3, -4, -5]], "float32")


def best_of(model):
    interpreter = Interpreter(model_content=flatbuffer.write(model))
    return interpreter.get_signature_runner("run")(scores=SCORES)["best"].tolist()


def test_the_best_of_a_row_becomes_an_argmax_with_the_same_answer():
    model = top_model()
    before = best_of(model)
    assert before == [1, 0, 3]  # of equals the first
    assert flatbuffer.argmax_for_top_1(model) == 1
    assert flatbuffer.op_names(model) == ("ARG_MAX",)
    assert best_of(model) == before


def test_more_than_the_best_and_values_that_are_read_stay():
    for model in (top_model(count=2), top_model(outputs=("best", "values"))):
        assert flatbuffer.argmax_for_top_1(model) == 0
        assert flatbuffer.op_names(model) == ("RESHAPE", "TOPK_V2")


def test_weights_apart_are_read_back_as_they_were():
    large = np.arange(5000, dtype="float32")
    model = model_of([], [], [], [buffer(), buffer(large), buffer(TABLE)], [], [])
    content = flatbuffer.write_apart(model)
    assert [None if b.data is None else b.data.tobytes() for b in model.buffers] == [
        *(None, large.tobytes(), TABLE.tobytes())
    ]
    root = schema.Model.GetRootAs(content, 0)
    offset, size = root.Buffers(1).Offset(), root.Buffers(1).Size()
    assert (size, offset % 16, root.Buffers(2).Offset()) == (large.nbytes, 0, 0)
    assert content[offset : offset + size] == large.tobytes()
    back = flatbuffer.read(content)
    assert back.buffers[1].data.tobytes() == large.tobytes()
    assert bytes(back.buffers[2].data) == TABLE.tobytes()
