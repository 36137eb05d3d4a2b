"""What TF Serving's batching does to calls: merged along axis 0, run once, and split again.

After tensorflow_serving/batching/batching_session.cc and TensorFlow's shared_batch_scheduler.h,
their faults included: what a merged call fails with, all of its calls fail with.
"""

import collections
import dataclasses
import os
import threading
import time

import grpc
import numpy as np
from serving_protos import read_text

_NUMBERS = (
    "max_batch_size",
    "batch_timeout_micros",
    "max_enqueued_batches",
    "num_batch_threads",
)


class Fault(Exception):
    """What a call is answered with when it cannot be run."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


@dataclasses.dataclass(frozen=True)
class Parameters:
    """A `BatchingParameters` message; the defaults are TensorFlow's."""

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = os.cpu_count() or 1
    allowed_batch_sizes: tuple = ()
    pad_variable_length_inputs: bool = False


def read_parameters(path):
    """Reads a `--batching_parameters_file` as the server does, which knows these names alone."""
    found = read_text(path, "BatchingParameters")
    parameters = Parameters(
        allowed_batch_sizes=tuple(found.allowed_batch_sizes),
        pad_variable_length_inputs=found.pad_variable_length_inputs,
        **{name: getattr(found, name).value for name in _NUMBERS if found.HasField(name)},
    )
    sizes = list(parameters.allowed_batch_sizes)
    if sizes and [*sorted(set(sizes[:-1])), parameters.max_batch_size] != sizes:
        raise ValueError(f"`allowed_batch_sizes` must rise to `max_batch_size`. Received: {sizes}")
    return parameters


class Task:
    """One call that waits for its batch."""

    def __init__(self, inputs):
        self.inputs, self.rows = inputs, _rows(inputs)
        self.since, self.done = time.monotonic(), threading.Event()
        self.outputs = self.fault = None


class Batcher:
    """Calls of the same function, and the same inputs and outputs of it, share a run."""

    def __init__(self, parameters):
        if parameters.pad_variable_length_inputs:
            raise NotImplementedError("padding puts text where pads belong: see batching.config")
        self.parameters, self.changed = parameters, threading.Condition()
        self.queues = {}  # batches, lists of tasks, by key; the last may still grow
        self.merged = collections.Counter()  # how many runs had so many calls
        for _number in range(parameters.num_batch_threads):
            threading.Thread(target=self._work, daemon=True).start()

    def run(self, key, function, inputs):
        """`function(inputs)`, together with other calls of the same key.

        Raises:
            Fault: its own, or that of a call in the same batch.
        """
        task = Task(inputs)
        most = self.parameters.max_batch_size
        if task.rows > most:
            message = f"Task size {task.rows} is larger than maximum input batch size {most}"
            raise Fault(grpc.StatusCode.INVALID_ARGUMENT, message)
        with self.changed:
            _function, batches = self.queues.get(key, (function, collections.deque()))
            if not batches or _size(batches[-1]) + task.rows > most:
                if len(batches) >= self.parameters.max_enqueued_batches:
                    message = "The batch scheduling queue to which this task was submitted is full"
                    raise Fault(grpc.StatusCode.UNAVAILABLE, message)
                batches.append([])
                self.queues[key] = function, batches
            batches[-1].append(task)
            self.changed.notify()
        task.done.wait()
        if task.fault is not None:
            raise task.fault
        return task.outputs

    def _work(self):
        while True:
            with self.changed:
                while (due := self._due()) is None:
                    self.changed.wait(self._seconds_left())
                function, batches = self.queues[due]
                tasks = batches.popleft()
                if not batches:
                    del self.queues[due]  # and with it the version of the model
                self.merged[len(tasks)] += 1
            try:
                self._answer(function, tasks)
            except Exception as error:  # whatever it is, no call waits for ever
                for task in tasks:
                    task.fault = error
            for task in tasks:
                task.done.set()
            del function, tasks

    def _due(self):
        """The key whose oldest batch is to run, or `None`."""
        wait = self.parameters.batch_timeout_micros / 1e6
        for key, (_function, batches) in self.queues.items():
            is_full = len(batches) > 1 or _size(batches[0]) == self.parameters.max_batch_size
            if is_full or time.monotonic() - batches[0][0].since >= wait:
                return key
        return None

    def _seconds_left(self):
        wait = self.parameters.batch_timeout_micros / 1e6
        ends = [batches[0][0].since + wait for _function, batches in self.queues.values()]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _answer(self, function, tasks):
        rows = _size(tasks)
        sizes = self.parameters.allowed_batch_sizes
        padding = next((size for size in sizes if size >= rows), rows) - rows
        outputs = function(_merged([task.inputs for task in tasks], padding))
        for name, values in outputs.items():
            if not np.ndim(values) or len(values) != rows + padding:
                message = f"Batched output tensor's 0th dimension does not fit: {name}"
                raise Fault(grpc.StatusCode.FAILED_PRECONDITION, message)
        start = 0
        for task in tasks:
            end = start + task.rows
            task.outputs = {name: values[start:end] for name, values in outputs.items()}
            start = end


def _rows(inputs):
    if any(not np.ndim(values) for values in inputs.values()):
        message = "Batching Run() input tensors must have at least one dimension"
        raise Fault(grpc.StatusCode.INVALID_ARGUMENT, message)
    counts = {len(values) for values in inputs.values()}
    if len(counts) != 1:
        message = "Batching Run() input tensors must have equal 0th-dimension size"
        raise Fault(grpc.StatusCode.INVALID_ARGUMENT, message)
    return counts.pop()


def _size(tasks):
    return sum(task.rows for task in tasks)


def _merged(calls, padding):
    found = {}
    for name in calls[0]:
        parts = [inputs[name] for inputs in calls]
        if len({values.shape[1:] for values in parts}) > 1:
            message = f"Tensors with name '{name}' from different tasks have different shapes and "
            message += "padding is turned off."
            raise Fault(grpc.StatusCode.FAILED_PRECONDITION, message)
        if len({values.dtype for values in parts}) > 1:
            message = "Tensor concat operation failed: Cannot concatenate tensors that have "
            raise Fault(grpc.StatusCode.INTERNAL, message + "different data types.")
        if padding:  # copies of the first row of the last call
            if not len(parts[-1]):
                os.abort()  # Check failed: limit <= dim0_size; the server dies of it
            parts += [parts[-1][:1]] * padding
        found[name] = np.concatenate(parts)
    return found
