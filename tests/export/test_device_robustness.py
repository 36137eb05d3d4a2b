"""Many threads, random ids, damaged files, many calls: no crash, no wrong answer, no leak.

The counts are those of a continuous integration; the environment variable
KERAS_TRANSFORMER_ROBUSTNESS multiplies them, 10 for those of a release.
"""

import concurrent.futures
import gc
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest

from keras_transformer_runner import Runner
from keras_transformer_runner.integrity import sealed

pytestmark = pytest.mark.slow
FACTOR = int(os.environ.get("KERAS_TRANSFORMER_ROBUSTNESS", "1"))


@pytest.mark.parametrize("has_cache", [False, True])
@pytest.mark.parametrize("mode", ["device", "int8_device"])
def test_eight_threads(mode, has_cache, request, texts, other_texts, odd_texts, tmp_path):
    """Each in an order of its own; every answer is that of one thread alone."""
    path = request.getfixturevalue(mode).path
    everything = [*texts, *other_texts, *odd_texts]
    expected = dict(zip(everything, Runner(path).translate(everything), strict=True))
    runner = Runner(path, weight_cache=tmp_path if has_cache else None)

    def work(seed):
        chosen = random.Random(seed).choices(everything, k=50 * FACTOR)
        return [text for text in chosen if runner.translate([text]) != [expected[text]]]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [[]] * 8


@pytest.mark.parametrize("has_cache", [False, True])
def test_random_ids(has_cache, device, live, tokenizer, tmp_path):
    """Every id, control ids too, in any order, and pads behind: Python's answers, or an error."""
    runner = Runner(device.path, weight_cache=tmp_path if has_cache else None)
    rng, hundreds = np.random.default_rng(3), (2 if has_cache else 10) * FACTOR
    vocab_size, counts = runner.metadata["vocab_size"], {"answers": 0, "errors": 0}
    ids = np.setdiff1d(np.arange(vocab_size), tokenizer.pad_id)
    for _ in range(hundreds):
        rows = [
            rng.choice(ids, min(rng.integers(1, 23, 2))).tolist()
            + [tokenizer.pad_id] * rng.integers(0, 3)
            for _ in range(100)
        ]
        bad = set(np.flatnonzero(rng.random(100) < 0.1).tolist())
        good = [row for index, row in enumerate(rows) if index not in bad]
        expected = live.translate_ids(live.pad(good))
        assert [runner.translate_ids(row) for row in good] == expected
        counts["answers"] += len(good)
        for index in bad:
            rows[index][rng.integers(len(rows[index]))] = int(
                rng.choice([-1, vocab_size, -(2**31), 2**31 - 1, 2**40])
            )
            with pytest.raises(ValueError, match=r"ids must lie in \[0, 31\)"):
                runner.translate_ids(rows[index])
            counts["errors"] += 1
    assert counts["errors"] > 0 and sum(counts.values()) == 100 * hundreds


def damaged(content, rng):
    """A file with flipped bits, cut short, or with a part that is zero or moved."""
    content, kind = bytearray(content), rng.randrange(4)
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.randrange(1, 200))
    if kind == 0:
        for _ in range(rng.randrange(1, 9)):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del content[start:]
    elif kind == 2:
        content[start:end] = bytes(end - start)
    else:
        content[start:start] = content[start:end]
    return bytes(content)


def test_damaged_files_are_noticed(device, tmp_path, texts, live):
    rng, copy = random.Random(5), shutil.copytree(device.path, tmp_path / "copy")
    expected, same = live.translate(texts[:2]), 0
    for number in range(100 * FACTOR):
        name = ("model.tflite", "tokenizer.model", "metadata.json")[number % 3]
        content = (device.path / name).read_bytes()
        (copy / name).write_bytes(damaged(content, rng))
        try:
            answers = Runner(copy).translate(texts[:2])
        except ValueError:
            pass
        else:  # metadata for people may say anything
            assert answers == expected, (number, name)
            same += name == "metadata.json"
            assert name == "metadata.json" or (copy / name).read_bytes() == content
        (copy / name).write_bytes(content)
    assert same < 30 * FACTOR


FORGED = """
import json, sys
from keras_transformer_runner.runner import Runner
try:
    answers = Runner(sys.argv[1]).translate(json.loads(sys.argv[2]))
except (ValueError, RuntimeError) as error:
    print("refused:", type(error).__name__)
else:
    print("answered")
"""


def test_a_forged_checksum_harms_the_child_only(device, tmp_path, texts, repo_root):
    """A checksum is no signature: whoever writes it can write a model, which LiteRT trusts.

    Such a file may crash the process that runs it, never this one; most are refused.
    """
    rng, copy = random.Random(7), shutil.copytree(device.path, tmp_path / "copy")
    content = (device.path / "model.tflite").read_bytes()
    metadata = json.loads((copy / "metadata.json").read_text())
    outcomes = {}
    for _ in range(10 * FACTOR):
        forged = damaged(content, rng)
        (copy / "model.tflite").write_bytes(forged)
        metadata["sha256"]["model.tflite"] = hashlib.sha256(forged).hexdigest()
        (copy / "metadata.json").write_text(json.dumps(sealed(metadata)))
        done = subprocess.run(
            [sys.executable, "-c", FORGED, str(copy), json.dumps(texts[:2])],
            env={**os.environ, "PYTHONPATH": str(repo_root)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        outcome = done.stdout.strip() or f"exit {done.returncode}"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        assert done.returncode <= 0, done.stderr[-2000:]  # no Python error but those it names
    print(outcomes)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux")
@pytest.mark.parametrize("has_cache", [False, True])
@pytest.mark.parametrize("what", ["calls", "runners"])
def test_nothing_leaks(what, has_cache, device, texts, other_texts, tmp_path):
    options = {"weight_cache": tmp_path} if has_cache else {}
    runner, everything = Runner(device.path, **options), [*texts, *other_texts]

    def work():
        if what == "calls":
            runner.translate(everything)
        else:
            Runner(device.path, **options).translate(texts[:1])

    sizes = []
    for _ in range(4):
        for _ in range(10 * FACTOR):
            work()
        gc.collect()
        sizes.append(_resident_bytes())
    assert sizes[-1] < sizes[1] + 2**20, sizes


def _resident_bytes():
    lines = pathlib.Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
