"""What a command is given: its lines, its corpus, its settings; and the lines that it answers."""

import itertools
import sys

from keras_transformer_runner.lines import check_file, read_lines


def set_values(arguments, form):
    """What `--set` gave, as a dictionary of strings."""
    values = {}
    for text in arguments.overrides:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set must be {form}. Received: {text}")
        values[name.strip()] = value.strip()
    return values


def open_named_corpus(arguments, **options):
    """The corpus that the arguments name, whose files are there."""
    from keras_transformer.data import open_corpus

    corpus = open_corpus(
        arguments.source,
        arguments.target,
        format=arguments.format,
        source_key=arguments.source_key,
        target_key=arguments.target_key,
        split=arguments.split,
        **options,
    )
    if hasattr(corpus, "check_files"):  # a prepared one has looked
        corpus.check_files()
    return corpus


def input_lines(path):
    """The lines of a file or of standard input, and whether someone types them."""
    check_file(path)
    lines = read_lines(path, plain=True)
    if path == "-" and sys.stdin is not None and sys.stdin.isatty():
        return lines, True
    first = list(itertools.islice(lines, 1))  # what cannot be read is known by it
    if not first:
        raise ValueError(
            "translate needs at least one line. Received: "
            f"{'standard input' if path == '-' else path} is empty"
        )
    return itertools.chain(first, lines), False


def listed_lines(path):
    """The lines of a file as a list, or `None` without one."""
    return None if path is None else list(read_lines(path, plain=True))


def chunks(lines, size):
    chunk = []
    for line in lines:
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def write_lines(lines):
    """Lines on standard output, at once."""
    write_out("\n".join(lines) + "\n")


def write_out(text):
    """Text on standard output, at once."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(f"standard output must take what is written. Received: {error}") from error
