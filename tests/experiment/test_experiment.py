import os

import pytest
from toy_experiment import TOML, write_experiment

from keras_transformer.experiment import Experiment
from keras_transformer.experiment.sections import DecodingSection

MINIMAL = {"data": {"tsv": "pairs.tsv"}, "training": {"max_epochs": 1}}


@pytest.fixture
def path(tmp_path):
    return write_experiment(tmp_path / "somewhere")


def test_paths_are_relative_to_the_file(path):
    experiment = Experiment.load(path)
    assert experiment.data.source == str(path.parent / "train.src")
    assert experiment.data.valid_target == str(path.parent / "valid.tgt")
    assert experiment.data.max_length == 16


def test_remote_folders_and_datasets_are_no_paths_of_this_machine(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text(
        '[data]\nsource = "gs://bucket/prepared"\nvalid_source = "tfds:a/b"\n'
        '[model]\npreset = "tiny"\n[training]\nbatch_tokens = 64\nmax_epochs = 1\n'
    )
    experiment = Experiment.load(path)
    assert experiment.data.source == "gs://bucket/prepared"
    assert experiment.data.valid_source == "tfds:a/b"
    experiment.check_files()


def test_overrides_replace_values(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiment = Experiment.load(
        path,
        {
            "training.batch_tokens": "2048",
            "training.max_minutes": "2",
            "training.buckets": "[4, 9]",
            "training.jit_compile": "true",
            "tokenizer.model_type": "bpe",
            "decoding.extra_length": "7",
            "model.dropout": "0.2",
            "data.source": "here.txt",
        },
    )
    training = experiment.training
    assert (training.batch_tokens, training.max_minutes, training.buckets) == (2048, 2.0, (4, 9))
    assert training.jit_compile is True
    assert isinstance(training.max_minutes, float)
    assert experiment.tokenizer.model_type == "bpe"
    assert experiment.decoding.extra_length == 7
    assert experiment.model["dropout"] == 0.2
    # A path typed on a command line is relative to where it is typed.
    assert experiment.data.source == os.path.join(os.getcwd(), "here.txt")


def test_toml_round_trip(path, tmp_path):
    experiment = Experiment.load(
        path,
        {"training.max_minutes": "1e-3", "data.source": '"odd \\"name\\" \\\\ é\\u007f.txt"'},
    )
    copy = tmp_path / "copy.toml"
    copy.write_text(experiment.to_toml(), encoding="utf-8")
    assert Experiment.load(copy) == experiment
    assert Experiment.from_dict(experiment.to_dict()) == experiment
    copy.write_text(Experiment.load(path, {"training.max_minutes": "inf"}).to_toml())
    assert Experiment.load(copy).training.max_minutes == float("inf")


def test_config_takes_preset_and_fields(path):
    config = Experiment.load(path).config(vocab_size=31, pad_id=5)
    assert (config.vocab_size, config.pad_id, config.model_dim) == (31, 5, 10)
    assert config.num_heads == 2
    assert Experiment.from_dict(MINIMAL).config(vocab_size=31).model_dim == 128


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"trainig.seed": "1"}, "a section must be one of .*'trainig'. Did you mean 'training'"),
        ({"training.batch_token": "1"}, r"a key of \[training\].*Did you mean 'batch_tokens'"),
        ({"model.num_head": "1"}, "a model field must be one of.*Did you mean 'num_heads'"),
        ({"seed": "1"}, "an override must be section.key=value. Received: seed=1"),
        ({"training.seed": "x"}, "`training.seed` must be of type int. Received: 'x'"),
        ({"training.seed": "true"}, "`training.seed` must be of type int. Received: True"),
        ({"training.seed": "-1"}, "`seed` must be at least 0. Received: seed=-1"),
        ({"training.buckets": "4"}, "`training.buckets` must be a list of integers"),
        ({"training.buckets": "[8, 4]"}, "`training.buckets` must be ascending integers >= 2"),
        ({"training.buckets": "[]"}, "`training.buckets` must be ascending integers >= 2"),
        ({"tokenizer.normalization": "nfd"}, "`normalization` must be one of"),
        ({"training.max_minutes": "0"}, "`training.max_minutes` must be positive"),
        ({"training.label_smoothing": "1.0"}, "`training.label_smoothing` must be a rate"),
        ({"training.r_drop": "nan"}, "`training.r_drop` must be a finite number. Received: .*=nan"),
        ({"training.clipnorm": "inf"}, "`training.clipnorm` must be a finite number"),
        (
            {"training.max_minutes": "nan"},
            "`training.max_minutes` must be a finite number or inf. Received: nan",
        ),
        ({"training.learning_rate": "9" * 400}, "`training.learning_rate` must be a finite number"),
        ({"training.seed": str(2**31)}, "`seed` must be at most 2147483647. Received: 2147483648"),
        ({"training.batch_tokens": "9" * 22}, "`batch_tokens` must be at most 2147483647"),
        ({"tokenizer.vocab_size": "9" * 12}, "`vocab_size` must be at most 2147483647"),
        ({"decoding.length_penalty": "-inf"}, "`decoding.length_penalty` must be a finite number"),
        ({"training.average_checkpoints": "0"}, "`average_checkpoints` must be at least 1"),
        ({"tokenizer.vocab_size": "4"}, "`vocab_size` must be at least 5"),
        ({"decoding.max_length": "0"}, "`max_length` must be at least 1"),
        ({"model.preset": "huge"}, "`preset` must be one of .*'huge'"),
        ({"model.num_heads": "3"}, "must be divisible by `num_heads`.*model_dim=10, num_heads=3"),
        ({"model.vocab_size": "9"}, "`model.vocab_size` is given by the tokenizer"),
        ({"data.tsv": "x"}, r"`\[data\]` must have either `tsv` or `source`"),
        ({"data.valid_source": "''"}, "must have either `valid_tsv` or `valid_source`"),
        ({"data.max_length": "1"}, "`max_length` must be at least 2"),
    ],
)
def test_wrong_values_are_named(path, override, message):
    with pytest.raises(ValueError, match=message):
        Experiment.load(path, override)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, r"an experiment must have the section \[data\]. Received: no section"),
        ({"data": {"tsv": "x"}}, r"must have the section \[training\]. Received: \['data'\]"),
        ({**MINIMAL, "training": {}}, "must have `max_minutes` or `max_epochs`"),
        ({**MINIMAL, "model": 3}, r"`model` must be a section, \[model\]. Received: 3"),
        (
            {**MINIMAL, "data": {"imported": "x", "tsv": "y"}},
            "`data.imported` goes without a corpus",
        ),
        ({**MINIMAL, "data": {}}, r"`\[data\]` must have either"),
        ({**MINIMAL, "data": {"tsv": 3}}, "`data.tsv` must be of type str. Received: 3"),
    ],
)
def test_wrong_dictionaries(values, message):
    with pytest.raises(ValueError, match=message):
        Experiment.from_dict(values)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="an experiment file must exist. Received: .*none"):
        Experiment.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text(TOML + "\n[training\n", encoding="utf-8")
    with pytest.raises(ValueError, match="an experiment must be TOML. Received: .*bad.toml: "):
        Experiment.load(tmp_path / "bad.toml")
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(ValueError, match="an experiment must be TOML. Received: .*latin.toml: "):
        Experiment.load(tmp_path / "latin.toml")


def test_empty_experiment_section_names_are_values_of_the_user(path):
    with pytest.raises(ValueError, match="a section must be one of"):
        Experiment.load(path, {".seed": "1"})


# --- Decoding ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values, name, options",
    [
        ({}, "greedy", {"extra_length": 50}),
        ({"beam_size": 4}, "beam", {"beam_size": 4}),
        ({"beam_size": 4, "length_penalty": 1.0, "coverage_penalty": 0.2}, "beam",
         {"beam_size": 4, "length_penalty": 1.0, "coverage_penalty": 0.2}),
        ({"strategy": "beam", "stopping": "first_finished"}, "beam",
         {"beam_size": 1, "stopping": "first_finished"}),
        ({"strategy": "sampling", "top_k": 3, "seed": 7}, "sampling", {"top_k": 3, "seed": 7}),
        ({"strategy": "sampling", "n_best": 3}, "sampling", {"n_best": 3}),
        ({"beam_size": 4, "n_best": 3}, "beam", {"beam_size": 4, "n_best": 3}),
        ({"no_repeat_ngram": 3, "min_length": 2}, "greedy", {"no_repeat_ngram": 3}),
        ({"forbidden_ids": (5, 6), "forced_eos": True, "length_normalization": "power"}, "greedy",
         {"forbidden_ids": (5, 6), "forced_eos": True}),
        ({"beam_size": 4, "length_normalization": "power", "stopping": "current_length",
          "candidates": "joint"}, "beam",
         {"length_normalization": "power", "stopping": "current_length", "candidates": "joint"}),
    ],
)  # fmt: skip
def test_decoding_strategies(values, name, options):
    section = DecodingSection(**values)
    assert section.search_name == name
    assert options.items() <= section.options.items()
    search = section.search()
    assert all(getattr(search, option) == value for option, value in options.items())


@pytest.mark.parametrize(
    "values, message",
    [
        ({"strategy": "best"}, "`decoding.strategy` must be one of"),
        ({"strategy": "greedy", "beam_size": 2}, "`beam_size` above 1 is for `strategy` .beam."),
        ({"top_k": 3}, "`top_k` is for `strategy` 'sampling'. Received: top_k=3, strategy='greedy"),
        ({"strategy": "sampling", "coverage_penalty": 0.2}, "`coverage_penalty` is for `strategy`"),
        (
            {"n_best": 2},
            "`n_best` is for `strategy` 'beam' or 'sampling'. Received: n_best=2, strategy='gr",
        ),
        ({"beam_size": 3, "n_best": 0}, "`n_best` must be at least 1. Received: n_best=0"),
        ({"candidates": "joint"}, "`candidates` is for `strategy` 'beam'. Received: .*'joint'"),
        ({"beam_size": 3, "seed": 0}, "`seed` is for `strategy` 'sampling'"),
    ],
)
def test_decoding_options_that_mean_nothing_together(values, message):
    with pytest.raises(ValueError, match=message):
        DecodingSection(**values)


def test_fewer_beams_have_fewer_hypotheses():
    section = DecodingSection(beam_size=4, n_best=4)
    assert section.with_changes(beam_size=2).search().n_best == 2
    assert section.with_changes(beam_size=1).search_name == "greedy"
    assert section.with_changes(beam_size=6, n_best=5).search().n_best == 5
    assert DecodingSection(n_best=1).search_name == "greedy"


def test_an_experiment_without_a_corpus():
    """What `save_to_preset` and an import leave: it translates, and is not trained."""
    values = {**MINIMAL, "data": {"imported": "a preset"}}
    experiment = Experiment.from_dict(values)
    with pytest.raises(ValueError, match="have no corpus: write an experiment of yours.*preset"):
        experiment.check_files()
    values["data"]["valid_tsv"] = "x"
    with pytest.raises(ValueError, match="`data.imported` goes without a corpus"):
        Experiment.from_dict(values)


@pytest.mark.parametrize("name", ["multi30k.toml", "multi30k_published.toml"])
def test_an_example_stops_by_its_epochs_and_not_by_the_clock(repo_root, name):
    """A slow machine then gets the same score, only later."""
    training = Experiment.load(repo_root / "examples" / name).training
    assert training.max_epochs is not None
    assert training.max_minutes is None or training.max_minutes >= 60
