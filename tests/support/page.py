"""Node, for the tests of the page: its modules, its build script, its sites in a browser."""

import json
import pathlib
import shutil
import subprocess

import pytest

WEB = pathlib.Path(__file__).parents[2] / "export" / "web"
SCRIPTS = pathlib.Path(__file__).parents[1] / "export" / "web"


def node(*arguments, request=None):
    """Runs Node; returns the finished process."""
    if shutil.which("node") is None:
        pytest.skip("Node is not installed: export/web/test.sh says what is needed")
    return subprocess.run(
        ["node", *map(str, arguments)],
        input=None if request is None else json.dumps(request),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


def node_json(*arguments, request):
    """What a script prints for a request, both JSON."""
    done = node(*arguments, request=request)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def build(*arguments):
    """Runs build.mjs."""
    return node(WEB / "build.mjs", *arguments)
