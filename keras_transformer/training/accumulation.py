"""One update from several batches, each weighted by its tokens."""

import keras
from keras import ops

from keras_transformer.arguments import check_size


def weighted_for_accumulation(batches, count, pad_id):
    """Batches with sample weights that make `count` of them one, as far as the loss can tell.

    Keras averages the gradients of `gradient_accumulation_steps` batches, whatever they hold. The
    weight of every row of a batch is `count / tokens`, where `tokens` are the real target tokens
    of its `count` batches: then the average of gradients of a loss with `reduction="sum"` is the
    gradient of the mean over all these tokens.

    Args:
        batches: A `tf.data.Dataset` of `(inputs, labels (B, T))`, from the first batch of an
            update on.
        count: Batches an update.
        pad_id: The label that is no token.

    Returns:
        A `tf.data.Dataset` of `(inputs, labels, weights)`, weights float32 (B,).
    """
    import tensorflow as tf

    check_size(count=count)

    def weighted(inputs, labels):
        tokens = labels.reduce(
            0, lambda total, ids: total + tf.math.count_nonzero(ids != pad_id, dtype=tf.int32)
        )
        weight = count / tf.maximum(tokens, 1)
        return tf.data.Dataset.zip((inputs, labels)).map(
            lambda inputs, labels: (
                inputs,
                labels,
                tf.fill(tf.shape(labels)[:1], tf.cast(weight, tf.float32)),
            )
        )

    return batches.window(count).flat_map(weighted)


@keras.saving.register_keras_serializable(package="keras_transformer")
class PerUpdate(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule over updates, for an optimizer that counts batches.

    Keras hands a schedule the number of batches even where `gradient_accumulation_steps` of them
    make an update, so that a warm-up would end that many times too early.

    Args:
        schedule: A `LearningRateSchedule` over updates.
        batches: Batches an update.
    """

    def __init__(self, schedule, batches):
        super().__init__()
        check_size(batches=batches)
        self.schedule = schedule
        self.batches = batches

    def __call__(self, step):
        return self.schedule(ops.floor_divide(ops.cast(step, "int32"), self.batches))

    def get_config(self):
        schedule = keras.optimizers.schedules.serialize(self.schedule)
        return {"schedule": schedule, "batches": self.batches}

    @classmethod
    def from_config(cls, config):
        schedule = keras.optimizers.schedules.deserialize(config["schedule"])
        return cls(schedule, config["batches"])
