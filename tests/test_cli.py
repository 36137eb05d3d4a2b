import importlib.util
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from toy_experiment import write_experiment

import keras_transformer
from keras_transformer import cli, commands
from keras_transformer.export.modes import MODES
from keras_transformer.text import load_tokenizer
from keras_transformer.training import load_run


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_experiment(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def run_dir(toy, tmp_path_factory):
    """A run made by the command."""
    path = tmp_path_factory.mktemp("runs") / "run"
    assert cli.main(["train", str(toy), str(path), "--set", "training.max_epochs=1"]) == 0
    return path


@pytest.fixture
def fails(capfd):
    """Runs the command, expects exit code 1 and one line on standard error, and returns it."""

    def run(*argv):
        capfd.readouterr()
        assert cli.main([str(argument) for argument in argv]) == 1
        captured = capfd.readouterr()
        assert captured.out == ""
        *before, last = captured.err.splitlines()
        assert last.startswith("keras-transformer: error: ")
        assert not any("error" in line or "Traceback" in line for line in before)
        return last

    return run


def test_train_and_its_overrides(run_dir, capsys):
    assert load_run(run_dir).experiment.training.max_epochs == 1


def test_train_with_the_data_elsewhere(toy, fails, tmp_path, monkeypatch):
    from keras_transformer.training import run as run_module

    monkeypatch.setattr(run_module._Fitting, "run", lambda _: None)
    monkeypatch.setattr(run_module._Fitting, "finish", lambda _: None)
    monkeypatch.setattr(run_module, "draw_run", lambda *_: None)
    experiment = tmp_path / "elsewhere.toml"
    experiment.write_bytes(toy.read_bytes())
    assert "a text file must exist" in fails("train", experiment, tmp_path / "run")
    command = ["train", str(experiment), str(tmp_path / "run"), "--data", str(toy.parent)]
    assert cli.main(command) == 0


def test_train_prints_the_folder_alone(toy, tmp_path, capsys, monkeypatch):
    from keras_transformer.training import run as run_module

    monkeypatch.setattr(run_module._Fitting, "run", lambda _: None)
    monkeypatch.setattr(run_module._Fitting, "finish", lambda _: print("not for a pipe"))
    monkeypatch.setattr(run_module, "draw_run", lambda *_: None)
    assert cli.main(["train", str(toy), str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'run'}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "data.source=none.txt"], "a text file must exist. Received: "),
        (["--set", "data.source=short.txt"], "must have the same number of lines"),
        (["--set", "data.tsv=empty.txt"], "must have either `tsv` or `source`"),
        (["--set", "model.preset=huge"], "`preset` must be one of"),
        (["--set", "model.num_heads=3"], "must be divisible by `num_heads`"),
        (["--set", "training.batch_token=9"], "Did you mean 'batch_tokens'?"),
        (["--set", "training.seed"], "--set must be SECTION.KEY=VALUE. Received: training.seed"),
        (["--set", "seed=1"], "an override must be section.key=value. Received: seed=1"),
        (["--set", "training.seed=one"], "`training.seed` must be of type int. Received: 'one'"),
    ],
)
def test_train_fails_in_one_line_and_leaves_nothing(
    fails, toy, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.txt").write_text("ba\n")
    (tmp_path / "empty.txt").touch()
    assert message in fails("train", toy, "new/run", *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.txt", "short.txt"]


def test_train_refuses_files_and_folders(fails, toy, run_dir, tmp_path):
    line = fails("train", tmp_path / "no.toml", tmp_path / "run")
    assert "an experiment file must exist" in line and "no.toml" in line
    (tmp_path / "bad.toml").write_text("[data]\nsourc = 'x'\n[training]\n")
    assert "Did you mean 'source'?" in fails("train", tmp_path / "bad.toml", tmp_path / "run")
    (tmp_path / "empty.tsv").touch()
    (tmp_path / "empty.toml").write_text('[data]\ntsv = "empty.tsv"\n[training]\nmax_epochs = 1\n')
    line = fails("train", tmp_path / "empty.toml", tmp_path / "run")
    assert "a corpus must hold a pair with text on both sides" in line
    before = sorted(run_dir.rglob("*"))
    line = fails("train", toy, run_dir)
    assert "a run folder belongs to one experiment" in line and "training.max_epochs" in line
    line = fails("train", toy, run_dir, "--set", "training.max_epochs=1")
    assert "a finished run is not trained again" in line
    assert "a run needs a new or empty folder" in fails("train", toy, tmp_path)
    assert sorted(run_dir.rglob("*")) == before
    assert not (tmp_path / "run").exists()


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


def test_translate_into_a_closed_pipe_ends_quietly(run_dir, tmp_path, repo_root):
    path = tmp_path / "long.txt"
    path.write_text("ba\n" * 600)
    # `head` closes the pipe after one line; the rest of the output does not fit into a buffer.
    script = (
        "import sys; from keras_transformer import cli, commands; commands._CHUNK = 5; "
        "sys.exit(cli.main())"
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


@pytest.mark.parametrize("form", ["savedmodel", "litert"])
def test_export_refuses_what_exists(fails, run_dir, tmp_path, form):
    line = fails("export", run_dir, tmp_path, "--to", "litert")
    assert "the artifact needs a new folder" in line
    line = fails("export", run_dir, run_dir / "config.json", "--to", "savedmodel")
    assert "must be new or hold numbered versions" in line
    assert "a run folder must hold" in fails("export", tmp_path, tmp_path / "new", "--to", form)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("form", "search"),
    [("savedmodel", []), ("litert", []), ("savedmodel", ["--beam-size", "3"]),
     ("litert", ["--beam-size", "3", "--length-penalty", "1"])],
)  # fmt: skip
def test_exported_artifacts_score_like_python(run_dir, toy, tmp_path, capsys, form, search):
    artifact = str(tmp_path / "artifact")
    test_set = ["--source", str(toy.with_name("valid.src"))]
    test_set += ["--target", str(toy.with_name("valid.tgt"))]
    assert cli.main(["export", str(run_dir), artifact, "--to", form, *search]) == 0
    first, *facts = capsys.readouterr().out.splitlines()
    if form == "savedmodel":
        assert first.startswith(f"{artifact}/1: ")
        assert "Sentencepiece" in facts[0]
        assert "serving_default, 1 rows: " in facts[4] and " ms cold, " in facts[4]
        assert os.listdir(artifact) == ["1"]
    outputs = []
    for more in (search, ["--with", form, "--artifact", artifact]):
        assert cli.main(["evaluate", str(run_dir), *test_set, *more]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]


def test_export_of_ids_only(run_dir, tmp_path, fails, monkeypatch):
    def export(model, tokenizer, path, *, ids_only, **kwargs):
        raise RuntimeError(f"{path.name} {ids_only}")

    monkeypatch.setattr("keras_transformer.export.saved_model.export_saved_model", export)
    (tmp_path / "4").mkdir()
    for more, expected in ((["--ids-only"], "5 True"), ([], "5 False")):
        line = fails("export", run_dir, tmp_path, "--to", "savedmodel", *more)
        assert line.endswith(f"error: {expected}")


def test_a_line_that_is_too_long_is_found_by_its_number(run_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "_CHUNK", 2)
    path = tmp_path / "lines.txt"
    path.write_text("ba\nke\ngu\n" + "ba " * 2000 + "\n")
    capture = []
    monkeypatch.setattr("builtins.print", _printing_to(capture))
    assert cli.main(["translate", str(run_dir), "--input", str(path)]) == 1
    assert "error: lines 3 to 4: a text must have at most" in capture[-1]


def _printing_to(lines):
    return lambda *texts, **_: lines.append(" ".join(map(str, texts)))


def test_evaluate_reads_no_standard_input(fails, run_dir, tmp_path):
    line = fails("evaluate", run_dir, "--source", "-", "--target", tmp_path / "x")
    assert "none can be standard input" in line


def test_a_polite_kill_removes_what_is_half_written(run_dir, tmp_path, repo_root):
    script = (
        "import sys, time; from keras_transformer import cli\n"
        "from keras_transformer.export import saved_model\n"
        "saved_model.ServingModule = lambda *_, **__: (print('here', flush=True), time.sleep(60))\n"
        "sys.exit(cli.main())"
    )
    command = [sys.executable, "-c", script, "export", str(run_dir), str(tmp_path / "new" / "out")]
    process = subprocess.Popen(
        [*command, "--to", "savedmodel"],
        env={**os.environ, "PYTHONPATH": str(repo_root), "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout.readline() == b"here\n"
    process.terminate()
    assert process.wait() == 143
    process.stdout.close()
    assert list(tmp_path.iterdir()) == []


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
        ["translate", "run", "text", "--beam-size", "many"],
        ["translate", "run", "text", "--output", "file"],
        ["translate", "run", "--input", "file", "--format", "jsonl"],
        ["translate", "run", "--input", "file", "--workers", "2"],
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


def test_a_tokenizer_by_one_command(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one two two\n\nthree@@ three\n", encoding="utf-8")
    out = tmp_path / "new" / "words.json"
    command = ["tokenizer", str(out), "--input", str(tmp_path / "a.txt"), "--set"]
    assert cli.main([*command, "type=vocabulary", "--set", "min_count=2"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{out}: 5 ids\n"
    assert "vocabulary: 3 sentences read; learning from them" in captured.err
    assert load_tokenizer(out).pieces[4:] == ["two"]


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


def test_a_prepared_corpus_trains_as_its_files_do(toy, run_dir, tmp_path, capsys):
    """One shard is what is in memory: the same vocabulary gives the same weights."""
    folder, tokenizer = toy.parent, run_dir / "tokenizer.model"
    for name in ("train", "valid"):
        files = ["--source", f"{folder / name}.src", "--target", f"{folder / name}.tgt"]
        rest = ["--tokenizer", str(tokenizer), "--max-length", "16", "--shards", "1"]
        assert cli.main(["prepare", str(tmp_path / name), *files, *rest]) == 0
    output = capsys.readouterr().out
    assert f"{tmp_path / 'train'}: 80 pairs in 1 shards" in output
    experiment = tmp_path / "prepared.toml"
    text = toy.read_text()
    experiment.write_text(
        '[data]\nsource = "train"\nvalid_source = "valid"\nmax_length = 16\n'
        + text[text.index("[model]") :]
    )
    command = ["train", str(experiment), str(tmp_path / "run"), "--set", "training.max_epochs=1"]
    assert cli.main(command) == 0
    one, other = (load_run(path).model.get_weights() for path in (tmp_path / "run", run_dir))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (tmp_path / "run" / "tokenizer.model").read_bytes() == tokenizer.read_bytes()
    capsys.readouterr()
    command = ["train", str(experiment), str(tmp_path / "other")]
    assert cli.main([*command, "--set", "tokenizer.vocab_size=60"]) == 1
    assert "a prepared corpus has its tokenizers" in capsys.readouterr().err
    assert cli.main([*command, "--set", "training.pack=true"]) == 1
    assert "`training.pack` is for a corpus in memory" in capsys.readouterr().err


def test_json_lines_train_and_faulty_lines_are_told(toy, tmp_path, capsys):
    sources, targets = (
        (toy.parent / f"train.{side}").read_text().splitlines() for side in ("src", "tgt")
    )
    lines = [json.dumps({"a": s, "b": t}) for s, t in zip(sources, targets, strict=True)]
    lines[4] = "{"
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    text = toy.read_text()
    experiment = tmp_path / "json.toml"
    experiment.write_text(
        '[data]\nsource = "train.jsonl"\nsource_key = "a"\ntarget_key = "b"\nmax_length = 16\n'
        + text[text.index("[tokenizer]") :]
    )
    command = ["train", str(experiment), str(tmp_path / "run"), "--set", "training.max_epochs=1"]
    command += ["--set", "training.pack=true"]
    assert cli.main(command) == 1
    assert "every line must be a JSON object. Received: " in capsys.readouterr().err
    assert cli.main([*command, "--set", "data.invalid=skip"]) == 0
    errors = capsys.readouterr().err
    assert "training: 80 pairs, 79 usable" in errors and "not_object" in errors
    assert "packed 79 pairs into" in errors
    assert load_run(tmp_path / "run").config.packed


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
    """Makes the command work in small windows, and end as of a kill after some lines."""
    from keras_transformer.decoding import files

    translate_file = files.translate_file

    def with_windows(*arguments, progress, **options):
        def killing(done):
            if done == kill_after:
                sys.exit(143)

        return translate_file(*arguments, window=size, progress=killing, **options)

    monkeypatch.setattr(files, "translate_file", with_windows)


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


def test_the_command_knows_every_mode():
    assert tuple(MODES) == cli.MODES


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["savedmodel", "--mode", "int4"], "--mode int4 goes with --to litert"),
        (["savedmodel", "--signatures", "all"], "--signatures all goes with --to litert"),
        (["savedmodel", "--references", "r.txt"], "--references r.txt goes with --to litert"),
        (["litert", "--references", "r.txt"], "--references goes with --samples"),
    ],
)
def test_options_of_an_export_that_mean_nothing(capsys, arguments, message):
    with pytest.raises(SystemExit) as error:
        cli.main(["export", "RUN", "OUT", "--to", *arguments])
    assert error.value.code == 2
    assert message in capsys.readouterr().err
