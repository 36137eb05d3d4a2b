"""Binary lexical shortlists of Marian's, made by hand."""

import numpy as np
import pytest

from keras_transformer.interop.lexical_shortlist import LexicalShortlist, read_lex

MAGIC = 0xF11A48D5013417F5
LISTS = [[], [9, 4], [7], [4, 8, 20]]  # of the source's ids 0 to 3


def content(lists=LISTS, frequent=3, magic=MAGIC):
    starts = np.cumsum([0, *map(len, lists)])
    ids = [token for each in lists for token in each]
    header = [magic, 12345, frequent, 2, len(starts), len(ids)]
    return np.array([*header, *starts], "<u8").tobytes() + np.array(ids, "<u4").tobytes()


def read(tmp_path, data, **options):
    path = tmp_path / "lex.bin"
    path.write_bytes(data)
    return LexicalShortlist(path, **options)


def test_the_frequent_ids_and_those_of_each_source_id(tmp_path):
    shortlist = read(tmp_path, content(), joint_vocabulary=False)
    assert shortlist.allowed_ids([]) == shortlist.allowed_ids([0]) == [0, 1, 2]
    assert shortlist.allowed_ids([1, 3, 1]) == [0, 1, 2, 4, 8, 9, 20]
    assert shortlist.allowed_ids([2, 4, 99, -1]) == [0, 1, 2, 7]  # the others are none of its ids
    assert read(tmp_path, content()).allowed_ids([3, 0]) == [0, 1, 2, 3, 4, 8, 20]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "must be a binary lexical shortlist of Marian's. Received: .*lex.bin"),
        (content(magic=MAGIC + 1), "must be a binary lexical shortlist"),
        (content(frequent=2**40), "must have at most 16,777,216 frequent ids. Received: 1,099,"),
        (content()[:-1], "must have 112 bytes. Received: 111"),
        (content() + b"\0", "must have 112 bytes. Received: 113"),
        (content()[:56] + b"\x07" + content()[57:], "must follow each other and fill the file"),
        (content()[:80] + b"\x05" + content()[81:], "must follow each other and fill the file"),
        (content()[:48] + b"\xff" * 8 + content()[56:], "must follow each other and fill the"),
    ],
)
def test_damaged_files(data, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, data)


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        LexicalShortlist(tmp_path / "lex.bin")


def test_a_file_becomes_a_shortlist_of_a_model(tmp_path):
    own = read(tmp_path, content(), joint_vocabulary=False)
    made = own.shortlist(6, 21)
    for ids in ([], [1, 3, 1], [2, 5]):
        assert made.ids_for(ids) == own.allowed_ids(ids)
    with pytest.raises(ValueError, match="lex.bin must be for at most 3 source ids. Received: 4"):
        own.shortlist(3, 21)
    with pytest.raises(ValueError, match=r"lex.bin: ids must lie in \[0, 6\)"):
        own.shortlist(6, 6)


@pytest.mark.parametrize("probability", ["nan", "inf", "-0.5", "x"])
def test_a_dictionary_has_probabilities(tmp_path, probability):
    (tmp_path / "lex.s2t").write_text(f"dog Hund {probability}\n")
    with pytest.raises(ValueError, match="a probability. Received: .*lex.s2t, line 1: 'dog Hund"):
        read_lex(tmp_path / "lex.s2t", ["Hund"], ["dog"])
