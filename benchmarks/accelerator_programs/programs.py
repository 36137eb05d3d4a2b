"""The programs that are compiled: Keras' own training step, and our searches, on JAX.

`python -m accelerator_programs.programs NAME CHIP CHIPS` compiles one and prints what is known of
it as JSON, in a process of its own, as libtpu keeps what it has compiled. `HLO_FILE` names a file
for the program's text.
"""

import importlib.metadata
import json
import os
import sys
import time

# No device is looked for, nor is anything timed on one; libtpu says little.
_ENVIRONMENT = {
    "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_gpu_autotune_level=0",
    "TPU_SKIP_MDS_QUERY": "1", "TPU_STDERR_LOG_LEVEL": "3", "TPU_MIN_LOG_LEVEL": "3",
}  # fmt: skip
# NAME -> preset, vocabulary, rows a chip, length of both sides
TRAINING = {
    "train tiny": ("tiny", 6_000, 64, 32),
    "train base": ("base", 32_000, 392, 64),
    "train big": ("big", 32_000, 128, 64),
}
# With weights that two chips share, so from two chips on.
SPLIT_TRAINING = {f"{name}, split": TRAINING[name] for name in ("train base", "train big")}
# On GPUs, where cuDNN computes attention in one kernel with `training.fuse_attention`.
FUSED = "fused attention"
GPU_TRAINING = {
    f"train base, {FUSED}": ("base", 32_000, 392, 64),
    "train base, long rows": ("base", 32_000, 24, 1024),
    f"train base, long rows, {FUSED}": ("base", 32_000, 24, 1024),
}
# NAME -> preset, vocabulary, rows, length, beams
SEARCHES = {
    "greedy tiny": ("tiny", 6_000, 32, 32, None),
    "beam 4 tiny": ("tiny", 6_000, 32, 32, 4),
}
POLICY = "mixed_bfloat16"


def training_flops(config, rows, length):
    """Multiplications and additions of the products of a step: three times those forward."""
    width, inner, tokens = config.model_dim, config.intermediate_dim, rows * length
    feed_forward, projections = 4 * width * inner, 8 * width**2
    attention = 4 * length * width  # scores and context, a query
    encoder = config.encoder_layers * (projections + attention + feed_forward)
    decoder = config.decoder_layers * (2 * projections + 2 * attention + feed_forward)
    return 3 * tokens * (encoder + decoder + 2 * width * config.target_size)


def traced_training(name, devices):
    """The step that `fit` jits, its state given away, on its devices."""
    import jax
    import keras
    import numpy as np
    from accelerator_programs.places import SharedRows, SplitWeights

    import keras_transformer as kt
    from keras_transformer.training.fused_attention import set_implementation

    preset, vocabulary, rows, length = (TRAINING | SPLIT_TRAINING | GPU_TRAINING)[name]
    config = kt.TransformerConfig.preset(preset, vocab_size=vocabulary)
    model = kt.Transformer(config, dtype=POLICY)
    if FUSED in name:
        set_implementation(model, "cudnn")  # `fuse_attention` asks for a GPU
    pad_id = config.pad_id
    model.compile(
        optimizer=keras.optimizers.Adam(kt.PaperSchedule(config.model_dim), beta_2=0.98),
        loss=kt.SmoothedCrossEntropy(0.1, pad_id=pad_id),
        metrics=[kt.TokenAccuracy(pad_id), kt.Perplexity(pad_id)],
        jit_compile=True,
    )
    model.optimizer.build(model.trainable_variables)
    logits = np.zeros((1, 1, vocabulary), "float32")
    model.compute_metrics(None, np.full((1, 1), pad_id, "int32"), logits)
    places = (SplitWeights if name in SPLIT_TRAINING else SharedRows)(model, devices)
    variables = (
        model.trainable_variables, model.non_trainable_variables, model.optimizer.variables,
        model.metrics_variables,
    )  # fmt: skip
    state = tuple([_like(one.value, places.of(one)) for one in group] for group in variables)
    shape = rows * len(devices), length
    ids = jax.ShapeDtypeStruct(shape, np.dtype("int32"), sharding=places.rows)
    step = jax.jit(model.train_step, donate_argnums=0)
    with places.scope():
        traced = step.trace(state, ({"source_ids": ids, "target_ids": ids}, ids))
    return traced, {"arithmetic": training_flops(config, rows, length)}


def traced_search(name, devices):
    import jax
    import keras
    import numpy as np

    import keras_transformer as kt
    from keras_transformer.decoding import decode

    preset, vocabulary, rows, length, beams = SEARCHES[name]
    model = kt.Transformer(kt.TransformerConfig.preset(preset, vocab_size=vocabulary), dtype=POLICY)
    search = kt.BeamSearch(beam_size=beams) if beams else kt.Greedy()
    there = jax.sharding.SingleDeviceSharding(devices[0])

    def run(values, ids):
        with keras.StatelessScope(list(zip(model.weights, values, strict=True))):
            return decode(model, ids, search)

    values = [_like(weight.value, there) for weight in model.weights]
    ids = jax.ShapeDtypeStruct((rows, length), np.dtype("int32"), sharding=there)
    return jax.jit(run).trace(values, ids), {}


def report(name, chip, chips):
    """What is known of one compiled program, a dict."""
    from accelerator_programs import hlo
    from accelerator_programs.chips import CHIPS

    from keras_transformer.layers.lowering.tracing import traced

    kind = CHIPS[chip]
    devices = kind.devices(chips)
    start = time.monotonic()
    trace = traced_search if name in SEARCHES else traced_training
    with traced(tpu_chips=_chips(kind, devices, name)):  # else JAX would be asked, which has a CPU
        program, figures = trace(name, devices)
    program = program.lower(lowering_platforms=(kind.platform,)).compile()
    text, memory, cost = program.as_text(), program.memory_analysis(), program.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    # XLA says nothing of a GPU's, and of cuDNN's kernels there is nothing to count.
    flops = cost["flops"] if cost else hlo.product_flops(text)
    if path := os.environ.get("HLO_FILE"):
        with open(path, "w") as file:
            file.write(text)
    moved, groups = hlo.hbm_bytes(text)
    return figures | {
        "program": name,
        "chip": chip,
        "chips": chips,
        "flops": flops,
        "peak": memory.peak_memory_in_bytes,
        "state": memory.argument_size_in_bytes,
        "given_away": memory.alias_size_in_bytes,
        "hbm_bytes": moved,
        "hbm_groups": groups,
        "forbidden": hlo.forbidden(text),
        "products": hlo.product_types(text),
        "custom_calls": hlo.custom_calls(text),
        "collectives": hlo.collectives(text),
        "versions": _versions("jax", "keras", kind.compiler),
        "seconds": round(time.monotonic() - start, 1),
    }


def _chips(kind, devices, name):
    """The TPUs that attention may have kernels for, which no compiler splits; `None` of others."""
    import numpy as np
    from jax.sharding import Mesh

    from keras_transformer.layers.lowering.attention_kernels import Chips

    if kind.platform != "tpu" or name in SPLIT_TRAINING:
        return None
    return Chips(Mesh(np.array(devices), ("batch",)), "batch") if len(devices) > 1 else Chips()


def _versions(*packages):
    return {one: importlib.metadata.version(one) for one in packages}


def _like(value, sharding):
    import jax

    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)


if __name__ == "__main__":
    os.environ.update(_ENVIRONMENT)
    print(json.dumps(report(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
