"""Folders of a model, and of a translator: what they hold, and who reads them."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_transformer.command import cli
from keras_transformer.config import TransformerConfig
from keras_transformer.decoding import BeamSearch, Ensemble, Greedy, Sampling
from keras_transformer.experiment import Experiment, Run, load_run
from keras_transformer.experiment.figures import best_figures
from keras_transformer.experiment.sections import DecodingSection
from keras_transformer.experiment.start import Start
from keras_transformer.models import LanguageModel, Transformer
from keras_transformer.translation import Translator
from keras_transformer.translation.presets import _OF_ANSWERS
from keras_transformer_runner.tokenizers import BytesTokenizer, CharacterTokenizer

SIZES = dict(model_dim=6, num_heads=2, encoder_layers=1, decoder_layers=1, intermediate_dim=7)
JOINT = CharacterTokenizer("abc")
TARGET = BytesTokenizer()


def make_model(kind=Transformer, **fields):
    keras.utils.set_random_seed(1)
    return kind(TransformerConfig(**SIZES, **{"vocab_size": JOINT.vocab_size} | fields))


def assert_same_weights(one, other):
    for weight, same in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, same)


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """A translator with a vocabulary a side, and the folder that it has written."""
    model = make_model(embedding_sharing="none", target_vocab_size=TARGET.vocab_size)
    search = BeamSearch(beam_size=3, max_length=5, length_penalty=0.8)
    translator = Translator(model, JOINT, search, target_tokenizer=TARGET, max_source_length=2000)
    folder = tmp_path_factory.mktemp("presets") / "preset"
    translator.save_to_preset(
        folder,
        license="CC-BY-4.0",
        data='Pairs of "ab | ba"\nand more',
        figures={"BLEU": 41.205, "signature": "nrefs:1|case:mixed"},
        samples=("ab", "c\x85a"),
    )
    return translator, folder


@pytest.mark.smoke
def test_a_translator_comes_back(preset):
    translator, folder = preset
    again = Translator.from_preset(folder)
    assert_same_weights(again.model, translator.model)
    assert again.strategy == translator.strategy and again.max_source_length == 2000
    assert again.tokenizer.pieces == JOINT.pieces
    assert again.target_tokenizer.pieces == TARGET.pieces
    assert again.translate(["ab", "", "cab"]) == translator.translate(["ab", "", "cab"])
    other = Translator.from_preset(folder, strategy=Greedy(max_length=2), batch_size=3)
    assert (other.strategy, other.batch_size) == (Greedy(max_length=2), 3)


def test_what_a_preset_holds(preset):
    _, folder = preset
    names = ["README.md", "config.json", "experiment.toml", "model.keras", "run.json"]
    names += ["samples.txt", "target_tokenizer.json", "tokenizer.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    card = (folder / "README.md").read_text()
    assert card.startswith('---\nlicense: "CC-BY-4.0"\nlibrary_name: keras\n')
    for line in (
        f"| parameters | {preset[0].model.count_params():,} |",
        "| licence | CC-BY-4.0 |",
        '| training data | Pairs of "ab \\| ba" and more |',
        "| BLEU | 41.2 |",
        "| signature | nrefs:1\\|case:mixed |",
        "| model_dim | 6 |",
        "| embedding_sharing | none |",
    ):
        assert line in card.splitlines()
    assert "search | BeamSearch(" in card and "kt.Translator.from_preset(FOLDER)" in card
    assert "| dropout |" not in card  # is as it always is


def test_a_preset_is_like_a_run(preset, capsys):
    translator, folder = preset
    (folder / "README.md").write_text("Mine.")  # which everyone may go on writing
    run = load_run(folder)
    assert run.samples == ("ab", "c a") and run.strategy == translator.strategy
    assert_same_weights(run.model, translator.model)
    assert_same_weights(Transformer.from_preset(folder), translator.model)
    assert Start.open(folder).tokenizers.target.pieces == TARGET.pieces
    capsys.readouterr()
    assert cli.main(["translate", str(folder), "ab"]) == 0
    assert capsys.readouterr().out.splitlines() == translator.translate(["ab"])


def test_a_run_becomes_a_preset(tmp_path, capsys):
    metrics = tmp_path / "metrics.jsonl"
    records = [
        {"epoch": 1, "val_loss": 3.0, "val_bleu": 7.5, "val_chrf": float("nan")},
        {"epoch": 2, "val_loss": 3.5, "val_bleu": 8.25},
        ["no record"],
        {"epoch": 3, "val_loss": -(10**400)},
    ]
    metrics.write_text("".join(f"{json.dumps(record)}\n" for record in records) + "{\n")
    figures = best_figures(metrics)
    assert figures == {
        "validation loss": "3 after epoch 1",
        "validation BLEU, greedy": "8.25 after epoch 2",
    }
    assert best_figures(tmp_path / "none") == {}
    decoding = {"strategy": "sampling", "temperature": 0.5, "seed": 3}
    experiment = Experiment.from_dict(
        {"data": {"tsv": "/home/me/x"}, "training": {"max_epochs": 1}, "decoding": decoding}
    )
    model = make_model()
    run = Run(model, JOINT, JOINT, model.config, experiment, ("ab",), figures)
    run.save_to_preset(tmp_path / "preset", license="MIT", data="A corpus.")
    assert load_run(tmp_path / "preset").strategy == Sampling(temperature=0.5, seed=3)
    card = (tmp_path / "preset" / "README.md").read_text()
    assert "| validation BLEU, greedy | 8.25 after epoch 2 |" in card and "| A corpus. |" in card
    assert "/home/me" not in (tmp_path / "preset" / "experiment.toml").read_text()


def test_models_of_every_kind(tmp_path):
    model = make_model(LanguageModel)
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    model.save_to_preset(tmp_path / "preset")
    again = LanguageModel.from_preset(tmp_path / "preset")
    assert_same_weights(again, model)
    assert not again.compiled and model.compiled
    card = (tmp_path / "preset" / "README.md").read_text()
    assert "# LanguageModel" in card and "| licence | not stated: fill it in" in card
    assert "\nlicense:" not in card and "## Figures" not in card
    message = r"a preset for `Transformer.from_preset` must hold a Transformer. Received: Language"
    with pytest.raises(ValueError, match=message):
        Transformer.from_preset(tmp_path / "preset")


def test_a_model_of_mixed_precision_is_loaded_in_float32(tmp_path):
    model = Transformer(make_model().config, dtype="mixed_bfloat16")
    model.save_to_preset(tmp_path / "preset")
    again = Transformer.from_preset(tmp_path / "preset")
    assert again.dtype_policy.name == "float32"
    assert_same_weights(again, model)


def test_folders_that_are_refused(tmp_path):
    model = make_model()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("text")
    for save in (model.save_to_preset, Translator(model, JOINT).save_to_preset):
        with pytest.raises(FileExistsError, match="a preset needs a new folder. Received: .*mine"):
            save(tmp_path / "mine")
    with pytest.raises(FileNotFoundError, match="a preset must hold config.json.*not exist"):
        Transformer.from_preset(tmp_path / "none")
    with pytest.raises(TypeError, match="must have a `Transformer`. Received: Ensemble"):
        Translator(Ensemble([model, model]), JOINT).save_to_preset(tmp_path / "new")
    model.save_to_preset(tmp_path / "model")
    with pytest.raises(FileNotFoundError, match="a preset for a translator must hold its tokenize"):
        Translator.from_preset(tmp_path / "model")
    with open(tmp_path / "model" / "model.keras", "ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match="model.keras must be the file that run.json was written"):
        Transformer.from_preset(tmp_path / "model")
    (tmp_path / "model" / "model.keras").unlink()
    with pytest.raises(FileNotFoundError, match="a preset must hold model.keras, as `save_to_pre"):
        Transformer.from_preset(tmp_path / "model")


@pytest.mark.parametrize("search", [Greedy, BeamSearch, Sampling])
def test_every_option_of_a_search_has_a_key(search):
    """So that what a preset says of its search is read as `[decoding]` of a run is."""
    options = {field.name for field in dataclasses.fields(search)} - {*_OF_ANSWERS}
    assert options <= {field.name for field in dataclasses.fields(DecodingSection)}


def test_a_preset_keeps_its_own_limit_of_the_source(tmp_path):
    translator = Translator(make_model(), JOINT, max_source_length=5)
    translator.save_to_preset(tmp_path / "preset")
    again = Translator.from_preset(tmp_path / "preset")
    assert again.max_source_length == load_run(tmp_path / "preset").max_source_length == 5


def test_a_search_of_ones_own_has_no_key(tmp_path):
    class Own(Greedy):
        pass

    with pytest.raises(TypeError, match="the search of a preset must be one of .*Received: Own"):
        Translator(make_model(), JOINT, Own()).save_to_preset(tmp_path / "preset")
    assert not list(tmp_path.iterdir())


def test_what_a_search_returns_beside_text_is_not_kept(tmp_path):
    search = BeamSearch(beam_size=3, n_best=2, token_log_probs=True)
    Translator(make_model(), JOINT, search).save_to_preset(tmp_path / "preset")
    assert load_run(tmp_path / "preset").strategy == BeamSearch(beam_size=3)
    assert Translator.from_preset(tmp_path / "preset").strategy == BeamSearch(beam_size=3)


def test_a_preset_that_cannot_be_written_is_not_left(tmp_path, monkeypatch):
    def fail(self, path):
        raise OSError("no space left")

    monkeypatch.setattr(CharacterTokenizer, "save", fail)
    with pytest.raises(OSError, match="no space left"):
        Translator(make_model(), JOINT).save_to_preset(tmp_path / "preset")
    assert not list(tmp_path.iterdir())
