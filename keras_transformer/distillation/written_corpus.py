"""The folder of what teachers write: each source once, then the pairs that a student learns from.

It holds `sources.jsonl`, `translations.jsonl`, `pairs-N.jsonl` of each corpus and the note
`distilled.json`, which says what made them and, at the end, how many there are.
"""

import array
import collections
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import sys
import time
from pathlib import Path

from keras_transformer.data import JsonLinesCorpus, PreparedCorpus
from keras_transformer.data.distilled import NOTE_FILE, pairs_file, read_note
from keras_transformer.distillation.options import DistillationOptions
from keras_transformer.distillation.teachers import Teachers
from keras_transformer.experiment.corpora import open_part
from keras_transformer.experiment.data_sections import DataSection
from keras_transformer_runner.atomic import locked, write_file, write_text
from keras_transformer_runner.integrity import check_file, checksum, sealed
from keras_transformer_runner.streams import log

SOURCES_FILE = "sources.jsonl"
TRANSLATIONS_FILE = "translations.jsonl"
_SAY_SECONDS = 10
_DIGEST = 16  # bytes that stand for a source


def write_corpus(
    teachers: Teachers,
    data: DataSection,
    folder: os.PathLike | str,
    *,
    options: DistillationOptions | None = None,
    workers: int = 1,
    beam_options=None,
    jit_compile: bool = False,
) -> Path:
    """Writes what teachers make of the training sources of an experiment.

    Each source is translated once, however often it comes. A source that is too long for the
    teachers, or whose translations are all empty or cut off by the search's limit, becomes no
    pair. Killed at any moment, the same call goes on and translates nothing again (with
    `beam_options`, the translation starts again). So does a call with another `top_k` or another
    `data.max_length`, until all is written.

    The sources are read three times and never in memory, but for some 150 bytes of each.

    Args:
        teachers: The `Teachers`.
        data: Whose corpora, tags included, are translated. A target may be empty.
        folder: The folder to make, or to go on with.
        options: `DistillationOptions`.
        workers: Processes that translate.
        beam_options: `PipelineOptions` of Apache Beam, to translate there; `None` for here.
        jit_compile: See `Translator`.

    Returns:
        `folder` as a `Path`.

    Raises:
        FileExistsError: if the folder holds something else, or what others have made, with what
            differs.
        FileNotFoundError: if a corpus is missing.
        TargetInUseError: if another process is writing there.
        ValueError: if a corpus is not usable, or has no source to translate, the teachers cannot
            write such probabilities, or what an earlier call has left is damaged.

    Example (`student` is an `Experiment`):
        >>> from keras_transformer.distillation import Teachers, write_corpus
        >>> teachers = Teachers.open(["run"])  # doctest: +SKIP
        >>> write_corpus(teachers, student.data, "corpus")  # doctest: +SKIP
    """
    folder, options = Path(folder), options or DistillationOptions()
    corpora = _open_corpora(data)
    check_job(folder, teachers, options)
    check_probabilities(data, teachers, options)
    with locked(folder):
        job = _job(teachers, options)
        job["corpus"] = _fingerprint(corpora)
        if options.top_k is not None:
            job["max_length"] = data.max_length
        begun = _begun(folder, job)
        if begun.get("parts"):
            log(f"{folder} holds what the teachers have written")
            return folder
        folder.mkdir(exist_ok=True)
        index = _write_sources(folder, corpora)
        make = functools.partial(teachers.translator, jit_compile=jit_compile)
        translator, translates = None, options.translates and not _is_translated(folder)
        if translates:
            translator = make()  # what is wrong with the teachers is told before the note is there
            first = begun.get("job", job)  # which a part of the translations belongs to
            _write_note(folder, first, len(index), ())
            if beam_options is not None:
                _translate_with_beam(folder, options, make, beam_options)
            else:
                with _several(translator, make, workers) as several:
                    _translate(folder, options, first, several, len(index))
        _write_note(folder, job, len(index), (), **_translated(folder, options, begun, translates))
        parts, more = _write_pairs(folder, corpora, index, options), {}
        if options.top_k is not None:
            more = _probabilities(folder, translator or make(), options, data.max_length)
        _write_note(folder, job, len(index), parts, **more)
    for part in parts:
        log(
            f"{part['corpus']}: {part['pairs']:,} pairs of {part['sources']:,} sources; without a "
            f"translation: {part['unusable']:,} that are cut off or empty, {part['too_long']:,} "
            "too long for the teachers"
        )
    return folder


def check_job(folder: os.PathLike | str, teachers: Teachers, options: DistillationOptions) -> None:
    """Looks, without Keras, at whether a folder may get what the teachers write.

    Raises:
        FileExistsError: if it holds something else, or what others have made.
        ValueError: if its note is damaged, or the search does not find as many translations.

    Example:
        >>> from keras_transformer.distillation import DistillationOptions, check_job
        >>> check_job("new", teachers, DistillationOptions())  # doctest: +SKIP
    """
    folder, search = Path(folder), teachers.decoding
    if options.n_best > search.beam_size and search.search_name != "sampling":
        raise ValueError(
            "`n_best` must be at most the hypotheses of the teachers' search, `beam_size`. "
            f"Received: n_best={options.n_best}, beam_size={search.beam_size}"
        )
    if (folder / NOTE_FILE).exists():
        job = json.loads(json.dumps(_job(teachers, options)))
        _check_same(folder, read_note(folder), job)
    elif folder.exists() and (not folder.is_dir() or any(_visible(folder) - {SOURCES_FILE})):
        raise FileExistsError(
            "teachers need a new or empty folder, or one that they have begun to write. "
            f"Received: {folder}"
        )


def _visible(folder):
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def _job(teachers, options):
    return {**teachers.description(), **dataclasses.asdict(options)}


def _check_same(folder, note, job):
    """Raises a `FileExistsError` that names what differs, if another job has begun the folder."""
    free = () if note["parts"] else ("top_k", "max_length")  # translations do not depend on them
    names = [name for name in job if name not in free]
    if differences := [name for name in names if note["job"].get(name) != job[name]]:
        raise FileExistsError(
            "what teachers write goes on only with the same teachers, search, options and corpus; "
            "choose another folder, or delete it. "
            f"Received: {folder}, which differs in {', '.join(differences)}"
        )


def _begun(folder, job):
    """What the note says, with `parts` where all is written; nothing where there is none."""
    if not (folder / NOTE_FILE).exists():
        return {}
    note = read_note(folder)
    _check_same(folder, note, json.loads(json.dumps(job)))
    return note


def _write_note(folder, job, sources, parts, **more):
    note = sealed({"job": job, "sources": sources, "parts": list(parts), **more})
    write_text(folder / NOTE_FILE, json.dumps(note, indent=2) + "\n")


def _open_corpora(data):
    """The training corpora of `[data]`, as a student will read them, and none is standard input."""
    corpora = [open_part(data, each) for each in data.corpora]
    for corpus in corpora:
        if isinstance(corpus, PreparedCorpus):
            raise ValueError(
                f"teachers need text, not what `prepare` made of it. Received: {corpus.name}"
            )
        if "-" in map(str, corpus.files):
            raise ValueError("teachers read a corpus several times. Received: standard input")
    return corpora


def _fingerprint(corpora):
    digest = hashlib.sha256()
    for number, corpus in enumerate(corpora):
        for pair in corpus:
            digest.update(json.dumps([number, *pair]).encode())
    return digest.hexdigest()


def _key(source):
    return hashlib.blake2b(source.encode(), digest_size=_DIGEST).digest()


def _write_sources(folder, corpora):
    """Writes each source once; returns its line, from 0, by its `_key`."""
    index = {}

    def write(path):
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            for corpus in corpora:
                for source, _ in corpus:
                    if source.strip() and (key := _key(source)) not in index:
                        index[key] = len(index)
                        file.write(json.dumps({"source": source}) + "\n")

    write_file(folder / SOURCES_FILE, write)
    if not index:
        raise ValueError(
            "a corpus must have a source to translate. Received: "
            f"{', '.join(corpus.name for corpus in corpora)}"
        )
    return index


def _is_translated(folder):
    output = folder / TRANSLATIONS_FILE
    return output.exists() and not output.with_name(f"{output.name}.part.json").exists()


def _translated(folder, options, begun, are_new):
    """What the note says of the translations, which an earlier call may have made."""
    if not options.translates:
        return {}
    path, known = folder / TRANSLATIONS_FILE, begun.get("translations")
    if known is not None and not are_new:
        check_file(path, known, NOTE_FILE)
    return {"translations": checksum(path)}


def _form(options):
    from keras_transformer.translation.files import FileFormat

    return FileFormat(format="jsonl", n_best=options.n_best, too_long="skip")


def _translate_with_beam(folder, options, make_translator, beam_options):
    from keras_transformer.translation.apache_beam import translate_file_with_beam

    source, output = folder / SOURCES_FILE, folder / TRANSLATIONS_FILE
    form = _form(options)
    translate_file_with_beam(make_translator, source, output, form=form, options=beam_options)


def _translate(folder, options, job, translator, count):
    """Makes `translations.jsonl`, or goes on with it."""
    from keras_transformer.translation.files import translate_file

    translate_file(
        translator,
        folder / SOURCES_FILE,
        folder / TRANSLATIONS_FILE,
        form=_form(options),
        fingerprint=json.dumps(job),
        progress=_Progress(count),
    )


def check_probabilities(data, teachers, options):
    """Raises a `ValueError`, without Keras, where probabilities could not be made or used."""
    if options.top_k is None:
        return
    if data.sources is not None:
        raise ValueError(
            f"`top_k` goes with one corpus. Received: {len(data.sources)} [[data.sources]]"
        )
    if teachers.source_prefix or teachers.target_prefix:
        raise ValueError(
            "`top_k` goes without prefixes, which a student has not. Received: source_prefix="
            f"{teachers.source_prefix}, target_prefix={teachers.target_prefix}"
        )
    configs = teachers.configs()
    size = min(config.target_size for config in configs)
    if options.top_k > size:
        raise ValueError(
            "`top_k` must be at most the vocabulary's size. "
            f"Received: top_k={options.top_k}, size={size}"
        )
    limits = [config.max_positions for config in configs if config.max_positions is not None]
    if limits and data.max_length > min(limits):
        raise ValueError(
            "`data.max_length` must be at most the positions that the teachers know. "
            f"Received: max_length={data.max_length}, max_positions={min(limits)}"
        )


def _probabilities(folder, translator, options, max_length):
    from keras_transformer.distillation.probabilities import write_probabilities

    corpus = JsonLinesCorpus(folder / pairs_file(0), "source", "target")
    limits = {"top_k": options.top_k, "max_length": max_length}
    return {"probabilities": write_probabilities(folder, translator, corpus, **limits)}


def _several(translator, make_translator, workers):
    """A context manager that gives the translator, or what stands for it in several processes."""
    if workers == 1:
        return contextlib.nullcontext(translator)
    from keras_transformer.translation.workers import Workers

    return Workers(make_translator, workers, translator)


class _Progress:
    """Says how much is translated, at most every ten seconds."""

    def __init__(self, total):
        self._total, self._start, self._said = total, time.monotonic(), 0.0

    def __call__(self, done):
        seconds = time.monotonic() - self._start
        if seconds - self._said >= _SAY_SECONDS:
            self._said = seconds
            print(
                f"{done:,} of {self._total:,} sources translated after {seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )


class _Translations:
    """The lines of `translations.jsonl`, in any order, without having them in memory."""

    def __init__(self, path):
        self._file = open(path, "rb")  # noqa: SIM115 (`close` does)
        self._starts = array.array("Q", [0])
        for line in self._file:
            self._starts.append(self._starts[-1] + len(line))

    def __getitem__(self, number):
        self._file.seek(self._starts[number])
        return json.loads(self._file.readline())["translations"]

    def close(self):
        self._file.close()


def _write_pairs(folder, corpora, index, options):
    """Writes the pairs of each corpus; returns what the note says of them."""
    parts = []
    with contextlib.ExitStack() as opened:
        translations = None
        if options.translates:
            translations = _Translations(folder / TRANSLATIONS_FILE)
            opened.enter_context(contextlib.closing(translations))
        for number, corpus in enumerate(corpora):
            counts, path = collections.Counter(), folder / pairs_file(number)
            write = functools.partial(_write_part, corpus, translations, index, options, counts)
            write_file(path, write)
            fields = {name: counts[name] for name in ("sources", "pairs", "unusable", "too_long")}
            parts.append({"corpus": corpus.name, **fields, "file": checksum(path)})
    return parts


def _write_part(corpus, translations, index, options, counts, path):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for source, target in corpus:
            if not source.strip():
                continue
            counts["sources"] += 1
            found = [] if translations is None else translations[index[_key(source)]]
            whole = [
                each["text"] for each in found if not each["truncated"] and each["text"].strip()
            ]
            if not whole and options.translates:
                counts["unusable" if found else "too_long"] += 1
            for text in options.chosen(whole, target):
                counts["pairs"] += 1
                file.write(json.dumps({"source": source, "target": text}) + "\n")
