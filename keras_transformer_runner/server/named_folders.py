"""What the command line says is to be served: folders, and what clients call their models."""

import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

_NAMED = re.compile(r"([\w.:-]+)=(.+)", re.DOTALL)


class NamedFolder(NamedTuple):
    """An exported folder and what it is called.

    Attributes:
        name: `SOURCE:TARGET` of a model that translates; any other name of another.
        folder: Its path.
        pair: The two languages; `None` of a name that is no such pair.
    """

    name: str
    folder: str
    pair: tuple[str, str] | None


def named_folders(
    arguments: Sequence[str], source: str | None, target: str | None
) -> list[NamedFolder]:
    """The folders of a command line, in order.

    Args:
        arguments: Each `SOURCE:TARGET=FOLDER`, `NAME=FOLDER` or `FOLDER`, whose name is that of
            the folder.
        source: The language that a single `FOLDER` without a name translates from.
        target: The language that it translates to.

    Raises:
        ValueError: if a pair is none, a name stands twice, or `source` and `target` do not go with
            the folders.

    Example:
        >>> from keras_transformer_runner.server.named_folders import named_folders
        >>> named_folders(["en:de=app/en-de"], None, None)
        [NamedFolder(name='en:de', folder='app/en-de', pair=('en', 'de'))]
    """
    named = [_named(argument) for argument in arguments]
    if source is not None or target is not None:
        if len(named) != 1 or None in (source, target) or _NAMED.fullmatch(arguments[0]):
            raise ValueError(
                "--source and --target must go together, with one FOLDER that has no name. "
                f"Received: --source {source}, --target {target}, {' '.join(arguments)}"
            )
        named = [NamedFolder(f"{source}:{target}", named[0].folder, (source, target))]
    names = [each.name for each in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"each name must stand once. Received: {twice} twice")
    return named


def _named(argument):
    found = _NAMED.fullmatch(argument)
    if not found:
        return NamedFolder(pathlib.Path(argument).resolve().name, argument, None)
    name, folder = found.groups()
    pair = tuple(name.split(":")) if ":" in name else None
    if pair and (len(pair) != 2 or not all(pair)):
        raise ValueError(
            f"a pair of languages must be SOURCE:TARGET, such as en:de. Received: {name}"
        )
    return NamedFolder(name, folder, pair)
