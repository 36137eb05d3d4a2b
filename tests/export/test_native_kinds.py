"""The native core with language models and classifiers: what Python's runner answers."""

import json
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest
from native_core import TEXTS, latin, unlatin, write_metadata

from keras_transformer_runner import Runner

pytestmark = pytest.mark.slow
FOLDERS = {"translate": "native_words", "generate": "native_language", "classify": "native_classes"}


def test_continuations(native_call, native_language):
    runner = Runner(native_language)
    prompts = [runner.encode(text) for text in TEXTS]
    assert native_call(native_language, [["encode", text] for text in latin(TEXTS)]) == prompts
    are_short = [len(prompt) <= 6 for prompt in prompts]
    assert runner.lengths == (6,) and any(are_short) and not all(are_short)
    expected = runner.generate(TEXTS)
    answers = native_call(native_language, [["generate", text] for text in latin(TEXTS)])
    assert unlatin(answers) == expected and len(set(expected)) > 50
    rng = random.Random(3)  # pads and EOS among them
    prompts += [rng.choices(range(runner.metadata["vocab_size"]), k=n % 9) for n in range(40)]
    received = native_call(native_language, [["generate_ids", ids] for ids in prompts])
    assert received == [runner.generate_ids(ids) for ids in prompts]


def test_continuations_that_grow_and_their_scores(native_call, native_language):
    runner = Runner(native_language)
    pieces = native_call(native_language, [["stream", text] for text in latin(TEXTS)])
    assert list(map(unlatin, pieces)) == [list(runner.stream(text)) for text in TEXTS]
    found = native_call(native_language, [["n_best", text, 1] for text in latin(TEXTS)])
    for (received,), (wanted,) in zip(found, runner.generate_with_details(TEXTS), strict=True):
        fields = (wanted.text.encode().decode("latin-1"), [*wanted.ids], wanted.score)
        assert (received["text"], received["ids"], received["score"]) == fields
        assert received["truncated"] == wanted.truncated


@pytest.mark.parametrize("folder", ["native_classes", "native_tags"])
def test_classes(folder, native_call, request):
    folder = request.getfixturevalue(folder)
    runner = Runner(folder)
    texts = [text for text in TEXTS if 0 < len(runner.encode(text)) <= 40]
    expected, metadata = runner.classify(texts), runner.metadata
    received = native_call(folder, [["classify", text] for text in latin(texts)])
    ids = [["classify_ids", runner.encode(text)] for text in texts]
    assert native_call(folder, ids) == received and len(texts) > 90
    assert {len(runner.encode(text)) > runner.lengths[0] for text in texts} == {True, False}
    for one, wanted in zip(received, expected, strict=True):
        assert one["labels"] == metadata.get("labels") and one["by_token"] == (wanted.ndim == 2)
        assert np.shape(one["rows"]) == wanted.shape
        np.testing.assert_allclose(one["rows"], wanted, rtol=0, atol=2e-6)


def test_each_does_what_its_model_does(native_call, request):
    for own, name in FOLDERS.items():
        folder = request.getfixturevalue(name)
        others = FOLDERS.keys() - {own}
        calls = [
            [f"{other}{end}", given]
            for other in others
            for end, given in (("", "a"), ("_ids", [5]))
        ]
        received = native_call(folder, [["kind"], *calls])
        assert received[0] == own
        for (call, _), result in zip(calls, received[1:], strict=True):
            kind = call.removesuffix("_ids")
            rule = f"must hold a model with the signature '{kind}'. Received: '{own}'"
            assert rule in result["error"]
    folder = request.getfixturevalue("native_classes")
    for result in native_call(folder, [["n_best", "a", 1], ["stream", "a"]]):
        assert "the signature 'translate'. Received: 'classify'" in result["error"]


def test_what_is_wrong_with_a_call(native_call, native_language, native_tags, native_classes):
    calls = [["generate_ids", [-1]], ["generate", "a " * 600], ["n_best", "a", 2]]
    calls += [["null", "kt_kind"], ["null", "kt_generate"], ["null", "kt_classify"]]
    received = native_call(native_language, [*calls, ["generate", ""]])
    rules = ["ids must lie in [0, ", "a source must have at most `max_source_length` = 512 tokens"]
    rules += ["at most what the file gives, 1", *["`translator` must not be NULL"] * 3]
    for result, rule in zip(received, rules, strict=False):
        assert rule in result["error"]
    assert unlatin(received[-1:]) == Runner(native_language).generate([""])
    nothing, long = native_call(native_tags, [["classify", ""], ["classify_ids", [5] * 41]])
    assert nothing["error"] == "a text to classify must have an id. Received: 0 ids"
    assert "at most `max_source_length` = 40 tokens. Received: 41" in long["error"]
    assert native_call(native_classes, [["classify", ""]])[0]["labels"]  # EOS alone has classes


def test_a_file_without_steps(native_call, native_language, tmp_path):
    folder = shutil.copytree(native_language, tmp_path / "copy")
    content = (folder / "model.tflite").read_bytes().replace(b"decode_step", b"decode_stop")
    (folder / "model.tflite").write_bytes(content)
    write_metadata(folder, json.loads((folder / "metadata.json").read_text()))
    (received,) = native_call(folder, [["stream", "a"]])
    assert "with the signature 'decode_step': export with `Greedy()`" in received["error"]


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(labels="ab"), "`labels` must be a list of strings"),
        (dict(labels=["a", 1]), "`labels` must be a list of strings"),
        (dict(labels=["a"]), "must name all of `num_classes`. Received: 1 labels, num_classes=5"),
        (dict(labels=["a"], num_classes=1), "must name every class of the model. Received: 1 lab"),
        (dict(signature="tag"), "'translate', 'generate' and 'classify'. Received: tag"),
        (
            dict(signature="generate", lengths=[], search={"extra_length": 1}),
            "must have the signature that",
        ),
    ],
)
def test_metadata_of_classes_are_checked(changes, message, native_tool, native_classes, tmp_path):
    folder = shutil.copytree(native_classes, tmp_path / "copy")
    metadata = json.loads((folder / "metadata.json").read_text())
    done = native_tool(write_metadata(folder, {**metadata, **changes}))
    assert done.returncode == 1 and message in done.stderr.decode()


def test_the_tool_writes_what_the_runner_writes(native_tool, request):
    lines = "".join(
        text.replace("\n", " ").replace("\0", "") + "\n" for text in TEXTS if text.strip()
    )
    cases = [("native_language",), ("native_language", "--stream"), ("native_classes",)]
    for name, *options in [*cases, ("native_language", "--n-best", 1), ("native_tags",)]:
        folder = request.getfixturevalue(name)
        text = "a b c\nca d\n" if name == "native_tags" else lines
        done = native_tool(folder, *options, text=text)
        assert done.returncode == 0, done.stderr
        command = [sys.executable, "-m", "keras_transformer_runner", *map(str, [folder, *options])]
        expected = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
        assert done.stdout == expected.stdout
