"""Training on several devices: what must be summed over them, and how a batch is split."""

import keras


def sum_over_replicas(value):
    """The sum of a scalar over the replicas of a `tf.distribute` strategy; itself without one."""
    if keras.backend.backend() != "tensorflow":
        return value  # JAX sees the whole batch as one array
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def distributed(strategy, make_batches, pad_id, ids=None):
    """Batches for `fit` under a `tf.distribute` strategy: each replica gets its share of the rows.

    All replicas together see the batches of a single process, in their order. A batch whose rows
    do not divide evenly is filled up with rows of pads, which no loss or metric counts.

    Args:
        strategy: The strategy.
        make_batches: Makes the `tf.data.Dataset` of whole batches.
        pad_id: The id that fills rows.
        ids: The `models.checked_data.Ids` that whole batches are held to, so that all workers stop
            at the same one; `None` for any.

    Returns:
        A `tf.distribute.DistributedDataset`.
    """
    replicas = strategy.num_replicas_in_sync

    def of_worker(context):
        here = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * here
        batches = make_batches() if ids is None else ids.checked_dataset(make_batches())
        return batches.flat_map(lambda *batch: _shares(batch, replicas, first, here, pad_id))

    return strategy.distribute_datasets_from_function(of_worker)


def _shares(batch, replicas, first, count, pad_id):
    """Shares `first` to `first + count` of the rows of a batch, as a dataset of `count` batches."""
    import tensorflow as tf

    def split(array):
        missing = -tf.shape(array)[0] % replicas
        fill = tf.cast(pad_id if array.dtype.is_integer else 0, array.dtype)
        paddings = [[0, missing], *[[0, 0]] * (array.shape.rank - 1)]
        filled = tf.pad(array, paddings, constant_values=fill)
        shares = tf.reshape(filled, tf.concat([[replicas, -1], tf.shape(array)[1:]], axis=0))
        return shares[first : first + count]

    return tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(split, batch))
