"""`keras-transformer shortlist`: learnt, read from a lexicon, checked, and used by `translate`."""

import dataclasses
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer.command import cli, shortlist
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.experiment import Experiment, load_run

TEXTS = ["ba ke", "gu", "ko ba gu", "fi"]
MAGIC = 0xF11A48D5013417F5


@pytest.fixture(scope="module")
def run(run_dir, tmp_path_factory):
    """A copy of the run, which may get files of its own."""
    return shutil.copytree(run_dir, tmp_path_factory.mktemp("shortlists") / "run")


def test_it_is_learnt_checked_and_used(run, capsys):
    options = ["--first", "3", "--best", "50", "--check"]
    assert cli.main(["shortlist", str(run), *options]) == 0
    out = capsys.readouterr().out
    assert re.search(r"shortlist.npz: 3 ids for every sentence, and [\d.]+ of a source id", out)
    assert re.search(
        r"\d+ of 17 texts \([\d.]+%\) are those of the whole vocabulary; BLEU [\d.]+ against [\d.]+"
        r"; \d+ candidates a sentence, \d+ at most, of \d+",
        out,
    )
    loaded = load_run(run).with_shortlist(run)
    expected = loaded.translator().translate(TEXTS)
    assert cli.main(["translate", str(run), *TEXTS, "--shortlist"]) == 0
    assert capsys.readouterr().out == "".join(f"{text}\n" for text in expected)
    translator, target = loaded.translator(), loaded.target_tokenizer
    for text, answer in zip(TEXTS, expected, strict=True):
        candidates = loaded.shortlist.ids_for(translator.source_ids(text))
        assert {*target.encode(answer)} <= {*candidates}
        assert len(candidates) < target.vocab_size
        assert "".join(translator.stream(text)) == answer
    assert loaded.shortlist_fields == (loaded.shortlist.fingerprint,)
    assert load_run(run).shortlist_fields == ()


@pytest.mark.slow
def test_a_file_is_not_continued_with_another_shortlist(run, tmp_path, monkeypatch, fails):
    from keras_transformer.translation import files

    owner, size = load_run(run).tokenizers_fingerprint, load_run(run).config.vocab_size
    Shortlist([5], [[]] * size, target_size=size, joint=True).save(
        run / "shortlist.npz", owner=owner
    )
    (tmp_path / "texts").write_text("".join(f"{text}\n" for text in TEXTS))
    arguments = ["translate", run, "--input", tmp_path / "texts", "--output", tmp_path / "out"]

    def interrupted(*_):
        raise RuntimeError("cut")

    with monkeypatch.context() as patch:
        patch.setattr(files.Part, "become_output", interrupted)
        assert "cut" in fails(*arguments)
    assert "which differs in fingerprint" in fails(*arguments, "--shortlist")


def test_a_lexicon_as_text_and_binary(run, tmp_path, capsys):
    loaded = load_run(run)
    pieces = loaded.tokenizer.pieces
    one, two, three = pieces[6:9]
    lexicon = tmp_path / "lex.s2t"
    lexicon.write_text(f"{two} {one} 0.7\n{three} {one} 0.3\nNULL {one} 0.9\n{one} {two} 0.2\n")
    options = ["--lex", str(lexicon), "--first", "1", "--threshold", "0.25"]
    assert cli.main(["shortlist", str(run), *options]) == 0
    made = Shortlist.load(run / "shortlist.npz")
    assert made.joint and made.frequent.tolist() == [7]
    assert made.ids_for([6]) == [6, 7, 8] and made.ids_for([7]) == [7]
    numbers = [MAGIC, 0, 2, 1, 9, 2, *[0] * 7, 1, 2]  # 2 frequent ids, lists of 8 source ids
    ids = np.array([9, 5], "<u4").tobytes()
    lexicon.write_bytes(np.array(numbers, "<u8").tobytes() + ids)
    assert cli.main(["shortlist", str(run), "--lex", str(lexicon)]) == 0
    made = Shortlist.load(run / "shortlist.npz")
    assert made.frequent.tolist() == [0, 1] and made.source_size == len(pieces)
    assert made.ids_for([6]) == [0, 1, 6, 9] and made.ids_for([20]) == [0, 1, 20]


def test_what_is_wrong_is_told(run_dir, run, tmp_path, fails):
    line = fails("translate", run_dir, "ba", "--shortlist")
    assert "--shortlist needs shortlist.npz: run `keras-transformer shortlist` first" in line
    assert "`first` must be" in fails("shortlist", run, "--first", "-1")
    assert "`pairs` must be" in fails("shortlist", run, "--pairs", "0")
    for threshold in ("2", "nan", "-0.1"):
        assert "`threshold` must be" in fails("shortlist", run, f"--threshold={threshold}")
    assert "a text file must exist" in fails("shortlist", run, "--lex", tmp_path / "none")
    (tmp_path / "lex").write_text("a b\n")
    line = fails("shortlist", run, "--lex", tmp_path / "lex")
    assert "a line of a lexicon must be a target, a source and a probability" in line
    (tmp_path / "lex").write_text("NULL NULL 1\n")
    line = fails("shortlist", run, "--lex", tmp_path / "lex")
    assert "must hold pieces of the vocabularies. Received: none of them" in line
    Shortlist([5], [[6]] * 9, target_size=9).save(run / "shortlist.npz", owner="others")
    assert "a file of another run" in fails("translate", run, "ba", "--shortlist")
    for name in ("src", "tgt"):
        (tmp_path / name).write_text("ba " * 2000 + "\n")
    corpus = ["--source", tmp_path / "src", "--target", tmp_path / "tgt"]
    assert "`pairs` must hold a pair that the translator takes" in fails("shortlist", run, *corpus)


def test_a_run_without_pairs_to_learn_from_or_to_check_on(run_dir):
    data = Experiment.load(run_dir / "experiment.toml").data
    without = dataclasses.replace(data, valid_source=None, valid_target=None)
    given = SimpleNamespace(source=None, lex="lex", check=True)
    with pytest.raises(ValueError, match="--check needs a run with a validation set"):
        shortlist._check_run(SimpleNamespace(data=without), given)
    imported = SimpleNamespace(data=SimpleNamespace(imported="m2m"))
    for each in (given, SimpleNamespace(source=None, lex=None, check=False)):
        with pytest.raises(ValueError, match="needs --source or --lex, and goes without --check"):
            shortlist._check_run(imported, each)
