"""Runs an exported LiteRT folder in a process of its own and says what it costs.

    python -m keras_transformer_runner.measure FOLDER < texts.json

Imports what the runner imports, so that its memory is an app's and not TensorFlow's.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

_PASSES = 3  # a text is timed as often, and its shortest time counts: others use the machine too
_DELEGATE = re.compile(r"Created TensorFlow Lite (\S+) delegate")


def measure(folder, texts, *, num_threads=1):
    """Translates texts one at a time in a fresh process.

    Args:
        folder: What `export_litert` wrote.
        texts: Strings, at least one.
        num_threads: Threads of the interpreter.

    Returns:
        A dict: `load_seconds` to open the folder, imports not counted; `first_seconds` of the
        first text, with what the runtime prepares; `median_seconds` and `p95_seconds` of a text,
        and `tokens_a_second` of the answers, EOS included, at the best of three times a text;
        `peak_bytes` of resident memory, and `idle_bytes` of it before the folder was opened (both
        `None` where the system does not say); `delegates`, names of those that took over ops.

    Raises:
        RuntimeError: if the process fails.
    """
    package = pathlib.Path(__file__).parents[1]
    paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(folder), str(num_threads)],
        input=json.dumps(list(texts)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"an exported folder must run in a process of its own. Received: exit code "
            f"{done.returncode} for {folder}: {done.stderr[-1000:].strip()}"
        )
    found = json.loads(done.stdout)
    return {**found, "delegates": sorted(set(_DELEGATE.findall(done.stderr)))}


def _run(folder, num_threads, texts):
    import ai_edge_litert.interpreter  # noqa: F401  (before the clock starts)

    from keras_transformer_runner.runner import Runner

    idle = _memory("VmRSS")
    start = time.perf_counter()
    runner = Runner(folder, num_threads=num_threads)
    loaded = time.perf_counter()
    runner.translate(texts[:1])
    first = time.perf_counter()
    seconds, tokens = [], 0
    for text in texts:
        passes = []
        for _ in range(_PASSES):
            begin = time.perf_counter()
            ids = runner.translate_ids(runner.encode(text))
            runner.decode(ids)
            passes.append(time.perf_counter() - begin)
        seconds.append(min(passes))
        tokens += len(ids) + 1
    return {
        "sentences": len(texts),
        "load_seconds": loaded - start,
        "first_seconds": first - loaded,
        "median_seconds": statistics.median(seconds),
        "p95_seconds": sorted(seconds)[round(0.95 * (len(seconds) - 1))],
        "tokens_a_second": tokens / sum(seconds),
        "idle_bytes": idle,
        "peak_bytes": _memory("VmHWM"),
    }


def _memory(field):
    """A figure of this process in bytes, or `None`.

    Not `getrusage`: there a child starts with the peak of the process that started it.
    """
    try:
        status = pathlib.Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


if __name__ == "__main__":
    texts = json.loads(sys.stdin.buffer.read())
    print(json.dumps(_run(sys.argv[1], int(sys.argv[2]), texts)))
