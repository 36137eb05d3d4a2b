"""The script that builds a site of export/web: what it reads, replaces, carries. Needs Node 20."""

import hashlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest
import sentencepiece
from page import SCRIPTS, WEB, build, node, node_json

from keras_transformer_runner.folder import open_folder
from keras_transformer_runner.tokenizers import BytesTokenizer
from keras_transformer_runner.tokenizers.base import SpecialIds
from keras_transformer_runner.tokenizers.renumbered import PieceTable, renumbered


def modules(*requests):
    return node_json(SCRIPTS / "modules.mjs", WEB / "site", request=requests)


# --- What is read --------------------------------------------------------------------------

FILES = {"model.tflite": b"model", "tokenizer.json": b'{"format": 1, "type": "bytes"}'}
METADATA = dict(format=1, signature="translate", mode="int8", max_source_length=512)
METADATA |= dict(vocab_size=260, target_vocab_size=260, pad_id=0, bos_id=2, eos_id=3)
METADATA |= dict(search={"extra_length": 50}, open_length=False)


def lengths(*sources):
    """The field of the metadata for these lengths."""
    rows = [(f"translate_{source}", source, source + 50) for source in sources]
    return [
        dict(zip(("signature", "source_length", "target_length"), row, strict=True)) for row in rows
    ]


METADATA["lengths"] = lengths(32, 512)
OPTIONAL = ("mode", "search", "open_length")  # for Python, or for both


def write_export(folder, files=None, **fields):
    """A folder as `build.mjs` wants it, of a few bytes; a field that is `None` is left out."""
    folder.mkdir()
    files = FILES if files is None else files
    for name, content in files.items():
        (folder / name).write_bytes(content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    metadata = {**METADATA, "sha256": hashes, **fields}
    metadata = {name: value for name, value in metadata.items() if value is not None}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder


@pytest.fixture
def packages():
    if not (WEB / "node_modules").is_dir():
        pytest.skip("no packages in export/web: export/web/test.sh installs them")


NEEDS_PACKAGES = pytest.mark.usefixtures("packages")


@pytest.fixture
def fake_export(tmp_path):
    return write_export(tmp_path / "export")


def fails(folder, out, message, *options):
    done = build(folder, out, *options)
    assert done.returncode == 1
    assert message in done.stderr and "    at " not in done.stderr, done.stderr
    left = [path.name for path in out.parent.iterdir() if out.name in path.name]
    assert left in ([], [out.name])


def test_a_bad_export_makes_no_site(fake_export, tmp_path):
    out = tmp_path / "site"
    fails(tmp_path, out, "EXPORTED_FOLDER must hold metadata.json. Received: ENOENT")
    (fake_export / "model.tflite").write_bytes(b"modem")
    fails(fake_export, out, "model.tflite is damaged or belongs to another export")
    (fake_export / "model.tflite").unlink()
    fails(fake_export, out, "EXPORTED_FOLDER must hold model.tflite. Received: ENOENT")


def test_a_site_needs_fixed_lengths(tmp_path):
    folder = write_export(tmp_path / "export", **GOOD["an open length alone"])
    fails(folder, tmp_path / "site", "must have signatures of fixed lengths, as LiteRT.js cannot")


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
    "a target": dict(files={**FILES, "target_tokenizer.json": WORDS}, target_vocab_size=6),
}
BAD = {
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
    """`device_folder.py` and `device_folder.mjs` hold the same rules."""
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


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (BAD["index.html"], 'must list model.tflite and one tokenizer a side. Received: ["index'),
        (BAD["another format"], "must have format 1. Received: 2"),
        (BAD["a text as size"], "Missing or of another type: vocab_size"),
        (dict(signature="generate"), 'with the signature "translate". Received: "generate"'),
        (dict(mode=None, search={}), "Missing or of another type: mode, search"),
        (dict(labels=[1]), "`labels` must be a list of strings. Received: [1]"),
        (
            BAD["another id"],
            "pad_id, bos_id, eos_id. Received: 260, 0, 2, 4, and in the tokenizer 260",
        ),
        (
            BAD["another tokenizer"],
            "tokenizer.json must be a tokenizer. Received: format=1, type=x",
        ),
        (
            BAD["lengths that fall"],
            "`lengths` must list signatures, shortest first, up to `max_source_length`. Received: ",
        ),
        (BAD["pieces cut short"], "must be a tokenizer. Received: a protobuf that ends early"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(fields, message, tmp_path):
    (((answer,),)) = modules(
        dict(kind="folders", folders=[str(write_export(tmp_path / "x", **fields))])
    )
    assert message in answer["error"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"[]", "Received: no JSON object"), (b"null", "no JSON object"), (b"{\xff}", "Received: ")],
)
def test_metadata_must_be_an_object(content, message, fake_export):
    (fake_export / "metadata.json").write_bytes(content)
    ((answer,),) = modules(dict(kind="folders", folders=[str(fake_export)]))
    assert "must be the metadata of an export. " in answer["error"] and message in answer["error"]


# --- What is replaced ----------------------------------------------------------------------


def files_below(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@NEEDS_PACKAGES
def test_only_a_site_is_replaced(fake_export, tmp_path):
    out = tmp_path / "site"
    out.mkdir()
    (out / "mine").write_text("x")
    fails(fake_export, out, "OUT must not exist, or --overwrite be given")
    fails(fake_export, out, "only a site as build.mjs has made it", "--overwrite")
    assert files_below(out) == {"mine": b"x"}
    shutil.rmtree(out)
    assert build(fake_export, out, "--title", "One").returncode == 0
    made = files_below(out)
    (out / "model" / "mine").write_text("x")
    fails(fake_export, out, "and model/mine is not of the site", "--overwrite")
    (out / "model" / "mine").unlink()
    (out / "style.css").write_text("mine")
    fails(fake_export, out, "and style.css has been changed", "--overwrite")
    (out / "style.css").write_bytes(made["style.css"])
    (out / "files.json").write_text("{")
    fails(fake_export, out, "and its files.json is damaged", "--overwrite")
    (out / "files.json").write_text('{"sha256": {}}')
    fails(fake_export, out, "and its files.json is not of build.mjs", "--overwrite")
    (out / "files.json").write_bytes(made["files.json"])
    (fake_export / "model.tflite").write_bytes(b"modem")
    fails(fake_export, out, "is damaged", "--overwrite")
    assert files_below(out) == made
    (fake_export / "model.tflite").write_bytes(b"model")
    (tmp_path / "link").symlink_to(out)
    assert build(fake_export, tmp_path / "link", "--title", "Two", "--overwrite").returncode == 0
    assert json.loads((out / "site.json").read_text())["title"] == "Two"
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export", "link", "site"]


@NEEDS_PACKAGES
@pytest.mark.parametrize("place", ["", ".", "..", "../.."])
def test_what_is_read_is_never_replaced(place, tmp_path):
    (tmp_path / "a").mkdir()
    folder = write_export(tmp_path / "a" / "export")
    before = files_below(tmp_path)
    fails(folder, folder / place, "OUT must be neither a folder that is read", "--overwrite")
    fails(folder, folder / "site", "OUT must be neither a folder that is read")
    assert files_below(tmp_path) == before


@pytest.fixture
def web(tmp_path):
    """A copy of export/web, with its packages."""
    web = tmp_path / "kit" / "web"
    shutil.copytree(WEB, web, ignore=shutil.ignore_patterns("playwright-core"))
    return web


@NEEDS_PACKAGES
def test_the_page_itself_is_never_replaced(fake_export, web):
    before = files_below(web)
    for out in (web / "site", web, web.parent, web / "node_modules" / "@litertjs" / "core"):
        done = node(web / "build.mjs", fake_export, out, "--overwrite")
        assert "OUT must be neither a folder that is read, nor in one" in done.stderr
    assert files_below(web) == before


@NEEDS_PACKAGES
def test_a_killed_build_leaves_nothing_for_long(fake_export, tmp_path):
    out = tmp_path / "site"
    assert build(fake_export, out).returncode == 0
    made = files_below(out)
    for wait in (0.05, 0.08, 0.12, 0.2):
        for stop in (signal.SIGKILL, signal.SIGTERM):
            command = ["node", WEB / "build.mjs", fake_export, out, "--overwrite"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            time.sleep(wait)
            process.send_signal(stop)
            process.communicate()
            assert not out.exists() or files_below(out) == made  # moved away and not back, at worst
            if stop == signal.SIGTERM:
                assert files_below(out) == made
                assert not [*tmp_path.glob(f".site.build-*-{process.pid}")]
    assert build(fake_export, out, "--overwrite").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export", "site"]
    # Killed between the two renames: the next one, even if it fails, puts the older site back.
    old = tmp_path / f".site.build-{socket.gethostname()}-{process.pid}"
    old.mkdir()
    out.rename(old / "old")
    foreign = [tmp_path / ".site.build-notes", tmp_path / ".site.build-elsewhere-7"]
    for folder in foreign:
        folder.mkdir()
    fails_with = build(fake_export, out)
    assert "OUT must not exist, or --overwrite" in fails_with.stderr
    assert files_below(out) == made and not old.exists()
    assert all(folder.is_dir() for folder in foreign)  # of another machine, or no build's


@NEEDS_PACKAGES
def test_a_site_carries_the_licences_of_what_it_contains(fake_export, tmp_path):
    out = tmp_path / "site"
    assert build(fake_export, out).returncode == 0
    text = (out / "licenses.txt").read_text("utf-8")
    lock = json.loads((WEB / "package-lock.json").read_text())["packages"]
    for name in ("@litertjs/core", "@litertjs/wasm-utils", "@agnai/sentencepiece-js"):
        package = lock[f"node_modules/{name}"]
        assert f"{name} {package['version']}: {package['license']}, " in text
    for words in (
        ("Apache License", "END OF TERMS AND CONDITIONS"),
        ("Mozilla Public License Version 2.0", "Exhibit A - Source Code Form License Notice"),
        ("XNNPACK", "Redistributions in binary form must reproduce the above copyright notice"),
        ("Emscripten", "The above copyright notice and this permission notice shall be included"),
    ):
        assert all(word in text for word in words)
    assert '<a href="licenses.txt">' in (out / "index.html").read_text("utf-8")


@NEEDS_PACKAGES
def test_a_package_without_a_licence_is_not_shipped(fake_export, web, tmp_path):
    package = web / "node_modules" / "@litertjs" / "core" / "package.json"
    package.write_text(package.read_text().replace('"Apache-2.0"', '"MIT"'))
    done = node(web / "build.mjs", fake_export, tmp_path / "site")
    assert done.returncode == 1
    assert "the licence of @litertjs/core 2.5.3 must come with it. Received: MIT" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["a"], ["a", "b", "c"], ["a", "b", "--colour", "red"]])
def test_a_wrong_call_tells_the_use(arguments):
    done = build(*arguments)
    assert done.returncode == 1 and "node build.mjs EXPORTED_FOLDER OUT" in done.stderr


def test_missing_packages_are_told(fake_export, tmp_path):
    web = tmp_path / "web"
    shutil.copytree(WEB, web, ignore=shutil.ignore_patterns("node_modules"))
    done = node(web / "build.mjs", fake_export, tmp_path / "site")
    assert done.returncode == 1
    assert f"the package @litertjs/core is missing: run `npm ci` in {web}" in done.stderr
    assert not (tmp_path / "site").exists()


def test_the_lock_file_names_no_server():
    lock = json.loads((WEB / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages and all("integrity" in package for package in packages)
    assert not any("resolved" in package for package in packages)
    assert os.path.getsize(WEB / "package-lock.json") < 10_000
