"""SCAN, simple split: commands such as "jump twice" to actions, learnt exactly, in minutes.

    python scan.py FOLDER [RUN]

FOLDER holds tasks_train_simple.txt and tasks_test_simple.txt (or .gz) of
https://github.com/brendenlake/SCAN (Lake and Baroni 2018, arXiv 1711.00350). RUN is where the
trained run goes. Prints the share of the 4,182 test commands whose actions are all right, decoded
freely: 99.5% or more in less than 10 minutes on 2 cores.
"""

import pathlib
import sys
import tempfile
import time

from keras_transformer import Experiment, load_run, train
from keras_transformer_runner.lines import read_lines

EXPERIMENT = {
    "tokenizer": {"type": "vocabulary", "joint": False, "joiner": ""},
    "model": {
        "preset": "tiny",
        "model_dim": 64,
        "intermediate_dim": 128,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "residual": "pre",
        "positions": "relative",
        "dropout": 0.1,
    },
    "training": {
        "max_epochs": 45,
        "batch_tokens": 2048,
        "schedule": "inverse_sqrt",
        "learning_rate": 0.004,
        "warmup_steps": 300,
        "label_smoothing": 0.0,
        "average_checkpoints": 10,
    },
}


def read_pairs(folder, name):
    """The `(command, actions)` of a file with lines "IN: ... OUT: ..."."""
    path = folder / f"tasks_{name}.txt"
    lines = read_lines(path if path.exists() else f"{path}.gz")
    return [line.removeprefix("IN: ").split(" OUT: ") for line in lines]


def main(folder, run_dir):
    start = time.monotonic()
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    pairs = run_dir.with_suffix(".tsv")
    train_pairs = read_pairs(folder, "train_simple")
    pairs.write_text("".join(f"{command}\t{actions}\n" for command, actions in train_pairs))
    experiment = Experiment.from_dict({**EXPERIMENT, "data": {"tsv": str(pairs)}})
    run = load_run(train(experiment, run_dir))
    commands, expected = zip(*read_pairs(folder, "test_simple"), strict=True)
    decoded = run.translator().translate(commands)
    right = sum(a == b for a, b in zip(decoded, expected, strict=True))
    minutes = (time.monotonic() - start) / 60
    share = right / len(commands)
    print(f"{right} of {len(commands)} exact: {share:.2%}, in {minutes:.1f} minutes")
    return share


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    target = sys.argv[2] if len(sys.argv) > 2 else f"{tempfile.mkdtemp()}/scan"
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(target)) < 0.995)
