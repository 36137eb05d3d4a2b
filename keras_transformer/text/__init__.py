"""Tokenizers, corpus readers and the tf.data pipeline. Imports nothing of ours but `config`."""

import importlib

_EXPORTS = {
    "Tokenizer": "tokenizer",
    "load_tokenizer": "tokenizer",
    "find_tokenizer": "tokenizer",
    "SentencePieceTokenizer": "sentence_piece",
    "BytesTokenizer": "table_tokenizers",
    "CharacterTokenizer": "table_tokenizers",
    "VocabularyTokenizer": "table_tokenizers",
    "Corpus": "corpus",
    "CorpusReport": "corpus",
    "ParallelCorpus": "corpus",
    "JsonLinesCorpus": "readers",
    "TfdsCorpus": "readers",
    "open_corpus": "readers",
    "Faults": "lines",
    "read_lines": "lines",
    "prepare": "sharding",
    "prepare_with_beam": "beam_prepare",
    "PreparedCorpus": "shards",
    "TokenizedCorpus": "tokenized",
    "tokenize_corpus": "tokenized",
    "choose_buckets": "buckets",
    "pack_corpus": "packing",
    "training_batches": "pipeline",
    "evaluation_batches": "pipeline",
    "batches_per_epoch": "pipeline",
}

__all__ = list(_EXPORTS)


def __getattr__(name):
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
