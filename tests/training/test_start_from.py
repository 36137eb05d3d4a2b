"""Runs that start from another one: what is taken over, and that a resume is exact."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from toy_experiment import state

from keras_transformer.config import TransformerConfig
from keras_transformer.experiment import Experiment, load_run
from keras_transformer.experiment.start import Start, find_start
from keras_transformer.experiment.tokenizers import Tokenizers
from keras_transformer.models import LanguageModel, Transformer
from keras_transformer.presets.record import write_record
from keras_transformer.training import run as run_module
from keras_transformer.training import train
from keras_transformer.training.start import take_over
from keras_transformer_runner.tokenizers import CharacterTokenizer, VocabularyTokenizer

D, N, F = 6, 2, 7


def make_model(tokenizers, seed, kind=Transformer, **fields):
    """A model whose weights are all random, biases and norms too."""
    sizes = dict(model_dim=D, num_heads=N, encoder_layers=1, decoder_layers=1, intermediate_dim=F)
    config = TransformerConfig(**sizes | tokenizers.config_fields() | fields)
    model, generator = kind(config), np.random.default_rng(seed)
    model.set_weights([generator.normal(size=weight.shape) for weight in model.weights])
    return model


def make_start(folder, model, tokenizers):
    folder.mkdir()
    (folder / "config.json").write_text(model.config.to_json())
    model.save(folder / "model.keras")
    tokenizers.save(folder)
    write_record(folder, {path.name: path for path in folder.iterdir()})
    return Start.open(folder)


def joint(characters):
    tokenizer = CharacterTokenizer(characters)
    return Tokenizers(tokenizer, tokenizer)


def table(model, side="source"):
    """(V, D) rows of an embedding, and behind them the bias of the logits where there is one."""
    layer = model.token_embeddings[side]
    rows = [np.array(layer.embeddings)]
    if layer.output_bias is not None:
        rows.append(np.array(layer.output_bias)[:, np.newaxis])
    return np.concatenate(rows, axis=1)


# --- What is taken ---------------------------------------------------------------------------


def test_all_of_a_model_of_the_same_kind(tmp_path, capsys):
    tokenizers = joint("abc")
    old = make_model(tokenizers, 1)
    model = make_model(tokenizers, 2)
    report = take_over(make_start(tmp_path / "old", old, tokenizers), model, tokenizers)
    for weight, other in zip(model.get_weights(), old.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, other)
    assert report["rows"] == {"embedding/embeddings": {"taken": 7, "of": 7}}
    assert report["weights"] == len(model.weights) - 1
    assert report["fresh"] == report["left"] == [] and report["other_settings"] == {}
    said = capsys.readouterr().err
    assert f"started from {tmp_path / 'old'}: {report['weights']} weights taken over" in said
    assert "embedding/embeddings: 7 of 7 rows" in said


def test_rows_go_by_their_pieces(tmp_path):
    old_tokenizers, tokenizers = joint("abcd"), joint("dxb")
    old = make_model(old_tokenizers, 1, output_bias=True)
    model = make_model(tokenizers, 2, output_bias=True)
    before = table(model)
    report = take_over(make_start(tmp_path / "old", old, old_tokenizers), model, tokenizers)
    after, theirs = table(model), table(old)
    (old_tokenizer, _), (tokenizer, _) = old_tokenizers, tokenizers
    for number, piece in enumerate(tokenizer.pieces):
        expected = before[number]
        if piece in old_tokenizer.pieces:
            expected = theirs[old_tokenizer.pieces.index(piece)]
        np.testing.assert_array_equal(after[number], expected, err_msg=piece)
    taken = {"taken": 6, "of": 7}
    assert report["rows"] == {"embedding/embeddings": taken, "embedding/output_bias": taken}


def test_special_ids_go_by_what_they_mean(tmp_path):
    """Pieces of special ids are called differently, and other pieces like them."""
    words = VocabularyTokenizer(["a", "b"])
    other = VocabularyTokenizer(["b", "a"])
    other.pad_id, other.unk_id, other.bos_id, other.eos_id = 3, 2, 1, 0
    old = make_model(Tokenizers(words, words), 1)
    model = make_model(Tokenizers(other, other), 2)
    start = make_start(tmp_path / "old", old, Tokenizers(words, words))
    take_over(start, model, Tokenizers(other, other))
    np.testing.assert_array_equal(table(model), table(old)[[3, 2, 1, 0, 5, 4]])


def test_sides_with_vocabularies_of_their_own_become_one(tmp_path):
    source, target = CharacterTokenizer("abc"), CharacterTokenizer("bde")
    sides = Tokenizers(source, target)
    old = make_model(sides, 1, embedding_sharing="target_output")
    tokenizers = joint("abdf")
    model = make_model(tokenizers, 2)
    before = table(model)
    report = take_over(make_start(tmp_path / "old", old, sides), model, tokenizers)
    of_source, of_target = table(old), table(old, "target")
    expected = {  # where both know a piece, the target's row
        **{number: of_target[number] for number in range(4)},
        4: of_source[4],  # a
        5: of_target[4],  # b
        6: of_target[5],  # d
        7: before[7],  # f
    }
    np.testing.assert_array_equal(table(model), np.stack(list(expected.values())))
    assert report["rows"] == {"embedding/embeddings": {"taken": 7, "of": 8}}
    assert report["other_settings"] == {"embedding_sharing": ["target_output", "all"]}


def test_one_vocabulary_becomes_two(tmp_path):
    tokenizers, sides = joint("abc"), Tokenizers(CharacterTokenizer("ab"), CharacterTokenizer("cd"))
    old = make_model(tokenizers, 1)
    model = make_model(sides, 2, embedding_sharing="none")
    fresh = table(model, "output")[5]
    take_over(make_start(tmp_path / "old", old, tokenizers), model, sides)
    np.testing.assert_array_equal(table(model), table(old)[:6])
    for side in ("target", "output"):
        np.testing.assert_array_equal(table(model, side)[4], table(old)[6])
    np.testing.assert_array_equal(table(model, "output")[5], fresh)


@pytest.mark.parametrize(
    ("layers", "fresh", "left"), [((1, 2), ["decoder_1"], []), ((2, 1), [], ["decoder_1"])]
)
def test_blocks_that_one_model_lacks(tmp_path, capsys, layers, fresh, left):
    tokenizers = joint("abc")
    old, model = (make_model(tokenizers, 1, decoder_layers=number) for number in layers)
    report = take_over(make_start(tmp_path / "old", old, tokenizers), model, tokenizers)
    assert (report["fresh"], report["left"]) == (fresh, left)
    assert report["other_settings"] == {"decoder_layers": list(layers)}
    said = capsys.readouterr().err
    assert f"decoder_layers is {layers[1]}, where it was {layers[0]}" in said
    assert ("new, not trained yet" if fresh else "not taken over") + ": decoder_1" in said


def test_other_shapes_are_named_and_nothing_is_taken(tmp_path):
    tokenizers = joint("abc")
    start = make_start(tmp_path / "old", make_model(tokenizers, 1), tokenizers)
    model = make_model(tokenizers, 2, intermediate_dim=F + 1)
    before = model.get_weights()
    message = r"intermediate_dim=8 for 7; 6 weights of other shapes: encoder_0/feed_forward/inter"
    with pytest.raises(ValueError, match=message):
        take_over(start, model, tokenizers)
    for weight, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, other)
    with pytest.raises(
        ValueError, match=r"model_dim=8 for 6; .* embedding/embeddings \(6,\) -> \("
    ):
        take_over(start, make_model(tokenizers, 2, model_dim=8), tokenizers)


def test_a_model_of_another_kind_is_refused(tmp_path):
    tokenizers = joint("abc")
    start = make_start(tmp_path / "old", make_model(tokenizers, 1, LanguageModel), tokenizers)
    with pytest.raises(ValueError, match="must hold a `Transformer`. Received: LanguageModel"):
        take_over(start, make_model(tokenizers, 2), tokenizers)


# --- Folders ---------------------------------------------------------------------------------


def starting_from(folder, **values):
    training = {"max_epochs": 1, "start_from": str(folder)}
    return Experiment.from_dict({"data": {"tsv": "x"}, "training": training, **values})


def test_folders_that_are_no_start(tmp_path):
    def find(folder):
        return find_start(starting_from(folder), tmp_path / "run")

    with pytest.raises(FileNotFoundError, match="a run or of a preset.*none, which does not exist"):
        find(tmp_path / "none")
    tokenizers = joint("abc")
    old = tmp_path / "old"
    make_start(old, make_model(tokenizers, 1), tokenizers)
    assert find(old).config.vocab_size == 7
    (old / "model.keras").write_bytes(b"x" + (old / "model.keras").read_bytes())
    with pytest.raises(ValueError, match="model.keras must be the file that run.json was written"):
        find(old)
    (old / "model.keras").unlink()
    with pytest.raises(FileNotFoundError, match="must be a finished run, which holds model.keras"):
        find(old)
    assert find_start(Experiment.from_dict({**MINIMAL}), tmp_path / "run") is None


def test_a_folder_of_others_is_to_be_imported_first(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "marian"}')
    with pytest.raises(ValueError, match="with `keras-transformer import`. Received: .*"):
        Start.open(tmp_path)


MINIMAL = {"data": {"tsv": "x"}, "training": {"max_epochs": 1}}


def test_the_model_is_inherited_but_for_what_is_given():
    earlier = TransformerConfig(vocab_size=9, model_dim=D, num_heads=N, dropout=0.3, packed=True)
    sizes = {"vocab_size": 11, "bos_id": 0}
    inherited = starting_from("run").inheriting(earlier).config(**sizes)
    assert (inherited.model_dim, inherited.dropout, inherited.packed) == (D, 0.3, False)
    assert (inherited.vocab_size, inherited.bos_id) == (11, 0)
    changed = starting_from("run", model={"dropout": 0.0, "encoder_layers": 1})
    changed = changed.inheriting(earlier).config(**sizes)
    assert (changed.model_dim, changed.dropout, changed.encoder_layers) == (D, 0.0, 1)
    named = starting_from("run", model={"preset": "tiny"}).inheriting(earlier)
    assert named.config(**sizes).model_dim == 128
    two = starting_from("run").inheriting(earlier).config(**sizes, target_vocab_size=8)
    assert two.embedding_sharing == "target_output"
    assert Experiment.from_dict(MINIMAL).inheriting(earlier).config(**sizes).model_dim == 128
    learned = dataclasses.replace(earlier, positions="learned", max_positions=64)
    other = starting_from("run", model={"positions": "rotary", "key_dim": 4}).inheriting(learned)
    assert other.config(**sizes).max_positions is None
    assert starting_from("run").inheriting(learned).config(**sizes).max_positions == 64
    with pytest.raises(ValueError, match="must be divisible by `num_heads`.*model_dim=6"):
        starting_from("run", model={"num_heads": 4}).inheriting(earlier)
    with pytest.raises(ValueError, match="Did you mean 'dropout'"):
        starting_from("run", model={"droput": 0.1}).inheriting(earlier)


def test_a_path_is_relative_to_the_experiment(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "experiment.toml"
    path.parent.mkdir()
    start = 'start_from = "runs/a"\n'
    path.write_text(f'[data]\ntsv = "x"\n[training]\nmax_epochs = 1\n{start}')
    experiment = Experiment.load(path)
    assert experiment.training.start_from == str(tmp_path / "folder" / "runs" / "a")
    copy = tmp_path / "copy.toml"
    copy.write_text(experiment.to_toml())
    assert Experiment.load(copy) == experiment and experiment.model == {}
    monkeypatch.chdir(tmp_path)
    typed = Experiment.load(path, {"training.start_from": "b"})
    assert typed.training.start_from == str(tmp_path / "b")


# --- Whole runs ------------------------------------------------------------------------------


FINE_TUNING = {
    "training.freeze": '["encoder", "embeddings"]',
    "training.max_epochs": "1",
    "training.optimizer": "adamw",
    "training.weight_decay": "0.1",
    "training.ema": "0.5",
    "training.save_every_steps": "1",
}


def fine_tuning(toy, start):
    """The toy experiment without a tokenizer, a model and validation, from another run."""
    text = toy.read_text()
    parts = text[text.index("[data]") : text.index("[tokenizer]")], text[text.index("[training]") :]
    lines = [line for line in "".join(parts).splitlines() if not line.startswith("valid_")]
    path = toy.with_name("fine_tuning.toml")
    path.write_text("\n".join(lines))
    return Experiment.load(path, {**FINE_TUNING, "training.start_from": str(start)})


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_checkpoint(finished, toy, tmp_path, monkeypatch, capsys):
    start, straight, run_dir = (tmp_path / name for name in ("start", "straight", "run"))
    shutil.copytree(finished, start)
    experiment = fine_tuning(toy, start)
    monkeypatch.setattr(run_module, "draw_run", lambda *_: None)

    with monkeypatch.context() as context:  # killed before there is a checkpoint
        context.setattr(run_module._Fitting, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(experiment, straight)
    said = capsys.readouterr().err
    assert f"started from {start}" in said and "of them frozen" in said
    other = load_run(finished).model
    other.set_weights([weight + 1 for weight in other.get_weights()])
    other.save(start / "model.keras")
    write_record(start, {"model.keras": start / "model.keras"})
    with pytest.raises(ValueError, match="must go on with what it has started from"):
        train(experiment, straight)
    for name in ("model.keras", "run.json"):
        shutil.copy(finished / name, start / name)

    class Copying(run_module.TrainingCheckpoint):
        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            if batch == 2:  # what a kill would leave now
                shutil.copytree(straight, run_dir)

    with monkeypatch.context() as context:
        context.setattr(run_module, "TrainingCheckpoint", Copying)
        train(experiment, straight)
    shutil.rmtree(start)  # which is needed no longer
    train(experiment, run_dir)

    assert state(run_dir).keys() == state(straight).keys()
    for name, value in state(run_dir).items():
        np.testing.assert_array_equal(value, state(straight)[name], err_msg=name)
    report = json.loads((run_dir / "start.json").read_text())
    assert report == json.loads((straight / "start.json").read_text())

    before, kept = load_run(finished), load_run(run_dir)
    assert kept.tokenizer.pieces == before.tokenizer.pieces and kept.config == before.config
    for weight, earlier in zip(kept.model.weights, before.model.weights, strict=True):
        frozen = weight.path.startswith(("encoder", "embedding"))
        assert np.array_equal(weight, earlier) == frozen, weight.path
        assert weight.trainable != frozen


def test_two_tokenizers_of_the_same_ids_go_on_sharing_a_table():
    earlier = TransformerConfig(vocab_size=9, target_vocab_size=9, model_dim=D, num_heads=N)
    sizes = {"vocab_size": 9, "target_vocab_size": 9}
    inherited = starting_from("run").inheriting(earlier).config(**sizes)
    assert inherited.embedding_sharing == "all"
