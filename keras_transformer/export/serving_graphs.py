"""The graphs that a server runs, with their names: what a client of a SavedModel relies on."""

import tensorflow as tf

from keras_transformer.decoding import decode
from keras_transformer.export.graphs import inside, short, variables

TEXT_SIGNATURE = "serving_default"
IDS_SIGNATURE = "translate_ids"


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
        self.model_variables = variables(model)
        self.tokenizer = tokenizer.tf_resources
        self.target_tokenizer = target_tokenizer.tf_resources

        def translate_ids(source_ids):
            source_ids = inside(source_ids, model.config.vocab_size)
            source_ids = short(source_ids, model.config.max_positions)
            return {"target_ids": decode(model, source_ids, strategy).ids}

        def translate(text):
            pieces = tokenizer.tf_encode(text)
            ends = tf.fill(tf.stack([pieces.nrows(), 1]), tokenizer.eos_id)
            source_ids = tf.concat([pieces, ends], axis=1).to_tensor(tokenizer.pad_id)
            source_ids = short(source_ids, model.config.max_positions)
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
