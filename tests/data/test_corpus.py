"""Reading corpora: what a line is, and an error that names the file and line."""

import gzip
import io
import sys

import pytest

from keras_transformer.data import CorpusReport, ParallelCorpus
from keras_transformer.data.faults import Faults
from keras_transformer_runner.lines import read_lines


@pytest.fixture
def write(tmp_path):
    def write(name, content, compress=False):
        content = content if isinstance(content, bytes) else content.encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if compress else content)
        return path

    return write


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a\nb\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("a\r\nb\r\n\r\n", ["a", "b", ""]),
        ("\ufeffa\n\ufeffb\n", ["a", "\ufeffb"]),
        ("a\u2028b\u0085c\x0cd\re\n", ["a\u2028b\u0085c\x0cd\re"]),
        (" a \n", [" a "]),
    ],
)
def test_lines(write, content, lines, compress):
    assert list(read_lines(write("text", content, compress))) == lines


def test_gzip_is_known_by_its_content_not_its_name(write):
    assert list(read_lines(write("plain.gz", "a\n"))) == ["a"]
    assert list(read_lines(write("empty.gz", ""))) == []
    parts = gzip.compress(b"a\n") + gzip.compress(b"b\n")
    assert list(read_lines(write("packed.txt", parts))) == ["a", "b"]


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\r\n\xc3\xa9\n")))
    assert list(read_lines("-")) == ["a", "é"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n")))
    with pytest.raises(ValueError, match="must be UTF-8. Received: standard input, line 1"):
        list(read_lines("-"))


def test_lines_are_read_one_at_a_time(write):
    lines = read_lines(write("text", b"a\nb\n\xff\n"))
    assert (next(lines), next(lines)) == ("a", "b")
    with pytest.raises(ValueError, match=r"text must be UTF-8. Received: .*text, line 3: .*0xff"):
        next(lines)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="must exist. Received: .*none.txt"):
        list(read_lines(tmp_path / "none.txt"))
    with pytest.raises(FileNotFoundError, match="must exist. Received: .*none.txt"):
        ParallelCorpus(tmp_path / "none.txt").check()


def test_damaged_gzip_is_named(write):
    packed = gzip.compress(b"a line\n" * 1000)
    flipped = bytes([*packed[:20], packed[20] ^ 0xFF, *packed[21:]])
    for damaged in (packed[:-9], flipped, packed[:-8] + b"\0" * 8):
        with pytest.raises(ValueError, match="gzip file must be complete. Received: .*bad.gz"):
            list(read_lines(write("bad.gz", damaged)))


def test_two_files(write):
    corpus = ParallelCorpus(write("a", "one\n\nthree\n \n"), write("b", "eins\nzwei\n\n\n", True))
    pairs = [("one", "eins"), ("", "zwei"), ("three", ""), (" ", "")]
    assert list(corpus) == pairs
    assert list(corpus) == pairs  # a second epoch
    assert list(corpus.sentences()) == ["one", "eins", "", "zwei", "three", "", " ", ""]
    report = corpus.check()
    assert report == CorpusReport(
        pairs=4,
        empty_source=2,
        empty_target=2,
        skipped=3,
        longest_source=5,
        longest_target=4,
        faults=Faults({"empty": 3}, {"empty": [2, 3, 4]}),
    )
    assert report.usable == 1
    assert str(report) == (
        "4 pairs, 1 usable, longest source 5 and target 4 characters; "
        "left out: empty: 3 (lines 2, 3, 4)"
    )


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
def test_tab_separated_columns(write, compress):
    path = write("pairs.tsv", "\ufeffone\teins\r\ntwo\tzwei\textra\tmore\n\tdrei\n", compress)
    corpus = ParallelCorpus(str(path))
    assert list(corpus) == [("one", "eins"), ("two", "zwei"), ("", "drei")]
    assert corpus.check().empty_source == 1


@pytest.mark.parametrize(("source", "target"), [(2, 5), (5, 2), (0, 1), (3, 2)])
def test_files_of_different_length_are_named_with_their_counts(write, source, target):
    corpus = ParallelCorpus(write("left.txt", "a\n" * source), write("right.txt", "b\n" * target))
    message = rf"same number of lines.*left.txt with {source} and .*right.txt with {target} lines"
    with pytest.raises(ValueError, match=message):
        corpus.check()
    with pytest.raises(ValueError, match=message):  # training without a check cannot go wrong
        list(corpus)


def test_a_line_without_a_tab_is_named(write):
    corpus = ParallelCorpus(write("pairs.tsv", "a\tb\nonly one\n"))
    with pytest.raises(ValueError, match="must have a tab.*line 2: 'only one'") as raised:
        corpus.check()
    assert str(raised.value).endswith(' (with invalid="skip" such lines are left out)')


@pytest.mark.parametrize("content", ["", "\n \n\u3000\n"])
def test_a_corpus_without_text_is_an_error(write, content):
    corpus = ParallelCorpus(write("left.txt", content), write("right.txt", content))
    with pytest.raises(ValueError, match="text on both sides. Received: .*left.txt and .*right"):
        corpus.check()
    with pytest.raises(ValueError, match="text on both sides. Received: .*empty.tsv with 0 pairs"):
        ParallelCorpus(write("empty.tsv", "")).check()


def test_faulty_lines_are_skipped_and_counted_when_asked(write):
    left, right = write("left.txt", b"a\n\xff\nc\nd\n"), write("right.txt", b"A\nB\nC\n\xfe\n")
    with pytest.raises(ValueError, match="must be UTF-8. Received: .*left.txt, line 2: .*0xff"):
        list(ParallelCorpus(left, right))
    corpus = ParallelCorpus(left, right, invalid="skip")
    assert list(corpus) == [("a", "A"), ("c", "C")]  # the sides stay aligned
    report = corpus.check()
    assert (report.pairs, report.skipped, report.usable) == (4, 2, 2)
    assert report.faults == Faults({"invalid_utf8": 2}, {"invalid_utf8": [2, 4]})
    tsv = ParallelCorpus(write("pairs.tsv", b"a\tb\n\xff\tc\nno tab\n\t\n"), invalid="skip")
    report = tsv.check()
    assert (report.pairs, report.usable) == (4, 1)
    assert report.faults.lines == {"invalid_utf8": [2], "no_tab": [3], "empty": [4]}
    with pytest.raises(ValueError, match="text on both sides. Received: .*none.tsv with 1 pairs"):
        ParallelCorpus(write("none.tsv", "no tab"), invalid="skip").check()


def test_the_first_ten_lines_of_a_fault_are_kept(write):
    corpus = ParallelCorpus(write("pairs.tsv", "a\tb\n" + "\t\n" * 1234), invalid="skip")
    faults = corpus.check().faults
    assert faults.counts == {"empty": 1234} and faults.lines == {"empty": list(range(2, 12))}
    assert str(faults) == "empty: 1,234 (lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...)"
    assert str(Faults({"no_tab": 1}, {"no_tab": [7]})) == "no_tab: 1 (line 7)"
    # Of several corpora together the lines are not known.
    assert str(Faults({"empty": 0, "too_long": 2000})) == "too_long: 2,000"


def test_faults_of_parts_add_up_in_any_order():
    parts = [Faults(), Faults(), Faults()]
    for number in range(1, 40):
        parts[number % 3].add("empty" if number % 2 else "no_tab", [number])
    merged = [Faults(), Faults()]
    for total, order in zip(merged, (parts, parts[::-1]), strict=True):
        for part in order:
            total.update(part)
    assert merged[0] == merged[1]
    assert merged[0].counts == {"empty": 20, "no_tab": 19}
    assert merged[0].lines["no_tab"] == list(range(2, 21, 2))
    joined = Faults()
    joined.leave_out_lines()
    merged[0].update(joined)  # after the others, or before
    joined.update(merged[1])
    assert merged[0] == joined == Faults(merged[1].counts, {}, numbered=False)


def test_the_rule_for_faulty_lines_is_checked():
    with pytest.raises(ValueError, match="`invalid` must be 'error' or 'skip'. Received: 'drop'"):
        ParallelCorpus("a", invalid="drop")


def test_standard_input_is_read_once(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\n")))
    corpus = ParallelCorpus("-")
    assert list(corpus) == [("a", "b")]
    with pytest.raises(ValueError, match="standard input can be read only once; .*second pass"):
        corpus.check()
    packed = io.BufferedReader(io.BytesIO(gzip.compress(b"a\tb\n")))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(packed))
    assert list(corpus) == [("a", "b")]
