"""Whole texts: every sentence and gap of the rule in docs/whole_texts.md, and nothing lost."""

import itertools
import random
import sys

import pytest
from odd_paragraphs import PARAGRAPHS, odd_texts

from keras_transformer_runner import sentences
from keras_transformer_runner.segmentation import WHITE
from keras_transformer_runner.sentences import (
    SplitText,
    check_language,
    split_text,
    translate_texts,
)


def joined(split):
    return "".join(itertools.chain(*zip(split.gaps, (*split.sentences, ""), strict=True)))


def test_texts_are_their_sentences_and_gaps():
    rng = random.Random(3)
    for text, language in [*PARAGRAPHS, *((text, "de") for text in odd_texts(rng, 200))]:
        for longest in (None, 30, 3, 1):
            fits = longest and (lambda sentence, longest=longest: len(sentence) <= longest)
            split = split_text(text, language, fits)
            assert joined(split) == text
            assert all(each and each == each.strip(WHITE) for each in split.sentences)
            assert not longest or all(map(fits, split.sentences))
            if longest is None or longest == 1:  # what is no sentence is white space
                assert not "".join(split.gaps).strip(WHITE)


@pytest.mark.parametrize("text, gaps", [("", [""]), (" \n\u2029\t", [" \n\u2029\t"])])
def test_a_text_without_sentences(text, gaps):
    assert split_text(text) == SplitText((), tuple(gaps))
    assert split_text(text).with_translations([]) == text


@pytest.mark.parametrize(
    "end", ["\n", "\r\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029", "\n \r\n"]
)
def test_a_sentence_ends_with_its_line(end):
    split = split_text(f"one two{end}three  ")
    assert split == SplitText(("one two", "three"), ("", end, "  "))


def test_what_older_versions_of_icu_split_goes_on(monkeypatch):
    pieces = ["Ja.", "; Nein. ", "\u037e Ja. ", "(Nein.)"]
    monkeypatch.setattr(sentences, "sentence_pieces", lambda line, locale: pieces)
    assert split_text("".join(pieces)).sentences == ("Ja.; Nein. \u037e Ja.", "(Nein.)")


def test_separators_of_ascii_are_text():
    assert split_text("\x1ca. B\x1f").sentences == ("\x1ca.", "B\x1f")


# A text with a bar where a sentence ends, by language.
SENTENCES = {
    "": [
        "Two dogs play.| A man sleeps!| Why?| No one knows… End",
        "Mr.| Smith, z.| Beispiel, is in.",
        "Hello.World.| Yes!No",
        '"Really?" he asked.| "Yes."| She left.',
        "See http://a.org/?q=1&r=2 now.| Or a.b.c.",
        "J. R. R. Tolkien.| Д. И. Менделеев.| It is 5 p.m. and the U.S.A. is big.",
        "It runs on XP.| Then it stops.",
        "1. Wash. Your hands".replace("Wash. ", "Wash.| "),
        "In 1999.| He left.| Am 3.| Oktober.| 1234. He".replace("1234. ", "1234.| "),
        "你好。|我很好！|“是吗？”|他说。|Abc。|「def。」| (5).",
        "Привет!|Как дела?| मैं ठीक हूँ।| आप?| ما هذا؟| نعم.| Ναι; Όχι.",
    ],
    "en": [
        "Dr. Wu et al. met Mrs. Lee on Mon. Jan. 5.| They left.",
        "No. 5 is alive.| No.| He is dead.| See Fig. 3 and pp. 5.| Fig.| It",
        "XDr.| Wu.| (Dr. Wu) and «Dr. Wu». dr.| Wu is not spelled alike.",
        "He came in.| In.| Joe.| Go.",
    ],
    "de": [
        "Das ist z. B. Herr Dr. Müller, d. h. Er.| Am 3. Oktober 1990.| Nun ja.",
        "Ludwig XIV. von Frankreich.| Im Jahr 1999.| Er kam um 3,50.| Ja.",
        "Nr. 5 bzw. Abs. 3 usw. Und so.| Nr.| Fünf.| Am 24.12. Weihnachten.",
    ],
    "fr": ["M. Dupont et Mme. Durand.| Au 3.| Non, p. ex. Oui av. J.-C. Fin."],
    "es": ["El Sr. Pérez vive en EE. UU. desde enero.| ¿Sí?| ¡No!"],
    "cs": ["Např. Ing. Novák, tzv. Karel IV. byl.| Dne 3. Ledna."],
    "ru": ["Это ул. Ленина и т. д. Потом им. Пушкина.| Да."],
    "el": ["Ναι;| Όχι.| Ίσως;"],
    "zh-Hans": ["你好。|Dr.| Wu"],
    "xx": ["Dr.| Wu"],
}


@pytest.mark.parametrize("language", SENTENCES)
def test_where_sentences_end(language):
    for marked in SENTENCES[language]:
        expected = [part.strip() for part in marked.split("|")]
        assert list(split_text(marked.replace("|", ""), language).sentences) == expected


@pytest.mark.parametrize("language", ["de", "de-AT", "DE_ch", "deu_Latn", "ger", "de-Latn-DE-1996"])
def test_names_of_a_language(language):
    assert split_text("Herr Dr. Wu.", language).sentences == ("Herr Dr. Wu.",)
    check_language(language)


@pytest.mark.parametrize("language", ["english", "d", "de AT", "de-", "../de", "de\n"])
def test_what_names_no_language(language):
    with pytest.raises(ValueError, match="`language` must be a BCP 47 tag such as 'de'.*Received"):
        split_text("a", language)


def test_wrong_types():
    with pytest.raises(TypeError, match="`text` must be a string. Received: bytes"):
        split_text(b"a")
    with pytest.raises(TypeError, match="`language` must be a string. Received: NoneType"):
        check_language(None)
    with pytest.raises(TypeError, match="`language` must be a string. Received: list"):
        split_text("a", ["de"])


def test_without_icu4py(monkeypatch):
    monkeypatch.setitem(sys.modules, "icu4py", None)
    with pytest.raises(ImportError, match="whole texts need icu4py, the extra `sentences`: pip"):
        check_language("de")


# --- Sentences that are too long -----------------------------------------------------------


def parts(text, longest):
    return list(split_text(text, fits=lambda sentence: len(sentence) <= longest).sentences)


def test_long_sentences_are_cut_at_the_best_place():
    text = "one two, three four five; six seven eight"  # the mark nearest to the middle
    assert parts(text, 30) == ["one two, three four five;", "six seven eight"]
    # A mark near an end is worse than a space in the middle.
    assert parts("a, bcdefg hijklmn opqrst", 20) == ["a, bcdefg", "hijklmn opqrst"]
    assert parts("ab cd ef", 5) == ["ab cd", "ef"]  # of two places the first, 5 as near as 2
    assert parts("one – two three four", 15) == ["one –", "two three four"]
    assert parts("a well-known e-mail", 10) == ["a", "well-known", "e-mail"]
    assert parts("这是一个很长的句子，它没有空格，可以分开", 12) == [
        "这是一个很长的句子，",
        "它没有空格，可以分开",
    ]
    assert parts("「一二三、」四五六七八", 8) == ["「一二三、」", "四五六七八"]
    assert parts('"one, two," three four', 14) == ['"one, two,"', "three four"]
    assert parts('一二三，"四五六七', 8) == ["一二三，", '"四五六七']
    assert parts("ab" * 8, 8) == ["ab" * 4] * 2
    # Clusters stay whole where they can: a letter with its accents, a family.
    assert parts("e\u0301" * 7, 8) == ["e\u0301" * 3, "e\u0301" * 4]
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert parts(family * 3, 12) == [family, family * 2]
    assert parts(family, 3) == [family[:2], family[2:]]


def test_a_character_that_is_too_long_stays():
    split = split_text("ab\U0001f600 c", fits=lambda text: len(text.encode()) <= 2)
    assert split == SplitText(("a", "b", "c"), ("", "", "\U0001f600 ", ""))
    assert split_text("ab. c", fits=lambda text: False) == SplitText((), ("ab. c",))


def test_long_texts_take_no_longer_than_short_ones():
    """Joined sentences and parts in their hundred thousands: a minute where a line is copied."""
    text = "a? b Mr. X. " * 20_000
    split = split_text(text, "en")
    assert len(split.sentences) == 1
    assert len(split_text(text, "en", lambda part: len(part) < 1000).sentences) == 256
    assert len(split_text(" " * 100_000 + "A. " * 20_000).sentences) == 1


# --- Translations --------------------------------------------------------------------------


def test_translations_of_sentences_without_space_between():
    split = split_text("你好。我是。 他。")
    assert split.gaps == ("", "", " ", "")
    assert split.with_translations(["Hi.", "I am.", "He."]) == "Hi. I am. He."
    assert split.with_translations(["Hi. ", "I am.", "He."]) == "Hi. I am. He."
    assert split.with_translations(["", "I am.", "He."]) == "I am. He."
    assert split.with_translations(["日本。", "です。", "He."]) == "日本。です。 He."
    assert split.with_translations(["A“", "「い", ""]) == "A“「い "
    assert split.with_translations(["A", "\uff22", ""]) == "A\uff22 "
    assert split.with_translations(["\U00020000", "a", "\uff21"]) == "\U00020000a \uff21"
    with pytest.raises(ValueError, match="`translations` must be as many.*Received: 2 for 3"):
        split.with_translations(["a", "b"])


def test_all_texts_are_translated_at_once():
    calls = []

    def translate(sentences):
        calls.append(sentences)
        return [each.upper() for each in sentences]

    found = translate_texts(["a b. C d.\n\n", "", "e, f"], translate, lambda s: len(s) < 4)
    assert found == ["A B. C D.\n\n", "", "E, F"]
    assert calls == [["a", "b.", "C", "d.", "e,", "f"]] or calls[0][0] in ("a b.", "a")
