"""Adds up the figures of several runs of `fuzz.py`, `fuzz_readers.py` or `faults.py`.

    python benchmarks/join_faults.py --out all.json part1.json part2.json ...

Each must have another seed for what it shares with another: the same cases do not count twice.
"""

import argparse
import json
import pathlib
import sys

from reporting import write_json

_KEPT = {"commands": ("seconds", "changes"), "kinds": ()}  # of an undisturbed command: no counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="where the sums go")
    parser.add_argument("parts", type=pathlib.Path, nargs="+", help="what the scripts have written")
    arguments = parser.parse_args()
    parts = [json.loads(path.read_text()) for path in arguments.parts]
    write_json(arguments.out, joined(parts))
    return 0


def joined(parts):
    """The sums of reports, with the options of each.

    Raises:
        ValueError: if two have the same cases.
    """
    group = "kinds" if "kinds" in parts[0] else "commands"
    found, seeds = {}, set()
    for part in parts:
        for name, one in part[group].items():
            case = name, part["options"]["seed"]
            if case in seeds:
                raise ValueError(f"parts must have different seeds. Received: {case} twice")
            seeds.add(case)
            found[name] = _sum(found.get(name), one, _KEPT[group])
    options = [part["options"] for part in parts]
    processors = sorted({part["processor"] for part in parts})
    return {"options": options, "processor": ", ".join(processors), group: found}


def _sum(one, other, kept=()):
    """Numbers and lists added, of dictionaries name by name; those of `kept` are the first's."""
    if one is None:
        return other
    if not isinstance(other, dict):
        return one + other
    more = {name: _sum(one.get(name), value) for name, value in other.items() if name not in kept}
    return {**one, **more}


if __name__ == "__main__":
    sys.exit(main())
