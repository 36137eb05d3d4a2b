"""The modules of the page in export/web. Needs Node 20."""

import json
import random

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from page import SCRIPTS, WEB, node_json

from keras_transformer.export.litert import flatbuffer
from keras_transformer_runner.tokenizers import (
    BytesTokenizer,
    CharacterTokenizer,
    VocabularyTokenizer,
)


def modules(*requests):
    return node_json(SCRIPTS / "modules.mjs", WEB / "site", request=requests)


# --- Tokenizers ----------------------------------------------------------------------------

PARTS = [
    "a",
    "b",
    "é",
    "e\u0301",
    "ab@@",
    "c@@",
    "@@",
    "de",
    "\ufeff",
    "⁇",
    "\U0001f600",
    "left-\ud800",
]
PARTS += [" ", "  ", "\t", "\n", "\v", "\f", "\r", "\x1c", "\x85", "\xa0", "\u3000", "\0", "</s>"]
PARTS += ["\ud800", "x\udfffy"]  # lone surrogates
KINDS = {
    "bytes": BytesTokenizer,
    "bytes of ByT5": lambda: BytesTokenizer(layout="byt5"),
    "characters": lambda: CharacterTokenizer("abcdeé @\U0001f600\ufeff"),
    "vocabulary": lambda: VocabularyTokenizer(["a", "ab@@", "c", "d\xa0", "é", "c@@", "de@@"]),
    "no joiner": lambda: VocabularyTokenizer(["a", "ab@@", "b"], joiner=""),
    "another joiner": lambda: VocabularyTokenizer(["a", "éb", "b"], joiner="b"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_table_tokenizers_are_pythons(kind, tmp_path):
    tokenizer = KINDS[kind]()
    tokenizer.save(tmp_path / "tokenizer.json")
    rng = random.Random(3)
    texts = ["".join(rng.choices(PARTS, k=rng.randint(0, 8))) for _ in range(300)]
    special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
    usable = [token for token in range(tokenizer.vocab_size) if token not in special]
    rows = [rng.choices(usable, k=rng.randint(0, 9)) for _ in range(300)]
    rows += [tokenizer.encode(text) for text in texts]
    request = dict(kind="tokenizer", file=str(tmp_path / "tokenizer.json"), texts=texts, rows=rows)
    prefix = [tokenizer.vocab_size - 1, 4]
    rows = [[*prefix[: index % 3], *row] for index, row in enumerate(rows)]
    other = tokenizer.with_prefix(prefix)
    answers = modules(request, dict(request, rows=rows, prefix=prefix))
    for each, asked, answer in zip(
        (tokenizer, other), (request["rows"], rows), answers, strict=True
    ):
        assert answer["ids"] == [each.encode(text) for text in texts]
        assert answer["texts"] == [each.decode(row) for row in asked]


@pytest.mark.parametrize("fields", [{"format": 2, "type": "bytes"}, {"format": 1, "type": "x"}])
def test_an_unknown_tokenizer_is_an_error(fields, tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(fields))
    (answer,) = modules(dict(kind="tokenizer", file=str(file), texts=[], rows=[]))
    assert answer["error"] == (
        "a tokenizer's file must have format 1 and one of the types bytes,characters,vocabulary. "
        f"Received: format={fields['format']}, type={fields['type']}"
    )


# --- Models of a fixed length --------------------------------------------------------------


def tensor(name, shape, signature=None, buffer=0):
    result = schema.TensorT()
    result.name, result.shape, result.shapeSignature = name, shape, signature
    result.type, result.buffer = schema.TensorType.INT32, buffer
    return result


def signature_of(key, graph):
    result = schema.SignatureDefT()
    result.signatureKey, result.subgraphIndex = key, graph
    sides = []
    for index, name in enumerate(("source_ids", "target_ids")):
        entry = schema.TensorMapT()
        entry.name, entry.tensorIndex = name, index
        sides.append([entry])
    result.inputs, result.outputs = sides
    return result


@pytest.fixture
def repeater(tmp_path):
    """A model whose signatures `first` and `second` give the source twice; equal vectors are
    stored once, as in an export."""
    model = schema.ModelT()
    model.version = 3
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.TILE
    model.operatorCodes = [code]
    buffers = [schema.BufferT(), schema.BufferT()]
    buffers[1].data = np.array([1, 2], np.int32).view(np.uint8)
    model.buffers = buffers
    model.subgraphs = []
    for _ in range(2):
        graph = schema.SubGraphT()
        graph.tensors = [tensor(name, [1, 1], [1, -1]) for name in ("source", "target")]
        graph.tensors += [tensor("times", [2], buffer=1)]
        op = schema.OperatorT()
        op.opcodeIndex, op.inputs, op.outputs = 0, [0, 2], [1]
        graph.operators, graph.inputs, graph.outputs = [op], [0], [1]
        model.subgraphs.append(graph)
    model.signatureDefs = [signature_of("first", 0), signature_of("second", 1)]
    path = tmp_path / "model.tflite"
    path.write_bytes(flatbuffer.write(model))
    return path


def signatures_of(path):
    """Of each signature the shapes, -1 where they are open, of input and output."""
    interpreter = Interpreter(model_path=str(path))
    result = {}
    for key in ("first", "second"):
        runner = interpreter.get_signature_runner(key)
        sides = (runner.get_input_details(), runner.get_output_details())
        result[key] = [side.popitem()[1]["shape_signature"].tolist() for side in sides]
    return result


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_a_fixed_length_changes_one_signature_and_no_more(repeater, tmp_path, cut):
    out = tmp_path / "fixed.tflite"
    repeater.write_bytes(repeater.read_bytes() + bytes(cut))
    request = dict(kind="fix", file=str(repeater), key="second", lengths=[17, 34], out=str(out))
    assert modules(request) == [{"unchanged": True}]
    assert signatures_of(repeater)["second"] == [[1, -1], [1, -1]]
    assert signatures_of(out) == {"first": [[1, -1], [1, -1]], "second": [[1, 17], [1, 34]]}
    translate = Interpreter(model_path=str(out)).get_signature_runner("second")
    source_ids = np.arange(17, dtype=np.int32)[np.newaxis]
    row = translate(source_ids=source_ids)["target_ids"]
    assert row.tolist() == [[*range(17), *range(17)]]


def test_what_is_no_model_is_an_error(repeater, tmp_path):
    (tmp_path / "zeros").write_bytes(bytes(64))
    request = dict(kind="fix", key="first", lengths=[4, 8], out=str(tmp_path / "out"))
    no_model, no_signature = modules(
        {**request, "file": str(tmp_path / "zeros")},
        {**request, "file": str(repeater), "key": "other"},
    )
    assert no_model["error"].startswith("a model file must be a LiteRT flatbuffer. Received: ")
    assert no_signature["error"] == (
        'the model must have the signature "other". Received: a file without it'
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("metadata", "targets"),
    [
        ({"search": {"extra_length": 50, "max_length": None}}, [82, 82, 178, 250]),
        ({"search": {"extra_length": 50, "max_length": 90}}, [82, 82, 90, 90]),
        ({"search": {"extra_length": 0}, "max_positions": 200}, [32, 32, 128, 200]),
        ({"search": {"extra_length": 9}, "max_positions": 200}, [41, 41, 137, 200]),
    ],
)
def test_lengths_of_a_model(metadata, targets):
    request = dict(kind="lengths", sources=[1, 32, 33, 129], longest=200, metadata=metadata)
    assert modules(request) == [{"padded": [32, 32, 128, 200], "targets": targets}]
