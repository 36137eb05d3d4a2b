"""Tokenizers of Marian's folders: two SentencePiece models and a table of ids."""

import pytest
from tokenizer_folders import (
    ENGLISH,
    GERMAN,
    ODD,
    by_table,
    check_ids,
    toy_models,
    write,
)

from keras_transformer.interop.tokenizers import read_tokenizers
from keras_transformer_runner.tokenizers import load_tokenizer
from keras_transformer_runner.tokenizers.renumbered import PieceTable


@pytest.fixture(scope="module")
def models():
    return toy_models()


def marian_table(models, *names, languages=()):
    pieces = ["</s>", "<unk>", *languages]
    for name in names:
        pieces += [piece.text for piece in reversed(PieceTable.read(models[name]).pieces[3:])]
    return {piece: token for token, piece in enumerate([*dict.fromkeys(pieces), "<pad>"])}


def marian_config(ids, **more):
    pad = ids["<pad>"]
    start = dict(pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad)
    return {"model_type": "marian", "vocab_size": len(ids), **start, **more}


@pytest.fixture
def marian(models, tmp_path):
    ids = marian_table(models, "german", "english")
    folder = write(
        tmp_path / "marian",
        vocab__json=ids,
        source__spm=models["german"],
        target__spm=models["english"],
        tokenizer_config__json={"source_lang": "de", "target_lang": "en"},
    )
    return folder, ids


@pytest.mark.smoke
def test_marian_looks_up_in_its_table(marian, models, tmp_path):
    folder, ids = marian
    source, target, notes = read_tokenizers(folder, marian_config(ids))
    check_ids(source, by_table(models["german"], ids), [*GERMAN, *ODD])
    check_ids(target, by_table(models["english"], ids), [*ENGLISH, *ODD])
    assert source.special_ids == target.special_ids == (ids["<pad>"], 1, ids["<pad>"], 0)
    assert source.vocab_size == target.vocab_size == len(ids)
    assert (source.prefix_ids, target.prefix_ids, notes) == ((), (), ())
    # A target may hold what only the source's model has.
    assert target.decode(source.encode("der Hund")) == "der Hund"
    source.save(tmp_path / "tokenizer.model")
    assert load_tokenizer(tmp_path / "tokenizer.model").encode("Hund") == source.encode("Hund")


def test_marian_says_which_pieces_have_no_id(marian):
    folder, ids = marian
    config = marian_config(ids)
    del ids["us"]
    source, _, notes = read_tokenizers(write(folder, vocab__json=ids), config)
    spelled = [source.pieces[token] for token in source.encode("Haus")]
    assert spelled == ["▁H", "a", "u", "s"]
    assert [note[:54] for note in notes] == [
        "1 pieces of source.spm have no id, such as 'us': they "
    ]


def test_marian_takes_what_a_model_does_not_know_a_character_at_a_time(marian, models):
    # As a run of several, SentencePiece hands it out as one, which no table has.
    folder, ids = marian
    _, target, _ = read_tokenizers(folder, marian_config(ids))
    assert by_table(models["english"], ids)("im") == [ids["▁"], ids["<unk>"]]
    assert target.encode("im") == [ids["▁"], ids["i"], ids["m"]]
    assert by_table(models["english"], ids)("i") == target.encode("i") == [ids["▁"], ids["i"]]


def test_marian_with_a_vocabulary_for_each_side(models, tmp_path):
    source_ids, target_ids = (marian_table(models, name) for name in ("german", "english"))
    source_ids = {f"more {place}": len(source_ids) + place for place in range(9)} | source_ids
    target_ids |= {f"more {place}": len(target_ids) + place for place in range(9)}
    pad = max(source_ids["<pad>"], target_ids["<pad>"])
    for ids in (source_ids, target_ids):
        other = next((piece for piece, token in ids.items() if token == pad), None)
        ids[other] = ids["<pad>"] if other != "<pad>" else pad
        ids["<pad>"] = pad
    folder = write(
        tmp_path / "separate",
        vocab__json=source_ids,
        target_vocab__json=target_ids,
        source__spm=models["german"],
        target__spm=models["english"],
    )
    sizes = dict(vocab_size=100, decoder_vocab_size=101)
    source, target, _ = read_tokenizers(folder, marian_config(source_ids, **sizes))
    check_ids(source, by_table(models["german"], source_ids), [*GERMAN, *ODD])
    check_ids(target, by_table(models["english"], target_ids), [*ENGLISH, *ODD])
    assert (source.vocab_size, target.vocab_size) == (100, 101)
    target_ids["<pad>"] = 100
    with pytest.raises(ValueError, match="`pad_token_id` must be the id of the tokenizer's piece"):
        read_tokenizers(
            write(folder, target_vocab__json=target_ids), marian_config(source_ids, **sizes)
        )
    config = {"model_type": "marian", "decoder_vocab_size": 101, "decoder_start_token_id": 2}
    with pytest.raises(ValueError, match="both tokenizers must have the same special ids"):
        read_tokenizers(folder, config)


def test_marian_of_several_languages(models, tmp_path):
    ids = marian_table(models, "english", "german", languages=[">>fra<<", ">>deu<<", ">>nld<<"])
    folder = write(
        tmp_path / "several",
        vocab__json=ids,
        source__spm=models["english"],
        target__spm=models["german"],
        tokenizer_config__json={"source_lang": "en", "target_lang": "gmw"},
    )
    config = marian_config(ids)
    source, target, _ = read_tokenizers(folder, config, target_language="deu")
    assert (source.prefix_ids, target.prefix_ids) == ((ids[">>deu<<"],), ())
    check_ids(source, by_table(models["english"], ids), [*ENGLISH, *ODD])
    spelled = source.encode(">>fra<< a dog")[1:]  # no text makes a control id
    assert not {ids[">>fra<<"], ids[">>deu<<"], ids[">>nld<<"]} & {*spelled}
    assert target.decode([ids[">>deu<<"], *target.encode("ein Hund")]) == "ein Hund"
    none, _, _ = read_tokenizers(folder, config, source_language="en", target_language="")
    assert none.prefix_ids == ()
    with pytest.raises(ValueError, match="must be given .*'fra', 'deu', 'nld'.*or '' for none"):
        read_tokenizers(folder, config)
    with pytest.raises(
        ValueError, match="must be one of .*Received: 'deutsch'. Did you mean 'deu'"
    ):
        read_tokenizers(folder, config, target_language="deutsch")
    with pytest.raises(ValueError, match="`source_language` must be None .* Received: 'es'"):
        read_tokenizers(folder, config, source_language="es", target_language="deu")


def test_marian_of_one_language_takes_no_other(marian):
    folder, ids = marian
    config = marian_config(ids)
    read_tokenizers(folder, config, source_language="de", target_language="en")
    with pytest.raises(ValueError, match="`target_language` must be None .* Received: 'fr'"):
        read_tokenizers(folder, config, target_language="fr")


def test_tables_are_checked(marian):
    folder, ids = marian
    config = marian_config(ids)
    with pytest.raises(
        ValueError, match="vocab.json: an id must be an integer. Received: 'x': '3'"
    ):
        read_tokenizers(write(folder, vocab__json=ids | {"x": "3"}), config)
    with pytest.raises(ValueError, match="vocab.json: must have an id for '<unk>'"):
        read_tokenizers(write(folder, vocab__json={"<pad>": 0, "</s>": 1}), config)
    (folder / "vocab.json").unlink()
    with pytest.raises(FileNotFoundError, match="a tokenizer's file must exist.*vocab.json"):
        read_tokenizers(folder, config)
