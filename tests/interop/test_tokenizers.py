"""Tokenizers of Hugging Face's folders: the ids that SentencePiece and the folder's table say."""

import pytest
from sentencepiece import SentencePieceProcessor
from tokenizer_folders import (
    ENGLISH,
    FAIRSEQ,
    NLLB_LANGUAGES,
    by_table,
    check_ids,
    fairseq_config,
    fairseq_ids,
    toy_models,
    trained,
    write,
)

from keras_transformer.interop.tokenizers import read_tokenizers
from keras_transformer_runner.tokenizers.renumbered import PieceTable


@pytest.fixture(scope="module")
def models():
    return toy_models()


# --- T5 and its relatives ------------------------------------------------------------------


@pytest.mark.parametrize("kind, model", [("t5", "t5"), ("mt5", "bytes")])
def test_t5_keeps_sentencepieces_ids(models, tmp_path, kind, model):
    folder = write(tmp_path / kind, spiece__model=models[model])
    processor = SentencePieceProcessor(model_proto=models[model])
    config = {"model_type": kind, "vocab_size": 400, "pad_token_id": 0, "eos_token_id": 1}
    source, target, notes = read_tokenizers(folder, config)
    check_ids(source, processor.encode)
    assert source is target and notes == ()
    assert source.special_ids == (0, 2, 0, 1)
    assert source.vocab_size == 400
    assert source.decode([*source.encode("a dog"), 399, 1]) == "a dog"  # 399: <extra_id_0>
    with pytest.raises(ValueError, match="`target_language` must be None for this model"):
        read_tokenizers(folder, config, target_language="de")


def test_t5_with_sentinels_in_its_model(tmp_path):
    ids = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    model = trained(ENGLISH, user_defined_symbols=["<extra_id_0>"], **ids)
    folder = write(tmp_path / "t5", spiece__model=model)
    source, _, _ = read_tokenizers(folder, {"model_type": "t5", "vocab_size": 100})
    assert source.pieces.index("<extra_id_0>") not in source.encode("a <extra_id_0> dog")


@pytest.mark.parametrize("file", ["spiece.model", "tokenizer_config.json"])
def test_files_of_a_clone_without_git_lfs(models, tmp_path, file):
    folder = write(tmp_path / "t5", spiece__model=models["t5"])
    (folder / file).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(ValueError, match=rf"{file}: .*git lfs pull"):
        read_tokenizers(folder, {"model_type": "t5", "vocab_size": 400})


def test_byt5(tmp_path):
    config = {"model_type": "t5", "vocab_size": 384, "pad_token_id": 0, "eos_token_id": 1}
    folder = write(tmp_path / "byt5", tokenizer_config__json={"tokenizer_class": "ByT5Tokenizer"})
    for where, given in (
        (folder, config),
        (tmp_path, config | {"tokenizer_class": "ByT5Tokenizer"}),
    ):
        source, target, _ = read_tokenizers(where, given)
        check_ids(source, lambda text: [byte + 3 for byte in text.strip().encode()])
        assert source is target
        assert (source.special_ids, source.vocab_size) == ((0, 2, 0, 1), 384)


# --- Models with a token for each language -------------------------------------------------


def named_languages(form, ids, languages):
    """The files that may name languages."""
    entries = {ids[name]: {"content": name, "special": True} for name in [*languages, "<mask>"]}
    return {
        "in order": {"special_tokens_map__json": {"additional_special_tokens": languages}},
        "as entries": {
            "special_tokens_map__json": {
                "additional_special_tokens": [{"content": name} for name in languages]
            }
        },
        "of the settings": {
            "tokenizer_config__json": {
                "additional_special_tokens": ["<s>", "<mask>", *languages],
            }
        },
        "with ids": {"tokenizer_config__json": {"added_tokens_decoder": entries}},
        "added": {"added_tokens__json": {name: ids[name] for name in languages}},
        "fast": {
            "tokenizer__json": {
                "added_tokens": [{"id": token, **entry} for token, entry in entries.items()]
            }
        },
    }[form]


@pytest.mark.parametrize("family", FAIRSEQ)
@pytest.mark.parametrize(
    "form", ["in order", "as entries", "of the settings", "with ids", "added", "fast"]
)
def test_fairseqs_order(models, tmp_path, family, form):
    model, kind, languages, german, english, more = FAIRSEQ[family]
    ids = fairseq_ids(models[model], languages)
    files = named_languages(form, ids, languages)
    folder = write(tmp_path / family, sentencepiece__bpe__model=models[model], **files)
    source, target, _ = read_tokenizers(
        folder, fairseq_config(kind, ids, **more), source_language=german, target_language=english
    )
    assert (source.prefix_ids, target.prefix_ids) == ((ids[german],), (ids[english],))
    assert source.special_ids == target.special_ids == (1, 3, 2, 2)
    assert source.vocab_size == len(ids)
    check_ids(source, by_table(models[model], ids))
    row = target.encode("a dog")
    assert row[0] == ids[english]
    assert target.decode([*row, 2]) == target.decode(row[1:]) == "a dog"


def m2m_folder(models, path, languages=("af", "de", "en")):
    pieces = [piece.text for piece in PieceTable.read(models["bpe"]).pieces[3:]]
    ids = {
        piece: token for token, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces[::-1]])
    }
    more = {
        "special_tokens_map__json": {"additional_special_tokens": [f"__{x}__" for x in languages]}
    }
    files = dict(vocab__json=ids, sentencepiece__bpe__model=models["bpe"])
    return write(path, **files, **(more if languages else {})), ids


def test_m2m_100_looks_up_in_its_table(models, tmp_path):
    folder, ids = m2m_folder(models, tmp_path / "m2m")
    config = fairseq_config("m2m_100", ids, vocab_size=len(ids) + 11)
    source, target, _ = read_tokenizers(folder, config, source_language="de", target_language="en")
    assert (source.prefix_ids, target.prefix_ids) == ((len(ids) + 1,), (len(ids) + 2,))
    assert source.special_ids == (1, 3, 2, 2)
    assert source.vocab_size == len(ids) + 11
    check_ids(source, by_table(models["bpe"], ids))


def test_m2m_100_as_newer_versions_leave_it(models, tmp_path):
    folder, ids = m2m_folder(models, tmp_path / "m2m", languages=())
    config = fairseq_config("m2m_100", ids, vocab_size=len(ids) + 108)
    source, target, _ = read_tokenizers(folder, config, source_language="af", target_language="zu")
    assert (source.prefix_ids, target.prefix_ids) == ((len(ids),), (len(ids) + 99,))
    write(folder, tokenizer_config__json={"language_codes": "wmt21"})
    source, target, _ = read_tokenizers(folder, config, source_language="en", target_language="de")
    assert (source.prefix_ids, target.prefix_ids) == ((len(ids),), (len(ids) + 7,))
    write(folder, tokenizer_config__json={"language_codes": "wmt20"})
    with pytest.raises(ValueError, match="`language_codes` must be one of .*Received: 'wmt20'"):
        read_tokenizers(folder, config, source_language="en", target_language="de")


def test_languages_that_a_folder_names(models, tmp_path):
    folder, ids = m2m_folder(models, tmp_path / "m2m")
    config = fairseq_config("m2m_100", ids, vocab_size=len(ids) + 11)
    with pytest.raises(ValueError, match="`source_language` must be given .*'af', 'de', 'en'"):
        read_tokenizers(folder, config)
    write(folder, tokenizer_config__json={"src_lang": "af"})
    with pytest.raises(ValueError, match="`target_language` must be given .*'af', 'de', 'en'"):
        read_tokenizers(folder, config)
    config["forced_bos_token_id"] = len(ids) + 1
    source, target, _ = read_tokenizers(folder, config)
    assert (source.prefix_ids, target.prefix_ids) == ((len(ids),), (len(ids) + 1,))
    write(folder, generation_config__json={"forced_bos_token_id": len(ids) + 2})
    assert read_tokenizers(folder, config).target.prefix_ids == (len(ids) + 2,)
    write(folder, tokenizer_config__json={"src_lang": "af", "tgt_lang": "af"})
    assert read_tokenizers(folder, config).target.prefix_ids == (len(ids),)
    with pytest.raises(ValueError, match="one of .*'af', 'de', 'en'.*'deu'. Did you mean 'de'"):
        read_tokenizers(folder, config, source_language="deu", target_language="en")


def test_what_cannot_be_taken_over(models, tmp_path):
    ids = fairseq_ids(models["bpe"], NLLB_LANGUAGES)
    folder = write(tmp_path / "nllb", sentencepiece__bpe__model=models["bpe"])
    config = fairseq_config("m2m_100", ids)
    with pytest.raises(ValueError, match="folder must name the languages"):
        read_tokenizers(folder, config)
    write(folder, tokenizer_config__json={"legacy_behaviour": True})
    with pytest.raises(ValueError, match="`legacy_behaviour` must be false"):
        read_tokenizers(folder, config)
    write(folder, tokenizer_config__json={"sp_model_kwargs": {"enable_sampling": True}})
    with pytest.raises(ValueError, match="`sp_model_kwargs` .*must be empty"):
        read_tokenizers(folder, config)
    entry = {"content": "word", "special": False}
    write(folder, tokenizer_config__json={"added_tokens_decoder": {"99": entry}})
    with pytest.raises(ValueError, match="an added token must be special.*Received: 'word'"):
        read_tokenizers(folder, config)
    for settings in ({"added_tokens_decoder": {"99": 3}}, {"additional_special_tokens": [3]}):
        write(folder, tokenizer_config__json=settings)
        with pytest.raises(ValueError, match="added tokens must have a content and an id"):
            read_tokenizers(folder, config)
    write(folder, sentencepiece__bpe__model=models["t5"], tokenizer_config__json={})
    with pytest.raises(ValueError, match="must begin with <unk>, <s> and </s>. Received:"):
        read_tokenizers(folder, config)
    with pytest.raises(ValueError, match="`tokenizer_class` must be 'MBart50Tokenizer'"):
        read_tokenizers(folder, fairseq_config("mbart", ids))
    with pytest.raises(ValueError, match="`model_type` must be one of .* Received: 'bart'"):
        read_tokenizers(folder, {"model_type": "bart"})
    with pytest.raises(ValueError, match="`model_type` must be one of .* Received: 'None'"):
        read_tokenizers(folder, {})


def test_files_are_checked(models, tmp_path):
    folder, config = tmp_path / "t5", {"model_type": "t5", "vocab_size": 100}
    with pytest.raises(FileNotFoundError, match="must hold spiece.model or tokenizer.json. Rec"):
        read_tokenizers(write(folder), config)
    with pytest.raises(ValueError, match="spiece.model: .* must be a serialized SentencePiece"):
        read_tokenizers(write(folder, spiece__model=b"\x0a\xff"), config)
    write(folder, spiece__model=models["t5"])
    with pytest.raises(ValueError, match="`vocab_size` must be an integer of at least 0"):
        read_tokenizers(folder, config | {"vocab_size": "100"})
    with pytest.raises(ValueError, match="an id of a piece must be in .*vocab_size=10"):
        read_tokenizers(folder, config | {"vocab_size": 10})
    with pytest.raises(ValueError, match="`eos_token_id` must be the id .*, 1. Received: 3"):
        read_tokenizers(folder, config | {"eos_token_id": 3})
    with pytest.raises(ValueError, match="must have the piece '<pad>'"):
        read_tokenizers(write(folder, spiece__model=models["unigram"]), config)
    with pytest.raises(ValueError, match="tokenizer_config.json: .* must be JSON"):
        read_tokenizers(write(folder, tokenizer_config__json=b"{"), config)
    with pytest.raises(ValueError, match="tokenizer_config.json: must hold an object"):
        read_tokenizers(write(folder, tokenizer_config__json=[]), config)
