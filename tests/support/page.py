"""Node, for the tests of the page: its modules, its build script, its sites in a browser."""

import hashlib
import json
import pathlib
import shutil
import subprocess
import tarfile

import pytest

WEB = pathlib.Path(__file__).parents[2] / "export" / "web"
PAGE_LENGTHS = (32, 128, 512)  # of the toy model's page
LEFT = "left-\ud800"  # a lone surrogate
SCRIPTS = pathlib.Path(__file__).parents[1] / "export" / "web"


def node(*arguments, request=None):
    """Runs Node; returns the finished process."""
    if shutil.which("node") is None:
        pytest.skip("Node is not installed: export/web/test.sh says what is needed")
    return subprocess.run(
        ["node", *map(str, arguments)],
        input=None if request is None else json.dumps(request),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


def node_json(*arguments, request):
    """What a script prints for a request, both JSON."""
    done = node(*arguments, request=request)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def build(*arguments):
    """Runs build.mjs."""
    return node(WEB / "build.mjs", *arguments)


def pack(folder):
    """The package as `npm pack` packs it, into a folder; returns its file."""
    command = ["npm", "pack", "--silent", "--pack-destination", str(folder), str(WEB / "package")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    (file,) = pathlib.Path(folder).glob("keras-transformer-web-*.tgz")
    return file


def packed_files(folder):
    """The contents of that by name."""
    with tarfile.open(pack(folder)) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        return {
            file.name.removeprefix("package/"): archive.extractfile(file).read() for file in files
        }


# --- An exported folder, of a few bytes ----------------------------------------------------

FILES = {"model.tflite": b"model", "tokenizer.json": b'{"format": 1, "type": "bytes"}'}
METADATA = dict(format=1, signature="translate", mode="int8", max_source_length=512)
METADATA |= dict(vocab_size=260, target_vocab_size=260, pad_id=0, bos_id=2, eos_id=3)
METADATA |= dict(open_length=False)


def lengths(*sources):
    """The field of the metadata for these lengths."""
    rows = [(f"translate_{source}", source, source + 50) for source in sources]
    return [
        dict(zip(("signature", "source_length", "target_length"), row, strict=True)) for row in rows
    ]


METADATA["lengths"] = lengths(32, 512)
OPTIONAL = ("mode", "open_length")


def write_export(folder, files=None, **fields):
    """A folder as `build.mjs` wants it, of a few bytes; a field that is `None` is left out."""
    folder.mkdir()
    files = FILES if files is None else files
    for name, content in files.items():
        (folder / name).write_bytes(content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    metadata = {**METADATA, "sha256": hashes, **fields}
    metadata = {name: value for name, value in metadata.items() if value is not None}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder
