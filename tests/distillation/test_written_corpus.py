"""What teachers write: each source once, resumed, chosen, and refused where it is not theirs."""

import contextlib
import dataclasses
import json
import pickle

import pytest
from toy_teachers import SENTENCES, Stub, save_teacher

import keras_transformer as kt
from keras_transformer.data import prepare
from keras_transformer.data.distilled import open_distilled
from keras_transformer.distillation import (
    DistillationOptions,
    Teachers,
    check_job,
    write_corpus,
)
from keras_transformer.distillation import written_corpus as module
from keras_transformer.distillation.probabilities import write_probabilities
from keras_transformer.experiment import Experiment
from keras_transformer.translation import apache_beam, files, workers
from keras_transformer_runner.translation import Translation

SOURCES = [source for source, _ in SENTENCES if source]


@pytest.fixture
def data(student):
    return Experiment.load(student).data


@pytest.fixture
def teachers(teacher_folders):
    return Teachers.open(teacher_folders)


def pairs(folder, corpora=1):
    return [list(corpus) for corpus in open_distilled(folder, corpora)]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.smoke
def test_an_ensemble_writes_each_source_once(teacher_folders, data, tmp_path, capsys, monkeypatch):
    teachers = Teachers.open(teacher_folders, beam_size=1)
    translator = teachers.translator()
    monkeypatch.setattr(Teachers, "translator", lambda *_, **__: translator)  # its graph too
    made = write_corpus(teachers, data, tmp_path / "corpus")
    assert lines(made / "sources.jsonl") == [{"source": text} for text in dict.fromkeys(SOURCES)]
    assert isinstance(translator.model, kt.Ensemble) and isinstance(translator.strategy, kt.Greedy)
    expected = translator.translate(SOURCES)
    some = [pair for pair in zip(SOURCES, expected, strict=True) if pair[1]]
    assert some  # of random models, some translations may be empty
    assert pairs(made) == [some]
    said = capsys.readouterr().err
    assert (
        f"{len(some)} pairs of 5 sources; without a translation: {5 - len(some)} that are" in said
    )


def test_one_teacher_is_no_ensemble_and_may_search_in_another_way(teacher_folders):
    teachers = Teachers.open(teacher_folders[:1], beam_size=2, target_prefix=["a"])
    translator = teachers.translator(jit_compile=True)
    assert isinstance(translator.model, kt.Transformer) and translator.jit_compile
    assert translator.strategy.beam_size == 2 and translator.strategy.forced_eos
    assert translator.target_prefix_ids == (4,) and translator.max_source_length == 8


@pytest.mark.parametrize("select", ["best-bleu", "all"])
def test_n_best(stub, teachers, data, tmp_path, select):
    options = DistillationOptions(n_best=3, select=select)
    made = write_corpus(teachers, data, tmp_path / "corpus", options=options)
    chosen = {
        # The corpus has "ba" and "b" for "ab", and nothing for "b".
        "best-bleu": [("ab", "ba"), ("abc", "cba"), ("ab", "ba"), ("cab", "bac"), ("b", "b")],
        "all": [(s, each) for s in SOURCES for each in (s[::-1], s, s.upper())],
    }
    assert pairs(made) == [chosen[select]]


def test_the_nearest_to_the_reference_is_chosen_for_each_pair():
    options = DistillationOptions(n_best=3, select="best-bleu")
    found = ["a dog runs", "a man rides", "a dog sleeps"]
    assert options.chosen(found, "a man walks") == ["a man rides"]
    assert options.chosen(found, "a dog") == ["a dog runs"]  # the first of equal ones
    assert options.chosen(found, " ") == ["a dog runs"]
    assert options.chosen([], "a man") == []


def test_what_has_no_whole_translation_is_left_out_and_counted(
    stub, teachers, data, tmp_path, capsys
):
    (tmp_path / "pairs.tsv").write_text("ab\tx\nabcc\tx\nabcabcabc\tx\n")
    assert pairs(write_corpus(teachers, data, tmp_path / "corpus")) == [[("ab", "ba")]]
    said = capsys.readouterr().err
    assert "1 pairs of 3 sources; without a translation: 1 that are cut off or empty, 1 too" in said


def test_split_text_stays_split(tmp_path, monkeypatch):
    tokenizer = kt.VocabularyTokenizer(["ca@@", "ts", "a"])
    folder = save_teacher(tmp_path / "teacher", 3, tokenizer)
    ids = (*tokenizer.encode("a ca@@ ts never"), tokenizer.eos_id)
    found = [[Translation("a cats <unk>", ids, -1.0, truncated=False)]]
    monkeypatch.setattr(kt.Translator, "translate_with_details", lambda *_, **__: found)
    translator = Teachers.open([folder]).translator()
    ((made,),) = translator.translate_with_details(["ca@@ ts"], n_best=1)
    assert made.text == "a ca@@ ts <unk>" and tuple(tokenizer.encode(made.text)) == ids[:-1]
    assert translator.source_ids("ca@@ ts") == [*tokenizer.encode("ca@@ ts"), tokenizer.eos_id]
    pairs = [("ca@@ ts", "a ca@@ ts")]
    assert write_probabilities(tmp_path, translator, pairs, top_k=2, max_length=8)["top_k"] == 2


def test_several_corpora_with_tags_keep_apart(stub, teachers, student, tmp_path):
    (tmp_path / "more.tsv").write_text("ab\tc\nbb\tc\n")
    (tmp_path / "other.toml").write_text(
        student.read_text().replace(
            'tsv = "pairs.tsv"\nvalid_tsv = "valid.tsv"',
            '[[data.sources]]\ntsv = "pairs.tsv"\ntag = "c"\n[[data.sources]]\ntsv = "more.tsv"',
        )
    )
    data = Experiment.load(tmp_path / "other.toml").data
    made = write_corpus(teachers, data, tmp_path / "corpus")
    tagged, plain = pairs(made, 2)
    assert [source for source, _ in tagged] == [
        "c abc",
        "c cab",
        "c b",
    ]  # the others have four letters
    assert [source for source, _ in plain] == ["ab", "bb"]
    with pytest.raises(ValueError, match="made of as many corpora as"):
        open_distilled(made, 1)


@pytest.mark.parametrize("moment", ["sources", "translations", "pairs"])
def test_interrupted_it_goes_on_and_translates_nothing_again(
    stub, teachers, data, tmp_path, monkeypatch, moment
):
    expected = pairs(write_corpus(teachers, data, tmp_path / "whole"))
    folder, windows = tmp_path / "corpus", []
    translated = files.FileFormat.translated

    def counting(self, translator, items):
        if moment == "translations" and len(windows) == 1:
            windows.append(0)
            raise KeyboardInterrupt
        windows.append(len(items))
        return translated(self, translator, items)

    class Stopped:
        def __init__(self, *_):
            raise KeyboardInterrupt

    monkeypatch.setattr(files.FileFormat, "translated", counting)
    small = files.translate_file
    monkeypatch.setattr(files, "translate_file", lambda *a, **kw: small(*a, **kw, window=2))
    with monkeypatch.context() as patch:
        if moment == "sources":
            patch.setattr(module, "_write_note", Stopped)
        if moment == "pairs":
            patch.setattr(module, "_Translations", Stopped)
        with pytest.raises(KeyboardInterrupt):
            write_corpus(teachers, data, folder)
    if moment != "sources":
        with pytest.raises(ValueError, match="`data.distilled` must be finished"):
            open_distilled(folder, 1)
    assert pairs(write_corpus(teachers, data, folder)) == expected
    assert sum(windows) == 4
    monkeypatch.setattr(Teachers, "translator", None)  # nothing is left to do
    write_corpus(teachers, data, folder)


def test_damaged_translations_become_no_pairs(stub, teachers, data, tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    folder = tmp_path / "corpus"
    with monkeypatch.context() as patch:
        patch.setattr(module, "_write_pairs", stopped)
        with pytest.raises(KeyboardInterrupt):
            write_corpus(teachers, data, folder)
    path = folder / "translations.jsonl"
    text = path.read_text()
    path.write_text("".join(reversed(text.splitlines(keepends=True))))
    with pytest.raises(ValueError, match=r"translations\.jsonl must be the file that distilled\.j"):
        write_corpus(teachers, data, folder)
    path.write_text(text)
    assert pairs(write_corpus(teachers, data, folder))


def test_what_others_began_is_refused(stub, teachers, teacher_folders, data, tmp_path):
    folder = write_corpus(teachers, data, tmp_path / "corpus")
    options = DistillationOptions()
    check_job(folder, teachers, options)
    alone = Teachers.open(teacher_folders[:1])
    with pytest.raises(FileExistsError, match="same teachers.* differs in teachers$"):
        check_job(folder, alone, options)
    narrow = Teachers.open(teacher_folders, beam_size=2)
    with pytest.raises(FileExistsError, match="differs in search, n_best, select$"):
        check_job(folder, narrow, DistillationOptions(n_best=2, select="all"))
    prefixed = dataclasses.replace(teachers, source_prefix=("a",))
    with pytest.raises(FileExistsError, match="differs in source_prefix$"):
        check_job(folder, prefixed, options)
    (tmp_path / "pairs.tsv").write_text("abc\tcba\n")
    with pytest.raises(FileExistsError, match="differs in corpus$"):
        write_corpus(teachers, data, folder)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    with pytest.raises(FileExistsError, match="teachers need a new or empty folder"):
        write_corpus(teachers, data, tmp_path / "full")


def test_damage_is_found(stub, teachers, data, tmp_path):
    folder = write_corpus(teachers, data, tmp_path / "corpus")
    note, text = folder / "distilled.json", (folder / "distilled.json").read_text()
    note.write_text(text.replace('"sources": 4', '"sources": 5', 1))
    with pytest.raises(ValueError, match="must be as it was written"):
        open_distilled(folder, 1)
    note.write_text(text)
    (folder / "pairs-0.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"pairs-0\.jsonl must be the file that distilled\.json"):
        open_distilled(folder, 1)
    with pytest.raises(FileNotFoundError, match="must be the note of a corpus that `distil`"):
        open_distilled(tmp_path, 1)


def test_wrong_options_and_teachers(teacher_folders, teachers, student, data, tmp_path):
    for wrong in ({"n_best": 2}, {"select": "all"}, {"select": "best-bleu"}):
        with pytest.raises(ValueError, match="`n_best` above 1 must go with `select`"):
            DistillationOptions(**wrong)
    with pytest.raises(ValueError, match="`n_best` must be a positive integer"):
        DistillationOptions(n_best=0)
    with pytest.raises(ValueError, match="`select` must be one of"):
        DistillationOptions(n_best=2, select="worst")
    options = DistillationOptions(n_best=4, select="all")
    with pytest.raises(ValueError, match=r"hypotheses of the teachers' search.*n_best=4.*size=3"):
        write_corpus(teachers, data, tmp_path / "corpus", options=options)
    with pytest.raises(ValueError, match="`folders` must name a teacher"):
        Teachers.open([])
    with pytest.raises(FileNotFoundError, match="a run folder must hold"):
        Teachers.open([tmp_path])
    other = save_teacher(tmp_path / "other", 1, kt.CharacterTokenizer("abcd"))
    with pytest.raises(ValueError, match="teachers must have the same tokenizers.*other"):
        Teachers.open([teacher_folders[0], other])
    (tmp_path / "pairs.tsv").write_text("\tx\n")
    with pytest.raises(ValueError, match="a corpus must have a source to translate"):
        write_corpus(teachers, data, tmp_path / "corpus")
    with pytest.raises(ValueError, match="Received: standard input"):
        write_corpus(teachers, dataclasses.replace(data, tsv="-"), tmp_path / "corpus")
    prepare([("ab", "c")], kt.CharacterTokenizer("abc"), tmp_path / "shards", max_length=4)
    shards = dataclasses.replace(data, tsv=None, source=str(tmp_path / "shards"))
    with pytest.raises(ValueError, match="teachers need text, not what `prepare` made"):
        write_corpus(teachers, shards, tmp_path / "corpus")


def test_workers_and_beam_take_the_same_teachers(stub, teachers, data, tmp_path, monkeypatch):
    asked = []

    def of_another_process(make_translator):
        return type(pickle.loads(pickle.dumps(make_translator))())

    class Workers(contextlib.nullcontext):
        def __init__(self, make_translator, count, translator):
            asked.append((count, of_another_process(make_translator)))
            super().__init__(translator)

    def with_beam(make_translator, source, output, *, form, options):
        asked.append((options, of_another_process(make_translator)))
        files.translate_file(make_translator(), source, output, form=form)

    monkeypatch.setattr(workers, "Workers", Workers)
    monkeypatch.setattr(apache_beam, "translate_file_with_beam", with_beam)
    expected = pairs(write_corpus(teachers, data, tmp_path / "one"))
    assert pairs(write_corpus(teachers, data, tmp_path / "two", workers=2)) == expected
    assert pairs(write_corpus(teachers, data, tmp_path / "b", beam_options="direct")) == expected
    assert asked == [(2, Stub), ("direct", Stub)]
