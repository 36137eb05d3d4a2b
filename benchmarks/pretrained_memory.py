"""Peak memory, time and size of bringing a large pretrained model to a device.

    python benchmarks/pretrained_memory.py [--width 1024] [--layers 12] [--folder DIR] [--out FILE]

Makes a folder as Hugging Face has NLLB-200-distilled-600M, with random float32 weights and a
tokenizer of few pieces (the other ids of its 256,206 have no piece), and runs the commands `import`
and `export --to litert --mode int8` on it, each in a process of its own. What counts is the peak of
resident memory (`ru_maxrss`). At full size it needs 10 GiB of disk and 16 GiB of memory.
"""

import argparse
import json
import os
import pathlib
import random
import struct
import sys
import tempfile
import time

import numpy as np

_VOCABULARY = 256_206
_LANGUAGES = ("eng_Latn", "deu_Latn")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vocabulary", type=int, default=_VOCABULARY)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--folder", type=pathlib.Path, help="where files lie meanwhile")
    parser.add_argument("--out", help="JSON file for the figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        figures = measured(pathlib.Path(folder), arguments)
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(text + "\n", encoding="utf-8")


def measured(folder, arguments):
    """The figures of both commands."""
    checkpoint, run, device = folder / "nllb", folder / "run", folder / "device"
    checkpoint.mkdir()
    tensors = tensors_of(arguments.vocabulary, arguments.width, arguments.layers)
    write_tokenizer(checkpoint)
    write_settings(checkpoint, arguments)
    write_safetensors(checkpoint / "model.safetensors", tensors)
    languages = ["--source-language", _LANGUAGES[0], "--target-language", _LANGUAGES[1]]
    commands = {
        "import": ["import", checkpoint, run, *languages],
        "export": ["export", run, device, "--to", "litert", "--mode", "int8", "--beam-size", "1"],
    }
    weights = sum(int(np.prod(shape)) for shape in tensors.values())
    figures = {
        "weights": weights,
        "GiB of float32 weights": round(4 * weights / 2**30, 2),
        **{name: peak_of(command) for name, command in commands.items()},
    }
    size = (device / "model.tflite").stat().st_size
    figures["GiB of model.tflite"] = round(size / 2**30, 2)
    return figures


def peak_of(arguments):
    """The peak of resident memory of the command in GiB, and its seconds."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "keras_transformer_command", *map(str, arguments)]
    process = os.posix_spawn(sys.executable, command, os.environ)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"the command must succeed. Received: status {status} of {command[2:]}")
    seconds = round(time.perf_counter() - start)
    return {"peak GiB": round(usage.ru_maxrss / 2**20, 2), "seconds": seconds}


def tensors_of(vocabulary, width, layers):
    """The shapes of all tensors by name, as in the checkpoints of M2M-100."""
    shapes = {"model.shared.weight": (vocabulary, width)}

    def linear(name, inputs, outputs):
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (outputs, inputs), (outputs,)

    def norm(name):
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (width,)

    for side in ("encoder", "decoder"):
        for index in range(layers):
            layer = f"model.{side}.layers.{index}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{layer}.{attention}.{part}", width, width)
                norm(f"{layer}.{attention}_layer_norm")
            linear(f"{layer}.fc1", width, 4 * width)
            linear(f"{layer}.fc2", 4 * width, width)
            norm(f"{layer}.final_layer_norm")
        norm(f"model.{side}.layer_norm")
    return shapes


def write_safetensors(path, shapes):
    """Random numbers of these shapes, a tensor at a time."""
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    head = json.dumps(header).encode()
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for name, shape in shapes.items():
            values = rng.standard_normal(shape, "float32") * np.float32(shape[-1] ** -0.5)
            if "norm" in name:
                values += "weight" in name
            file.write(values.tobytes())


def write_tokenizer(folder):
    """A SentencePiece model of made-up words, and the settings that name its languages."""
    import sentencepiece

    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 7))) for _ in range(2_000)]
    lines = (" ".join(rng.choices(words, k=rng.randint(3, 12))) for _ in range(5_000))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_prefix=str(folder / "sentencepiece.bpe"),
        vocab_size=500,
        minloglevel=2,
    )
    (folder / "sentencepiece.bpe.vocab").unlink()
    settings = {
        "tokenizer_class": "NllbTokenizer",
        "additional_special_tokens": list(_LANGUAGES),
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def write_settings(folder, arguments):
    """config.json and generation_config.json."""
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in dict(
            layers=arguments.layers, attention_heads=16, ffn_dim=4 * arguments.width
        ).items()
    }
    config = {
        "model_type": "m2m_100",
        "architectures": ["M2M100ForConditionalGeneration"],
        "activation_function": "relu",
        "vocab_size": arguments.vocabulary,
        "d_model": arguments.width,
        **sides,
        "max_position_embeddings": 1024,
        "scale_embedding": True,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "activation_dropout": 0.0,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    }
    search = {"max_length": 24, "num_beams": 1, "decoder_start_token_id": 2, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps(search), encoding="utf-8")


if __name__ == "__main__":
    main()
