"""The graphs that a device runs, with their names: what an app relies on."""

import tensorflow as tf

from keras_transformer.decoding import decode
from keras_transformer.export.graphs import variables

DEVICE_SIGNATURE = "translate"


class DeviceModule(tf.Module):
    """A model as one graph for a device, ids in and ids out, one sentence at a time.

    `translate`: `source_ids` (1, S) int32, pieces and EOS, no pads -> `target_ids` (1, T) int32,
    pieces and EOS, then pads.
    """

    def __init__(self, model, strategy):
        super().__init__()
        self.model_variables = variables(model)

        def translate(source_ids):
            return {"target_ids": decode(model, source_ids, strategy).ids}

        ids = tf.TensorSpec((1, None), tf.int32, name="source_ids")
        self.translate = tf.function(translate, input_signature=[ids])

    @property
    def signatures(self):
        """Concrete functions by signature name."""
        return {DEVICE_SIGNATURE: self.translate.get_concrete_function()}
