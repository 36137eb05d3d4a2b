"""What the command line of `keras-transformer` takes."""

import argparse
import functools

from keras_transformer.command import commands
from keras_transformer.command.compare import add_compare
from keras_transformer.command.distil import add_distil
from keras_transformer.command.evaluate import evaluate
from keras_transformer.command.export_parser import (
    add_export,
    add_metrics,
    add_processes,
    add_search,
    add_shortlist_use,
)
from keras_transformer.command.new import add_new
from keras_transformer.command.run_parser import add_import, add_stop, add_train
from keras_transformer.command.serve import add_serve
from keras_transformer.command.shortlist import add_shortlist
from keras_transformer_runner import __version__


def make_parser():
    """The `argparse.ArgumentParser`; what it parses has the command's function in `run`."""
    parser = argparse.ArgumentParser(
        prog="keras-transformer",
        description="Train a Transformer on sentence pairs, and ship it to servers and phones.",
        epilog="A typical sequence: train, evaluate, export, evaluate --with litert.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument(
        "--traceback", action="store_true", help="show where an error comes from, for bug reports"
    )
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in (
        _add_tokenizer,
        _add_prepare,
        _of_module(add_train),
        _of_module(add_distil),
        _of_module(add_stop),
        _of_module(add_import),
        _add_shortlist,
        _add_translate,
        _add_evaluate,
        _add_compare,
        _of_module(add_export),
        _of_module(add_serve),
        _of_module(add_new),
    ):
        add(subparsers)
    return parser


def _add_command(subparsers, name, text, run=None):
    command = subparsers.add_parser(name, help=text, description=text)
    command.set_defaults(run=run or getattr(commands, name), command=name)
    return command


def _of_module(add):
    return lambda subparsers: add(functools.partial(_add_command, subparsers))


def _add_tokenizer(subparsers):
    command = _add_command(
        subparsers,
        "tokenizer",
        "Learn a vocabulary from text files, for several runs to share. (`train` learns its own.)",
    )
    command.add_argument("output", metavar="OUT", help="the file to write, such as joint.model")
    command.add_argument(
        "--input",
        required=True,
        action="extend",
        nargs="+",
        metavar="FILE",
        help="text, a sentence a line; both languages for a joint vocabulary; may be gzip",
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="a key of the section [tokenizer] of an experiment, for example vocab_size=8000",
    )


def _add_prepare(subparsers):
    command = _add_command(
        subparsers,
        "prepare",
        "Tokenize a corpus of any size into shards of TFRecords, which [data] source may name.",
    )
    command.add_argument("output", metavar="OUT", help="new folder for the shards")
    command.add_argument(
        "--source",
        required=True,
        metavar="FILE",
        help="a file, - for standard input, or tfds:NAME/CONFIG; with both sides, or --target",
    )
    command.add_argument("--target", metavar="FILE", help="the translations, line for line")
    _add_corpus_format(command, split="train")
    command.add_argument(
        "--invalid", choices=("error", "skip"), default="error", help="what to do with faulty lines"
    )
    command.add_argument(
        "--tokenizer", required=True, metavar="FILE", help="see the command tokenizer"
    )
    command.add_argument("--target-tokenizer", metavar="FILE", help="where the target has its own")
    command.add_argument("--max-length", type=int, default=128, metavar="IDS")
    command.add_argument("--shards", type=int, metavar="N")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--gzip", action="store_true", help="compress the shards")
    command.add_argument(
        "--beam-pipeline",
        dest="beam",
        metavar="OPTIONS",
        help="run on an Apache Beam runner: --beam-pipeline='--runner=DirectRunner'",
    )


def _add_translate(subparsers):
    command = _add_command(subparsers, "translate", "Translate text: a line in, a line out.")
    command.add_argument("run_dir", metavar="RUN", help="folder that `train` has made")
    command.add_argument("text", metavar="TEXT", nargs="*", help="sentences to translate")
    command.add_argument(
        "--input",
        metavar="FILE",
        help="file with a sentence a line; - is standard input, the default without TEXT",
    )
    command.add_argument(
        "--text",
        action="store_true",
        dest="whole_texts",
        help="what is given is one text of many sentences, whose line breaks and spaces stay; of "
        "JSON lines, and of several TEXT, each is one",
    )
    command.add_argument(
        "--language", default="", metavar="TAG", help="of --text, such as de: its abbreviations"
    )
    command.add_argument(
        "--output",
        metavar="FILE",
        help="new file for the translations of --input; interrupted, the same command goes on",
    )
    command.add_argument(
        "--format", choices=("lines", "jsonl"), default="lines", help="of --input and --output"
    )
    command.add_argument("--source-key", default="source", metavar="KEY", help="of JSON lines")
    command.add_argument(
        "--n-best",
        type=int,
        metavar="N",
        help="translations a text with scores; input and output are JSON lines (--format jsonl)",
    )
    add_processes(command)
    command.add_argument(
        "--too-long",
        choices=("error", "skip"),
        default="error",
        help="stop at a text with too many tokens, or leave its translation empty",
    )
    add_search(command)
    add_shortlist_use(command)


def _add_evaluate(subparsers):
    command = _add_command(
        subparsers,
        "evaluate",
        "Translate a test set and print its scores, as sacreBLEU defines them.",
        run=evaluate,
    )
    command.add_argument("run_dir", metavar="RUN", help="folder that `train` has made")
    command.add_argument(
        "--source",
        required=True,
        metavar="FILE",
        help="a sentence a line; or both sides, as the name (.tsv, .jsonl) or --format says",
    )
    command.add_argument("--target", metavar="FILE", help="their translations, line for line")
    _add_corpus_format(command, split="test")
    command.add_argument(
        "--with",
        dest="backend",
        choices=("python", "savedmodel", "litert"),
        default="python",
        help="what translates: the run itself, or an artifact that `export` has made",
    )
    command.add_argument("--artifact", metavar="PATH", help="the artifact to evaluate")
    add_metrics(command)
    add_search(command)
    add_shortlist_use(command)


def _add_compare(subparsers):
    add_compare(functools.partial(_add_command, subparsers), _add_corpus_format)


def _add_shortlist(subparsers):
    add_shortlist(functools.partial(_add_command, subparsers), _add_corpus_format)


def _add_corpus_format(command, split):
    command.add_argument("--format", choices=("lines", "tsv", "jsonl", "tfds"))
    command.add_argument("--source-key", metavar="KEY", help="of JSON lines or of a dataset")
    command.add_argument("--target-key", metavar="KEY")
    command.add_argument("--split", default=split, help="of a dataset")
