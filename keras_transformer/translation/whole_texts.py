"""A file that is one text of many sentences."""

import os

from keras_transformer.outputs import check_no_part, new_output
from keras_transformer_runner.atomic import write_file
from keras_transformer_runner.lines import read_text
from keras_transformer_runner.sentences import translate_texts


def translate_text_file(
    translator,
    source: os.PathLike | str,
    output: os.PathLike | str,
    *,
    language: str = "",
    lock: bool = True,
) -> int:
    """Translates a file that is one text, and keeps its line ends and spaces.

    The text lies in memory. An interrupted job leaves nothing, and starts again.

    Args:
        translator: A `Translator`, or what has its `translate` and `fits`.
        source: The file to read, plain or gzip; `"-"` is standard input.
        output: The file to make.
        language: That of the text, see `Translator.translate_text`.
        lock: Whether to hold `output`; `False` within `new_output`.

    Returns:
        The number of characters that were read.

    Raises:
        FileExistsError: if `output` exists, or a part of it of another job.
        FileNotFoundError: if there is no `source`.
        TargetInUseError: if another process is writing `output`.
        ValueError: if the text is not UTF-8, or `language` is no language.

    Example:
        >>> from types import SimpleNamespace
        >>> from keras_transformer.translation.whole_texts import translate_text_file
        >>> shouting = SimpleNamespace(
        ...     fits=bool, translate=lambda texts: [text.upper() for text in texts]
        ... )  # in the place of a `Translator`
        >>> with open("letter.txt", "w") as file:
        ...     _ = file.write("A man.\\n\\nA dog. A cat.\\n")
        >>> translate_text_file(shouting, "letter.txt", "letter.en.txt")
        22
        >>> open("letter.en.txt").read()
        'A MAN.\\n\\nA DOG. A CAT.\\n'
    """
    with new_output(output, lock=lock) as path:
        check_no_part(path)
        text = read_text(source)
        (made,) = translate_texts([text], translator.translate, translator.fits, language)
        write_file(path, lambda temporary: temporary.write_bytes(made.encode()), lock=False)
    return len(text)
