"""A toy model that has learnt something, and its exports, made once for all tests of the exports.

It spells words in capitals, each letter moved on by one: "ab c" -> "BC D". So answers differ as
sources do, and lie far enough from each other for 8-bit weights.
"""

import functools
import json
import os
import random
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

LETTERS = "abcdefgh"
SAMPLES = 24
LONGEST = 13  # tokens of a sentence that the model is trained on, EOS included


def _sentence(rng, letters):
    text = "".join(rng.choice(LETTERS) for _ in range(letters))
    return "".join(letter + " " * (rng.random() < 0.3) for letter in text).strip()


def _answer(text):
    return text.translate(str.maketrans(LETTERS, LETTERS[1:] + LETTERS[0])).upper()


def _arrays(tokenizer, texts):
    def pad(rows):
        return np.array([[*row, *[tokenizer.pad_id] * (LONGEST - len(row))] for row in rows])

    sources = [tokenizer.encode(text) for text in texts]
    targets = [tokenizer.encode(_answer(text)) for text in texts]
    kept = [
        index
        for index, (a, b) in enumerate(zip(sources, targets, strict=True))
        if max(len(a), len(b)) < LONGEST
    ]
    eos, bos = [tokenizer.eos_id], [tokenizer.bos_id]
    inputs = {
        "source_ids": pad([sources[index] + eos for index in kept]),
        "target_ids": pad([bos + targets[index] for index in kept]),
    }
    return inputs, pad([targets[index] + eos for index in kept])


@pytest.fixture(scope="session")
def tokenizer():
    """31 ids: the special ones, the word mark, ten digits, and letters of both sizes."""
    from keras_transformer_runner.tokenizers import SentencePieceTokenizer

    text = LETTERS + LETTERS.upper() + "0123456789"
    return SentencePieceTokenizer.train([text] * 5, 31, model_type="char")


@pytest.fixture(scope="session")
def trained(tokenizer):
    """The model after a few seconds of training."""
    return _trained(tokenizer, epochs=5)


@pytest.fixture(scope="session")
def recurrent(tokenizer):
    """The same with an SSRU in its decoder."""
    return _trained(tokenizer, epochs=4, decoder_recurrence="ssru")


def _trained(tokenizer, epochs, **options):
    import keras

    from keras_transformer import SmoothedCrossEntropy, Transformer, TransformerConfig

    keras.utils.set_random_seed(11)
    config = TransformerConfig(
        **dict(vocab_size=tokenizer.vocab_size, model_dim=29, num_heads=2, key_dim=13),
        **dict(value_dim=17, intermediate_dim=37, encoder_layers=1, decoder_layers=1, dropout=0.0),
        **dict(pad_id=tokenizer.pad_id, unk_id=tokenizer.unk_id),
        **dict(bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id),
        **options,
    )
    model = Transformer(config)
    rng = random.Random(5)
    inputs, labels = _arrays(
        tokenizer, [_sentence(rng, rng.randint(1, LONGEST - 2)) for _ in range(3000)]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(5e-3),
        loss=SmoothedCrossEntropy(0.0, pad_id=tokenizer.pad_id),
    )
    model.fit(inputs, labels, batch_size=64, epochs=epochs, verbose=0)
    return model


@pytest.fixture(scope="session")
def texts():
    """The sentences that exports are compared on."""
    rng = random.Random(7)
    return [_sentence(rng, 1 + index % (LONGEST - 2)) for index in range(SAMPLES)]


@pytest.fixture(scope="session")
def other_texts():
    """Sentences of other lengths, most longer than the model has ever seen."""
    rng = random.Random(8)
    return [_sentence(rng, letters) for letters in (12, 13, 17, 21, 29, 37, 53)]


ODD_TEXTS = ["", "   ", "\n", "\u3000", "</s> <pad>", "<s> ab", "ａｂ", "zz \U0001f600 b", " a  b "]


@pytest.fixture(scope="session")
def odd_texts():
    """Nothing, white space of all kinds, control symbols typed by a user, unknown letters."""
    return ODD_TEXTS


@pytest.fixture(scope="session")
def live(trained, tokenizer):
    """Python's own answers."""
    from keras_transformer import Translator

    return Translator(trained, tokenizer)


@pytest.fixture(scope="session")
def saved_model(trained, tokenizer, texts, tmp_path_factory):
    """A SavedModel that was moved after it was made: `path` and `report`."""
    from keras_transformer.export import export_saved_model

    root = tmp_path_factory.mktemp("serving")
    report = export_saved_model(trained, tokenizer, root / "made" / "here", samples=texts)
    (root / "made").rename(root / "moved")
    return SimpleNamespace(path=root / "moved" / "here", report=report)


@pytest.fixture(scope="session")
def device(trained, tokenizer, texts, tmp_path_factory):
    """A float32 LiteRT folder: `path` and `report`."""
    return _device(trained, tokenizer, texts, tmp_path_factory, "float32")


@pytest.fixture(scope="session")
def int8_device(trained, tokenizer, texts, tmp_path_factory):
    """The same in 8 bits."""
    return _device(trained, tokenizer, texts, tmp_path_factory, "int8")


def _device(model, tokenizer, texts, tmp_path_factory, mode):
    from keras_transformer.export import export_litert

    path = tmp_path_factory.mktemp("device") / mode
    report = export_litert(model, tokenizer, path, samples=texts, mode=mode)
    return SimpleNamespace(path=path, report=report)


# --- The page --------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def make_site(tmp_path_factory):
    """Builds a site of an exported folder."""
    import page

    def make(folder, *options):
        out = tmp_path_factory.mktemp("web") / "site"
        done = page.build(folder, out, *options)
        assert done.returncode == 0, done.stderr
        return out

    return make


@pytest.fixture(scope="session")
def fixed(trained, tokenizer, texts, tmp_path_factory):
    """The folder of a page: signatures of fixed lengths alone."""
    return _fixed(trained, tokenizer, texts, tmp_path_factory, "float32")


@pytest.fixture(scope="session")
def int8_fixed(trained, tokenizer, texts, tmp_path_factory):
    """The same in 8 bits, beside the open signature, which the page leaves alone."""
    return _fixed(trained, tokenizer, texts, tmp_path_factory, "int8", lengths_only=False)


def _fixed(model, tokenizer, texts, tmp_path_factory, mode, lengths_only=True):
    import page

    from keras_transformer.export import export_litert

    path = tmp_path_factory.mktemp("fixed") / mode
    options = dict(lengths=page.PAGE_LENGTHS, lengths_only=lengths_only, mode=mode)
    export_litert(model, tokenizer, path, samples=texts, **options)
    return path


@pytest.fixture(scope="session")
def everything(texts, other_texts, odd_texts):
    import page

    return [*texts, *other_texts, *odd_texts, page.LEFT, "a" * 200]


@pytest.fixture(scope="session")
def expected(live, everything):
    """Python's own answers."""
    answers = []
    for text in everything:
        source_ids = live.source_ids(text)
        target_ids = live.translate_ids([source_ids])[0]
        text = live.target_tokenizer.decode(target_ids)
        answers.append(dict(sourceIds=source_ids, targetIds=target_ids, text=text))
    return answers


@pytest.fixture(scope="module")
def one_conversion_of_each_graph():
    """Within a file of tests, all modes of a model begin with the same float32 file."""
    from keras_transformer.export.litert import conversion

    convert, kept = conversion.float_file, {}

    def float_file(module, signatures, place=None):
        key = (module.model_variables[0].ref(), *signatures)
        if key not in kept:
            kept[key] = convert(module, signatures)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversion, "float_file", float_file)
        yield


@pytest.fixture(scope="session")
def run_python(repo_root, tmp_path_factory):
    """Runs Python in another process and another folder."""

    def run(*arguments, package=False, **kwargs):
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        if package:
            environment["PYTHONPATH"] = str(repo_root)
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            env=environment,
            cwd=tmp_path_factory.mktemp("elsewhere"),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=600,
            check=False,
            **kwargs,
        )

    return run


@pytest.fixture(scope="session")
def run_json(run_python):
    """`run_python` for a script whose standard output is JSON lines and nothing else."""

    def run(script, *arguments, **kwargs):
        done = run_python("-c", script, *arguments, **kwargs)
        assert done.returncode == 0, done.stderr[-4000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.fixture(scope="session")
def native_build(tmp_path_factory):
    """The folder with the native core."""
    import native_core

    java = ["-DKT_JNI=ON"] if shutil.which("javac") else []
    library = f"-DLITERT_LIBRARY={native_core.litert()}"
    return native_core.build(tmp_path_factory.mktemp("native"), library, *java)


@pytest.fixture(scope="session")
def native_call(native_build):
    """Results of its functions: `native_call(folder, calls)`."""
    import native_core

    return functools.partial(native_core.call, native_build)


@pytest.fixture(scope="session")
def native_tool(native_build):
    """Its command: `native_tool(folder, ..., text=...)`."""
    import native_core

    return functools.partial(native_core.tool, native_build)


@pytest.fixture(scope="session")
def native_words(tmp_path_factory):
    """A folder of words in int8."""
    import native_core

    return native_core.words_folder(tmp_path_factory.mktemp("words") / "device")


@pytest.fixture(scope="session")
def native_pieces(tmp_path_factory):
    """A folder of pieces, with beams."""
    import native_core

    return native_core.pieces_folder(tmp_path_factory.mktemp("pieces") / "device")


@pytest.fixture(scope="session")
def native_language(tmp_path_factory):
    """A folder of a language model."""
    import native_core

    return native_core.language_folder(tmp_path_factory.mktemp("language") / "device")


@pytest.fixture(scope="session")
def native_classes(tmp_path_factory):
    """A folder of a classifier of texts, with labels."""
    import native_core

    from keras_transformer import SequenceClassifier

    options = dict(labels=["a", "é\n", "c", "日本", ""], lengths=(5,))
    folder = tmp_path_factory.mktemp("classes") / "device"
    return native_core.classifier_folder(folder, SequenceClassifier, **options)


@pytest.fixture(scope="session")
def native_tags(tmp_path_factory):
    """A folder of a classifier of tokens in int8, of fixed lengths alone and without EOS."""
    import native_core

    from keras_transformer import TokenClassifier

    options = dict(mode="int8", lengths=(4, 40), lengths_only=True, adds_eos=False)
    folder = tmp_path_factory.mktemp("tags") / "device"
    return native_core.classifier_folder(folder, TokenClassifier, **options)
