"""What all models share: a config, a dtype policy, and a `fit` that refuses text."""

import keras

from keras_transformer.config import TransformerConfig
from keras_transformer.models.checked_data import CheckedData
from keras_transformer.models.loss_over_tokens import LossOverTokens
from keras_transformer.models.multi_worker import MultiWorkerFit


class TransformerModel(CheckedData, LossOverTokens, MultiWorkerFit, keras.Model):
    """A functional model that is made from a `TransformerConfig`.

    Ids must lie in [0, V); one that does not makes its row NaN, in every mode.
    """

    def __init__(self, config, inputs, outputs, policy, **kwargs):
        if config.packed and not isinstance(inputs, dict):
            raise ValueError(
                f"`packed` is for a Transformer. Received: {type(self).__name__} with packed=True"
            )
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.config = config
        self._policy = keras.dtype_policies.get(policy or keras.config.dtype_policy())

    @property
    def id_sizes(self):
        """The vocabulary's size of an input, by its name."""
        source, target = self.config.vocab_size, self.config.target_size
        return {"source_ids": source, "target_ids": target, "token_ids": target}

    @property
    def policy(self):
        """The dtype policy of the layers."""
        return self._policy

    def fit(self, x=None, y=None, *args, **kwargs):
        """`keras.Model.fit`; text instead of token ids is refused before anything compiles."""
        for item in keras.tree.flatten((getattr(x, "element_spec", x), y)):
            dtype = getattr(item, "dtype", "")
            if "string" in str(dtype) or getattr(dtype, "kind", "") in ("U", "S", "O"):
                raise ValueError(
                    "`fit` takes token ids, since XLA cannot compile string operations: tokenize "
                    "in tf.data, for example with `dataset.map`. Received: dtype=string"
                )
        return super().fit(x, y, *args, **kwargs)

    def get_config(self):
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.policy),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


def as_config(config):
    """A `TransformerConfig`, or a dict of its fields, as a `TransformerConfig`."""
    return TransformerConfig.from_dict(config) if isinstance(config, dict) else config
