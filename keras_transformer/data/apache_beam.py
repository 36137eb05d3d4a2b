"""`prepare` as a pipeline of Apache Beam, on any of its runners."""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import tempfile
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.data.corpus import Corpus, numbered_pairs
from keras_transformer.data.corpus_parts import CorpusPart, corpus_parts
from keras_transformer.data.faults import Faults
from keras_transformer.data.places import is_remote, open_bytes, path_in, put, remote_folder
from keras_transformer.data.preparation import KIND, check_options, corpus_name, finish, rows
from keras_transformer.data.shard_index import INDEX, shard_file
from keras_transformer.data.shards import PreparedCorpus, ShardWriter, shard_of
from keras_transformer.data.tokenized import CHUNK, tokenize_chunk
from keras_transformer_runner.atomic import new_folder, scratch_folder
from keras_transformer_runner.tokenizers.base import Tokenizer, check_special_ids
from keras_transformer_runner.tokenizers.files import load_tokenizer

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

_FAULTS = "faults.json"
_ENTRY = "entry-{}.json"


def prepare_with_beam(
    corpus: Corpus,
    tokenizer: Tokenizer,
    folder: os.PathLike | str,
    *,
    max_length: int,
    target_tokenizer: Tokenizer | None = None,
    shards: int | None = None,
    seed: int = 0,
    compression: str | None = None,
    options: "PipelineOptions | None" = None,
) -> PreparedCorpus:
    """Writes the folder that `prepare` writes, byte for byte, by a pipeline of Apache Beam.

    Plain files of lines are cut into parts, which are read by all workers, after this process has
    searched them once for where lines begin; any other corpus is read by one worker. Tokenizing
    and writing are spread over all. A worker holds the shard that it writes.

    Args:
        corpus: As in `prepare`, but it must be one that can be pickled and read anywhere: not
            standard input, no generator.
        tokenizer: As in `prepare`, as are the other arguments.
        folder: The folder to make, where all workers can write: a network file system, or what
            `tf.io.gfile` reaches, as in `prepare`.
        options: `apache_beam.options.pipeline_options.PipelineOptions`, with the runner;
            `None` for Apache Beam's own choice.

    Returns:
        A `PreparedCorpus`.

    Raises:
        ImportError: if Apache Beam is missing, with the command that installs it.
        FileExistsError: if `folder` exists and is not empty.
        TargetInUseError: if another process is writing it.
        ValueError: if an argument is out of range, or no pair is left. What goes wrong in a
            worker is raised as Apache Beam raises it.

    Example:
        >>> from keras_transformer.data import prepare_with_beam
        >>> with open("pairs.tsv", "w") as file:
        ...     _ = file.write("ab\\tc\\na\\tbc\\n")
        >>> pairs = kt.ParallelCorpus("pairs.tsv")
        >>> corpus = prepare_with_beam(  # doctest: +SKIP
        ...     pairs, kt.BytesTokenizer(), "prepared", max_length=8
        ... )
        >>> len(corpus), corpus.shards  # doctest: +SKIP
        (2, 1)
    """
    try:
        import apache_beam
    except ImportError as error:
        raise ImportError(
            "`prepare_with_beam` needs Apache Beam: pip install apache-beam"
        ) from error
    shards = check_options(corpus, max_length, shards, seed, compression)
    if iter(corpus) is corpus or "-" in (
        getattr(corpus, a, 0) for a in ("source", "target", "path")
    ):
        raise ValueError(
            "`corpus` must be one that every worker can read: not standard input, no iterator. "
            f"Received: {corpus_name(corpus)}"
        )
    tokenizers = tokenizer, target_tokenizer or tokenizer
    check_special_ids(*tokenizers)
    # A worker that the runner has given up may still write parts: they stay out of the folder.
    with _places(folder, shards) as (parts, temporary):
        _run(apache_beam, options, corpus, tokenizers, parts, max_length, shards, seed, compression)
        faults = Faults(**_read_json(path_in(parts, _FAULTS)))
        entries = [_read_json(path_in(parts, _ENTRY.format(shard))) for shard in range(shards)]
        if not is_remote(folder):
            for entry in entries:
                os.rename(parts / entry["file"], temporary / entry["file"])
        fields = {"max_length": max_length, "seed": seed, "compression": compression}
        finish(temporary, corpus, tokenizer, target_tokenizer, entries, faults, **fields)
    return PreparedCorpus(folder)


@contextlib.contextmanager
def _places(folder, shards):
    """Yields where workers write, and the folder of the small files, which appears at the end.

    In an object store, where a rename is a copy, workers write the shards where they stay.
    """
    if not is_remote(folder):
        with new_folder(folder, what=KIND) as temporary, scratch_folder(folder) as parts:
            yield parts, temporary
        return
    parts = [_FAULTS, *map(_ENTRY.format, range(shards))]
    names = [shard_file(shard, shards) for shard in range(shards)]
    with remote_folder(folder, names, last=INDEX, what=KIND, passing=parts) as temporary:
        yield folder, temporary


def _run(apache_beam, options, corpus, tokenizers, place, max_length, shards, seed, compression):
    """One chain without tagged outputs and side inputs, which not every runner has."""
    tokenize = _Tokenize([each.to_bytes() for each in tokenizers], max_length, shards, seed)
    write = _Write(str(place), shards, compression, max_length)
    parts = corpus_parts(corpus)
    read, spread = "Read" >> apache_beam.FlatMap(_chunks), "Spread" >> apache_beam.Reshuffle()
    # Parts are spread over the workers before they are read; a corpus that is one, after.
    steps = (spread, read) if len(parts) > 1 else (read, spread)
    with apache_beam.Pipeline(options=options) as pipeline:
        chunks = pipeline | "Parts" >> apache_beam.Create(parts) | steps[0] | steps[1]
        tokenized = chunks | "Tokenize" >> apache_beam.FlatMap(tokenize)
        # A shard without a pair is a file all the same, and the faults are one when there is none.
        every = [(key, []) for key in range(shards + 1)]
        _ = (
            (tokenized, pipeline | "Every" >> apache_beam.Create(every))
            | "All" >> apache_beam.Flatten()
            | "Group" >> apache_beam.GroupByKey()
            | "Write" >> apache_beam.Map(write)
        )


def _chunks(corpus):
    """Lists of `(number, source, target)`; with a last, empty one the faults, as a dict.

    Each comes with its place: chunks in order of their places are the corpus in its order, which
    the numbers of pairs need not ascend in.
    """
    faults = Faults()
    pairs = iter(numbered_pairs(corpus, faults))
    place = corpus.first if isinstance(corpus, CorpusPart) else 0
    while chunk := list(itertools.islice(pairs, CHUNK)):
        yield place, chunk, {}
        place += len(chunk)
    yield place, [], dataclasses.asdict(faults)


@dataclasses.dataclass
class _Tokenize:
    """A chunk to `(shard, [(place, pairs)])`, the pairs as bytes; faults have the last key.

    It travels as bytes; a worker makes the tokenizers when it first needs them.
    """

    models: list
    max_length: int
    shards: int
    seed: int

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "_tokenizers"}

    @functools.cached_property
    def _tokenizers(self):
        with tempfile.TemporaryDirectory() as folder:
            tokenizers = []
            for model in self.models:
                path = pathlib.Path(folder) / "tokenizer"
                path.write_bytes(model)
                tokenizers.append(load_tokenizer(path))
        return tokenizers

    def __call__(self, chunk):
        place, pairs, faults = chunk
        faults = Faults(**faults)
        for shard, rows_of_shard in self._rows(pairs, faults).items() if pairs else ():
            yield shard, [(place, rows_of_shard)]
        if faults != Faults():
            yield self.shards, [dataclasses.asdict(faults)]

    def _rows(self, pairs, faults):
        numbers, *columns = tokenize_chunk(pairs, self._tokenizers, self.max_length, faults)
        shards = shard_of(numbers, self.shards, self.seed).tolist()
        of_shard = {}
        for shard, source, target in zip(shards, *rows(columns), strict=True):
            of_shard.setdefault(shard, []).append((source.tobytes(), target.tobytes()))
        return of_shard


@dataclasses.dataclass
class _Write:
    """Writes the pairs of a shard in their order, and the shard's entry of the index; or faults."""

    place: str
    shards: int
    compression: str | None
    max_length: int

    def __call__(self, group):
        key, parts = group
        values = itertools.chain.from_iterable(parts)
        if key == self.shards:
            _write_json(_merged(values), path_in(self.place, _FAULTS))
        else:
            self._write_shard(key, values)

    def _write_shard(self, shard, chunks):
        name = shard_file(shard, self.shards)
        entries = []

        def write(temporary):
            writer = ShardWriter(temporary, name, self.compression, self.max_length)
            for _, pairs in sorted(chunks):
                for sides in pairs:
                    writer.write(*(np.frombuffer(side, np.int32) for side in sides))
            entries.append(writer.close())

        # A runner may give the same shard to two workers, which write the same.
        put(path_in(self.place, name), write)
        _write_json(*entries, path_in(self.place, _ENTRY.format(shard)))


def _merged(parts):
    """All faults as one dict; parts may come in any order."""
    faults = Faults()
    for part in parts:
        faults.update(Faults(**part))
    return dataclasses.asdict(faults)


def _write_json(value, path):
    put(path, lambda temporary: temporary.write_text(json.dumps(value)))


def _read_json(path):
    with open_bytes(path) as file:
        return json.loads(file.read())
