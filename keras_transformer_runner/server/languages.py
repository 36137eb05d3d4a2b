"""Names of languages, and which of those served a text is in."""

import copy
import functools
import re
from collections.abc import Iterable

from babel import Locale, UnknownLocaleError
from py3langid.langid import MODEL_FILE, LanguageIdentifier


def language_name(code: str) -> str:
    """The English name of a language by its tag; the tag where it has none.

    Example:
        >>> from keras_transformer_runner.server.languages import language_name
        >>> language_name("pt-BR"), language_name("xx")
        ('Brazilian Portuguese', 'xx')
    """
    tag = code.replace("-", "_")
    if name := Locale("en").languages.get(tag):
        return name
    try:
        return Locale.parse(tag).get_language_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


class Detector:
    """Tells which of some languages a text is in, by langid's model of 140.

    Args:
        codes: Their tags. Those that langid does not know are never found; of two with one
            language, such as pt-BR and pt-PT, the first is.
    """

    def __init__(self, codes: Iterable[str]):
        identifier = copy.copy(_identifier())
        known = set(identifier.labels)
        self._codes = {}
        for code in codes:
            language = re.split("[-_]", code)[0].lower()
            if language in known:
                self._codes.setdefault(language, code)
        self._identifier = identifier
        if self._codes:
            identifier.set_languages(list(self._codes))

    def ranked(self, text: str) -> list[dict]:
        """Each language with its confidence, 0 to 100, together 100; the likeliest first."""
        if not self._codes:
            return []
        return [
            {"confidence": round(100 * share, 1), "language": self._codes[language]}
            for language, share in self._identifier.rank(text)
        ]


@functools.cache
def _identifier():
    """langid's model, which takes a second to load."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
