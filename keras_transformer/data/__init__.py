"""Corpora to batches: readers, buckets, packing, shards, the tf.data pipeline. Needs no Keras."""

from keras_transformer.data.apache_beam import prepare_with_beam
from keras_transformer.data.batches import batches_per_epoch, evaluation_batches, training_batches
from keras_transformer.data.buckets import choose_buckets
from keras_transformer.data.corpus import Corpus, CorpusReport, ParallelCorpus
from keras_transformer.data.faults import Faults
from keras_transformer.data.joined import (
    JoinedCorpus,
    MixedCorpus,
    TaggedCorpus,
    join_tokenized,
    weights_of_temperature,
)
from keras_transformer.data.packing import pack_corpus
from keras_transformer.data.preparation import prepare
from keras_transformer.data.readers import JsonLinesCorpus, TfdsCorpus, open_corpus
from keras_transformer.data.scored import ScoredCorpus
from keras_transformer.data.shards import PreparedCorpus
from keras_transformer.data.tokenized import TokenizedCorpus, tokenize_corpus

__all__ = [
    "Corpus",
    "CorpusReport",
    "Faults",
    "JoinedCorpus",
    "JsonLinesCorpus",
    "MixedCorpus",
    "ParallelCorpus",
    "PreparedCorpus",
    "ScoredCorpus",
    "TaggedCorpus",
    "TfdsCorpus",
    "TokenizedCorpus",
    "batches_per_epoch",
    "choose_buckets",
    "evaluation_batches",
    "join_tokenized",
    "open_corpus",
    "pack_corpus",
    "prepare",
    "prepare_with_beam",
    "tokenize_corpus",
    "training_batches",
    "weights_of_temperature",
]
