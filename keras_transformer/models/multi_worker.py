"""What Keras' `fit` needs to run under a `tf.distribute` strategy of several workers."""

from typing import Any


class MultiWorkerFit:
    """Base of a `keras.Model` that can `fit` and `evaluate` under `MultiWorkerMirroredStrategy`.

    Keras 3.13 to 3.15 reduces two things in ways that this strategy refuses: the first batch, to
    learn its shapes, as one nested value, and the logs of a step, which are scalars, over their
    first axis.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        strategy = getattr(self, "_distribute_strategy", None)
        if strategy is not None and iterator is not None:
            import tensorflow as tf

            for _, _, batches in iterator:
                batch = next(batches, None)
                if batch is None:  # used up: a later `evaluate`, with everything built
                    return
                data_batch = tf.nest.map_structure(
                    lambda value: strategy.experimental_local_results(value)[0], batch
                )
                break
            iterator = None
        super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)

    def train_step(self, *args: Any) -> dict:
        return self._with_an_axis(super().train_step(*args))

    def test_step(self, *args: Any) -> dict:
        return self._with_an_axis(super().test_step(*args))

    def _with_an_axis(self, logs):
        """The logs of a step; scalars as vectors where Keras reduces them over an axis."""
        strategy = getattr(self, "_distribute_strategy", None)
        if strategy is None or not hasattr(strategy, "cluster_resolver"):
            return logs
        import tensorflow as tf

        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return logs
        return {name: tf.expand_dims(value, 0) for name, value in logs.items()}
