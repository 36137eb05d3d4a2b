"""The teachers' probabilities: in shards, resumed, read for the pairs that are trained on."""

import dataclasses
import functools
import json

import numpy as np
import pytest
from toy_teachers import save_teacher

import keras_transformer as kt
from keras_transformer.data import tokenize_corpus, training_batches
from keras_transformer.data.distilled import open_distilled
from keras_transformer.data.scored import with_probabilities
from keras_transformer.distillation import (
    DistillationOptions,
    Teachers,
    check_job,
    check_student,
    distil,
    probabilities,
    write_corpus,
    written_corpus,
)
from keras_transformer.experiment import Experiment, load_run
from keras_transformer.translation import files
from keras_transformer_runner.translation import Translation

OPTIONS = DistillationOptions(select="original", top_k=3)
PAIRS = [("ab", "ba"), ("cab", "bac"), ("abcabc", "c"), ("a", "ab"), ("b", ""), ("", "c")]
TRAINED = PAIRS[:4]


@pytest.fixture(scope="module")
def teachers(tmp_path_factory, teacher_folders):
    return Teachers.open(teacher_folders)


@pytest.fixture
def experiment(student, teacher_folders, tmp_path):
    pairs = "".join(f"{source}\t{target}\n" for source, target in PAIRS)
    (tmp_path / "pairs.tsv").write_text(pairs)
    text = student.read_text().replace(
        'type = "characters"', f'type = "characters"\nfile = "{teacher_folders[0]}/tokenizer.json"'
    )
    student.write_text(text + "teacher_weight = 0.5\nteacher_temperature = 2.0\n")
    return Experiment.load(student)


@pytest.mark.slow
@pytest.mark.smoke
def test_each_position_has_what_the_ensemble_gives_it(teachers, experiment, tmp_path, monkeypatch):
    monkeypatch.setattr(probabilities, "_PAIRS", 3)
    monkeypatch.setattr(probabilities, "_ROWS", 2)
    folder = write_corpus(teachers, experiment.data, tmp_path / "corpus", options=OPTIONS)
    assert not (folder / "translations.jsonl").exists()
    ((corpus),) = open_distilled(folder, 1)
    assert list(corpus) == TRAINED
    assert len(list(folder.glob("probabilities-*.npz"))) == 2
    translator = teachers.translator()
    tokenizer = translator.tokenizer
    pair = tokenizer, tokenizer
    tokens = tokenize_corpus(corpus, tokenizer, max_length=9)
    scored = with_probabilities(tokens, folder, pair)
    assert scored.fingerprint != tokens.fingerprint
    short = with_probabilities(tokenize_corpus(corpus, tokenizer, max_length=4), folder, pair)
    assert len(short) == 3 and len(short.teacher_ids) == 3 + 4 + 3
    fewer = tokenize_corpus(TRAINED[1:], tokenizer, max_length=9)
    with pytest.raises(ValueError, match="must be of the pairs that are trained on"):
        with_probabilities(fewer, folder, pair)
    with pytest.raises(ValueError, match="must have its teachers' tokenizers"):
        with_probabilities(tokens, folder, (tokenizer, kt.CharacterTokenizer("abcd")))
    # Each row of a batch: the ids that the ensemble finds most probable behind what is before.
    batches = training_batches(scored, tokenizer, batch_tokens=16, buckets=[4, 8], epochs=1)
    rows = 0
    for inputs, labels in batches:
        ids, log_probs = (inputs[name].numpy() for name in ("teacher_ids", "teacher_log_probs"))
        assert ids.shape == log_probs.shape == (*labels.shape, 3)
        plain = {name: inputs[name] for name in ("source_ids", "target_ids")}
        real = labels.numpy() != tokenizer.pad_id
        rows += real.any(axis=1).sum()
        expected = np.asarray(translator.model(plain))
        expected = expected - np.log(np.exp(expected).sum(-1, keepdims=True))
        order = np.argsort(-expected, axis=-1)[..., :3]
        np.testing.assert_array_equal(ids[real], order[real])
        best = np.take_along_axis(expected, order, axis=-1)
        np.testing.assert_allclose(log_probs[real], best[real], rtol=2e-3)
        assert (ids[~real] == 0).all() and (log_probs[~real] == 0).all()
    assert rows == 4


def shard_of_zeros(pairs, numbers, top_k):
    lengths = np.stack([pairs.source_lengths, pairs.target_lengths], axis=1)[numbers]
    said = np.zeros((sum(lengths[:, 1] + 1), top_k))
    return {"lengths": lengths, "ids": said.astype("int32"), "log_probs": said}


@pytest.mark.parametrize("damaged", [False, True])
def test_an_interrupted_call_keeps_its_whole_shards(
    teachers, experiment, tmp_path, monkeypatch, damaged
):
    monkeypatch.setattr(probabilities, "_PAIRS", 2)
    calls = []

    def counting(pairs, numbers, *_):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return shard_of_zeros(pairs, numbers, 3)

    monkeypatch.setattr(probabilities, "_shard", counting)
    folder = tmp_path / "corpus"
    with pytest.raises(KeyboardInterrupt):
        write_corpus(teachers, experiment.data, folder, options=OPTIONS)
    with pytest.raises(ValueError, match="`data.distilled` must be finished"):
        open_distilled(folder, 1)
    if damaged:  # into arrays that can be read
        with np.load(folder / "probabilities-00000.npz") as file:
            arrays = dict(file)
        np.savez(folder / "probabilities-00000.npz", **arrays | {"ids": arrays["ids"] + 1})
    write_corpus(teachers, experiment.data, folder, options=OPTIONS)
    assert len(calls) == 3 + damaged
    with np.load(folder / "probabilities-00000.npz") as file:
        assert not file["ids"].any()
    longer = dataclasses.replace(experiment.data, max_length=99)
    with pytest.raises(FileExistsError, match="differs in max_length"):
        write_corpus(teachers, longer, folder, options=OPTIONS)
    (folder / "probabilities-00001.npz").write_bytes(b"")
    tokenizer = kt.CharacterTokenizer("abc")
    corpus = tokenize_corpus(TRAINED, tokenizer, max_length=9)
    with pytest.raises(ValueError, match="probabilities-00001.npz must be the file that"):
        with_probabilities(corpus, folder, (tokenizer, tokenizer))


@pytest.mark.parametrize("moment", ["translations", "probabilities"])
def test_another_k_goes_on_with_the_translations(
    teachers, experiment, tmp_path, monkeypatch, moment
):
    translated, write_file = [], probabilities.write_file

    def reversed_texts(_, texts, *, n_best):
        if moment == "translations" and len(translated) == 2:
            translated.append(None)
            raise KeyboardInterrupt
        translated.extend(texts)
        return [[Translation(text[::-1], (), -1.0, truncated=False)] for text in texts]

    def stopping(path, write):
        write_file(path, write)
        raise KeyboardInterrupt

    translate_file = files.translate_file
    monkeypatch.setattr(files, "translate_file", functools.partial(translate_file, window=2))
    monkeypatch.setattr(kt.Translator, "translate_with_details", reversed_texts)
    monkeypatch.setattr(probabilities, "compiled", lambda function, *_: function.args[1])  # K
    monkeypatch.setattr(probabilities, "_shard", lambda *args: shard_of_zeros(*args[:3]))
    monkeypatch.setattr(probabilities, "_PAIRS", 2)
    folder = tmp_path / "corpus"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(probabilities, "write_file", stopping)
        write_corpus(teachers, experiment.data, folder, options=DistillationOptions(top_k=3))
    other = dataclasses.replace(experiment.data, max_length=99)
    check_job(folder, teachers, DistillationOptions(top_k=2))
    write_corpus(teachers, other, folder, options=DistillationOptions(top_k=2))
    assert sorted(filter(None, translated)) == ["a", "ab", "abcabc", "b", "cab"]
    shards = sorted(folder.glob("probabilities-*.npz"))
    assert [np.load(path)["ids"].shape[1] for path in shards] == [2, 2, 2]
    with pytest.raises(FileExistsError, match="differs in top_k$"):
        write_corpus(teachers, experiment.data, folder, options=DistillationOptions(top_k=3))


def test_a_call_that_was_killed_after_the_pairs_goes_on(
    teachers, experiment, tmp_path, monkeypatch
):
    def killed(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(written_corpus, "checksum", killed)
    with pytest.raises(KeyboardInterrupt):
        write_corpus(teachers, experiment.data, tmp_path / "corpus", options=OPTIONS)
    assert (tmp_path / "corpus" / "pairs-0.jsonl").exists()
    check_job(tmp_path / "corpus", teachers, OPTIONS)


@pytest.mark.slow
def test_a_student_is_trained_on_them(teachers, experiment, tmp_path):
    run = load_run(distil(teachers, experiment, tmp_path / "run", options=OPTIONS))
    assert type(run.model) is kt.Transformer
    assert run.tokenizer.fingerprint == teachers.fingerprints[0][1]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["loss"] > 0


def test_what_does_not_go_together(stub, teachers, experiment, student, tmp_path):
    with pytest.raises(ValueError, match="`select` 'original' must go with `top_k`"):
        DistillationOptions(select="original")
    with pytest.raises(ValueError, match="`top_k` must be a positive integer"):
        DistillationOptions(top_k=0)
    plain = DistillationOptions()
    with pytest.raises(ValueError, match="must go with `training.teacher_weight`.*top_k=None"):
        check_student(experiment, teachers, plain)
    without = Experiment.load(student, {"training.teacher_weight": "0.0"})
    with pytest.raises(ValueError, match="must go with .*top_k=3, teacher_weight=0"):
        check_student(without, teachers, OPTIONS)
    check_student(experiment, teachers, OPTIONS)
    kt.CharacterTokenizer("abcd").save(tmp_path / "other.json")
    for other in (str(tmp_path / "other.json"), ""):
        wrong = Experiment.load(student, {"tokenizer.file": other})
        with pytest.raises(ValueError, match="must have its teachers' tokenizers: name them in"):
            check_student(wrong, teachers, OPTIONS)
    prefixed = dataclasses.replace(teachers, source_prefix=("a",))
    with pytest.raises(ValueError, match="`top_k` goes without prefixes"):
        write_corpus(prefixed, experiment.data, tmp_path / "corpus", options=OPTIONS)
    for changes in ({"r_drop": 1.0}, {"pack": True}):
        with pytest.raises(ValueError, match="does not go with `r_drop` and `pack`"):
            dataclasses.replace(experiment.training, **changes)
    for weight in (-0.1, 1.1):
        with pytest.raises(ValueError, match=r"`training.teacher_weight` must be in \[0, 1\]"):
            dataclasses.replace(experiment.training, teacher_weight=weight)
    with pytest.raises(ValueError, match="`training.teacher_temperature` must be positive"):
        dataclasses.replace(experiment.training, teacher_temperature=0.0)
    data = dataclasses.replace(experiment.data, distilled="x", original_weight=1.0)
    with pytest.raises(ValueError, match="`training.teacher_weight` goes with one corpus"):
        dataclasses.replace(experiment, data=data)
    made = write_corpus(teachers, experiment.data, tmp_path / "plain")
    tokenizer = kt.CharacterTokenizer("abc")
    corpus = tokenize_corpus(TRAINED, tokenizer, max_length=9)
    with pytest.raises(ValueError, match="needs the teachers' probabilities.*which has none"):
        with_probabilities(corpus, made, (tokenizer, tokenizer))


@pytest.mark.parametrize(
    ("top_k", "max_length", "message"),
    [
        (8, 9, "`top_k` must be at most the vocabulary's size. Received: top_k=8, size=7"),
        (3, 10, "`data.max_length` must be at most the positions .* max_length=10, .*=9"),
    ],
)
def test_limits_of_the_teachers_are_told_before_they_translate(
    teacher_folders, experiment, tmp_path, monkeypatch, top_k, max_length, message
):
    learned = save_teacher(tmp_path / "learned", 3, positions="learned", max_positions=9)
    teachers = Teachers.open([teacher_folders[0], learned])
    monkeypatch.setattr(Teachers, "translator", None)
    options = DistillationOptions(top_k=top_k)
    data = dataclasses.replace(experiment.data, max_length=max_length)
    with pytest.raises(ValueError, match=message):
        check_student(dataclasses.replace(experiment, data=data), teachers, options)
    with pytest.raises(ValueError, match=message):
        write_corpus(teachers, data, tmp_path / "corpus", options=options)
    assert not (tmp_path / "corpus").exists()
