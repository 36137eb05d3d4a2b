"""Model cards: what they say, that hubs read them, and that an edited one is kept."""

import dataclasses

import pytest
import yaml

from keras_transformer.config import TransformerConfig
from keras_transformer.experiment.data_sections import DataSection, SourceSection
from keras_transformer.export.card import write_artifact_card
from keras_transformer.export.parity import ParityReport
from keras_transformer.presets.card import Card
from keras_transformer.presets.card_file import is_edited, sealed, stated, write_card
from keras_transformer.training import run_card
from keras_transformer.training.run_card import languages_of, write_run_card

CONFIG = TransformerConfig(vocab_size=11, model_dim=6, num_heads=2, encoder_layers=1)


def front_matter(text):
    return yaml.safe_load(text.split("---\n")[1])


def test_hubs_read_the_front_matter():
    card = Card(name="A", license="cc-by-4.0", languages=("en", "no"), translates=True)
    assert front_matter(card.text(CONFIG, 5, "use")) == {
        "license": "cc-by-4.0",
        "language": ["en", "no"],  # `no` without quotes would be false
        "library_name": "keras",
        "pipeline_tag": "translation",
        "tags": ["keras_transformer"],
    }
    bare = front_matter(Card().text(CONFIG, 5, "use"))
    assert bare == {"library_name": "keras", "tags": ["keras_transformer"]}


def test_a_card_is_written_again_until_somebody_edits_it(tmp_path):
    path = tmp_path / "README.md"
    assert not is_edited(path)
    assert write_card(tmp_path, "one\n") and write_card(tmp_path, "two\n")
    assert path.read_text().startswith("two\n\n<!-- Written by keras_transformer;")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))  # as Git may check it out
    assert write_card(tmp_path, "three\n")
    written = path.read_text()
    for edited in ("mine", written + "more\n", written.replace("three", "3"), written[:-20], ""):
        path.write_text(edited)
        assert is_edited(path) and not write_card(tmp_path, "four\n")
        assert path.read_text() == edited
    path.write_bytes(b"\xff")
    assert not write_card(tmp_path, "four\n") and path.read_bytes() == b"\xff"


@pytest.mark.parametrize(
    ("front", "found"),
    [
        ("license: mit\nlanguage: de\n", ("mit", ("de",))),
        ("license: \"mit\"\nlanguage:\n- en\n- 'no'\nx: 1\n", ("mit", ("en", "no"))),
        ("license:\n- apache-2.0\n- mit\nlanguage: [en, fr]\n", ("apache-2.0", ("en", "fr"))),
        ("# license: fill in\nlanguage:\n", (None, ())),
        ("license: mit  # of the weights\nlanguage: [en, 'no']  # both\n", ("mit", ("en", "no"))),
        ("license: 'it''s mine, # 1'\nlanguage:\n  - \"en\" # x\n", ("it's mine, # 1", ("en",))),
    ],
)
def test_what_a_card_states(front, found, tmp_path):
    (tmp_path / "README.md").write_text(f"---\n{front}---\nlicense: other\n")
    assert stated(tmp_path) == found


@pytest.mark.parametrize(
    "words", ["CC BY 4.0, not for sale", 'its "own" \\ [1]', "von Jörg", "see # 3", "it's"]
)
def test_a_licence_in_words_comes_back_whole(words, tmp_path):
    """An artefact's card must not state another one than its run's."""
    write_card(tmp_path, Card(license=words, languages=("en", "de")).text(CONFIG, 5, "use"))
    assert stated(tmp_path) == (words, ("en", "de"))


def test_what_no_card_states(tmp_path):
    assert stated(tmp_path) == (None, ())


@pytest.mark.parametrize(
    ("section", "languages"),
    [
        (DataSection(source="a/train.en.gz", target="b/train.de.gz"), ("en", "de")),
        (DataSection(source="x.jsonl", source_key="de", target_key="fr"), ("de", "fr")),
        (DataSection(source="train.src", target="train.tgt"), ()),
        (DataSection(source="train.en", target="other.en"), ()),
        (DataSection(tsv="pairs.tsv"), ()),
        (
            DataSection(
                sources=(
                    SourceSection(source="a.en", target="a.de"),
                    SourceSection(source="b.en", target="b.fr"),
                )
            ),
            (),
        ),
    ],
)
def test_languages_are_those_that_files_and_keys_are_called_by(section, languages):
    assert languages_of(section) == languages


@dataclasses.dataclass
class Model:
    config: TransformerConfig = CONFIG

    def count_params(self):
        return 1234


def test_a_card_of_an_artefact_has_its_parity_and_keeps_what_was_edited(tmp_path):
    report = ParityReport(
        *("litert", "int8", 8, 7, 0.975, 0.8, 5678, 0.002, ("ADD",), None),
        bleu=30.25,
        python_bleu=30.5,
        runtime="ai-edge-litert 2",
    )
    target, made = tmp_path / "device", tmp_path / "made"
    target.mkdir()
    made.mkdir()
    origin = Card(name="dates", languages=("en", "de"), translates=True)
    for earlier, kept in ((None, False), (sealed("old"), False), ("Mine.", True)):
        if earlier is not None:
            (target / "README.md").write_text(earlier)
        facts = {"signatures": "translate"}
        write_artifact_card(made, target, origin, Model(), report, facts)
        text = (made / "README.md").read_text()
        assert (text == "Mine.") is kept
        if not kept:
            assert front_matter(text)["library_name"] == "litert"
            for line in (
                "| number format | int8 |",
                "| bytes, without this card | 5,678 |",
                "| signatures | translate |",
                "| samples with the same text | 7 of 8 |",
                "| tokens | 97.50%, at least 80% promised |",
                "| BLEU | 30.25, in Python 30.50 |",
            ):
                assert line in text.splitlines()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("every line must be a JSON object"), "every line must be a JSON object\n"),
        (KeyError("epoch"), "KeyError"),
    ],
)
def test_no_card_is_worth_a_model(error, message, tmp_path, monkeypatch, capsys):
    def damaged(*_):
        raise error

    monkeypatch.setattr(run_card, "_text", damaged)
    write_run_card(tmp_path, None, None, None, None)
    assert capsys.readouterr().err.startswith(f"no model card: {message}")
    assert not list(tmp_path.iterdir())
