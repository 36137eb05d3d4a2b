"""Checkpoints of Hugging Face's in ours: what transformers computed with them is in `fixtures/`.

`make_fixtures.py` wrote them. No torch here.
"""

import dataclasses
import pathlib

import numpy as np
import pytest

from keras_transformer.decoding import BeamSearch, Greedy, decode
from keras_transformer.interop.hugging_face import Checkpoint

FIXTURES = pathlib.Path(__file__).with_name("fixtures")
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/oracle.npz"))
OTHER_LANGUAGE = 50


@pytest.fixture(scope="module")
def opened():
    """By name: the checkpoint, its model, and what transformers computed."""
    found = {}

    def get(name):
        if name not in found:
            checkpoint = Checkpoint.open(FIXTURES / name)
            oracle = dict(np.load(FIXTURES / name / "oracle.npz"))
            found[name] = checkpoint, checkpoint.model(), oracle
        return found[name]

    return get


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers(opened, name):
    _, model, oracle = opened(name)
    source, target = oracle["source"], oracle["target"]
    full = np.asarray(model({"source_ids": source, "target_ids": target}, training=False))
    np.testing.assert_allclose(full, oracle["logits"], atol=1e-4)
    memory, steps = model.encode(source), []
    cache = model.start(memory, target.shape[1])
    for position in range(target.shape[1]):
        logits, cache = model.step(target[:, position : position + 1], cache, position)
        steps.append(np.asarray(logits)[:, 0])
    np.testing.assert_allclose(np.stack(steps, 1), oracle["logits"], atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_searches_answer_as_generate_does(opened, name):
    checkpoint, model, oracle = opened(name)
    search = checkpoint.generation.decoding.search()
    assert isinstance(search, BeamSearch)
    options = {}
    if checkpoint.kind in ("m2m_100", "mbart"):
        count = len(oracle["sources"])
        options = dict(prefix_ids=np.full((count, 1), OTHER_LANGUAGE, "int32"), unscored_prefix=1)
    longest = oracle["greedy"].shape[1]
    greedy = Greedy(max_length=longest, forced_eos=search.forced_eos)
    search = dataclasses.replace(search, max_length=longest)
    for each, expected in ((greedy, oracle["greedy"]), (search, oracle["beams"])):
        ids = np.asarray(decode(model, oracle["sources"], each, **options).ids)
        ids = np.pad(ids, [[0, 0], [0, max(0, longest - ids.shape[1])]], constant_values=-1)
        ids = np.where(ids == -1, checkpoint.config.pad_id, ids)[:, :longest]
        np.testing.assert_array_equal(ids, expected)
