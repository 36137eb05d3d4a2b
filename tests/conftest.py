"""Shared by all tests: a quiet TensorFlow, the same random numbers every time, the shared data."""

import collections
import gc
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest

# Before anything imports TensorFlow: its C++ side reads this once.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "PYTEST_XDIST_WORKER" in os.environ:  # a process a core: more threads only wait for each other
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marker
def pytest_collection_modifyitems(items):
    """Marks as slow all cases of a test but the first ones, as many as `quick` says."""
    seen = collections.Counter()
    for item in items:
        quick = item.get_closest_marker("quick")
        if quick and not item.get_closest_marker("slow") and not item.get_closest_marker("release"):
            test = item.nodeid.split("[")[0]
            seen[test] += 1
            if seen[test] > quick.args[0]:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _seeds():
    random.seed(0)
    np.random.seed(0)
    if "keras" in sys.modules:  # a test that needs no Keras does not pay for its import
        sys.modules["keras"].utils.set_random_seed(0)


@pytest.fixture(autouse=True, scope="module")
def _what_a_file_leaves():
    yield
    # JAX keeps all that it ever compiled: some thousand programs use up a process' memory maps.
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()
    gc.freeze()  # or every later collection looks at it again


@pytest.fixture
def full_disk():
    """No file may grow beyond 20,000 bytes: as full as a disk can be made without its owner."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="session")
def repo_root():
    """The root of the source tree."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data():
    """The corpora that lie beside the source tree, where there are any."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"needs the corpora of ../shared/data, and {path} does not exist")
    return path
