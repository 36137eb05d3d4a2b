"""Keeps other libraries' chatter off the terminal."""

import contextlib
import io
import os


@contextlib.contextmanager
def quiet():
    """Nothing printed inside the block reaches standard output or standard error.

    TensorFlow, its converter and the quantizer print from C++ too, so the file descriptors
    themselves are turned away. Errors come as exceptions all the same.
    """
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        saved = [os.dup(1), os.dup(2)]
        try:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            yield
        finally:
            for descriptor, copy in enumerate(saved, start=1):
                os.dup2(copy, descriptor)
                os.close(copy)


def start_tensorflow():
    """Imports TensorFlow, and lets it look for devices, without its start-up messages."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with quiet():
        import tensorflow as tf

        tf.config.list_physical_devices()
