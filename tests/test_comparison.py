"""Paired bootstrap and differences of sentences, against sacreBLEU itself and numbers by hand."""

import os
import subprocess
import sys

import numpy as np
import pytest

from keras_transformer.comparison import Comparison, compare_translations

RNG = np.random.default_rng(0)
WORDS = [f"w{number}" for number in range(30)]
REFERENCES = [" ".join(RNG.choice(WORDS, 9)) for _ in range(40)]


def worse(rate, seed):
    """The references, with words replaced at a rate."""
    rng = np.random.default_rng(seed)
    return [
        " ".join("x" if rng.random() < rate else word for word in line.split())
        for line in REFERENCES
    ]


SYSTEMS = {"base": worse(0.3, 1), "other": worse(0.1, 2)}


def test_figures_are_those_of_the_command_sacrebleu(tmp_path):
    (tmp_path / "ref").write_text("".join(f"{line}\n" for line in REFERENCES))
    for name, lines in SYSTEMS.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", *SYSTEMS, "-m", "bleu", "chrf"]
    command += ["--paired-bs", "--paired-bs-n", "200", "-f", "text", "-w", "4"]
    env = {**os.environ, "SACREBLEU_SEED": "7"}
    run = subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, text=True)
    found = compare_translations(SYSTEMS, REFERENCES, samples=200, seed=7)
    for name, scores in found.scores.items():
        for score in scores.values():
            value, mean, interval, p_value = score
            assert f"{value:.4f} ({mean:.4f} ± {interval:.4f})" in run.stdout, name
            assert p_value is None or f"(p = {p_value:.4f})" in run.stdout, name
    assert "seed:7" in found.signatures["BLEU"] and "bs:200" in found.signatures["BLEU"]
    assert found.scores["BLEU"]["base"].p_value is None
    assert found.scores["BLEU"]["other"].p_value < 0.05


def test_the_seed_decides_and_the_environment_stays(monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    once, again, other = (
        compare_translations(SYSTEMS, REFERENCES, samples=50, seed=seed).scores["chrF2"]["other"]
        for seed in (5, 5, 6)
    )
    assert once == again and once.value == other.value and once.mean != other.mean
    assert os.environ["SACREBLEU_SEED"] == "99"
    monkeypatch.delenv("SACREBLEU_SEED")
    compare_translations(SYSTEMS, REFERENCES, samples=50)
    assert "SACREBLEU_SEED" not in os.environ


def test_equal_systems_do_not_differ():
    same = {"a": SYSTEMS["base"], "b": SYSTEMS["base"]}
    found = compare_translations(same, REFERENCES, samples=50, metrics=("ter",), by="bleu")
    assert list(found.scores) == ["TER"] and found.scores["TER"]["b"].p_value == 1
    assert found.extremes("b", 5) == ([], [])
    summary = found.to_dict()["sentences"]["differences"]["b"]
    assert summary == {"better": 0, "equal": 40, "worse": 0, "mean": 0}


def test_equal_scores_of_other_texts_do_not_differ():
    other = {"a": SYSTEMS["base"], "b": [f"{line.upper()} " for line in SYSTEMS["base"]]}
    metrics = ("bleu", "chrf", "ter")
    found = compare_translations(other, REFERENCES, samples=50, metrics=metrics, lowercase=True)
    for name, scores in found.scores.items():
        assert scores["a"].value == scores["b"].value and scores["b"].p_value == 1, name


def test_the_sentences_that_differ_most_come_first():
    sentences = {"a": [10.0, 20.0, 30.0, 40.0, 5.0], "b": [15.0, 10.0, 30.0, 60.0, 0.0]}
    found = Comparison(("a", "b"), {}, {}, "chrf", sentences)
    assert found.differences("b") == [5, -10, 0, 20, -5]
    assert found.extremes("b", 1) == ([3], [1])
    assert found.extremes("b", 9) == ([3, 0], [1, 4])
    assert found.extremes("b", 0) == ([], [])


def test_case_counts_unless_it_is_to_be_ignored():
    systems = {"a": ["a man"], "b": ["A MAN"]}
    for lowercase, value in ((False, 0), (True, 100)):
        for by in ("chrf", "bleu"):
            found = compare_translations(systems, ["a man"], lowercase=lowercase, by=by, samples=9)
            assert round(found.sentences["b"][0]) == value


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(systems={"a": ["x"]}), r"`systems` must be two or more. Received: \['a'\]"),
        (dict(references=[], systems={"a": [], "b": []}), "`references` must hold a line"),
        (dict(systems={"a": ["x"], "b": []}), "Received: 0 of b, 1 references"),
        (dict(samples=0), "`samples` must be a positive integer"),
        (dict(seed=0), "`seed` must be a positive integer"),
        (dict(by="ter"), "`by` must be one of"),
        (dict(metrics=("bleu", "comet")), "`metrics` must be some of"),
        (dict(metrics=()), "`metrics` must be some of"),
        (dict(tokenize="none at all"), "`tokenize` must be one of"),
    ],
)
def test_errors(changes, message):
    with pytest.raises(ValueError, match=message):
        compare_translations(
            **{"systems": {"a": ["x"], "b": ["y"]}, "references": ["x"], **changes}
        )
