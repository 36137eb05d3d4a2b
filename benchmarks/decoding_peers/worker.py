"""The child process that a system decodes in: warm up, then decode when the parent says so.

Imports only NumPy and `orders`, so that it runs in any peer's environment. Orders:

    {"do": "warm_up", "beams": 4}    decodes its batches twice, untimed; answers with their rows
    {"do": "decode", "beams": 4}     decodes its batches once, timed
    {"do": "memory", "beams": 4, "rows": 32}    peak memory of one batch of so many rows

Its batches are all of them, the longest first, or its share of them where several processes work.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import orders


class Decoder(NamedTuple):
    """What a system's script makes.

    Attributes:
        versions: What is in use, to be written into the report.
        decode: Function of a list of batches, (B, S) int32 source ids each, of the number of beams
            and of the longest row allowed in each batch. Gives for each batch B rows of ids,
            arrays or lists; what follows EOS is not looked at, and EOS itself may be left out.
            It may overlap the batches as it likes, but decodes each as one.
    """

    versions: dict
    decode: Callable


def one_by_one(decode):
    """The `decode` of a `Decoder`, of a function of one batch, the beams and its longest row."""

    def decode_all(batches, beams, limits):
        return [decode(batch, beams, limit) for batch, limit in zip(batches, limits, strict=True)]

    return decode_all


class Weights(dict):
    """Arrays by our names of them, such as `encoder_0/self_attention/output/kernel`."""

    def dense(self, name):
        """Kernel and bias."""
        return [self[f"{name}/kernel"], self[f"{name}/bias"]]

    def norm(self, name):
        """Scale and offset."""
        return [self[f"{name}/gamma"], self[f"{name}/beta"]]

    def heads(self, name, count):
        """A projection to heads: kernel (D, N, H) and bias (N, H)."""
        kernel, bias = self.dense(name)
        return [kernel.reshape(len(kernel), count, -1), bias.reshape(count, -1)]

    def query_key_value(self, name, count):
        """The three kernels and biases of self-attention, which lie side by side here."""
        kernel, bias = self.dense(f"{name}/query_key_value")
        kernels, biases = np.split(kernel, 3, axis=1), np.split(bias, 3)
        return [
            [part.reshape(len(kernel), count, -1), offset.reshape(count, -1)]
            for part, offset in zip(kernels, biases, strict=True)
        ]

    def from_heads(self, name, count):
        """A projection from heads: kernel (N, H, D) and bias (D,)."""
        kernel, bias = self.dense(name)
        return [kernel.reshape(count, -1, kernel.shape[1]), bias]


def check_options(task):
    """Raises ValueError for a model that the peers, as they are set up here, do not compute.

    Its other options are those that `save_ctranslate2` has checked.
    """
    for name, expected in (("residual", "pre"), ("activation", "relu")):
        if (received := getattr(task, name)) != expected:
            raise ValueError(f"`{name}` must be {expected!r} here. Received: {received!r}")


def serve(make_decoder):
    """Answers orders; `make_decoder(task, settings, weights, folder)` gives a `Decoder`."""

    def start(folder, task, settings):
        with np.load(folder / "weights.npz") as file:
            weights = Weights(file)
        with np.load(folder / "sources.npz") as file:
            batches = orders.own_share(settings, [file[name] for name in file.files])
        decoder = make_decoder(task, settings, weights, folder)

        def answer(do, beams, rows=None):
            if do == "memory":
                return _memory(decoder.decode, batches[-1], beams, rows, task)
            if do == "warm_up":
                _decode(decoder.decode, batches, beams, task)
            found, seconds = _decode(decoder.decode, batches, beams, task)
            result = {"ids": sum(len(row) for rows in found for row in rows), "seconds": seconds}
            return result | {"rows": found} if do == "warm_up" else result

        return decoder.versions, answer

    orders.answer_orders(start)


def _decode(decode, batches, beams, task):
    """The rows of each batch, EOS included, and the seconds that decoding took."""
    limits = [longest(batch, task) for batch in batches]
    start = time.perf_counter()
    outputs = decode(batches, beams, limits)
    seconds = time.perf_counter() - start
    return [
        [own_ids(row, source, task) for source, row in zip(batch, rows, strict=True)]
        for batch, rows in zip(batches, outputs, strict=True)
    ], seconds


def longest(batch, task):
    """The longest row allowed for any of these sources, EOS included."""
    return task.exact_length or batch.shape[1] + task.extra_length


def own_ids(row, source, task):
    """A row up to its EOS, or to its own limit where there is none before."""
    limit = task.exact_length or int((source != task.pad_id).sum()) + task.extra_length
    ids = []
    for token in row[:limit]:
        if token in (task.eos_id, task.pad_id):
            break
        ids.append(int(token))
    return ids if len(ids) == limit else [*ids, task.eos_id]


def _memory(decode, batch, beams, rows, task):
    """Peak resident memory of one batch above that of the process that waits for it, MiB."""
    batch = np.resize(batch, (rows, batch.shape[1]))
    limits = [longest(batch, task)]
    decode([batch[:1]], beams, limits)  # graph, threads and their arenas
    before = _resident("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is from now on
    decode([batch], beams, limits)
    return {"mebibytes": _resident("VmHWM") - before}


def _resident(field):
    with open("/proc/self/status") as lines:
        [kibibytes] = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(kibibytes) / 1024
