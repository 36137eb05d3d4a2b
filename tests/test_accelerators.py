"""The training step of base, compiled for a TPU that is not there, keeps its bounds.

pip install libtpu
python -m pytest -m release tests/test_accelerators.py
"""

import json
import os
import subprocess
import sys

import pytest

HBM_BYTES, PEAK_BYTES = 50e9, 10e9  # of a step with 25,088 target tokens on a v5e


@pytest.mark.release
@pytest.mark.parametrize("chips", [1, 4])
def test_a_step_of_base_on_a_v5e(chips, repo_root, tmp_path):
    pytest.importorskip("libtpu", reason="needs TPUs' compiler: pip install libtpu")
    out, script = tmp_path / "programs.json", repo_root / "benchmarks" / "accelerators.py"
    command = [sys.executable, script, "--out", out, "--only", "train base", f"v5e x {chips}"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "KERAS_BACKEND": "jax"}
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    [program] = json.loads(out.read_text())["programs"].values()
    assert program["chips"] == chips
    assert program["hbm_bytes"] < HBM_BYTES and program["peak"] < PEAK_BYTES
    # A kernel forward and one backward, of 6 attentions of the encoder and 12 of the decoder.
    assert program["custom_calls"]["tpu_custom_call"] == 36
    assert set(program["collectives"]) <= {"all-reduce"}
