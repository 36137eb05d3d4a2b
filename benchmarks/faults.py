"""Kills commands by signal 9 at random moments, starts two at once, and compares what they leave.

    python benchmarks/faults.py --out faults.json [--minutes 20] [--quick] [--jobs 2]
        [--only COMMAND ...] [--kills 50] [--pairs 20] [--seed 0] [--fresh 0.03] [--world FOLDER]

Of each of `train`, `prepare`, `translate --output` (with and without `--workers 2`), `export --to
savedmodel` and `--to litert`, on a corpus and a model of toy size that the script makes itself: at
least 50 kills, half of them at a random moment of the command's time and half when something
changes in its folder; and at least 20 pairs at once, half of them at the same moment. A target is
killed up to four times in a row before it may end. What is there then is compared with what an
undisturbed run leaves: bytes where they are promised (shards, translations, model files), weights
and figures elsewhere. Counted are results that are wrong, that are lost (the command cannot end,
or files are missing), what is left over (temporary folders, parts, locks), workers that outlive
their parent, refusals that are no single line or do not name the holder, and hangs.

`left_over_beside_finished` counts what stays when the kill came after the target was complete, so
that the next run was refused. `left_in_the_systems_folder` counts files in TMPDIR, most of which
are TensorFlow's.

A command is a fork of this process, which has imported TensorFlow and run nothing; `--fresh` is the
share that are fresh processes. Where namespaces may be made, a third are process 1 of one, as in a
container. A fork of `translate` takes 64 lines at a time in place of 4,096. Many hours go in
pieces: `--world` keeps the inputs, and `join_faults.py` adds up the figures of runs with different
seeds. Needs Linux. Exits with 1 if anything but the two counts above is not zero.
"""

import argparse
import collections
import functools
import pathlib
import shutil
import sys
import tempfile
import time

from fault_injection import children, soak
from fault_injection.jobs import in_jobs
from fault_injection.targets import BY_NAME
from fault_injection.world import World
from reporting import options_of, processor, say, write_json

_KILLS, _PAIRS = 50, 20
_QUICK_KILLS, _QUICK_PAIRS = 2, 1


def main():
    arguments = _arguments()
    children.warm_up()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        found = _disturb(arguments, folder)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    report = {"options": options_of(arguments), "processor": processor(), "commands": found}
    _print(found)
    if arguments.out:
        write_json(arguments.out, report)
    return int(any(one[fault] for one in found.values() for fault in soak.FAULTS))


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="where the figures go, as JSON")
    parser.add_argument("--minutes", type=float, default=20.0, help="at least, once all is counted")
    parser.add_argument("--quick", action="store_true", help="a few of each, and no minutes")
    parser.add_argument("--jobs", type=int, default=1, help="processes that disturb, a core each")
    parser.add_argument("--only", nargs="+", choices=list(BY_NAME), default=list(BY_NAME))
    parser.add_argument("--kills", type=int, help=f"at least, of each; {_KILLS} when left out")
    parser.add_argument("--pairs", type=int, help=f"at least, of each; {_PAIRS} when left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", type=pathlib.Path, help="where the inputs lie, made if missing")
    parser.add_argument("--fresh", type=float, default=0.03, help="share of fresh processes")
    parser.add_argument("--keep", action="store_true", help="leave the folder of the rounds")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.minutes = 0.0
    if arguments.kills is None:
        arguments.kills = _QUICK_KILLS if arguments.quick else _KILLS
    if arguments.pairs is None:
        arguments.pairs = _QUICK_PAIRS if arguments.quick else _PAIRS
    return arguments


def _disturb(arguments, folder):
    """The counts of each command, by name."""
    start = time.monotonic()
    world = World(arguments.world or folder / "world")
    measures = {}
    for name in arguments.only:
        reference = folder / "reference" / name.replace(" ", "_")
        BY_NAME[name].argv(world, folder)  # has its inputs made
        if not arguments.quick:  # first as all later ones are not
            learning = reference.with_name(f"{reference.name}-learning")
            soak.measured(BY_NAME[name], world, learning, learn=True)
        measures[name] = (
            reference,
            *soak.measured(BY_NAME[name], world, reference, learn=arguments.quick),
        )
        say(f"{name}: {measures[name][1]:.1f} s, {measures[name][2]} changes of its folder")
    work = functools.partial(_job, arguments, folder, world, measures, start)
    parts = in_jobs(arguments.jobs, folder, work)
    found = {}
    for name, (_, seconds, changes) in measures.items():
        counts = collections.Counter()
        for part in parts:
            counts.update(part[name]["counts"])
        found[name] = {
            "seconds": round(seconds, 2),
            "changes": changes,
            **{key: counts.pop(key, 0) for key in (*soak.COUNTS, *soak.FAULTS)},
            **counts,
            "examples": [example for part in parts for example in part[name]["examples"]],
        }
    return found


def _job(arguments, folder, world, measures, start, job):
    """What one process has found: counts and examples by command."""
    contain = children.can_contain()
    soaks = {
        name: soak.Soak(
            BY_NAME[name], world, folder / f"rounds-{job}" / name.replace(" ", "_"), reference,
            seconds=seconds, changes=changes, fresh=arguments.fresh, contain=contain,
            generator=soak.seeded(arguments.seed, job, name),
        )
        for name, (reference, seconds, changes) in measures.items()
    }  # fmt: skip
    _rounds(arguments, soaks, start)
    return {name: {"counts": one.counts, "examples": one.examples} for name, one in soaks.items()}


def _rounds(arguments, soaks, start):
    """Disturbs one command after the other until each has had enough and the time is over."""
    kills = -(-arguments.kills // arguments.jobs)
    pairs = -(-arguments.pairs // arguments.jobs)
    while True:
        over = time.monotonic() - start >= arguments.minutes * 60
        wanting = [
            one
            for one in soaks.values()
            if not over or one.counts["kills"] < kills or one.counts["pairs"] < pairs
        ]
        if not wanting:
            return
        for one in wanting:
            if one.counts["kills"] < kills or not over:
                one.kill_round()
            if one.counts["pairs"] < pairs or not over:
                one.pair_round()
            faults = {name: one.counts[name] for name in soak.FAULTS if one.counts[name]}
            say(
                f"{one.target.name}: {one.counts['kills']} kills, {one.counts['pairs']} pairs; "
                f"{faults or 'no fault'}"
            )


def _print(found):
    columns = (*soak.COUNTS[1:2], "pairs", *soak.FAULTS, "left_over_beside_finished")
    print(
        f"{'':24}"
        + "".join(f"{name.replace('left_over_beside', 'beside'):>16}" for name in columns)
    )
    for name, counts in found.items():
        print(f"{name:24}" + "".join(f"{counts.get(column, 0):>16}" for column in columns))
    for name, counts in found.items():
        for kind, how, what in counts["examples"]:
            print(f"{name}: {kind} ({how}): {what}")


if __name__ == "__main__":
    sys.exit(main())
