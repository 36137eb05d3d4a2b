"""Translators to and from folders: a model with its tokenizers and its search."""

import dataclasses
import os
import tomllib
from collections.abc import Sequence
from typing import Any, Self

import tomli_w

from keras_transformer.decoding import BeamSearch, Greedy, Sampling
from keras_transformer.models import Transformer
from keras_transformer.models.presets import save_uncompiled
from keras_transformer.presets.card import Card
from keras_transformer.presets.folder import (
    CONFIG_FILE,
    EXPERIMENT_FILE,
    SAMPLES_FILE,
    SOURCE_TOKENIZER,
    TARGET_TOKENIZER,
    check_preset,
    new_preset,
)
from keras_transformer.presets.record import MODEL_FILE
from keras_transformer_runner.lines import one_line
from keras_transformer_runner.tokenizers import find_tokenizer, load_tokenizer

_SEARCHES = {"greedy": Greedy, "beam": BeamSearch, "sampling": Sampling}
# What else a search returns: nothing of which text it finds.
_OF_ANSWERS = ("n_best", "scores", "token_log_probs")
_USE = 'kt.Translator.from_preset(FOLDER).translate(["..."])'


class TranslatorPresets:
    """What a `Translator` has of presets."""

    @classmethod
    def from_preset(cls, folder: os.PathLike | str, **options: Any) -> Self:
        """The translator of a preset or of a finished run.

        Args:
            folder: What `save_to_preset` or `train` has made.
            **options: Arguments of `Translator` that replace the folder's, such as `strategy`.

        Raises:
            FileNotFoundError: if the folder is no such one, or has no tokenizer.
            ValueError: if a file is damaged.
        """
        folder = check_preset(folder)
        names = (SOURCE_TOKENIZER, TARGET_TOKENIZER)
        source, target = (find_tokenizer(folder, name) for name in names)
        if source is None:
            raise FileNotFoundError(
                "a preset for a translator must hold its tokenizer, as "
                f"`Translator.save_to_preset` writes it. Received: {folder}"
            )
        saved = tomllib.loads((folder / EXPERIMENT_FILE).read_text(encoding="utf-8"))
        data = saved.get("data", {})
        longest = data.get("max_length", 0)
        found = {
            "strategy": _search(saved.get("decoding", {})),
            "target_tokenizer": None if target is None else load_tokenizer(target),
            "max_source_length": longest if "imported" in data else max(1024, longest),
        }
        return cls(Transformer.from_preset(folder), load_tokenizer(source), **found | options)

    def save_to_preset(
        self,
        folder: os.PathLike | str,
        *,
        license: str | None = None,
        data: str | None = None,
        figures: dict[str, float | str] | None = None,
        samples: Sequence[str] = (),
        notes: str | None = None,
    ) -> None:
        """Writes model, tokenizers, search and a model card to a new folder, which appears whole.

        All commands take the folder like that of a run: `translate`, `evaluate`, `export`, and
        `train` as `training.start_from`.

        Args:
            folder: The folder, new or empty.
            license: Of the weights, for the card.
            data: What the model was trained on, for the card.
            figures: How good it is, for the card.
            samples: Source sentences, to compare an exported model on.
            notes: More for the card, in Markdown.

        Raises:
            FileExistsError: if something is there.
            TypeError: if the model is no `Transformer`.
        """
        if not isinstance(self.model, Transformer):
            raise TypeError(
                "a translator for a preset must have a `Transformer`. "
                f"Received: {type(self.model).__name__}"
            )
        experiment = {
            "data": {"imported": data or "not stated", "max_length": self.max_source_length},
            "training": {"max_epochs": 1},
            "decoding": _described(self.strategy),
        }
        about = dict(license=license, data=data, figures=figures, notes=notes)
        card = Card(name="Translator", search=self.strategy, translates=True, **about)
        write_translator(self, folder, tomli_w.dumps(experiment), samples, card)


def write_translator(translator, folder, experiment, samples, card):
    """Writes the preset of a translator.

    Args:
        translator: The `Translator`.
        folder: The folder, new or empty.
        experiment: The content of `experiment.toml`.
        samples: Source sentences.
        card: A `Card`.
    """
    model = translator.model
    texts = {
        CONFIG_FILE: model.config.to_json(),
        EXPERIMENT_FILE: experiment,
        SAMPLES_FILE: "".join(f"{one_line(text)}\n" for text in samples),
    }
    tokenizers = {SOURCE_TOKENIZER: translator.tokenizer}
    if translator.target_tokenizer is not translator.tokenizer:
        tokenizers[TARGET_TOKENIZER] = translator.target_tokenizer
    text = card.text(model.config, model.count_params(), _USE)
    with new_preset(folder, texts, text) as temporary:
        for name, tokenizer in tokenizers.items():
            tokenizer.save(temporary / f"{name}{tokenizer.file_suffix}")
        save_uncompiled(model, temporary / MODEL_FILE)


def _described(search):
    """`[decoding]` of a search: its name, and the options that are not left at their defaults."""
    name = next((name for name, kind in _SEARCHES.items() if type(search) is kind), None)
    if name is None:
        raise TypeError(
            f"the search of a preset must be one of {[*_SEARCHES]}. Received: "
            f"{type(search).__name__}"
        )
    options = {
        field.name: value
        for field in dataclasses.fields(search)
        if (value := getattr(search, field.name)) != field.default and field.name not in _OF_ANSWERS
    }
    if name == "beam":
        options["beam_size"] = search.beam_size
    return {"strategy": name, **options}


def _search(section):
    """The search of a `[decoding]`."""
    name = section.get("strategy") or ("beam" if section.get("beam_size", 1) > 1 else "greedy")
    known = {field.name for field in dataclasses.fields(_SEARCHES[name])}
    options = {
        option: tuple(value) if isinstance(value, list) else value
        for option, value in section.items()
        if option in known
    }
    return _SEARCHES[name](**options)
