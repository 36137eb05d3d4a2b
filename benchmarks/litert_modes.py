"""Every LiteRT mode of a trained run on a test set: size, BLEU, agreement, speed, memory.

    python benchmarks/litert_modes.py RUN SOURCES REFERENCES --out FOLDER [--beam-size 4]
        [--calibration SENTENCES] [--joiner '@@ '] [--bleu-tokenize none] [--sentences 1000]

RUN is a folder that `keras-transformer train` has made; the others are files with a sentence a
line, plain or .gz. The search is greedy unless there is `--beam-size`. The modes that are
calibrated read the first lines of `--calibration`, which should be none of the test set.
`--joiner` is taken out of the references, for files that are split into pieces. FOLDER gets
report.json, report.md and report.png, without the models. Nothing else should run on the machine.
"""

import argparse
import itertools
import pathlib
import shutil
import sys
import tempfile

from keras_transformer.quiet import start_tensorflow
from keras_transformer_runner.lines import read_lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run")
    parser.add_argument("sources")
    parser.add_argument("references")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--beam-size", type=int)
    parser.add_argument("--calibration")
    parser.add_argument("--joiner", default="")
    parser.add_argument("--bleu-tokenize", default="13a")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--modes", nargs="+")
    arguments = parser.parse_args()
    start_tensorflow()
    import keras_transformer as kt
    from keras_transformer.export import compare_modes

    run = kt.load_run(arguments.run)
    width = arguments.beam_size
    strategy = kt.BeamSearch(beam_size=width, length_penalty=1.0) if width else kt.Greedy()
    sources, references = (
        lines(kt, path, arguments.sentences) for path in (arguments.sources, arguments.references)
    )
    if arguments.joiner:
        references = [line.replace(arguments.joiner, "") for line in references]
    calibration = arguments.calibration and lines(kt, arguments.calibration, 256)
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder) / "modes"
        compare_modes(
            run.model, run.tokenizer, made, samples=sources, references=references,
            calibration_samples=calibration, strategy=strategy, modes=arguments.modes,
            bleu_tokenize=arguments.bleu_tokenize,
        )  # fmt: skip
        arguments.out.mkdir(parents=True, exist_ok=True)
        for path in made.glob("report.*"):
            shutil.copy(path, arguments.out / path.name)
    print((arguments.out / "report.md").read_text(encoding="utf-8"))
    return 0


def lines(kt, path, count):
    return list(itertools.islice(read_lines(path), count))


if __name__ == "__main__":
    sys.exit(main())
