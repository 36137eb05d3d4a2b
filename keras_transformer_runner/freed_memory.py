"""Memory that is freed after an answer and needed for the next stays with the process."""

import numpy as np

# The largest block, with room for its header, that glibc learns from on a 64-bit machine.
_LARGEST = 2**25 - 2**13


def keep_freed_memory() -> None:
    """Has glibc keep up to 64 MiB of freed memory at the end of its heap.

    At first it keeps 128 KiB, and gives the rest back to the system: an answer whose memory comes
    to more is freed page by page, and the next one has a page fault for each. It learns from the
    blocks that are freed: from one of 32 MiB it learns the most that it ever learns. This frees
    one, whose pages are never touched. So a process is where glibc would have taken it anyway once
    it had freed something large; who has set `MALLOC_TRIM_THRESHOLD_` or called `mallopt` keeps
    that, and other allocators do not care.

    Example:
        >>> from keras_transformer_runner.freed_memory import keep_freed_memory
        >>> keep_freed_memory()
    """
    np.empty(_LARGEST, np.uint8)
