"""Parts of a corpus, read each by itself, hold what one reading gives, with the same numbers."""

import gzip
import json

import pytest

from keras_transformer.data import Faults, JsonLinesCorpus, ParallelCorpus
from keras_transformer.data.corpus_parts import corpus_parts as cut
from keras_transformer.data.joined import TaggedCorpus

LINES = [b"a\tb", b"", b"\xff\tc", b"no tab", b"d\te\r", "é\tü".encode(), b"f\tg\th"]


def read(corpora):
    faults, pairs = Faults(), []
    for corpus in corpora:
        found = Faults()
        pairs += corpus.numbered_pairs(found)
        faults.update(found)
    return pairs, faults


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("pairs", [1, 2, 3, 7, 100])
def test_columns(tmp_path, monkeypatch, pairs, mark, end):
    monkeypatch.setattr("keras_transformer.data.corpus_parts._BLOCK", 5)
    path = tmp_path / "pairs.tsv"
    path.write_bytes(mark + b"\n".join(LINES) + end)
    corpus = ParallelCorpus(path, invalid="skip")
    parts = cut(corpus, pairs)
    assert len(parts) == -(-len(LINES) // pairs)
    assert read(parts) == read([corpus])
    assert read(parts)[0][0] == (1, "a", "b") and len(read(parts)[0]) == 4
    assert {part.name for part in parts} == {corpus.name}


def test_two_files(tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_text("".join(f"{'x' * number}\n" for number in range(50)))
    target.write_text("".join(f"{'yz' * (50 - number)}\n" for number in range(50)))
    corpus = ParallelCorpus(source, target)
    parts = cut(corpus, 7)
    assert read(parts) == read([corpus]) and len(parts) == 8
    assert [number for number, *_ in read([parts[2]])[0]] == list(range(15, 22))
    target.write_text("short\n")
    with pytest.raises(ValueError, match="same number of lines. Received: .*50 and .*1 lines"):
        cut(corpus, 7)


def test_an_error_names_the_line_of_the_whole_file(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"source": "a", "target": "b"}) + "\n" for _ in range(9)))
    with open(path, "a") as file:
        file.write("[]\n")
    corpus = JsonLinesCorpus(path)
    *good, last = cut(corpus, 3)
    assert len(read(good)[0]) == 9
    with pytest.raises(ValueError, match="line 10: '..'"):
        read([last])


def test_what_cannot_be_entered_midway_is_one_part(tmp_path):
    path = tmp_path / "pairs.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tb\nc\td\n"))
    plain = tmp_path / "pairs.tsv"
    plain.write_bytes(b"a\tb\nc\td\n")
    empty = tmp_path / "empty.tsv"
    empty.touch()
    tagged = TaggedCorpus(ParallelCorpus(plain), "<de>")
    for corpus in (ParallelCorpus(path), ParallelCorpus(empty), tagged, [("a", "b")]):
        assert cut(corpus, 1) == [corpus]


def test_files_that_are_no_text_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="a text file must exist"):
        cut(ParallelCorpus(tmp_path / "none"))
    path = tmp_path / "pairs.tsv"
    path.write_bytes("a\tb\n".encode("utf-16"))
    with pytest.raises(ValueError, match="which is UTF-16"):
        cut(ParallelCorpus(path))
