"""The `keras-transformer-run` command: lines, or a text, in, answers of an exported folder out.

keras-transformer-run FOLDER "text" ["text" ...]
"""

import argparse
import atexit
import contextlib
import os
import sys

from keras_transformer_runner.failures import told
from keras_transformer_runner.lines import one_line, read_lines, read_text
from keras_transformer_runner.runner import Runner
from keras_transformer_runner.sentences import check_language
from keras_transformer_runner.streams import drop_output, open_standard_streams


def main(arguments=None):
    """The command line; returns the exit code."""
    can_answer = sys.stdout is not None
    open_standard_streams()
    parser = make_parser()
    options = parser.parse_intermixed_args(arguments)
    if options.language and not options.is_whole:
        parser.error("--language goes with --text")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")  # as the input, whatever the locale
    with _only_python_speaks() if options.weight_cache else contextlib.nullcontext():
        fault = _fault(options, can_answer)
    if fault:
        print(f"keras-transformer-run: error: {fault}", file=sys.stderr)
    return int(fault is not None)


def _fault(options, can_answer):
    """Writes the answers; returns what is wrong, or `None`."""
    try:
        if not can_answer:
            raise ValueError("standard output must be open for the answer. Received: a closed one")
        if options.is_whole:
            check_language(options.language)
        runner = Runner(
            options.folder, num_threads=options.threads, weight_cache=options.weight_cache
        )
        for number, text in enumerate(options.texts or _standard_input(options), start=1):
            try:
                for piece in _answers(runner, text, options):
                    _write(piece)
            except ValueError as error:
                if options.texts or options.is_whole or runner.fits(text):
                    raise
                raise ValueError(f"line {number}: {error}") from error
    except BrokenPipeError:
        drop_output()  # the reader, such as `head`, has what it wanted
    except Exception as error:
        if options.traceback:
            raise
        return told(error)
    return None


def _write(piece):
    try:
        print(piece, end="", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise OSError(f"standard output must take what is written. Received: {error}") from error


@contextlib.contextmanager
def _only_python_speaks():
    """LiteRT tells on standard error what it looks for; what goes wrong, it raises too."""
    saved = os.dup(2)
    _turn_away_standard_error()
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        atexit.register(_turn_away_standard_error)  # it has last words


def _turn_away_standard_error():
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def make_parser():
    parser = argparse.ArgumentParser(
        prog="keras-transformer-run",
        description="Translates with an exported LiteRT folder, or continues prompts, or "
        "classifies: what its model is made for. Writes an answer a line.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="what the export wrote")
    parser.add_argument(
        "texts",
        metavar="TEXT",
        nargs="*",
        help="lines of standard input where there is none; `--` before one that begins with a dash",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--n-best",
        type=int,
        metavar="N",
        help="N translations or continuations a text, a line each: score, tab, text (its tabs as "
        "spaces)",
    )
    how.add_argument(
        "--stream", action="store_true", help="write each word as soon as nothing can change it"
    )
    how.add_argument(
        "--text",
        action="store_true",
        dest="is_whole",
        help="standard input, or each TEXT, is one text of many sentences to be translated, whose "
        "line breaks and spaces stay",
    )
    parser.add_argument(
        "--language", default="", metavar="TAG", help="of --text, such as de: its abbreviations"
    )
    parser.add_argument("--threads", type=int, default=1, help="of the interpreter (%(default)s)")
    parser.add_argument("--traceback", action="store_true", help="show where an error comes from")
    parser.add_argument(
        "--weight-cache",
        metavar="DIR",
        help="folder for packed weights, made by the first run and mapped by later ones: less "
        "memory, the same answers",
    )
    return parser


def _answers(runner, text, options):
    """The lines that answer one text, in pieces."""
    signature = runner.metadata["signature"]
    if options.n_best is not None:
        details = "generate" if signature == "generate" else "translate"
        answer = getattr(runner, f"{details}_with_details")
        for found in answer([text], n_best=options.n_best)[0]:
            column = one_line(found.text).replace("\t", " ")
            yield f"{found.score:.4f}\t{column}\n"
    elif options.stream:
        yield from map(one_line, runner.stream(text))
        yield "\n"
    elif options.is_whole:
        yield runner.translate_text(text, language=options.language)
        yield "\n" * bool(options.texts)
    elif signature == "classify":
        classes = _classes(runner.classify([text])[0], runner.metadata.get("labels"))
        yield one_line(classes) + "\n"
    else:
        yield one_line(getattr(runner, signature)([text])[0]) + "\n"


def _classes(probabilities, labels):
    """The likeliest class of each row and its probability, rows apart by spaces."""
    rows = probabilities.reshape(-1, probabilities.shape[-1])
    best = [(int(row.argmax()), float(row.max())) for row in rows]
    return " ".join(f"{labels[index] if labels else index}:{share:.4f}" for index, share in best)


def _standard_input(options):
    """Lines, each as soon as it is there, by the same rules as all text files; or one text."""
    if options.is_whole:
        yield read_text("-")
        return
    line = None
    for line in read_lines("-"):
        yield line
    if line is None:
        raise ValueError("there must be at least one line. Received: standard input is empty")


if __name__ == "__main__":
    sys.exit(main())
