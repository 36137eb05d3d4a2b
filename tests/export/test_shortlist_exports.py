"""A lexical shortlist inside a LiteRT file and a SavedModel: the text of Python's search."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import BeamSearch, Translator, export_litert, export_saved_model
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.export.litert.graphs import SIGNATURES
from keras_transformer_runner import Runner


@pytest.fixture(scope="module")
def shortlist(tokenizer):
    """For each letter the one that answers it and two others; some answers need more."""
    rng = np.random.default_rng(3)
    size = tokenizer.vocab_size
    lists = [rng.choice(size, 3, replace=False) for _ in range(size)]
    for token, piece in enumerate(tokenizer.pieces):
        if len(piece) == 1 and "a" <= piece < "g":
            lists[token][0] = tokenizer.pieces.index(chr(ord(piece) + 1).upper())
    return Shortlist([tokenizer.pieces.index("\u2581")], lists, target_size=size)


@pytest.fixture(scope="module")
def answers(trained, tokenizer, texts, shortlist):
    translator = Translator(trained, tokenizer, shortlist=shortlist)
    found = translator.translate(texts)
    assert len(set(found)) > len(texts) // 2
    assert found != Translator(trained, tokenizer).translate(texts)
    return found


@pytest.mark.quick(1)
@pytest.mark.parametrize("mode", ["int8", "float32"])
def test_a_device_finds_the_same(mode, trained, tokenizer, texts, shortlist, answers, tmp_path):
    search = None if mode == "int8" else BeamSearch(beam_size=3, n_best=2)
    report = export_litert(
        trained,
        tokenizer,
        tmp_path / "device",
        samples=texts,
        mode=mode,
        strategy=search,
        shortlist=shortlist,
    )
    runner = Runner(tmp_path / "device")
    assert runner.metadata["shortlist"] == {
        "frequent_ids": 1,
        "most_ids_of_a_source_id": shortlist.longest,
    }
    if mode == "int8":
        found = runner.translate(texts)
        assert sum(map(str.__eq__, found, answers)) >= len(texts) - 2  # 8 bits
        for text, answer in zip(texts, found, strict=True):
            candidates = shortlist.ids_for(runner.encode(text))
            assert {*tokenizer.encode(answer)} <= {*candidates}
        assert report.weight_bytes < 1.2 * trained.count_params() + 4 * len(shortlist.ids) + 4096
    else:
        live = Translator(trained, tokenizer, search, shortlist=shortlist)
        for found, expected in zip(
            runner.translate_with_details(texts[:8]),
            live.translate_with_details(texts[:8]),
            strict=True,
        ):
            assert [each.text for each in found] == [each.text for each in expected]
            np.testing.assert_allclose(
                [each.score for each in found], [each.score for each in expected], atol=1e-4
            )


@pytest.mark.slow
def test_a_server_finds_the_same(trained, tokenizer, texts, shortlist, answers, tmp_path):
    path = tmp_path / "1"
    report = export_saved_model(
        trained,
        tokenizer,
        path,
        samples=texts,
        shortlist=shortlist,
        ids_only=True,
        warmup_batch_sizes=(),
    )
    assert report.identical == len(texts)
    translator = Translator(trained, tokenizer)
    rows = translator.pad([translator.source_ids(text) for text in texts])
    run = tf.saved_model.load(str(path)).signatures["serving_default"]
    ids = run(source_ids=tf.constant(rows))["target_ids"].numpy()
    assert [tokenizer.decode(row) for row in ids] == answers


def test_what_goes_without_a_shortlist_is_refused(trained, tokenizer, texts, shortlist, tmp_path):
    options = dict(samples=texts, shortlist=shortlist)
    for more in (dict(signatures=SIGNATURES), dict(lengths=(8, 16))):
        with pytest.raises(ValueError, match="`shortlist` goes with the signature 'translate'"):
            export_litert(trained, tokenizer, tmp_path / "device", **options, **more)
