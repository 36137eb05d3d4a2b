"""Checkpoints of Hugging Face's in ours: what transformers computed with them is in `fixtures/`.

`make_fixtures.py` wrote them. No torch here.
"""

import dataclasses
import json
import pathlib
import re
import shutil

import numpy as np
import pytest

from keras_transformer.decoding import BeamSearch, Greedy, decode
from keras_transformer.interop.arrays import read_arrays
from keras_transformer.interop.hugging_face import Checkpoint
from keras_transformer.layers.positions import sinusoidal_encoding

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


@pytest.mark.quick(3)
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


@pytest.mark.quick(1)
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


@pytest.fixture
def edited(tmp_path):
    """A function that gives a fixture with other settings and tensors."""

    def edit(name, changes=(), without=(), generation=(), tensors=()):
        folder = tmp_path / "edited"
        shutil.copytree(FIXTURES / name, folder, ignore=shutil.ignore_patterns("oracle.npz"))
        for file, values in (("config", changes), ("generation_config", generation)):
            path = folder / f"{file}.json"
            settings = json.loads(path.read_text()) | dict(values)
            for key in without:
                settings.pop(key, None)
            path.write_text(json.dumps(settings))
        if tensors:
            arrays = dict(read_arrays(folder)) | dict(tensors)
            (folder / "model.safetensors").unlink()
            np.savez(folder / "weights.npz", **{k: v for k, v in arrays.items() if v is not None})
        return folder

    return edit


SETTINGS = {
    "an unknown key": ("marian", {"rope_theta": 1e4}, "understood. Received: rope_theta=10000.0"),
    "an old key": ("marian", {"normalize_before": True}, "`normalize_before` must be False"),
    "quantized": ("t5", {"quantization_config": {"bits": 4}}, "`quantization_config` must be None"),
    "no encoder": ("mbart", {"is_encoder_decoder": False}, "`is_encoder_decoder` must be True"),
    "two widths": ("m2m_100", {"decoder_ffn_dim": 9}, "must be the same. Received: 20 and 9"),
    "activation": ("marian", {"activation_function": "quick_gelu"}, "Received: 'quick_gelu'"),
    "gate": ("t5", {"feed_forward_proj": "gated-mish"}, "Received: 'gated-mish'"),
    "another function": ("t5", {"dense_act_fn": "silu"}, "`dense_act_fn` must be 'relu'"),
    "a type": ("t5", {"num_layers": 2.5}, "`num_layers` must be of type int. Received: 2.5"),
    "sizes": ("marian", {"decoder_vocab_size": 9}, "Received: 9 and 53"),
    "two tables": (
        "mbart",
        {"share_encoder_decoder_embeddings": False},
        "must be true for 'mbart'",
    ),
    "a scaled output of its own": (
        *("t5_v1_1", {"tie_word_embeddings": True}),
        "and with it `scale_decoder_outputs`, must be false where lm_head.weight differs",
    ),
    "tails": ("m2m_100", {"adaptive_softmax_cutoff": "9,20"}, "_cutoff` must be None"),
    "umt5": ("t5", {"model_type": "umt5"}, "Received: 'umt5', which cannot be read: each of its"),
    "bart": ("mbart", {"model_type": "bart"}, "byte-level BPE"),
    "another": ("mbart", {"model_type": "gpt2"}, "Received: 'gpt2'$"),
    # What would take all memory, or forever, before a tensor is looked at.
    "more ids than rows": ("t5", {"vocab_size": 2**40}, "settings must fit its tensors"),
    "more blocks": ("marian", {"encoder_layers": 2**40}, "settings must fit its tensors"),
    "more buckets": (
        "t5",
        {f"relative_attention_{name}": 2**41 for name in ("num_buckets", "max_distance")},
        "settings must fit its tensors",
    ),
    "another class's error": ("marian", {"activation_dropout": -1.0}, "edited: `intermediate_drop"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_a_setting_that_ours_cannot_have_is_named(edited, case):
    name, changes, message = SETTINGS[case]
    with pytest.raises(ValueError, match=re.escape(message).replace(r"\$", "$")):
        Checkpoint.open(edited(name, changes))


OPTIONS = {
    "unknown": ({"watermark": 3}, "generation_config.json: a setting must be one that is underst"),
    "stopping": ({"early_stopping": "soon"}, "`early_stopping` must be one of"),
    "no word": ({"early_stopping": []}, r"`early_stopping` must be one of.*Received: \[\]"),
    "bad words": ({"bad_words_ids": [3]}, "`bad_words_ids` must hold lists of ids"),
    "another EOS": ({"eos_token_id": 4}, "`eos_token_id` must be the same in config.json and"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_an_option_of_the_search_that_is_wrong_is_named(edited, case):
    generation, message = OPTIONS[case]
    with pytest.raises(ValueError, match=message):
        Checkpoint.open(edited("marian", generation=generation))


def test_files_that_are_missing_or_damaged(edited, tmp_path):
    with pytest.raises(FileNotFoundError, match="a checkpoint must be a folder"):
        Checkpoint.open(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="config.json: must have `d_model`. Received: none"):
        Checkpoint.open(edited("marian", without=["d_model"]))
    config = tmp_path / "edited" / "config.json"
    for text, message in (("{", "must be JSON"), ("[]", "must hold an object. Received: list")):
        config.write_text(text)
        with pytest.raises(ValueError, match=message):
            Checkpoint.open(config.parent)
    config.unlink()
    with pytest.raises(FileNotFoundError, match="must hold config.json"):
        Checkpoint.open(config.parent)


def test_an_option_without_meaning_here_may_be_anything(edited):
    checkpoint = Checkpoint.open(edited("marian", generation={"prefix": [3]}))
    assert any(line.startswith("prefix = [3]") for line in checkpoint.generation.left)


def test_search_options_become_ours(edited):
    generation = dict(
        early_stopping="never",
        length_penalty=0.7,
        min_new_tokens=4,
        max_new_tokens=30,
        no_repeat_ngram_size=3,
        repetition_penalty=1.3,
        bad_words_ids=[[52], [7], [8, 9]],
        suppress_tokens=[5],
        do_sample=True,
        forced_eos_token_id=9,
    )
    checkpoint = Checkpoint.open(edited("marian", generation=generation))
    assert checkpoint.generation.decoding.search() == BeamSearch(
        beam_size=4,
        stopping="exact",
        length_penalty=0.7,
        length_normalization="power",
        candidates="joint",
        min_length=5,
        max_length=30,
        no_repeat_ngram=3,
        repetition_penalty=1.3,
        forbidden_ids=(5, 7),
    )
    left = "\n".join(checkpoint.generation.left)
    for each in ("do_sample = True", "[8, 9]", "forced_eos_token_id = 9",
                 "repetition_penalty of a beam search"):  # fmt: skip
        assert each in left


def test_old_folders_keep_the_search_in_their_config(edited):
    folder = edited("marian_bin", {"num_beams": 6})
    (folder / "generation_config.json").unlink()
    decoding = Checkpoint.open(folder).generation.decoding
    assert (decoding.beam_size, decoding.max_length) == (6, 511)


def test_a_first_token_that_is_always_the_same(edited):
    folder = edited("mbart", generation={"forced_bos_token_id": 50})
    assert Checkpoint.open(folder).generation.first_id == 50


@pytest.mark.parametrize("name", ["marian", "m2m_100"])
def test_renormalized_scores_are_those_of_the_others_alone(edited, opened, name):
    """`renormalize_logits` gives the mass of forbidden ids to the others: a bias does."""
    generation = {"renormalize_logits": True, "bad_words_ids": [[52], [7]]}
    checkpoint = Checkpoint.open(edited(name, generation=generation))
    model = checkpoint.model()
    oracle = np.load(FIXTURES / name / "oracle.npz")
    inputs = {"source_ids": oracle["source"], "target_ids": oracle["target"]}
    logits = np.asarray(model(inputs, training=False))
    assert logits[..., [52, 7]].max() < -900
    others = [token for token in range(53) if token not in (52, 7)]
    np.testing.assert_allclose(logits[..., others], oracle["logits"][..., others], atol=1e-4)


FAULTY_TENSORS = {
    "one more": ("t5", {"extra.weight": np.ones(2)}, "Received 1 others: extra.weight"),
    "one less": (
        "marian",
        {"model.encoder.layers.1.fc2.bias": None},
        "must hold the tensor 'model.encoder.layers.1.fc2.bias'",
    ),
    "another shape": (
        "marian",
        {"model.encoder.layers.1.fc2.bias": np.ones(3, "float32")},
        r"must have the shape that the settings say, \(12,\) here. Received: \(3,\)",
    ),
    "no copy": (
        "mbart",
        {"lm_head.weight": np.ones((53, 12), "float32")},
        "'lm_head.weight' must be the same tensor as 'model.shared.weight'",
    ),
    "other positions": (
        "m2m_100",
        {"model.encoder.embed_positions.weights": np.ones((9, 12), "float32")},
        "must hold sinusoidal positions",
    ),
}


@pytest.mark.parametrize("case", FAULTY_TENSORS)
def test_each_tensor_is_used_once_and_as_it_should(edited, case):
    name, tensors, message = FAULTY_TENSORS[case]
    with pytest.raises(ValueError, match=message):
        Checkpoint.open(edited(name, tensors=tensors)).model()


def test_copies_and_leftovers_of_old_files_are_known(edited, opened):
    table = read_arrays(FIXTURES / "t5")["shared.weight"]
    never_read = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    copies = {name: table for name in ("encoder.embed_tokens.weight", "lm_head.weight")}
    folder = edited("t5", tensors={never_read: np.ones((8, 3), "float32"), **copies})
    model, (_, other, _) = Checkpoint.open(folder).model(), opened("t5")
    for one, two in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(one, two)


def test_versions_and_positions_of_fairseq_are_known(edited):
    positions = np.asarray(sinusoidal_encoding(np.arange(9), 12, "split"))
    more = {"model.encoder.version": np.ones(1), "model.encoder.embed_positions.weights": positions}
    settings = {"adaptive_softmax_cutoff": None, "adaptive_softmax_dropout": 0}
    Checkpoint.open(edited("m2m_100", settings, tensors=more)).model()


@pytest.mark.parametrize("tied, sharing", [(True, "source_target"), (False, "none")])
def test_marian_with_an_output_of_its_own(edited, tied, sharing):
    name = "marian" if tied else "marian_two_vocabularies"
    table = np.ones((53, 12), "float32")
    folder = edited(name, {"tie_word_embeddings": False}, tensors={"lm_head.weight": table})
    model = Checkpoint.open(folder).model()
    assert model.config.embedding_sharing == sharing
    assert np.asarray(model.get_layer("output_embedding").embeddings).min() == 1
