"""What exports of language models and classifiers for devices refuse."""

import pytest
from toy_device_models import config_of, language_model_of

from keras_transformer import SequenceClassifier, Transformer
from keras_transformer.export import LANGUAGE_MODEL_SIGNATURES
from keras_transformer.export.litert.export_models import (
    export_classifier,
    export_language_model,
)


@pytest.mark.parametrize("run", [export_classifier, export_language_model])
def test_other_models_are_refused(run, tokenizer, tmp_path):
    model = Transformer(config_of(tokenizer))
    with pytest.raises(TypeError, match="`model` must be a .*Received: Transformer"):
        run(model, tokenizer, tmp_path / "device", samples=["a"])
    assert not (tmp_path / "device").exists()


def test_signatures_of_a_language_model(tokenizer, tmp_path):
    language_model = language_model_of(tokenizer)
    options = dict(samples=["a"], signatures=LANGUAGE_MODEL_SIGNATURES)
    with pytest.raises(ValueError, match=r"must be \('generate',\), or all of \('generate', 'deco"):
        names = ("decode_step",)
        export_language_model(
            language_model, tokenizer, tmp_path / "x", **{**options, "signatures": names}
        )
    with pytest.raises(ValueError, match="with the signature 'generate' alone"):
        options |= dict(lengths=(9,), lengths_only=True)
        export_language_model(language_model, tokenizer, tmp_path / "x", **options)
    assert not list(tmp_path.iterdir())


def test_labels_are_text_that_a_file_can_hold(tokenizer, tmp_path):
    model, labels = SequenceClassifier(config_of(tokenizer), 2), ["a", "\udcff"]
    with pytest.raises(ValueError, match="`labels` must be without lone surrogates. Received: "):
        export_classifier(model, tokenizer, tmp_path / "x", samples=["a"], labels=labels)
