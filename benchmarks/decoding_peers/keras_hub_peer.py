"""KerasHub's TransformerEncoder, cached TransformerDecoder, GreedySampler and BeamSampler.

They are put together as KerasHub's own BartSeq2SeqLM does it, with our weights. Its samplers know
no limit of a row and no length penalty, and a beam that ends goes on: they stop when all have.
"""

import orders
import worker


def make_decoder(task, settings, weights, folder):
    worker.check_options(task)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(orders.cores())
    if not getattr(settings, "gpu", False):
        tf.config.set_visible_devices([], "GPU")
    import keras
    import keras_hub

    model = Model(task, weights, keras, keras_hub)
    samplers = keras_hub.samplers
    functions = {}

    def search_with(beams):
        sampler = samplers.BeamSampler(beams) if beams > 1 else samplers.GreedySampler()
        stop = None if task.exact_length else (task.eos_id,)

        def search(source_ids, prompt):
            return model.generate(source_ids, prompt, sampler, stop)

        # A graph for every size: XLA and `BeamSampler` need to know it.
        return tf.function(search, jit_compile=settings.compiled, reduce_retracing=False)

    def decode(source_ids, beams, longest):
        if beams not in functions:
            functions[beams] = search_with(beams)
        ops = keras.ops
        prompt = ops.full((len(source_ids), longest + 1), task.pad_id, "int32")
        prompt = ops.slice_update(
            prompt, (0, 0), ops.full((len(source_ids), 1), task.bos_id, "int32")
        )
        return functions[beams](tf.constant(source_ids), prompt).numpy()[:, 1:]

    versions = {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "keras-hub": keras_hub.__version__,
    }
    return worker.Decoder(versions, worker.one_by_one(decode))


class Model:
    """Encoder and cached decoder of pre-norm blocks, with tied embeddings."""

    def __init__(self, task, weights, keras, keras_hub):
        self.task, self.ops = task, keras.ops
        layers = keras_hub.layers
        self.embedding = layers.ReversibleEmbedding(task.vocab_size, task.model_dim)
        self.positions = layers.PositionEmbedding(len(weights["positions"]))
        options = dict(
            intermediate_dim=task.intermediate_dim,
            num_heads=task.num_heads,
            layer_norm_epsilon=task.norm_epsilon,
            normalize_first=True,
        )
        self.encoder = [layers.TransformerEncoder(**options) for _ in range(task.encoder_layers)]
        self.decoder = [layers.TransformerDecoder(**options) for _ in range(task.decoder_layers)]
        self.encoder_norm, self.decoder_norm = (
            keras.layers.LayerNormalization(epsilon=task.norm_epsilon) for _ in range(2)
        )
        self._set_weights(weights)

    def generate(self, source_ids, prompt, sampler, stop):
        ops = self.ops
        batch, length, source_length = *prompt.shape, source_ids.shape[1]
        mask = ops.not_equal(source_ids, self.task.pad_id)
        states = self._embed(source_ids, 0)
        for block in self.encoder:
            states = block(states, padding_mask=mask)
        memory = self.encoder_norm(states)
        head_dim = self.task.model_dim // self.task.num_heads
        shape = (batch, len(self.decoder), 2, length, self.task.num_heads, head_dim)
        own = ops.zeros(shape)
        crossed = ops.zeros((*shape[:3], source_length, *shape[4:]))
        # As in KerasHub: a pass over the prompt fills the cross-attention's cache.
        _, own, crossed = self._decode(prompt[:, :1], 0, own, (memory, mask, crossed), fill=True)

        def next_token(prompt, cache, index):
            token = ops.slice(prompt, (0, index - 1), (ops.shape(prompt)[0], 1))
            own, *source = cache
            logits, own, _ = self._decode(token, index - 1, own, source)
            return ops.squeeze(logits, 1), None, (own, *source)

        return sampler(
            next=next_token, prompt=prompt, cache=(own, memory, mask, crossed), index=1,
            stop_token_ids=stop,
        )  # fmt: skip

    def _decode(self, tokens, position, own, source, fill=False):
        """Logits of one token a row, and both caches."""
        ops = self.ops
        memory, mask, crossed = source
        states, owns, crosses = self._embed(tokens, position), [], []
        for index, block in enumerate(self.decoder):
            states, own_cache, cross_cache = block(
                states,
                memory,
                encoder_padding_mask=mask,
                self_attention_cache=own[:, index],
                self_attention_cache_update_index=position,
                cross_attention_cache=crossed[:, index],
                cross_attention_cache_update_index=0 if fill else None,
            )
            owns.append(own_cache)
            crosses.append(cross_cache)
        logits = self.embedding(self.decoder_norm(states), reverse=True)
        return logits, ops.stack(owns, 1), ops.stack(crosses, 1) if fill else crossed

    def _embed(self, tokens, position):
        states = self.embedding(tokens) * self.task.model_dim**0.5
        return states + self.positions(states, start_index=position)

    def _set_weights(self, weights):
        width, heads = self.task.model_dim, self.task.num_heads
        shape = (None, None, width)
        self.embedding.build((None, None))
        self.embedding.embeddings.assign(weights["embedding/embeddings"])
        self.positions.build(shape)
        self.positions.position_embeddings.assign(weights["positions"])
        for side, norm in (("encoder", self.encoder_norm), ("decoder", self.decoder_norm)):
            norm.build(shape)
            norm.set_weights(weights.norm(f"{side}_norm"))
        for index, block in enumerate(self.encoder):
            block.build(shape)
            self._set_block(block, f"encoder_{index}", weights)
        for index, block in enumerate(self.decoder):
            block.build(shape, shape)
            name = f"decoder_{index}"
            self._set_block(block, name, weights)
            cross = f"{name}/cross_attention"
            inputs = [
                array
                for part in ("query", "key", "value")
                for array in weights.heads(f"{cross}/{part}", heads)
            ]
            output = weights.from_heads(f"{cross}/output", heads)
            block._cross_attention_layer.set_weights([*inputs, *output])
            block._cross_attention_layer_norm.set_weights(weights.norm(f"{cross}_norm"))

    def _set_block(self, block, name, weights):
        heads, attention = self.task.num_heads, f"{name}/self_attention"
        inputs = [a for pair in weights.query_key_value(attention, heads) for a in pair]
        output = weights.from_heads(f"{attention}/output", heads)
        block._self_attention_layer.set_weights([*inputs, *output])
        block._self_attention_layer_norm.set_weights(weights.norm(f"{attention}_norm"))
        for part, layer in (
            ("intermediate", block._feedforward_intermediate_dense),
            ("output", block._feedforward_output_dense),
        ):
            layer.set_weights(weights.dense(f"{name}/feed_forward/{part}"))
        block._feedforward_layer_norm.set_weights(weights.norm(f"{name}/feed_forward_norm"))


if __name__ == "__main__":
    worker.serve(make_decoder)
