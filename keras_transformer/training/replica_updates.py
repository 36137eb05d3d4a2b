"""Updates under a `tf.distribute` strategy that equal those of a single device."""

import keras

from keras_transformer.training.optimizer import AdamW


class ReplicaUpdates:
    """Base of an optimizer for several replicas; it stands before a Keras optimizer.

    Keras sums the gradients of replicas as it applies them. With `gradient_accumulation_steps`
    that is within a condition, where TensorFlow cannot; and each replica clips before it, to a
    norm that is not the batch's. Here the sum comes first, and is what is accumulated, clipped and
    applied. To this end a private method of Keras 3.13 to 3.15 is replaced.
    """

    def _backend_apply_gradients(self, grads, trainable_variables):
        import tensorflow as tf

        replica = tf.distribute.get_replica_context()
        sums = replica.all_reduce(tf.distribute.ReduceOp.SUM, list(grads))
        sums = [tf.convert_to_tensor(value) for value in sums]  # that of a lookup is sparse
        batches, slots = self.gradient_accumulation_steps or 1, []
        if batches > 1:
            indices = [self._get_variable_index(each) for each in trainable_variables]
            slots = [self._accumulated_gradients[index] for index in indices]
            sums = [slot + value for slot, value in zip(slots, sums, strict=True)]
        mean = self._clip_gradients([value / batches for value in sums])
        is_due = tf.equal((self._iterations.value + 1) % batches, 0)

        def apply(strategy, sums, mean, rate, is_due):
            def update():
                self._update(strategy, trainable_variables, mean, rate)
                _assign(strategy, slots, [tf.zeros_like(value) for value in slots])

            if batches == 1:
                update()
            else:
                is_due = strategy.experimental_local_results(is_due)[0]
                tf.cond(is_due, update, lambda: _assign(strategy, slots, sums))

        replica.merge_call(apply, args=(sums, mean, self.learning_rate, is_due))
        if self.use_ema:
            self._update_model_variables_moving_average(self._trainable_variables)

    def _update(self, strategy, variables, grads, rate):
        """Decays and updates each variable, in the context of all replicas."""

        def update(variable, grad, rate):
            if self.weight_decay is not None and self._use_weight_decay(variable):
                variable.assign_sub(variable * self.weight_decay * rate)
            self.update_step(grad, variable, rate)

        for variable, grad in zip(variables, grads, strict=True):
            strategy.extended.update(variable.value, update, args=(grad, rate), group=False)


def _assign(strategy, variables, values):
    for variable, value in zip(variables, values, strict=True):
        strategy.extended.update(
            variable.value, lambda each, new: each.assign(new), args=(value,), group=False
        )


class ReplicaAdam(ReplicaUpdates, keras.optimizers.Adam):
    """`keras.optimizers.Adam` for several replicas."""


class ReplicaAdamW(ReplicaUpdates, AdamW):
    """`AdamW` for several replicas."""
