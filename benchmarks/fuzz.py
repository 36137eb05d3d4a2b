"""Damages every kind of file that commands read, and looks at what they answer.

    python benchmarks/fuzz.py --out fuzz.json [--cases 1000] [--minutes M] [--quick] [--jobs 2]
        [--only KIND ...] [--seed 0] [--case N] [--world FOLDER]

Kinds: a run folder (`translate`), an interrupted run (`train` goes on), shards (`train`), the part
and the note of `translate --output`, a device folder (the runner's command; every fifth case
`evaluate --with litert`), a SavedModel (`evaluate --with savedmodel`), an experiment (`train`),
corpora (`prepare`), tokenizers (`prepare`), the run that another starts from (`train`), a
shortlist (`translate --shortlist`), packed weights (`--weight-cache`), files to compare (`compare`)
and a folder of Hugging Face's (`import`). Of each, toy ones that the script makes itself, one
file is damaged a case: flipped bits, a cut, zeros, bytes more, a part twice, an empty file, none,
the file of another folder, JSON and TOML keys twice or away, values of another type or huge,
weights that are NaN, infinite, zero or huge, arrays of another shape, type or place.

Right is the same answer as before; or exit code 1 and one line on standard error that names the
file or the folder (in an experiment: no matter what). Counted are tracebacks and messages of many
lines (`unclear`), lines that name neither (`unnamed`), signals, hangs, and other answers: `wrong`,
or, of files that people may edit (experiments, text, tokenizers before training), `other`, which is
no fault. Files that the command does not open get one case in ten, or in twenty: each takes as long
as an undamaged command and asks little. A seed and a number make a case: `--only KIND --seed S
--case N` shows it. Many hours go in pieces: `--minutes` ends each kind, `--world` keeps what the
script has made, and `join_faults.py` adds up the figures of runs with different seeds. `TMPDIR` in
memory (/dev/shm) spares the disk.

Commands are forks of this process (see `fault_injection/children.py`), with at most 16 GB of
addresses. Needs Linux. Exits with 1 when there was a fault.
"""

import argparse
import collections
import functools
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
import time

from fault_injection import children
from fault_injection.children import TIMED_OUT, Child
from fault_injection.jobs import in_jobs
from fault_injection.kinds import KINDS
from fault_injection.mutations import mutate
from fault_injection.opened import files_opened
from fault_injection.world import World
from reporting import options_of, processor, say, write_json

FAULTS = ("wrong", "unclear", "unnamed", "signal", "hung")
_CASES, _QUICK_CASES = 1000, 12
_ADDRESSES = 16 << 30
_SAY_EVERY = 50
_EXAMPLES = 40  # of a kind and fault
_TIMES = ("seconds", "processor_seconds")  # of all cases; the latter grows little beside others
_ERROR = re.compile(r"keras-transformer(-run)?: error: \S")
_NOT_EXPECTED = "(not expected: "  # as the commands tell an error that nobody has thought of


def main():
    arguments = _arguments()
    children.warm_up()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        world = World(arguments.world or folder / "world", lines=200)
        cases = {
            name: _Cases(KINDS[name], world, folder, arguments.seed) for name in arguments.only
        }
        if arguments.case is not None:
            for one in cases.values():
                print(one.run(arguments.case, show=True))
            return 0
        parts = in_jobs(arguments.jobs, folder, functools.partial(_job, arguments, cases))
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    found = {name: _joined([part[name] for part in parts]) for name in cases}
    report = {"options": options_of(arguments), "processor": processor(), "kinds": found}
    _print(found)
    if arguments.out:
        write_json(arguments.out, report)
    return int(any(one["counts"].get(fault) for one in found.values() for fault in FAULTS))


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="where the figures go, as JSON")
    parser.add_argument("--cases", type=int, help=f"of each kind; {_CASES} when left out")
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK_CASES} of each kind")
    parser.add_argument("--minutes", type=float, help="at most, for each kind")
    parser.add_argument("--world", type=pathlib.Path, help="where the toys lie, made if missing")
    parser.add_argument("--jobs", type=int, default=1, help="processes, a core each")
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this one and show what it says")
    parser.add_argument("--keep", action="store_true", help="leave the folder of the cases")
    arguments = parser.parse_args()
    if arguments.cases is None:
        arguments.cases = _QUICK_CASES if arguments.quick else _CASES
    return arguments


class _Cases:
    """Cases of one kind, after one without damage that gives the right answers."""

    def __init__(self, kind, world, folder, seed):
        self.kind, self._world, self._folder, self._seed = kind, world, folder / kind.name, seed
        start = time.monotonic()
        self.files = kind.files(world)
        kind.other(world)
        self.work_in(0)
        _, opened = self._undamaged(0)
        unread = [name for name in self.files if name not in opened]
        say(f"{kind.name}: {time.monotonic() - start:.0f} s to make it; {self.files}")
        say(f"  not opened by the first command: {unread}")

    def work_in(self, job):
        """Uses a place of its own, always the same: names of places are in some answers."""
        self._right, self._place = {}, self._folder / f"job-{job}"

    def run(self, number, show=False):
        """One case; its outcome and what makes it again."""
        right, opened = self._undamaged(number)
        generator = _generator(self._seed, self.kind.name, number)
        name = self._file(opened, generator)
        how, child, answer = self._damaged(number, name, generator)
        outcome = self._outcome(child, answer == right, name, how)
        said = child.err if show else child.err.strip()[-300:]
        return {"case": number, "outcome": outcome, "file": name, "mutation": how,
                "command": " ".join(child.argv), "code": child.code, "said": said}  # fmt: skip

    def _file(self, opened, generator):
        """Half of the cases are of the favourites, and few of what the command does not open."""
        favourites = [name for name in self.files if re.search(self.kind.favourites, name)]
        if self.kind.favourites and generator.random() < 0.5:
            return generator.choice(favourites)
        opened = [name for name in self.files if name in opened]
        return generator.choice(opened if opened and generator.random() < 0.9 else self.files)

    def _undamaged(self, number):
        """What the command of a case answers and opens undamaged; run once a command."""
        generator = _generator(self._seed, number)
        key = str(self.kind.command(self._world, *self._places(), generator))
        if key not in self._right:
            child, answer, opened = self._answer(None, _generator(self._seed, number))
            if answer is None or child.code not in (0, None):
                said = f"{child.code}: {child.err[-999:]}"
                raise RuntimeError(f"{child.argv} must succeed. Received: {said}")
            self._right[key] = answer, opened
        return self._right[key]

    def _places(self):
        """The damaged folder, and that of results."""
        return self._place / "folder", self._place / "results"

    def _damaged(self, number, name, generator):
        how = []

        def damage(folder):
            how.append(mutate(folder, name, self.kind.other(self._world), generator))

        child, answer, _ = self._answer(damage, _generator(self._seed, number))
        return how[0], child, answer

    def _answer(self, damage, generator):
        """Runs the command on a copy, damaged if that is given."""
        folder, results = self._places()
        results.mkdir(parents=True)
        shutil.copytree(self.kind.base(self._world), folder)
        if damage:
            damage(folder)
        module, argv = self.kind.command(self._world, folder, results, generator)
        with files_opened(folder) as opened:
            child = Child(
                argv, results.parent / "log", module=module, window=40, addresses=_ADDRESSES,
                learn=damage is None,
            )  # fmt: skip
            _wait(child, self.kind, folder, results)
        if damage is None and child.code == 0:
            child.learnt(0)
        child.keep_output()
        answer = self.kind.answer(child, folder, results)
        shutil.rmtree(results.parent)
        return child, answer, opened

    def _outcome(self, child, is_right, name, how):
        if child.code == TIMED_OUT:
            return "hung"
        if child.code in (0, None):
            if is_right:
                return "same"
            is_free = re.search(self.kind.free, name) or how == self.kind.free_how
            return "other" if is_free else "wrong"
        if child.code < 0:
            return "signal"
        lines = child.err.strip().splitlines()
        is_clear = lines and _ERROR.match(lines[-1]) and "Traceback" not in child.err
        is_clear = is_clear and _NOT_EXPECTED not in lines[-1]
        if child.code != 1 or not is_clear:
            return "unclear"
        place = str(self._folder)
        is_named = not self.kind.names or name.rpartition("/")[2] in lines[-1] or place in lines[-1]
        return "refused" if is_named else "unnamed"


def _wait(child, kind, folder, results):
    """Until the command ends, or has its answer: then it is killed, and its code is `None`."""
    until = time.monotonic() + kind.limit
    while child.poll() is None:
        if kind.until and kind.until(folder, results):
            child.kill()
            child.code = None if child.code == -9 else child.code
            return
        if time.monotonic() > until:
            child.wait(0)
            return
        child.wait_or_leave(0.05 if kind.until else kind.limit)


def _processor_seconds():
    times = os.times()
    return sum(times[:4])  # of commands that have ended too


def _generator(*names):
    return random.Random("/".join(map(str, names)))


def _job(arguments, cases, job):
    found = {}
    for name, one in cases.items():
        if job:
            one.work_in(job)
        counts, mutations, examples = collections.Counter(), collections.Counter(), []
        start, used = time.monotonic(), _processor_seconds()
        most = 60 * (arguments.minutes or float("inf"))
        for number in range(job, arguments.cases, arguments.jobs):
            if time.monotonic() - start > most:
                break
            case = one.run(number)
            counts[case["outcome"]] += 1
            mutations[f"{case['mutation']}: {case['outcome']}"] += 1
            if case["outcome"] in FAULTS:
                alike = sum(each["outcome"] == case["outcome"] for each in examples)
                if alike < _EXAMPLES:
                    examples.append(case)
            if (number // arguments.jobs + 1) % _SAY_EVERY == 0:
                say(f"{name}: case {number}: {dict(counts)}")
        found[name] = {
            "seconds": time.monotonic() - start,
            "processor_seconds": _processor_seconds() - used,
            **{"counts": counts, "mutations": mutations, "examples": examples},
        }
        say(f"{name}: {dict(counts)}")
    return found


def _joined(parts):
    counts, mutations = collections.Counter(), collections.Counter()
    for part in parts:
        counts.update(part["counts"])
        mutations.update(part["mutations"])
    examples = sorted((case for part in parts for case in part["examples"]), key=_number)
    return {
        "cases": sum(counts.values()),
        **{key: round(sum(part[key] for part in parts)) for key in _TIMES},
        "counts": dict(counts),
        "mutations": dict(sorted(mutations.items())),
        "examples": examples,
    }


def _number(case):
    return case["case"]


def _print(found):
    columns = ("cases", "same", "refused", "other", *FAULTS)
    print(f"{'':12}" + "".join(f"{name:>9}" for name in columns))
    for name, one in found.items():
        row = {"cases": one["cases"], **one["counts"]}
        print(f"{name:12}" + "".join(f"{row.get(column, 0):>9}" for column in columns))
    for name, one in found.items():
        seen = set()
        for case in one["examples"]:
            key = case["outcome"], case["file"], case["mutation"]
            if key not in seen:
                seen.add(key)
                last = (case["said"].splitlines() or [""])[-1][:160]
                print(f"{name} {case['case']}: {' / '.join(key)}, exit {case['code']}: {last}")


if __name__ == "__main__":
    sys.exit(main())
