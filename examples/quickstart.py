"""From a parallel corpus to a served model and a file for the device.

    python quickstart.py

The task: dates as people write them, in 23 locales, into ISO 8601. The script makes the corpus
(see dates.py), trains a small Transformer for four epochs, counts how many of 1,000 unseen
dates it gets exactly right, exports a SavedModel and an int8 LiteRT file, runs both, and prints
what Python, the SavedModel and the device make of the same inputs. Interrupted in its training,
the same command goes on.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow, which Keras imports, says less

import dates
import rich.table

import keras_transformer as kt
from keras_transformer.quiet import start_tensorflow

SHOWN = [
    "Friday, the 27th of November 2026", "27 novembre 2026", "en_GB 3/4/21", "en_US 3/4/21",
    "21. märz 1984", "12 de outubro de 2035", "2026年11月27日", "27 ноября 2026 г.",
    "ngày 2 tháng 9 năm 1975", "3 XII 2001", "5 ΜΑΪΟΥ 2010", "",
]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", default="runs/quickstart", help="where everything goes")
    parser.add_argument("--minutes", type=float, default=60.0, help="longest training time")
    parser.add_argument("--pairs", type=int, default=60_000, help="size of the corpus")
    arguments = parser.parse_args()
    folder = pathlib.Path(arguments.folder)
    interrupted = (folder / "run").exists() and not (folder / "savedmodel").exists()
    if folder.exists() and not interrupted:
        return f"quickstart: {folder} exists; remove it, or choose another with --folder"

    start_tensorflow()
    train_pairs, test_pairs = dates.split(seed=0, train=arguments.pairs, test=1500)
    if not interrupted:
        folder.mkdir(parents=True)
        write_tsv(folder / "train.tsv", train_pairs)
        write_tsv(folder / "valid.tsv", test_pairs[1000:])
    if not (folder / "run" / "model.keras").exists():
        kt.train(experiment(folder, arguments.minutes), folder / "run")
    run = kt.load_run(folder / "run")

    sources, expected = zip(*test_pairs[:1000], strict=True)
    translator = run.translator()
    export = dict(samples=[*SHOWN, *sources[:100]], strategy=run.strategy)
    kt.export_saved_model(run.model, run.tokenizer, folder / "savedmodel", **export)
    kt.export_litert(run.model, run.tokenizer, folder / "device", mode="int8", **export)

    systems = {
        "Python": translator.translate,
        "SavedModel": serve(folder / "savedmodel"),
        "device (int8)": kt.Runner(folder / "device").translate,
    }
    table = rich.table.Table("input", *systems)
    rows = list(zip(SHOWN, *(translate(SHOWN) for translate in systems.values()), strict=True))
    for row in rows:
        table.add_row(*map(repr, row))
    rich.print(table)
    exact = {name: count_equal(system(sources), expected) for name, system in systems.items()}
    print(f"Exactly right, of {len(sources)} unseen dates: {exact}")
    print(f"Device file: {(folder / 'device' / 'model.tflite').stat().st_size:,} bytes")
    if not all(row[1] == row[2] == row[3] for row in rows):
        return "quickstart: the answers in the table differ"
    return "quickstart: under 99% are right" if min(exact.values()) < 990 else None


def count_equal(answers, expected):
    return sum(map(str.__eq__, answers, expected))


def write_tsv(path, pairs):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")


def experiment(folder, minutes):
    """What the *.toml files say for other corpora, here as a dictionary."""
    return kt.Experiment.from_dict(
        {
            "data": {
                "tsv": str(folder / "train.tsv"), "valid_tsv": str(folder / "valid.tsv"),
            },
            "tokenizer": {
                "vocab_size": 600, "split_digits": True, "normalization": "nmt_nfkc_cf",
            },
            "model": {
                "preset": "tiny", "encoder_layers": 2, "decoder_layers": 2, "residual": "pre",
                "dropout": 0.0,
            },
            "training": {
                "max_epochs": 4, "max_minutes": minutes, "batch_tokens": 2048, "buckets": [16, 40],
                "warmup_steps": 200, "learning_rate_scale": 0.35, "label_smoothing": 0.0,
                "average_checkpoints": 2,
            },
            "decoding": {"extra_length": 12},
        }
    )  # fmt: skip


def serve(folder):
    """The SavedModel as any TensorFlow program would load it."""
    import tensorflow as tf

    served = tf.saved_model.load(str(folder))
    translate = served.signatures["serving_default"]
    return lambda texts: [
        text.decode() for text in translate(text=tf.constant(texts))["translation"].numpy()
    ]


if __name__ == "__main__":
    sys.exit(main())
