"""Packed weights from a file: the same to the bit, whatever becomes of the file."""

import concurrent.futures
import dataclasses
import json
import os
import shutil
import sys

import numpy as np
import pytest
from toy_model import randomise

from keras_transformer import (
    BeamSearch,
    Greedy,
    LanguageModel,
    SequenceClassifier,
    TokenClassifier,
    TransformerConfig,
)
from keras_transformer.export import export_litert
from keras_transformer.export.litert.export_models import (
    export_classifier,
    export_language_model,
)
from keras_transformer.export.litert.graphs import SIGNATURES
from keras_transformer_runner import Runner, command, packed_weights
from keras_transformer_runner.integrity import sealed

CLASSES = 5
TEXTS = ["abc", "h", "b a d", "gfedcba", "", "1 2 b", "zz"]
ENDLESS = dict(extra_length=3, max_length=11, min_length=99)
SEARCHES = {
    "beams": BeamSearch(beam_size=3, n_best=3),
    "scores": Greedy(scores=True, extra_length=5),
    "endless": BeamSearch(beam_size=3, n_best=2, **ENDLESS),
}


@pytest.fixture(scope="module")
def weight_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache") / "made" / "here"


@pytest.fixture(scope="module")
def searches(trained, tokenizer, texts, tmp_path_factory):
    """A folder for each of `SEARCHES`; that of greedy scores can decode in steps, too."""
    root = tmp_path_factory.mktemp("searches")
    for name, strategy in SEARCHES.items():
        more = {"signatures": SIGNATURES} if name == "scores" else {}
        export_litert(trained, tokenizer, root / name, samples=texts[:2], strategy=strategy, **more)
    return {name: root / name for name in SEARCHES}


@pytest.fixture(scope="module")
def others(tokenizer, tmp_path_factory):
    """Folders of the models that do not translate."""
    special = {name: getattr(tokenizer, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    config = TransformerConfig(
        **dict(vocab_size=tokenizer.vocab_size, model_dim=13, num_heads=3, key_dim=6),
        **dict(value_dim=5, intermediate_dim=17, encoder_layers=1, decoder_layers=1, dropout=0.0),
        **special,
    )
    root = tmp_path_factory.mktemp("others")
    for name, kind in (("sequence", SequenceClassifier), ("token", TokenClassifier)):
        model = randomise(kind(config, CLASSES), 5)
        export_classifier(model, tokenizer, root / name, samples=TEXTS)
    learned = dataclasses.replace(config, positions="learned", max_positions=19)
    model = randomise(LanguageModel(learned), 9)
    options = dict(samples=TEXTS, strategy=Greedy(extra_length=7), max_source_length=12)
    export_language_model(model, tokenizer, root / "language", **options)
    return {name: root / name for name in ("sequence", "token", "language")}


def same_outputs(plain, packed, ids):
    expected, received = (runner._answer(runner._checked(ids)) for runner in (plain, packed))
    assert expected.keys() == received.keys()
    for name, values in expected.items():
        assert received[name].dtype == values.dtype and received[name].shape == values.shape
        assert received[name].tobytes() == values.tobytes(), name


def rows_of(runner, longest=40):
    """Rows of ids of lengths that go up and down."""
    rng, vocab_size = np.random.default_rng(4), runner.metadata["vocab_size"]
    lengths = [3, 1, longest, 2, 9, longest, 17, 1, 5]
    return [rng.integers(0, vocab_size, min(length, longest)) for length in lengths]


# --- The same answers ----------------------------------------------------------------------


@pytest.mark.quick(1)
@pytest.mark.parametrize("mode", ["device", "int8_device"])
def test_translations(mode, request, weight_cache, texts, other_texts, odd_texts):
    path = request.getfixturevalue(mode).path
    plain, packed = Runner(path), Runner(path, weight_cache=weight_cache)
    everything = [*texts, *other_texts, *odd_texts, *texts[:3]]
    assert packed.translate(everything) == plain.translate(everything)
    for ids in rows_of(plain):
        same_outputs(plain, packed, ids)
    assert packed.translate_ids([]) == packed.translate([]) == []
    with pytest.raises(ValueError, match="ids must lie in"):
        packed.translate_ids([5, 31])
    assert packed.translate(["ab"]) == plain.translate(["ab"])
    assert packed._interpreter is None


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_hypotheses_and_scores(name, searches, weight_cache, texts, odd_texts):
    plain, packed = Runner(searches[name]), Runner(searches[name], weight_cache=weight_cache)
    everything = [*texts[:9], *odd_texts]
    assert packed.translate_with_details(everything) == plain.translate_with_details(everything)
    for ids in rows_of(plain):
        same_outputs(plain, packed, ids)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sequence", "token", "language"])
def test_other_models(name, others, weight_cache):
    plain, packed = Runner(others[name]), Runner(others[name], weight_cache=weight_cache)
    method = "generate" if name == "language" else "classify"
    for expected, received in zip(
        getattr(plain, method)(TEXTS), getattr(packed, method)(TEXTS), strict=True
    ):
        np.testing.assert_array_equal(received, expected, strict=method == "classify")
    for ids in rows_of(plain, longest=plain.metadata["max_source_length"]):
        same_outputs(plain, packed, ids)


def test_the_longest_outputs_fill_their_memory_exactly(searches, others, weight_cache):
    """Rows that no EOS ends, and the classes of as many tokens as there may be."""
    cases = [(searches["endless"], 512, 11), (searches["endless"], 5, 8)]
    cases += [(others["language"], 12, 19), (others["language"], 1, 8), (others["token"], 512, 5)]
    for path, length, axis in cases:
        packed = Runner(path, weight_cache=weight_cache)
        ids = np.full(length, 5)
        same_outputs(Runner(path), packed, ids)
        largest = packed_weights._largest(packed.metadata, length)
        for name, values in packed._answer(packed._checked(ids)).items():
            assert values.size == largest[name] and values.shape[-1] == (
                2 if name == "scores" else axis
            )
            behind = packed._packed._words[name][largest[name] :]
            assert behind[0] == -1 and not behind[length * CLASSES + 1 :].any()


def test_outputs_stay_what_they_were(searches, weight_cache):
    packed = Runner(searches["beams"], weight_cache=weight_cache)
    first = packed._answer(packed._checked([5, 6, 7, 3]))
    kept = {name: values.copy() for name, values in first.items()}
    packed.translate_ids([9, 8, 3])
    for name, values in first.items():
        np.testing.assert_array_equal(values, kept[name], strict=True)


def test_threads(searches, weight_cache, texts, other_texts):
    everything = [*texts, *other_texts] * 3
    plain = Runner(searches["beams"])
    packed = Runner(searches["beams"], weight_cache=weight_cache, num_threads=2)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda text: packed.translate([text])[0], everything)
        assert list(answers) == plain.translate(everything)


def mapped_kilobytes(path):
    """What of a file is in the memory of this process."""
    with open("/proc/self/smaps", encoding="utf-8", errors="surrogateescape") as file:
        of_file = file.read().split(f"{path.resolve()}\n")[1:]
    return sum(int(part.partition("\nRss:")[2].split()[0]) for part in of_file)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell what is mapped")
def test_pages_of_a_large_file_are_given_back(device, weight_cache, texts, monkeypatch):
    small = Runner(device.path, weight_cache=weight_cache)
    expected = small.translate(texts)
    assert mapped_kilobytes(device.path / "model.tflite") > 0
    del small
    monkeypatch.setattr(packed_weights.MappedFile, "LEAST_BYTES", 1)
    large = Runner(device.path, weight_cache=weight_cache)
    for _ in range(2):
        assert large.translate(texts) == expected
        assert mapped_kilobytes(device.path / "model.tflite") == 0


def test_streams_have_an_interpreter_of_their_own(searches, weight_cache, texts, tmp_path):
    packed = Runner(searches["scores"], weight_cache=weight_cache)
    assert packed.translate(texts) == Runner(searches["scores"]).translate(texts)
    assert packed._interpreter is None
    assert ["".join(packed.stream(text)) for text in texts] == packed.translate(texts)
    assert packed._interpreter is not None


def test_a_classifier_of_an_older_export(others, tmp_path):
    folder = shutil.copytree(others["token"], tmp_path / "copy")
    path = folder / "metadata.json"
    metadata = json.loads(path.read_text())
    assert metadata.pop("num_classes") == CLASSES
    path.write_text(json.dumps(sealed(metadata)))
    with pytest.raises(ValueError, match="must have `num_classes`, .*: export the model again"):
        Runner(folder, weight_cache=tmp_path / "cache")


# --- The command ---------------------------------------------------------------------------


def test_the_command_says_nothing_but_answers(device, live, texts, run_python, tmp_path):
    for _ in range(2):
        done = run_python(
            *("-m", "keras_transformer_runner", device.path, *texts[:3]),
            *("--weight-cache", tmp_path / "cache"),
            package=True,
        )
        assert done.returncode == 0 and done.stderr == ""
        assert done.stdout.splitlines() == live.translate(texts[:3])
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_the_command_says_what_is_wrong(device, run_python, tmp_path):
    (tmp_path / "file").write_text("")
    command = ("-m", "keras_transformer_runner", device.path, "a" * 600)
    for folder, message in (("file", "File exists"), ("cache", "at most `max_source_length`")):
        done = run_python(*command, "--weight-cache", tmp_path / folder, package=True)
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith("keras-transformer-run: error: ") and message in done.stderr
        assert done.stderr.count("\n") == 1


def test_the_command_leaves_this_process_its_standard_error(device, capfd, tmp_path, monkeypatch):
    at_exit = []
    monkeypatch.setattr(command.atexit, "register", at_exit.append)
    assert command.main([str(device.path), "", "--weight-cache", str(tmp_path)]) == 0
    os.write(2, b"still there\n")
    assert capfd.readouterr() == ("\n", "still there\n") and len(at_exit) == 1
