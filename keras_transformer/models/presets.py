"""Models to and from folders."""

import os
from typing import Self

import keras

from keras_transformer.models.transfer import in_float32
from keras_transformer.presets.card import Card
from keras_transformer.presets.folder import CONFIG_FILE, check_preset, new_preset
from keras_transformer.presets.record import MODEL_FILE


class ModelPresets:
    """What all models have of presets."""

    @classmethod
    def from_preset(cls, folder: os.PathLike | str) -> Self:
        """Loads the model of a preset or of a finished run, in float32 and not compiled.

        Args:
            folder: What `save_to_preset` or `train` has made.

        Raises:
            FileNotFoundError: if the folder is no such one.
            ValueError: if a file is damaged, or holds a model of another class.
        """
        folder = check_preset(folder)
        model = keras.models.load_model(folder / MODEL_FILE, compile=False)
        if not isinstance(model, cls):
            raise ValueError(
                f"a preset for `{cls.__name__}.from_preset` must hold a {cls.__name__}. "
                f"Received: {type(model).__name__} in {folder}"
            )
        return in_float32(model)

    def save_to_preset(
        self,
        folder: os.PathLike | str,
        *,
        license: str | None = None,
        data: str | None = None,
        figures: dict[str, float | str] | None = None,
    ) -> None:
        """Writes the model with a model card to a new folder, which appears whole.

        Of a `Transformer`, `Translator.save_to_preset` writes the tokenizers and the search too.

        Args:
            folder: The folder, new or empty.
            license: Of the weights, for the card.
            data: What the model was trained on, for the card.
            figures: How good it is, for the card.

        Raises:
            FileExistsError: if something is there.
        """
        card = Card(name=type(self).__name__, license=license, data=data, figures=figures)
        use = f"model = kt.{type(self).__name__}.from_preset(FOLDER)"
        text = card.text(self.config, self.count_params(), use)
        with new_preset(folder, {CONFIG_FILE: self.config.to_json()}, text) as temporary:
            save_uncompiled(self, temporary / MODEL_FILE)


def save_uncompiled(model, path):
    """Writes a `.keras` file without the state of an optimizer, twice the size of the weights."""
    if model.compiled:
        copy = type(model).from_config(model.get_config())
        copy.set_weights(model.get_weights())
        model = copy
    model.save(path)
