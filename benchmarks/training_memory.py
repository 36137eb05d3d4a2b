"""What a training step keeps from its forward pass for the gradient, on JAX; nothing is trained.

    KERAS_BACKEND=jax python benchmarks/training_memory.py --preset base --rows 64 --length 64

A row for each way to train in less: blocks that recompute, half the rows with two batches an
update, and `mixed_bfloat16`, also with float32 logits. The bytes are those of the arrays between
the two passes, as JAX has traced them, weights left out: they do not depend on a device. What a
compiler makes of them does: XLA for CPUs may move the second computation forward, and save little.
"""

import argparse
import math

import jax
import jax.numpy as jnp
import keras

import keras_transformer as kt
from keras_transformer.training import rematerialize

WAYS = {
    "float32": {},
    "float32, rematerialize": {"recompute": True},
    "float32, accumulate_batches = 2": {"batches": 2},
    "mixed_bfloat16": {"policy": "mixed_bfloat16"},
    "mixed_bfloat16, float32 logits": {"policy": "mixed_bfloat16", "float32_logits": True},
}


def kept_bytes(arguments, policy="float32", recompute=False, batches=1, float32_logits=False):
    """Bytes of the arrays between the forward pass and the gradients, weights left out."""
    keras.utils.set_random_seed(1)
    config = kt.TransformerConfig.preset(arguments.preset, vocab_size=arguments.vocab_size)
    model = kt.Transformer(config, dtype=policy)
    if float32_logits:
        model.token_embeddings["output"].dtype_policy = "float32"
    if recompute:
        rematerialize(model)
    loss = kt.SmoothedCrossEntropy(0.1, pad_id=config.pad_id)
    ids = jnp.ones((arguments.rows // batches, arguments.length), "int32")
    others = [each.value for each in model.non_trainable_variables]

    def loss_of(weights):
        inputs = {"source_ids": ids, "target_ids": ids}
        logits, _ = model.stateless_call(weights, others, inputs, training=True)
        return loss(ids, logits)

    weights = [each.value for each in model.trainable_variables]
    kept = jax.eval_shape(lambda weights: jax.vjp(loss_of, weights)[1], weights)
    shapes = [(each.shape, each.dtype) for each in jax.tree.leaves(kept)]
    for each in weights:
        if (each.shape, each.dtype) in shapes:
            shapes.remove((each.shape, each.dtype))
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in shapes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--vocab-size", type=int, default=6000)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    arguments = parser.parse_args()
    print(f"jax {jax.__version__}, keras {keras.__version__}, {vars(arguments)}")
    for name in arguments.ways:
        print(f"{name:34} {kept_bytes(arguments, **WAYS[name]) / 1e6:9.1f} MB", flush=True)


if __name__ == "__main__":
    main()
