"""What each kit consists of. Needs nothing but Python, as setup.py reads it too.

The files lie where they are worked on, in `export/` and `examples/` of a clone; a wheel holds them
by the same paths in `keras_transformer/kits/files`.
"""

import fnmatch
import os
import pathlib
from typing import NamedTuple

# What building and trying leaves behind, as in the folders' .gitignore.
LEFTOVERS = (
    *("node_modules", "vendor", "*.tgz", "public", "exported", "models"),
    *("runs", "plots", "*.keras"),
    *("build", "build-*", "litert", "arm64", ".gradle", ".cxx", ".idea", ".kotlin", ".build"),
    *("local.properties", "assets", "__pycache__", "*.py[cod]", ".*_cache", ".DS_Store"),
)


class Kit(NamedTuple):
    """A folder for whoever runs an artefact, or learns from an example."""

    what: str  # in a line
    place: str  # its folder in a clone
    without: tuple[str, ...] = ()  # of that folder: other kits' parts, and tests of the clone
    shared: tuple[str, ...] = ()  # of the runner's package, put into `shared`
    readme: str = "README.md"  # what has its first commands
    model: str | None = None  # where its README looks for the artefact; `None` if it needs none


_SENTENCES = ("abbreviations.json", "UNICODE_LICENSE")

KITS = {
    "web": Kit(
        "an npm package and a page that translate in the browser",
        "export/web",
        without=("test.sh",),
        shared=_SENTENCES,
        model="exported",
    ),
    "serving": Kit(
        "a set-up of TF Serving for compose and Kubernetes, with a client",
        "export/serving",
        model="models/translator",
    ),
    "native": Kit(
        "a C++ library behind a C header, with a Java class",
        "export/native",
        without=("test.sh", "android", "swift", "Package.swift"),
        shared=_SENTENCES,
        model="exported",
    ),
    "android": Kit(
        "a Gradle project of the C++ library, with an app in Kotlin; not built so far",
        "export/native",
        without=("test.sh", "swift", "Package.swift"),
        shared=_SENTENCES,
        readme="android/README.md",
        model="android/app/src/main/assets/translator",
    ),
    "swift": Kit(
        "a Swift package over the C++ library; not built so far",
        "export/native",
        without=("test.sh", "android"),
        shared=_SENTENCES,
        readme="swift/README.md",
        model="exported",
    ),
    "examples": Kit("the examples, from the quickstart to studies of the paper", "examples"),
}


def kit_files(kit, root):
    """The files of a kit below `root`, but for the shared ones.

    Args:
        kit: A `Kit`.
        root: The `pathlib.Path` that `kit.place` lies in.

    Returns:
        A dict of absolute paths by their paths in the kit, which have slashes; sorted.
    """
    folder = pathlib.Path(root) / kit.place
    found = {}
    for parent, folders, names in os.walk(folder):
        inside = pathlib.Path(parent).relative_to(folder)
        folders[:] = [name for name in folders if _belongs(kit, inside / name)]
        belonging = (inside / name for name in names if _belongs(kit, inside / name))
        found |= {path.as_posix(): folder / path for path in belonging}
    return dict(sorted(found.items()))


def _belongs(kit, path):
    left_out = path.as_posix() in kit.without
    return not left_out and not any(fnmatch.fnmatchcase(path.name, each) for each in LEFTOVERS)
