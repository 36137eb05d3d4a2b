"""Disturbing commands: kills by signal 9 at random moments, and two at once on one target."""

import collections
import os
import random
import re
import shutil
import time

from fault_injection.children import TIMED_OUT, Child
from fault_injection.results import differences
from fault_injection.targets import SAVED_MODEL, WORKERS

_CHAIN = 4  # kills of one target, one after the other, at most
_POLL = 0.001
_WINDOW = 64  # lines that `translate` takes at a time, so that it has many parts
_ORPHANS_MAY_LIVE = 10.0  # seconds that workers have to notice that their parent is no more
_EXAMPLES = 12
FAULTS = ("wrong", "lost", "left_over", "orphans", "unclear", "hung")
COUNTS = ("rounds", "kills", "kills_at_a_change", "kills_of_the_parent_alone", "pairs")


class Soak:
    """Disturbs one target, and counts what went wrong.

    Args:
        target: A `Target`.
        world: The `World` of its inputs.
        folder: Where its rounds take place.
        reference: A folder in which the target was made undisturbed.
        seconds: How long that took.
        changes: How often something had changed there.
        generator: A `random.Random`.
        fresh: Share of processes that are fresh ones.
        contain: Whether some of them are process 1 of a namespace.

    Attributes:
        counts: A `Counter` of `COUNTS` and `FAULTS`, and of what else was seen.
        examples: Lists of what was wrong.
    """

    def __init__(self, target, world, folder, reference, *, seconds, changes, generator,
                 fresh=0.0, contain=False):  # fmt: skip
        self.target, self._world = target, world
        self._folder, self._reference = folder, reference
        self._seconds, self._changes = seconds, changes
        self._random, self._fresh, self._contain = generator, fresh, contain
        self.counts, self.examples = collections.Counter(), []

    def kill_round(self):
        """Kills the command some times in a row, lets it end, and compares."""
        folder, start = self._new_round("kill")
        number = self._random.randint(1, _CHAIN)
        for _ in range(number):
            child = start()
            self._kill(child, folder)
            if child.code == TIMED_OUT:
                self._fault("hung", child, "when it should have been killed")
            if self.target.is_finished(folder):
                break
        was_finished = self.target.is_finished(folder)
        child = start()
        code = child.wait(self.target.limit)
        if code == TIMED_OUT:
            self._fault("hung", child, f"after {number} kills")
        elif code == 0:
            self._compare(folder, child, "left_over")
        elif was_finished and self._is_refused(child, self.target.refusal):
            self._compare(folder, child, "left_over_beside_finished")
        else:
            self._fault("lost", child, f"exit code {code} after {number} kills: {_tail(child)}")
        self._end_round(folder)

    def pair_round(self):
        """Starts the command twice at once: one must be right, the other refused."""
        folder, start = self._new_round("pair")
        one = start()
        # Half of them at the same moment, the others somewhere on the way.
        most = 0.02 if self._random.random() < 0.5 else 0.9 * self._seconds
        time.sleep(self._random.uniform(0.0, most))
        one_was_done = one.poll() is not None
        both = one, start()
        self.counts["pairs"] += 1
        for child in both:
            if child.wait(self.target.limit) == TIMED_OUT:
                self._fault("hung", child, "of a pair")
        done = [child for child in both if child.code == 0]
        if len(done) == 2 and self.target.name != SAVED_MODEL:
            self._fault("wrong", both[1], "both of a pair say that they are done")
        if not done:
            said = " AND ".join(map(_tail, both))
            self._fault("lost", one, f"neither of a pair has succeeded: {said}")
        for child, other in (both, both[::-1]):
            if child.code not in (0, TIMED_OUT):
                self._check_refusal(child, other, one_was_done)
        if done:
            self._compare(folder, done[0], "left_over")
        self._end_round(folder)

    def _new_round(self, kind):
        """A new folder, and a function that starts the command on it."""
        self.counts["rounds"] += 1
        name = f"{kind}-{self.counts['rounds']}"
        folder, temporary = self._folder / name, self._folder / f"{name}-tmp"
        folder.mkdir(parents=True)
        temporary.mkdir()
        options = {
            "fresh": self._random.random() < self._fresh,
            "contained": self._contain and self._random.random() < 0.3,
        }
        argv, started = self.target.argv(self._world, folder), 0

        def start():
            nonlocal started
            started += 1
            self.counts["fresh"] += options["fresh"]
            self.counts["contained"] += options["contained"]
            return Child(
                argv, self._folder / "logs" / f"{name}-{started}",
                temporary=temporary, window=_WINDOW, **options,
            )  # fmt: skip

        return folder, start

    def _end_round(self, folder):
        temporary = folder.with_name(f"{folder.name}-tmp")
        self.counts["left_in_the_systems_folder"] += len(os.listdir(temporary))
        shutil.rmtree(folder)
        shutil.rmtree(temporary)

    def _kill(self, child, folder):
        """Kills it at a random moment, or when it writes; if it does not end before."""
        # What process 1 of a namespace leaves behind, the kernel ends.
        parent_alone = (
            self.target.name == WORKERS and not child.contained and self._random.random() < 0.5
        )
        at_a_change = child.fresh or self._random.random() < 0.5
        if at_a_change:
            changes = self._random.randint(1, max(1, self._changes))
            wait_for_changes(folder, child, changes, self.target.limit)
            time.sleep(self._random.choice((0.0, 0.0, self._random.uniform(0.0, 0.003))))
        else:
            child.wait_or_leave(self._random.uniform(0.0, self._seconds))
        if child.poll() is not None:
            return
        child.kill(only_parent=parent_alone)
        self.counts["kills"] += 1
        self.counts["kills_at_a_change"] += at_a_change
        if parent_alone:
            self.counts["kills_of_the_parent_alone"] += 1
            if left := child.orphans(_ORPHANS_MAY_LIVE):
                self._fault("orphans", child, f"{len(left)} processes outlive the command")
                child.end_session()

    def _compare(self, folder, child, left):
        """Counts what is not as in the reference; `left` is what leftovers count as."""
        if self.target.name == SAVED_MODEL:
            found = _of_versions(folder / self.target.file, self._reference / self.target.file)
            found["left"] += differences(folder, self._reference)["left"]
            found["left"] = [name for name in found["left"] if not re.search(r"/\d+(/|$)", name)]
        else:
            found = differences(folder, self._reference)
        for kind, names in (
            ("wrong", found["wrong"]),
            ("lost", found["lost"]),
            (left, found["left"]),
        ):
            if names:
                self._fault(kind, child, ", ".join(names[:6]))

    def _check_refusal(self, child, other, was_done):
        """The line of one that was refused must name its holder, or say that all is there."""
        names_holder = str(other.pid) in child.err or re.search(r"process \d+", child.err)
        is_clear = self._is_refused(child, "")
        done = other.code == 0 and self.target.refusal
        if not is_clear:
            self._fault("unclear", child, f"exit code {child.code}: {_tail(child)}")
        elif not names_holder and not (done and re.search(self.target.refusal, child.err)):
            self._fault("unclear", child, f"does not name the holder: {_tail(child)}")
        elif not names_holder and not was_done:
            self.counts["refused_at_the_end"] += 1

    def _is_refused(self, child, pattern):
        """Whether it ended as an error does: exit code 1 and one clear line."""
        lines = child.err.splitlines()
        errors = [line for line in lines if "error" in line.lower()]
        return (
            child.code == 1
            and "Traceback" not in child.err
            and len(errors) == 1
            and errors[0] == lines[-1]
            and re.search(pattern, errors[0]) is not None
        )

    def _fault(self, kind, child, what):
        self.counts[kind] += 1
        if sum(example[0] == kind for example in self.examples) < _EXAMPLES:
            how = "fresh" if child.fresh else "contained" if child.contained else "forked"
            self.examples.append([kind, how, what[:600]])


def wait_for_changes(folder, child, most, limit):
    """Waits until something in a folder has changed `most` times, or the child ends; how often."""
    before, changes, until = _state(folder), 0, time.monotonic() + limit
    while changes < most and child.poll() is None and time.monotonic() < until:
        time.sleep(_POLL)
        if (now := _state(folder)) != before:
            before, changes = now, changes + 1
    return changes


def _state(folder):
    """Names, sizes and times of all below a folder."""
    found, folders = [], [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    stat = entry.stat(follow_symlinks=False)
                    found.append((entry.path, stat.st_size, stat.st_mtime_ns, stat.st_ino))
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError:  # removed in the meantime
            continue
    return found


def _of_versions(found, expected):
    """Each version of a model for TF Serving against version 1 of the reference."""
    total = {"wrong": [], "lost": [], "left": []}
    versions = [path for path in found.iterdir() if path.name.isdigit()] if found.exists() else []
    if not versions:
        total["lost"].append("all versions")
    for version in versions:
        for kind, names in differences(version, expected / "1").items():
            total[kind] += [f"{version.name}/{name}" for name in names]
    return total


def _tail(child):
    return " / ".join(child.err.strip().splitlines()[-2:])[-400:]


def measured(target, world, folder, *, learn):
    """Makes a target undisturbed; the seconds that takes and how often the folder changes.

    With `learn`, all later forks know what AutoGraph has translated; it takes longer then.
    """
    folder.mkdir(parents=True)
    log, start = folder.with_name(f"{folder.name}-log"), time.monotonic()
    child = Child(target.argv(world, folder), log, window=_WINDOW, learn=learn)
    changes = wait_for_changes(folder, child, 10**9, target.limit)
    if (child.learnt if learn else child.wait)(target.limit) != 0:
        raise RuntimeError(f"{target.name} must succeed. Received: {child.code}: {_tail(child)}")
    return time.monotonic() - start, changes


def seeded(seed, *names):
    return random.Random(f"{seed}/{'/'.join(map(str, names))}")
