"""Seq2SeqTransformer of tf-models-official. It shifts the targets itself, behind id 0."""

import tensorflow_parts
import worker


def make_trainer(task, settings):
    tf = tensorflow_parts.start(settings)
    import importlib.metadata

    from official.nlp.modeling.models import seq2seq_transformer

    tf.keras.utils.set_random_seed(task.seed)
    options = dict(
        num_layers=task.layers,
        num_attention_heads=task.num_heads,
        intermediate_size=task.intermediate_dim,
        dropout_rate=task.dropout,
        attention_dropout_rate=task.dropout,
        intermediate_dropout=task.dropout,
        use_bias=True,
        norm_first=True,
    )
    model = seq2seq_transformer.Seq2SeqTransformer(
        vocab_size=task.vocab_size,
        embedding_width=task.model_dim,
        dropout_rate=task.dropout,
        encoder_layer=seq2seq_transformer.TransformerEncoder(**options),
        decoder_layer=seq2seq_transformer.TransformerDecoder(**options),
        eos_id=task.eos_id,
    )
    optimizer = tf.keras.optimizers.Adam(task.learning_rate, 0.9, 0.98, 1e-9)
    ids = tf.constant([[task.eos_id]])
    model({"inputs": ids, "targets": ids}, training=True)
    optimizer.build(model.trainable_variables)

    spec = tf.TensorSpec((None, None), tf.int32)

    @tf.function(jit_compile=settings.compiled, input_signature=[spec, spec])
    def update(source, labels):
        with tf.GradientTape() as tape:
            logits = model({"inputs": source, "targets": labels}, training=True)
            loss = tensorflow_parts.smoothed_loss(tf, labels, logits, task)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    def step(source, target, labels):
        return update(source, labels)

    versions = {
        "tensorflow": tf.__version__,
        "tf-models-official": importlib.metadata.version("tf-models-official"),
    }
    return worker.Trainer({**versions, "weights": model.count_params()}, step)


if __name__ == "__main__":
    worker.serve(make_trainer)
