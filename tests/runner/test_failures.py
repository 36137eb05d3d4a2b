"""Every error as one line: what is wrong and where, without a graph's or Python's own places."""

import struct
import zipfile

import pytest
import tensorflow as tf

from keras_transformer_runner.failures import told


def caught(make):
    with pytest.raises(Exception) as info:
        make()
    return info.value


def fail(error):
    raise error


def damaged_records(tmp_path):
    path = tmp_path / "records"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"abc" * 9)
    path.write_bytes(path.read_bytes()[:-5])
    return tf.data.TFRecordDataset(str(path))


@tf.function
def checked(x):
    check = tf.debugging.Assert(x < 1, ["a shard must be whole. Received:", "/a/b"])
    with tf.control_dependencies([check]):
        return tf.identity(x)


TENSORFLOW = {
    "damaged": (
        lambda path: list(damaged_records(path)),
        "a file must be whole as it was written. Received: DataLossError: truncated record at 0",
    ),
    "missing": (
        lambda path: list(tf.data.TFRecordDataset(str(path / "no"))),
        "what TensorFlow reads must exist. Received: NotFoundError: ",
    ),
    "open files": (
        lambda path: fail(tf.errors.ResourceExhaustedError(None, None, "/a/b; Too many files")),
        "there must be enough memory, disk space and open files. Received: ResourceExhaustedError: "
        "/a/b; Too many files",
    ),
    "the package's own rule, in a graph": (
        lambda path: checked(tf.constant(3)),
        "a shard must be whole. Received: /a/b",
    ),
    "in a dataset": (
        lambda path: list(tf.data.Dataset.range(3).map(checked)),
        "a shard must be whole. Received: /a/b",
    ),
    "any other": (
        lambda path: tf.function(lambda x: tf.gather([1.0, 2.0], x))(tf.constant(7)),
        "TensorFlow must be able to go on. Received: InvalidArgumentError: indices = 7 is not in",
    ),
}


@pytest.mark.parametrize("make, expected", TENSORFLOW.values(), ids=TENSORFLOW)
def test_tensorflows_errors(make, expected, tmp_path):
    line = told(caught(lambda: make(tmp_path)))
    assert line.startswith(expected)
    assert "\n" not in line and not any(sign in line for sign in ("{{", "[[", "Op:", "File "))
    assert len(line) < 300


def test_what_is_raised_inside_a_traced_function():
    @tf.function
    def traced(x):
        raise ValueError("`x` must be odd.\nReceived: 2")

    error = caught(lambda: traced(tf.constant(2)))
    assert "in user code" in str(error)
    assert told(error) == "`x` must be odd. Received: 2"


@pytest.mark.parametrize(
    "error, line",
    [
        (ValueError("a rule.\n  Received: 3"), "a rule. Received: 3"),
        (FileNotFoundError(2, "No such file", "a/b"), "[Errno 2] No such file: 'a/b'"),
        (ValueError("\x1b[1mbold\x1b[0m"), "bold"),
        (
            ValueError("Exception encountered when calling A.call().\n\nrule\n\n"
                       "Arguments received by A.call():\n  • x"),
            "rule",
        ),
        (MemoryError(), "there must be enough memory. Received: MemoryError"),
        (MemoryError("8 GiB"), "there must be enough memory. Received: 8 GiB"),
        (KeyError("x"), "KeyError: 'x' (not expected: --traceback shows where)"),
        (EOFError(), "EOFError (not expected: --traceback shows where)"),
        (OverflowError("int"), "OverflowError: int (not expected: --traceback shows where)"),
        (struct.error("4"), "error: 4 (not expected: --traceback shows where)"),
        (zipfile.BadZipFile("x"), "BadZipFile: x (not expected: --traceback shows where)"),
        (RecursionError("deep"), "RecursionError: deep (not expected: --traceback shows where)"),
        (RuntimeError(), "RuntimeError (not expected: --traceback shows where)"),
    ],
)  # fmt: skip
def test_other_errors(error, line):
    assert told(error) == line
    assert told(error, "-v").endswith(line.split("(")[-1].replace("--traceback", "-v"))
