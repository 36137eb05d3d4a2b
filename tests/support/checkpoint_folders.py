"""Folders of pretrained models as people have them: a fixture, with tokenizers of toy sentences."""

import json
import pathlib
import shutil

from sentencepiece import SentencePieceProcessor
from tokenizer_folders import ENGLISH, GERMAN, trained, write

FIXTURES = pathlib.Path(__file__).parents[1] / "interop" / "fixtures"
GERMAN_TEXTS = ["der Hund sieht die Katze", "ein Hund", "eine Katze im Haus"]


def _pieces(model, skip=3):
    processor = SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(token) for token in range(skip, processor.get_piece_size())]


def marian_folder(path, name="marian"):
    """OPUS-MT: `source.spm`, `target.spm` and their joint `vocab.json`, EOS first, pad last."""
    shutil.copytree(FIXTURES / name, path)
    config = json.loads((path / "config.json").read_text())
    models = [trained(texts, vocab_size=28) for texts in (GERMAN, ENGLISH)]
    pieces = dict.fromkeys(piece for model in models for piece in _pieces(model))
    pad = config["pad_token_id"]
    ids = {piece: token for token, piece in enumerate(["</s>", "<unk>", *pieces][:pad])}
    source, target = models
    return write(path, source__spm=source, target__spm=target, vocab__json=ids | {"<pad>": pad})


def nllb_folder(path):
    """NLLB: one model in fairseq's order, languages as tokens."""
    shutil.copytree(FIXTURES / "m2m_100", path)
    model = trained(ENGLISH + GERMAN, vocab_size=45, model_type="bpe")
    languages = {"49": {"content": "deu_Latn"}, "50": {"content": "eng_Latn"}}
    settings = {"added_tokens_decoder": languages}
    return write(path, **{"sentencepiece__bpe__model": model, "tokenizer_config__json": settings})


def mbart_folder(path):
    """mBART-50: likewise."""
    shutil.copytree(FIXTURES / "mbart", path)
    model = trained(ENGLISH + GERMAN, vocab_size=45)
    languages = {"49": {"content": "de_DE"}, "50": {"content": "en_XX"}}
    settings = {"added_tokens_decoder": languages, "tokenizer_class": "MBart50Tokenizer"}
    return write(path, **{"sentencepiece__bpe__model": model, "tokenizer_config__json": settings})


def t5_folder(path, name="t5"):
    """T5: a SentencePiece model with its own ids, and more rows than pieces."""
    shutil.copytree(FIXTURES / name, path)
    ids = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    return write(path, spiece__model=trained(ENGLISH + GERMAN, vocab_size=45, **ids))


def byt5_folder(path):
    """ByT5: bytes, without a file of a tokenizer."""
    return shutil.copytree(FIXTURES / "byt5", path)
