"""What models of many languages need, in all that an export writes.

A prefix of the tokenizer, such as a language, on both sides; a BOS that is EOS, as in M2M-100; EOS
forced at the limit; and the beams of Hugging Face.
"""

import io
import json

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from page import SCRIPTS, WEB, node_json
from toy_model import talkative_toy

from keras_transformer import BeamSearch, Greedy, Translator
from keras_transformer.export import export_litert, export_saved_model
from keras_transformer.export.litert.graphs import SIGNATURES
from keras_transformer.export.serving.graphs import ServingModule
from keras_transformer_runner import Runner
from keras_transformer_runner.folder import checksums
from keras_transformer_runner.integrity import sealed
from keras_transformer_runner.protobuf import bytes_field
from keras_transformer_runner.tokenizers import SentencePieceTokenizer

TEXTS = ["ab", "bac", "", "caba", "abcab", "q c <de> </s>"]
TARGETS = ["ca", "", "", "b", "aaa", "c"]
_TRAINER_SPEC, _BOS_PIECE = 2, 46  # fields of SentencePiece's model


@pytest.fixture(scope="module")
def tokenizers():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e f", "a <de> </s>"] * 9),
        model_writer=model,
        **dict(model_type="char", vocab_size=30, hard_vocab_limit=False, minloglevel=2),
        **dict(pad_id=0, unk_id=1, bos_id=2, eos_id=3, control_symbols=["<en>", "<de>", "<x>"]),
    )
    # Of two such fields protobuf takes the second.
    content = model.getvalue() + bytes_field(_TRAINER_SPEC, bytes_field(_BOS_PIECE, b"</s>"))
    tokenizer = SentencePieceTokenizer(content)
    assert tokenizer.bos_id == tokenizer.eos_id == 3
    return tokenizer.with_prefix(["<en>"]), tokenizer.with_prefix(["<de>", "<x>"])


GREEDY = Greedy(extra_length=5, scores=True, forced_eos=True)


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
    options = dict(samples=TEXTS, strategy=GREEDY)
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
    runner, translator = Runner(device), live(model, tokenizers, GREEDY)
    source, target = tokenizers
    expected = translator.translate(TEXTS)
    assert runner.translate(TEXTS) == expected == ["".join(translator.stream(x)) for x in TEXTS]
    assert ["".join(runner.stream(text)) for text in TEXTS] == expected
    assert runner.encode("ab") == [*source.prefix_ids, *source.with_prefix(()).encode("ab"), 3]
    assert tuple(runner.translate_ids(runner.encode("ab"))[:2]) == target.prefix_ids
    details = translator.translate_with_details(TEXTS)
    same_details(runner.translate_with_details(TEXTS), details)
    limits = [len(runner.encode(text)) + 5 for text in TEXTS]
    at_limit = [len(one.ids) == limit for (one,), limit in zip(details, limits, strict=True)]
    assert any(at_limit) and all(one.ids[-1:] in ((), (3,)) for (one,) in details)


def test_the_metadata_names_the_prefixes(device, model, tokenizers, tmp_path):
    metadata = json.loads((device / "metadata.json").read_text())
    assert metadata["source_prefix_ids"] == list(tokenizers[0].prefix_ids)
    assert metadata["target_prefix_ids"] == list(tokenizers[1].prefix_ids)
    request = [dict(kind="folders", folders=[str(device)])]
    (((*names,),),) = node_json(SCRIPTS / "modules.mjs", WEB, request=request)
    assert {"target_tokenizer.model", "tokenizer.model"} < set(names)
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
    strategy = BeamSearch(
        **dict(beam_size=3, n_best=2, extra_length=5, candidates="joint", length_penalty=1.0),
        **dict(length_normalization="power", stopping="current_length", forced_eos=True),
    )
    options = dict(samples=TEXTS, strategy=strategy, target_tokenizer=target)
    report = export_litert(model, source, tmp_path / "device", **options)
    assert report.identical == len(TEXTS)
    expected = live(model, tokenizers, strategy).translate_with_details(TEXTS)
    same_details(Runner(tmp_path / "device").translate_with_details(TEXTS), expected)


@pytest.mark.slow
def test_a_server_gives_what_python_gives(model, tokenizers):
    translator = live(model, tokenizers, GREEDY)
    check_signatures(ServingModule(translator).signatures, translator)


def check_signatures(run, translator):
    target = translator.target_tokenizer
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
    scored = run["score"](text=tf.constant(TEXTS), target=tf.constant(TARGETS))
    python = translator.score(TEXTS, TARGETS)
    np.testing.assert_allclose(scored["score"], [x.score for x in python], rtol=1e-4, atol=1e-5)
    for row, values, one in zip(
        scored["target_ids"].numpy(), scored["token_log_probs"].numpy(), python, strict=True
    ):
        assert tuple(row[: len(one.ids)]) == one.ids
        np.testing.assert_allclose(values[: len(one.ids)], one.token_log_probs, atol=1e-4)


@pytest.mark.slow
def test_a_saved_model_gives_what_python_gives(model, tokenizers, tmp_path):
    source, target = tokenizers
    options = dict(samples=TEXTS, strategy=GREEDY, target_tokenizer=target, warmup_batch_sizes=())
    report = export_saved_model(model, source, tmp_path / "1", **options)
    assert report.identical == len(TEXTS)
    description = json.loads((tmp_path / "1" / "assets.extra" / "serving.json").read_text())
    assert description["source_prefix_ids"] == list(source.prefix_ids)
    assert description["target_prefix_ids"] == list(target.prefix_ids)
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    check_signatures(loaded.signatures, live(model, tokenizers, GREEDY))
