"""The ids of one shard of a prepared corpus, as arrays."""

import numpy as np

from keras_transformer.data import TokenizedCorpus


def load_shard(corpus, shard):
    """One shard as a `TokenizedCorpus`; a ValueError if its file is not what the index says."""
    columns = []
    for side in corpus._read(shard):
        columns += [side.values.numpy(), side.row_lengths().numpy().astype(np.int32)]
    return TokenizedCorpus(*columns, {})
