"""A student with and without teachers: the same model, pairs and epochs.

    python benchmarks/distillation.py --train A B --valid A B --test A B --out FILE
        [--teachers 2] [--teacher-epochs 12] [--epochs 6] [--seeds 1] [--beam-size 4] [--pairs N]

A and B are files of both languages, a sentence a line, plain or .gz. Teachers learn first, each
with a seed of its own. Then students learn as many epochs, with a deep encoder and one decoder
block with a recurrence: from the corpus as it is, from what the teachers write for its sources
(`best`), and from that of their translations that is nearest to the corpus' target (`best-bleu`).
"""

import argparse
import itertools
import pathlib
import sys
import tempfile
import time

from reporting import options_of, processor, say, write_json

from keras_transformer.quiet import start_tensorflow
from keras_transformer_runner.lines import read_lines

TEACHER = dict(preset="tiny", encoder_layers=2, decoder_layers=2, residual="pre", dropout=0.1)
STUDENT = dict(
    preset="tiny",
    **dict(model_dim=64, num_heads=2, intermediate_dim=256, residual="pre", dropout=0.1),
    **dict(encoder_layers=3, decoder_layers=1, decoder_recurrence="ssru"),
)
LENGTH = dict(batch_tokens=1024, average_checkpoints=2, jit_compile=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("train", "valid", "test"):
        parser.add_argument(f"--{name}", nargs=2, required=True, metavar=("A", "B"))
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--teachers", type=int, default=2)
    parser.add_argument("--teacher-epochs", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--pairs", type=int, help="of the training corpus; all when left out")
    parser.add_argument("--vocab-size", type=int, default=1000)
    arguments = parser.parse_args()
    start_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        report = measure(pathlib.Path(folder), arguments)
    write_json(arguments.out, report)


def measure(folder, arguments):
    """The report: BLEU of the teachers, alone and together, and of each kind of student."""
    from keras_transformer.distillation import DistillationOptions, Teachers, distil

    train_files = first_pairs(folder, arguments)
    sides = ("source", "target", "valid_source", "valid_target")
    data = dict(zip(sides, map(str, (*train_files, *arguments.valid)), strict=True))
    report = {
        "processor": processor(),
        "options": options_of(arguments),
        "teachers": [],
        "students": [],
    }
    folders = []
    for seed in range(1, arguments.teachers + 1):
        run = folder / f"teacher-{seed}"
        tokenizer = {"vocab_size": arguments.vocab_size}
        if folders:
            tokenizer = {"file": str(folders[0] / "tokenizer.model")}
        training = dict(LENGTH, max_epochs=arguments.teacher_epochs, warmup_steps=400, seed=seed)
        train(experiment(data, TEACHER, training, tokenizer), run)
        folders.append(run)
        report["teachers"].append(figures(run, Teachers.open([run]), arguments))
        say(f"teacher {seed}: {report['teachers'][-1]}")
    together = Teachers.open(folders, beam_size=arguments.beam_size)
    report["together"] = {"bleu": bleu(together, arguments)}
    say(f"together: {report['together']}")
    tokenizer = {"file": str(folders[0] / "tokenizer.model")}
    for seed, kind in itertools.product(range(1, arguments.seeds + 1), ("none", "best", "bleu")):
        run = folder / f"student-{seed}-{kind}"
        training = dict(LENGTH, max_epochs=arguments.epochs, warmup_steps=400, seed=seed)
        student = experiment(data, STUDENT, training, tokenizer)
        start = time.monotonic()
        if kind == "none":
            train(student, run)
        else:
            options = DistillationOptions()
            if kind == "bleu":
                options = DistillationOptions(n_best=arguments.beam_size, select="best-bleu")
            corpus = folder / f"corpus-{kind}"
            distil(together, student, run, corpus=corpus, options=options)
        found = figures(run, Teachers.open([run]), arguments)
        seconds = round(time.monotonic() - start)
        report["students"].append({"select": kind, "seed": seed, "seconds": seconds, **found})
        say(report["students"][-1])
    return report


def first_pairs(folder, arguments):
    """The training files, or new ones with the first `--pairs` pairs."""
    if arguments.pairs is None:
        return [pathlib.Path(path).absolute() for path in arguments.train]
    made = []
    for number, path in enumerate(arguments.train):
        made.append(folder / f"train.{number}")
        lines = itertools.islice(read_lines(path, plain=True), arguments.pairs)
        made[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return made


def experiment(data, model, training, tokenizer):
    import keras_transformer as kt

    sections = {"data": data, "model": model, "training": training, "tokenizer": tokenizer}
    return kt.Experiment.from_dict(sections)


def train(described, run):
    import keras_transformer as kt

    kt.train(described, run)


def figures(run, translators, arguments):
    """Weights and updates of a run, and BLEU of its translations of the test set."""
    from keras_transformer.experiment import load_run
    from keras_transformer.training.callbacks import read_metrics

    return {
        "weights": load_run(run).model.count_params(),
        "updates": read_metrics(run / "metrics.jsonl")[-1]["step"],
        "bleu": bleu(translators, arguments),
    }


def bleu(translators, arguments):
    from keras_transformer.evaluation import text_scores

    sources, references = (list(read_lines(path, plain=True)) for path in arguments.test)
    translations = translators.translator().translate(sources)
    return round(text_scores(translations, references)["bleu"].value, 2)


if __name__ == "__main__":
    sys.exit(main())
