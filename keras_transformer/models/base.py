"""What all models share: a config, a dtype policy, and settings of layers that stay."""

from typing import Any

import keras

from keras_transformer.config import TransformerConfig
from keras_transformer.layers.base import (
    NO_QUANTIZATION,
    QuantizationError,
    set_sublayers,
    settings_of_sublayers,
)
from keras_transformer.models.checked_data import CheckedData
from keras_transformer.models.inputs import CheckedInputs
from keras_transformer.models.loss_over_tokens import LossOverTokens
from keras_transformer.models.multi_worker import MultiWorkerFit
from keras_transformer.models.presets import ModelPresets


class TransformerModel(
    ModelPresets, CheckedInputs, CheckedData, LossOverTokens, MultiWorkerFit, keras.Model
):
    """A functional model that is made from a `TransformerConfig`.

    Ids must lie in [0, V); one that does not makes its row NaN, in every mode. In files and
    configs a layer, and a layer inside one, keeps `trainable` and its dtype policy.
    """

    def __init__(self, config, inputs, outputs, policy, **kwargs):
        if config.packed and not isinstance(inputs, dict):
            raise ValueError(
                f"`packed` is for a Transformer. Received: {type(self).__name__} with packed=True"
            )
        self._policy = keras.dtype_policies.get(policy or keras.config.dtype_policy())
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.config = config

    @property
    def id_sizes(self) -> dict[str, int]:
        """The vocabulary's size of an input, by its name."""
        source, target = self.config.vocab_size, self.config.target_size
        return {"source_ids": source, "target_ids": target, "token_ids": target}

    @property
    def dtype_policy(self) -> keras.DTypePolicy:
        """The dtype policy of the layers, by which `compile` scales the loss."""
        return self._policy

    def quantize(self, mode: Any = None, **kwargs: Any) -> None:
        """Not supported: a model is quantized when it is exported.

        Raises:
            QuantizationError: always; a ValueError.
        """
        raise QuantizationError(f"{NO_QUANTIZATION}. Received: mode={mode!r}, model={self.name!r}")

    def get_config(self) -> dict[str, Any]:
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "trainable": self.trainable,
            "sublayers": settings_of_sublayers(self),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict | None = None
    ) -> "TransformerModel":
        config = dict(config)
        settings = config.pop("sublayers", None)
        config["dtype"] = keras.dtype_policies.get(config.get("dtype"))  # one for all layers
        model = cls(**config)
        if settings is not None:  # files of earlier versions have none
            set_sublayers(model, settings)
        return model


def as_config(config):
    """A `TransformerConfig`, or a dict of its fields, as a `TransformerConfig`."""
    return TransformerConfig.from_dict(config) if isinstance(config, dict) else config
