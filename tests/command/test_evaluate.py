"""`keras-transformer evaluate`, and the scores that it prints."""

import json
import sys

import pytest

from keras_transformer.command import cli, evaluate
from keras_transformer.experiment import load_run


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
    assert "a test set must hold a pair" in fails("evaluate", run_dir, *empty)
    assert "a run folder must hold" in fails("evaluate", tmp_path, *evaluate[2:], target)
    line = fails(*evaluate, target, "--with", "savedmodel", "--artifact", tmp_path)
    assert "a SavedModel must hold saved_model.pb" in line


def test_evaluate_reads_no_standard_input(fails, run_dir, tmp_path):
    line = fails("evaluate", run_dir, "--source", "-", "--target", tmp_path / "x")
    assert "and no standard input" in line


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


@pytest.fixture
def no_model(monkeypatch):
    """Sources stand for their translations."""
    monkeypatch.setattr(evaluate, "translate_function", lambda arguments: lambda texts: texts)


def _columns_of(toy, tmp_path):
    """The validation set in two files, as columns, and as JSON lines: arguments for each."""
    sides = [toy.with_name(f"valid.{side}").read_text().splitlines() for side in ("src", "tgt")]
    pairs = list(zip(*sides, strict=True))
    (tmp_path / "v.tsv").write_text("".join(f"{s}\t{t}\tmore\n" for s, t in pairs))
    lines = "".join(json.dumps({"a": s, "b": t}) + "\n" for s, t in pairs)
    (tmp_path / "v.jsonl").write_text(lines)
    (tmp_path / "v.txt").write_bytes((tmp_path / "v.tsv").read_bytes())
    columns, as_json = str(tmp_path / "v.tsv"), str(tmp_path / "v.jsonl")
    keys = ["--source-key", "a", "--target-key", "b"]
    return [
        ["--source", str(toy.with_name("valid.src")), "--target", str(toy.with_name("valid.tgt"))],
        ["--source", columns],
        ["--source", columns, "--target", columns],
        ["--source", str(tmp_path / "v.txt"), "--format", "tsv"],
        ["--source", as_json, *keys],
        ["--source", as_json, "--target", as_json, *keys],
    ]


def test_columns_and_json_lines_are_read_as_train_reads_them(
    run_dir, toy, tmp_path, capsys, no_model
):
    outputs = set()
    for arguments in _columns_of(toy, tmp_path):
        assert cli.main(["evaluate", str(run_dir), *arguments]) == 0
        captured = capsys.readouterr()
        outputs.add(captured.out)
        assert "warning" not in captured.err
    assert len(outputs) == 1


def test_a_tab_in_plain_text_is_warned_of_once(run_dir, toy, tmp_path, capsys, no_model):
    _columns_of(toy, tmp_path)
    path = str(tmp_path / "v.txt")
    command = ["evaluate", str(run_dir), "--source", path, "--target", path]
    assert cli.main(command) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "warning" in line)
    assert line == (
        f"keras-transformer: warning: {path}, line 1: plain text has a tab. A file with both "
        "sides in columns is one source of the format 'tsv'"
    )
    assert cli.main(["translate", str(run_dir), "--input", path]) == 0
    assert capsys.readouterr().err.count("plain text has a tab") == 1


def test_a_test_set_that_is_no_text(fails, run_dir, toy, tmp_path):
    *_, with_json = _columns_of(toy, tmp_path)
    other = ["--source", tmp_path / "v.jsonl", "--target", toy.with_name("valid.tgt")]
    assert "JSON lines must hold both sides" in fails("evaluate", run_dir, *other)
    prepared = tmp_path / "prepared"
    prepare = ["prepare", str(prepared), "--tokenizer", str(run_dir / "tokenizer.model")]
    assert cli.main([*prepare, *with_json]) == 0
    line = fails("evaluate", run_dir, "--source", prepared)
    assert "a test set must be text, not what `prepare` made of it" in line


def test_a_saved_model_without_the_signature_translate(tmp_path):
    """As the first exports were, and those of others."""
    import tensorflow as tf

    from keras_transformer.evaluation import saved_model_translate

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="text")])
    def serving_default(text):
        return {"translation": tf.strings.upper(text)}

    module = tf.Module()
    module.serve = serving_default
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": serving_default})
    assert saved_model_translate(tmp_path)(["ab", ""] * 20) == ["AB", ""] * 20


def test_a_faulty_line_of_a_test_set_is_not_to_be_left_out(fails, run_dir, tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("ba\tab\nno tab\n")
    line = fails("evaluate", run_dir, "--source", path)
    assert "test.tsv, line 2" in line and "skip" not in line


def test_a_text_that_is_too_long_is_known_before_the_first_is_translated(
    fails, run_dir, tmp_path, monkeypatch
):
    from keras_transformer.translation import Translator

    monkeypatch.setattr(Translator, "_search", None)
    (tmp_path / "v").write_text("ba\n" * 300 + "ba " * 2000 + "\n")
    (tmp_path / "w").write_text("ba\n" * 301)
    line = fails("evaluate", run_dir, "--source", tmp_path / "v", "--target", tmp_path / "w")
    assert "a text must have at most `max_source_length`" in line
