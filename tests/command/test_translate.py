"""`keras-transformer translate`: texts, standard input, and whole files in several ways."""

import functools
import importlib.util
import io
import json
import os
import subprocess
import sys
import types

import pytest

from keras_transformer.command import cli, commands
from keras_transformer.decoding import generation
from keras_transformer.decoding.compiled import xla
from keras_transformer.experiment import load_run
from keras_transformer_runner.atomic import locked
from keras_transformer_runner.sentences import split_text


@pytest.mark.smoke
def test_translate_text_file_and_standard_input(run_dir, tmp_path, capsys, monkeypatch):
    texts = ["ba ke", "", "gu", "  ", "ko ba"]
    expected = load_run(run_dir).translator().translate(texts)
    path = tmp_path / "input.txt"
    path.write_text("".join(text + "\n" for text in texts))
    stdin = io.TextIOWrapper(io.BytesIO(path.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(commands, "_CHUNK", 2)
    for arguments in (texts, ["--input", str(path)], ["--input", "-"]):
        capsys.readouterr()
        assert cli.main(["translate", str(run_dir), *arguments]) == 0
        assert capsys.readouterr().out == "".join(text + "\n" for text in expected)


def test_translate_errors(fails, run_dir, tmp_path, monkeypatch):
    (tmp_path / "empty.txt").touch()
    line = fails("translate", run_dir, "--input", tmp_path / "empty.txt")
    assert "translate needs at least one line" in line and "empty.txt" in line
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert "Received: standard input is empty" in fails("translate", run_dir)
    assert "a text file must exist" in fails("translate", run_dir, "--input", tmp_path / "no.txt")
    assert "a run folder must hold experiment.toml" in fails("translate", tmp_path, "ba")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    line = fails("translate", run_dir, "--input", tmp_path / "latin.txt")
    assert "text must be UTF-8" in line and "line 1" in line


@pytest.mark.slow
def test_translate_into_a_closed_pipe_ends_quietly(run_dir, tmp_path, repo_root):
    path = tmp_path / "long.txt"
    path.write_text("ba\n" * 600)
    # `head` closes the pipe after one line; the rest of the output does not fit into a buffer.
    script = (
        "import sys, keras_transformer_command\n"
        "from keras_transformer.command import cli, commands\n"
        "commands._CHUNK = 5; sys.exit(cli.main())"
    )
    command = [sys.executable, "-c", script, "translate", str(run_dir), "--input", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(repo_root), "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait() == 0
    assert "Error" not in errors and "Traceback" not in errors and "Exception" not in errors


def test_a_line_that_is_too_long_is_found_by_its_number(run_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "_CHUNK", 2)
    path = tmp_path / "lines.txt"
    path.write_text("ba\nke\ngu\n" + "ba " * 2000 + "\n")
    capture = []
    monkeypatch.setattr("builtins.print", _printing_to(capture))
    assert cli.main(["translate", str(run_dir), "--input", str(path)]) == 1
    assert "error: line 4: a text must have at most" in capture[-1]


def _printing_to(lines):
    return lambda *texts, **_: lines.append(" ".join(map(str, texts)))


def test_translate_a_file_into_another(run_dir, tmp_path, capsys):
    texts = ["ba ke", "", "gu", "ko ba"]
    expected = load_run(run_dir).translator().translate(texts)
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"t": text}) + "\n" for text in texts))
    command = ["translate", str(run_dir), "--input", str(source), "--output", str(output)]
    command += ["--format", "jsonl", "--source-key", "t"]
    assert cli.main(command) == 0
    assert capsys.readouterr().out == f"{output}: 4 lines\n"
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert lines == [
        {"t": text, "translation": made} for text, made in zip(texts, expected, strict=True)
    ]
    assert cli.main(command) == 1
    assert "translations need a new file" in capsys.readouterr().err
    output.unlink()
    assert cli.main([*command, "--n-best", "2", "--beam-size", "3"]) == 0
    first = json.loads(output.read_text().splitlines()[0])["translations"]
    assert len(first) == 2 and first[0]["score"] >= first[1]["score"]


def test_whole_texts(run_dir, tmp_path, capsys, monkeypatch):
    """As texts, on standard input, from a file into another, in JSON lines."""
    text = "Ba ke. Dr. Ba.  Ko\r\n\n\tgu ba!\n"
    run = load_run(run_dir)
    translator = run.translator()
    # One for all commands: each new one traces its search.
    names = ("strategy", "max_source_length", "prefixes", "shortlist_fields")
    fields = {name: getattr(run, name) for name in names}
    made = types.SimpleNamespace(translator=lambda **_: translator, **fields)
    monkeypatch.setattr(commands, "load_named_run", lambda arguments: made)
    split = split_text(text, "en", translator.fits)
    assert split.sentences[:3] == ("Ba ke.", "Dr. Ba.", "Ko")
    expected = split.with_translations(translator.translate(list(split.sentences)))
    assert translator.translate_text(text, language="en") == expected
    assert translator.translate_text("") == ""
    command = ["translate", str(run_dir)]
    options = ["--text", "--language", "en"]
    source = tmp_path / "in.txt"
    source.write_bytes(text.encode())
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    for given, end in (([text, ""], "\n\n"), (["--input", str(source)], ""), ([], "")):
        assert cli.main([*command, *given, *options]) == 0
        assert capsys.readouterr().out == expected + end
    command += [*options, "--input"]
    output = tmp_path / "out"
    assert cli.main([*command, str(source), "--output", str(output)]) == 0
    assert capsys.readouterr().out == f"{output}: {len(text):,} characters\n"
    assert output.read_bytes() == expected.encode()
    source.write_text(json.dumps({"source": text}))
    output = tmp_path / "out.jsonl"
    assert cli.main([*command, str(source), "--output", str(output), "--format", "jsonl"]) == 0
    assert json.loads(output.read_text()) == {"source": text, "translation": expected}


def test_what_is_wrong_with_whole_texts_is_told_first(fails, run_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "load_named_run", functools.partial(pytest.fail, "too late"))
    (tmp_path / "in.txt").write_text("ba\n")
    line = fails("translate", run_dir, "ba", "--text", "--language", "english")
    assert "`language` must be a BCP 47 tag such as 'de'" in line
    assert "text file must exist" in fails("translate", run_dir, "--text", "--input", "no")
    monkeypatch.setitem(sys.modules, "icu4py", None)
    files = ("--input", tmp_path / "in.txt", "--output", tmp_path / "out")
    for options in (files, ("ba",)):
        line = fails("translate", run_dir, *options, "--text")
        assert "whole texts need icu4py, the extra `sentences`" in line


def test_a_prefix_is_chosen_by_pieces(fails, run_dir, capfd):
    run = load_run(run_dir)
    source, target = run.tokenizer.pieces[7], run.target_tokenizer.pieces[8]
    command = ["translate", str(run_dir), "ba ke", "gu"]
    options = ["--source-prefix", source, "--target-prefix", target, "--target-prefix", target]
    assert cli.main([*command, *options]) == 0
    chosen = run.with_prefixes(source=[source], target=[target, target])
    assert chosen.prefixes == ((7,), (8, 8)) and run.prefixes == ()
    expected = chosen.translator().translate(["ba ke", "gu"])
    assert capfd.readouterr().out.splitlines() == expected
    line = fails(*command, "--source-prefix", "<xx>")
    assert "`prefix` must hold pieces of the vocabulary. Received: '<xx>'" in line


@pytest.mark.parametrize("options", [[], ["--workers", "2"], ["--beam-pipeline=--no"]])
def test_an_output_that_cannot_be_is_told_before_a_model_is_loaded(
    fails, run_dir, tmp_path, monkeypatch, options
):
    monkeypatch.setattr(commands, "load_named_run", functools.partial(pytest.fail, "too late"))
    (tmp_path / "in.txt").write_text("ba\n")
    command = ("translate", run_dir, "--input", tmp_path / "in.txt", *options, "--output")
    for place in (tmp_path, "/dev/null"):
        assert "need a new file, not a folder, a device, a pipe" in fails(*command, place)
    with locked(tmp_path / "out"):
        line = fails(*command, tmp_path / "out")
    assert f"out, which is being written by process {os.getpid()}" in line
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


@pytest.mark.slow
def test_xla_writes_the_same_file(run_dir, tmp_path, monkeypatch):
    source = tmp_path / "in.txt"
    source.write_text("ba ke\n\ngu\nko ba\n")
    command = ["translate", str(run_dir), "--input", str(source), "--output"]
    assert cli.main([*command, str(tmp_path / "graph")]) == 0
    compiled = []
    monkeypatch.setattr(generation, "xla", lambda function: compiled.append(1) or xla(function))
    assert cli.main([*command, str(tmp_path / "xla"), "--jit-compile"]) == 0
    assert compiled
    assert (tmp_path / "xla").read_text() == (tmp_path / "graph").read_text()


@pytest.mark.slow
def test_two_workers_write_the_file_of_one_and_go_on_after_a_kill(
    run_dir, tmp_path, monkeypatch, capfd
):
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{'ba ke gu ' * (number % 4)}ko\n" for number in range(300)))
    command = ["translate", str(run_dir), "--input", str(source), "--output"]
    assert cli.main([*command, str(tmp_path / "one")]) == 0
    with monkeypatch.context() as patch:
        _windows_of(patch, 100, kill_after=200)
        with pytest.raises(SystemExit):
            cli.main([*command, str(tmp_path / "two"), "--workers", "2"])
    assert (tmp_path / "two.part").read_bytes().count(b"\n") == 200
    _windows_of(monkeypatch, 70)
    capfd.readouterr()
    assert cli.main([*command, str(tmp_path / "two"), "--workers", "2"]) == 0
    assert capfd.readouterr() == (f"{tmp_path / 'two'}: 300 lines\n", "")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def _windows_of(monkeypatch, size, kill_after=None):
    """Makes the command work in small windows, and end as a kill would after some lines."""
    from keras_transformer.translation import files

    translate_file = files.translate_file

    def with_windows(*arguments, progress, **options):
        def killing(done):
            if done == kill_after:
                sys.exit(143)

        return translate_file(*arguments, window=size, progress=killing, **options)

    monkeypatch.setattr(files, "translate_file", with_windows)


@pytest.mark.slow
@pytest.mark.skipif(
    not importlib.util.find_spec("apache_beam"),
    reason="needs apache-beam: pip install apache-beam",
)
@pytest.mark.filterwarnings("default")
def test_the_beam_runner_gives_the_same_files(run_dir, toy, tmp_path):
    source = str(toy.parent / "valid.src")
    command = ["translate", str(run_dir), "--input", source, "--output"]
    assert cli.main([*command, str(tmp_path / "a")]) == 0
    assert cli.main([*command, str(tmp_path / "b"), "--beam-pipeline=--runner=DirectRunner"]) == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    files = ["--source", source, "--target", str(toy.parent / "valid.tgt"), "--shards", "2"]
    command = ["prepare", "--tokenizer", str(run_dir / "tokenizer.model"), *files]
    assert cli.main([*command, str(tmp_path / "c")]) == 0
    assert cli.main([*command, str(tmp_path / "d"), "--beam-pipeline=--runner=DirectRunner"]) == 0
    one, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "cd"
    )
    assert one == other
