"""What the command line accepts, and how it ends."""

import pytest

import keras_transformer
from keras_transformer.command import cli, commands
from keras_transformer.command.parser import make_parser
from keras_transformer.decoding.beam import LENGTH_NORMALIZATIONS
from keras_transformer.export.litert.modes import MODES


@pytest.mark.smoke
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["train"],
        ["translate", "run", "text", "--input", "file"],
        ["evaluate", "run", "--source", "a"],
        ["evaluate", "run", "--source", "a", "--target", "b", "--with", "litert"],
        ["evaluate", "run", "--source", "a", "--target", "b", "--artifact", "c"],
        ["evaluate", "run", "--source", "a", "--target", "b", "--with", "litert",
         "--artifact", "c", "--beam-size", "3"],
        ["evaluate", "run", "--source", "a", "--target", "b", "--with", "litert",
         "--artifact", "c", "--length-normalization", "power"],
        ["evaluate", "run", "--source", "a", "--target", "b", "--with", "litert",
         "--artifact", "c", "--target-prefix", "<de>"],
        ["evaluate", "run", "--source", "a", "--target", "b", "--with", "litert",
         "--artifact", "c", "--shortlist"],
        ["shortlist"],
        ["shortlist", "run", "--lex", "a", "--source", "b", "--target", "c"],
        ["shortlist", "run", "--target", "c"],
        ["shortlist", "run", "--lex", "a", "--references-only"],
        ["translate", "run", "text", "--length-normalization", "length"],
        ["translate", "run", "text", "--beam-size", "many"],
        ["translate", "run", "text", "--output", "file"],
        ["translate", "run", "--shortlst", "text"],
        ["export", "run", "--to", "litert", "out", "more"],
        ["translate", "run", "--input", "file", "--format", "jsonl"],
        ["translate", "run", "--input", "file", "--workers", "2"],
        ["translate", "run", "text", "--jit-compile"],
        ["translate", "run", "text", "--language", "de"],
        ["translate", "run", "--text", "--input", "file", "--output", "new",
         "--format", "jsonl", "--n-best", "2"],
        ["translate", "run", "--text", "--input", "file", "--output", "new",
         "--too-long", "skip"],
        ["translate", "run", "--text", "--input", "file", "--output", "new",
         "--beam-pipeline", "--runner=DirectRunner"],
        ["translate", "run", "--input", "file", "--output", "new", "--workers", "0"],
        ["translate", "run", "--input", "file", "--output", "new", "--workers", "2",
         "--beam-pipeline", "--runner=DirectRunner"],
        ["export", "run", "out"],
        ["export", "run", "out", "--to", "savedmodel", "--mode", "int8"],
        ["export", "run", "out", "--to", "litert", "--ids-only"],
    ],
)  # fmt: skip
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as info:
        cli.main(arguments)
    assert info.value.code == 2
    assert "usage: keras-transformer" in capsys.readouterr().err


@pytest.mark.smoke
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "a", "b", "--beam-size", "2"],
        ["run", "--beam-size", "2", "a", "b"],
        ["--beam-size", "2", "run", "a", "b"],
        ["run", "a", "--shortlist", "b"],
    ],
)
def test_texts_may_come_behind_options(arguments, monkeypatch):
    seen = []
    monkeypatch.setattr(commands, "translate", seen.append)
    assert cli.main(["translate", *arguments]) == 0
    assert (seen[0].run_dir, seen[0].text) == ("run", ["a", "b"])


@pytest.mark.smoke
@pytest.mark.parametrize(
    "option",
    ["--n-best 3", "--workers 2", "--too-long skip", "--format jsonl", "--jit-compile"],
)
def test_an_option_of_files_is_named(option, capsys):
    with pytest.raises(SystemExit):
        cli.main(["translate", "run", "text", *option.split()])
    name = option.split()[0]
    assert f"{name} goes with --input and --output. Received: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["savedmodel", "--mode", "int4"], "--mode goes with --to litert"),
        (["savedmodel", "--signatures", "all"], "--signatures goes with --to litert"),
        (["savedmodel", "--references", "r.txt"], "--references goes with --to litert"),
        (["savedmodel", "--lengths", "8,32"], "--lengths goes with --to litert"),
        (["litert", "--lengths-only"], "--lengths-only goes with --lengths, and without --sig"),
        (
            ["litert", "--lengths", "8", "--lengths-only", "--signatures", "all"],
            "--lengths-only goes with --lengths, and without --signatures all",
        ),
        (["litert", "--references", "r.txt"], "--references goes with --samples"),
    ],
)
def test_options_of_an_export_that_mean_nothing(capsys, arguments, message):
    with pytest.raises(SystemExit) as error:
        cli.main(["export", "RUN", "OUT", "--to", *arguments])
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_the_command_knows_every_length_normalization():
    for name in LENGTH_NORMALIZATIONS:
        make_parser().parse_args(["translate", "run", "text", "--length-normalization", name])


def test_the_command_knows_every_mode():
    assert tuple(MODES) == cli.MODES


@pytest.mark.smoke
def test_help_and_version(capsys):
    for arguments in (["--help"], *([c, "--help"] for c in ("train", "translate", "export"))):
        with pytest.raises(SystemExit) as info:
            cli.main(arguments)
        assert info.value.code == 0
    assert "TF Serving" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"keras-transformer {keras_transformer.__version__}\n"


def test_interruption_and_traceback(monkeypatch, capsys, tmp_path):
    def interrupt(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "translate", interrupt)
    assert cli.main(["translate", "run"]) == 130
    assert capsys.readouterr().err == "keras-transformer: interrupted\n"
    with pytest.raises(FileNotFoundError, match="an experiment file must exist"):
        cli.main(["--traceback", "train", str(tmp_path / "no.toml"), str(tmp_path / "run")])
