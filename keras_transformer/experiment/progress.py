"""What a run says while it works."""

import sys


def say(text):
    """A line on standard error: standard output belongs to the caller."""
    print(text, file=sys.stderr, flush=True)
