"""The `keras-transformer` command: arguments in, calls to the package, lines out."""

import argparse
import os
import signal
import sys

import keras_transformer
from keras_transformer.quiet import start_tensorflow

_CHUNK = 256  # sentences translated before the output is flushed


def main(argv=None):
    """Runs the command.

    Args:
        argv: Arguments; `sys.argv[1:]` when `None`.

    Returns:
        The exit code: 0, 1 for a failure that the user can mend (one line on standard error), 130
        when interrupted. Wrong usage exits with 2.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if problem := _usage_problem(arguments):
        parser.error(problem)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")  # as the input, whatever the locale
    # A polite kill ends like an error does: what is half-written gets removed.
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if getattr(arguments, "backend", None) != "litert":  # which needs no TensorFlow
            start_tensorflow()
        arguments.run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has what it wanted; Python must not flush again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("keras-transformer: interrupted", file=sys.stderr)
        return 130
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        if arguments.traceback:
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"keras-transformer: error: {message}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, previous)
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        prog="keras-transformer",
        description="Train a Transformer on sentence pairs, and ship it to servers and phones.",
        epilog="A typical sequence: train, evaluate, export, evaluate --with litert.",
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {keras_transformer.__version__}"
    )
    parser.add_argument(
        "--traceback", action="store_true", help="show where an error comes from, for bug reports"
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in (_add_train, _add_translate, _add_evaluate, _add_export):
        add(commands)
    return parser


def _add_command(commands, run, name, text):
    command = commands.add_parser(name, help=text, description=text)
    command.set_defaults(run=run, command=name)
    return command


def _add_train(commands):
    command = _add_command(
        commands,
        _train,
        "train",
        "Train a model. Interrupted, the same command goes on where it stopped.",
    )
    command.add_argument(
        "experiment", metavar="EXPERIMENT.toml", help="what to train: data, model, training time"
    )
    command.add_argument("run_dir", metavar="RUN", help="folder for the result")
    command.add_argument(
        "--data",
        metavar="FOLDER",
        help="where the experiment's files are; the folder of EXPERIMENT.toml when left out",
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        dest="overrides",
        help="replace a value of the experiment, for example training.max_minutes=30",
    )


def _add_translate(commands):
    command = _add_command(
        commands, _translate, "translate", "Translate text: a line in, a line out."
    )
    command.add_argument("run_dir", metavar="RUN", help="folder that `train` has made")
    command.add_argument("text", metavar="TEXT", nargs="*", help="sentences to translate")
    command.add_argument(
        "--input",
        metavar="FILE",
        help="file with a sentence a line; - is standard input, the default without TEXT",
    )
    _add_search(command)


def _add_evaluate(commands):
    command = _add_command(
        commands,
        _evaluate,
        "evaluate",
        "Translate a test set and print BLEU and chrF, as sacreBLEU defines them.",
    )
    command.add_argument("run_dir", metavar="RUN", help="folder that `train` has made")
    command.add_argument("--source", required=True, metavar="FILE", help="a sentence a line")
    command.add_argument(
        "--target", required=True, metavar="FILE", help="their translations, line for line"
    )
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


def _add_export(commands):
    command = _add_command(
        commands, _export, "export", "Write a model for TF Serving, or for devices with LiteRT."
    )
    command.add_argument("run_dir", metavar="RUN", help="folder that `train` has made")
    command.add_argument("output", metavar="OUT", help="new folder for the artifact")
    command.add_argument("--to", dest="form", required=True, choices=("savedmodel", "litert"))
    command.add_argument(
        "--mode",
        choices=("float32", "int8"),
        default="float32",
        help="weights of a LiteRT model; int8 is about a quarter of the size",
    )
    _add_search(command)


def _add_search(command):
    command.add_argument(
        "--beam-size", type=int, metavar="K", help="hypotheses of a beam search; 1 is greedy"
    )
    command.add_argument(
        "--length-penalty", type=float, metavar="ALPHA", help="of a beam search: 0 for none"
    )


def _usage_problem(arguments):
    if arguments.command == "translate" and arguments.text and arguments.input:
        return "translate takes TEXT or --input, not both"
    if arguments.command == "evaluate" and (arguments.backend == "python") != (
        arguments.artifact is None
    ):
        return "--artifact goes with --with savedmodel and --with litert, and they need it"
    searches = (arguments.beam_size, arguments.length_penalty) if "beam_size" in arguments else ()
    if arguments.command == "evaluate" and arguments.artifact and searches != (None, None):
        return "--beam-size and --length-penalty of an artifact are chosen by export"
    if arguments.command == "export" and (arguments.form, arguments.mode) == ("savedmodel", "int8"):
        return "--mode int8 goes with --to litert"
    return None


def _train(arguments):
    overrides = {}
    for text in arguments.overrides:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set must be SECTION.KEY=VALUE. Received: {text}")
        overrides[name.strip()] = value.strip()
    from keras_transformer.training import Experiment, train

    experiment = Experiment.load(arguments.experiment, overrides, data_folder=arguments.data)
    run_dir = train(experiment, arguments.run_dir)
    print(run_dir)


def _load_run(arguments):
    from keras_transformer.training import load_run

    return load_run(arguments.run_dir).with_decoding(
        beam_size=arguments.beam_size, length_penalty=arguments.length_penalty
    )


def _translate(arguments):
    from keras_transformer.text import read_lines

    lines = iter(arguments.text or read_lines(arguments.input or "-"))
    translator = _load_run(arguments).translator()
    interactive = not arguments.text and arguments.input in (None, "-") and sys.stdin.isatty()
    done = 0
    for chunk in _chunks(lines, 1 if interactive else _CHUNK):
        try:
            translations = translator.translate(chunk)
        except ValueError as error:
            raise ValueError(f"lines {done + 1} to {done + len(chunk)}: {error}") from error
        print(*translations, sep="\n", flush=True)
        done += len(chunk)
    if not done:
        raise ValueError(
            f"translate needs at least one line. Received: {arguments.input or 'standard input'} "
            "is empty"
        )


def _chunks(lines, size):
    chunk = []
    for line in lines:
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _evaluate(arguments):
    from keras_transformer.evaluation import text_scores
    from keras_transformer.text import ParallelCorpus

    if "-" in (arguments.source, arguments.target):
        raise ValueError("evaluate reads its files twice, so none can be standard input")
    corpus = ParallelCorpus(arguments.source, arguments.target)
    corpus.check()
    translate = _translate_function(arguments)
    sources, references = zip(*corpus, strict=True)
    translations = [text for chunk in _chunks(sources, _CHUNK) for text in translate(chunk)]
    plain_text = _reference_reader(arguments)
    scores = text_scores(
        translations,
        map(plain_text, references),
        tokenize=arguments.tokenize,
        lowercase=arguments.lowercase,
    )
    for score in scores.values():
        print(f"{score.text}\t{score.signature}")


def _reference_reader(arguments):
    """What makes a reference readable text: of a vocabulary of split text, its joining."""
    from keras_transformer.training.tokenizers import Tokenizers

    return Tokenizers.load(arguments.run_dir).target.plain_text


def _translate_function(arguments):
    """`list[str] -> list[str]` of the run or of the artifact."""
    if arguments.backend == "litert":
        from keras_transformer.export.runner import Runner

        return Runner(arguments.artifact).translate
    if arguments.backend == "savedmodel":
        from keras_transformer.evaluation import saved_model_translate

        return saved_model_translate(arguments.artifact)
    return _load_run(arguments).translator().translate


def _export(arguments):
    if os.path.exists(arguments.output):
        raise FileExistsError(f"the artifact needs a new folder. Received: {arguments.output}")
    run = _load_run(arguments)
    options = {
        "samples": run.samples,
        "strategy": run.strategy,
        "max_source_length": run.max_source_length,
    }
    if arguments.form == "savedmodel":
        from keras_transformer.export.saved_model import export_saved_model

        report = export_saved_model(run.model, run.tokenizer, arguments.output, **options)
    else:
        from keras_transformer.export.litert import export_litert

        report = export_litert(
            run.model, run.tokenizer, arguments.output, mode=arguments.mode, **options
        )
    print(
        f"{arguments.output}: {report.identical} of {report.samples} samples as in Python, "
        f"{report.token_agreement:.2%} of the tokens; {report.size_bytes / 1e6:.1f} MB, "
        f"{report.seconds_a_sample * 1e3:.1f} ms a sentence"
    )


if __name__ == "__main__":
    sys.exit(main())
