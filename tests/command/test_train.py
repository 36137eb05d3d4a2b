"""`keras-transformer train`, from text files, JSON lines and what `prepare` made."""

import json
import shutil

import numpy as np
import pytest

from keras_transformer.command import cli
from keras_transformer.experiment import load_run
from keras_transformer_runner.atomic import locked
from keras_transformer_runner.integrity import checksum


@pytest.mark.smoke
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a_run_is_stopped_and_goes_on(toy, run_dir, tmp_path, capsys, monkeypatch):
    from keras_transformer.training import run as run_module

    copy, epochs = shutil.copytree(run_dir, tmp_path / "run"), []
    (copy / "model.keras").unlink()
    assert cli.main(["stop", str(copy)]) == 0
    assert "nobody trains it" in capsys.readouterr().out
    (copy / "stop").unlink()
    with locked(copy / "training"):  # as `train` holds it
        for option, when in (([], "after this epoch"), (["--now"], "now")):
            assert cli.main(["stop", str(copy), *option]) == 0
            assert capsys.readouterr().out == f"{copy}: training ends {when}\n"
    (copy / "stop").unlink()
    shutil.copy(run_dir / "model.keras", copy)
    monkeypatch.setattr(run_module._Fitting, "_fit", lambda _, *span: epochs.append(span))
    monkeypatch.setattr(run_module, "draw_run", lambda *_: None)
    command = ["train", str(toy), str(copy), "--set", "training.max_epochs=1"]
    assert cli.main([*command, "--more-epochs", "3"]) == 0
    assert epochs == [(1, 4, 0)]


@pytest.mark.slow
def test_a_run_has_a_model_card_which_longer_training_updates(run_dir, tmp_path, capfd):
    run = tmp_path / "run"
    shutil.copytree(run_dir, run)
    card = run / "README.md"
    text = card.read_text()
    for part in (
        "| training | train.src and train.tgt |",
        "| used | 80 pairs of at most 16 ids a side |",
        "| left out | empty 0, too_long 0 |",
        "| validation | valid.src and valid.tgt |",
        "| epochs | 1 |",
        "`keras-transformer train experiment.toml NEW_RUN`",
        "| licence | not stated: fill it in",
        f"| sha256 of model.keras | {checksum(run / 'model.keras')} |",
    ):
        assert part in text
    assert "| validation loss | " in text and str(run_dir.parents[1]) not in text
    assert cli.main(["train", str(run / "experiment.toml"), str(run), "--more-epochs", "1"]) == 0
    assert "| epochs | 2 |" in card.read_text()
    assert f"| sha256 of model.keras | {checksum(run / 'model.keras')} |" in card.read_text()
    card.write_text("Mine.")
    capfd.readouterr()
    assert cli.main(["train", str(run / "experiment.toml"), str(run), "--more-epochs", "1"]) == 0
    assert card.read_text() == "Mine."
    assert f"{card} is kept as it is: somebody has edited it" in capfd.readouterr().err
