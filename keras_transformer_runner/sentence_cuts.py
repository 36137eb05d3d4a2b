"""Sentences that are too long for a model, cut at the best places."""

import itertools

from keras_transformer_runner.segmentation import WHITE, grapheme_clusters

_MARKS = ";:,.!?–—-…،؛"  # before white space
_WIDE_MARKS = "、，；：。！？"
_CLOSERS = "」』）】》〉”’"  # behind a mark
_WESTERN_CLOSERS = "\"')]»"  # of which some open too, where there is no white space
_NOT_FIRST = _WIDE_MARKS + _CLOSERS + "…"


def fitting_parts(sentence, fits):
    """A sentence in parts that fit.

    Args:
        sentence: A string without white space at its ends.
        fits: A function of a string, or `None` where all fit.

    Yields:
        `(part, is_sentence)`: what is not a sentence is white space at a cut, or a character that
        alone does not fit. Joined they are the sentence.
    """
    waiting = [sentence] if sentence else []
    while waiting:
        text = waiting.pop()
        content = text.lstrip(WHITE)
        if len(content) < len(text):
            yield text[: len(text) - len(content)], False
        if fits is None or fits(content):
            yield content, True
        elif len(content) == 1:
            yield content, False
        else:
            place = _best_place(content)
            waiting += [content[place:], content[:place]]


def _best_place(text):
    """How many characters of a text of at least two come before the cut."""
    size = len(text)
    for places in (_behind_marks, _before_white_space, _between_clusters):
        if found := _nearest_to_middle(places(text), size):
            return found
    return size // 2


def _behind_marks(text):
    size = len(text)
    for place in range(-(-size // 4), size * 3 // 4 + 1):
        after = text[place]
        is_end = after in WHITE and _mark_before(text, place, _WESTERN_CLOSERS) in _MARKS
        is_wide_end = after not in _NOT_FIRST and _mark_before(text, place) in _WIDE_MARKS
        if is_end or is_wide_end:
            yield place


def _mark_before(text, place, more_closers=""):
    """The character before a place, or the one before that where it closes a quotation."""
    closes = place > 1 and text[place - 1] in _CLOSERS + more_closers
    return text[place - 1 - closes]


def _before_white_space(text):
    for place in range(1, len(text)):
        if text[place] in WHITE and text[place - 1] not in WHITE:
            yield place


def _between_clusters(text):
    ends = itertools.accumulate(map(len, grapheme_clusters(text)))
    return (place for place in ends if place < len(text))


def _nearest_to_middle(places, size):
    return min(places, key=lambda place: abs(2 * place - size), default=None)
