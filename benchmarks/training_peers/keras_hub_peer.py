"""KerasHub's TransformerEncoder and TransformerDecoder.

Its blocks have no dropout inside the feed-forward layer, which the other systems have.
"""

import tensorflow_parts
import worker


def make_trainer(task, settings):
    tf = tensorflow_parts.start(settings)
    import keras
    import keras_hub

    class Loss(keras.losses.Loss):
        def __call__(self, y_true, y_pred, sample_weight=None):
            if keras.backend.backend() == "tensorflow":
                return tensorflow_parts.smoothed_loss(tf, y_true, y_pred, task)
            return smoothed_loss(keras, y_true, y_pred, task)

    keras.config.set_dtype_policy(getattr(settings, "policy", "float32"))
    keras.utils.set_random_seed(task.seed)
    model = model_of(task, keras, keras_hub)
    optimizer = keras.optimizers.Adam(task.learning_rate, 0.9, 0.98, 1e-9)
    model.compile(optimizer, Loss(), jit_compile=settings.compiled)

    def step(source, target, labels):
        return model.train_on_batch([source, target], labels)

    versions = {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "keras-hub": keras_hub.__version__,
    }
    made = versions | {"weights": model.count_params()}
    return worker.Trainer(made, step, model.reset_metrics, keras.backend.backend())


def smoothed_loss(keras, labels, logits, task):
    """`tensorflow_parts.smoothed_loss` on any backend."""
    ops, eps, size = keras.ops, task.label_smoothing, task.vocab_size
    soft = ops.one_hot(labels, size) * (1 - eps) + eps / size
    losses = keras.losses.categorical_crossentropy(soft, ops.cast(logits, "float32"), True)
    real = ops.cast(ops.not_equal(labels, task.pad_id), "float32")
    return ops.sum(losses * real) / ops.sum(real)


def model_of(task, keras, keras_hub):
    layers = keras_hub.layers
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    embedding = layers.TokenAndPositionEmbedding(
        task.vocab_size, task.max_length, task.model_dim, tie_weights=True
    )
    options = dict(
        intermediate_dim=task.intermediate_dim,
        num_heads=task.num_heads,
        dropout=task.dropout,
        normalize_first=True,
    )
    source_mask = keras.ops.not_equal(source, task.pad_id)
    memory = keras.layers.Dropout(task.dropout)(embedding(source))
    for _ in range(task.layers):
        memory = layers.TransformerEncoder(**options)(memory, padding_mask=source_mask)
    memory = keras.layers.LayerNormalization()(memory)
    states = keras.layers.Dropout(task.dropout)(embedding(target))
    # Pads follow the last token, so the causal mask hides them from it.
    for _ in range(task.layers):
        states = layers.TransformerDecoder(**options)(
            states, memory, encoder_padding_mask=source_mask
        )
    states = keras.layers.LayerNormalization()(states)
    logits = embedding.token_embedding(states, reverse=True)
    return keras.Model([source, target], logits)


if __name__ == "__main__":
    worker.serve(make_trainer)
