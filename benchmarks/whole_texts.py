"""The sentences that the native core of export/native finds in paragraphs: those of Python?

    python benchmarks/whole_texts.py build/native/libkeras_transformer.so FOLDER LANGUAGE=FILE...
        [--odd 6000] [--seed 1]

FOLDER is an exported one, whose limit says what is cut; each FILE has a text a line, and may be
gzip. Six lines at a time are joined by a space, two, or none. To them come texts of odd characters
of `tests/support/odd_paragraphs.py`. Prints how many texts and sentences there were, and each text
that has other pieces; the two may have different versions of ICU.
"""

import argparse
import itertools
import pathlib
import random
import sys

from keras_transformer_runner import Runner
from keras_transformer_runner.lines import read_lines
from keras_transformer_runner.sentences import split_text

_TESTS = pathlib.Path(__file__).parents[1] / "tests"
_LANGUAGES = ("", "de", "en", "fr", "es", "cs", "ru", "el", "pl", "nl", "xx", "zh", "hu")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library")
    parser.add_argument("folder")
    parser.add_argument("files", nargs="*", metavar="LANGUAGE=FILE")
    parser.add_argument("--odd", type=int, default=6000, help="texts of odd characters")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.path[:0] = [str(_TESTS / "export" / "native"), str(_TESTS / "support")]
    from calls import Library

    runner, library = Runner(arguments.folder), Library(arguments.library, arguments.folder)
    longest = runner.metadata["max_source_length"]

    def fits(sentence):
        return len(sentence.encode()) <= 64 * longest and len(runner.encode(sentence)) <= longest

    texts = others = sentences = 0
    for text, language in _texts(arguments):
        split = split_text(text, language, fits)
        expected = [*itertools.chain(*zip(split.gaps, (*split.sentences, ""), strict=True))][:-1]
        pieces = library.split_text(text.encode().decode("latin-1"), language)
        found = [piece.encode("latin-1").decode() for piece in pieces]
        texts, sentences = texts + 1, sentences + len(split.sentences)
        if found != expected:
            others += 1
            print(f"{language!r} {text!r}\n  {expected}\n  {found}")
    print(f"{texts:,} texts, {sentences:,} sentences; {others:,} texts with other pieces")


def _texts(arguments):
    from odd_paragraphs import PARAGRAPHS, odd_texts

    rng = random.Random(arguments.seed)
    yield from PARAGRAPHS
    for text in odd_texts(rng, arguments.odd):
        yield text, rng.choice(_LANGUAGES)
    for named in arguments.files:
        language, _, path = named.partition("=")
        lines = list(read_lines(path))
        for start in range(0, len(lines), 6):
            yield rng.choice([" ", "  ", ""]).join(lines[start : start + 6]), language


if __name__ == "__main__":
    main()
