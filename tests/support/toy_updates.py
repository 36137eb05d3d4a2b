"""A toy model, its `[training]`, and batches of a given number of tokens."""

import keras
import numpy as np
import tensorflow as tf
from toy_model import toy_config

from keras_transformer import Transformer
from keras_transformer.experiment.sections import TrainingSection

CONFIG = toy_config(dropout=0.0, decoder_layers=1)
PAD = CONFIG.pad_id


def section(**options):
    return TrainingSection(max_epochs=1, jit_compile=False, warmup_steps=3, **options)


def make_batches(tokens, seed=0):
    """Batches of two rows whose targets hold `tokens` real tokens in all."""
    rng = np.random.default_rng(seed)
    for count in tokens:
        ids = [i for i in range(CONFIG.vocab_size) if i not in (PAD, CONFIG.bos_id)]
        labels = rng.choice(ids, (2, 5)).astype("int32")
        labels.reshape(-1)[rng.permutation(10)[count:]] = PAD
        target = np.pad(labels, ((0, 0), (1, 0)), constant_values=CONFIG.bos_id)[:, :-1]
        source = rng.choice(ids, (2, 5)).astype("int32")
        yield {"source_ids": source, "target_ids": target}, labels


def as_dataset(batches):
    ids = tf.TensorSpec((None, 5), tf.int32)
    signature = {"source_ids": ids, "target_ids": ids}, ids
    batches = list(batches)
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)


def new_model(**options):
    keras.utils.set_random_seed(5)
    return Transformer(CONFIG, **options)
