"""Whether a folder is one that the page can be made of: the rules of Python. Needs Node 20."""

import hashlib
import io
import json
import os
import shutil

import pytest
import sentencepiece
from page import FILES, METADATA, OPTIONAL, SCRIPTS, WEB, lengths, node_json, write_export

from keras_transformer_runner.folder import open_folder
from keras_transformer_runner.integrity import sealed
from keras_transformer_runner.tokenizers import BytesTokenizer
from keras_transformer_runner.tokenizers.base import SpecialIds
from keras_transformer_runner.tokenizers.renumbered import PieceTable, renumbered


def modules(*requests):
    return node_json(SCRIPTS / "modules.mjs", WEB, request=requests)


@pytest.fixture
def fake_export(tmp_path):
    return write_export(tmp_path / "export")


def sentence_pieces(**options):
    """A SentencePiece model's bytes."""
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["abc def"] * 5),
        model_writer=content,
        **dict(vocab_size=12, model_type="char", minloglevel=2, hard_vocab_limit=False),
        **{**dict(pad_id=0, unk_id=1, bos_id=2, eos_id=3), **options},
    )
    return content.getvalue()


PIECES = {"model.tflite": b"model", "tokenizer.model": sentence_pieces()}
NO_BOS = {"model.tflite": b"model", "tokenizer.model": sentence_pieces(bos_id=-1, eos_id=2)}
WORDS = b'{"format": 1, "type": "vocabulary", "words": ["a", "b"], "joiner": "@@"}'
HASH = hashlib.sha256(b"x").hexdigest()
BYT5 = {"model.tflite": b"model", "tokenizer.json": BytesTokenizer(layout="byt5").to_bytes()}


def renumbered_pieces():
    """A SentencePiece model with the ids of another model, whose BOS is EOS."""
    table = PieceTable.read(sentence_pieces())
    ids = {piece.text: 30 - token for token, piece in enumerate(table.pieces)}
    special_ids = SpecialIds(pad_id=30, unk_id=29, bos_id=27, eos_id=27)
    return renumbered(table, ids, special_ids, 31).with_prefix([3]).to_bytes()


RENUMBERED = {"model.tflite": b"model", "tokenizer.model": renumbered_pieces()}
GOOD = {
    "as it is": {},
    "bytes of ByT5": dict(files=BYT5, vocab_size=384, target_vocab_size=384, bos_id=0, eos_id=1),
    "renumbered": dict(
        files=RENUMBERED,
        **dict(vocab_size=31, target_vocab_size=31, pad_id=30, bos_id=27, eos_id=27),
        **dict(source_prefix_ids=[3], target_prefix_ids=[3]),
    ),
    "labels": dict(labels=["a"]),
    "an open length alone": dict(lengths=None, open_length=None),
    "open lengths too": dict(lengths=lengths(32), open_length=True),
    "pieces": dict(files=PIECES, vocab_size=11, target_vocab_size=11),
    "no bos": dict(files=NO_BOS, vocab_size=10, target_vocab_size=10, bos_id=0, eos_id=2),
    "classes": dict(labels=["a", "b"], num_classes=2),
    "a target": dict(files={**FILES, "target_tokenizer.json": WORDS}, target_vocab_size=6),
}
PREFIXED = renumbered_pieces()  # four bytes of tag and size, the id, SentencePiece's model
BAD = {
    "another prefix of pieces": {**GOOD["renumbered"], "source_prefix_ids": [4]},
    "no prefix of pieces": {**GOOD["renumbered"], "source_prefix_ids": None},
    "eos in a prefix of pieces": {
        **GOOD["renumbered"],
        "files": {**RENUMBERED, "tokenizer.model": PREFIXED[:4] + b"\x1b" + PREFIXED[5:]},
        **dict(source_prefix_ids=[27], target_prefix_ids=[27]),
    },
    "another number of classes": dict(labels=["a"], num_classes=3),
    **{f"no {name}": {name: None} for name in METADATA if name not in OPTIONAL},
    "lengths too short": dict(lengths=lengths(32)),
    "lengths too long": dict(lengths=lengths(32, 513), open_length=True),
    "lengths that fall": dict(lengths=lengths(512, 32)),
    "a length twice": dict(lengths=lengths(512, 512)),
    "a length of nothing": dict(lengths=lengths(0, 512)),
    "a length of another name": dict(lengths=[{**lengths(512)[0], "signature": "translate"}]),
    "a length that is a text": dict(lengths=[{**lengths(512)[0], "target_length": "9"}]),
    "a length without a target": dict(lengths=[{"signature": "translate_512"}]),
    "lengths that are no list": dict(lengths={}),
    "a number as flag": dict(open_length=1),
    **{name: dict(files={**FILES, name: b"x"}) for name in ("index.html", "model.js", "a b")},
    **{name: dict(sha256={**dict.fromkeys(FILES, HASH), name: HASH}) for name in ("..", "../x")},
    "another format": dict(format=2),
    "a text as format": dict(format="1"),
    "a text as size": dict(vocab_size="260"),
    "a flag as id": dict(pad_id=False),
    "a list of hashes": dict(sha256=["model.tflite"]),
    "no files": dict(sha256={}),
    "no model": dict(files={"tokenizer.json": FILES["tokenizer.json"]}),
    "no tokenizer": dict(files={"model.tflite": b"model"}),
    "a target alone": dict(files={"model.tflite": b"model", "target_tokenizer.json": WORDS}),
    "two tokenizers": dict(files={**FILES, "tokenizer.model": PIECES["tokenizer.model"]}),
    "two targets": dict(
        files={**FILES, "target_tokenizer.json": WORDS} | {"target_tokenizer.model": b""}
    ),
    "labels that are none": dict(labels=[1]),
    "another size": dict(vocab_size=259),
    "another target size": dict(target_vocab_size=259),
    "another id": dict(eos_id=4),
    "another size of pieces": dict(files=PIECES),
    "a damaged tokenizer": dict(files={**FILES, "tokenizer.json": b"{"}),
    "pieces cut short": dict(files={**PIECES, "tokenizer.model": PIECES["tokenizer.model"][:99]}),
    "another tokenizer": dict(files={**FILES, "tokenizer.json": b'{"format": 1, "type": "x"}'}),
}


def test_a_folder_is_taken_where_python_takes_it(tmp_path):
    """`folder.py` and `device_folder.js` hold the same rules."""
    cases = {**GOOD, **BAD}
    folders = [
        write_export(tmp_path / str(index), **each) for index, each in enumerate(cases.values())
    ]
    (answers,) = modules(dict(kind="folders", folders=[str(folder) for folder in folders]))
    for name, folder, answer in zip(cases, folders, answers, strict=True):
        if name in GOOD:
            open_folder(folder)
            assert answer == [
                "metadata.json",
                *json.loads((folder / "metadata.json").read_text())["sha256"],
            ], name
            continue
        with pytest.raises((ValueError, FileNotFoundError)):
            open_folder(folder)
        assert "error" in answer, name
        assert answer["code"] == "folder", name


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (BAD["index.html"], 'must list model.tflite and one tokenizer a side. Received: ["index'),
        (BAD["another format"], "must have format 1. Received: 2"),
        (BAD["a text as size"], "Missing or of another type: vocab_size"),
        (dict(signature="generate"), 'with the signature "translate". Received: "generate"'),
        (dict(pad_id=None, eos_id="3"), "Missing or of another type: pad_id, eos_id"),
        (dict(adds_eos=1), "`adds_eos` must be true or false. Received: 1"),
        (dict(labels=[1]), "`labels` must be a list of strings. Received: [1]"),
        (
            BAD["another id"],
            "pad_id, bos_id, eos_id. Received: 260, 0, 2, 4, and in the tokenizer 260",
        ),
        (
            BAD["another tokenizer"],
            "tokenizer.json: a tokenizer's file must have format 1 and one of the types bytes,"
            'characters,vocabulary. Received: format=1, type="x"',
        ),
        (
            BAD["lengths that fall"],
            "`lengths` must list signatures, shortest first, up to `max_source_length`. Received: ",
        ),
        (
            BAD["no prefix of pieces"],
            "and the tokenizers must agree on source_prefix_ids and target_prefix_ids. "
            'Received: {"target_prefix_ids":[3]}, and in the tokenizers {"source_prefix_ids":[3],',
        ),
        (BAD["eos in a prefix of pieces"], "not those of pad, BOS and EOS. Received: 27"),
        (BAD["pieces cut short"], "serialized SentencePiece model. Received: a protobuf that ends"),
        (BAD["a damaged tokenizer"], "a tokenizer's file must be a record in JSON. Received: "),
        (
            BAD["another number of classes"],
            "`labels` must name all of `num_classes`. Received: 1 labels, num_classes=3",
        ),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(fields, message, tmp_path):
    (((answer,),)) = modules(
        dict(kind="folders", folders=[str(write_export(tmp_path / "x", **fields))])
    )
    assert message in answer["error"]


def test_metadata_that_were_changed_are_refused(fake_export, tmp_path):
    """What they say of themselves is Python's checksum, of numbers and characters of all kinds."""
    path = fake_export / "metadata.json"
    odd = {"é\U0001f600": [], '\x7f"\\/': {}, "b": [1.0, 1e-05, 1e22, -3, 10**20, None, True]}
    odd |= {"\U0001f600": 1, "\uffee": 2, "\uffee\U0001f600": 3, "\ud800": 4}
    odd["a"] = "\0\b\t\n\u2028\ud800, {1: [2]}"
    record = sealed({**json.loads(path.read_text()), "odd": odd, "labels": ["日本", ""]})
    texts = [
        json.dumps(record, indent=1),
        json.dumps(record, ensure_ascii=False).replace("\ud800", "\\ud800"),
    ]
    changed = [texts[0].replace('"int8"', '"int4"'), texts[1].replace("1e-05", "1e-06")]
    folders = [tmp_path / str(index) for index in range(4)]
    for folder, text in zip(folders, texts + changed, strict=True):
        shutil.copytree(fake_export, folder)
        (folder / "metadata.json").write_text(text)
    (answers,) = modules(dict(kind="folders", folders=[*map(str, folders)]))
    assert all("metadata.json" in answer for answer in answers[:2])
    for folder, answer in zip(folders[2:], answers[2:], strict=True):
        with pytest.raises(ValueError, match="must be as it was written: one of its fields"):
            open_folder(folder)
        assert "metadata.json must be as it was written: one of its fields" in answer["error"]
    open_folder(folders[0])
    open_folder(folders[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "Received: no JSON object"),
        (b"null", "no JSON object"),
        (b"{\xff}", "Received: "),
        (b"\xef\xbb\xbf{}", "Received: "),
    ],
)
def test_metadata_must_be_an_object(content, message, fake_export):
    (fake_export / "metadata.json").write_bytes(content)
    ((answer,),) = modules(dict(kind="folders", folders=[str(fake_export)]))
    assert "must be the metadata of an export. " in answer["error"] and message in answer["error"]


@pytest.mark.parametrize("name", ["adds_eos", "labels", "lengths", "source_prefix_ids"])
def test_null_is_no_missing_field(name, fake_export):
    path = fake_export / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: None}))
    with pytest.raises(ValueError, match=name):
        open_folder(fake_export)
    ((answer,),) = modules(dict(kind="folders", folders=[str(fake_export)]))
    assert answer["code"] == "folder" and f"`{name}`" in answer["error"]


@pytest.mark.parametrize("name", ["metadata.json", "tokenizer.json"])
@pytest.mark.parametrize(
    "fields",
    ['"labels": {}', '"labels": {}, "labels": []', '"other": {{"a": {}}}', '"lengths": {}'],
)
def test_a_record_has_few_levels(name, fields, fake_export):
    """100, as in the native core. All else would be a `RangeError` of the engine."""
    content = fake_export / name
    text = content.read_text().rstrip()
    content.write_text(text[:-1] + ", " + fields.format("[" * 5000 + "]" * 5000) + "}")
    if name != "metadata.json":
        path = fake_export / "metadata.json"
        metadata = json.loads(path.read_text())
        metadata["sha256"][name] = hashlib.sha256(content.read_bytes()).hexdigest()
        path.write_text(json.dumps(metadata))
    ((answer,),) = modules(dict(kind="folders", folders=[str(fake_export)]))
    assert answer["code"] == "folder" and "Received: one nested too deeply" in answer["error"]


@pytest.mark.parametrize(("levels", "is_taken"), [(100, True), (101, False)])
def test_so_many_levels_are_taken(levels, is_taken, fake_export):
    path = fake_export / "metadata.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(sealed({**record, "x": json.loads("[" * levels + "]" * levels)})))
    ((answer,),) = modules(dict(kind="folders", folders=[str(fake_export)]))
    assert ("error" not in answer) == is_taken


# --- Where it is ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a#b", "a?b=c", "a%20b", "a b", "é", "C:", "x:y"])
def test_a_path_is_one_whatever_is_in_it(name, tmp_path):
    folder = write_export(tmp_path / name)
    folders = [str(folder), f"{folder}/", folder.as_uri(), os.path.relpath(folder)]
    (answers,) = modules(dict(kind="folders", folders=folders))
    assert answers == [["metadata.json", *FILES]] * 4
