"""The parent's end of a child process that answers orders (see `orders.py`)."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

_FOLDER = pathlib.Path(__file__).parent


class Failed(Exception):
    """A child could not be started, or ended before its answer."""


class Child:
    """A system in a process of its own; a context manager that ends it.

    It runs on the CPU, unless the settings have a true `gpu`; on TensorFlow, unless they have
    another `backend`.

    Args:
        script: Path of what it runs.
        python: The Python that runs it; this one also finds `keras_transformer`.
        folder: What the script is told to read, and where its log goes.
        settings: What JSON can hold; handed to the script.
        limit: Seconds after which the process is killed; none when `None`.

    Attributes:
        versions: What the child said it uses.
    """

    def __init__(self, script, python, folder, settings, limit=None):
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
        environment["KERAS_BACKEND"] = settings.get("backend", "tensorflow")
        if not settings.get("gpu"):
            environment |= {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
        paths = [_FOLDER, _FOLDER.parents[1]] if python == sys.executable else [_FOLDER]
        environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
        descriptor, self._log = tempfile.mkstemp(suffix=".log", dir=folder, text=True)
        try:
            with open(descriptor) as log:
                self._process = subprocess.Popen(
                    [python, script, folder, json.dumps(settings)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                    env=environment,
                )  # fmt: skip
        except OSError as error:
            raise Failed(f"its Python cannot be run: {error.strerror}") from error
        self._limit, self._timer = limit, threading.Timer(limit or 0, self._process.kill)
        if limit is not None:
            self._timer.start()
        try:
            self.versions = self.receive()["versions"]
        except Failed:
            self.close()
            raise

    def ask(self, **order):
        """Sends an order and waits for the answer, a dict."""
        self.send(**order)
        return self.receive()

    def send(self, **order):
        """Sends an order; `receive` waits for its answer."""
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer tells why

    def close(self):
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def receive(self):
        """The answer to the order that was sent, a dict."""
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        if self._limit is not None and not self._timer.is_alive():
            raise Failed(f"its process took longer than {self._limit:.0f} s")
        log = pathlib.Path(self._log).read_text(errors="replace").strip().splitlines()
        last = [line for line in log if not line.lstrip().startswith("File ")][-3:]  # no paths
        raise Failed("its process ended: " + " / ".join(last))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
