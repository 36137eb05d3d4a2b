"""Memory of a training step, by what XLA has planned for it on JAX; nothing is trained.

    KERAS_BACKEND=jax python benchmarks/training_memory.py --rows 64 --length 64

A row for each way to train in less: blocks that recompute, half the rows with two batches an
update, and `mixed_bfloat16`, also with float32 logits. `temporary` is what the step needs beside
weights, slots and batch. The plan is of the processor that it runs on; a GPU's or a TPU's differs.
"""

import argparse

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


def compiled_step(arguments, policy="float32", recompute=False, batches=1, float32_logits=False):
    """The step that `fit` compiles on JAX."""
    keras.utils.set_random_seed(1)
    config = kt.TransformerConfig.preset(arguments.preset, vocab_size=arguments.vocab_size)
    model = kt.Transformer(config, dtype=policy)
    if float32_logits:
        model.token_embeddings["output"].dtype_policy = "float32"
    if recompute:
        rematerialize(model)
    optimizer = keras.optimizers.Adam(
        1e-3, gradient_accumulation_steps=batches if batches > 1 else None
    )
    model.compile(optimizer, kt.SmoothedCrossEntropy(0.1, pad_id=config.pad_id), jit_compile=True)
    optimizer.build(model.trainable_variables)
    groups = (
        *(model.trainable_variables, model.non_trainable_variables),
        *(optimizer.variables, model.metrics_variables),
    )
    state = tuple(
        [jax.ShapeDtypeStruct(each.shape, each.value.dtype) for each in group] for group in groups
    )
    ids = jax.ShapeDtypeStruct((arguments.rows // batches, arguments.length), jnp.int32)
    batch = {"source_ids": ids, "target_ids": ids}, ids, None
    return jax.jit(model.train_step, donate_argnums=0).lower(state, batch).compile()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--vocab-size", type=int, default=6000)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    arguments = parser.parse_args()
    print(f"jax {jax.__version__}, keras {keras.__version__}, {jax.default_backend()}")
    for name in arguments.ways:
        step = compiled_step(arguments, **WAYS[name])
        memory, cost = step.memory_analysis(), step.cost_analysis()
        print(
            f"{name:34} temporary {memory.temp_size_in_bytes / 1e6:8.1f} MB   state and batch "
            f"{memory.argument_size_in_bytes / 1e6:7.1f} MB   {cost['flops'] / 1e9:7.1f} GFLOP",
            flush=True,
        )


if __name__ == "__main__":
    main()
