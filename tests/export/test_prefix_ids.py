"""A tokenizer's prefix, such as a language, in all that an export writes."""

import json

import numpy as np
import pytest
import tensorflow as tf
from toy_model import talkative_toy

from keras_transformer import BeamSearch, Greedy, Translator
from keras_transformer.export import export_litert, export_saved_model
from keras_transformer.export.litert.graphs import SIGNATURES
from keras_transformer_runner import Runner
from keras_transformer_runner.folder import checksums
from keras_transformer_runner.integrity import sealed
from keras_transformer_runner.tokenizers import VocabularyTokenizer

TEXTS = ["a b", "b a c", "", "c a b a", "a b c a b", "q c"]
SOURCE, TARGET = (11,), (12, 9)


@pytest.fixture(scope="module")
def tokenizers():
    tokenizer = VocabularyTokenizer([*"abcdef", "<en>", "<de>", "<fr>", *"ghijkl"])
    return tokenizer.with_prefix(SOURCE), tokenizer.with_prefix(TARGET)


@pytest.fixture(scope="module")
def model(tokenizers):
    source = tokenizers[0]
    options = {"vocab_size": source.vocab_size, **source.special_ids._asdict()}
    return talkative_toy(36, decoder_layers=1, **options)


def live(model, tokenizers, strategy):
    source, target = tokenizers
    return Translator(model, source, strategy, target_tokenizer=target)


@pytest.fixture(scope="module")
def device(model, tokenizers, tmp_path_factory):
    """A folder with all signatures."""
    source, target = tokenizers
    path = tmp_path_factory.mktemp("prefix") / "device"
    options = dict(samples=TEXTS, strategy=Greedy(extra_length=5, scores=True))
    options |= dict(target_tokenizer=target, signatures=SIGNATURES)
    report = export_litert(model, source, path, **options)
    assert report.identical == len(TEXTS) and report.token_agreement == 1
    return path


def same_details(found, expected):
    for received, wanted in zip(found, expected, strict=True):
        assert [one.ids for one in received] == [one.ids for one in wanted]
        assert [one.text for one in received] == [one.text for one in wanted]
        scores = [[one.score for one in each] for each in (received, wanted)]
        np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)


def test_a_device_gives_what_python_gives(device, model, tokenizers):
    runner, translator = Runner(device), live(model, tokenizers, Greedy(extra_length=5))
    expected = translator.translate(TEXTS)
    assert runner.translate(TEXTS) == expected
    assert ["".join(runner.stream(text)) for text in TEXTS] == expected
    assert runner.encode("a b") == [*SOURCE, 4, 5, 3]
    assert runner.translate_ids(runner.encode("a b"))[:2] == list(TARGET)
    same_details(runner.translate_with_details(TEXTS), translator.translate_with_details(TEXTS))


def test_the_metadata_names_the_prefixes(device, model, tokenizers, tmp_path):
    metadata = json.loads((device / "metadata.json").read_text())
    assert metadata["source_prefix_ids"] == list(SOURCE)
    assert metadata["target_prefix_ids"] == list(TARGET)
    for name, ids in (("source_prefix_ids", [10]), ("target_prefix_ids", None)):
        changed = {**metadata, name: ids}
        if ids is None:
            del changed[name]
        for file in device.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        changed["sha256"] = {each: checksums(tmp_path)[each] for each in metadata["sha256"]}
        (tmp_path / "metadata.json").write_text(json.dumps(sealed(changed)))
        with pytest.raises(ValueError, match="agree on source_prefix_ids and target_prefix_ids. R"):
            Runner(tmp_path)


@pytest.mark.slow
def test_a_device_searches_by_beams_behind_the_prefix(model, tokenizers, tmp_path):
    source, target = tokenizers
    strategy = BeamSearch(beam_size=3, n_best=2, extra_length=5)
    options = dict(samples=TEXTS, strategy=strategy, target_tokenizer=target)
    report = export_litert(model, source, tmp_path / "device", **options)
    assert report.identical == len(TEXTS)
    expected = live(model, tokenizers, strategy).translate_with_details(TEXTS)
    same_details(Runner(tmp_path / "device").translate_with_details(TEXTS), expected)


def test_a_saved_model_gives_what_python_gives(model, tokenizers, tmp_path):
    source, target = tokenizers
    strategy = Greedy(extra_length=5, scores=True)
    options = dict(samples=TEXTS, strategy=strategy, target_tokenizer=target)
    options |= dict(warmup_batch_sizes=())
    report = export_saved_model(model, source, tmp_path / "1", **options)
    assert report.identical == len(TEXTS)
    description = json.loads((tmp_path / "1" / "assets.extra" / "serving.json").read_text())
    assert description["source_prefix_ids"] == list(SOURCE)
    assert description["target_prefix_ids"] == list(TARGET)
    loaded, translator = tf.saved_model.load(str(tmp_path / "1")), live(model, tokenizers, strategy)
    run = loaded.signatures
    found = run["translate"](text=tf.constant(TEXTS), n_best=tf.zeros(len(TEXTS), tf.int32))
    expected = translator.translate_with_details(TEXTS)
    assert [row[0].decode() for row in found["translations"].numpy()] == [
        each[0].text for each in expected
    ]
    scores = [each[0].score for each in expected]
    np.testing.assert_allclose(found["scores"].numpy()[:, 0], scores, rtol=1e-4, atol=1e-5)
    rows = translator.pad([translator.source_ids(text) for text in TEXTS])
    ids = run["translate_ids"](source_ids=tf.constant(rows))["target_ids"].numpy()
    kept = [tuple(int(token) for token in row if token != target.pad_id) for row in ids]
    assert kept == [each[0].ids for each in expected]
    targets = ["c a", "", "", "b", "a a a", "d"]
    scored = run["score"](text=tf.constant(TEXTS), target=tf.constant(targets))
    python = translator.score(TEXTS, targets)
    np.testing.assert_allclose(scored["score"], [x.score for x in python], rtol=1e-4, atol=1e-5)
    for row, values, one in zip(
        scored["target_ids"].numpy(), scored["token_log_probs"].numpy(), python, strict=True
    ):
        assert tuple(row[: len(one.ids)]) == one.ids
        np.testing.assert_allclose(values[: len(one.ids)], one.token_log_probs, atol=1e-4)
