"""The native core: errors for what it cannot take, and damaged folders."""

import json
import os
import random
import shutil
import subprocess

import pytest
from native_core import build, latin, litert, refreshed, with_tokenizer, write_metadata
from toy_damage import change_a_value, damaged

from keras_transformer.export.litert import flatbuffer
from keras_transformer_runner import Runner, __version__
from keras_transformer_runner.integrity import sealed
from keras_transformer_runner.tokenizers import VocabularyTokenizer

pytestmark = pytest.mark.slow
FACTOR = int(os.environ.get("KERAS_TRANSFORMER_ROBUSTNESS", "1"))


def errors(results):
    return [result["error"] if isinstance(result, dict) else result for result in results]


def test_the_limits_of_a_call(native_call, native_pieces):
    runner = Runner(native_pieces)
    vocab_size, long = runner.metadata["vocab_size"], "a " * 600
    calls = [
        ["version"],
        ["translate", long],
        ["translate", " " * 40_000],
        ["translate_ids", [5] * 513],
        ["translate_ids", [5, -1]],
        ["translate_ids", [vocab_size]],
        ["translate_ids", []],
        ["decode", [vocab_size]],
        ["n_best", "a", 4],
        ["n_best", "a", -1],
        ["stream", "a"],
        ["open", "elsewhere"],
        ["open", ""],
        ["open", str(native_pieces / "model.tflite")],
        ["open", str(native_pieces), 0],
        ["open", str(native_pieces), 257],
        ["open", None],
        ["null", "kt_translate"],
        ["null", "kt_n_best"],
        ["null", "kt_encode"],
        ["translate", "a b"],
    ]
    received = errors(native_call(native_pieces, calls))
    expected = [
        __version__,
        f"`max_source_length` = 512 tokens. Received: {len(runner.encode(long))}",
        "at most `max_source_length` = 512 tokens, and so at most 32768 bytes. Received: 40000",
        "a source must have at most `max_source_length` = 512 tokens. Received: 513",
        f"ids must lie in [0, {vocab_size}). Received: -1",
        f"ids must lie in [0, {vocab_size}). Received: {vocab_size}",
        [],
        f"`ids` must be in [0, vocab_size) with vocab_size={vocab_size}. Received: {vocab_size}",
        "what the file gives, 3: export with a larger `n_best`, which is `export --n-best N`. Rec",
        "`n_best` must be at least 0. Received: -1",
        "a stream must have a file of a greedy search",
        "must hold metadata.json. Received: elsewhere, which does not exist",
        "must hold metadata.json. Received: .",
        "/model.tflite, which is a file",
        "`num_threads` must be in [1, 256]. Received: 0",
        "`num_threads` must be in [1, 256]. Received: 257",
        "`folder` must not be NULL",
        *["`translator` must not be NULL"] * 3,
        *latin(runner.translate(["a b"])),
    ]
    for result, wanted in zip(received, expected, strict=True):
        assert wanted in result if isinstance(wanted, str) else result == wanted


def test_as_many_ids_as_there_is_room_for(native_call, device):
    (expected,) = native_call(device.path, [["translate_ids", [5, 6, 7, 3]]])
    assert native_call(device.path, [["count_only", [5, 6, 7, 3]]]) == [len(expected)] and expected


def test_scores_must_be_in_the_file(native_call, device):
    (received,) = native_call(device.path, [["n_best", "a", 1]])
    assert "export with `BeamSearch` or `Greedy(scores=True)`" in received["error"]


def change(folder, copy, **changes):
    """A copy with other metadata, whose checksums fit."""
    shutil.copytree(folder, copy)
    metadata = json.loads((copy / "metadata.json").read_text())
    metadata.update(changes)
    return write_metadata(copy, {key: value for key, value in metadata.items() if value != "gone"})


ROW = dict(signature="translate_7", source_length=7, target_length=9)
OTHER_ROW = dict(signature="translate_8", source_length=8, target_length=9)
LENGTHS = "`lengths` must list signatures with their `source_length` and `target_length`, shortest"
BOUND = "`lengths` must end at `max_source_length`, where `open_length` is false, or before"
REFUSED = {
    "format": (dict(format=2), "must have format 1. Received: 2"),
    "no format": (dict(format="gone"), "`format` must be an integer"),
    "signature": (dict(signature="classify"), "must have the signature that metadata.json names"),
    "eos": (dict(eos_id=4), "must agree on eos_id. Received: 4"),
    "size": (dict(target_vocab_size=1), "must agree on target_vocab_size"),
    "large": (dict(max_source_length=2**31), "must be an integer in [0, 2^31)"),
    "true": (dict(vocab_size=True), "must be an integer in [0, 2^31). Received: true"),
    "adds_eos": (dict(adds_eos=1), "`adds_eos` must be true or false"),
    "prefix": (dict(source_prefix_ids=[5]), "must agree on source_prefix_ids"),
    "prefix of text": (dict(target_prefix_ids="a"), "`target_prefix_ids` must be a list of ids"),
    "an empty prefix": (dict(source_prefix_ids=[]), "must agree on source_prefix_ids"),
    "labels": (dict(labels=[1]), "`labels` must be a list of strings"),
    "classes": (dict(labels=["a"], num_classes="1"), "`labels` must name all of `num_classes`"),
    "no list": (dict(lengths=None), LENGTHS),
    "no rows": (dict(lengths=[7]), LENGTHS),
    "order": (dict(lengths=[OTHER_ROW, ROW]), LENGTHS),
    "twice": (dict(lengths=[ROW, ROW]), LENGTHS),
    "an extra field": (dict(lengths=[{**ROW, "x": 1}]), LENGTHS),
    "another name": (dict(lengths=[{**ROW, "signature": "translate"}]), LENGTHS),
    "no target": (dict(lengths=[{**ROW, "target_length": 0}]), LENGTHS),
    "true as a length": (dict(lengths=[{**ROW, "target_length": True}]), LENGTHS),
    "absent": (dict(lengths=[ROW]), "Received: 'translate_7', and in the file"),
    "beyond": (dict(lengths=[ROW], max_source_length=6), BOUND),
    "short": (dict(lengths=[ROW], open_length=False), BOUND),
    "closed": (dict(open_length=False), BOUND),
    "no flag": (dict(open_length=None), BOUND),
    "search": (dict(search=None), "must have `search`, as exports write it"),
    "extra_length": (dict(search={}), "`extra_length` must be an integer"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_metadata_are_checked(kind, native_tool, device, tmp_path):
    changes, message = REFUSED[kind]
    copy = change(device.path, tmp_path / "copy", **changes)
    done = native_tool(copy)
    assert done.returncode == 1 and message in done.stderr.decode()
    if "search" not in changes:  # which Python reads for a stream of a language model alone
        with pytest.raises(ValueError):
            Runner(copy)


def test_a_signature_must_have_its_length(native_tool, native_pieces, tmp_path):
    copy = shutil.copytree(native_pieces, tmp_path / "copy")
    content = (copy / "model.tflite").read_bytes()
    (copy / "model.tflite").write_bytes(content.replace(b"translate_12", b"translate_13"))
    metadata = json.loads((copy / "metadata.json").read_text())
    row = dict(signature="translate_13", source_length=13, target_length=19)
    done = native_tool(write_metadata(copy, {**metadata, "lengths": [row]}))
    assert b"signature 'translate_13' must take 13 tokens. Received: 12" in done.stderr


def test_a_stream_that_cannot_begin(native_call, native_words, tmp_path):
    """It fails when its decoder's memory is made, while others compute."""
    copy = shutil.copytree(native_words, tmp_path / "copy")
    model = flatbuffer.read((copy / "model.tflite").read_bytes())
    (step,) = [each for each in model.signatureDefs if each.signatureKey == b"decode_step"]
    for each in step.outputs:
        each.name = each.name.replace(b"cache_0_values", b"cache_0_others")
    (copy / "model.tflite").write_bytes(flatbuffer.write(model))
    calls = [["stream", "a b"], ["translate", "a b"]] * 20
    (received,) = native_call(refreshed(copy), [calls])
    expected = Runner(native_words).translate(["a b"])[0].encode().decode("latin-1")
    assert received[1::2] == [expected] * 20
    for result in received[::2]:
        assert "`decode_step` must give back `cache_0_values`" in result["error"]


def test_metadata_that_lie_about_the_length_harm_nothing(native_tool, device, tmp_path):
    """LiteRT writes an output whole, whatever the size that it was told."""
    search = dict(json.loads((device.path / "metadata.json").read_text())["search"], max_length=1)
    done = native_tool(change(device.path, tmp_path / "copy", search=search), text="ab cd ef\n")
    assert "by it `target_ids` has at most 1 numbers" in done.stderr.decode()
    assert done.returncode == 1


def test_a_changed_field_and_another_file_are_noticed(native_tool, device, int8_device, tmp_path):
    copy = shutil.copytree(device.path, tmp_path / "copy")
    text = (copy / "metadata.json").read_text()
    (copy / "metadata.json").write_text(text.replace('"mode": "float32"', '"mode": "float16"'))
    assert b"one of its fields was changed" in native_tool(copy).stderr
    (copy / "metadata.json").write_text(json.dumps(json.loads(text), separators=(",", ":")))
    assert native_tool(copy).returncode == 0  # white space means nothing
    shutil.copy(int8_device.path / "model.tflite", copy)
    assert (
        b"model.tflite must be the file that metadata.json was written" in native_tool(copy).stderr
    )
    (copy / "model.tflite").unlink()
    assert b"model.tflite must be a file. Received: No such file" in native_tool(copy).stderr
    (copy / "model.tflite").mkdir()
    assert b"model.tflite must be a file. Received: something else" in native_tool(copy).stderr
    for content in (b"\xff{}", text.encode() + b"\0", b"\xef\xbb\xbf" + text.encode()):
        (copy / "metadata.json").write_bytes(content)
        assert b"metadata.json must be a record in JSON" in native_tool(copy).stderr


def test_a_pipe_is_no_file(native_tool, device, tmp_path):
    """Opened as one, it would wait for whoever writes to it."""
    copy = shutil.copytree(device.path, tmp_path / "copy")
    for name, message in (
        ("model.tflite", b"must be a file. Received: something else"),
        ("metadata.json", b"an exported folder must hold metadata.json. Received: "),
    ):
        (copy / name).unlink()
        os.mkfifo(copy / name)
        assert message in native_tool(copy, timeout=60).stderr


def test_numbers_are_sealed_as_python_writes_them(native_tool, device, tmp_path):
    numbers = [0.1, 1e-5, 1.5e-5, 1e-4, 1e15, 1e16, 1.25e22, -2.5, 5e-324, 1.0, 123456.789, 1e100]
    rng = random.Random(2)
    numbers += [rng.uniform(-1, 1) * 10 ** rng.randrange(-20, 20) for _ in range(300)]
    fields = dict(numbers=numbers, text='é"\\/\x7f\t\u2028\U0001f600', nested=[{"b": {}, "a": []}])
    done = native_tool(change(device.path, tmp_path / "copy", **fields, **{"é": None, "z": True}))
    assert done.returncode == 0, done.stderr


TABLES = {
    "an unknown kind": ({"type": "syllables"}, "one of the types bytes, characters"),
    "another format": ({"format": 2}, "must have format 1"),
    "a field too much": ({"lower": True}, "fields of its type only. Received: lower"),
    "a piece twice": ({"words": ["a", "a"]}, "`words` must be different. Received twice: a"),
    "a piece with a space": ({"words": ["a b"]}, "without white space"),
    "no pieces": ({"words": []}, "`words` must hold an entry"),
    "a number": ({"words": [1]}, "`words` must hold strings"),
    "no list": ({"words": "ab"}, "`words` must be a list of strings"),
    "a joiner of numbers": ({"joiner": 1}, "`joiner` must be a string"),
    "a prefix beyond": ({"prefix_ids": [99]}, "`prefix_ids` must be in [0, 6)"),
    "a layout": ({"type": "bytes", "words": "gone", "layout": "x"}, "must be null or"),
    "few bytes": ({"type": "bytes", "words": "gone", "vocab_size": 9}, "at least 260"),
    "no characters": ({"type": "characters", "words": "gone"}, "`characters` must be a string"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_are_checked(kind, native_tool, device, tmp_path):
    changes, message = TABLES[kind]
    copy = with_tokenizer(device.path, VocabularyTokenizer(["a", "b"]), tmp_path / "copy")
    fields = {**json.loads((copy / "tokenizer.json").read_text()), **changes}
    fields = {name: value for name, value in fields.items() if value != "gone"}
    if fields["type"] != "vocabulary":
        fields.pop("joiner")
    (copy / "tokenizer.json").write_text(json.dumps(fields))
    done = native_tool(write_metadata(copy, json.loads((copy / "metadata.json").read_text())))
    assert done.returncode == 1 and message in done.stderr.decode()


# --- Damage --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """kt-translate that stops at a wrong use of memory and at undefined behaviour."""
    folder = tmp_path_factory.mktemp("sanitized")
    return build(folder, f"-DLITERT_LIBRARY={litert()}", "-DKT_SANITIZE=ON") / "kt-translate"


def resealed(copy, rng):
    """Changes a value of the metadata or of a table; the checksums fit."""
    metadata = json.loads((copy / "metadata.json").read_text())
    fields, table = metadata, copy / "tokenizer.json"
    if table.exists() and rng.random() < 0.5:
        fields = json.loads(table.read_text())
    change_a_value(fields, rng)
    if fields is not metadata:
        table.write_text(json.dumps(fields))
        write_metadata(copy, metadata)
    else:
        metadata.pop("record_sha256", None)
        text = json.dumps(sealed(metadata))
        (copy / "metadata.json").write_text(text)


@pytest.mark.parametrize("reseals", [False, True])
@pytest.mark.parametrize(
    "folder, option",
    [
        *(("native_words", "--stream"), ("native_pieces", None)),
        *(("native_language", "--stream"), ("native_tags", None)),
    ],
)
def test_damaged_folders_are_refused(folder, option, reseals, sanitized, tmp_path, request):
    """With fitting checksums an answer may be wrong, but no memory is; nor with packed weights."""
    folder, rng, outcomes = request.getfixturevalue(folder), random.Random(9), []
    options = [option] if option else []
    command = [sanitized, folder, *options]
    well = subprocess.run(command, input=b"a b c\n", capture_output=True, check=True)
    names = sorted(json.loads((folder / "metadata.json").read_text())["sha256"])
    cache = tmp_path / "cache"
    for number in range(30 * FACTOR):
        copy = shutil.copytree(folder, tmp_path / f"{number}")
        if reseals:
            resealed(copy, rng)
        else:
            path = copy / rng.choice([*names, "metadata.json"])
            path.write_bytes(damaged(path.read_bytes(), rng))
        command = [sanitized, copy, *([option] if option else ["--weight-cache", cache])]
        for path in cache.glob("*.xnnpack*"):
            if path.stat().st_size:  # damage may have left nothing of it
                path.write_bytes(damaged(path.read_bytes(), rng))
        done = subprocess.run(command, input=b"a b c\n", capture_output=True, check=False)
        assert done.returncode in (0, 1), (number, done.stderr[-3000:])
        assert done.returncode == 0 or b"kt-translate: error: " in done.stderr
        if done.returncode == 0 and not reseals:
            assert done.stdout == well.stdout
        outcomes.append(done.returncode)
        shutil.rmtree(copy)
    assert sum(outcomes) > len(outcomes) / 4
