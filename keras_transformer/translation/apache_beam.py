"""Whole files on Apache Beam, which runs pipelines on clusters: the same file, by many workers."""

import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Callable

from keras_transformer.arguments import check_size
from keras_transformer.outputs import check_no_part, new_output
from keras_transformer.translation.files import FileFormat, as_lines
from keras_transformer_runner.atomic import scratch_folder, write_file


def translate_file_with_beam(
    make_translator: Callable,
    source: os.PathLike | str,
    output: os.PathLike | str,
    *,
    form: FileFormat | None = None,
    window: int = 4096,
    options=None,
    lock: bool = True,
) -> int:
    """Translates a file by a pipeline of Apache Beam.

    The output is the same as that of `translate_file`. One worker reads the file, line by line;
    all translate. Their parts lie beside `output` until they are joined in order. An interrupted
    job starts again from the beginning; a runner repeats the parts that fail.

    Args:
        make_translator: Function without arguments that makes the `Translator` in each worker.
            It must be possible to pickle it.
        source: The file to read, on a path that all workers see; not standard input.
        output: The file to make, likewise.
        form: A `FileFormat`; a sentence a line when `None`.
        window: Lines that a worker translates at a time.
        options: `apache_beam.options.pipeline_options.PipelineOptions`, with the runner; `None`
            for Beam's own choice.
        lock: Whether to hold `output`; `False` within `new_output`.

    Returns:
        The number of lines.

    Raises:
        ImportError: if Apache Beam is missing, with the command that installs it.
        FileExistsError: if `output` exists, or a part of it that `translate_file` has made.
        TargetInUseError: if another process is writing `output`.
        ValueError: if `source` is standard input or empty. Beam raises the errors of a worker.

    Example:
        >>> translate_file_with_beam(  # doctest: +SKIP
        ...     make_translator, "texts.txt", "translations.txt"
        ... )
    """
    try:
        import apache_beam as beam
    except ImportError as error:
        raise ImportError(
            "translating on a Beam runner needs Apache Beam: pip install apache-beam"
        ) from error
    form = form or FileFormat()
    check_size(window=window)
    if str(source) == "-":
        raise ValueError("every worker must be able to read `source`. Received: standard input")
    with new_output(output, lock=lock) as path, scratch_folder(path) as folder:
        check_no_part(path)
        with beam.Pipeline(options=options) as pipeline:
            _ = (
                pipeline
                | "File" >> beam.Create([str(source)])
                | "Read" >> beam.FlatMap(functools.partial(_windows, form=form, size=window))
                | "Spread" >> beam.Reshuffle()
                | "Translate" >> beam.Map(_TranslateWindow(make_translator, form, str(folder)))
            )
        return _join(folder, path, source)


def _windows(path, form, size):
    """`(index, [(number, text, record), ...])`."""
    items = form.read(path)
    for index in itertools.count():
        chosen = list(itertools.islice(items, size))
        if not chosen:
            return
        yield index, chosen


@dataclasses.dataclass
class _TranslateWindow:
    """Writes the translations of a window as a part; a worker makes its translator once."""

    make_translator: Callable
    form: FileFormat
    folder: str

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "_translator"}

    @functools.cached_property
    def _translator(self):
        return self.make_translator()

    def __call__(self, window):
        index, items = window
        path = pathlib.Path(self.folder) / f"{index:012d}"
        content = as_lines(self.form.translated(self._translator, items))
        # A runner may give the same window to two workers, which write the same.
        write_file(path, lambda temporary: temporary.write_bytes(content), lock=False)


def _join(folder, output, source):
    """Joins the parts in order; returns the number of lines."""
    parts = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    if not parts:
        raise ValueError(f"a file must hold at least one line. Received: {source} is empty")
    if os.path.lexists(output):
        raise FileExistsError(
            f"translations need a new file. Received: {output}, which was made while they were"
        )
    lines = 0

    def join(path):
        nonlocal lines
        with path.open("wb") as file:
            for part in parts:
                content = part.read_bytes()
                lines += content.count(b"\n")
                file.write(content)

    write_file(output, join, lock=False)
    return lines
