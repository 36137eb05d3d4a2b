"""An exported folder in browsers, by the package of export/web, against the Python runner.

    keras-transformer export RUN float32 --to litert --lengths 32,128 --lengths-only
    keras-transformer export RUN int8 --to litert --mode int8 --lengths 32,128 --lengths-only
    (cd export/web && npm ci)
    python benchmarks/page.py float32 int8 --sentences FILE

FILE has a sentence a line, plain or .gz. Each folder is opened in a new page of each browser that
is installed (export/web/README.md says which), from a server on this machine; then all sentences
are translated, one at a time, in several rounds. Printed are: the time from the call to a
translator that is ready, with what is fetched and compiled; of each sentence the fastest round, and
of these the median; the mean processor time of a sentence, of all the browser's processes, which
other work on the machine disturbs less; WebAssembly's memory before and after; and how many texts
are those of the first folder in Python, with the share of its tokens at the same place. The Python
runner translates the same sentences in the same minutes, on one thread too. Needs Linux, and
nothing else should run on the machine.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import time

from keras_transformer_runner import Runner
from keras_transformer_runner.lines import read_lines

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tests" / "support"))
SCRIPT = pathlib.Path(__file__).with_name("page_visits.mjs")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", help="exported with --lengths")
    parser.add_argument("--sentences", required=True)
    parser.add_argument("--count", type=int, default=100, help="sentences")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--browsers", nargs="+", default=["chromium", "firefox", "webkit"])
    parser.add_argument("--out", help="JSON file for the figures")
    arguments = parser.parse_args()
    texts = list(itertools.islice(read_lines(arguments.sentences), arguments.count))
    results = {}
    reference = None
    for folder in arguments.folders:
        runner = Runner(folder)
        answers, figures = in_python(runner, texts, arguments.rounds)
        reference = answers if reference is None else reference
        name = pathlib.Path(folder).name
        results[name] = {"Python": {**agreement(answers, reference), **figures}}
        show(name, "Python", results[name]["Python"])
        for browser in arguments.browsers:
            found = visit(browser, folder, texts, arguments.rounds)
            if found is None:
                continue
            answers = [tuple(answer) for answer in found.pop("answers")]
            results[name][browser] = {**agreement(answers, reference), **found}
            show(name, browser, results[name][browser])
    if arguments.out:
        record = dict(sentences=len(texts), rounds=arguments.rounds, results=results)
        pathlib.Path(arguments.out).write_text(json.dumps(record, indent=1) + "\n")
    return 0


def in_python(runner, texts, rounds):
    """The texts and ids, and the times of a sentence."""
    answers, best = [], [float("inf")] * len(texts)
    begin = time.process_time()
    for _ in range(rounds):
        answers = []
        for index, text in enumerate(texts):
            start = time.perf_counter()
            ids = runner.translate_ids(runner.encode(text))
            answers.append((runner.decode(ids), ids))
            best[index] = min(best[index], time.perf_counter() - start)
    each = (time.process_time() - begin) / (rounds * len(texts))
    return answers, dict(
        sentence_ms=round(1e3 * statistics.median(best), 2), processor_ms=round(1e3 * each, 2)
    )


def visit(browser, folder, texts, rounds):
    """What a browser measures, or `None` where it is not installed."""
    from page_engines import ENGINES

    engine = ENGINES[browser]()
    if engine is None:
        print(f"{browser} is not installed", file=sys.stderr)
        return None
    request = dict(engine=dict(kind=browser, **engine), folder=str(folder))
    request |= dict(texts=texts, rounds=rounds)
    done = subprocess.run(
        ["node", SCRIPT], input=json.dumps(request), stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


def agreement(answers, reference):
    """How many texts are equal, and the share of the reference's tokens at the same place."""
    same = sum(answer[0] == other[0] for answer, other in zip(answers, reference, strict=True))
    pairs = [(answer[1], other[1]) for answer, other in zip(answers, reference, strict=True)]
    tokens = sum(len(other) for _, other in pairs)
    right = sum(a == b for ids, other in pairs for a, b in zip(ids, other, strict=False))
    return dict(same_texts=same, token_agreement=round(right / max(tokens, 1), 4))


def show(folder, where, figures):
    print(folder, where, json.dumps(figures))


if __name__ == "__main__":
    sys.exit(main())
