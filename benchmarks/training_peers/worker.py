"""The child process that a system trains in: warm up, then train when the parent says so.

Imports only NumPy and `orders`, so that it runs in any peer's environment. A system's script calls
`serve`. The parent's orders:

    {"do": "warm_up", "feed": "plain"}                          each shape twice
    {"do": "train", "feed": "plain", "first": 0, "steps": 30}   timed steps
    {"do": "memory"}                                            peak of a GPU's, bytes
"""

import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import orders
from peak_memory import peak_memory

# So many shapes warm a system up: one that compiles each, or all at once, and one that does not.
_COMPILED_SHAPES, _OTHER_SHAPES = 16, 3


class Trainer(NamedTuple):
    """What a system's script makes.

    Attributes:
        versions: What is in use, to be written into the report.
        step: Function of source ids, target ids and labels, int32 (B, S), (B, T) and (B, T),
            that makes one update and returns the loss.
        forget: Makes a step that returns a running mean of the loss start again.
        library: What computes, `"jax"`, `"tensorflow"` or `"torch"`.
    """

    versions: dict
    step: Callable
    forget: Callable = lambda: None
    library: str = "tensorflow"


def serve(make_trainer, stream=None):
    """Answers orders until the parent closes the pipe.

    Args:
        make_trainer: Function of the task and the settings, two namespaces, that gives a
            `Trainer`.
        stream: Function of the task and its folder that gives the batches of "train" without
            end; those of the feed's file, over and over, when it or what it gives is `None`.
    """

    def start(folder, task, settings):
        trainer = make_trainer(task, settings)
        streamed = stream(task, folder) if stream else None
        feeds = {}

        def answer(do, feed=None, first=0, steps=None):
            if do == "memory":
                return {"peak": peak_memory(trainer.library)}
            if feed not in feeds:
                feeds[feed] = read_batches(folder / f"{feed}.npz", task)
            trainer.forget()
            if do == "warm_up":
                return _warm_up(trainer.step, feeds[feed], settings.compiled)
            batches = streamed or _from(feeds[feed], first)
            return _train(trainer.step, itertools.islice(batches, steps), task.pad_id)

        return trainer.versions, answer

    orders.answer_orders(start)


def read_batches(path, task):
    """The (source ids, target ids, labels) of every batch in a file of `batches.write`."""
    with np.load(path) as file:
        shapes, sources, labels = file["shapes"], file["sources"], file["labels"]
    batches, source_end, label_end = [], 0, 0
    for rows, source_length, target_length in shapes:
        source_start, source_end = source_end, source_end + rows * source_length
        label_start, label_end = label_end, label_end + rows * target_length
        source = sources[source_start:source_end].reshape(rows, source_length)
        label = labels[label_start:label_end].reshape(rows, target_length)
        batches.append((source, shifted_right(label, task), label))
    return batches


def shifted_right(labels, task):
    """The decoder's input: labels behind BOS, without EOS; rows of pads stay so."""
    targets = np.full_like(labels, task.pad_id)
    targets[:, 0] = np.where(labels[:, 0] == task.pad_id, task.pad_id, task.bos_id)
    targets[:, 1:] = np.where(labels == task.eos_id, task.pad_id, labels)[:, :-1]
    return targets


def _warm_up(step, batches, compiled):
    """Two steps on each shape, the most frequent first."""
    by_shape = {}
    for batch in batches:
        by_shape.setdefault((batch[0].shape, batch[2].shape), []).append(batch)
    groups = sorted(by_shape.values(), key=len, reverse=True)
    groups = groups[: _COMPILED_SHAPES if compiled else _OTHER_SHAPES]
    start = time.perf_counter()
    losses = [float(step(*group[0])) for group in groups]
    # A graph that has just been compiled for some shapes may be traced again for all.
    for group in groups:
        step(*group[-1])
    return {
        "shapes": len(groups),
        "seconds": time.perf_counter() - start,
        "first_loss": losses[0],
    }


def _train(step, batches, pad_id):
    """Timed steps; getting the batch and handing it over counts."""
    tokens, slots, losses, seconds = 0, 0, [], []
    start = before = time.perf_counter()
    for source, target, labels in batches:
        losses.append(float(step(source, target, labels)))
        real = np.asarray(labels) != pad_id
        tokens, slots = tokens + int(real.sum()), slots + real.size
        now = time.perf_counter()
        seconds.append(now - before)
        before = now
    return {
        "tokens": tokens,
        "slots": slots,
        "seconds": before - start,
        "steps": len(seconds),
        "slowest_step": max(seconds),
        "loss": losses[-1],
    }


def _from(batches, first):
    return (batches[i % len(batches)] for i in itertools.count(first))
