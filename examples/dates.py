"""Dates as people write them, each with its ISO 8601 form: the quickstart's corpus.

Babel's locale data (CLDR) gives the patterns and the names of 23 locales. On top come habits that
no locale database lists: ordinals, Roman months, other separators, years of two digits, capitals,
lost punctuation, missing accents.

The text alone decides the answer wherever it can. Where a form of digits means different dates in
different locales the locale comes first: "en_GB 3/4/21", but "3.4.2021", "2021/4/3" and "3 Apr 21"
as they are. Which forms need it is worked out from the locales, not listed by hand.

    python dates.py 20          # 20 pairs as TSV, a corpus that `keras-transformer` reads
"""

import collections
import datetime
import functools
import itertools
import random
import re
import sys
import unicodedata

from babel import Locale
from babel.dates import format_date

LOCALES = tuple(
    "en_US en_GB de fr es it pt_BR nl sv da fi pl cs ru uk tr el hu ja zh ko id vi".split()  # noqa: SIM905
)
# A hundred years, so that two digits tell the century.
FIRST, LAST = datetime.date(1970, 1, 1), datetime.date(2069, 12, 31)

# Written alike everywhere: the year in four digits comes first.
COMMON = ("y-MM-dd", "yMMdd", "y/MM/dd", "y.MM.dd", "y/M/d", "y-M-d")

# In CLDR's pattern syntax (a quoted part stands for itself); '#' is the ordinal ending of the day,
# '@' the month in Roman numerals.
ENGLISH = (
    "d'# of' MMMM y; d'#' MMMM y; d'#' MMM yy; MMMM d'#', y; MMM d'#' yy; 'the' d'# of' MMMM, y; "
    "EEEE, 'the' d'# of' MMMM y; EEE d'#' MMM y; dd-MMM-y; dd MMM ''yy; ddMMMyy; ddMMMy; y MMM dd"
)
HABITS = {
    "en_US": ENGLISH,
    "en_GB": ENGLISH,
    "de": "'den' d. MMMM y; EEEE, 'den' d. MMMM y",
    "fr": "d'#' MMMM y; 'le' d'#' MMMM y; 'le' EEEE d'#' MMMM y",
    "es": "d MMMM y; d'#' 'de' MMMM 'de' y; d 'de' MMMM 'del' y; d-MMM-y",
    "it": "d'#' MMMM y; 'il' d MMMM y",
    "pt_BR": "d'#' 'de' MMMM 'de' y; d MMM y; dd/MMM/y",
    "nl": "d-MMM-y; EEE d MMM y",
    "sv": "'den' d MMMM y; EEEE 'den' d MMMM y",
    "da": "'den' d. MMMM y",
    "pl": "d '@' y; d MMMM y 'r.'",
    "cs": "d. '@' y",
    "hu": "y. '@'. d.",
    "ja": "y年MM月dd日",
    "zh": "y年MM月dd日",
    "vi": "'ngày' d 'tháng' M 'năm' y",
}
ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")


def make_pairs(count, seed):
    """Returns `count` different pairs `(text, "yyyy-mm-dd")`, dates spread evenly."""
    rng = random.Random(seed)
    return _pairs(rng, _shuffled_days(rng), count)


def split(seed, train, test):
    """Returns `train` and `test` pairs that share no text and, what is more, no calendar day."""
    rng = random.Random(seed)
    days = _shuffled_days(rng)
    held_out = len(days) // 10
    return _pairs(rng, days[held_out:], train), _pairs(rng, days[:held_out], test)


def _shuffled_days(rng):
    days = [FIRST + datetime.timedelta(i) for i in range((LAST - FIRST).days + 1)]
    rng.shuffle(days)
    return days


def _pairs(rng, days, count):
    pairs = {}
    for day in itertools.cycle(days):
        if len(pairs) >= count:
            return list(pairs.items())
        pairs.setdefault(_write(rng, day), day.isoformat())


def _write(rng, day):
    """Writes one date in a random locale, pattern and hand."""
    locale = rng.choice(LOCALES)
    patterns = rng.choices((_worded, _numeric, _common), weights=(6, 3, 1))[0]
    text = _render(day, rng.choice(patterns(locale)), locale)
    return _by_hand(rng, text, locale) if patterns is _worded else text


def _render(day, pattern, locale):
    text = format_date(day, pattern, locale).replace("\u202f", " ")
    if _is_numeric(pattern):
        return f"{locale} {text}" if len(_orders()[_form(pattern)]) > 1 else text
    return text.replace("#", _ordinal(day.day, locale)).replace("@", ROMAN[day.month - 1])


def _common(locale):
    return COMMON


@functools.cache
def _worded(locale):
    """Patterns that hold a word: a month's name, Roman numerals, 年, tháng."""
    patterns = _cldr_patterns(locale) + HABITS.get(locale, "").split("; ")
    patterns = [p for p in patterns if p and not _is_numeric(p)]
    # Two digits of the year only where no reader takes them for the day: 21. Apr. 13?
    short = [_two_digit_year(p) for p in patterns if p[0] != "y" or p[1] in "年년"]
    return sorted({*patterns, *short})


def _two_digit_year(pattern):
    return re.sub("'[^']*'|y+", lambda m: m[0] if m[0][0] == "'" else "yy", pattern)


@functools.cache
def _numeric(locale):
    """Patterns of digits and separators only, in the locale's own order."""
    cldr = [p for p in _cldr_patterns(locale) if _is_numeric(p)]
    own = Locale.parse(locale).date_formats["short"].pattern
    order, separator = _order(own), re.search(r"[^yMd]+", own)[0]
    # Day-first readers also write dots; month-first readers do not.
    separators = {separator, "/", "-"} | ({"."} if order == "dMy" else set())
    fields = [("y", "M", "d"), ("y", "MM", "dd"), ("yy", "M", "d"), ("yy", "MM", "dd")]
    made = [
        sep.join({field[0]: field for field in widths}[name] for name in order)
        for sep in separators
        for widths in fields
    ]
    return sorted({*cldr, *made})


def _cldr_patterns(locale):
    data = Locale.parse(locale)
    skeletons = ("yMd", "yMEd", "yMMMd", "yMMMEd", "yMMMMd", "yMMMMEEEEd")
    formats = [*data.date_formats.values()]
    formats += [data.datetime_skeletons[s] for s in skeletons if s in data.datetime_skeletons]
    return [f.pattern for f in formats]


def _is_numeric(pattern):
    return re.fullmatch(r"[yMdEc\W]+", pattern) is not None and not re.search("MMM|'", pattern)


def _order(pattern):
    return "".join(field[0] for field in re.findall(r"y+|M+|d+", pattern))


def _form(pattern):
    """What a reader sees of a numeric pattern: the separator, and a four-digit year's place."""
    separator = re.search(r"[yMd]([^yMd]*)", re.sub(r"(.)\1+", r"\1", pattern))[1].strip()
    return separator, None if "yy" in pattern else _order(pattern).index("y")


@functools.cache
def _orders():
    """For each numeric form, the orders in which these locales read it."""
    orders = collections.defaultdict(set)
    for locale in LOCALES:
        for pattern in (*_numeric(locale), *COMMON):
            orders[_form(pattern)].add(_order(pattern))
    return orders


def _ordinal(day, locale):
    if locale.startswith("en"):
        return "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return {"fr": "er", "es": "º", "it": "º", "pt_BR": "º"}.get(locale, "") if day == 1 else ""


def _by_hand(rng, text, locale):
    """Types it as people do: small letters, capitals, no punctuation, no accents, wide digits."""
    case = rng.choices(("kept", "lower", "upper"), weights=(6, 2, 1))[0]
    text = _recase(text, case, locale)
    if rng.random() < 0.15:
        text = _without_punctuation(text)
    if rng.random() < 0.06 or (locale, case) == ("el", "upper"):  # Greek capitals have no accents
        text = _without_accents(text)
    if locale in ("ja", "zh") and rng.random() < 0.1:
        text = text.translate({ord("0") + i: ord("０") + i for i in range(10)})
    return text


def _recase(text, case, locale):
    if case == "lower":
        return (text.replace("I", "ı").replace("İ", "i") if locale == "tr" else text).lower()
    if case == "upper":
        return (text.replace("i", "İ") if locale == "tr" else text).upper()
    return text


def _without_punctuation(text):
    return re.sub("[.,]", "", text)


def _without_accents(text):
    letters = (c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))
    return unicodedata.normalize("NFC", "".join(letters))


if __name__ == "__main__":
    for pair in make_pairs(int(sys.argv[1]) if len(sys.argv) > 1 else 20, seed=0):
        print(*pair, sep="\t")
