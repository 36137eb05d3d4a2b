"""The modules of the package in export/web. Needs Node 20."""

import base64
import hashlib
import json
import random

import pytest
from page import SCRIPTS, WEB, node_json

from keras_transformer_runner.sentence_cuts import fitting_parts
from keras_transformer_runner.tokenizers import (
    BytesTokenizer,
    CharacterTokenizer,
    VocabularyTokenizer,
)


def modules(*requests):
    return node_json(SCRIPTS / "modules.mjs", WEB, request=requests)


# --- Tokenizers ----------------------------------------------------------------------------

PARTS = [
    "a",
    "b",
    "é",
    "e\u0301",
    "ab@@",
    "c@@",
    "@@",
    "de",
    "\ufeff",
    "⁇",
    "\U0001f600",
    "left-\ud800",
]
PARTS += [" ", "  ", "\t", "\n", "\v", "\f", "\r", "\x1c", "\x85", "\xa0", "\u3000", "\0", "</s>"]
PARTS += ["\ud800", "x\udfffy"]  # lone surrogates
KINDS = {
    "bytes": BytesTokenizer,
    "bytes of ByT5": lambda: BytesTokenizer(layout="byt5"),
    "characters": lambda: CharacterTokenizer("abcdeé @\U0001f600\ufeff"),
    "vocabulary": lambda: VocabularyTokenizer(["a", "ab@@", "c", "d\xa0", "é", "c@@", "de@@"]),
    "no joiner": lambda: VocabularyTokenizer(["a", "ab@@", "b"], joiner=""),
    "another joiner": lambda: VocabularyTokenizer(["a", "éb", "b"], joiner="b"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_table_tokenizers_are_pythons(kind, tmp_path):
    tokenizer = KINDS[kind]()
    tokenizer.save(tmp_path / "tokenizer.json")
    rng = random.Random(3)
    texts = ["".join(rng.choices(PARTS, k=rng.randint(0, 8))) for _ in range(300)]
    special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
    usable = [token for token in range(tokenizer.vocab_size) if token not in special]
    rows = [rng.choices(usable, k=rng.randint(0, 9)) for _ in range(300)]
    rows += [tokenizer.encode(text) for text in texts]
    request = dict(kind="tokenizer", file=str(tmp_path / "tokenizer.json"), texts=texts, rows=rows)
    prefix = [tokenizer.vocab_size - 1, 4]
    rows = [[*prefix[: index % 3], *row] for index, row in enumerate(rows)]
    other = tokenizer.with_prefix(prefix)
    answers = modules(request, dict(request, rows=rows, prefix=prefix))
    for each, asked, answer in zip(
        (tokenizer, other), (request["rows"], rows), answers, strict=True
    ):
        assert answer["ids"] == [each.encode(text) for text in texts]
        assert answer["texts"] == [each.decode(row) for row in asked]


@pytest.mark.parametrize("fields", [{"format": 2, "type": "bytes"}, {"format": 1, "type": "x"}])
def test_an_unknown_tokenizer_is_an_error(fields, tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(fields))
    (answer,) = modules(dict(kind="tokenizer", file=str(file), texts=[], rows=[]))
    assert answer["error"] == (
        "a tokenizer's file must have format 1 and one of the types bytes,characters,vocabulary. "
        f'Received: format={fields["format"]}, type="{fields["type"]}"'
    )
    assert answer["code"] == "folder"


def test_white_space_within_a_text_takes_no_time(tmp_path):
    """A regular expression for that at its end goes through it from each of its places."""
    file = tmp_path / "tokenizer.json"
    CharacterTokenizer("ab ").save(file)
    text = "\n a" + " " * 2_000_000 + "b\t "
    (answer,) = modules(dict(kind="tokenizer", file=str(file), texts=[text], rows=[]))
    assert answer["ids"] == [[4, *[6] * 2_000_000, 5]]


# --- Sentences that are too long -----------------------------------------------------------

CHARACTERS = [
    "a",
    "é",
    "e\u0301",
    "\u0301",
    "👩‍👩‍👧",
    "👩",
    "\u200d",
    "👍🏽",
    "🏽",
    "🇩🇪",
    "🇩",
    "한",
    "ᄒ",
    "ᅡ",
]
CHARACTERS += [
    "\ud800",
    "\udc00",
    "क्षि",
    "क",
    "्",
    "\u0600",
    "\ufe0f",
    "你",
    "𝔸",
    "。",
    "”",
    "!",
    " ",
]


def test_a_run_without_white_space_is_cut_as_in_python():
    pytest.importorskip("icu4py")
    rng = random.Random(3)

    def text():
        kinds = rng.sample(CHARACTERS, rng.randint(1, 6))
        joined = "".join(rng.choices(kinds, k=rng.randint(1, 60))).strip()
        return joined.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    texts = [(text(), rng.randint(1, 12)) for _ in range(1000)]
    (answers,) = modules(dict(kind="parts", texts=texts))
    for (text, most), answer in zip(texts, answers, strict=True):
        parts = fitting_parts(text, lambda part, most=most: len(part) <= most)
        assert answer == [list(part) for part in parts], text


@pytest.mark.parametrize("character", ["a", "你", "👩‍👩‍👧", "🇩🇪"])
def test_a_run_without_white_space_is_not_copied_for_each_of_its_characters(character):
    (copies,) = modules(dict(kind="copies", text=character * 2000, most=40))
    assert copies < 20


# --- Options -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (None, "`options` must be an object. Received: null"),
        ("de", "`options` must be an object. Received: string"),
        (dict(signal=5), "`signal` must be an AbortSignal. Received: number"),
        (dict(signal=None), "`signal` must be an AbortSignal. Received: null"),
        (dict(signal={}), "`signal` must be an AbortSignal. Received: object"),
        (dict(onProgress=5), "`onProgress` must be a function. Received: number"),
    ],
)
def test_what_are_no_options_is_said(options, message):
    ((answer,),) = modules(dict(kind="options", options=[options]))
    assert answer == dict(error=message, code="argument")


# --- Hashes --------------------------------------------------------------------------------


def test_hashes_are_right_where_the_browser_has_none():
    """Over plain HTTP, around the sizes where the last block is full."""
    rng = random.Random(5)
    contents = [rng.randbytes(size) for size in (0, 1, 54, 55, 56, 63, 64, 65, 119, 120, 1000)]
    request = dict(kind="hashes", contents=[base64.b64encode(each).decode() for each in contents])
    (answer,) = modules(request)
    expected = [hashlib.sha256(each).hexdigest() for each in contents]
    assert answer == dict(own=expected, browsers=expected)
