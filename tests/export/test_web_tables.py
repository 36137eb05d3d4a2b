"""Tokenizers that are tables: a folder with one is taken where Python takes it. Needs Node 20."""

import json

import pytest
from page import FILES, SCRIPTS, WEB, node_json, write_export

from keras_transformer_runner.folder import open_folder


def table(**fields):
    """The files of a folder whose tokenizer has these fields; one that is `None` is null."""
    return {**FILES, "tokenizer.json": json.dumps({"format": 1, **fields}).encode()}


def table_case(size, **fields):
    ids = {"byt5": dict(bos_id=0, eos_id=1)}.get(fields.get("layout"), {})
    return dict(files=table(**fields), vocab_size=size, target_vocab_size=size, **ids)


def words(*words, **fields):
    return table_case(4 + len(words), type="vocabulary", words=words, **fields)


def characters(*given, **fields):
    (value,) = given or ("ab",)
    return table_case(6, type="characters", characters=value, **fields)


GOOD = {
    "words without a joiner": words("a", "b@@"),
    "no joiner at all": words("a", joiner=""),
    "a space of Unicode": words("a\xa0", "\u3000"),
    "ByT5 without a size": table_case(384, type="bytes", layout="byt5"),
    "more bytes": table_case(300, type="bytes", vocab_size=300),
    "bytes of null": table_case(260, type="bytes", layout=None, vocab_size=None),
    "a list of characters": characters(["a", "b"]),
    "characters of two units": characters("\U0001f600b"),
    "a prefix": dict(
        **characters(prefix_ids=[5, 1]), source_prefix_ids=[5, 1], target_prefix_ids=[5, 1]
    ),
    "a prefix of one side": dict(
        files={
            **FILES,
            "target_tokenizer.json": characters(prefix_ids=[5])["files"]["tokenizer.json"],
        },
        **dict(target_vocab_size=6, target_prefix_ids=[5]),
    ),
    "an empty prefix": characters(prefix_ids=[]),
}
BAD = {
    "a field of no kind": (characters(lower=True), 'a file of type "characters" must have its fi'),
    "a field of another": (characters(joiner="@@"), 'Received: ["characters","joiner"]'),
    "no words": (table_case(4, type="vocabulary"), 'type "vocabulary" must have its fields. Rec'),
    "no characters": (table_case(4, type="characters"), "must have its fields. Received: []"),
    "a list of types": (table_case(260, type=["bytes"]), 'Received: format=1, type=["bytes"]'),
    "a word twice": (words("a", "a"), '`words` must be different. Received twice: "a"'),
    "a character twice": (characters("aa"), '`characters` must be different. Received twice: "a"'),
    "a word of two": (words("a b"), '`words` must be pieces without white space. Received: "a b"'),
    "a word with a tab": (words("a\v"), "`words` must be pieces without white space."),
    "an empty word": (words("a", ""), '`words` must be pieces without white space. Received: ""'),
    "an empty list": (words(), "`words` must hold at least one entry. Received: none"),
    "no character": (
        table_case(4, type="characters", characters=""),
        "must hold at least one entry",
    ),
    "a number as word": (words("a", 5), "`words` must hold strings. Received: 5"),
    "a list as word": (words("a", ["b"]), '`words` must hold strings. Received: ["b"]'),
    "a text of words": (
        table_case(6, type="vocabulary", words="ab"),
        "must be a list of strings. R",
    ),
    "null as words": (
        table_case(5, type="vocabulary", words=None),
        "`words` must hold strings. Rec",
    ),
    "null as joiner": (words("a", joiner=None), "`joiner` must hold strings. Received: null"),
    "a number as joiner": (words("a", joiner=1), "`joiner` must hold strings. Received: 1"),
    "a surrogate as word": (
        words("\ud800"),
        '`words` must hold no lone surrogates. Received: "\\ud800"',
    ),
    "a surrogate as joiner": (words("a", joiner="\udc00"), "`joiner` must hold no lone surrogates"),
    "a surrogate as character": (
        characters("a\ud800"),
        "`characters` must hold no lone surrogates",
    ),
    "two in one": (
        characters(["ab", "c"]),
        '`characters` must be one character each. Received: "ab"',
    ),
    "another layout": (
        table_case(260, type="bytes", layout="x"),
        '`layout` must be null or "byt5"',
    ),
    "a flag as layout": (table_case(260, type="bytes", layout=False), 'or "byt5". Received: false'),
    "few bytes": (table_case(259, type="bytes", vocab_size=259), "at least 260. Received: 259"),
    "few bytes of ByT5": (
        table_case(258, type="bytes", layout="byt5", vocab_size=258),
        "`vocab_size` must be an integer of at least 259. Received: 258",
    ),
    "a text of bytes": (table_case(260, type="bytes", vocab_size="260"), 'Received: "260"'),
    "null as prefix": (characters(prefix_ids=None), "`prefix_ids` must be a list of integers. Rec"),
    "a text in a prefix": (
        characters(prefix_ids=["5"]),
        "`prefix_ids` must be a list of integers.",
    ),
    "eos in a prefix": (
        dict(**characters(prefix_ids=[3]), source_prefix_ids=[3], target_prefix_ids=[3]),
        "`prefix_ids` must be in [0, 6), not those of pad, BOS and EOS. Received: 3",
    ),
    "a prefix beyond": (
        dict(**characters(prefix_ids=[6]), source_prefix_ids=[6], target_prefix_ids=[6]),
        "`prefix_ids` must be in [0, 6), not those of pad, BOS and EOS. Received: 6",
    ),
    "no prefix told": (
        characters(prefix_ids=[5]),
        "must agree on source_prefix_ids and target_prefix_ids. Received: {}, and in the tokenizers"
        ' {"source_prefix_ids":[5],"target_prefix_ids":[5]}',
    ),
    "half a prefix told": (
        dict(**characters(prefix_ids=[5]), source_prefix_ids=[5]),
        'Received: {"source_prefix_ids":[5]}, and in the tokenizers {"source_prefix_ids":[5],',
    ),
    "another prefix told": (
        dict(**characters(prefix_ids=[5, 4]), source_prefix_ids=[4, 5], target_prefix_ids=[5, 4]),
        "must agree on source_prefix_ids and target_prefix_ids.",
    ),
    "a prefix told alone": (dict(source_prefix_ids=[5]), "and in the tokenizers {}"),
    "an empty prefix told": (dict(target_prefix_ids=[]), 'Received: {"target_prefix_ids":[]}, and'),
}


def test_a_table_is_taken_where_python_takes_it(tmp_path):
    cases = {**GOOD, **{name: fields for name, (fields, _) in BAD.items()}}
    folders = [
        write_export(tmp_path / str(index), **each) for index, each in enumerate(cases.values())
    ]
    request = dict(kind="folders", folders=[str(folder) for folder in folders])
    (answers,) = node_json(SCRIPTS / "modules.mjs", WEB, request=[request])
    for name, folder, answer in zip(cases, folders, answers, strict=True):
        if name in GOOD:
            open_folder(folder)
            assert answer[0] == "metadata.json", name
            continue
        with pytest.raises(ValueError, match="tokenizer"):
            open_folder(folder)
        assert answer["code"] == "folder", name
        assert BAD[name][1] in answer["error"], name
