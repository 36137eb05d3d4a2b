"""The command `keras-transformer-serve` in a process of its own."""

import contextlib
import os
import re
import subprocess
import sys
import threading
import urllib.parse

MODULE = "keras_transformer_runner.server"


@contextlib.contextmanager
def serving(repo_root, *arguments, module=(MODULE,), **variables):
    """The process, and the address that it says it answers at."""
    environment = {**os.environ, "PYTHONPATH": str(repo_root), **variables}
    command = [sys.executable, "-m", *module, *map(str, arguments), "--port", "0"]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with subprocess.Popen(command, env=environment, **pipes) as process:
        watchdog = threading.Timer(240, process.kill)
        watchdog.start()
        try:
            said = process.stdout.readline()
            url = re.search(r" at (http://\S+)\n", said)
            watchdog.cancel()  # it is for the start: tests of a busy machine may take their time
            if not url:
                raise RuntimeError(said + process.communicate()[1])
            parts = urllib.parse.urlsplit(url[1])
            yield process, (parts.hostname, parts.port)
        finally:
            watchdog.cancel()
            if process.poll() is None:
                process.kill()
