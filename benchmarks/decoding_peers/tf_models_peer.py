"""Seq2SeqTransformer of tf-models-official and its own cached beam search, with our weights.

It begins with id 0 whatever the tokenizer's BOS is: the rows of the two ids change places. Its
positions are "tensor2tensor"; a table of ours takes their place where a model has others.
"""

import orders
import worker


def make_decoder(task, settings, weights, folder):
    worker.check_options(task)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(orders.cores())
    tf.config.set_visible_devices([], "GPU")
    import importlib.metadata

    from official.nlp.modeling.models import seq2seq_transformer

    models = {}

    def search_with(beams, longest):
        model = model_of(task, weights, seq2seq_transformer, tf, beams, longest, settings)

        def search(source_ids):
            return model({"inputs": source_ids}, training=False)["outputs"]

        spec = tf.TensorSpec((None, None), tf.int32)
        if settings.compiled:  # its search needs sizes that are known
            return tf.function(search, jit_compile=True)
        return tf.function(search, input_signature=[spec])

    def decode(source_ids, beams, longest):
        # Without padding the limit can be counted from the source; with it, it is the model's.
        fixed = task.exact_length or (longest if settings.compiled else None)
        if (beams, fixed) not in models:
            models[beams, fixed] = search_with(beams, fixed)
        return models[beams, fixed](tf.constant(source_ids)).numpy()

    versions = {
        "tensorflow": tf.__version__,
        "tf-models-official": importlib.metadata.version("tf-models-official"),
    }
    return worker.Decoder(versions, worker.one_by_one(decode))


def model_of(task, weights, seq2seq_transformer, tf, beams, longest, settings):
    options = dict(
        num_attention_heads=task.num_heads,
        intermediate_size=task.intermediate_dim,
        use_bias=True,
        norm_first=True,
        norm_epsilon=task.norm_epsilon,
    )
    model = seq2seq_transformer.Seq2SeqTransformer(
        vocab_size=task.vocab_size,
        embedding_width=task.model_dim,
        encoder_layer=seq2seq_transformer.TransformerEncoder(task.encoder_layers, **options),
        decoder_layer=seq2seq_transformer.TransformerDecoder(task.decoder_layers, **options),
        eos_id=task.eos_id,
        beam_size=beams,
        alpha=task.length_penalty,
        decode_max_length=longest,
        extra_decode_length=task.extra_length,
        padded_decode=settings.compiled,
    )
    if task.positions != "tensor2tensor":
        model.position_embedding = position_table(tf, weights["positions"])
    ids = tf.constant([[task.eos_id]])
    model({"inputs": ids, "targets": ids}, training=False)
    set_weights(model, weights, task)
    return model


def position_table(tf, table):
    """A layer that is called as tf-models calls its `RelativePositionEmbedding`."""

    class Positions(tf.Module):
        def __call__(self, inputs, length=None):
            length = tf.shape(inputs)[1] if length is None else length
            return tf.constant(table)[:length]

    return Positions()


def set_weights(model, weights, task):
    if task.pad_id:
        raise ValueError(f"`pad_id` must be 0 for tf-models. Received: {task.pad_id}")
    embeddings = weights["embedding/embeddings"].copy()
    embeddings[[0, task.bos_id]] = embeddings[[task.bos_id, 0]]
    model.embedding_lookup.embeddings.assign(embeddings)
    for index, block in enumerate(model.encoder_layer.encoder_layers):
        name = f"encoder_{index}"
        set_attention(block._attention_layer, f"{name}/self_attention", weights, task)
        block._attention_layer_norm.set_weights(weights.norm(f"{name}/self_attention_norm"))
        block._intermediate_dense.set_weights(weights.dense(f"{name}/feed_forward/intermediate"))
        block._output_dense.set_weights(weights.dense(f"{name}/feed_forward/output"))
        block._output_layer_norm.set_weights(weights.norm(f"{name}/feed_forward_norm"))
    for index, block in enumerate(model.decoder_layer.decoder_layers):
        name = f"decoder_{index}"
        set_attention(block.self_attention, f"{name}/self_attention", weights, task)
        block.self_attention_layer_norm.set_weights(weights.norm(f"{name}/self_attention_norm"))
        set_attention(block.encdec_attention, f"{name}/cross_attention", weights, task)
        block.encdec_attention_layer_norm.set_weights(weights.norm(f"{name}/cross_attention_norm"))
        block.intermediate_dense.set_weights(weights.dense(f"{name}/feed_forward/intermediate"))
        block.output_dense.set_weights(weights.dense(f"{name}/feed_forward/output"))
        block.output_layer_norm.set_weights(weights.norm(f"{name}/feed_forward_norm"))
    model.encoder_layer.output_normalization.set_weights(weights.norm("encoder_norm"))
    model.decoder_layer.output_normalization.set_weights(weights.norm("decoder_norm"))


def set_attention(layer, name, weights, task):
    if name.endswith("self_attention"):
        parts = weights.query_key_value(name, task.num_heads)
    else:
        parts = [weights.heads(f"{name}/{x}", task.num_heads) for x in ("query", "key", "value")]
    for dense, arrays in zip(
        (layer._query_dense, layer._key_dense, layer._value_dense), parts, strict=True
    ):
        dense.set_weights(arrays)
    layer._output_dense.set_weights(weights.from_heads(f"{name}/output", task.num_heads))


if __name__ == "__main__":
    worker.serve(make_decoder)
