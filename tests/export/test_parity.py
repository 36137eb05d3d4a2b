"""Parity by hand: what counts as a token, what breaks a promise."""

import dataclasses
import json

import pytest

from keras_transformer.export import ParityError
from keras_transformer.export.parity import (
    ParityReport,
    bleu,
    checked_references,
    checked_samples,
    compare,
)

KEPT = ParityReport(
    artefact="litert",
    mode="int8",
    samples=10,
    identical=9,
    token_agreement=0.9,
    promised_agreement=0.9,
    size_bytes=1,
    seconds_a_sample=0.5,
    ops=("ADD",),
    first_difference=("ein Haus", "a house", "a mouse"),
)


@pytest.mark.parametrize(
    "expected, received, agreement",
    [
        ([5, 6, 7], [5, 6, 7], 4 / 4),
        ([5, 6, 7], [5, 9, 7], 3 / 4),  # only the position that differs
        ([5, 6, 7], [5, 6], 2 / 4),  # the last token, and the end
        ([5, 6], [5, 6, 7], 2 / 3),  # the end
        ([5, 6, 7], [6, 7], 0 / 4),
        ([], [], 1 / 1),
        ([], [5], 0 / 1),
        ([5], [], 0 / 2),
    ],
)
def test_agreement(expected, received, agreement):
    found = compare(["s"], [("a", expected)], [("b", received)])
    assert found["token_agreement"] == agreement


def test_counts_over_all_samples():
    found = compare(
        ["s1", "s2", "s3"],
        [("a", [5, 6]), ("b", [7, 8, 9, 10]), ("c", [])],
        [("a", [5, 6]), ("x", [7, 8, 0, 10]), ("y", [4])],
    )
    assert found == {
        "samples": 3,
        "identical": 1,
        "token_agreement": (3 + 4 + 0) / (3 + 5 + 1),
        "first_difference": ("s2", "b", "x"),
    }


def test_equal_texts_of_other_pieces():
    found = compare(["s", "t"], [("ab", [5]), ("ab", [5])], [("ab", [5]), ("ab", [6, 7])])
    assert (found["identical"], found["token_agreement"]) == (2, 2 / 4)
    assert found["first_difference"] == ("t", "[5]", "[6, 7]")


def test_no_difference():
    found = compare(["s"], [("a", [5])], [("a", [5])])
    assert (found["identical"], found["first_difference"]) == (1, None)


def test_a_missing_answer_is_an_error():
    with pytest.raises(ValueError):
        compare(["s", "t"], [("a", [5]), ("b", [6])], [("a", [5])])


def test_a_kept_promise():
    assert KEPT.check() is KEPT


def test_a_broken_promise():
    broken = dataclasses.replace(KEPT, token_agreement=0.8999)
    message = (
        "a int8 litert must give at least 90% of Python's tokens. Received: 89.99% of the tokens "
        "and 9 of 10 texts, first at 'ein Haus': Python 'a house', artefact 'a mouse'. Nothing was"
    )
    with pytest.raises(ParityError, match=message):
        broken.check()


def test_written_as_json(tmp_path):
    report = dataclasses.replace(KEPT, first_difference=("été \ud800", "a", "b"))
    report.write(tmp_path / "parity.json")
    content = (tmp_path / "parity.json").read_bytes()
    assert "été" in content.decode("utf-8")
    written = json.loads(content)
    assert written["first_difference"] == ["été \ud800", "a", "b"]
    assert written["ops"] == ["ADD"] and written["token_agreement"] == 0.9


def test_samples():
    assert checked_samples(text for text in ("a", "b")) == ["a", "b"]
    with pytest.raises(ValueError, match="at least one sentence .*Received: none"):
        checked_samples([])
    with pytest.raises(TypeError, match="must be a list of strings. Received: 'abc'"):
        checked_samples("abc")
    with pytest.raises(TypeError, match="must be a list of strings. Received: b'b' in it"):
        checked_samples(["a", b"b"])


def test_texts_count_where_all_tokens_are_promised():
    found = compare(["a", "b"], [("x y", [5, 6]), ("z", [7])], [("x  y", [5, 6]), ("z", [7])])
    report = dataclasses.replace(KEPT, **found, promised_agreement=1.0)
    with pytest.raises(ParityError, match="100.00% of the tokens and 1 of 2 texts"):
        report.check()
    assert dataclasses.replace(KEPT, **found, promised_agreement=0.8).check().identical == 1


def test_a_broken_promise_of_bleu():
    report = dataclasses.replace(KEPT, bleu=30.0, python_bleu=30.5, promised_bleu_loss=0.5)
    assert report.check() is report
    assert dataclasses.replace(report, bleu=40.0).check()  # a gain breaks nothing
    for missing in ("bleu", "python_bleu", "promised_bleu_loss"):
        assert dataclasses.replace(report, **{missing: None}).broken_promises() == []
    message = (
        "a int8 litert must lose at most 0.4 BLEU. Received: 30.00, and 30.50 in Python, on 10 "
        "sentences. Nothing was written"
    )
    with pytest.raises(ParityError, match=message):
        dataclasses.replace(report, promised_bleu_loss=0.4).check()


def test_a_broken_promise_of_size():
    report = dataclasses.replace(
        KEPT, parameters=100_000, weight_bytes=110_000 + 2**15, promised_bytes=1.1
    )
    assert report.check() is report
    for missing in ("parameters", "weight_bytes", "promised_bytes"):
        assert dataclasses.replace(report, **{missing: None}).broken_promises() == []
    message = (
        "a int8 litert must hold at most 1.1 bytes of weights a parameter, and 32,768 more. "
        "Received: 142,769 bytes for 100,000 parameters; a weight may be stored twice. Nothing"
    )
    with pytest.raises(ParityError, match=message):
        dataclasses.replace(report, weight_bytes=110_000 + 2**15 + 1).check()


def test_all_broken_promises_are_named():
    worst = dataclasses.replace(
        KEPT, token_agreement=0.1, bleu=1.0, python_bleu=30.5, promised_bleu_loss=0.5,
        parameters=1, weight_bytes=10**6, promised_bytes=1.1,
    )  # fmt: skip
    assert len(worst.broken_promises()) == 3
    with pytest.raises(ParityError, match="of Python's tokens.*BLEU.*bytes of weights"):
        worst.check()


def test_references():
    assert checked_references(None, ["a"], "13a") is None
    assert checked_references(iter(["x"]), ["a"], "13a") == ["x"]
    with pytest.raises(ValueError, match="one line for each of `samples`. Received: 2 for 1"):
        checked_references(["x", "y"], ["a"], "13a")
    with pytest.raises(TypeError, match="`references` must be a list of strings. Received:"):
        checked_references("x", ["a"], "13a")
    with pytest.raises(TypeError, match="`references` must be a list of strings. Received:"):
        checked_references([1], ["a"], "13a")
    with pytest.raises(ValueError, match="`tokenize` must be one of"):
        checked_references(["x"], ["a"], "14a")


def test_bleu():
    lines = ["ein Haus steht am See", "die Katze schläft im Garten"]
    assert bleu(lines, lines, "13a") == pytest.approx(100)
    assert bleu(lines, lines[::-1], "13a") < 10
    assert bleu(lines, None, "13a") is None
