"""What the benchmarks' parents share: what they say, and how they write numbers."""

import contextlib
import json
import os
import platform
import statistics
import sys

from keras_transformer_runner.atomic import write_text


def spread(values):
    """Median, least and most; `None` of nothing."""
    if not values:
        return None
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def shown(values, form):
    """A `spread` as text."""
    if values is None:
        return "?"
    low, high = format(values["least"], form), format(values["most"], form)
    return f"{format(values['median'], form)} ({low} to {high})"


def not_measured(report, what, why):
    report["not_measured"].append([what, why])
    say(f"NOT MEASURED: {what}: {why}")


def pythons(parser, pairs, names):
    """NAME=PATH pairs as a dict; an error of the parser for a name that is none of `names`."""
    found = {name: path for name, _, path in (pair.partition("=") for pair in pairs)}
    if unknown := set(found) - set(names):
        parser.error(f"--python must name one of {list(names)}. Received: {sorted(unknown)}")
    return found


def write_json(path, report):
    write_text(path, json.dumps(report, indent=1) + "\n")


def processor():
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def say(text):
    print(text, file=sys.stderr, flush=True)


def options_of(arguments):
    """What a run was asked for, as text: of files their names, of interpreters whose they are."""
    options = {}
    for name, value in vars(arguments).items():
        value = sorted(value) if isinstance(value, dict) else value
        is_path = isinstance(value, (str, os.PathLike))
        options[name] = os.path.basename(str(value)) if is_path else str(value)
    return options
