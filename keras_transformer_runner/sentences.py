"""Whole texts: their sentences, what lies between those, and the same around translations.

docs/whole_texts.md is the rule, which `export/native/src/sentences.cc` follows too. Needs icu4py.
"""

import functools
import json
import pathlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from keras_transformer_runner.segmentation import WHITE, sentence_pieces
from keras_transformer_runner.sentence_cuts import fitting_parts

_LINE_END = re.compile("\r\n|[\n\v\f\r\x85\u2028\u2029]")
_TAG = re.compile("[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*")
_LIST_NUMBER = re.compile("[0-9]{1,3}")
_ORDINAL = re.compile("([0-9]{1,2}|[IVX]{1,5})\\Z")
_GOES_ON = ";\u037e"  # which ICU before version 74 lets begin a sentence
_LONGEST_WORD = 40  # characters: beyond any of abbreviations.json
# Where no space stands between sentences: CJK and the full-width forms.
_WIDE = ((0x2E80, 0xA4CF), (0xF900, 0xFAFF), (0xFE30, 0xFE4F), (0xFF00, 0xFF65), (0x20000, 0x3FFFF))


class SplitText(NamedTuple):
    """A text as its sentences and what lies between them.

    Example:
        >>> from keras_transformer_runner.sentences import split_text
        >>> split = split_text("One man. Two\\n\\ndogs.\\n")
        >>> split.sentences
        ('One man.', 'Two', 'dogs.')
        >>> split.gaps
        ('', ' ', '\\n\\n', '\\n')
        >>> split.with_translations(["Ein Mann.", "Zwei", "Hunde."])
        'Ein Mann. Zwei\\n\\nHunde.\\n'

    Attributes:
        sentences: Strings, none empty, none with white space at an end.
        gaps: Strings, one more: `gaps[0] + sentences[0] + gaps[1] + ...` is the text.
    """

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]

    def with_translations(self, translations: Sequence[str]) -> str:
        """The text with a translation in the place of each sentence.

        Raises:
            ValueError: if they are not as many as the sentences.
        """
        if len(translations) != len(self.sentences):
            raise ValueError(
                "`translations` must be as many as the sentences. Received: "
                f"{len(translations)} for {len(self.sentences)}"
            )
        parts = [self.gaps[0]]
        for index, translation in enumerate(translations):
            if index and not self.gaps[index] and _need_space(translations[index - 1], translation):
                parts.append(" ")
            parts += [translation, self.gaps[index + 1]]
        return "".join(parts)


def translate_texts(
    texts: Iterable[str],
    translate: Callable[[list[str]], Sequence[str]],
    fits: Callable[[str], bool],
    language: str = "",
) -> list[str]:
    """A translation of each text, from one call of `translate` with the sentences of all of them.

    Args:
        texts: Strings.
        translate: A list of sentences -> as many translations.
        fits: Whether a sentence is short enough for it.
        language: See `split_text`.

    Example:
        >>> from keras_transformer_runner.sentences import translate_texts
        >>> translate_texts(["a b. C.\\n"], lambda all: [each.upper() for each in all],
        ...     fits=lambda sentence: len(sentence) < 9)
        ['A B. C.\\n']
    """
    splits = [split_text(text, language, fits) for text in texts]
    translations = iter(translate([each for split in splits for each in split.sentences]))
    return [split.with_translations([next(translations) for _ in split.sentences])
            for split in splits]  # fmt: skip


def split_text(
    text: str, language: str = "", fits: Callable[[str], bool] | None = None
) -> SplitText:
    """The sentences of a text, by the rule of docs/whole_texts.md.

    Args:
        text: A `str`.
        language: A BCP 47 tag such as `"de"`, whose abbreviations end no sentence; `""` for none.
        fits: Whether a sentence is short enough; one that is not is cut into parts that are. A
            character that alone is not, lies in a gap.

    Raises:
        TypeError: if `text` or `language` is no string.
        ValueError: if `language` is no such tag.
        ImportError: if icu4py is not installed.

    Example:
        >>> from keras_transformer_runner.sentences import split_text
        >>> split_text("Dr. Wu is in. Go!", "en").sentences
        ('Dr. Wu is in.', 'Go!')
        >>> split_text("One, two, three.", fits=lambda sentence: len(sentence) < 9).sentences
        ('One,', 'two,', 'three.')
    """
    if not isinstance(text, str):
        raise TypeError(f"`text` must be a string. Received: {type(text).__name__}")
    rules, parts, start = _rules(language), _Parts(fits), 0
    for line_end in (*_LINE_END.finditer(text), None):
        stop, end = line_end.span() if line_end else (len(text), len(text))
        line, begin = text[start:stop], 0
        for place in (*rules.sentence_ends(line), len(line)):
            parts.add(line[begin:place])
            begin = place
        parts.add_gap(text[stop:end])
        start = end
    return SplitText(tuple(parts.sentences), tuple(map("".join, parts.gaps)))


class _Parts:
    """Sentences and gaps that grow."""

    def __init__(self, fits):
        self.fits, self.sentences, self.gaps = fits, [], [[]]

    def add(self, text):
        """Adds a sentence with the white space around it."""
        content = text.strip(WHITE)
        begin = len(text) - len(text.lstrip(WHITE))
        self.add_gap(text[:begin])
        for part, is_sentence in fitting_parts(content, self.fits):
            if is_sentence:
                self.sentences.append(part)
                self.gaps.append([])
            else:
                self.add_gap(part)
        self.add_gap(text[begin + len(content) :])

    def add_gap(self, text):
        self.gaps[-1].append(text)


def check_language(language: str) -> None:
    """Raises unless texts of a language can be split here: see `split_text`.

    Example:
        >>> from keras_transformer_runner.sentences import check_language
        >>> check_language("pt-BR")
    """
    _rules(language)
    sentence_pieces("", "root")


# --- The rules of a language -----------------------------------------------------------------


class _Rules(NamedTuple):
    """Which words end no sentence."""

    locale: str
    always: tuple[str, ...]
    before_numbers: tuple[str, ...]
    has_ordinals: bool

    def sentence_ends(self, line):
        """Yields the places of a line where a sentence ends and another follows."""
        begin, end = _after_white(line, 0), 0
        for piece in sentence_pieces(line, self.locale):
            place, end = end, end + len(piece)
            if piece[0] in _GOES_ON:
                continue
            while place > begin and unicodedata.category(line[place - 1]) in ("Ps", "Pi"):
                place -= 1  # an opening quotation mark
            if place > begin and not self._are_joined(line, begin, place):
                yield place
                begin = _after_white(line, place)

    def _are_joined(self, line, begin, place):
        """Whether what begins at `begin`, with no white space, goes on behind `place`."""
        end, follows = place, _after_white(line, place)
        while line[end - 1] in WHITE:
            end -= 1
        if follows == len(line):
            return True  # white space goes with what there is
        last, first = line[end - 1], line[follows]
        return (
            unicodedata.category(first) == "Ll"
            or (end == follows and last.isascii() and first.isascii())
            or (last == "." and self._ends_no_sentence(line, begin, end - 1, first))
        )

    def _ends_no_sentence(self, line, begin, stop, follows):
        """Whether the word before the full stop at `stop` is an initial, a number or known."""
        if _LIST_NUMBER.fullmatch(line, begin, stop):
            return True
        end = line[max(begin, stop - _LONGEST_WORD) : stop]
        if _is_capital(end[-1:]) and _is_apart(end[:-1]):
            return True
        if self.has_ordinals and (found := _ORDINAL.search(end)):
            before = end[: found.start()]
            if _is_apart(before) and not before.endswith(","):
                return True
        known = self.always
        if unicodedata.category(follows) == "Nd":
            known += self.before_numbers
        end += "."
        return any(end.endswith(each) and _is_apart(end[: -len(each)]) for each in known)


def _after_white(line, place):
    while place < len(line) and line[place] in WHITE:
        place += 1
    return place


def _is_capital(character):
    return bool(character) and unicodedata.category(character) == "Lu"


def _is_apart(before):
    """Whether a word may begin behind a text."""
    return not before or unicodedata.category(before[-1])[0] not in "LMN"


def _rules(language):
    if not isinstance(language, str):
        raise TypeError(f"`language` must be a string. Received: {type(language).__name__}")
    if language and not _TAG.fullmatch(language):
        raise ValueError(
            "`language` must be a BCP 47 tag such as 'de' or 'pt-BR', or ''. "
            f"Received: language={language!r}"
        )
    return _rules_of(re.split("[-_]", language)[0].lower())


@functools.cache
def _rules_of(code):
    data = json.loads(pathlib.Path(__file__).with_name("abbreviations.json").read_bytes())
    code = data["aliases"].get(code, code)
    known = data["abbreviations"].get(code, {"always": (), "before_numbers": ()})
    always, before_numbers = (
        (*words, *(word[0].upper() + word[1:] for word in words))
        for words in (known["always"], known["before_numbers"])
    )
    return _Rules(code or "root", always, before_numbers, code in data["ordinals"])


def _need_space(first, second):
    return bool(first and second) and not (_is_wide(first[-1]) or _is_wide(second[0]))


def _is_wide(character):
    return character in WHITE or any(low <= ord(character) <= high for low, high in _WIDE)
