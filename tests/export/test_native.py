"""The native core of export/native: what Python's runner answers, in C, Java and on arm64."""

import itertools
import os
import random
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from native_core import (
    BAD_UTF8,
    CALLS,
    NATIVE,
    NEEDED,
    ODD_TEXTS,
    SENTENCES,
    TEXTS,
    build,
    call,
    latin,
    litert,
    made_up,
    model_sum,
    run,
    unlatin,
    with_tokenizer,
)
from odd_paragraphs import PARAGRAPHS, odd_texts

from keras_transformer_runner import Runner
from keras_transformer_runner.sentences import split_text
from keras_transformer_runner.tokenizers import (
    BytesTokenizer,
    CharacterTokenizer,
    SentencePieceTokenizer,
    VocabularyTokenizer,
)

pytestmark = pytest.mark.slow


# --- The same answers ----------------------------------------------------------------------


def same_answers(native_call, folder, texts):
    """Compares ids and texts, each a few at a time with Python's; how many texts differ."""
    runner = Runner(folder)
    sources = [runner.encode(text) for text in texts]
    targets = [runner.translate_ids(ids) for ids in sources]
    received = native_call(folder, [["encode", text] for text in latin(texts)])
    assert received == sources
    assert native_call(folder, [["translate_ids", ids] for ids in sources]) == targets
    answers = unlatin(native_call(folder, [["translate", text] for text in latin(texts)]))
    assert answers == runner.translate(texts)
    return len(set(answers))


def test_a_trained_float32_model(native_call, device, texts, other_texts, odd_texts):
    assert same_answers(native_call, device.path, [*texts, *other_texts, *odd_texts]) > 25


def test_int8_words_with_prefixes(native_call, native_words):
    assert same_answers(native_call, native_words, TEXTS) > 10


def test_beams_over_pieces_and_bytes(native_call, native_pieces):
    runner = Runner(native_pieces)
    are_short = [len(runner.encode(text)) <= 12 for text in TEXTS]
    assert runner.lengths == (12,) and any(are_short) and not all(are_short)
    assert same_answers(native_call, native_pieces, TEXTS) > 40


@pytest.mark.parametrize("folder, most", [("native_words", 1), ("native_pieces", 3)])
def test_n_best(native_call, folder, most, request):
    folder = request.getfixturevalue(folder)
    runner = Runner(folder)
    for count in (0, 1, most):
        found = native_call(folder, [["n_best", text, count] for text in latin(TEXTS)])
        expected = runner.translate_with_details(TEXTS, n_best=count or None)
        for received, wanted in zip(found, expected, strict=True):
            assert unlatin(one["text"] for one in received) == [one.text for one in wanted]
            for name in ("ids", "score", "truncated"):
                values = [getattr(one, name) for one in wanted]
                assert [one[name] for one in received] == [
                    list(value) if name == "ids" else value for value in values
                ]


def test_streams(native_call, native_words):
    """The same pieces; two at once, with other calls between their steps."""
    runner = Runner(native_words)
    expected = [list(runner.stream(text)) for text in TEXTS]
    received = native_call(native_words, [["stream", text] for text in latin(TEXTS)])
    assert list(map(unlatin, received)) == expected
    assert max(map(len, expected)) > 3
    both = [["stream", text] for text in latin(TEXTS)[:8]]
    (at_once,) = native_call(native_words, [both])
    assert list(map(unlatin, at_once)) == expected[:8]
    (first_two,) = native_call(native_words, [["stream", "c d e f", 2]])
    assert first_two == list(runner.stream("c d e f"))[:2]


def test_threads_take_turns(native_call, native_pieces):
    calls = [["translate", text] for text in latin(TEXTS[:60])]
    (at_once,) = native_call(native_pieces, [calls])
    assert at_once == native_call(native_pieces, calls)


def test_invalid_utf8_is_read_as_python_reads_it(native_call, native_pieces, native_words):
    rng = random.Random(4)
    texts = BAD_UTF8 + [bytes(rng.choices(range(256), k=rng.randrange(1, 20))) for _ in range(150)]
    for folder in (native_pieces, native_words):
        runner = Runner(folder)
        received = native_call(folder, [["encode", text.decode("latin-1")] for text in texts])
        assert received == [runner.encode(text.decode("utf-8", "replace")) for text in texts]


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
def test_every_kind_of_tokenizer(kind, native_call, device, tmp_path):
    tokenizer = TOKENIZERS[kind]()
    folder = with_tokenizer(device.path, tokenizer, tmp_path / "copy")
    eos, rng = [tokenizer.eos_id], random.Random(6)
    texts = [*made_up(60, 5), *ODD_TEXTS, "ca@@ a x@@ ca_ a"]
    expected = [tokenizer.encode(text) + eos for text in texts]
    assert native_call(folder, [["encode", text] for text in latin(texts)]) == expected
    rows = [rng.choices(range(tokenizer.vocab_size), k=rng.randrange(20)) for _ in range(100)]
    rows += [list(tokenizer.prefix_ids) + row[:3] for row in rows[:10]]
    answers = unlatin(native_call(folder, [["decode", row] for row in rows]))
    assert answers == [tokenizer.decode(row) for row in rows]


def test_the_tool_writes_what_the_runner_writes(native_tool, native_words, native_pieces):
    lines = "".join(text.replace("\n", " ").replace("\0", "") + "\n" for text in [*TEXTS, "a\r"])
    cases = [(native_words, "--stream"), (native_words, "--threads", 2), (native_pieces,)]
    for arguments in [*cases, (native_pieces, "--n-best", 2)]:
        done = native_tool(*arguments, text=lines)
        assert done.returncode == 0, done.stderr
        command = [sys.executable, "-m", "keras_transformer_runner", *map(str, arguments)]
        expected = subprocess.run(command, input=lines.encode(), capture_output=True, check=True)
        assert done.stdout == expected.stdout


def test_the_program_of_the_page(native_build, native_words, tmp_path):
    """As a developer copies it: the C of the README, compiled and started by its two commands."""
    page = (NATIVE / "README.md").read_text("utf-8")
    (tmp_path / "app.c").write_text(re.search(r"^```c\n(.*?)^```$", page, re.M | re.S)[1], "utf-8")
    commands = re.search(r"^gcc app\.c .*?(?=^```$)", page, re.M | re.S)[0]
    for name, folder in (("include", NATIVE / "include"), ("build", native_build)):
        (tmp_path / name).symlink_to(folder)
    (tmp_path / "exported").symlink_to(native_words)
    done = run("sh", "-ec", commands, cwd=tmp_path)
    assert done.stdout == Runner(native_words).translate(["A man is sleeping."])[0] + "\n"


# --- Whole texts ---------------------------------------------------------------------------


def pieces_of(text, language, fits):
    split = split_text(text, language, fits)
    pairs = itertools.zip_longest(split.gaps, split.sentences)
    return [piece for pair in pairs for piece in pair if piece is not None]


def test_whole_texts_have_the_pieces_of_python(native_call, native_words):
    """Also by another version of ICU than icu4py brings."""
    runner, rng = Runner(native_words), random.Random(8)
    languages = ["", "de", "en", "fr", "es", "cs", "ru", "el", "pl", "zh", "xx", "hu_HU"]
    cases = [*PARAGRAPHS, *((text, rng.choice(languages)) for text in odd_texts(rng, 2000))]
    longest = runner.metadata["max_source_length"]
    cases += [("ab cd, " * longest + "! " + "語" * 40 * longest, "en")]

    def fits(sentence):
        return len(sentence.encode()) <= 64 * longest and len(runner.encode(sentence)) <= longest

    received = native_call(
        native_words, [["split_text", latin([text])[0], language] for text, language in cases]
    )
    expected = [pieces_of(*case, fits) for case in cases]
    assert list(map(unlatin, received)) == expected
    assert max(map(len, expected)) > 20
    (first,) = native_call(native_words, [["split_text", "a b. C", None, 2]])
    assert first == ["", "a b."]


def test_translations_of_whole_texts(native_call, native_words, native_tool):
    runner = Runner(native_words)
    texts = [text for text, _ in PARAGRAPHS]
    found = native_call(native_words, [["translate_text", text, "de"] for text in latin(texts)])
    assert unlatin(found) == [runner.translate_text(text, language="de") for text in texts]
    text = "\ufeffa b. Dr. C d\r\n\n\te f!\n"
    done = native_tool(native_words, "--text", "--language", "en", text=text)
    assert done.stdout.decode() == runner.translate_text(text[1:], language="en")
    assert native_tool(native_words, "--text", "--stream").returncode == 2
    assert native_tool(native_words, "--language", "en").returncode == 2


@pytest.mark.parametrize(
    "language", ["d", "english", "de-", "-de", "d-e", "de--x", "d1", "de-123456789", "de é", "\0"]
)
def test_what_is_no_language(native_call, native_words, native_tool, language):
    rule = "`language` must be a BCP 47 tag such as 'de' or 'pt-BR', or ''. Received: "
    for name in ("split_text", "translate_text"):
        (found,) = native_call(native_words, [[name, "a", latin([language])[0]]])
        if language == "\0":  # a C string ends there
            assert "error" not in found
        else:
            assert found == {"error": rule + language}
            with pytest.raises(ValueError, match=re.escape(rule)):
                split_text("a", language)


@pytest.mark.release  # builds all once more
def test_without_icu_whole_texts_are_an_error(native_words, tmp_path):
    built = build(tmp_path, f"-DLITERT_LIBRARY={litert()}", "-DKT_ICU=OFF", "-DKT_TOOL=OFF")
    calls = [["translate", "a b"], ["translate_text", "a b", ""], ["split_text", "a b", ""]]
    first, *others = call(built, native_words, calls)
    assert first == Runner(native_words).translate(["a b"])[0]
    assert all("whole texts must have ICU: install libicu-dev" in each["error"] for each in others)


# --- Other languages -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def java(native_build, tmp_path_factory):
    """What Lines.java prints for a folder, a method and lines: answers, and what it checks."""
    if not shutil.which("javac"):
        pytest.skip(f"no Java compiler: {NEEDED}")
    folder = tmp_path_factory.mktemp("classes")
    sources = (NATIVE / "jvm" / "kerastransformer" / "Translator.java", CALLS.parent / "Lines.java")
    done = run("javac", "-Xlint:all", "-Werror", "-encoding", "UTF-8", "-d", folder, *sources)
    assert done.returncode == 0, done.stderr

    def java(device, method, lines, *weight_cache):
        command = ["java", "-Xcheck:jni", f"-Djava.library.path={native_build}", "-cp", folder]
        command += ["-Dfile.encoding=UTF-8", "Lines", device, method, *weight_cache]
        text = "\n".join(lines).encode()
        done = subprocess.run(command, input=text, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        assert b"WARNING in native method" not in done.stdout, done.stdout
        found = done.stdout.decode().split("\n")
        return found[: len(lines)], found[len(lines) :]

    return java


def test_java(java, native_words, native_pieces, tmp_path):
    texts = [text for text in TEXTS if "\n" not in text]
    runner = Runner(native_words)
    answers, checks = java(native_words, "translate", texts)
    assert answers == runner.translate(texts)
    answers, _ = java(native_words, "text", ["a b. Dr. C d<br>\te f! ", "", *texts])
    whole = ["a b. Dr. C d\r\n\te f! ", "", *texts]
    expected = [runner.translate_text(text, language="de") for text in whole]
    assert answers == [text.replace("\r\n", "<br>") for text in expected]
    answers, _ = java(native_words, "stream", texts, tmp_path / "made" / "here")
    assert len(list(tmp_path.glob("made/here/*.xnnpack*"))) == 2
    assert answers == ["|".join(runner.stream(text)) for text in texts]
    answers, _ = java(native_pieces, "n-best", texts)
    for answer, found in zip(
        answers, Runner(native_pieces).translate_with_details(texts), strict=True
    ):
        fields = [
            (one.text, f"{len(one.ids)}{' cut' * one.truncated} {str(one.score < 0).lower()}")
            for one in found
        ]
        assert answer == "|".join(sum(fields, ()))
    failure, state = "kerastransformer.Translator$Failure: ", "java.lang.IllegalStateException: "
    expected = [
        failure + "an exported folder must hold metadata.json. Received: no\U0001f600where, which",
        failure + "`folder` must hold no NUL",
        failure + "`weightCache` must hold no NUL",
        failure + "a source must have at most `max_source_length` = 512 tokens. Received: 602",
        "java.lang.NullPointerException",
        failure + "`language` must be a BCP 47 tag",
        failure + "`language` must hold no NUL",
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


def test_java_does_what_its_model_does(java, native_language, native_classes, native_tags):
    texts = ["a b", "", "ca e\u0301 日本語", "a"]
    answers, _ = java(native_language, "generate", texts)
    assert answers == [f"generate {text}" for text in Runner(native_language).generate(texts)]
    texts = ["a b", "ein Mann", "a"]
    for folder, is_by_token in ((native_classes, False), (native_tags, True)):
        runner = Runner(folder)
        labels = ",".join(runner.metadata.get("labels", [])).replace("\n", " ")
        answers, _ = java(folder, "classify", texts)
        for answer, wanted in zip(answers, runner.classify(texts), strict=True):
            *rows, last = answer.split("|")
            assert last == f"classify {str(is_by_token).lower()}"
            assert all(row.startswith(f"{labels}[") for row in rows)
            numbers = [[float(x) for x in row[len(labels) + 1 : -1].split(", ")] for row in rows]
            np.testing.assert_allclose(numbers, np.atleast_2d(wanted), rtol=0, atol=2e-6)


# --- Another processor ---------------------------------------------------------------------


def test_arm64(tmp_path, request):
    """The same answers on an emulated arm64 processor, where int8 has other kernels."""
    root, qemu = os.environ.get("ARM64_ROOT", ""), shutil.which("qemu-aarch64-static")
    if not os.path.isdir(root) or not qemu or not shutil.which("aarch64-linux-gnu-g++"):
        pytest.skip(f"no arm64 system, emulator or compiler: {NEEDED}")
    toolchain = NATIVE / "arm64.cmake"
    built = build(tmp_path, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", f"-DARM64_ROOT={root}")
    texts = [text for text in TEXTS[:30] if text]
    least_of = {"native_pieces": len(texts), "native_words": 0.9 * len(texts)}
    for name, least in {**least_of, "native_language": len(texts)}.items():
        folder = request.getfixturevalue(name)
        command = [qemu, "-cpu", "cortex-a76", "-L", root, built / "kt-translate", folder]
        lines = "".join(text + "\n" for text in texts)
        done = run(*command, input=lines, encoding="utf-8")
        assert done.returncode == 0, done.stderr[-2000:]
        for _ in range(2):
            cached = run(*command, "--weight-cache", tmp_path / "cache", input=lines)
            assert (cached.returncode, cached.stdout) == (0, done.stdout)
        assert len(list(tmp_path.glob(f"cache/{model_sum(folder)}-*-aarch64-*.xnnpack"))) == 1
        runner = Runner(folder)
        expected = getattr(runner, runner.metadata["signature"])(texts)
        pairs = zip(done.stdout.splitlines(), expected, strict=True)
        assert sum(received == wanted for received, wanted in pairs) >= least
