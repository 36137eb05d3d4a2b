"""The standard streams of a command, as its caller has left them."""

import os
import sys


def open_standard_streams():
    """Lets what a closed standard output or standard error would get go nowhere.

    The next file that is opened has the number of a closed stream, and would get what C++ writes
    to that; and `print` to a closed standard error goes to standard output. A closed standard
    input stays closed.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def drop_output():
    """Lets what standard output did not take go nowhere: Python would try again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def log(text):
    """Says what work is being done, in a line on standard error: standard output is the caller's.

    Args:
        text: The line.
    """
    print(text, file=sys.stderr, flush=True)
