"""`keras-transformer tokenizer`."""

import pytest

from keras_transformer.command import cli
from keras_transformer_runner.tokenizers import load_tokenizer


def test_a_tokenizer_by_one_command(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one two two\n\nthree@@ three\n", encoding="utf-8")
    out = tmp_path / "new" / "words.json"
    command = ["tokenizer", str(out), "--input", str(tmp_path / "a.txt"), "--set"]
    assert cli.main([*command, "type=vocabulary", "--set", "min_count=2"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{out}: 5 ids\n"
    assert "vocabulary: 3 sentences read; learning from them" in captured.err
    assert load_tokenizer(out).pieces[4:] == ["two"]


def test_every_input_is_read(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text(f"{name} {name}\n")
    out, (a, b, c) = tmp_path / "words.json", (str(tmp_path / name) for name in "abc")
    command = ["tokenizer", str(out), "--input", a, "--input", b, c, "--set", "type=vocabulary"]
    assert cli.main(command) == 0
    assert load_tokenizer(out).pieces[4:] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.model", ["vocab_size=x"], "`tokenizer.vocab_size` must be of type int. Received: 'x'"),
        ("a.model", ["size"], "--set must be KEY=VALUE. Received: size"),
        ("a.model", ["size=3"], r"a key of [tokenizer] must be one of"),
        ("a.txt", ["vocab_size=9"], "`output` must end in .model for 'sentencepiece'"),
        ("there.json", ["type=bytes"], "a tokenizer needs a new file"),
        ("a.model", ["model_type=bpe"], "a text file must exist"),
    ],
)
def test_wrong_tokenizer_commands(fails, tmp_path, name, options, message):
    (tmp_path / "there.json").write_text("{}")
    sets = [word for option in options for word in ("--set", option)]
    assert message in fails("tokenizer", tmp_path / name, "--input", tmp_path / "none", *sets)
    assert not (tmp_path / "a.model").exists()
