"""One sentence at a time on one thread: our LiteRT file against CTranslate2 with equal weights.

    pip install ctranslate2
    python benchmarks/device.py RUN SENTENCES [--rounds 7] [--sentences 200]

RUN is a folder that `keras-transformer train` has made, SENTENCES a file with a sentence a line,
plain or .gz. Every round each system translates all sentences, in turn; the ratio of a round is
CTranslate2's time over ours, and the median over the rounds is printed with the share of equal
texts. Both search greedily. Nothing else should run on the machine.
"""

import argparse
import itertools
import pathlib
import statistics
import sys
import tempfile
import time

from keras_transformer.quiet import start_tensorflow


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run")
    parser.add_argument("sentences_file", metavar="sentences")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sentences", type=int, default=200)
    arguments = parser.parse_args()
    start_tensorflow()
    import keras_transformer as kt

    run = kt.load_run(arguments.run)
    lines = kt.text.read_lines(arguments.sentences_file)
    sentences = list(itertools.islice(lines, arguments.sentences))
    with tempfile.TemporaryDirectory() as folder:
        systems = make_systems(kt, run, pathlib.Path(folder), sentences)
        texts = {name: translate(sentences) for name, translate in systems.items()}  # warm-up
        seconds = {name: [] for name in systems}
        for _ in range(arguments.rounds):
            for name, translate in systems.items():
                start = time.perf_counter()
                translate(sentences)
                seconds[name].append(time.perf_counter() - start)
    pieces = sum(len(run.tokenizer.encode(text)) + 1 for text in texts["LiteRT float32"])
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name:22} {1e3 * median / len(sentences):7.2f} ms a sentence, "
              f"{pieces / median:7.0f} ids/s")  # fmt: skip
    for kind in ("float32", "int8"):
        ours, theirs = f"LiteRT {kind}", f"CTranslate2 {kind}"
        ratios = [b / a for a, b in zip(seconds[ours], seconds[theirs], strict=True)]
        equal = sum(a == b for a, b in zip(texts[ours], texts[theirs], strict=True))
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{kind}: {statistics.median(ratios):.2f} times as fast as CTranslate2 ({spread}); "
              f"{equal} of {len(sentences)} texts equal")  # fmt: skip
    return 0


def make_systems(kt, run, folder, sentences):
    """Functions `list[str] -> list[str]` by name, our two and CTranslate2's two."""
    import ctranslate2

    from keras_transformer.interop.ctranslate2 import save_ctranslate2

    systems = {}
    save_ctranslate2(run.model, run.tokenizer, folder / "ct2")
    for kind in ("float32", "int8"):
        kt.export_litert(
            run.model, run.tokenizer, folder / kind, samples=run.samples, mode=kind,
            strategy=run.strategy,
        )  # fmt: skip
        systems[f"LiteRT {kind}"] = kt.Runner(folder / kind, num_threads=1).translate
        translator = ctranslate2.Translator(
            str(folder / "ct2"), compute_type=kind, inter_threads=1, intra_threads=1
        )
        systems[f"CTranslate2 {kind}"] = ctranslate2_function(translator, run)
    return systems


def ctranslate2_function(translator, run):
    tokenizer, extra = run.tokenizer, run.strategy.extra_length

    def translate(texts):
        answers = []
        for text in texts:
            tokens = [tokenizer.pieces[token] for token in tokenizer.encode(text)]
            [result] = translator.translate_batch(
                [tokens], beam_size=1, min_decoding_length=0,
                max_decoding_length=len(tokens) + 1 + extra,
            )  # fmt: skip
            ids = [tokenizer.piece_ids[piece] for piece in result.hypotheses[0]]
            answers.append(tokenizer.decode(ids))
        return answers

    return translate


if __name__ == "__main__":
    sys.exit(main())
