"""Folders with tokenizers as Hugging Face writes them, from toy sentences."""

import io
import json

import tensorflow as tf
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

ENGLISH = ["the dog sees the cat", "a dog and a cat see the red house", "houses and dogs"]
GERMAN = ["der Hund sieht die Katze", "ein Hund und eine Katze im roten Haus", "Häuser"]
ODD = ["", "  ", "</s> <pad> a >> <<", "中文 da  Haus", "a\u2581s\u3000de e\u0301"]
TEXTS = [*ENGLISH, *GERMAN, *ODD, ">>fra<< __de__ deu_Latn <extra_id_0>"]


def trained(sentences, **options):
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(sentences * 5),
        model_writer=model,
        minloglevel=2,
        **{"vocab_size": 60, "hard_vocab_limit": False, **options},
    )
    return model.getvalue()


def toy_models():
    """Small SentencePiece models by name."""
    both = ENGLISH + GERMAN
    t5_ids = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    return {
        "german": trained(GERMAN),
        "english": trained(ENGLISH),
        "unigram": trained(both),
        "bpe": trained(both, model_type="bpe", vocab_size=90),
        "t5": trained(both, **t5_ids),
        "bytes": trained(both, byte_fallback=True, vocab_size=330, **t5_ids),
    }


def write(folder, **files):
    """Files of a folder: bytes as they are, other things as JSON; dots in names are `__`."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / name.replace("__", ".")).write_bytes(content)
    return folder


def check_ids(tokenizer, expected, texts=TEXTS):
    """Compares with `expected` of a text, in Python, in the graph, and read from a file."""
    prefix = list(tokenizer.prefix_ids)
    rows = [expected(text) for text in texts]
    rows = [prefix + row if row else row for row in rows]
    assert [tokenizer.encode(text) for text in texts] == rows
    assert tokenizer.tf_encode(tf.constant(texts)).to_list() == rows


def by_table(model, ids):
    """What SentencePiece hands out as text, looked up in a table."""
    processor = SentencePieceProcessor(model_proto=model)
    return lambda text: [
        ids.get(piece, ids["<unk>"]) for piece in processor.encode(text, out_type=str)
    ]


NLLB_LANGUAGES = ["ace_Arab", "deu_Latn", "eng_Latn", "fra_Latn"]
MBART_LANGUAGES = ["ar_AR", "de_DE", "en_XX"]


def fairseq_ids(model, languages):
    """fairseq's order, written out: <s> <pad> </s> <unk>, the pieces, the languages, <mask>."""
    processor = SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(token) for token in range(3, processor.get_piece_size())]
    every = ["<s>", "<pad>", "</s>", "<unk>", *pieces, *languages, "<mask>"]
    return {piece: token for token, piece in enumerate(every)}


def fairseq_config(kind, ids, **more):
    special = dict(pad_token_id=1, eos_token_id=2, decoder_start_token_id=2)
    return {"model_type": kind, "vocab_size": len(ids), **special, **more}


FAIRSEQ = {
    "nllb": ("bpe", "m2m_100", NLLB_LANGUAGES, "deu_Latn", "eng_Latn", {}),
    "mbart50": (
        *("unigram", "mbart", MBART_LANGUAGES, "de_DE", "en_XX"),
        {"tokenizer_class": "MBart50Tokenizer"},
    ),
}
