"""Whole files: translated in full batches, in their order, within bounded memory, and resumed."""

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator

from keras_transformer.arguments import check_choice, check_flag, check_size
from keras_transformer.outputs import Part, new_output
from keras_transformer_runner.integrity import checksum
from keras_transformer_runner.lines import json_line, one_line, read_lines
from keras_transformer_runner.sentences import check_language, translate_texts

FORMATS = ("lines", "jsonl")
TOO_LONG = ("error", "skip")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileFormat:
    """What a line of a file is, and what the line of its translation is.

    Attributes:
        format: `"lines"`: a sentence a line, a translation a line. `"jsonl"`: a JSON object a
            line, which gets the key `translation`, or `translations` if `n_best` is given.
        source_key: The key of the text in an object.
        n_best: Translations a text, each with its score and whether the limit has cut it;
            JSON lines only.
        whole_texts: Whether each object has a text of several sentences, which
            `Translator.translate_text` translates; JSON lines only, without `n_best`. None is too
            long.
        language: That of whole texts, see `translate_text`.
        too_long: `"error"` stops at a text that is longer than the translator takes and names its
            line; `"skip"` gives it an empty translation.

    Example:
        >>> from keras_transformer.translation.files import FileFormat
        >>> with open("texts.jsonl", "w") as file:
        ...     _ = file.write('{"source": "A man."}')
        >>> list(FileFormat(format="jsonl").read("texts.jsonl"))
        [(1, 'A man.', {'source': 'A man.'})]
    """

    format: str = "lines"
    source_key: str = "source"
    n_best: int | None = None
    too_long: str = "error"
    whole_texts: bool = False
    language: str = ""

    def __post_init__(self):
        check_choice(FORMATS, format=self.format)
        check_choice(TOO_LONG, too_long=self.too_long)
        check_size(optional=True, n_best=self.n_best)
        if self.n_best is not None and self.format != "jsonl":
            raise ValueError(
                "`n_best` needs a place for several translations: format 'jsonl', which input and "
                "output then have, with the text at 'source'. "
                f"Received: n_best={self.n_best}, format={self.format!r}"
            )
        if self.format == "jsonl" and self.source_key == self._made_key:
            raise ValueError(
                "`source_key` must be another key than that which a translation gets. Received: "
                f"source_key={self.source_key!r}"
            )
        check_flag(whole_texts=self.whole_texts)
        if self.whole_texts:
            self._check_whole_texts()
        elif self.language:
            raise ValueError(
                f"`language` goes with `whole_texts`. Received: language={self.language!r}"
            )

    def _check_whole_texts(self):
        check_language(self.language)
        others = (self.format, self.n_best, self.too_long)
        if others != ("jsonl", None, "error"):
            raise ValueError(
                "`whole_texts` needs the format 'jsonl', and goes without `n_best` and `too_long`. "
                f"Received: format={self.format!r}, n_best={self.n_best}, "
                f"too_long={self.too_long!r}"
            )

    def read(self, path: os.PathLike | str, seen=None) -> Iterator[tuple]:
        """Yields `(number, text, record)` of each line, from 1; the record is of JSON lines.

        Args:
            path: The file; `"-"` is standard input.
            seen: A hash of `hashlib`, which is updated with each line that is yielded.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if a line is no UTF-8, or no object with a string at `source_key`, or has
                the key already that its translation gets.
        """
        plain = self.format == "lines"
        for number, line in enumerate(read_lines(path, plain=plain), start=1):
            if seen is not None:
                seen.update(f"{line}\n".encode())
            if plain:
                yield number, line, None
            else:
                yield number, *self._parsed(line, f"{path}, line {number}")

    def _parsed(self, line, place):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or not isinstance(record.get(self.source_key), str):
            raise ValueError(
                f"every line must be a JSON object with a string at {self.source_key!r}. "
                f"Received: {place}: {line[:80]!r}"
            )
        if self._made_key in record:
            raise ValueError(
                f"no line may have the key {self._made_key!r}, which its translation gets. "
                f"Received: {place}: {line[:80]!r}"
            )
        return record[self.source_key], record

    def translated(self, translator, items: list[tuple]) -> list[str]:
        """The output lines of some `(number, text, record)`, in order.

        Args:
            translator: A `Translator`, or any object with its `source_ids`, `translate`,
                `translate_with_details` and, for whole texts, `fits`.
            items: A list.

        Raises:
            ValueError: if a text is too long and `too_long` is `"error"`, with its line.
        """
        short = items
        if not self.whole_texts:
            short = [item for item in items if self._fits(translator, *item[:2])]
        texts = [text for _, text, _ in short]
        if self.whole_texts:
            found = translate_texts(texts, translator.translate, translator.fits, self.language)
        elif self.n_best is None:
            found = translator.translate(texts)
        else:
            found = [
                [
                    {"text": each.text, "score": each.score, "truncated": each.truncated}
                    for each in hypotheses
                ]
                for hypotheses in translator.translate_with_details(texts, n_best=self.n_best)
            ]
        by_number = {number: made for (number, _, _), made in zip(short, found, strict=True)}
        nothing = "" if self.n_best is None else []
        return [self._line(record, by_number.get(number, nothing)) for number, _, record in items]

    def _fits(self, translator, number, text):
        try:
            translator.source_ids(text)
        except ValueError as error:
            if self.too_long == "error":
                raise ValueError(f"line {number}: {error}") from error
            return False
        return True

    def _line(self, record, made):
        if record is None:
            return made
        return json_line({**record, self._made_key: made})

    @property
    def _made_key(self):
        return "translation" if self.n_best is None else "translations"


def translate_file(
    translator,
    source: os.PathLike | str,
    output: os.PathLike | str,
    *,
    form: FileFormat | None = None,
    fingerprint: str = "",
    window: int = 4096,
    progress: Callable[[int], object] = lambda done: None,
    lock: bool = True,
) -> int:
    """Translates a file into a new one, and loses nothing when it is interrupted.

    Lines are read `window` at a time, sorted by length into full batches, and written in their
    order to a file named `output` and `.part`, which becomes `output` at the end. The same call
    continues where an earlier one stopped. Memory does not grow with the file.

    Args:
        translator: A `Translator`.
        source: The file to read, plain or gzip; `"-"` is standard input.
        output: The file to make.
        form: A `FileFormat`; a sentence a line when `None`.
        fingerprint: A name for the model and the search: a part that others have made is refused,
            as is one of another `form` or `source`.
        window: Lines at a time.
        progress: Called with the number of lines done, after each window.
        lock: Whether to hold `output`; `False` within `new_output`.

    Returns:
        The number of lines.

    Raises:
        FileExistsError: if `output` exists, or a part of it that belongs to another job.
        FileNotFoundError: if there is no `source`.
        TargetInUseError: if another process is writing `output`.
        ValueError: if a line is faulty, or there is none, or `source` changes meanwhile, or the
            part of an interrupted job is damaged.

    Example:
        >>> from types import SimpleNamespace
        >>> from keras_transformer.translation.files import translate_file
        >>> shouting = SimpleNamespace(
        ...     source_ids=len, translate=lambda texts: [text.upper() for text in texts]
        ... )  # in the place of a `Translator`
        >>> with open("texts.txt", "w") as file:
        ...     _ = file.write("a man\\na dog\\n")
        >>> translate_file(shouting, "texts.txt", "translations.txt")
        2
        >>> open("translations.txt").read().split("\\n")
        ['A MAN', 'A DOG', '']
    """
    form, seen = form or FileFormat(), hashlib.sha256()
    check_size(window=window)
    with new_output(output, lock=lock) as path:
        content, items = _content(source), form.read(source, seen)
        if (first := next(items, None)) is None:
            raise ValueError(f"a file must hold at least one line. Received: {source} is empty")
        items = itertools.chain([first], items)
        job = {"fingerprint": fingerprint, "form": dataclasses.asdict(form), "source": content}
        with Part(path, job) as part:
            if part.is_whole:
                return part.lines
            _skip(items, part, seen, source)
            while chosen := list(itertools.islice(items, window)):
                made = as_lines(form.translated(translator, chosen))
                part.write(made, len(chosen), seen.hexdigest())
                progress(part.lines)
            if _content(source) != content:
                raise ValueError(
                    f"a file must not change while it is translated. Received: {source}; delete "
                    f"{path.name}.part and its note to start again"
                )
            part.become_output()
            return part.lines


def _content(source):
    """Size and checksum of a file; `None` for a stream, which can be read only once."""
    if str(source) == "-" or not os.path.isfile(source):
        return None
    return [os.path.getsize(source), checksum(source)]


def _skip(items, part, seen, source):
    """Skips the lines that an earlier job has translated, and checks that they are the same."""
    count = sum(1 for _ in itertools.islice(items, part.lines))
    if part.lines and (count, seen.hexdigest()) != (part.lines, part.source_sha256):
        raise ValueError(
            "an interrupted translation goes on only with the lines that it began with. "
            f"Received: {source}, of which the first {part.lines:,} lines are others or missing"
        )


def as_lines(texts):
    """Texts as bytes, each exactly one line."""
    return "".join(one_line(text) + "\n" for text in texts).encode()
