"""The runners of one model, a thread each, and the requests that wait for them."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from keras_transformer_runner.runner import Runner


class Full(Exception):
    """As many requests wait as may."""


class Unwanted(Exception):
    """Nobody waits for the answer any more; raised within the work."""


class Pool:
    """Answers requests, as many at a time as there are runners, the others in their order.

    A `Runner` answers one call at a time. So each has a thread of its own; the event loop only
    waits, as LiteRT lets other threads run while it computes.

    Args:
        runners: At least one, all of the same folder.
        queue_size: How many requests may wait for a runner.
    """

    def __init__(self, runners: Sequence[Runner], queue_size: int):
        self.runner = runners[0]  # for what needs no turn: its metadata, its tokenizer
        self._free = queue.SimpleQueue()
        for runner in runners:
            self._free.put(runner)
        self._threads = ThreadPoolExecutor(len(runners))
        self._runners, self._most = len(runners), len(runners) + queue_size
        self._lock = threading.Lock()
        self._admitted = 0

    @property
    def running(self) -> int:
        """How many requests have a runner."""
        return min(self._admitted, self._runners)

    @property
    def waiting(self) -> int:
        """How many requests wait for one."""
        return max(0, self._admitted - self._runners)

    async def answer(self, work: Callable, seconds: float, gone: asyncio.Future):
        """What `work` gives, once a runner is free.

        Args:
            work: Called with a `Runner` and a function that it calls before each part of the
                work, which raises `Unwanted` when it is of no use any more.
            seconds: How long to wait for it.
            gone: Done when the client has gone.

        Raises:
            Full: if as many requests wait as may.
            TimeoutError: if it takes longer.
            ConnectionError: if the client has gone.
        """
        with self._lock:
            if self._admitted >= self._most:
                raise Full
            self._admitted += 1
        unwanted = threading.Event()
        made = self._threads.submit(self._work, work, unwanted)
        made.add_done_callback(self._leave)
        answer = asyncio.wrap_future(made)
        try:
            await asyncio.wait({answer, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
        finally:  # also when the server cancels the request, as it ends
            unwanted.set()
            answer.cancel()
        raise ConnectionError if gone.done() else TimeoutError

    def close(self):
        """Waits for the threads, whose work nobody wants any more."""
        self._threads.shutdown()

    def _work(self, work, unwanted):
        def go_on():
            if unwanted.is_set():
                raise Unwanted

        runner = self._free.get()
        try:
            go_on()
            return work(runner, go_on)
        finally:
            self._free.put(runner)

    def _leave(self, _):
        with self._lock:
            self._admitted -= 1
