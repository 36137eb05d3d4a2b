"""What does not go together in the arguments of `keras-transformer`."""

import os

from keras_transformer_runner.server.command import usage_problem as _of_serve

_OF_LITERT = {
    "mode": "float32",
    "signatures": "translate",
    "lengths": (),
    "lengths_only": False,
    "references": None,
    "calibration": None,
}
_OF_FILES = {  # of `translate`
    "format": "lines",
    "n_best": None,
    "too_long": "error",
    "beam": None,
    "workers": 1,
    "jit_compile": False,
}
_MOST_WORKERS = 256  # a slip of the keyboard must not start more
SEARCH = (
    *("beam_size", "length_penalty", "length_normalization", "source_prefix", "target_prefix"),
    "shortlist",
)


def usage_problem(arguments):
    """What does not go together in parsed arguments, as a sentence, or `None`."""
    problems = {
        "translate": _of_translate,
        "evaluate": _of_evaluate,
        "compare": _of_compare,
        "export": _of_export,
        "distil": _of_workers,
        "serve": _of_serve,
        "shortlist": _of_shortlist,
    }
    return problems.get(arguments.command, lambda _: None)(arguments)


def _of_translate(arguments):
    if arguments.text and arguments.input:
        return "translate takes TEXT or --input, not both"
    if not (arguments.output and arguments.input):
        if arguments.output:
            return f"--output goes with --input. Received: --output {arguments.output}"
        for name, default in _OF_FILES.items():
            if getattr(arguments, name) != default:
                option = "beam-pipeline" if name == "beam" else name.replace("_", "-")
                given = f"{getattr(arguments, name)}, without them"
                return f"--{option} goes with --input and --output. Received: {given}"
    if arguments.whole_texts and (arguments.n_best is not None or arguments.too_long != "error"):
        return "--text goes without --n-best and --too-long: no text is too long"
    if arguments.language and not arguments.whole_texts:
        return "--language goes with --text"
    if arguments.whole_texts and arguments.beam is not None and arguments.format != "jsonl":
        return "--text with --beam-pipeline goes with --format jsonl: one text is not spread"
    return _of_workers(arguments)


def _of_workers(arguments):
    if not 1 <= arguments.workers <= _MOST_WORKERS:
        return f"--workers must be in [1, {_MOST_WORKERS}]. Received: {arguments.workers}"
    if arguments.workers > 1 and arguments.beam is not None:
        return "--workers goes without --beam-pipeline, whose options say how many there are"
    return None


def _of_evaluate(arguments):
    from keras_transformer.data.readers import holds_both  # which `--help` does not need

    if (arguments.backend == "python") != (arguments.artifact is None):
        return "--artifact goes with --with savedmodel and --with litert, and they need it"
    if arguments.artifact:
        for name in SEARCH:
            if getattr(arguments, name) is not None:
                return f"--{name.replace('_', '-')} of an artifact is chosen by export"
    if arguments.target is None and arguments.format is None and not holds_both(arguments.source):
        return "--source goes with --target, but where its name or --format says it has both sides"
    return None


def _of_compare(arguments):
    from keras_transformer.data.readers import holds_both  # which `--help` does not need

    if len(arguments.systems) < 2:
        return "compare takes two RUNs or more"
    has_references = arguments.target is not None
    if arguments.source is not None:
        has_references |= arguments.format is not None or holds_both(arguments.source)
    if not has_references:
        return "compare needs references: --target, or a --source that has both sides"
    if arguments.source is None and any(map(os.path.isdir, arguments.systems)):
        return "compare needs --source, but where all RUNs are files of translations"
    if arguments.source is None:
        for name in ("format", "source_key", "target_key"):
            if (value := getattr(arguments, name)) is not None:
                option = name.replace("_", "-")
                return f"--{option} of compare goes with --source. Received: --{option} {value}"
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


def _of_shortlist(arguments):
    if arguments.lex and arguments.source:
        return "shortlist takes --source or --lex, not both"
    if arguments.lex and arguments.references_only:
        return "--references-only goes without --lex, which has no sources to translate"
    if arguments.source is None:
        for name in ("target", "format", "source_key", "target_key"):
            if getattr(arguments, name) is not None:
                return f"--{name.replace('_', '-')} goes with --source"
    return None
