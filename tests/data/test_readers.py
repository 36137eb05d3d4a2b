"""Corpora of other forms: the same pairs, and an error or a count for what holds no pair."""

import gzip
import io
import json
import sys
import types

import pytest
import tensorflow as tf

from keras_transformer.data import ParallelCorpus
from keras_transformer.data.faults import Faults
from keras_transformer.data.readers import JsonLinesCorpus, TfdsCorpus, holds_both, open_corpus

PAIRS = [("one", "eins"), ("two\nlines", "zwei\u2028")]


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


def json_lines(keys=("source", "target")):
    return b"".join(
        json.dumps({"id": 1, **dict(zip(keys, p, strict=True))}).encode() + b"\n" for p in PAIRS
    )


@pytest.mark.parametrize("name", ["pairs.jsonl", "pairs.jsonl.gz"])
def test_json_lines(write, name):
    corpus = open_corpus(write(name, json_lines()))
    assert isinstance(corpus, JsonLinesCorpus) and name in corpus.name
    assert list(corpus) == PAIRS
    assert list(corpus) == PAIRS  # a second epoch
    assert corpus.check().usable == 2
    other = open_corpus(write(name, json_lines(("en", "de"))), source_key="en", target_key="de")
    assert list(other) == PAIRS


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        (b"[1]", "not_object", r"a JSON object. Received: .*pairs.jsonl, line 2: '\[1\]'"),
        (b"", "not_object", "a JSON object. Received: .*line 2: ''"),
        (b"{", "not_object", "a JSON object. Received: .*line 2: '{'"),
        (b"[" * 100_000, "not_object", "a JSON object. Received: .*line 2"),
        (b'{"source": "a"}', "no_text", r"string at 'target'. Received: .*line 2 with keys \['s"),
        (
            b'{"source": 3, "target": "b"}',
            "no_text",
            "string at 'source'. Received: .*line 2 with 3",
        ),
        (b'{"source": "a", "target": null}', "no_text", "string at 'target'. .*line 2 with None"),
        (b'\xff{"source": "a", "target": "b"}', "invalid_utf8", "must be UTF-8. .*line 2: .*0xff"),
        (b'{"source": "\\ud800", "target": "b"}', "invalid_utf8", "must be UTF-8. .*'source'"),
    ],
)
def test_faulty_json_lines(write, line, kind, message):
    path = write("pairs.jsonl", b"\n".join([json_lines().splitlines()[0], line, json_lines()]))
    with pytest.raises(ValueError, match=message):
        list(JsonLinesCorpus(path))
    corpus = JsonLinesCorpus(path, invalid="skip")
    assert list(corpus) == [PAIRS[0], *PAIRS]
    report = corpus.check()
    assert (report.pairs, report.usable) == (4, 3)
    assert report.faults == Faults({kind: 1}, {kind: [2]})


def test_json_lines_from_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json_lines())))
    corpus = open_corpus("-", format="jsonl")
    assert list(corpus) == PAIRS
    with pytest.raises(ValueError, match="read only once"):
        list(corpus)


@pytest.fixture
def dataset(tmp_path):
    """A tiny dataset, built; the real library where it is installed."""
    tfds = pytest.importorskip("tensorflow_datasets", reason="needs tensorflow-datasets")
    # The library imports it, but does not ask for it.
    pytest.importorskip("importlib_resources", reason="tensorflow-datasets needs it")

    class TinyPairs(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = tmp_path

        def _info(self):
            features = {"en": tfds.features.Text(), "de": tfds.features.Text(), "n": tf.int64}
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for number, (en, de) in enumerate([*PAIRS, (b"\xff", "drei")]):
                yield number, {"en": en, "de": de, "n": number}

    builder = TinyPairs(data_dir=tmp_path)
    builder.download_and_prepare()
    return str(tmp_path)


def in_memory(monkeypatch, texts):
    """The library's `load`, and nothing else of it."""
    data = tf.data.Dataset.from_tensor_slices(texts)
    stub = types.ModuleType("tensorflow_datasets")

    def load(name, split, data_dir, shuffle_files):
        assert not shuffle_files  # or the numbers of examples would change
        return data

    stub.load = load
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", stub)


# The library asks protobuf 6 in a way that that warns of.
@pytest.mark.filterwarnings("ignore:label\\(\\) is deprecated:DeprecationWarning")
def test_a_dataset_by_name(dataset):
    corpus = TfdsCorpus("tiny_pairs", "en", "de", data_dir=dataset, invalid="skip")
    assert sorted(corpus) == sorted(PAIRS)
    assert list(corpus) == list(corpus)
    assert corpus.check().faults.counts == {"invalid_utf8": 1}


def test_examples_of_a_dataset(monkeypatch):
    texts = {"en": [b"one", b"\xff"], "de": [b"eins", b"zwei"], "n": [1, 2]}
    in_memory(monkeypatch, texts)
    corpus = open_corpus("tfds:tiny/pairs", source_key="en", target_key="de", invalid="skip")
    assert corpus.name == "tfds:tiny/pairs, train" and corpus.text_bytes() is None
    assert list(corpus) == [("one", "eins")]
    assert corpus.check().faults == Faults({"invalid_utf8": 1}, {"invalid_utf8": [2]})
    with pytest.raises(ValueError, match="must be UTF-8. Received: tfds:tiny, train, example 2"):
        list(TfdsCorpus("tiny", "en", "de"))
    with pytest.raises(ValueError, match=r"string of the dataset. Received: 'fr', .*\['en', 'de"):
        list(TfdsCorpus("tiny", "en", "fr"))
    with pytest.raises(ValueError, match="string of the dataset. Received: 'n'"):
        list(TfdsCorpus("tiny", "n", "de"))


def test_a_missing_library_is_told_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match="pip install tensorflow-datasets"):
        list(TfdsCorpus("tiny", "en", "de"))


def test_the_form_is_taken_from_the_name(write):
    assert open_corpus("a", "b", invalid="skip") == ParallelCorpus("a", "b", invalid="skip")
    assert open_corpus("a.txt") == open_corpus("a.txt", format="tsv") == ParallelCorpus("a.txt")
    assert open_corpus("-") == ParallelCorpus("-")
    assert open_corpus("a.ndjson.gz") == JsonLinesCorpus("a.ndjson.gz")
    assert open_corpus("tfds:x/y", source_key="a", target_key="b", split="test") == TfdsCorpus(
        "x/y", "a", "b", split="test"
    )
    with pytest.raises(FileNotFoundError, match="one that `prepare` wrote"):
        open_corpus(write("pairs.jsonl", b"").parent)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "a", "format": "csv"}, "`format` must be one of lines, tsv.*Received: 'csv'"),
        ({"source": "a", "target": "b", "format": "tsv"}, "`target` must .*format='tsv', t.*'b'"),
        ({"source": "a", "format": "lines"}, "`target` must be given with lines"),
        ({"source": "tfds:a", "source_key": "en"}, "name the features.*'en', target_key=None"),
        ({"source": "a.jsonl", "invalid": "no"}, "`invalid` must be 'error' or 'skip'"),
        (
            {"source": "tfds:a", "source_key": "a", "target_key": "b", "invalid": ""},
            "`invalid` must be 'error' or 'skip'",
        ),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        open_corpus(**arguments)


def test_one_file_named_twice_holds_both_sides(tmp_path):
    columns, lines = tmp_path / "a.tsv", tmp_path / "a.jsonl.gz"
    columns.write_text("one\teins\n")
    lines.write_bytes(gzip.compress(b'{"source": "one", "target": "eins"}\n'))
    for path in (columns, lines):
        assert list(open_corpus(path, str(path))) == list(open_corpus(path)) == [("one", "eins")]
        assert holds_both(path) and open_corpus(path).files == (path,)
    text = tmp_path / "a.txt"
    text.write_text("one\n")
    assert list(open_corpus(text, text)) == [("one", "one")]
    assert not holds_both(text) and open_corpus(text, text).files == (text, text)
    assert holds_both("tfds:a") and holds_both(tmp_path)


def test_json_lines_in_two_files_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match="JSON lines must hold both sides, .* Received: a.jsonl, b"
    ):
        open_corpus("a.jsonl", "b.json.gz")
    assert open_corpus("a.jsonl", "b.json", format="lines").target == "b.json"


def test_missing_files_are_known_without_reading(tmp_path):
    for corpus in (open_corpus("no.tsv"), open_corpus("no.jsonl"), open_corpus("no.a", "no.b")):
        with pytest.raises(FileNotFoundError, match="a text file must exist. Received: no"):
            corpus.check_files()
    assert open_corpus("-").check_files() is None
    assert TfdsCorpus("a", "b", "c").check_files() is None
