"""A folder as people have it becomes a run that all commands take, and says what it has lost."""

import dataclasses
import json

import numpy as np
import pytest
from checkpoint_folders import (
    GERMAN_TEXTS,
    byt5_folder,
    marian_folder,
    mbart_folder,
    nllb_folder,
    t5_folder,
)

import keras_transformer as kt
from keras_transformer.interop import from_pretrained
from keras_transformer.interop.pretrained import Pretrained, Report
from keras_transformer.presets.card_file import stated

FOLDERS = {
    "marian": (marian_folder, {}),
    "nllb": (nllb_folder, dict(source_language="deu_Latn", target_language="eng_Latn")),
    "mbart": (mbart_folder, dict(source_language="de_DE", target_language="en_XX")),
    "t5": (t5_folder, {}),
    "byt5": (byt5_folder, {}),
}
CARD = """---
language: de
license: cc-by-4.0
---
# A model
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """By name: the folder, and the `Pretrained` that comes of it."""
    root, found = tmp_path_factory.mktemp("pretrained"), {}

    def get(name):
        if name not in found:
            make, languages = FOLDERS[name]
            folder = make(root / name)
            (folder / "README.md").write_text(CARD)
            found[name] = folder, from_pretrained(folder, **languages)
        return found[name]

    return get


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", FOLDERS)
def test_an_imported_run_is_a_run(made, name, tmp_path):
    _, pretrained = made(name)
    run = kt.load_run(pretrained.save_run(tmp_path / "run"))
    assert run.strategy == pretrained.search
    assert run.config == pretrained.model.config
    for ours, theirs in zip(run.model.weights, pretrained.model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    both = (run.tokenizer, run.target_tokenizer)
    for ours, theirs in zip(both, pretrained.tokenizers, strict=True):
        assert (ours.fingerprint, ours.prefix_ids) == (theirs.fingerprint, theirs.prefix_ids)
    assert len(run.samples) > 3 and all(run.tokenizer.encode(text) for text in run.samples)
    card = (tmp_path / "run" / "README.md").read_text()
    assert "imported" in card and "cc-by-4.0" in card and "not taken over:" in card


def test_an_imported_run_translates_as_the_model_does(made, tmp_path):
    _, pretrained = made("nllb")
    short = dataclasses.replace(pretrained, search=kt.Greedy(max_length=7))
    expected = short.translator().translate(GERMAN_TEXTS)
    assert any(expected)
    run = kt.load_run(short.save_run(tmp_path / "run", samples=GERMAN_TEXTS))
    assert run.samples == tuple(GERMAN_TEXTS)
    assert run.translator().translate(GERMAN_TEXTS) == expected


def test_languages_stand_before_texts(made):
    _, pretrained = made("nllb")
    source, target = pretrained.tokenizers
    assert (source.prefix_ids, target.prefix_ids) == ((49,), (50,))
    assert source.encode("ein Hund")[0] == 49
    short = dataclasses.replace(pretrained, search=kt.Greedy(max_length=3))
    (found,) = short.translator().translate_with_details(["ein Hund"])
    assert found[0].ids[0] == 50


def test_a_language_that_there_is_not(made):
    folder, _ = made("nllb")
    with pytest.raises(ValueError, match="`target_language`.*'eng_Latin'"):
        from_pretrained(folder, source_language="deu_Latn", target_language="eng_Latin")


def test_a_first_token_of_the_target_is_its_prefix(tmp_path):
    folder = t5_folder(tmp_path / "t5")
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"forced_bos_token_id": 7}))
    assert from_pretrained(folder).target_tokenizer.prefix_ids == (7,)


def test_the_report_says_what_was_taken_and_what_not(made):
    _, pretrained = made("marian")
    text = str(pretrained.report)
    for part in (
        "60 tensors, each used once",
        "search: length_normalization = 'power'",
        "max_position_embeddings = 64",
        "cached decoding and full passes differ by",
        "the source's tokenizer: ",
    ):
        assert part in text
    assert pretrained.licence == "cc-by-4.0"
    assert pretrained.origin == "marian (marian)"


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ('---\nlicense: "mit"\n---\n', "mit"),
        ("---\nlicense:\n- apache-2.0\n- mit\n---\n", "apache-2.0"),
        ("---\nlanguage: de\n---\nlicense: see the file\n", None),
        ("no front matter\nlicense: mit\n", None),
    ],
)
def test_a_licence_is_that_of_the_front_matter(card, licence, tmp_path):
    (tmp_path / "README.md").write_text(card)
    assert stated(tmp_path)[0] == licence


def test_what_a_report_says_of_settings_of_training_and_tasks(tmp_path):
    folder = nllb_folder(tmp_path / "nllb")
    path = folder / "config.json"
    more = {"encoder_layerdrop": 0.05, "task_specific_params": {"translation_en_to_de": {}}}
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    options = dict(source_language="deu_Latn", target_language="eng_Latn")
    left = "\n".join(from_pretrained(folder, **options).report.left)
    assert "encoder_layerdrop = 0.05" in left and "translation_en_to_de" in left


def test_a_folder_of_tokenizers_that_do_not_fit(tmp_path):
    folder = marian_folder(tmp_path / "marian")
    path = folder / "vocab.json"
    swapped = {0: 0, 1: 2, 2: 1}  # <unk> and the first piece
    ids = {
        piece: swapped.get(token, token) for piece, token in json.loads(path.read_text()).items()
    }
    path.write_text(json.dumps(ids))
    with pytest.raises(ValueError, match="the tokenizers must have the ids of the model"):
        from_pretrained(folder)


def test_a_run_needs_a_new_folder(made, tmp_path):
    _, pretrained = made("t5")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="needs a new folder"):
        pretrained.save_run(tmp_path)


def test_what_is_no_pretrained_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="which is no folder"):
        from_pretrained(tmp_path / "no")
    with pytest.raises(FileNotFoundError, match="which holds neither"):
        from_pretrained(tmp_path)


def test_weights_that_give_nothing_are_an_error(made):
    _, pretrained = made("t5")
    model = pretrained.model.__class__.from_config(pretrained.model.get_config())
    model.get_layer("decoder_norm").scale.assign(np.full(12, np.nan))
    with pytest.raises(ValueError, match="the weights must give finite logits"):
        dataclasses.replace(pretrained, model=model).checked()


def test_a_cache_that_gives_other_logits_is_an_error(made):
    _, pretrained = made("t5")
    with pytest.raises(ValueError, match="cached decoding must give the logits of a full pass"):
        pretrained.checked(tolerance=-1)


def test_an_empty_report_says_nothing():
    assert str(Report()) == ""
    assert str(Report(checks=("all",))) == "checked:\n  all"


def test_a_run_of_characters_has_samples_of_its_own_letters(tmp_path):
    tokenizer = kt.BytesTokenizer()
    config = kt.TransformerConfig.preset(
        "tiny", vocab_size=tokenizer.vocab_size, **tokenizer.special_ids._asdict()
    )
    pretrained = Pretrained(kt.Transformer(config), tokenizer, tokenizer, kt.Greedy())
    samples = kt.load_run(pretrained.save_run(tmp_path / "run")).samples
    assert len(samples) > 3 and all(text.isascii() and text.isprintable() for text in samples)
