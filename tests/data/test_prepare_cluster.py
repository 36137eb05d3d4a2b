"""Apache Beam on a cluster of worker processes, one of which is killed, writes the same bytes."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "prepare_cluster.py"


@pytest.mark.release
@pytest.mark.skipif(
    not (importlib.util.find_spec("apache_beam") and importlib.util.find_spec("distributed")),
    reason="needs a cluster: pip install 'apache-beam[dask]'",
)
def test_a_killed_worker_changes_no_byte(tmp_path):
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    for side, shift in (("source", 0), ("target", 3)):
        lines = (f"{words[i % 7]} {words[(i * i + shift) % 7]} {i % 11}\n" for i in range(500))
        (tmp_path / side).write_text("".join(lines))
    command = [sys.executable, SCRIPT, tmp_path, "--source=source", "--target=target"]
    command += ["--pairs=3000", "--part=200", "--vocab-size=50", "--skip-direct"]
    out = tmp_path / "out.json"
    done = subprocess.run([*command, "--out", out], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    steps = json.loads(out.read_text())["steps"]
    assert list(steps) == ["prepare", "cluster", "cluster, a worker killed"]
    assert all(step["same"] and step["pairs"] == 3000 for step in steps.values())
    assert steps["cluster, a worker killed"]["results_lost"] >= 2
    assert steps["cluster"]["processor_seconds"] > 0
