"""Encoder-only and decoder-only models through the device export: the answers are Python's."""

import dataclasses
import json
import random
import shutil

import keras
import numpy as np
import pytest
from toy_device_models import CLASSES, TEXTS, config_of, language_model_of
from toy_model import randomise

from keras_transformer import (
    BeamSearch,
    Greedy,
    SequenceClassifier,
    TokenClassifier,
)
from keras_transformer.decoding import generate
from keras_transformer.export import ParityError, ParityReport
from keras_transformer.export.litert import flatbuffer
from keras_transformer.export.litert.export_models import (
    export_classifier,
    export_language_model,
)
from keras_transformer.export.litert.graphs import LANGUAGE_MODEL_SIGNATURES
from keras_transformer.export.litert.lengths import check_steps
from keras_transformer.export.litert.partitions import border_copies
from keras_transformer_runner import Runner, command
from keras_transformer_runner.integrity import sealed
from keras_transformer_runner.tokenizers import SentencePieceTokenizer

LABELS = list("vwxyz")
GREEDY = Greedy(extra_length=7, scores=True)
LENGTHS = {"sequence_model": (4,), "token_model": (5, 9), "language_model": (4, 8)}


@pytest.fixture(scope="module")
def sequence_model(tokenizer):
    return randomise(SequenceClassifier(config_of(tokenizer), CLASSES), 5)


@pytest.fixture(scope="module")
def token_model(tokenizer):
    return randomise(TokenClassifier(config_of(tokenizer), CLASSES), 6)


@pytest.fixture(scope="module")
def language_model(tokenizer):
    return language_model_of(tokenizer)


@pytest.fixture(scope="module")
def folders(sequence_model, token_model, language_model, tokenizer, tmp_path_factory):
    """A float32 folder of each model, and its report, by the model's fixture."""
    root, made = tmp_path_factory.mktemp("devices"), {}
    for name, model in (("sequence_model", sequence_model), ("token_model", token_model)):
        options = dict(samples=TEXTS, labels=LABELS, lengths=LENGTHS[name])
        options["lengths_only"] = name == "token_model"
        made[name] = root / name, export_classifier(model, tokenizer, root / name, **options)
    name, options = "language_model", dict(samples=TEXTS, strategy=GREEDY)
    options |= dict(lengths=LENGTHS[name], signatures=LANGUAGE_MODEL_SIGNATURES)
    report = export_language_model(language_model, tokenizer, root / name, **options)
    return {**made, name: (root / name, report)}


def probabilities(model, tokenizer, text, end):
    logits = model(np.array([[*tokenizer.encode(text), *end]]), training=False)
    return keras.ops.convert_to_numpy(keras.ops.softmax(logits))[0]


def continued(model, tokenizer, prompt, strategy):
    ids = tokenizer.encode(prompt) or [tokenizer.pad_id]
    row = keras.ops.convert_to_numpy(generate(model, np.array([ids], "int32"), strategy).ids)[0]
    return tokenizer.decode(row[row != tokenizer.pad_id])


# --- Classifiers ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sequence_model", "token_model"])
def test_classes_are_pythons(kind, folders, tokenizer, request, capsys):
    model, (path, report) = request.getfixturevalue(kind), folders[kind]
    assert report.identical == report.samples == len(TEXTS) and report.token_agreement == 1
    assert json.loads((path / "parity.json").read_text())["weight_bytes"] == report.weight_bytes
    runner, best = Runner(path), []
    for text in TEXTS:
        expected = probabilities(model, tokenizer, text, [tokenizer.eos_id])
        (received,) = runner.classify([text])
        assert received.shape == expected.shape
        np.testing.assert_allclose(received, expected, rtol=0, atol=1e-5)
        best.append(received.argmax(-1).tolist())
    assert len({str(x) for x in best}) > 1  # they could differ
    assert command.main([str(path), "abc"]) == 0
    rows = np.atleast_2d(probabilities(model, tokenizer, "abc", [tokenizer.eos_id]))
    expected = " ".join(f"{LABELS[row.argmax()]}:{row.max():.4f}" for row in rows)
    assert capsys.readouterr().out == expected + "\n"


def test_eos_is_added_if_it_was_in_training(sequence_model, tokenizer, tmp_path):
    path, texts = tmp_path / "device", ["abc", "h"]
    export_classifier(sequence_model, tokenizer, path, samples=texts, adds_eos=False)
    for text, received in zip(texts, Runner(path).classify(texts), strict=True):
        expected = probabilities(sequence_model, tokenizer, text, [])
        np.testing.assert_allclose(received, expected, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="a text to classify must have an id. Received: 0 ids"):
        Runner(path).classify([""])
    with pytest.raises(ValueError, match="every text to classify must have an id. Received: ''"):
        export_classifier(
            sequence_model, tokenizer, tmp_path / "other", samples=["a", ""], adds_eos=False
        )
    with pytest.raises(ValueError, match="`adds_eos` must be True or False. Received: adds_eos=1"):
        export_classifier(sequence_model, tokenizer, path, samples=["a"], adds_eos=1)


def test_int8_keeps_classes_and_is_small(tokenizer, tmp_path):
    model = randomise(SequenceClassifier(config_of(tokenizer, model_dim=96, num_heads=4), 3), 5)
    report = export_classifier(model, tokenizer, tmp_path / "device", samples=TEXTS, mode="int8")
    assert report.mode == "int8" and report.token_agreement >= 0.8
    assert report.weight_bytes < 1.6 * report.parameters


@pytest.mark.slow
def test_a_calibrated_mode(sequence_model, language_model, tokenizer, tmp_path, monkeypatch):
    """Calibration sees the rows that the model reads; a promise is not what is tested here."""
    monkeypatch.setattr(ParityReport, "check", lambda report: report)
    for name, run, model in (
        ("classifier", export_classifier, sequence_model),
        ("language model", export_language_model, language_model),
    ):
        path = tmp_path / name
        report = run(model, tokenizer, path, samples=TEXTS, mode="int8_full")
        assert report.mode == "int8_full" and report.token_agreement > 0.3
        assert json.loads((path / "metadata.json").read_text())["mode"] == "int8_full"


def test_wrong_probabilities_are_refused(sequence_model, tokenizer, tmp_path, monkeypatch):
    """Though the likeliest class is the same."""
    own = Runner.classify_ids

    def shifted(runner, ids):
        return own(runner, ids) + 0.002

    monkeypatch.setattr(Runner, "classify_ids", shifted)
    with pytest.raises(ParityError, match="probabilities within 0.001. Received: .* of 0.002"):
        export_classifier(sequence_model, tokenizer, tmp_path / "device", samples=TEXTS)
    assert list(tmp_path.iterdir()) == []


def test_wrong_labels(sequence_model, tokenizer, tmp_path):
    options = dict(samples=["a"])
    for labels in ("abcde", ["a", "b", "c", "d", 5]):
        with pytest.raises(TypeError, match="`labels` must be a list of strings. Received"):
            export_classifier(sequence_model, tokenizer, tmp_path, labels=labels, **options)
    with pytest.raises(ValueError, match="every class .*Received: 2 labels, num_classes=5"):
        export_classifier(sequence_model, tokenizer, tmp_path, labels=["x", "y"], **options)


def test_damaged_labels_are_noticed(folders, tmp_path):
    path = shutil.copytree(folders["sequence_model"][0], tmp_path / "copy")
    metadata = json.loads((path / "metadata.json").read_text())
    for labels in ("vwxyz", ["v", 1]):
        (path / "metadata.json").write_text(json.dumps({**metadata, "labels": labels}))
        with pytest.raises(ValueError, match="`labels` must be a list of strings. Received"):
            Runner(path)


# --- Language models -----------------------------------------------------------------------


def test_continuations_are_pythons(folders, language_model, tokenizer, capsys):
    path, report = folders["language_model"]
    assert report.identical == report.samples == len(TEXTS)
    expected = [continued(language_model, tokenizer, text, GREEDY) for text in TEXTS]
    runner = Runner(path)
    assert runner.generate(TEXTS) == expected
    prompts = [tokenizer.decode(tokenizer.encode(text)) for text in TEXTS]
    assert all(map(str.startswith, expected, prompts)) and expected != prompts
    assert runner.generate_ids([]) == runner.generate_ids([tokenizer.pad_id])
    assert command.main([str(path), "abc"]) == 0
    assert capsys.readouterr().out == expected[0] + "\n"
    with open(path / "metadata.json") as file:
        metadata = json.load(file)
    assert metadata["search"] == {"name": "Greedy", **dataclasses.asdict(GREEDY)} | {
        "forbidden_ids": list(GREEDY.forbidden_ids)
    }


def test_a_continuation_that_grows(folders, tokenizer, capsys):
    """The prompt first; whatever the ids of a prompt are, a step gives what the search gives."""
    path, _ = folders["language_model"]
    runner = Runner(path)
    pieces = [list(runner.stream(text)) for text in TEXTS]
    assert list(map("".join, pieces)) == runner.generate(TEXTS)
    assert max(map(len, pieces)) > 5
    assert command.main([str(path), "--stream", "abc"]) == 0
    assert capsys.readouterr().out == "".join(pieces[0]) + "\n"
    rng = random.Random(5)
    for _ in range(20):  # pads and EOS among them
        ids = rng.choices(range(tokenizer.vocab_size), k=rng.randrange(1, 9))
        assert list(runner.steps(np.array([ids], np.int32))) == runner.generate_ids(ids), ids
    with pytest.raises(TypeError, match="`text` must be a string. Received: list"):
        runner.stream(["a"])
    runner._tensors = {name: each for name, each in runner._tensors.items() if "step" not in name}
    with pytest.raises(
        ValueError, match="signature 'decode_step': .*`signatures=LANGUAGE_MODEL_SIGNATURES`"
    ):
        runner.stream("a")


def test_scores_of_continuations(folders, language_model, tokenizer, capsys):
    path, _ = folders["language_model"]
    runner = Runner(path)
    for text, found in zip(TEXTS, runner.generate_with_details(TEXTS), strict=True):
        ids = tokenizer.encode(text) or [tokenizer.pad_id]
        expected = generate(language_model, np.array([ids], "int32"), GREEDY).hypotheses
        (best,) = found
        assert best.text == runner.generate([text])[0] and best.truncated
        assert list(best.ids) == [x for x in np.array(expected.ids)[0, 0] if x != tokenizer.pad_id]
        np.testing.assert_allclose(best.score, float(expected.scores[0, 0]), rtol=1e-5)
    assert command.main([str(path), "--n-best", "1", "abc"]) == 0
    (best,) = runner.generate_with_details(["abc"], n_best=1)[0]
    assert capsys.readouterr().out == f"{best.score:.4f}\t{best.text}\n"
    with pytest.raises(ValueError, match="at most what the file gives, 1: .*n_best=2"):
        runner.generate_with_details(["abc"], n_best=2)


@pytest.mark.slow
def test_beams_are_pythons(language_model, tokenizer, tmp_path):
    strategy = BeamSearch(beam_size=3, extra_length=7)
    options = dict(samples=TEXTS, strategy=strategy)
    report = export_language_model(language_model, tokenizer, tmp_path / "device", **options)
    assert report.identical == report.samples == len(TEXTS)
    expected = [continued(language_model, tokenizer, text, strategy) for text in TEXTS[:3]]
    assert Runner(tmp_path / "device").generate(TEXTS[:3]) == expected


def test_only_what_follows_the_prompt_counts(language_model, tokenizer, tmp_path, monkeypatch):
    """A long prompt, which is always the same, must not hide a wrong continuation."""
    monkeypatch.setattr(Runner, "generate_ids", lambda runner, ids: [*ids, 7])
    with pytest.raises(
        ParityError, match=r"at least 100%.*Received: (0|[0-9])\.\d+% of the tokens"
    ):
        export_language_model(language_model, tokenizer, tmp_path / "x", samples=["abcdefgh" * 5])


# --- Both ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LENGTHS)
def test_every_length_gives_the_same(kind, folders, tokenizer, tmp_path):
    """Pads behind a text change nothing, and have no classes; nor do packed weights."""
    path, _ = folders[kind]
    runner, packed = Runner(path), Runner(path, weight_cache=tmp_path)
    assert runner.lengths == LENGTHS[kind]
    answer = "generate" if kind == "language_model" else "classify"
    for text in [text for text in TEXTS if text]:
        ids = runner.encode(text)
        expected = getattr(runner, answer)([text])[0]
        np.testing.assert_array_equal(getattr(packed, answer)([text])[0], expected)
        by_ids = getattr(runner, f"{answer}_ids")
        for length in [each for each in runner.lengths if each >= len(ids)]:
            received = by_ids(ids, length=length)
            if answer == "generate":
                assert tokenizer.decode(received) == expected
            else:
                assert received.shape == expected.shape
                np.testing.assert_allclose(received, expected, rtol=0, atol=1e-5)
        with pytest.raises(ValueError, match="`length` must be one of .*Received: length=6, "):
            by_ids(ids, length=6)
    graph = flatbuffer.read((path / "model.tflite").read_bytes())
    assert not any(border_copies(graph, index) for index in range(len(graph.subgraphs)))
    assert flatbuffer.weight_bytes(graph) < 1.3 * 4 * folders[kind][1].parameters  # each once


def test_the_signature_of_each_length_is_tested(folders, sequence_model, tokenizer, tmp_path):
    """That of a length alone is wrong, or the steps alone."""
    own = Runner.classify_ids
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Runner, "classify_ids", lambda *given, **length: own(*given)[:: -1 if length else 1]
        )
        with pytest.raises(ParityError, match="the signature of 4 tokens must give at least 100%"):
            options = dict(samples=["abc", "h"], lengths=(4,))
            export_classifier(sequence_model, tokenizer, tmp_path / "x", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runner, "steps", lambda runner, ids: iter([5]))
        runner = Runner(folders["language_model"][0])
        with pytest.raises(ParityError, match="`decode_step` must give what the search gives."):
            check_steps(runner, ["abc"], runner.generate(["abc"]))
    assert not list(tmp_path.iterdir())


def _runs(sequence, language):
    return ((export_classifier, sequence), (export_language_model, language))


def test_another_vocabulary_is_refused(sequence_model, language_model, tmp_path):
    other = SentencePieceTokenizer.train(["abc"] * 5, 8, model_type="char")
    for run, model in _runs(sequence_model, language_model):
        with pytest.raises(ValueError, match="same `vocab_size`. Received: tokenizer 8, model 31"):
            run(model, other, tmp_path / "device", samples=["a"])


def test_wrong_arguments(sequence_model, language_model, tokenizer, tmp_path):
    for run, model in _runs(sequence_model, language_model):
        with pytest.raises(TypeError, match="`samples` must be a list of strings"):
            run(model, tokenizer, tmp_path / "device", samples="abc")
        with pytest.raises(ValueError, match="`mode` must be one of"):
            run(model, tokenizer, tmp_path / "device", samples=["a"], mode="int3")
        with pytest.raises(ValueError, match="at most `max_source_length` = 3 tokens. Received: "):
            run(model, tokenizer, tmp_path / "device", samples=["abcd"], max_source_length=3)
        for lengths, rule in (((3, 2), "ascending"), ((4, 20), "must not go beyond")):
            with pytest.raises(ValueError, match=f"`lengths` .*{rule}"):
                options = dict(lengths=lengths, max_source_length=9)
                run(model, tokenizer, tmp_path / "device", samples=["a"], **options)
        with pytest.raises(ValueError, match="`max_source_length` must be"):
            run(model, tokenizer, tmp_path / "device", samples=["a"], max_source_length=0)
        with pytest.raises(TypeError, match="`lengths` must be a list of integers"):
            run(model, tokenizer, tmp_path / "device", samples=["a"], lengths="9")
        (tmp_path / "there" / "mine").mkdir(parents=True, exist_ok=True)
        with pytest.raises(FileExistsError, match="an export needs a new folder"):
            run(model, tokenizer, tmp_path / "there", samples=["a"])
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_exports_are_made_on_tensorflow(
    sequence_model, language_model, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    for run, model in _runs(sequence_model, language_model):
        with pytest.raises(RuntimeError, match="are made on TensorFlow"):
            run(model, tokenizer, tmp_path / "device", samples=["a"])


def test_a_runner_does_what_its_model_does(folders, device):
    paths = {
        **dict(translate=device.path, classify=folders["token_model"][0]),
        **dict(generate=folders["language_model"][0]),
    }
    for own, path in paths.items():
        runner = Runner(path)
        for other in paths.keys() - {own}:
            rule = f"with the signature '{other}'. Received: '{own}'"
            with pytest.raises(ValueError, match=rule):
                getattr(runner, other)(["a"])
            with pytest.raises(ValueError, match=rule):
                getattr(runner, f"{other}_ids")([5])
        with pytest.raises(TypeError, match="`texts` must be a list of strings"):
            getattr(runner, own)("ab")
        with pytest.raises(ValueError, match=r"ids must lie in \[0, 31\). Received: -1 to 5"):
            getattr(runner, f"{own}_ids")([5, -1])
        if own != "translate":
            with pytest.raises(ValueError, match=f"'translate'. Received: '{own}'"):
                runner.translate_with_details("a")
        if own != "generate":
            with pytest.raises(ValueError, match=f"'generate'. Received: '{own}'"):
                runner.generate_with_details("a")
        if own == "classify":
            with pytest.raises(ValueError, match="'translate'. Received: 'classify'"):
                runner.stream("a")


def test_a_model_of_another_kind_is_noticed(folders, device, tmp_path):
    """The metadata of a translator beside a classifier, with the checksum to match."""
    path = shutil.copytree(folders["sequence_model"][0], tmp_path / "copy")
    sums = json.loads((path / "metadata.json").read_text())["sha256"]
    metadata = json.loads((device.path / "metadata.json").read_text())
    (path / "metadata.json").write_text(json.dumps(sealed({**metadata, "sha256": sums})))
    with pytest.raises(ValueError, match="must have the signature that metadata.json names"):
        Runner(path)
