"""What `compare` compares: runs, exported artefacts, and files of translations that exist."""

import argparse
import json
import os
import pathlib
from typing import NamedTuple

from keras_transformer.artifacts import DESCRIPTION, newest_version
from keras_transformer.presets.folder import EXPERIMENT_FILE
from keras_transformer_runner.folder import METADATA_FILE, open_folder
from keras_transformer_runner.folder import MODEL_FILE as DEVICE_MODEL
from keras_transformer_runner.folders import received
from keras_transformer_runner.lines import check_file, read_lines
from keras_transformer_runner.tokenizers import VocabularyTokenizer

_WHAT = (
    "a run or a preset of a translator, a SavedModel or LiteRT folder of one, or a file of "
    "translations, line for line"
)


class System(NamedTuple):
    """One of what is compared.

    Attributes:
        name: What it is called: unlike any other.
        path: Where it is.
        kind: `"python"` (a run), `"savedmodel"`, `"litert"` or `"file"`.
    """

    name: str
    path: str
    kind: str

    def arguments(self, given):
        """The arguments of a command for this system alone.

        Args:
            given: The `argparse.Namespace` for all.
        """
        own = {"run_dir": self.path, "artifact": self.path, "backend": self.kind}
        return argparse.Namespace(**{**vars(given), **own})


def find_systems(paths):
    """The `System`s at paths; nothing is loaded.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if something is no translator, or is named twice.
    """
    places = [os.path.realpath(path) for path in paths]
    for place, path in zip(places, paths, strict=True):
        if places.count(place) > 1:
            raise ValueError(f"what is compared must be different. Received: {path} twice")
    names = [pathlib.Path(place).name.removesuffix(".gz") for place in places]
    names = [name.removesuffix(".txt") for name in names]
    if len({*names}) < len(names):
        names = [f"{number}-{name}" for number, name in enumerate(names, start=1)]
    kinds = map(_kind, paths)
    return [System(*each) for each in zip(names, paths, kinds, strict=True)]


def read_translations(system, count):
    """The lines of a file of translations.

    Args:
        system: The `System`.
        count: How many there must be.

    Raises:
        ValueError: if there are more or fewer.
    """
    lines = list(read_lines(system.path, plain=True))
    if len(lines) != count:
        raise ValueError(
            "a file of translations must have as many lines as references. "
            f"Received: {system.path} with {len(lines):,} lines, {count:,} references"
        )
    return lines


def plain_text_of(system):
    """What makes its references readable text, a function of `str`; `None` if nothing tells.

    Of a vocabulary of split text that is the joining.
    """
    if system.kind == "python":
        from keras_transformer.experiment.tokenizers import Tokenizers

        return Tokenizers.load(system.path).target.plain_text
    if system.kind == "litert":
        return open_folder(system.path).target_tokenizer.plain_text
    if system.kind == "savedmodel":
        joiner = _json(newest_version(system.path) / DESCRIPTION).get("joiner")
        if isinstance(joiner, str):
            return VocabularyTokenizer(["-"], joiner=joiner).plain_text  # of any words
    return None


def _kind(path):
    folder = pathlib.Path(path)
    if not folder.is_dir():
        check_file(path)
        return "file"
    if (folder / EXPERIMENT_FILE).is_file():
        return "python"
    if (folder / METADATA_FILE).is_file() and (folder / DEVICE_MODEL).is_file():
        signature = _json(folder / METADATA_FILE).get("signature")
        _check_translates(path, signature == "translate", signature)
        return "litert"
    version = newest_version(folder)
    if (version / "saved_model.pb").is_file():
        signatures = _json(version / DESCRIPTION).get("signatures")
        if not isinstance(signatures, dict):  # of an old export; a damaged file is told when loaded
            signatures = {"translate": None}
        _check_translates(path, "translate" in signatures, ", ".join(signatures))
        return "savedmodel"
    raise ValueError(f"`compare` takes {_WHAT}. Received: {received(path)}")


def _json(path):
    """What a file says; nothing if it cannot be read, which whoever loads the folder tells."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _check_translates(path, does, signatures):
    if not does:
        raise ValueError(
            f"`compare` takes {_WHAT}. Received: {path}, whose model has the signatures "
            f"{signatures} and does not translate"
        )
