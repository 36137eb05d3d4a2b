"""The most memory of a GPU that this process' arrays took.

Imports the library in use alone, so that it runs in any peer's environment.
"""


def peak_memory(library):
    """Bytes of the first GPU, or `None` where there is none; `library` is the one that computes."""
    return {"jax": _of_jax, "tensorflow": _of_tensorflow, "torch": _of_torch}[library]()


def _of_jax():
    import jax

    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def _of_tensorflow():
    import tensorflow as tf

    if tf.config.get_visible_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    return None


def _of_torch():
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
