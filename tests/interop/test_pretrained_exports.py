"""Each family on its way to a server and to a device: import, export, runner."""

import dataclasses

import pytest
from checkpoint_folders import GERMAN_TEXTS, marian_folder, mbart_folder, nllb_folder, t5_folder

import keras_transformer as kt
from keras_transformer.evaluation import saved_model_translate
from keras_transformer.export.litert.export_translator import export_litert
from keras_transformer.export.serving.saved_model import export_saved_model
from keras_transformer.interop import from_pretrained
from keras_transformer_runner import Runner

NLLB = dict(source_language="deu_Latn", target_language="eng_Latn")
MBART = dict(source_language="de_DE", target_language="en_XX")
INT8_TEXTS = GERMAN_TEXTS[1:]  # random weights have near-ties, which eight bits turn in the first
QUICK = ("marian", "t5_v1_1")  # one with its own decoder's start and one with relative positions
FAMILIES = {
    "marian": (marian_folder, {}),
    "nllb": (nllb_folder, NLLB),
    "mbart": (mbart_folder, MBART),
    "t5_v1_1": (lambda path: t5_folder(path, "t5_v1_1"), {}),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in QUICK else pytest.mark.release)
        for name in FAMILIES
    ],
)
def test_an_imported_model_answers_the_same_everywhere(name, tmp_path):
    make, languages = FAMILIES[name]
    pretrained = from_pretrained(make(tmp_path / name), **languages)
    search = dataclasses.replace(pretrained.search, beam_size=2, max_length=12)
    pretrained = dataclasses.replace(pretrained, search=search)
    run = kt.load_run(pretrained.save_run(tmp_path / "run", samples=GERMAN_TEXTS))
    expected = run.translator().translate(GERMAN_TEXTS)
    options = dict(
        samples=run.samples,
        strategy=run.strategy,
        target_tokenizer=run.target_tokenizer,
        max_source_length=32,
    )
    folder = tmp_path / "float32"
    report = export_litert(run.model, run.tokenizer, folder, **options)
    assert report.identical == report.samples == len(GERMAN_TEXTS)
    assert Runner(folder).translate(GERMAN_TEXTS) == expected
    folder = tmp_path / "int8"
    few = options | {"samples": INT8_TEXTS}
    report = export_litert(run.model, run.tokenizer, folder, mode="int8", **few)
    assert report.samples == len(INT8_TEXTS)
    assert len(Runner(folder).translate(INT8_TEXTS)) == len(INT8_TEXTS)
    folder = tmp_path / "served"
    report = export_saved_model(run.model, run.tokenizer, folder, **options)
    assert report.identical == report.samples == len(GERMAN_TEXTS)
    assert saved_model_translate(folder)(GERMAN_TEXTS) == expected
