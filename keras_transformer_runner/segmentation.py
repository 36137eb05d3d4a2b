"""Where sentences and characters end, as ICU sees it. Needs icu4py."""

import re

# The property White_Space of Unicode. `str.isspace` takes separators of ASCII too.
WHITE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_SURROGATE = re.compile("[\ud800-\udfff]")  # UTF-8, in which ICU gets a text, cannot hold it


def sentence_pieces(line, locale):
    """Sentences of a line by Unicode Standard Annex 29, white space behind them included.

    Args:
        line: A string.
        locale: A language code of ICU's, or `"root"`.

    Returns:
        An iterable of strings that joined are the line, but for U+FFFD in the place of surrogates.
    """
    return _breakers().SentenceBreaker(_SURROGATE.sub("\ufffd", line), locale)


def grapheme_clusters(text):
    """What a reader sees as characters, as `sentence_pieces` gives it."""
    return _breakers().CharacterBreaker(_SURROGATE.sub("\ufffd", text), "root")


def _breakers():
    try:
        from icu4py import breakers
    except ImportError as error:
        raise ImportError(
            f"whole texts need icu4py, the extra `sentences`: pip install icu4py. Received: {error}"
        ) from error
    return breakers
