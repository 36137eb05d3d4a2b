"""Where a run trains: one device, all of a machine, several machines, a TPU."""

import time

import keras

_WAIT_SECONDS = 600


def make_strategy(name):
    """A `tf.distribute.Strategy` by its name in an experiment; the default one for `"none"`.

    Raises:
        RuntimeError: if Keras does not run on TensorFlow.
    """
    if name == "none" and keras.backend.backend() != "tensorflow":
        return None
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            "`training.strategy` needs the TensorFlow backend; on JAX set "
            f"`keras.distribution.DataParallel()`. Received: strategy={name!r}, "
            f"backend={keras.backend.backend()!r}"
        )
    import tensorflow as tf

    if name == "mirrored":
        return tf.distribute.MirroredStrategy(
            [device.name for device in tf.config.list_logical_devices("GPU")]
            or [device.name for device in tf.config.list_logical_devices("CPU")]
        )
    if name == "multi_worker":
        return tf.distribute.MultiWorkerMirroredStrategy()
    if name == "tpu":
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    return tf.distribute.get_strategy()


def is_shared(strategy):
    """Whether more than one replica takes part."""
    return strategy is not None and strategy.num_replicas_in_sync > 1


def is_chief(strategy):
    """Whether this process writes the run folder: of several workers, the first does."""
    resolver = getattr(strategy, "cluster_resolver", None)
    if resolver is None or not resolver.cluster_spec():
        return True
    return resolver.task_id in (0, None) and resolver.task_type in ("chief", "worker", None)


def wait_for(path):
    """Waits until the chief has written a file.

    Raises:
        TimeoutError: after ten minutes.
    """
    end = time.monotonic() + _WAIT_SECONDS
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(
                "workers must see the folder of the first one, on a shared file system. "
                f"Received: no {path} after {_WAIT_SECONDS} seconds"
            )
        time.sleep(0.2)
