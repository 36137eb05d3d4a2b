"""Odd texts of many kinds, by seed, from Unicode's ranges."""

import unicodedata

_PLANES = ((0x20, 0x3000), (0x3000, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000), (0, 0x110000))
_SPACES = [
    *"\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000",
    *map(chr, range(0x2000, 0x200B)),
]
_INVISIBLE = [
    *map(chr, (*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x34F, 0x61C, 0x115F, 0x180E)),
    *map(chr, (*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070))),
    *map(chr, (*range(0xFE00, 0xFE10), 0xFEFF, *range(0xFFF9, 0x10000), 0xE0001)),
    *map(chr, (*range(0xE0020, 0xE0080), *range(0xE0100, 0xE0110), 0xFDD0, 0x1FFFE, 0x10FFFF)),
]
_MARKS = [*map(chr, (*range(0x300, 0x370), *range(0x483, 0x48A), *range(0x591, 0x5C8)))]
_MARKS += [*map(chr, (*range(0x610, 0x61B), *range(0x64B, 0x660), 0x93C, 0x94D, 0xE31, 0x20DD))]
_EMOJI = [*map(chr, (*range(0x1F300, 0x1F650), *range(0x1F900, 0x1FA00), 0x2764, 0x2640, 0x2642))]
_JOINERS = ["\u200d", "\ufe0f", "\ufe0e", "\u20e3", *map(chr, range(0x1F3FB, 0x1F400))]
_FLAGS = [*map(chr, range(0x1F1E6, 0x1F200))]
_LOOKALIKES = (
    *(
        "</s>",
        "<s>",
        "<unk>",
        "<pad>",
        "\u2581</s>",
        "<0x41>",
        "<0x0A>",
        "[PAD]",
        "[EOS]",
        "\u2047",
    ),
    *("\u2581", "\u2581\u2581", "@@", "@@ ", "@@ @@", "&lt;/s&gt;", "\\u0000", "\\n", "<\u200b/s>"),
)
_WORDS = (
    "a",
    "dog",
    "runs",
    "Haus",
    "schön",
    "1000",
    "x",
    "it's",
    "e\u0301",
    "ﬁ",
    "½",
    "Ǆ",
    "ß",
    "İ",
)
_SURROGATES = [chr(value) for value in (0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xD83D, 0xDE00)]
_LONG = 1 << 20
_ALONG = 0.002  # share of texts of a megabyte


class OddTexts:
    """Makes odd texts.

    Args:
        generator: A `random.Random`, which decides all.
        limit: Tokens around which some texts end.
    """

    def __init__(self, generator, limit):
        self._random, self._limit = generator, limit
        self._kinds = (
            *(self._script, self._scripts, self._invisible, self._spaces, self._marks),
            *(self._emoji, self._lookalikes, self._surrogates, self._forms, self._words),
            *(self._mixture, self._mixture, self._mixture, self._near_the_limit, self._empty),
        )

    def __call__(self):
        """A text: a `str`, which may hold lone surrogates."""
        if self._random.random() < _ALONG:
            kinds = (self._spaces, self._one(self._kinds))
            part = self._one(kinds)() or " "
            return (part * (_LONG // len(part) + 1))[:_LONG]
        text = self._random.choice(self._kinds)()
        if self._random.random() < 0.2:
            text = self._one(_SPACES) + text + self._one(_SPACES)
        return text

    def _one(self, choices):
        return self._random.choice(choices)

    def _some(self, choices, most=12):
        return "".join(self._one(choices) for _ in range(self._random.randint(1, most)))

    def _character(self):
        first, end = self._one(_PLANES)
        while True:
            character = chr(self._random.randrange(first, end))
            if unicodedata.category(character) not in ("Cn", "Cs") or self._random.random() < 0.02:
                return character if not "\ud800" <= character <= "\udfff" else "\ufffd"

    def _script(self):
        """Neighbours in Unicode: mostly one script."""
        first = ord(self._character())
        places = (first + self._random.randrange(64) for _ in range(self._random.randint(1, 24)))
        kept = [place for place in places if place < 0x110000 and not 0xD800 <= place < 0xE000]
        return "".join(map(chr, kept))

    def _scripts(self):
        return "".join(self._character() for _ in range(self._random.randint(1, 24)))

    def _invisible(self):
        return self._some(_INVISIBLE)

    def _spaces(self):
        return self._some(_SPACES)

    def _marks(self):
        return "".join(self._character() + self._some(_MARKS, 6) for _ in range(3))

    def _emoji(self):
        parts = (_EMOJI, _EMOJI, _JOINERS, _JOINERS, _FLAGS)
        return "".join(self._one(self._one(parts)) for _ in range(self._random.randint(1, 12)))

    def _lookalikes(self):
        return self._one(("", " ")).join(self._some(_LOOKALIKES, 2) for _ in range(3))

    def _surrogates(self):
        return self._one(_WORDS) + self._some(_SURROGATES, 4) + self._one(_WORDS)

    def _forms(self):
        """The same text composed, decomposed, or in compatibility characters."""
        form = self._one(("NFC", "NFD", "NFKC", "NFKD"))
        return unicodedata.normalize(form, self._script() + self._marks())

    def _words(self):
        return " ".join(self._one(_WORDS) for _ in range(self._random.randint(1, 12)))

    def _mixture(self):
        kinds = (self._words, self._invisible, self._spaces, self._emoji, self._lookalikes)
        kinds += (self._scripts, self._marks, self._script)
        return "".join(self._one(kinds)() for _ in range(self._random.randint(2, 4)))

    def _near_the_limit(self):
        return self._one(("a", "x ", "\u00e9", "a ")) * (self._limit + self._random.randint(-4, 4))

    def _empty(self):
        return ""
