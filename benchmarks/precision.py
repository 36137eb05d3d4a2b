"""What training loses in a lower precision: the validation loss of a small task under each policy.

    KERAS_BACKEND=jax python benchmarks/precision.py --steps 300 --seeds 2

The task is to reverse a text of ids, of which a few are most frequent (Zipf's law), as words are.
Each row is the same model, data and order; the loss is computed in float32 from the weights that
were trained. A difference matters where it is larger than that between two seeds.
"""

import argparse

import keras
import numpy as np

import keras_transformer as kt

POLICIES = {
    "float32": ("float32", False),
    "mixed_bfloat16": ("mixed_bfloat16", False),
    "mixed_bfloat16, float32 logits": ("mixed_bfloat16", True),
}
VOCAB, LENGTH = 500, 12


def pairs(rows, rng):
    """`{"source_ids", "target_ids"}` and labels of rows of ids."""
    frequency = 1 / np.arange(1, VOCAB - 3)
    ids = 4 + rng.choice(VOCAB - 4, (rows, LENGTH), p=frequency / frequency.sum())
    labels = np.concatenate([ids[:, ::-1], np.full((rows, 1), 3)], axis=1).astype("int32")
    targets = np.concatenate([np.full((rows, 1), 2), labels[:, :-1]], axis=1).astype("int32")
    sources = np.concatenate([ids, np.full((rows, 1), 3)], axis=1).astype("int32")
    return {"source_ids": sources, "target_ids": targets}, labels


def validation_loss(policy, float32_logits, seed, arguments):
    """The validation loss, in float32, after training under a policy."""
    keras.utils.set_random_seed(seed)
    options = dict(model_dim=64, num_heads=4, intermediate_dim=128, dropout=0.0)
    config = kt.TransformerConfig.preset(
        "tiny", vocab_size=VOCAB, encoder_layers=2, decoder_layers=2, **options
    )
    model = kt.Transformer(config, dtype=policy)
    if float32_logits:
        model.token_embeddings["output"].dtype_policy = "float32"
    schedule = kt.PaperSchedule(config.model_dim, warmup_steps=arguments.steps // 3, scale=0.5)
    optimizer = keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9)
    model.compile(optimizer, kt.SmoothedCrossEntropy(0.0, pad_id=0), jit_compile=True)
    inputs, labels = pairs(arguments.rows * arguments.steps, np.random.default_rng(seed))
    options = dict(batch_size=arguments.rows, shuffle=False, verbose=0)
    model.fit(inputs, labels, **options)
    judge = kt.Transformer(config)
    judge.set_weights(model.get_weights())
    judge.compile(loss=kt.SmoothedCrossEntropy(0.0, pad_id=0), jit_compile=True)
    return judge.evaluate(*pairs(512, np.random.default_rng(99)), batch_size=512, verbose=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    for name, options in POLICIES.items():
        found = [validation_loss(*options, seed, arguments) for seed in range(arguments.seeds)]
        print(f"{name:34} " + "  ".join(f"{value:.4f}" for value in found), flush=True)


if __name__ == "__main__":
    main()
