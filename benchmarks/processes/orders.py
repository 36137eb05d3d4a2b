"""The child's end: reads an order a line and writes an answer a line, both JSON.

Imports the standard library alone, so that it runs in any peer's environment.
"""

import json
import os
import pathlib
import sys
import types


def answer_orders(start):
    """Answers orders until the parent closes the pipe.

    Args:
        start: Function of the folder, the task (its `task.json`) and the settings, the last two
            namespaces, that gives a dict of versions and a function `answer(**order) -> dict`.
    """
    answers = _own_stdout()
    folder = pathlib.Path(sys.argv[1])
    task = json.loads((folder / "task.json").read_text(), object_hook=_namespace)
    settings = json.loads(sys.argv[2], object_hook=_namespace)
    versions, answer = start(folder, task, settings)
    _write(answers, versions={"python": sys.version.split()[0], **versions})
    for line in sys.stdin:
        _write(answers, **answer(**json.loads(line)))


def own_share(settings, work):
    """The part of a list that is this process' own; takes a core for itself, if it is not alone.

    To be called before TensorFlow is imported, which then sees one core.
    """
    count = getattr(settings, "processes", 1)
    if count > 1:
        all_cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {all_cores[settings.share % len(all_cores)]})
    return [work[place] for place in places(len(work), getattr(settings, "share", 0), count)]


def places(length, share, count):
    """Which places of a list are the share, from 0, of one of `count` processes.

    The list is dealt out forth and back, so that shares of what falls from place to place are even.
    """
    owners = [*range(count), *reversed(range(count))]
    return [place for place in range(length) if owners[place % len(owners)] == share]


def cores():
    """How many cores this process may use: what its libraries' threads are set to."""
    return len(os.sched_getaffinity(0))


def _namespace(fields):
    return types.SimpleNamespace(**fields)


def _own_stdout():
    """Standard output for answers alone: what libraries print goes to standard error."""
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return own


def _write(file, **fields):
    print(json.dumps(fields), file=file, flush=True)
