"""The native core of export/native: how tests build it, call it, and folders for it.

It needs CMake, a C++17 compiler, libsentencepiece-dev and nlohmann-json3-dev:
export/native/test.sh sees to it.
"""

import importlib.util
import json
import pathlib
import random
import shutil
import subprocess
import sys

import pytest
from toy_device_models import CLASSES, config_of, language_model_of
from toy_model import randomise, talkative_toy

from keras_transformer import (
    BeamSearch,
    Greedy,
    export_classifier,
    export_language_model,
    export_litert,
)
from keras_transformer.export.litert.graphs import LANGUAGE_MODEL_SIGNATURES, SIGNATURES
from keras_transformer_runner.folder import checksums, prefix_fields
from keras_transformer_runner.integrity import sealed
from keras_transformer_runner.tokenizers import SentencePieceTokenizer, VocabularyTokenizer

NATIVE = pathlib.Path(__file__).parents[2] / "export" / "native"
CALLS = pathlib.Path(__file__).parents[1] / "export" / "native" / "calls.py"
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


def litert():
    """The path of LiteRT's library in its package."""
    origin = importlib.util.find_spec("ai_edge_litert").origin
    return pathlib.Path(origin).parent / "libLiteRt.so"


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


def call(built, folder, calls, *weight_cache):
    """The results of calls on an opened folder, see calls.py."""
    library = built / "libkeras_transformer.so"
    done = run(sys.executable, CALLS, library, folder, *weight_cache, input=json.dumps(calls))
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def tool(built, *arguments, text="a b\n", **options):
    """The finished process of kt-translate."""
    command = [built / "kt-translate", *map(str, arguments)]
    options = {"input": text.encode(), "capture_output": True, "check": False, **options}
    return subprocess.run(command, **options)


def model_sum(folder):
    """The SHA-256 of a folder's model."""
    return checksums(folder)["model.tflite"]


def latin(texts):
    return [text.encode().decode("latin-1") for text in texts]


def unlatin(results):
    return [result.encode("latin-1").decode() for result in results]


def words_folder(folder):
    """int8, greedy with scores, streamed, a tokenizer and a prefix a side."""
    tokenizer = VocabularyTokenizer(
        [*"abcdef", "<en>", "<de>", "ca@@", "a@@", "man", "ein", *"ghij", "日本語"]
    )
    options = dict(strategy=Greedy(extra_length=7, scores=True), signatures=SIGNATURES)
    options |= dict(target_tokenizer=tokenizer.with_prefix([11, 9]), mode="int8")
    model = talkative_toy(
        36, decoder_layers=1, vocab_size=tokenizer.vocab_size, **tokenizer.special_ids._asdict()
    )
    export_litert(model, tokenizer.with_prefix([10]), folder, samples=["a b", "c a"], **options)
    return folder


def pieces_folder(folder):
    """float32, four beams, a fixed length, a SentencePiece model with bytes and a prefix."""
    tokenizer = SentencePieceTokenizer.train(SENTENCES, 310, byte_fallback=True).with_prefix([9])
    strategy = BeamSearch(beam_size=4, n_best=3, extra_length=6)
    model = talkative_toy(
        36, decoder_layers=1, vocab_size=tokenizer.vocab_size, **tokenizer.special_ids._asdict()
    )
    options = dict(samples=["a b", "c a"], strategy=strategy, lengths=(12,))
    export_litert(model, tokenizer, folder, **options)
    return folder


def language_folder(folder):
    """A language model: greedy with scores, streamed, a fixed length, words with a prefix."""
    tokenizer = VocabularyTokenizer([*"abcdef", "ca@@", "man", "ein", "日本語"]).with_prefix([6])
    options = dict(strategy=Greedy(extra_length=5, scores=True), lengths=(6,))
    options |= dict(samples=["a b", "c a"], signatures=LANGUAGE_MODEL_SIGNATURES)
    export_language_model(language_model_of(tokenizer), tokenizer, folder, **options)
    return folder


def classifier_folder(folder, model_class, **options):
    """A classifier of pieces, of 5 classes."""
    tokenizer = SentencePieceTokenizer.train(SENTENCES, 60, model_type="bpe")
    model = randomise(model_class(config_of(tokenizer), CLASSES), 5)
    export_classifier(model, tokenizer, folder, samples=["a b", "c a"], **options)
    return folder


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
    metadata["sha256"] = checksums(folder)
    text = json.dumps(sealed(metadata), ensure_ascii=False)
    (folder / "metadata.json").write_text(text, encoding="utf-8")
    return folder


def refreshed(folder):
    """The folder, whose files have changed, with metadata that fit them."""
    return write_metadata(folder, json.loads((folder / "metadata.json").read_text()))
