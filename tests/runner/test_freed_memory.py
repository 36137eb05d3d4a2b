"""What a process frees and needs again it keeps, in the place of a page fault for each page."""

import json
import os
import platform
import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, json, resource, sys
import numpy as np
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: a huge page is one fault, not 512
if sys.argv[1] == "keep":
    from keras_transformer_runner.freed_memory import keep_freed_memory
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    keep_freed_memory()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt < before + 500  # it is not touched

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        blocks = [np.full(2**20, 1, np.uint8) for _ in range(5)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(5)
print(json.dumps(faults(20)))
"""


def faults(mode, repo_root, **environment):
    command = [sys.executable, "-c", SCRIPT, mode]
    known = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    environment = {**known, "PYTHONPATH": str(repo_root), **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that gives memory back")
def test_blocks_that_come_again_bring_no_faults(repo_root):
    pages = 20 * 5 * 256
    assert faults("plain", repo_root) > pages / 2
    assert faults("keep", repo_root) < pages / 20
    # Who has said otherwise keeps that.
    assert faults("keep", repo_root, MALLOC_TRIM_THRESHOLD_="131072") > pages / 2
