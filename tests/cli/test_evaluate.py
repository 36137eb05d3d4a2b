"""`keras-transformer evaluate`, and the scores that it prints."""

import sys

import pytest

from keras_transformer import cli
from keras_transformer.training import load_run


def test_evaluate_prints_scores_of_sacrebleu(run_dir, toy, capsys):
    from sacrebleu.metrics import BLEU, CHRF

    source, target = toy.with_name("valid.src"), toy.with_name("valid.tgt")
    arguments = ["evaluate", str(run_dir), "--source", str(source), "--target", str(target)]
    capsys.readouterr()
    assert cli.main(arguments) == 0
    output = capsys.readouterr().out.splitlines()

    translations = load_run(run_dir).translator().translate(source.read_text().splitlines())
    references = [target.read_text().splitlines()]
    for line, metric in zip(output, (BLEU(), CHRF()), strict=True):
        score, signature = line.split("\t")
        assert score == str(metric.corpus_score(translations, references))
        assert signature == str(metric.get_signature())
    assert output[0].startswith("BLEU = ") and "version:" in output[0]


def test_evaluate_errors(fails, run_dir, toy, tmp_path):
    source, target = toy.with_name("valid.src"), toy.with_name("valid.tgt")
    evaluate = ["evaluate", run_dir, "--source", source, "--target"]
    assert "a text file must exist" in fails(*evaluate, tmp_path / "no.txt")
    assert "same number of lines" in fails(*evaluate, toy.with_name("train.tgt"))
    (tmp_path / "empty.txt").touch()
    empty = ["--source", tmp_path / "empty.txt", "--target", tmp_path / "empty.txt"]
    assert "a corpus must hold a pair" in fails("evaluate", run_dir, *empty)
    assert "a run folder must hold" in fails("evaluate", tmp_path, *evaluate[2:], target)
    line = fails(*evaluate, target, "--with", "savedmodel", "--artifact", tmp_path)
    assert "a SavedModel must hold saved_model.pb" in line


def test_evaluate_reads_no_standard_input(fails, run_dir, tmp_path):
    line = fails("evaluate", run_dir, "--source", "-", "--target", tmp_path / "x")
    assert "none can be standard input" in line


def test_scores_need_as_many_lines():
    from keras_transformer.evaluation import text_scores

    with pytest.raises(ValueError, match="same number of lines, at least one. Received: 1 and 2"):
        text_scores(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="Received: 0 and 0"):
        text_scores([], [])


def test_scores_say_how_to_get_sacrebleu(monkeypatch):
    from keras_transformer.evaluation import text_scores

    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ImportError, match="pip install sacrebleu"):
        text_scores(["a"], ["a"])
