"""The stand-in for TF Serving as a process, and the kit's client as a module."""

import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from types import SimpleNamespace

SUPPORT = pathlib.Path(__file__).resolve().parent
SERVER = SUPPORT / "serving_server.py"
KIT = SUPPORT.parents[1] / "export" / "serving"
CLIENT = KIT / "client.py"
BATCHING = KIT / "batching.config"


@contextlib.contextmanager
def serving(folder, name="translator", **files):
    """Runs the server in another folder; yields its addresses, and at the end its `last` words.

    Args:
        folder: A folder of versions.
        name: The model's.
        files: `batching`, `models` and `tls`, paths of the server's configuration files.
    """
    options = [f"--{option}={path}" for option, path in files.items() if path]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed below; a pipe could fill up)
    process = subprocess.Popen(
        [sys.executable, str(SERVER), name, str(folder), *options],
        env=environment,
        cwd=str(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
    try:
        line = process.stdout.readline()
        if not line:
            errors.seek(0)
            raise RuntimeError(errors.read()[-3000:])
        started = json.loads(line)
        server = SimpleNamespace(
            name=name,
            pid=started["pid"],
            grpc=f"127.0.0.1:{started['grpc']}",
            rest=f"http://127.0.0.1:{started['rest']}",
        )
        yield server
        process.stdin.close()
        server.last = json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, errors):
            stream.close()


def load_client():
    """export/serving/client.py, which is no part of a package."""
    return load(CLIENT, "serving_client")


def load(path, name=None):
    """A script as a module, under its own name or another."""
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
