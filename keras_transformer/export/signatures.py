"""The graphs that leave Python, with their names: what a client of an artefact relies on."""

import keras
import tensorflow as tf

from keras_transformer.decoding import decode

TEXT_SIGNATURE = "serving_default"
IDS_SIGNATURE = "translate_ids"
DEVICE_SIGNATURE = "translate"


def check_backend():
    """Raises RuntimeError unless Keras runs on TensorFlow, whose graphs are what is exported."""
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            "exports are made on TensorFlow: `model.save(...)`, and `keras.models.load_model` in a "
            f"process without KERAS_BACKEND. Received: backend={keras.backend.backend()!r}"
        )


class ServingModule(tf.Module):
    """A translator, with its model and tokenizers, as exportable graphs.

    `serving_default`: `text` (B,) string -> `translation` (B,) string.
    `translate_ids`: `source_ids` (B, S) int32, pieces and EOS, then pads -> `target_ids` (B, T)
    int32, pieces and EOS, then pads. An id outside [0, vocab_size) is an error.
    """

    def __init__(self, translator):
        super().__init__()
        model, strategy = translator.model, translator.strategy
        tokenizer, target_tokenizer = translator.tokenizer, translator.target_tokenizer
        # Tracked so that they are saved: the weights, and the tokenizers' models.
        self.model_variables = _variables(model)
        self.tokenizer = tokenizer.tf_resources
        self.target_tokenizer = target_tokenizer.tf_resources

        def translate_ids(source_ids):
            source_ids = _inside(source_ids, model.config.vocab_size)
            source_ids = _short(source_ids, model.config.max_positions)
            return {"target_ids": decode(model, source_ids, strategy).ids}

        def translate(text):
            pieces = tokenizer.tf_encode(text)
            ends = tf.fill(tf.stack([pieces.nrows(), 1]), tokenizer.eos_id)
            source_ids = tf.concat([pieces, ends], axis=1).to_tensor(tokenizer.pad_id)
            source_ids = _short(source_ids, model.config.max_positions)
            target_ids = decode(model, source_ids, strategy).ids
            return {"translation": target_tokenizer.tf_decode(target_ids)}

        ids = tf.TensorSpec((None, None), tf.int32, name="source_ids")
        self.translate_ids = tf.function(translate_ids, input_signature=[ids])
        text = tf.TensorSpec((None,), tf.string, name="text")
        self.translate = tf.function(translate, input_signature=[text])

    @property
    def signatures(self):
        """Concrete functions by signature name."""
        return {
            TEXT_SIGNATURE: self.translate.get_concrete_function(),
            IDS_SIGNATURE: self.translate_ids.get_concrete_function(),
        }


class DeviceModule(tf.Module):
    """A model as one graph for a device, ids in and ids out, one sentence at a time.

    `translate`: `source_ids` (1, S) int32, pieces and EOS, no pads -> `target_ids` (1, T) int32,
    pieces and EOS, then pads.
    """

    def __init__(self, model, strategy):
        super().__init__()
        self.model_variables = _variables(model)

        def translate(source_ids):
            return {"target_ids": decode(model, source_ids, strategy).ids}

        ids = tf.TensorSpec((1, None), tf.int32, name="source_ids")
        self.translate = tf.function(translate, input_signature=[ids])

    @property
    def signatures(self):
        """Concrete functions by signature name."""
        return {DEVICE_SIGNATURE: self.translate.get_concrete_function()}


def _variables(model):
    # Not the trainable ones only: a user may have frozen layers.
    return [variable.value for variable in model.weights]


def _short(ids, max_positions):
    """`ids`, once they are known to fit the table of learned positions, if there is one."""
    if max_positions is None:
        return ids
    length = tf.shape(ids)[1]
    received = [f"a source must have at most {max_positions} tokens. Received:", length]
    with tf.control_dependencies([tf.debugging.Assert(length <= max_positions, received)]):
        return tf.identity(ids)


def _inside(ids, vocab_size):
    """`ids`, once they are known to be rows of the embedding: a GPU would read zeros there."""
    inside = tf.reduce_all((ids >= 0) & (ids < vocab_size))
    rule = f"ids must lie in [0, {vocab_size}). Received:"
    received = [rule, tf.reduce_min(ids), "to", tf.reduce_max(ids)]
    with tf.control_dependencies([tf.debugging.Assert(inside, received)]):
        return tf.identity(ids)
