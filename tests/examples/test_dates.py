"""The quickstart's corpus: seeded, without leaks, and never two answers for one text."""

import datetime
import itertools
import re
import subprocess
import sys

import dates
import pytest
from babel.dates import format_date


def test_pairs_are_distinct_seeded_and_cover_the_century():
    pairs = dates.make_pairs(5000, seed=1)
    assert len(dict(pairs)) == len(pairs) == 5000
    assert pairs == dates.make_pairs(5000, seed=1)
    assert pairs != dates.make_pairs(5000, seed=2)
    days = [datetime.date.fromisoformat(iso) for _, iso in pairs]
    assert all(dates.FIRST <= day <= dates.LAST for day in days)
    assert {day.year for day in days} == set(range(1970, 2070))
    assert all(text == text.strip() and "\n" not in text and "\t" not in text for text, _ in pairs)


@pytest.mark.parametrize("seed", [0, 7])
def test_split_shares_no_text_and_no_day(seed):
    train, test = dates.split(seed, train=30_000, test=1000)
    assert (len(train), len(test)) == (30_000, 1000)
    assert not dict(train).keys() & dict(test).keys()
    assert not {iso for _, iso in train} & {iso for _, iso in test}
    assert len({iso for _, iso in test}) == 1000


def test_the_script_prints_pairs_as_tsv():
    command = [sys.executable, dates.__file__, "7"]
    printed = subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout
    assert [tuple(line.split("\t")) for line in printed.splitlines()] == dates.make_pairs(7, 0)


def collision_prone_days():
    """Days whose year, month and day can be taken for each other."""
    values = (1, 2, 3, 11, 12, 21)
    for year, month, day in itertools.product(values, range(1, 13), values):
        yield datetime.date(2000 + year, month, day)


def every_text(day):
    """Every text that the day can turn into, but for mixtures of the ways to type it."""
    for locale in dates.LOCALES:
        for pattern in {*dates._numeric(locale), *dates.COMMON}:
            yield dates._render(day, pattern, locale)
        for pattern in dates._worded(locale):
            text = dates._render(day, pattern, locale)
            yield text
            bare = dates._without_punctuation(text)
            yield bare
            yield dates._without_accents(dates._recase(bare, "lower", locale))


def conflicts():
    meaning = {}
    for day in collision_prone_days():
        for text in every_text(day):
            if meaning.setdefault(text, day) != day:
                yield text


def test_no_text_means_two_dates():
    assert next(conflicts(), None) is None


def test_the_check_sees_texts_that_mean_two_dates(monkeypatch):
    monkeypatch.setattr(dates, "_orders", lambda: dict.fromkeys(real_orders, {"dMy"}))
    assert next(conflicts(), None) is not None


real_orders = dates._orders()


@pytest.mark.parametrize(
    "pattern, locale, text",
    [
        ("d/M/yy", "en_GB", "en_GB 3/4/21"),
        ("M/d/yy", "en_US", "en_US 4/3/21"),
        ("dd-MM-y", "nl", "nl 03-04-2021"),
        ("yy. M. d.", "ko", "ko 21. 4. 3."),
        ("E, d/M/y", "es", "es sáb, 3/4/2021"),
        ("d.M.y", "de", "3.4.2021"),
        ("y-MM-dd", "sv", "2021-04-03"),
        ("yMMdd", "en_US", "20210403"),
        ("y. MM. dd.", "hu", "2021. 04. 03."),
        ("d MMM yy", "en_GB", "3 Apr 21"),
        ("d'# of' MMMM y", "en_GB", "3rd of April 2021"),
        ("d '@' y", "pl", "3 IV 2021"),
        ("EEEE, d MMMM y\u202f'г'.", "ru", "суббота, 3 апреля 2021 г."),
    ],
)
def test_the_locale_stands_where_the_order_needs_it(pattern, locale, text):
    assert dates._render(datetime.date(2021, 4, 3), pattern, locale) == text


def test_the_locale_stands_nowhere_else():
    # A weekday's name may stand on either side ("fr 7 juni 58" is a German Friday, not a tag).
    tag = re.compile(rf"({'|'.join(dates.LOCALES)}) \D*(\d+)\D+(\d+)\D+(\d+)\D*")
    tagged = 0
    for text, _ in dates.make_pairs(20_000, seed=3):
        if match := tag.fullmatch(text):
            tagged += 1
            assert len(match[2]) <= 2, f"the year comes first: {text}"
        else:
            assert not re.fullmatch(r"\D*\d{1,2}[/-]\d{1,2}[/-]\d+\D*", text)
    assert 3000 < tagged < 6000


def test_every_locale_order_and_habit_occurs():
    texts = [text for text, _ in dates.make_pairs(120_000, seed=4)]
    for needle in [
        *(f"{locale} " for locale in dates.LOCALES),
        "3rd of ", "1er ", "1º", "3RD", "'2", "XII", "年", "２", "ΑΠΡΙΛΙΟΥ", "NİSAN", "aout",
        "kasım", "квітня", "tháng", "월",
    ]:  # fmt: skip
        assert any(needle in text for text in texts), needle
    assert not any("ΊΟΥ" in text for text in texts)  # Greek capitals carry no accents


@pytest.mark.parametrize("day", [1, 2, 3, 4, 10, 11, 12, 13, 20, 21, 22, 23, 24, 30, 31])
def test_english_ordinals(day):
    right = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
    assert dates._ordinal(day, "en_US") == right.get(day, "th")
    assert dates._ordinal(day, "fr") == ("er" if day == 1 else "")
    assert dates._ordinal(day, "de") == ""


def test_quoted_letters_survive_the_short_year():
    assert dates._two_digit_year("'ngày' d 'tháng' M 'năm' y") == "'ngày' d 'tháng' M 'năm' yy"
    assert dates._two_digit_year("dd MMM ''yy") == "dd MMM ''yy"
    day = datetime.date(2021, 4, 3)
    assert format_date(day, dates._two_digit_year("d MMM y"), "en") == "3 Apr 21"
