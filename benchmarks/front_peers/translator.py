"""A system that translates texts one at a time on one thread, in a process of its own.

Its settings name the `system`, "litert" or "ctranslate2", and the folders that it needs. Orders:
`translate` all sentences, or time a `round` of the first `count`.
"""

import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from processes.orders import answer_orders


def start(folder, task, settings):
    make = litert if settings.system == "litert" else ctranslate2_
    versions, translate = make(pathlib.Path(settings.device), settings)

    def answer(do, count=0):
        if do == "translate":
            return {"texts": [translate(text) for text in task.texts], "MiB": peak_mebibytes()}
        start = time.perf_counter()
        for text in task.texts[:count]:
            translate(text)
        return {"seconds": time.perf_counter() - start}

    return versions, answer


def litert(device, settings):
    import importlib.metadata

    from keras_transformer_runner.runner import Runner

    runner = Runner(device)
    version = importlib.metadata.version("ai-edge-litert")
    return {"ai-edge-litert": version}, lambda text: runner.translate([text])[0]


def ctranslate2_(device, settings):
    """With the tokenizers of the device folder, and tokens that are ids, written out."""
    import ctranslate2

    from keras_transformer_runner.folder import open_folder

    opened, translator = open_folder(device), ctranslate2.Translator(
        settings.weights, compute_type="int8", inter_threads=1, intra_threads=1
    )  # fmt: skip
    source, target = opened.tokenizer, opened.target_tokenizer or opened.tokenizer

    def translate(text):
        ids = source.encode(text)
        if not ids:
            return ""
        [found] = translator.translate_batch(
            [[str(token) for token in ids]], beam_size=settings.beam_size,
            length_penalty=settings.length_penalty, use_vmap=settings.shortlist,
            min_decoding_length=0, max_decoding_length=len(ids) + 1 + settings.extra_length,
        )  # fmt: skip
        return target.decode([int(token) for token in found.hypotheses[0]])

    return {"ctranslate2": ctranslate2.__version__}, translate


def peak_mebibytes():
    """The most resident memory that the process has had (Linux)."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.M)[1]) / 1024


if __name__ == "__main__":
    answer_orders(start)
