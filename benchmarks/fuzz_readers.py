"""Damages files that commands read before TensorFlow is imported, and reads them in one process.

    python benchmarks/fuzz_readers.py --out readers.json [--cases 1000] [--only KIND ...] [--seed 0]
        [--case N]

`fuzz.py` runs whole commands, for seconds a case. This calls what commands call first, for
milliseconds a case: it finds faults of readers, not those of Keras, of TensorFlow or of weights.
Damage is that of `fuzz.py`.

Right is the same answer as before, or an error that names the file or the folder (in an
experiment: no matter what) and that a command tells in one line. Counted are errors that a command
calls not expected (`unexpected`), those that name neither (`unnamed`), those of memory and readers
that compute for more than 30 seconds (`hung`), and other answers: `wrong`, or, of files that people
may edit or that have no checksum, `other`, which is no fault. Needs Linux. Exits with 1 when there
was a fault.
"""

import argparse
import collections
import contextlib
import pathlib
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings

from fault_injection.mutations import mutate
from fault_injection.readers import READERS
from reporting import options_of, processor, say, write_json

from keras_transformer_runner.failures import told

FAULTS = ("wrong", "unexpected", "unnamed", "hung")
_ADDRESSES, _SECONDS = 4 << 30, 30
_EXAMPLES = 40  # of a kind


def main():
    arguments = _arguments()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    signal.signal(signal.SIGPROF, _hang)
    found = {}
    with tempfile.TemporaryDirectory(prefix="readers-") as folder:
        for name in arguments.only:
            cases = _Cases(READERS[name], pathlib.Path(folder), arguments.seed)
            if arguments.case is not None:
                print(cases.run(arguments.case))
                continue
            found[name] = _counted(cases, arguments.cases)
            say(f"{name}: {found[name]['counts']}, {found[name]['seconds']} s")
            if arguments.out:  # after each kind, so that a kill loses one
                report = {"options": options_of(arguments), "processor": processor()}
                write_json(arguments.out, {**report, "kinds": found})
    for name, one in found.items():
        for example in one["examples"]:
            print(name, *example.values(), sep=", ")
    return int(any(one["counts"].get(fault) for one in found.values() for fault in FAULTS))


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="where the figures go, as JSON")
    parser.add_argument("--cases", type=int, default=1000, help="of each kind")
    parser.add_argument("--only", nargs="+", choices=list(READERS), default=list(READERS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this one and show it")
    return parser.parse_args()


class _Hung(BaseException):
    """No reader may catch it."""


def _hang(*_):
    raise _Hung


class _Cases:
    """Cases of one kind, after one without damage."""

    def __init__(self, reader, folder, seed):
        self._reader, self._seed = reader, seed
        self._folder, self._other = (folder / reader.name / each for each in ("folder", "other"))
        for number, each in enumerate((self._folder, self._other)):
            each.mkdir(parents=True)
            reader.make(each, number)
        paths = sorted(path for path in self._folder.rglob("*") if path.is_file())
        self._content = {str(path.relative_to(self._folder)): path.read_bytes() for path in paths}
        self._right = reader.read(self._folder)

    def run(self, number):
        """One case; its outcome and what makes it again."""
        generator = random.Random(f"{self._seed}/{self._reader.name}/{number}")
        name = generator.choice(sorted(self._content))
        how = mutate(self._folder, name, self._other, generator)
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        place, said = "", ""
        try:
            answer = self._reader.read(self._folder)
        except (Exception, _Hung) as error:
            outcome, said = self._refusal(error, name)
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{pathlib.Path(last.filename).name}:{last.lineno}"
        else:
            is_free = re.search(self._reader.free, name)
            outcome = "same" if answer == self._right else "other" if is_free else "wrong"
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._restore(name)
        said = said.replace(str(self._folder), "FOLDER")[:200]
        return {
            **{"case": number, "outcome": outcome, "file": name, "mutation": how},
            **{"place": place, "said": said},
        }

    def _refusal(self, error, name):
        if isinstance(error, (_Hung, MemoryError)):
            return "hung", type(error).__name__
        said = told(error)
        if "(not expected" in said:
            return "unexpected", said
        names = (pathlib.Path(name).name, str(self._folder))
        is_named = not self._reader.names or any(each in said for each in names)
        return "refused" if is_named else "unnamed", said

    def _restore(self, name):
        """Makes the folder as it was, whatever the reader has left there."""
        (self._folder / name).write_bytes(self._content[name])
        for path in self._folder.rglob("*"):
            if path.is_file() and str(path.relative_to(self._folder)) not in self._content:
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()


def _counted(cases, number):
    start, counts, examples, seen = time.monotonic(), collections.Counter(), [], set()
    for each in range(number):
        case = cases.run(each)
        counts[case["outcome"]] += 1
        key = case["outcome"], case["file"], case["place"]
        if case["outcome"] in FAULTS and key not in seen and len(examples) < _EXAMPLES:
            seen.add(key)
            examples.append(case)
    seconds = round(time.monotonic() - start, 1)
    return {"cases": number, "seconds": seconds, "counts": dict(counts), "examples": examples}


if __name__ == "__main__":
    sys.exit(main())
