"""From teachers and a student's experiment to the student's run."""

import dataclasses
import json

import pytest

from keras_transformer.command import cli
from keras_transformer.data import Corpus
from keras_transformer.distillation import DistillationOptions, Teachers, distil
from keras_transformer.experiment import Experiment
from keras_transformer.experiment.corpora import open_corpora, training_weights


@pytest.mark.smoke
def test_the_command_writes_and_trains_and_goes_on(
    stub, teacher_folders, student, tmp_path, capsys, monkeypatch
):
    from keras_transformer.training import run as run_module

    for name in ("run", "finish"):
        monkeypatch.setattr(run_module._Fitting, name, lambda _: None)
    run_dir = tmp_path / "run"
    command = ["distil", *map(str, teacher_folders), str(student), str(run_dir), "--beam-size", "2"]
    with monkeypatch.context() as patch:
        patch.setattr("keras_transformer.training.train", lambda *_: 1 / 0)
        assert cli.main([*command, "--original-weight", "2"]) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Teachers, "translator", None)  # nothing is translated again
        assert cli.main([*command, "--original-weight", "2"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{run_dir}\n" and "hold what the teachers" not in captured.err
    assert f"{run_dir}.distilled holds what the teachers have written" in captured.err
    experiment = Experiment.load(run_dir / "experiment.toml")
    assert experiment.data.distilled == f"{run_dir}.distilled"
    note = json.loads((tmp_path / "run.distilled" / "distilled.json").read_text())
    assert note["job"]["search"]["beam_size"] == 2 and len(note["job"]["teachers"]) == 2
    # The original corpus has a pair without a source, and one without a target.
    assert "training on 13 pairs" in captured.err
    assert cli.main(command) == 1
    assert "which differs in data.original_weight" in capsys.readouterr().err


def test_it_looks_before_it_translates(teacher_folders, student, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("keras_transformer.distillation.distil", None)

    def error(*options, teacher=teacher_folders[0]):
        command = ["distil", teacher, student, tmp_path / "run", *options]
        assert cli.main([str(each) for each in command]) == 1
        return capsys.readouterr().err

    assert "a run folder must hold experiment.toml" in error(teacher=tmp_path)
    assert "`n_best` above 1 must go with" in error("--n-best", 2)
    assert "`n_best` must be at most" in error("--n-best", 4, "--select", "all")
    assert "`data.original_weight` must be positive" in error("--original-weight", 0)
    assert "must be a positive integer" in error("--n-best", 0)
    assert "Did you mean 'max_epochs'" in error("--set", "training.max_epoch=1")
    given = error("--set", "data.distilled=x")
    assert "must be left out of a student's experiment: `distil` writes them" in given
    learned = ["training.teacher_weight=0.5", f"tokenizer.file={teacher_folders[0]}/tokenizer.json"]
    learned = ["--set", learned[0], "--set", learned[1], "--probabilities", 8]
    assert "`top_k` must be at most the vocabulary's size" in error(*learned)
    assert "`data.source_key` does not go with" in error("--set", "data.source_key=x")
    assert "`top_k` goes without prefixes" in error(*learned, "--source-prefix", "a")
    (tmp_path / "pairs.tsv").unlink()
    assert "a text file must exist" in error()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    assert "a run needs a new or empty folder" in error()
    with pytest.raises(SystemExit):
        error("--workers", 0)
    assert "--workers must be in [1, 256]. Received: 0" in capsys.readouterr().err


def distilled(tmp_path, student, **changes):
    """The student's `[data]` with a folder of two pairs."""
    folder = tmp_path / "corpus"
    teachers = Teachers((), (), Experiment.load(student).decoding)
    from keras_transformer.data import distilled as reading
    from keras_transformer.distillation import written_corpus as writing

    folder.mkdir()
    data = Experiment.load(student).data
    for number, _ in enumerate(data.corpora):
        (folder / reading.pairs_file(number)).write_text('{"source": "ab", "target": "c"}\n' * 2)
    parts = [
        {"file": writing.checksum(folder / reading.pairs_file(number))}
        for number, _ in enumerate(data.corpora)
    ]
    job = writing._job(teachers, DistillationOptions())
    writing._write_note(folder, job, 1, parts)
    return dataclasses.replace(data, distilled=str(folder), **changes)


def test_an_experiment_trains_on_what_teachers_have_written(student, tmp_path):
    data = distilled(tmp_path, student)
    training, valid = open_corpora(data)
    assert list(training) == [("ab", "c")] * 2 and list(valid) == [("abc", "cba")]
    assert list(training_weights(data, [2]).values()) == [1]
    training, _ = open_corpora(dataclasses.replace(data, original_weight=0.5))
    assert len(list(training)) == 2 + 6
    both = dataclasses.replace(data, original_weight=0.5)
    assert list(training_weights(both, [2, 6]).values()) == [1, 0.5]
    path = student.with_name("other.toml")
    path.write_text(student.read_text().replace("[data]", '[data]\ndistilled = "corpus"'))
    experiment = Experiment.load(path)
    assert experiment.data.distilled == str(tmp_path / "corpus")
    experiment.check_files()
    with pytest.raises(FileNotFoundError, match="must be the note of a corpus"):
        Experiment.load(path, {"data.distilled": "none"}).check_files()


def test_weights_and_a_temperature_of_several_corpora(student, tmp_path):
    student.write_text(
        student.read_text().replace(
            'tsv = "pairs.tsv"\nvalid_tsv = "valid.tsv"',
            '[[data.sources]]\ntsv = "pairs.tsv"\nweight = 3\ntag = "c"\n'
            '[[data.sources]]\ntsv = "valid.tsv"',
        )
    )
    data = distilled(tmp_path, student, original_weight=0.5)
    training, _ = open_corpora(data)
    assert [len(list(part)) for part in training.parts] == [2, 2, 6, 1]
    assert next(iter(training.parts[0])) == ("ab", "c")  # a tag would be in the file already
    assert list(training_weights(data, [2, 2, 6, 1]).values()) == [3, 1, 1.5, 0.5]
    sources = tuple(dataclasses.replace(each, weight=None) for each in data.sources)
    by_size = dataclasses.replace(data, sources=sources, temperature=1.0)
    weights = list(training_weights(by_size, [2, 2, 6, 1]).values())
    assert weights == pytest.approx([1, 1, 0.5, 0.5])


def test_what_does_not_go_together(student):
    data = Experiment.load(student).data
    with pytest.raises(ValueError, match="`data.original_weight` goes with `data.distilled`"):
        dataclasses.replace(data, original_weight=1.0)
    with pytest.raises(ValueError, match="`data.original_weight` must be positive"):
        dataclasses.replace(data, distilled="x", original_weight=-1.0)
    with pytest.raises(ValueError, match="`data.imported` goes without a corpus"):
        dataclasses.replace(data, tsv=None, valid_tsv=None, imported="x", distilled="x")
    assert isinstance(open_corpora(data)[0], Corpus) and callable(distil)
