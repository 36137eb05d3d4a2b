"""`prepare` as a pipeline of Apache Beam, on any of its runners."""

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
from keras_transformer.data.faults import Faults
from keras_transformer.data.preparation import KIND, check_options, corpus_name, finish, rows
from keras_transformer.data.shard_index import shard_file
from keras_transformer.data.shards import PreparedCorpus, ShardWriter, shard_of
from keras_transformer.data.tokenized import tokenize_chunk
from keras_transformer_runner.atomic import new_folder, scratch_folder, write_file
from keras_transformer_runner.tokenizers.base import Tokenizer, check_special_ids
from keras_transformer_runner.tokenizers.files import load_tokenizer

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

_CHUNK = 1024  # pairs that travel together
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

    The corpus is read by one worker, line by line; tokenizing and writing are spread over all. A
    worker holds the shard that it writes.

    Args:
        corpus: As in `prepare`, but it must be one that can be pickled and read anywhere: not
            standard input, no generator.
        tokenizer: As in `prepare`, as are the other arguments.
        folder: The folder to make, where all workers can write.
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
    with new_folder(folder, what=KIND) as temporary, scratch_folder(folder) as parts:
        _run(apache_beam, options, corpus, tokenizers, parts, max_length, shards, seed, compression)
        faults = Faults(**_read(parts / _FAULTS))
        entries = [_read(parts / _ENTRY.format(shard)) for shard in range(shards)]
        for entry in entries:
            os.rename(parts / entry["file"], temporary / entry["file"])
        fields = {"max_length": max_length, "seed": seed, "compression": compression}
        finish(temporary, corpus, tokenizer, target_tokenizer, entries, faults, **fields)
    return PreparedCorpus(folder)


def _run(apache_beam, options, corpus, tokenizers, place, max_length, shards, seed, compression):
    tokenize = _Tokenize([each.to_bytes() for each in tokenizers], max_length, shards, seed)
    write = _WriteShard(str(place), shards, compression, max_length)
    with apache_beam.Pipeline(options=options) as pipeline:
        read = (
            pipeline
            | "Corpus" >> apache_beam.Create([corpus])
            | "Read" >> apache_beam.FlatMap(_chunks).with_outputs("faults", main="pairs")
        )
        tokenized = (
            read.pairs
            | "Spread" >> apache_beam.Reshuffle()
            | "Tokenize" >> apache_beam.FlatMap(tokenize).with_outputs("faults", main="rows")
        )
        _ = (
            (read.faults, tokenized.faults)
            | "Both" >> apache_beam.Flatten()
            | "Count" >> apache_beam.CombineGlobally(_merged)
            | "Report" >> apache_beam.Map(_write, str(place / _FAULTS))
        )
        # A shard without a pair is a file all the same.
        every = pipeline | "Shards" >> apache_beam.Create([(shard, []) for shard in range(shards)])
        _ = (
            (tokenized.rows, every)
            | "All" >> apache_beam.Flatten()
            | "Group" >> apache_beam.GroupByKey()
            | "Write" >> apache_beam.Map(write)
        )


def _chunks(corpus):
    """Lists of `(number, source, target)`, and behind them the faults of reading as a dict."""
    from apache_beam.pvalue import TaggedOutput

    faults = Faults()
    pairs = iter(numbered_pairs(corpus, faults))
    while chunk := list(itertools.islice(pairs, _CHUNK)):
        yield chunk
    yield TaggedOutput("faults", dataclasses.asdict(faults))


@dataclasses.dataclass
class _Tokenize:
    """Pairs to `(shard, [(number, source bytes, target bytes), ...])` and faults.

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

    def __call__(self, pairs):
        from apache_beam.pvalue import TaggedOutput

        faults = Faults()
        numbers, *columns = tokenize_chunk(pairs, self._tokenizers, self.max_length, faults)
        shards = shard_of(numbers, self.shards, self.seed).tolist()
        of_shard = {}
        for shard, number, source, target in zip(
            shards, numbers.tolist(), *rows(columns), strict=True
        ):
            row = number, source.tobytes(), target.tobytes()
            of_shard.setdefault(shard, []).append(row)
        yield from of_shard.items()
        yield TaggedOutput("faults", dataclasses.asdict(faults))


@dataclasses.dataclass
class _WriteShard:
    """Writes the pairs of a shard in their order, and the shard's entry of the index."""

    place: str
    shards: int
    compression: str | None
    max_length: int

    def __call__(self, group):
        shard, parts = group
        name = shard_file(shard, self.shards)
        path = pathlib.Path(self.place) / name
        entries = []

        def write(temporary):
            writer = ShardWriter(temporary, name, self.compression, self.max_length)
            for _, *sides in sorted(itertools.chain.from_iterable(parts)):
                writer.write(*(np.frombuffer(side, np.int32) for side in sides))
            entries.append(writer.close())

        # A runner may give the same shard to two workers, which write the same.
        write_file(path, write, lock=False)
        _write(*entries, path.with_name(_ENTRY.format(shard)))


def _merged(parts):
    """All faults as one dict; parts may come in any order."""
    faults = Faults()
    for part in parts:
        faults.update(Faults(**part))
    return dataclasses.asdict(faults)


def _write(value, path):
    write_file(path, lambda temporary: temporary.write_text(json.dumps(value)), lock=False)


def _read(path):
    return json.loads(path.read_bytes())
