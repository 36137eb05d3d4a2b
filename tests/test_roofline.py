"""The arithmetic of benchmarks/roofline.py, redone by hand."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"
PROGRAM = {"program": "train base", "flops": 197e12, "hbm_bytes": 81.9e9, "state": 1.2e9}


@pytest.fixture
def step_of(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import roofline

    return roofline.step_of


def test_a_step_is_its_largest_part_and_the_sum_of_gradients(step_of):
    one, many = step_of(PROGRAM, "v5e", 1), step_of(PROGRAM, "v5e", 4)
    assert (one.by_flops, one.by_hbm, one.by_link) == (1.0, 0.1, 0.0)
    assert many.by_link == pytest.approx(2 * 3 / 4 * 0.4e9 / 200e9)
    assert many.seconds == pytest.approx(1.003) and many.bound == "FLOPs"
    assert many.positions == 4 * 392 * 64
    assert step_of(PROGRAM | {"hbm_bytes": 819e10}, "v5e", 1).bound == "HBM"


def test_beyond_a_fabric_the_network_may_bound_it(step_of):
    within, beyond = step_of(PROGRAM, "h100", 8), step_of(PROGRAM, "h100", 16)
    assert within.by_link == pytest.approx(2 * 7 / 8 * 0.4e9 / 450e9)
    assert beyond.by_link == pytest.approx(2 * 15 / 16 * 0.4e9 / 400e9)


def run(*options):
    command = [sys.executable, BENCHMARKS / "roofline.py", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_table(tmp_path):
    paths = [tmp_path / f"{chip}.json" for chip in ("v5e", "h100")]
    for path in paths:
        programs = {f"train {size}, {path.stem} x 1": PROGRAM for size in ("base", "big")}
        path.write_text(json.dumps({"programs": programs}))
    options = ["--pairs", 7056, "--epochs", 1, "--chips", 1, "--positions", 32, "--fill", 0.5]
    options += ["--price", "v5e=3600", "--input-rate", 784, "--prepare-rate", 7.056]
    done = run(*paths, *options)
    assert not done.returncode, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("| base, 1 v5e"))
    # 25,088 positions a second, half of them padding: 392 pairs, and 18 seconds.
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:] == ["1000.0, 100.0, 0.0", "FLOPs", "25,088", "392", "0.0", "0", "18", "0.50"]
    assert "Preparing 7.06e+03 pairs: 0.3 hours of a core." in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--price", "v5e"], "--price must be CHIP=PRICE. Received: ..v5e.."),
        (["--price", "v7=2"], "--price must name one of"),
        (["--chips", "0"], "--chips must be at least 1. Received: .0."),
        (["--epochs", "-1"], "must be a positive number. Received: -1"),
    ],
)
def test_options_that_cannot_be(options, message):
    done = run(*options)
    assert done.returncode == 2
    assert re.search(message, done.stderr)
