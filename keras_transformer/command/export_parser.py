"""The arguments of the command `export`, and those of searches and scores, which others have."""

import argparse

# Of keras_transformer.evaluation and export.litert.modes, which a command line need not load.
METRICS = ("bleu", "chrf", "ter")
MODES = ("float32", "float16", "int8", "int8_weight_only", "int8_full", "int4")


def add_export(add_command):
    """Adds the command `export`.

    Args:
        add_command: Function of a name and a text, which gives the parser of a new command.
    """
    command = add_command("export", "Write a model for TF Serving, or for devices with LiteRT.")
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
        type=source_lengths,
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
    add_search(command)
    command.add_argument(
        "--n-best",
        type=int,
        metavar="N",
        help="translations, with scores, that the artifact gives where several are asked for; at "
        "most the beam size",
    )
    add_shortlist_use(command)


def source_lengths(text):
    """`"32,128"` as `(32, 128)`."""
    return tuple(int(length) for length in text.split(","))


def metric_names(text):
    """`"bleu,ter"` as `("bleu", "ter")`."""
    names = tuple(text.split(","))
    if len({*names}) < len(names) or not {*names} <= {*METRICS}:
        raise argparse.ArgumentTypeError(
            f"must be some of {','.join(METRICS)}, each once. Received: {text}"
        )
    return names


def add_metrics(command):
    """Adds what says how translations are scored."""
    command.add_argument(
        "--metrics",
        type=metric_names,
        default=METRICS[:2],
        metavar="NAME,NAME,...",
        help="bleu, chrf (both if not given), ter (edits a word of the reference, case ignored)",
    )
    command.add_argument(
        "--tokenize",
        default="13a",
        metavar="NAME",
        help="BLEU's tokenizer, as sacreBLEU names it; none for text that is already tokenized",
    )
    command.add_argument("--lowercase", action="store_true", help="ignore case")


def add_search(command):
    """Adds the options that change the search of a run."""
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
    for side, place in (("source", "before every source"), ("target", "at every target's start")):
        command.add_argument(
            f"--{side}-prefix",
            action="append",
            metavar="PIECE",
            help=f"a piece {place}, such as a language; once for each, if there are several",
        )


def add_shortlist_use(command):
    """Adds the option to search with the shortlist of a run."""
    command.add_argument(
        "--shortlist",
        action="store_true",
        default=None,
        help="search among the candidates of RUN's shortlist alone, see the command shortlist",
    )


def add_processes(command):
    """Adds what translates many texts: `--workers`, `--beam-pipeline` and `--jit-compile`."""
    command.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="processes that translate files, best one a core; each takes the memory of a model "
        "and of TensorFlow, some 1 GB for a small one",
    )
    command.add_argument(
        "--beam-pipeline",
        dest="beam",
        metavar="OPTIONS",
        help="translate on an Apache Beam runner: --beam-pipeline='--runner=DirectRunner'",
    )
    command.add_argument(
        "--jit-compile",
        action="store_true",
        help="let XLA compile the search of files: greedy search is faster then, but takes "
        "seconds for each new length",
    )
