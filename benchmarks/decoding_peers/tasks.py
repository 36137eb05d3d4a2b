"""What the systems decode, made once by the parent: a model, its weights and sources."""

import contextlib
import itertools
import json
import types

import numpy as np

SIZES = {
    "tiny": {"model_dim": 128, "num_heads": 4, "layers": 4, "intermediate_dim": 256,
             "vocab_size": 10_000},
    "base": {"model_dim": 512, "num_heads": 8, "layers": 6, "intermediate_dim": 2048,
             "vocab_size": 16_000},
}  # fmt: skip
SOURCE_LENGTH, TARGET_LENGTH = 32, 64
# Work for several workers, and for seconds: after a pause a process is slow for a while, which
# would count against the fast ones most.
RANDOM_BATCHES = {"tiny": 16, "base": 4}
_POSITIONS = 512
# How much larger than usual the last projection of the decoder's feed-forward layers is. With
# usual ones a model with tied embeddings repeats its last token, and rows of one token are no test
# of equality: these give some twenty different ones in 64, other ones for each source.
_OUTPUT_SCALE = 30.0


def random_task(kt, folder, size, arguments):
    """Random weights; full rows of random ids into exactly `TARGET_LENGTH` ids."""
    sizes = dict(SIZES[size])
    layers = sizes.pop("layers")
    config = kt.TransformerConfig(
        **sizes, encoder_layers=layers, decoder_layers=layers, residual="pre",
        positions="tensor2tensor", pad_id=0, bos_id=0, eos_id=1, unk_id=2,
    )  # fmt: skip
    model = kt.Transformer(config)
    set_random_weights(model, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    shape = (RANDOM_BATCHES[size], arguments.batch, SOURCE_LENGTH)
    sources = rng.integers(3, config.vocab_size, shape, "int32")
    sources[:, :, -1] = config.eos_id
    return write(kt, folder, model, list(sources), arguments, exact_length=TARGET_LENGTH)


def set_random_weights(model, rng):
    """Weights with which rows differ, and hold many tokens; pad, BOS and EOS are never likely."""
    for weight in model.weights:
        shape = weight.shape
        if weight.path.endswith("kernel"):
            last = weight.path.startswith("decoder") and "feed_forward/output" in weight.path
            scale = _OUTPUT_SCALE if last else 1.0
            weight.assign(rng.normal(0, scale * shape[0] ** -0.5, shape))
        elif weight.path.endswith("embeddings"):
            values = rng.normal(0, shape[1] ** -0.5, shape)
            config = model.config
            # Their logit is 0, far below the best of so many.
            values[[config.pad_id, config.bos_id, config.eos_id]] = 0
            weight.assign(values)


def trained_task(kt, folder, arguments):
    """A trained model; sentences in batches by length, the longest first, with real ends."""
    from keras_transformer_runner.lines import read_lines

    run = kt.load_run(arguments.run)
    sentences = itertools.islice(read_lines(arguments.sentences), arguments.count)
    eos = run.model.config.eos_id
    rows = [[*run.tokenizer.encode(text), eos] for text in sentences]
    rows.sort(key=len, reverse=True)  # so that who decodes several at once ends at once
    batches = [rows[i : i + arguments.batch] for i in range(0, len(rows), arguments.batch)]
    sources = []
    for batch in batches:
        padded = np.full((len(batch), len(batch[0])), run.model.config.pad_id, "int32")
        for row, ids in zip(padded, batch, strict=True):
            row[: len(ids)] = ids
        sources.append(padded)
    return write(kt, folder, run.model, sources, arguments, exact_length=None)


def write(kt, folder, model, sources, arguments, exact_length):
    """Writes what the children read."""
    from keras_transformer.interop.ctranslate2 import save_ctranslate2

    config = model.config
    names = ("vocab_size", "model_dim", "num_heads", "encoder_layers", "decoder_layers",
             "intermediate_dim", "norm_epsilon", "positions", "residual", "activation",
             "pad_id", "bos_id", "eos_id")  # fmt: skip
    task = {name: getattr(config, name) for name in names} | {
        "exact_length": exact_length,
        "extra_length": arguments.extra_length,
        "length_penalty": arguments.length_penalty,
    }
    (folder / "task.json").write_text(json.dumps(task))
    np.savez(folder / "sources.npz", *sources)
    np.savez(folder / "weights.npz", positions=positions(config), **{
        weight.path: np.asarray(weight) for weight in model.weights
    })  # fmt: skip
    model.save(folder / "model.keras")
    pieces = [str(index) for index in range(config.vocab_size)]
    with contextlib.suppress(ImportError):  # CTranslate2's child says so
        save_ctranslate2(model, types.SimpleNamespace(pieces=pieces), folder / "ctranslate2")
    return {"sentences": sum(map(len, sources)), "batches": len(sources),
            "weights": model.count_params(), **task}  # fmt: skip


def positions(config):
    """(T, D) float32 table of the model's positions."""
    from keras import ops

    from keras_transformer.layers.positions import sinusoidal_encoding

    layout = "split" if config.positions == "tensor2tensor" else "interleaved"
    return ops.convert_to_numpy(
        sinusoidal_encoding(ops.arange(_POSITIONS), config.model_dim, layout)
    )
