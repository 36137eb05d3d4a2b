"""The `keras-transformer` command: arguments in, calls to the package, lines out."""

import contextlib
import os
import signal
import sys
import warnings

import keras_transformer
import keras_transformer_runner as runner
from keras_transformer.command.export_parser import MODES
from keras_transformer.command.parser import make_parser
from keras_transformer.command.usage import usage_problem
from keras_transformer_runner.failures import told
from keras_transformer_runner.lines import FormatWarning
from keras_transformer_runner.streams import drop_output, open_standard_streams

__all__ = ["MODES", "main"]

# Where our own warnings come from.
_PACKAGES = tuple(os.path.dirname(each.__file__) for each in (keras_transformer, runner))
_HOW_TO_SEE = "`keras-transformer --traceback COMMAND ...`"


def main(argv=None):
    """Runs the command.

    Args:
        argv: Arguments; `sys.argv[1:]` when `None`.

    Returns:
        The exit code: 0, 1 for a failure (one line on standard error), 130 when interrupted. Wrong
        usage exits with 2.
    """
    can_answer = sys.stdout is not None
    open_standard_streams()
    parser = make_parser()
    arguments = _parsed(parser, argv)
    if problem := usage_problem(arguments):
        parser.error(problem)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")  # as the input, whatever the locale
    # A polite kill ends like an error does: what is half-written gets removed.
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if not can_answer and _answers(arguments):
            raise ValueError("standard output must be open for the answer. Received: a closed one")
        with _warnings_in_a_line():
            arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()  # the reader, such as `head`, has what it wanted
    except KeyboardInterrupt:
        print("keras-transformer: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if arguments.traceback:
            raise
        message = told(error, _HOW_TO_SEE) + _place(error, arguments)
        print(f"keras-transformer: error: {message}", file=sys.stderr)
        _drop_output_if_full()
        return 1
    finally:
        signal.signal(signal.SIGTERM, previous)
    return 0


def _parsed(parser, argv):
    """The arguments, where the texts of `translate` may come behind options too."""
    arguments, rest = parser.parse_known_args(argv)
    if rest and (arguments.command != "translate" or any(each.startswith("-") for each in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        arguments.text += rest
    return arguments


def _answers(arguments):
    """Whether what is on standard output is all that the command makes."""
    return arguments.command in ("evaluate", "compare") or (
        arguments.command == "translate" and not arguments.output
    )


def _place(error, arguments):
    """What was being made, where the system does not say at which file it failed."""
    made = getattr(arguments, "output", None) or getattr(arguments, "run_dir", None)
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        return f", in `{arguments.command}` of {made}"
    return ""


@contextlib.contextmanager
def _warnings_in_a_line():
    """Lets what the package warns of be said once, in a line and without Python's own."""
    show = warnings.showwarning

    def show_in_a_line(message, category, filename, *more):
        if filename.startswith(_PACKAGES):
            print(f"keras-transformer: warning: {message}", file=sys.stderr)
        else:
            show(message, category, filename, *more)

    with warnings.catch_warnings():
        warnings.simplefilter("default", FormatWarning)
        warnings.showwarning = show_in_a_line
        yield


def _drop_output_if_full():
    """What standard output did not take, such as on a full disk, Python would try again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()
