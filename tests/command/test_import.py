"""`keras-transformer import`: a run of a folder as people have it, for all other commands."""

from checkpoint_folders import GERMAN_TEXTS, marian_folder, nllb_folder

from keras_transformer import Greedy, load_run
from keras_transformer.command import cli


def test_an_imported_run_is_translated_with_like_any_other(tmp_path, capsys):
    run, samples = tmp_path / "run", tmp_path / "samples.txt"
    samples.write_text("".join(f"{text}\n" for text in GERMAN_TEXTS))
    command = ["import", nllb_folder(tmp_path / "nllb"), run, "--samples", samples]
    command += ["--source-language", "deu_Latn", "--target-language", "eng_Latn"]
    assert cli.main([str(word) for word in command]) == 0
    said = capsys.readouterr().out
    assert said.startswith("taken over:\n  63 tensors, each used once: 4,884 weights\n")
    assert "not taken over:\n" in said and "\nchecked:\n" in said
    assert said.endswith(f"{run}: nllb (m2m_100), licence not stated\n")
    assert (run / "samples.txt").read_text() == samples.read_text()
    assert cli.main(["translate", str(run), "der Hund", "--beam-size", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    loaded = load_run(run)  # whose experiment names a greedy search
    assert loaded.with_decoding(beam_size=3).strategy.beams == 3
    beam = loaded.with_decoding(strategy="beam", beam_size=4, candidates="joint")
    assert beam.with_decoding(length_penalty=0.5).strategy.candidates == "joint"
    assert type(beam.with_decoding(beam_size=1).strategy) is Greedy


def test_samples_are_looked_at_first(fails, tmp_path):
    (tmp_path / "samples.txt").touch()
    command = ["import", marian_folder(tmp_path / "marian"), tmp_path / "run"]
    line = fails(*command, "--samples", tmp_path / "samples.txt")
    assert "--samples must have a line. Received:" in line and "samples.txt is empty" in line


def test_a_setting_that_is_not_understood_is_one_line(fails, tmp_path):
    folder = marian_folder(tmp_path / "marian")
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"swish"', '"quick_gelu"'))
    line = fails("import", folder, tmp_path / "run")
    assert "`activation_function` must be one of" in line and "'quick_gelu'" in line
    assert not (tmp_path / "run").exists()


def test_an_imported_run_has_no_corpus_to_train_on(fails, tmp_path):
    experiment = tmp_path / "experiment.toml"
    experiment.write_text('[data]\nimported = "that of x"\n[training]\nmax_epochs = 1\n')
    line = fails("train", experiment, tmp_path / "new")
    assert "an imported run have no corpus" in line and "`training.start_from`" in line
