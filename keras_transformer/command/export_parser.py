"""The arguments of the command `export`, and of the search that it writes."""

# Of keras_transformer.export.litert.modes, which a command line need not load.
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


def source_lengths(text):
    """`"32,128"` as `(32, 128)`."""
    return tuple(int(length) for length in text.split(","))


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
    command.add_argument(
        "--shortlist",
        action="store_true",
        default=None,
        help="search among the candidates of RUN's shortlist alone, see the command shortlist",
    )
    for side, place in (("source", "before every source"), ("target", "at every target's start")):
        command.add_argument(
            f"--{side}-prefix",
            action="append",
            metavar="PIECE",
            help=f"a piece {place}, such as a language; once for each, if there are several",
        )
