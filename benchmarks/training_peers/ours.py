"""keras_transformer, set up as `keras-transformer train` does it."""

import numpy as np
import worker

from keras_transformer.quiet import start_tensorflow


def make_trainer(task, settings):
    start_tensorflow()
    import keras
    import tensorflow as tf

    import keras_transformer as kt
    from keras_transformer.experiment.sections import TrainingSection
    from keras_transformer.training import fuse_attention
    from keras_transformer.training.objective import compile_model

    tf.config.threading.set_intra_op_parallelism_threads(settings.threads)
    if keras.backend.backend() != "tensorflow":  # whose GPU it is
        tf.config.set_visible_devices([], "GPU")
    keras.utils.set_random_seed(task.seed)
    config = kt.TransformerConfig(
        vocab_size=task.vocab_size,
        model_dim=task.model_dim,
        num_heads=task.num_heads,
        encoder_layers=task.layers,
        decoder_layers=task.layers,
        intermediate_dim=task.intermediate_dim,
        residual="pre",
        dropout=task.dropout,
        attention_dropout=getattr(settings, "attention_dropout", task.dropout),
        intermediate_dropout=task.dropout,
        pad_id=task.pad_id,
        bos_id=task.bos_id,
        eos_id=task.eos_id,
    )
    model = kt.Transformer(config, dtype=getattr(settings, "policy", "float32"))
    if getattr(settings, "fused", False):
        fuse_attention(model)
    training = TrainingSection(
        max_epochs=1,
        schedule="inverse_sqrt",
        learning_rate=task.learning_rate,
        warmup_steps=30,
        label_smoothing=task.label_smoothing,
        jit_compile=settings.compiled,
    )
    compile_model(model, training)

    def step(source, target, labels):
        inputs = {"source_ids": source, "target_ids": target}
        return model.train_on_batch(inputs, labels)[0]

    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
    made = versions | {"weights": model.count_params()}
    return worker.Trainer(made, step, model.reset_metrics, keras.backend.backend())


def stream(task, folder):
    """The batches of `training_batches`, from its own pipeline; `None` without a corpus."""
    if not (folder / "corpus.npz").exists():
        return None
    from keras_transformer.data import TokenizedCorpus, training_batches

    with np.load(folder / "corpus.npz") as file:
        tokenized = TokenizedCorpus(**file, skipped={})
    batches = training_batches(tokenized, task, batch_tokens=task.batch_tokens, seed=task.seed)
    return ((x["source_ids"], x["target_ids"], labels) for x, labels in batches)


if __name__ == "__main__":
    worker.serve(make_trainer, stream)
