"""What the TensorFlow peers share: devices, and the fastest loss made of public functions."""


def start(settings):
    """TensorFlow with so many threads, on the CPU unless a GPU is asked for."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(settings.threads)
    if not getattr(settings, "gpu", False) or settings.backend != "tensorflow":
        tf.config.set_visible_devices([], "GPU")
    return tf


def smoothed_loss(tf, labels, logits, task):
    """Mean smoothed cross-entropy of the real tokens, as Keras and PyTorch define it.

    Soft targets made dense, as tf-models' own translation task does.
    """
    eps, size = task.label_smoothing, task.vocab_size
    soft = tf.one_hot(labels, size, on_value=1 - eps + eps / size, off_value=eps / size)
    losses = tf.nn.softmax_cross_entropy_with_logits(soft, logits)
    real = tf.cast(labels != task.pad_id, tf.float32)
    return tf.reduce_sum(losses * real) / tf.reduce_sum(real)
