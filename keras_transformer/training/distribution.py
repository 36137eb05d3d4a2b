"""Where a run trains: one device, all of a machine, several machines, a TPU."""

import time
from typing import TYPE_CHECKING

import keras

from keras_transformer.arguments import check_size

if TYPE_CHECKING:
    import tensorflow as tf

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
            "`training.strategy` needs the TensorFlow backend; on JAX use "
            f"`training.distribution`. Received: strategy={name!r}, "
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


def has_replicas():
    """Whether a `tf.distribute` strategy of several replicas is the current one."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy() and is_shared(tf.distribute.get_strategy())


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


def sum_over_replicas(value):
    """The sum of a scalar over the replicas of a `tf.distribute` strategy, if there is one."""
    if keras.backend.backend() != "tensorflow":
        return value  # JAX sees the whole batch as one array
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def distributed(strategy, make_batches, pad_id, ids=None, copies=1):
    """Batches for `fit` under a `tf.distribute` strategy: each replica gets its share of the rows.

    All replicas together see the batches of a single process, in their order. A batch whose rows
    do not divide evenly is filled up with rows of pads, which no loss or metric counts.

    Args:
        strategy: The strategy.
        make_batches: Makes the `tf.data.Dataset` of whole batches.
        pad_id: The id that fills rows.
        ids: The `models.checked_data.Ids` that whole batches are held to, so that all workers stop
            at the same one; `None` for any.
        copies: How often a batch holds its rows, one copy after the other, as for R-Drop. So do
            the shares.

    Returns:
        A `tf.distribute.DistributedDataset`.
    """
    import tensorflow as tf

    replicas = strategy.num_replicas_in_sync

    def of_worker(context):
        here = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * here
        batches = make_batches() if ids is None else ids.checked_dataset(make_batches())

        @tf.autograph.experimental.do_not_convert
        def shares(*batch):
            return _shares(batch, replicas, first, here, pad_id, copies)

        return batches.flat_map(shares)

    return strategy.distribute_datasets_from_function(of_worker)


def _shares(batch, replicas, first, count, pad_id, copies=1):
    """Shares `first` to `first + count` of the rows of a batch, as a dataset of `count` batches."""
    import tensorflow as tf

    def split(array):
        row = tf.shape(array)[1:]
        parts = tf.reshape(
            _filled(array, replicas, pad_id, copies), tf.concat([[copies, replicas, -1], row], 0)
        )
        parts = tf.concat(tf.unstack(parts, copies), axis=1)  # a share's rows of each copy
        return parts[first : first + count]

    return tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(split, batch))


def _filled(array, multiple, pad_id, copies=1):
    """An array of a batch with rows of pads, or weights of 0, behind the rows of each copy."""
    import tensorflow as tf

    row = tf.shape(array)[1:]
    parts = tf.reshape(array, tf.concat([[copies, tf.shape(array)[0] // copies], row], axis=0))
    missing = -tf.shape(parts)[1] % multiple
    fill = tf.cast(pad_id if array.dtype.is_integer else 0, array.dtype)
    paddings = [[0, 0], [0, missing], *[[0, 0]] * (array.shape.rank - 1)]
    parts = tf.pad(parts, paddings, constant_values=fill)
    filled = tf.reshape(parts, tf.concat([[copies * tf.shape(parts)[1]], row], axis=0))
    return tf.ensure_shape(filled, [None, *array.shape[1:]])


def with_rows_filled(
    batches: "tf.data.Dataset", multiple: int, pad_id: int, copies: int = 1
) -> "tf.data.Dataset":
    """Fills batches up with rows of pads, so that their rows divide by the devices that share them.

    No loss or metric of this package counts such a row, and dropout gives the others what it
    gives them without.

    Args:
        batches: Of `(inputs, labels)` or `(inputs, labels, weights)`.
        multiple: What rows must divide by.
        pad_id: The id that fills them.
        copies: How often a batch holds its rows, one copy after the other; each is filled up. It
            is 2 for a `RDropCrossEntropy`.

    Returns:
        A `tf.data.Dataset` of the same.

    Example:
        >>> import tensorflow as tf
        >>> from keras_transformer.training import with_rows_filled
        >>> ids = np.array([[5, 3], [6, 3], [7, 3]])
        >>> batches = tf.data.Dataset.from_tensors(({"source_ids": ids}, ids))
        >>> for _, labels in with_rows_filled(batches, multiple=2, pad_id=0):
        ...     print(labels.numpy().tolist())
        [[5, 3], [6, 3], [7, 3], [0, 0]]
    """
    import tensorflow as tf

    check_size(multiple=multiple, copies=copies)
    if multiple == 1:
        return batches

    @tf.autograph.experimental.do_not_convert
    def filled(*batch):
        return tf.nest.map_structure(lambda array: _filled(array, multiple, pad_id, copies), batch)

    return batches.map(filled)
