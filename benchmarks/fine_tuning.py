"""Training on from a run against training from nothing: equal data, steps and vocabulary.

    python benchmarks/fine_tuning.py MULTI30K TATOEBA --out FILE [--pairs 4000] [--epochs 6]
        [--earlier-epochs 4] [--seeds 1]

MULTI30K is a folder with train.en.gz, train.fr.gz, val.en.gz and val.fr.gz (captions of pictures),
TATOEBA a file of English and French in columns, plain or .gz (everyday sentences). A small model
learns the first; then models learn `--pairs` of the second with `--epochs` passes, each twice:
from new weights, and from those of the earlier run. One pair of them has the earlier run's
vocabulary, the other one of its own, of which `start_from` keeps what both have. No English
sentence of the test set is in the training set. It takes some 8 minutes on a busy core.
"""

import argparse
import pathlib
import random
import sys
import tempfile

from reporting import options_of, processor, say, write_json

from keras_transformer.quiet import start_tensorflow
from keras_transformer_runner.lines import read_lines

MODEL = dict(
    preset="tiny", model_dim=96, encoder_layers=2, decoder_layers=2, residual="pre", dropout=0.1
)
LENGTH = dict(batch_tokens=1024, average_checkpoints=2, jit_compile=False)
HELD_OUT = 400  # sentences for the validation, and again for the test
VOCABULARY = 3000


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("multi30k", type=pathlib.Path)
    parser.add_argument("tatoeba", type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--earlier-epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    start_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        report = measure(pathlib.Path(folder), arguments)
    write_json(arguments.out, report)


def measure(folder, arguments):
    """The report: BLEU and loss of each way to train, by seed."""
    files = split(folder, arguments)
    earlier = folder / "earlier"
    sides = {"source": "train.en.gz", "target": "train.fr.gz"}
    sides |= {"valid_source": "val.en.gz", "valid_target": "val.fr.gz"}
    data = {name: str(arguments.multi30k / file) for name, file in sides.items()}
    training = dict(LENGTH, max_epochs=arguments.earlier_epochs, warmup_steps=400)
    train(earlier, data, training, tokenizer={"vocab_size": VOCABULARY})
    report = {
        "processor": processor(),
        "options": options_of(arguments),
        "before": figures(earlier, files),
        "runs": [],
    }
    say(f"the earlier run, before it has seen Tatoeba: {report['before']}")
    vocabularies = {
        "the earlier run's": {"file": str(earlier / "tokenizer.model")},
        "its own": {"vocab_size": VOCABULARY},
    }
    for seed in range(1, arguments.seeds + 1):
        for vocabulary, tokenizer in vocabularies.items():
            for start in (None, earlier):
                report["runs"].append(
                    fine_tuned(folder, files, arguments.epochs, seed, vocabulary, tokenizer, start)
                )
                say(report["runs"][-1])
    return report


def fine_tuned(folder, files, epochs, seed, vocabulary, tokenizer, start):
    """The figures of one training on Tatoeba."""
    run = folder / f"{seed} {vocabulary} {start is None}"
    training = dict(LENGTH, max_epochs=epochs, warmup_steps=100, seed=seed)
    if start:
        training["start_from"] = str(start)
    data = {"tsv": str(files["train"]), "valid_tsv": str(files["valid"])}
    train(run, data, training, tokenizer)
    return {
        "from": "the earlier run" if start else "nothing",
        "vocabulary": vocabulary,
        "seed": seed,
        **figures(run, files),
    }


def train(run, data, training, tokenizer):
    import keras_transformer as kt

    sections = {"data": data, "model": MODEL, "training": training, "tokenizer": tokenizer}
    kt.train(kt.Experiment.from_dict(sections), run)


def figures(run, files):
    """Updates and the best validation loss of a run, and BLEU and chrF of its test translations."""
    import keras_transformer as kt
    from keras_transformer.evaluation import text_scores
    from keras_transformer.training.callbacks import read_metrics

    sources, references = zip(
        *(line.split("\t") for line in read_lines(files["test"])), strict=True
    )
    translations = kt.load_run(run).translator().translate(sources)
    scores = text_scores(translations, references)
    records = read_metrics(run / "metrics.jsonl")
    return {
        "updates": records[-1]["step"],
        "val_loss": round(min(record["val_loss"] for record in records), 4),
        **{name: round(score.value, 2) for name, score in scores.items()},
    }


def split(folder, arguments):
    """Files of the training, validation and test pairs; of an English sentence, one pair."""
    pairs = {}
    for line in read_lines(arguments.tatoeba):
        english, french, *_ = line.split("\t")
        pairs.setdefault(english, french)
    chosen = random.Random(1).sample(sorted(pairs.items()), arguments.pairs + 2 * HELD_OUT)
    parts = {"test": chosen[:HELD_OUT], "valid": chosen[HELD_OUT : 2 * HELD_OUT]}
    parts["train"] = chosen[2 * HELD_OUT :]
    files = {}
    for name, part in parts.items():
        files[name] = folder / f"{name}.tsv"
        lines = "".join(f"{source}\t{target}\n" for source, target in part)
        files[name].write_text(lines, encoding="utf-8")
    return files


if __name__ == "__main__":
    sys.exit(main())
