"""Names of languages, and the language of a text among those served."""

import doctest

import pytest

from keras_transformer_runner.server import languages
from keras_transformer_runner.server.languages import Detector, language_name

TEXTS = {
    "en": "A man in a blue shirt is standing on a ladder cleaning a window.",
    "de": "Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster.",
    "fr": "Un homme en chemise bleue est sur une échelle et nettoie une fenêtre.",
}


@pytest.mark.parametrize(
    "code, name",
    [
        *[("en", "English"), ("pt-BR", "Brazilian Portuguese"), ("pt_BR", "Brazilian Portuguese")],
        *[("zh-Hans", "Simplified Chinese"), ("deu_Latn", "German"), ("en-x1", "en-x1")],
        *[("xx", "xx"), ("zt", "zt"), ("not a tag", "not a tag")],
    ],
)
def test_names(code, name):
    assert doctest.testmod(languages) == (0, 2)
    assert language_name(code) == name


def test_the_language_of_a_text():
    detector = Detector(["de", "en", "fr"])
    for code, text in TEXTS.items():
        ranked = detector.ranked(text)
        assert ranked[0]["language"] == code and ranked[0]["confidence"] > 90
        assert sum(each["confidence"] for each in ranked) == pytest.approx(100, abs=0.2)
        assert {each["language"] for each in ranked} == set(TEXTS)


def test_only_what_is_served_is_found():
    assert Detector(["de"]).ranked(TEXTS["fr"]) == [{"confidence": 100.0, "language": "de"}]
    assert Detector(["xx"]).ranked(TEXTS["fr"]) == []
    ranked = Detector(["xx", "EN", "de-CH", "de"]).ranked(TEXTS["de"])
    assert [each["language"] for each in ranked] == ["de-CH", "EN"]
