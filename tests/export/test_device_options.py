"""Every option of encoder-only and decoder-only models through the device export."""

import pytest
from toy_device_models import CLASSES, TEXTS, config_of, language_model_of
from toy_model import randomise
from toy_options import EXPORTED, OPTIONS, randomise_all

from keras_transformer import Greedy, LanguageModel, TokenClassifier
from keras_transformer.export.litert.export_models import (
    export_classifier,
    export_language_model,
)
from keras_transformer_runner import Runner

# Every option is one of the Transformer's tests as well.
QUICK = "relative, window, pre, batch"
SLOW = ("like Llama",)


def marks(name):
    return [] if name == QUICK else pytest.mark.slow if name in SLOW else pytest.mark.release


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in EXPORTED])
def test_every_option_exports(name, tokenizer, tmp_path):
    changes = dict(OPTIONS[name])
    for side in ("encoder", "decoder"):
        if f"{side}_tied_layers" not in changes:
            changes[f"{side}_layers"] = 1
    for key in ("vocab_size", "target_vocab_size", "pad_id", "unk_id", "bos_id", "eos_id"):
        changes.pop(key, None)  # the tokenizer's
    changes.pop("decoder_recurrence", None)  # an encoder-decoder's
    texts = ["abc", "b a d", "h"]
    config = config_of(tokenizer, **changes)
    model = randomise_all(TokenClassifier(config, CLASSES), 5)
    report = export_classifier(model, tokenizer, tmp_path / "classes", samples=texts)
    assert report.identical == len(texts)
    model = language_model_of(tokenizer, **changes)
    path, strategy = tmp_path / "generates", Greedy(extra_length=5)
    report = export_language_model(model, tokenizer, path, samples=texts, strategy=strategy)
    assert report.identical == len(texts)


@pytest.mark.slow
def test_learned_positions_end_the_text_and_refuse_a_longer_prompt(tokenizer, tmp_path):
    model = language_model_of(tokenizer, positions="learned", max_positions=11)
    path, texts = tmp_path / "device", ["abc", "abcdefgh"]
    report = export_language_model(model, tokenizer, path, samples=texts)
    assert report.identical == 2
    runner = Runner(path)
    assert all(len(runner.generate_ids(runner.encode(text))) <= 11 for text in texts)
    with pytest.raises(ValueError, match="at most `max_source_length` = 11 tokens. Received: "):
        runner.generate(["abcdefgh" * 3])


@pytest.mark.slow
def test_untied_and_int8(tokenizer, tmp_path):
    model = language_model_of(tokenizer, embedding_sharing="none", decoder_layers=1)
    for mode in ("float32", "int8"):
        path = tmp_path / mode
        report = export_language_model(
            model, tokenizer, path, samples=TEXTS, mode=mode, strategy=Greedy(extra_length=5)
        )
        assert report.mode == mode and Runner(path).generate(TEXTS[:1])[0].startswith("abc")


@pytest.mark.slow
def test_other_dtypes_are_exported_as_float32(tokenizer, tmp_path):
    for kind, arguments in ((TokenClassifier, (3,)), (LanguageModel, ())):
        model = randomise(kind(config_of(tokenizer), *arguments, dtype="mixed_bfloat16"), 2)
        run = export_classifier if arguments else export_language_model
        report = run(model, tokenizer, tmp_path / kind.__name__, samples=TEXTS)
        assert report.identical == len(TEXTS)
