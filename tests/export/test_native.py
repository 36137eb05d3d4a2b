"""The native core of export/native: what Python's runner answers, and errors for all else.

Needs CMake, a C++17 compiler, libsentencepiece-dev and nlohmann-json3-dev: export/native/test.sh
sees to it.
"""

import importlib.util
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import pytest
from toy_damage import change_a_value, damaged
from toy_model import talkative_toy

from keras_transformer import BeamSearch, Greedy, export_litert
from keras_transformer.export.litert.graphs import SIGNATURES
from keras_transformer_runner import Runner, __version__
from keras_transformer_runner.folder import checksums, prefix_fields
from keras_transformer_runner.integrity import sealed
from keras_transformer_runner.tokenizers import (
    BytesTokenizer,
    CharacterTokenizer,
    SentencePieceTokenizer,
    VocabularyTokenizer,
)

pytestmark = pytest.mark.slow
NATIVE = pathlib.Path(__file__).parents[2] / "export" / "native"
CALLS = pathlib.Path(__file__).parent / "native" / "calls.py"
FACTOR = int(os.environ.get("KERAS_TRANSFORMER_ROBUSTNESS", "1"))
NEEDED = "export/native/test.sh says what is needed"

SENTENCES = ["a b c d e f g h", "ab cd ef gh", "a man rides", "ein Mann reitet", "é ü 1 2 3"] * 6
ODD_TEXTS = [
    *("", "   ", "</s>", "<s> a <pad>", "  lead and trail  ", "\t tab\tb", "\u3000", "\ufffd a"),
    *("e\u0301 é", "日本語 a", "\U0001f469\u200d\U0001f467", "\u200b\u00ad\ufeff", "a\0b", "\n\na"),
]
BAD_UTF8 = [
    *(b"\xff", b"a\xc3", b"\xed\xa0\x80 b", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82 \xe2\x82"),
    *(b"\xf0\x9f\x91 a", b"\x80\x80", b"a\xe3\x80\x80\xe3"),
]


def made_up(count, seed=3):
    """Texts of known and unknown words."""
    rng = random.Random(seed)
    words = [*"abcdefghxqz123éü", "ab", "cd", "man", "rides", "ein", "Mann", "Pferd"]
    return [" ".join(rng.choices(words, k=rng.randrange(13))) for _ in range(count)]


TEXTS = [*made_up(100), *ODD_TEXTS]


# --- What is built -------------------------------------------------------------------------


def build(folder, *options):
    """Builds the library and the tool into a folder; skips where this machine cannot."""
    if not shutil.which("cmake"):
        pytest.skip(f"CMake is not installed: {NEEDED}")
    configured = run("cmake", "-S", NATIVE, "-B", folder, *options)
    if configured.returncode and "Could not find" in configured.stderr:
        pytest.skip(f"a library is not installed: {NEEDED}")
    assert configured.returncode == 0, configured.stderr
    made = run("cmake", "--build", folder, "--parallel", "2")
    assert made.returncode == 0, made.stdout[-4000:] + made.stderr[-4000:]
    assert "warning" not in made.stdout + made.stderr
    return folder


def run(*command, **options):
    command = list(map(str, command))
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def litert():
    return pathlib.Path(importlib.util.find_spec("ai_edge_litert").origin).parent / "libLiteRt.so"


@pytest.fixture(scope="module")
def built(litert, tmp_path_factory):
    java = ["-DKT_JNI=ON"] if shutil.which("javac") else []
    return build(tmp_path_factory.mktemp("native"), f"-DLITERT_LIBRARY={litert}", *java)


@pytest.fixture(scope="module")
def call(built):
    """Results of calls on an opened folder."""

    def call(folder, calls):
        library = built / "libkeras_transformer.so"
        done = run(sys.executable, CALLS, library, folder, input=json.dumps(calls))
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    return call


@pytest.fixture(scope="module")
def tool(built):
    """The finished process of kt-translate."""

    def tool(*arguments, text="a b\n", **options):
        command = [built / "kt-translate", *map(str, arguments)]
        options = {"input": text.encode(), "capture_output": True, "check": False, **options}
        return subprocess.run(command, **options)

    return tool


@pytest.fixture(scope="module")
def words_folder(tmp_path_factory):
    """int8, greedy with scores, streamed, a tokenizer and a prefix a side."""
    tokenizer = VocabularyTokenizer(
        [*"abcdef", "<en>", "<de>", "ca@@", "a@@", "man", "ein", *"ghij", "日本語"]
    )
    folder = tmp_path_factory.mktemp("words") / "device"
    options = dict(strategy=Greedy(extra_length=7, scores=True), signatures=SIGNATURES)
    options |= dict(target_tokenizer=tokenizer.with_prefix([11, 9]), mode="int8")
    model = talkative_toy(
        36, decoder_layers=1, vocab_size=tokenizer.vocab_size, **tokenizer.special_ids._asdict()
    )
    export_litert(model, tokenizer.with_prefix([10]), folder, samples=["a b", "c a"], **options)
    return folder


@pytest.fixture(scope="module")
def pieces_folder(tmp_path_factory):
    """float32, four beams, a SentencePiece model with bytes and a prefix."""
    tokenizer = SentencePieceTokenizer.train(SENTENCES, 310, byte_fallback=True).with_prefix([9])
    folder = tmp_path_factory.mktemp("pieces") / "device"
    strategy = BeamSearch(beam_size=4, n_best=3, extra_length=6)
    model = talkative_toy(
        36, decoder_layers=1, vocab_size=tokenizer.vocab_size, **tokenizer.special_ids._asdict()
    )
    export_litert(model, tokenizer, folder, samples=["a b", "c a"], strategy=strategy)
    return folder


def latin(texts):
    return [text.encode().decode("latin-1") for text in texts]


def unlatin(results):
    return [result.encode("latin-1").decode() for result in results]


# --- The same answers ----------------------------------------------------------------------


def same_answers(call, folder, texts):
    """Compares ids and texts, each a few at a time with Python's; how many texts differ."""
    runner = Runner(folder)
    sources = [runner.encode(text) for text in texts]
    targets = [runner.translate_ids(ids) for ids in sources]
    received = call(folder, [["encode", text] for text in latin(texts)])
    assert received == sources
    assert call(folder, [["translate_ids", ids] for ids in sources]) == targets
    answers = unlatin(call(folder, [["translate", text] for text in latin(texts)]))
    assert answers == runner.translate(texts)
    return len(set(answers))


def test_a_trained_float32_model(call, device, texts, other_texts, odd_texts):
    assert same_answers(call, device.path, [*texts, *other_texts, *odd_texts]) > 25


def test_int8_words_with_prefixes(call, words_folder):
    assert same_answers(call, words_folder, TEXTS) > 10


def test_beams_over_pieces_and_bytes(call, pieces_folder):
    assert same_answers(call, pieces_folder, TEXTS) > 40


@pytest.mark.parametrize("folder, most", [("words_folder", 1), ("pieces_folder", 3)])
def test_n_best(call, folder, most, request):
    folder = request.getfixturevalue(folder)
    runner = Runner(folder)
    for count in (0, 1, most):
        found = call(folder, [["n_best", text, count] for text in latin(TEXTS)])
        expected = runner.translate_with_details(TEXTS, n_best=count or None)
        for received, wanted in zip(found, expected, strict=True):
            assert unlatin(one["text"] for one in received) == [one.text for one in wanted]
            for name in ("ids", "score", "truncated"):
                values = [getattr(one, name) for one in wanted]
                assert [one[name] for one in received] == [
                    list(value) if name == "ids" else value for value in values
                ]


def test_streams(call, words_folder):
    """The same pieces; two at once, with other calls between their steps."""
    runner = Runner(words_folder)
    expected = [list(runner.stream(text)) for text in TEXTS]
    received = call(words_folder, [["stream", text] for text in latin(TEXTS)])
    assert list(map(unlatin, received)) == expected
    assert max(map(len, expected)) > 3
    both = [["stream", text] for text in latin(TEXTS)[:8]]
    (at_once,) = call(words_folder, [both])
    assert list(map(unlatin, at_once)) == expected[:8]
    (first_two,) = call(words_folder, [["stream", "c d e f", 2]])
    assert first_two == list(runner.stream("c d e f"))[:2]


def test_threads_take_turns(call, pieces_folder):
    calls = [["translate", text] for text in latin(TEXTS[:60])]
    (at_once,) = call(pieces_folder, [calls])
    assert at_once == call(pieces_folder, calls)


def test_invalid_utf8_is_read_as_python_reads_it(call, pieces_folder, words_folder):
    rng = random.Random(4)
    texts = BAD_UTF8 + [bytes(rng.choices(range(256), k=rng.randrange(1, 20))) for _ in range(150)]
    for folder in (pieces_folder, words_folder):
        runner = Runner(folder)
        received = call(folder, [["encode", text.decode("latin-1")] for text in texts])
        assert received == [runner.encode(text.decode("utf-8", "replace")) for text in texts]


def with_tokenizer(folder, tokenizer, copy):
    """A copy of a folder with another tokenizer, for both sides; only its texts mean something."""
    shutil.copytree(folder, copy)
    for path in (*copy.glob("tokenizer.*"), *copy.glob("target_tokenizer.*")):
        path.unlink()
    tokenizer.save(copy / f"tokenizer{tokenizer.file_suffix}")
    metadata = json.loads((copy / "metadata.json").read_text())
    for name in ("source_prefix_ids", "target_prefix_ids"):
        metadata.pop(name, None)
    sizes = dict(vocab_size=tokenizer.vocab_size, target_vocab_size=tokenizer.vocab_size)
    ids = tokenizer.special_ids._asdict()
    metadata |= {**sizes, **ids, **prefix_fields(tokenizer, tokenizer)}
    return write_metadata(copy, metadata)


def write_metadata(folder, metadata):
    """Metadata that fit the files of a folder."""
    sums = checksums(folder)
    names = [name for name in sums if name not in ("metadata.json", "parity.json")]
    metadata["sha256"] = {name: sums[name] for name in names}
    text = json.dumps(sealed(metadata), ensure_ascii=False)
    (folder / "metadata.json").write_text(text, encoding="utf-8")
    return folder


TOKENIZERS = {
    "bytes": lambda: BytesTokenizer(),
    "byt5": lambda: BytesTokenizer(layout="byt5").with_prefix([7]),
    "more bytes": lambda: BytesTokenizer(vocab_size=300),
    "characters": lambda: CharacterTokenizer.train([*SENTENCES, "日本語"]).with_prefix([4, 5]),
    "words": lambda: VocabularyTokenizer(["a", "ca@@", "@@", "日本語", "é"]),
    "a joiner of one's own": lambda: VocabularyTokenizer(["a", "ca_", "é"], joiner="_"),
    "no joiner": lambda: VocabularyTokenizer(["a", "ca@@", "é"], joiner=""),
    "bpe": lambda: SentencePieceTokenizer.train(SENTENCES, 60, model_type="bpe"),
    "identity": lambda: SentencePieceTokenizer.train(SENTENCES, 60, normalization="identity"),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_every_kind_of_tokenizer(kind, call, device, tmp_path):
    tokenizer = TOKENIZERS[kind]()
    folder = with_tokenizer(device.path, tokenizer, tmp_path / "copy")
    eos, rng = [tokenizer.eos_id], random.Random(6)
    texts = [*made_up(60, 5), *ODD_TEXTS, "ca@@ a x@@ ca_ a"]
    expected = [tokenizer.encode(text) + eos for text in texts]
    assert call(folder, [["encode", text] for text in latin(texts)]) == expected
    rows = [rng.choices(range(tokenizer.vocab_size), k=rng.randrange(20)) for _ in range(100)]
    rows += [list(tokenizer.prefix_ids) + row[:3] for row in rows[:10]]
    answers = unlatin(call(folder, [["decode", row] for row in rows]))
    assert answers == [tokenizer.decode(row) for row in rows]


def test_the_tool_writes_what_the_runner_writes(tool, words_folder, pieces_folder):
    lines = "".join(text.replace("\n", " ").replace("\0", "") + "\n" for text in [*TEXTS, "a\r"])
    cases = [(words_folder, "--stream"), (words_folder, "--threads", 2), (pieces_folder,)]
    for arguments in [*cases, (pieces_folder, "--n-best", 2)]:
        done = tool(*arguments, text=lines)
        assert done.returncode == 0, done.stderr
        command = [sys.executable, "-m", "keras_transformer_runner", *map(str, arguments)]
        expected = subprocess.run(command, input=lines.encode(), capture_output=True, check=True)
        assert done.stdout == expected.stdout


# --- Errors --------------------------------------------------------------------------------


def errors(results):
    return [result["error"] if isinstance(result, dict) else result for result in results]


def test_the_limits_of_a_call(call, pieces_folder):
    vocab_size = Runner(pieces_folder).metadata["vocab_size"]
    calls = [
        ["version"],
        ["translate", "a " * 600],
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
        ["open", str(pieces_folder), 0],
        ["open", str(pieces_folder), 257],
        ["open", None],
        ["null", "kt_translate"],
        ["null", "kt_n_best"],
        ["null", "kt_encode"],
        ["translate", "a b"],
    ]
    received = errors(call(pieces_folder, calls))
    expected = [
        __version__,
        "a source must have at most `max_source_length` = 512 tokens. Received: 602",
        "at most `max_source_length` = 512 tokens, and so at most 32768 bytes. Received: 40000",
        "a source must have at most `max_source_length` = 512 tokens. Received: 513",
        f"ids must lie in [0, {vocab_size}). Received: -1",
        f"ids must lie in [0, {vocab_size}). Received: {vocab_size}",
        [],
        f"`ids` must be in [0, vocab_size) with vocab_size={vocab_size}. Received: {vocab_size}",
        "`n_best` must be at most what the file gives, 3",
        "`n_best` must be at least 0. Received: -1",
        "a stream must have a file of a greedy search",
        "elsewhere/metadata.json must be a file. Received: No such file",
        "`num_threads` must be in [1, 256]. Received: 0",
        "`num_threads` must be in [1, 256]. Received: 257",
        "`folder` must not be NULL",
        *["`translator` must not be NULL"] * 3,
        *Runner(pieces_folder).translate(["a b"]),
    ]
    for result, wanted in zip(received, expected, strict=True):
        assert wanted in result if isinstance(wanted, str) else result == wanted


def test_as_many_ids_as_there_is_room_for(call, device):
    (expected,) = call(device.path, [["translate_ids", [5, 6, 7, 3]]])
    assert call(device.path, [["count_only", [5, 6, 7, 3]]]) == [len(expected)] and expected


def test_scores_must_be_in_the_file(call, device):
    (received,) = call(device.path, [["n_best", "a", 1]])
    assert "export with `BeamSearch` or `Greedy(scores=True)`" in received["error"]


def change(folder, copy, **changes):
    """A copy with other metadata, whose checksums fit."""
    shutil.copytree(folder, copy)
    metadata = json.loads((copy / "metadata.json").read_text())
    metadata.update(changes)
    return write_metadata(copy, {key: value for key, value in metadata.items() if value != "gone"})


REFUSED = {
    "format": (dict(format=2), "must have format 1. Received: 2"),
    "no format": (dict(format="gone"), "`format` must be an integer"),
    "signature": (dict(signature="classify"), "with the signature 'translate'. Received: classify"),
    "eos": (dict(eos_id=4), "must agree on eos_id. Received: 4"),
    "size": (dict(target_vocab_size=1), "must agree on target_vocab_size"),
    "large": (dict(max_source_length=2**31), "must be an integer in [0, 2^31)"),
    "true": (dict(vocab_size=True), "must be an integer in [0, 2^31). Received: true"),
    "adds_eos": (dict(adds_eos=1), "`adds_eos` must be true or false"),
    "prefix": (dict(source_prefix_ids=[5]), "must agree on source_prefix_ids"),
    "prefix of text": (dict(target_prefix_ids="a"), "`target_prefix_ids` must be a list of ids"),
    "search": (dict(search=None), "must have `search`, as exports write it"),
    "extra_length": (dict(search={}), "`extra_length` must be an integer"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_metadata_are_checked(kind, tool, device, tmp_path):
    changes, message = REFUSED[kind]
    done = tool(change(device.path, tmp_path / "copy", **changes))
    assert done.returncode == 1 and message in done.stderr.decode()


def test_metadata_that_lie_about_the_length_harm_nothing(tool, device, tmp_path):
    """LiteRT writes an output whole, whatever the size that it was told."""
    search = dict(json.loads((device.path / "metadata.json").read_text())["search"], max_length=1)
    done = tool(change(device.path, tmp_path / "copy", search=search), text="ab cd ef\n")
    assert "by it `target_ids` has at most 1 numbers" in done.stderr.decode()
    assert done.returncode == 1


def test_a_changed_field_and_another_file_are_noticed(tool, device, int8_device, tmp_path):
    copy = shutil.copytree(device.path, tmp_path / "copy")
    text = (copy / "metadata.json").read_text()
    (copy / "metadata.json").write_text(text.replace('"mode": "float32"', '"mode": "float16"'))
    assert b"one of its fields was changed" in tool(copy).stderr
    (copy / "metadata.json").write_text(json.dumps(json.loads(text), separators=(",", ":")))
    assert tool(copy).returncode == 0  # white space means nothing
    shutil.copy(int8_device.path / "model.tflite", copy)
    assert b"model.tflite must be the file that metadata.json was written" in tool(copy).stderr
    (copy / "model.tflite").unlink()
    assert b"model.tflite must be a file. Received: No such file" in tool(copy).stderr
    (copy / "model.tflite").mkdir()
    assert b"model.tflite must be a file. Received: something else" in tool(copy).stderr
    (copy / "metadata.json").write_bytes(b"\xff{}")
    assert b"metadata.json must be a record in JSON" in tool(copy).stderr


def test_numbers_are_sealed_as_python_writes_them(tool, device, tmp_path):
    numbers = [0.1, 1e-5, 1.5e-5, 1e-4, 1e15, 1e16, 1.25e22, -2.5, 5e-324, 1.0, 123456.789, 1e100]
    rng = random.Random(2)
    numbers += [rng.uniform(-1, 1) * 10 ** rng.randrange(-20, 20) for _ in range(300)]
    fields = dict(numbers=numbers, text='é"\\/\x7f\t\u2028\U0001f600', nested=[{"b": {}, "a": []}])
    done = tool(change(device.path, tmp_path / "copy", **fields, **{"é": None, "z": True}))
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
def test_tables_are_checked(kind, tool, device, tmp_path):
    changes, message = TABLES[kind]
    copy = with_tokenizer(device.path, VocabularyTokenizer(["a", "b"]), tmp_path / "copy")
    fields = {**json.loads((copy / "tokenizer.json").read_text()), **changes}
    fields = {name: value for name, value in fields.items() if value != "gone"}
    if fields["type"] != "vocabulary":
        fields.pop("joiner")
    (copy / "tokenizer.json").write_text(json.dumps(fields))
    done = tool(write_metadata(copy, json.loads((copy / "metadata.json").read_text())))
    assert done.returncode == 1 and message in done.stderr.decode()


def test_the_tool_tells_its_use(tool, device):
    for arguments in ([], ["a", "b"], ["--stream"], [device.path, "--n-best", "0"]):
        done = tool(*arguments)
        assert done.returncode == 2 and done.stderr.startswith(b"kt-translate FOLDER")
    with open("/dev/full", "w") as full:
        done = tool(device.path, stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert done.returncode == 1


# --- Damage --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sanitized(litert, tmp_path_factory):
    """kt-translate that stops at a wrong use of memory and at undefined behaviour."""
    folder = tmp_path_factory.mktemp("sanitized")
    return build(folder, f"-DLITERT_LIBRARY={litert}", "-DKT_SANITIZE=ON") / "kt-translate"


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
@pytest.mark.parametrize("folder", ["words_folder", "pieces_folder"])
def test_damaged_folders_are_refused(folder, reseals, sanitized, tmp_path, request):
    """With fitting checksums an answer may be wrong, but no memory is."""
    folder, rng, outcomes = request.getfixturevalue(folder), random.Random(9), []
    expected = Runner(folder).translate(["a b c"])
    names = sorted(json.loads((folder / "metadata.json").read_text())["sha256"])
    for number in range(50 * FACTOR):
        copy = shutil.copytree(folder, tmp_path / f"{number}")
        if reseals:
            resealed(copy, rng)
        else:
            path = copy / rng.choice([*names, "metadata.json"])
            path.write_bytes(damaged(path.read_bytes(), rng))
        command = [sanitized, copy, *(["--stream"] if folder is words_folder else [])]
        done = subprocess.run(command, input=b"a b c\n", capture_output=True, check=False)
        assert done.returncode in (0, 1), (number, done.stderr[-3000:])
        assert done.returncode == 0 or b"kt-translate: error: " in done.stderr
        if done.returncode == 0 and not reseals:
            assert done.stdout.decode() == expected[0] + "\n"
        outcomes.append(done.returncode)
        shutil.rmtree(copy)
    assert sum(outcomes) > len(outcomes) / 4


# --- Other languages -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def java(built, tmp_path_factory):
    """What Lines.java prints for a folder, a method and lines: answers, and what it checks."""
    if not shutil.which("javac"):
        pytest.skip(f"no Java compiler: {NEEDED}")
    folder = tmp_path_factory.mktemp("classes")
    sources = (NATIVE / "jvm" / "kerastransformer" / "Translator.java", CALLS.parent / "Lines.java")
    done = run("javac", "-Xlint:all", "-Werror", "-encoding", "UTF-8", "-d", folder, *sources)
    assert done.returncode == 0, done.stderr

    def java(device, method, lines):
        command = ["java", "-Xcheck:jni", f"-Djava.library.path={built}", "-cp", folder]
        command += ["-Dfile.encoding=UTF-8", "Lines", device, method]
        text = "\n".join(lines).encode()
        done = subprocess.run(command, input=text, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        assert b"WARNING in native method" not in done.stdout, done.stdout
        found = done.stdout.decode().split("\n")
        return found[: len(lines)], found[len(lines) :]

    return java


def test_java(java, words_folder, pieces_folder):
    texts = [text for text in TEXTS if "\n" not in text]
    runner = Runner(words_folder)
    answers, checks = java(words_folder, "translate", texts)
    assert answers == runner.translate(texts)
    answers, _ = java(words_folder, "stream", texts)
    assert answers == ["|".join(runner.stream(text)) for text in texts]
    answers, _ = java(pieces_folder, "n-best", texts)
    for answer, found in zip(
        answers, Runner(pieces_folder).translate_with_details(texts), strict=True
    ):
        fields = [
            (one.text, f"{len(one.ids)}{' cut' * one.truncated} {str(one.score < 0).lower()}")
            for one in found
        ]
        assert answer == "|".join(sum(fields, ()))
    failure, state = "kerastransformer.Translator$Failure: ", "java.lang.IllegalStateException: "
    expected = [
        failure + "no\U0001f600where/metadata.json must be a file. Received: No such file",
        failure + "`folder` must hold no NUL",
        failure + "a source must have at most `max_source_length` = 512 tokens. Received: 602",
        "java.lang.NullPointerException",
        "java.lang.NullPointerException: `piece` must not be null",
        "java.lang.ArithmeticException: in a stream",
        state + "a translator must not be closed within its own stream",
        *("true", "well", "well", "well"),
        state + "a translator must be open. Received: a closed one",
        "",
    ]
    assert len(checks) == len(expected)
    for received, wanted in zip(checks, expected, strict=True):
        assert received.startswith(wanted)


# --- Another processor ---------------------------------------------------------------------


def test_arm64(words_folder, pieces_folder, tmp_path):
    """The same answers on an emulated arm64 processor, where int8 has other kernels."""
    root, qemu = os.environ.get("ARM64_ROOT", ""), shutil.which("qemu-aarch64-static")
    if not os.path.isdir(root) or not qemu or not shutil.which("aarch64-linux-gnu-g++"):
        pytest.skip(f"no arm64 system, emulator or compiler: {NEEDED}")
    toolchain = NATIVE / "arm64.cmake"
    built = build(tmp_path, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", f"-DARM64_ROOT={root}")
    texts = [text for text in TEXTS[:30] if text]
    for folder, least in ((pieces_folder, len(texts)), (words_folder, 0.9 * len(texts))):
        command = [qemu, "-cpu", "cortex-a76", "-L", root, built / "kt-translate", folder]
        done = run(*command, input="".join(text + "\n" for text in texts), encoding="utf-8")
        assert done.returncode == 0, done.stderr[-2000:]
        expected = Runner(folder).translate(texts)
        pairs = zip(done.stdout.splitlines(), expected, strict=True)
        assert sum(received == wanted for received, wanted in pairs) >= least
