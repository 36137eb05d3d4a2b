"""Weights to and from other projects, one module each; `from_pretrained` chooses among them."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras

    from keras_transformer.interop.pretrained import Pretrained

__all__ = ["from_pretrained"]


def from_pretrained(
    folder: os.PathLike | str,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
    dtype: "str | keras.DTypePolicy | None" = None,
) -> "Pretrained":
    """A pretrained translator from a local folder, as people have it.

    A folder with `config.json` is one of Hugging Face's (see
    `interop.hugging_face.from_hugging_face`); one with a `.npz`, or such a file, is Marian's own
    (see `interop.marian.from_marian`).

    Args:
        folder: The folder.
        source_language: The language of the source, where the model has a token for it.
        target_language: The language of the target, likewise.
        dtype: Keras dtype policy of the model; the global one when `None`.

    Returns:
        A `Pretrained`.

    Raises:
        FileNotFoundError: if there is no such folder, or it holds neither.
        ValueError: if it cannot be read, as its reader says.

    Example:
        >>> from keras_transformer.interop import from_pretrained
        >>> pretrained = from_pretrained("opus-mt-de-en")  # doctest: +SKIP
        >>> pretrained.save_run("runs/de-en")  # doctest: +SKIP
    """
    options = dict(source_language=source_language, target_language=target_language)
    if is_marian(folder):
        from keras_transformer.interop.marian import from_marian

        return from_marian(folder, dtype=dtype, **options)
    from keras_transformer.interop.hugging_face import from_hugging_face

    return from_hugging_face(folder, dtype=dtype, **options)


def is_marian(path: os.PathLike | str) -> bool:
    """Whether a folder or file is of Marian's own format, and not of Hugging Face's.

    Raises:
        FileNotFoundError: if it is neither.
    """
    path = Path(path)
    if path.suffix == ".npz" and path.is_file():
        return True
    if (path / "config.json").is_file():
        return False
    if path.is_dir() and any(path.glob("*.npz")):
        return True
    what = "which holds neither" if path.is_dir() else "which is no folder"
    raise FileNotFoundError(
        "a pretrained model must be a folder with config.json, or with the .npz of Marian. "
        f"Received: {path}, {what}"
    )
