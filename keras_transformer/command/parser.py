"""What the command line of `keras-transformer` takes."""

import argparse
import functools

from keras_transformer.command import commands
from keras_transformer.command.training_parser import add_stop, add_train
from keras_transformer_runner import __version__

# Of keras_transformer.export.litert.modes, which a command line need not load.
MODES = ("float32", "float16", "int8", "int8_weight_only", "int8_full", "int4")
_OF_LITERT = {
    "mode": "float32",
    "signatures": "translate",
    "lengths": (),
    "lengths_only": False,
    "references": None,
    "calibration": None,
}
_MOST_WORKERS = 256  # a slip of the keyboard must not start more


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
        _of_training(add_train),
        _of_training(add_stop),
        _add_import,
        _add_translate,
        _add_evaluate,
        _add_export,
    ):
        add(subparsers)
    return parser


def _add_command(subparsers, name, text, run=None):
    command = subparsers.add_parser(name, help=text, description=text)
    command.set_defaults(run=run or getattr(commands, name), command=name)
    return command


def _of_training(add):
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


def _add_import(subparsers):
    command = _add_command(
        subparsers,
        "import",
        "Make a run of a pretrained model: a folder of Hugging Face's (Marian, T5, M2M-100, NLLB, "
        "mBART-50), or Marian's own.",
        run=commands.import_model,
    )
    command.add_argument("folder", metavar="FOLDER", help="where the model's files are")
    command.add_argument("run_dir", metavar="RUN", help="new folder for the run")
    for side in ("source", "target"):
        command.add_argument(
            f"--{side}-language",
            metavar="NAME",
            help="as the model calls it, such as deu_Latn, where it has several",
        )
    command.add_argument(
        "--samples",
        metavar="FILE",
        help="source sentences that exports are compared on; random pieces if not",
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
        "--output",
        metavar="FILE",
        help="new file for the translations of --input; interrupted, the same command goes on",
    )
    command.add_argument(
        "--format", choices=("lines", "jsonl"), default="lines", help="of --input and --output"
    )
    command.add_argument("--source-key", default="source", metavar="KEY", help="of JSON lines")
    command.add_argument(
        "--n-best", type=int, metavar="N", help="translations a text with scores, in JSON lines"
    )
    command.add_argument(
        "--beam-pipeline",
        dest="beam",
        metavar="OPTIONS",
        help="translate on an Apache Beam runner: --beam-pipeline='--runner=DirectRunner'",
    )
    command.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="processes that translate --input, best one a core; each takes the memory of a model "
        "and of TensorFlow, some 1 GB for a small one",
    )
    command.add_argument(
        "--jit-compile",
        action="store_true",
        help="let XLA compile the search of --input: greedy search is faster then, but takes "
        "seconds for each new length; for large files",
    )
    command.add_argument(
        "--too-long",
        choices=("error", "skip"),
        default="error",
        help="stop at a text with too many tokens, or leave its translation empty",
    )
    _add_search(command)


def _add_evaluate(subparsers):
    command = _add_command(
        subparsers,
        "evaluate",
        "Translate a test set and print BLEU and chrF, as sacreBLEU defines them.",
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
    command.add_argument(
        "--tokenize",
        default="13a",
        metavar="NAME",
        help="BLEU's tokenizer, as sacreBLEU names it; none for text that is already tokenized",
    )
    command.add_argument("--lowercase", action="store_true", help="ignore case")
    _add_search(command)


def _add_export(subparsers):
    command = _add_command(
        subparsers, "export", "Write a model for TF Serving, or for devices with LiteRT."
    )
    command.add_argument("run_dir", metavar="RUN", help="folder that `train` has made")
    command.add_argument(
        "output",
        metavar="OUT",
        help="new folder for the artifact; of a savedmodel, the model's folder, which gets the "
        "next version: OUT/1, OUT/2, ...",
    )
    command.add_argument("--to", dest="form", required=True, choices=("savedmodel", "litert"))
    command.add_argument(
        "--mode",
        choices=MODES,
        default="float32",
        help="weights of a LiteRT model; int8 is about a quarter of the size",
    )
    command.add_argument(
        "--signatures",
        choices=("translate", "all"),
        default="translate",
        help="all: encode and decode_step too, for LiteRT apps that show a translation as it grows",
    )
    command.add_argument(
        "--lengths",
        type=_lengths,
        default=(),
        metavar="S,S,...",
        help="source lengths, such as 32,128,512: a LiteRT signature of fixed shapes for each, for "
        "runtimes that cannot resize",
    )
    command.add_argument(
        "--lengths-only",
        action="store_true",
        help="no signature but these, the longest first, for runtimes that know no names",
    )
    command.add_argument(
        "--samples",
        metavar="FILE",
        help="sentences to compare the artifact with Python on; some of the validation set if not",
    )
    command.add_argument(
        "--references",
        metavar="FILE",
        help="their translations: a LiteRT mode's promise of BLEU is checked too",
    )
    command.add_argument(
        "--calibration",
        metavar="FILE",
        help="sentences that int8_full and int4 are fitted to; the samples if not",
    )
    command.add_argument(
        "--ids-only",
        action="store_true",
        help="a savedmodel of ids to ids, without the tokenizer and TensorFlow Text's ops",
    )
    command.add_argument(
        "--max-source-length",
        type=int,
        metavar="N",
        help="most tokens of a text, EOS included; 1024, or as many as training saw, if not given",
    )
    _add_search(command)


def _lengths(text):
    return tuple(int(length) for length in text.split(","))


def _add_corpus_format(command, split):
    command.add_argument("--format", choices=("lines", "tsv", "jsonl", "tfds"))
    command.add_argument("--source-key", metavar="KEY", help="of JSON lines or of a dataset")
    command.add_argument("--target-key", metavar="KEY")
    command.add_argument("--split", default=split, help="of a dataset")


def _add_search(command):
    command.add_argument(
        "--beam-size", type=int, metavar="K", help="hypotheses of a beam search; 1 is greedy"
    )
    command.add_argument(
        "--length-penalty", type=float, metavar="ALPHA", help="of a beam search: 0 for none"
    )
    command.add_argument(
        "--length-normalization",
        choices=("gnmt", "power"),
        help="what has this exponent: (5 + length) / 6, or the length",
    )


def usage_problem(arguments):
    """What does not go together in parsed arguments, as a sentence, or `None`."""
    problems = {"translate": _of_translate, "evaluate": _of_evaluate, "export": _of_export}
    return problems.get(arguments.command, lambda _: None)(arguments)


def _of_translate(arguments):
    if arguments.text and arguments.input:
        return "translate takes TEXT or --input, not both"
    if not (arguments.output and arguments.input):
        names = ("format", "n_best", "too_long", "beam", "workers", "jit_compile")
        of_files = tuple(getattr(arguments, name) for name in names)
        if arguments.output or of_files != ("lines", None, "error", None, 1, False):
            return "--output goes with --input; what says how goes with both"
    if not 1 <= arguments.workers <= _MOST_WORKERS:
        return f"--workers must be in [1, {_MOST_WORKERS}]. Received: {arguments.workers}"
    if arguments.workers > 1 and arguments.beam is not None:
        return "--workers goes without --beam-pipeline, whose options say how many there are"
    return None


def _of_evaluate(arguments):
    from keras_transformer.data.readers import holds_both  # which `--help` does not need

    if (arguments.backend == "python") != (arguments.artifact is None):
        return "--artifact goes with --with savedmodel and --with litert, and they need it"
    search = (arguments.beam_size, arguments.length_penalty, arguments.length_normalization)
    if arguments.artifact and search != (None, None, None):
        return (
            "--beam-size, --length-penalty and --length-normalization of an artifact are chosen by "
            "export"
        )
    if arguments.target is None and arguments.format is None and not holds_both(arguments.source):
        return "--source goes with --target, but where its name or --format says it has both sides"
    return None


def _of_export(arguments):
    if arguments.form == "savedmodel":
        for name, default in _OF_LITERT.items():
            value = getattr(arguments, name)
            if value != default:
                return f"--{name.replace('_', '-')} goes with --to litert"
    if arguments.lengths_only and (not arguments.lengths or arguments.signatures != "translate"):
        return "--lengths-only goes with --lengths, and without --signatures all"
    if arguments.references and not arguments.samples:
        return "--references goes with --samples"
    if arguments.ids_only and arguments.form != "savedmodel":
        return "--ids-only goes with --to savedmodel"
    return None
