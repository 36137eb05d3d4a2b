"""Several processes that translate, each with a translator, and share the batches of a window.

TensorFlow's threads gain little in a search, whose ops are many and small. Processes gain nearly
their number, up to the number of cores.
"""

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool

from keras_transformer.arguments import check_size
from keras_transformer_runner.translation import Translation

# Variables that TensorFlow reads when it starts. Those that the user has set stay.
_ENVIRONMENT = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # or the first worker would take a GPU's whole memory
}


class Workers:
    """Takes the place of a `Translator` of files, and translates by several processes.

    A context manager. Each worker starts with the first batch that it gets, and takes about as
    much memory as a process that translates alone. It uses one thread, and its standard error goes
    nowhere. As with all processes that are spawned, a script that uses this guards its main part
    by `if __name__ == "__main__":`.

    Args:
        make_translator: Function without arguments that makes the `Translator` in each worker.
            It must be possible to pickle it.
        count: Workers, at most as many as there are cores.
        translator: Such a `Translator` of this process, which measures texts; made when `None`.

    Raises:
        ValueError: if `count` is less than 1.
        RuntimeError: by `translate` and `translate_with_details`, if a worker has died.

    Example:
        >>> from keras_transformer.translation.files import translate_file
        >>> with Workers(make_translator, 4) as workers:  # doctest: +SKIP
        ...     translate_file(workers, "texts.txt", "translations.txt")
    """

    def __init__(self, make_translator: Callable, count: int, translator=None):
        check_size(count=count)
        self._make_translator, self._count = make_translator, count
        self._translator = translator

    def __enter__(self):
        if self._translator is None:
            self._translator = self._make_translator()
        context = self._context = _Context()
        self._alive, self._parent = context.Pipe(duplex=False)
        self._pool = concurrent.futures.ProcessPoolExecutor(
            self._count, context, _start, (self._make_translator, self._alive)
        )
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self._parent.close()  # ends the workers, whatever they are doing
            for worker in self._context.started:
                worker.terminate()  # one that starts looks at nothing for a minute
        self._pool.shutdown(cancel_futures=True)
        self._parent.close()
        self._alive.close()

    def source_ids(self, text: str) -> list[int]:
        """The ids of one text, see `Translator.source_ids`."""
        return self._translator.source_ids(text)

    def fits(self, text: str) -> bool:
        """Whether a text is short enough, see `Translator.fits`."""
        return self._translator.fits(text)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """A translation for each text, in order."""
        return self._spread("translate", texts)

    def translate_with_details(
        self, texts: Sequence[str], *, n_best: int | None = None
    ) -> list[list[Translation]]:
        """A list of `Translation` for each text, in order."""
        return self._spread("translate_with_details", texts, n_best=n_best)

    def _spread(self, method, texts, **options):
        lengths = [len(self.source_ids(text)) for text in texts]
        order = sorted(range(len(texts)), key=lengths.__getitem__)
        batches = even_batches(order, self._translator.batch_size, self._count)
        found = [None] * len(texts)
        try:
            with _starting():
                # The longest first: so the last batches to end are short.
                futures = [
                    self._pool.submit(_work, method, [texts[index] for index in batch], options)
                    for batch in reversed(batches)
                ]
            for batch, future in zip(reversed(batches), futures, strict=True):
                for index, made in zip(batch, future.result(), strict=True):
                    found[index] = made
        except BrokenProcessPool as error:
            raise RuntimeError(
                "every worker must live until all is translated, but one has died. Each takes the "
                "memory of a model and of TensorFlow: try fewer. (A script needs the guard "
                "`if __name__ == '__main__':`.) "
                f"Received: {self._count} workers"
            ) from error
        return found


class _Context(multiprocessing.context.SpawnContext):  # TensorFlow's threads survive no fork
    """Starts processes, and knows them."""

    def __init__(self):
        super().__init__()
        self.started = []

    def Process(self, *args, **options):  # noqa: N802 (the name of what it stands for)
        process = multiprocessing.context.SpawnProcess(*args, **options)
        self.started.append(process)
        return process


def even_batches(order, size, workers):
    """Cuts a list into batches of `size`; into even ones if there are fewer than workers."""
    if len(order) < size * workers:
        size = max(1, -(-len(order) // workers))
    return [order[first : first + size] for first in range(0, len(order), size)]


@contextlib.contextmanager
def _starting():
    """A process that is started inside ignores Ctrl-C and prints no chatter.

    A terminal's Ctrl-C reaches all processes, but the parent ends the workers. What TensorFlow
    prints when it is imported goes nowhere; errors still come as exceptions.
    """
    with _interrupts_wait():
        errors = os.dup(2)
        try:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 2)
            yield
        finally:
            os.dup2(errors, 2)
            os.close(errors)


@contextlib.contextmanager
def _interrupts_wait():
    if not hasattr(signal, "pthread_sigmask"):  # Windows: a worker's `_start` is all there is
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Own:
    """The translator of a worker, in its process."""

    make_translator = None
    translator = None


def _start(make_translator, alive):
    """Prepares a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it could not be blocked from the start
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    _Own.make_translator = make_translator


def _end_with(alive):
    """Ends this process when the parent closes its end of the pipe, or has ended."""
    with contextlib.suppress(EOFError, OSError):
        alive.recv_bytes()
    os._exit(1)


def _work(method, texts, options):
    if _Own.translator is None:
        _Own.translator = _Own.make_translator()
    return getattr(_Own.translator, method)(texts, **options)
