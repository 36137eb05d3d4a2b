"""Whether greedy search with its cache takes the tokens that full passes would.

    python benchmarks/uncached.py RUN SENTENCES [--count 1000]

RUN is a folder that `keras-transformer train` has made, SENTENCES a file with a sentence a line,
plain or .gz. Each sentence is translated as `Translator` does it; then one full pass over source
and translation, without any cache, tells the likeliest token at every position, EOS included. By
induction these are the tokens of a search that runs a full pass for each token.
"""

import argparse
import itertools
import sys

import numpy as np

from keras_transformer.quiet import start_tensorflow
from keras_transformer_runner.lines import read_lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run")
    parser.add_argument("sentences")
    parser.add_argument("--count", type=int, default=1000)
    arguments = parser.parse_args()
    start_tensorflow()
    import keras_transformer as kt

    run = kt.load_run(arguments.run)
    config = run.model.config
    translator = kt.Translator(run.model, run.tokenizer, target_tokenizer=run.target_tokenizer)
    lines = list(itertools.islice(read_lines(arguments.sentences), arguments.count))
    rows = [found[0] for found in translator.translate_with_details(lines)]
    equal = tokens = 0
    for line, row in zip(lines, rows, strict=True):
        source = np.array([translator.source_ids(line)], "int32")
        target = np.array([[config.bos_id, *row.ids[:-1]]], "int32")
        logits = np.array(run.model({"source_ids": source, "target_ids": target}, training=False))
        logits[:, :, [config.pad_id, config.bos_id]] = -np.inf
        same = logits[0].argmax(axis=-1) == np.array(row.ids)
        equal += bool(same.all()) or not row.ids
        tokens += int(same.sum())
    total = sum(len(row.ids) for row in rows)
    print(f"{equal} of {len(lines)} sentences and {tokens} of {total} tokens are the full pass's")
    return 0 if equal == len(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
