"""The file that translations become: held by one process, and unfinished until it is whole.

Needs neither TensorFlow nor Keras.
"""

import contextlib
import hashlib
import json
import os
import pathlib

from keras_transformer_runner.atomic import locked, write_text
from keras_transformer_runner.integrity import check_seal, checksum, read_json, sealed

_BLOCK = 1 << 20
_FIELDS = {"job": dict, "lines": int, "bytes": int, "sha256": str, "source_sha256": str}


@contextlib.contextmanager
def new_output(output, *, lock=True):
    """Holds the file that translations are to become, before any work is done for it.

    Args:
        output: The file; a symbolic link stands for what it points at.
        lock: Whether to hold it; `False` where the caller does.

    Yields:
        Its real path. A file stands there only if the job that made it was killed before it could
        remove its note.

    Raises:
        FileExistsError: if it exists, or something other than a file does.
        TargetInUseError: if another process is writing it.
    """
    path = pathlib.Path(os.path.realpath(output))
    # Asked by the name that was given: a device such as /dev/stdout has no other.
    is_file = all(os.path.isfile(each) or not os.path.exists(each) for each in (output, path))
    if not is_file or path.is_symlink():
        raise FileExistsError(
            "translations need a new file, not a folder, a device, a pipe or a link in a circle. "
            f"Received: {output}"
        )
    with locked(path) if lock else contextlib.nullcontext():
        if os.path.exists(output) and not _note_of(path).exists():
            raise FileExistsError(f"translations need a new file. Received: {output}")
        yield path


def check_no_part(output):
    """Raises FileExistsError if an interrupted job has left a part of `output`."""
    note = _note_of(output)
    if note.exists():
        raise FileExistsError(
            "an interrupted translation goes on only with the command that began it; delete "
            f"{output.name}.part and {note.name} to start again. Received: {note}"
        )


class Part:
    """An unfinished output, and a note beside it of what is done: `OUT.part`, `OUT.part.json`.

    A context manager, for whoever holds the output. It goes on where an earlier job of the same
    kind stopped. The note says how many lines are whole, what they are made of, and checksums of
    them and of what was read for them; it is written before the part, so that a part without a note
    is somebody else's.

    Args:
        output: The real path of the output.
        job: Dictionary of strings, numbers, lists and dictionaries: what makes the translations. A
            part goes on only with the same.

    Attributes:
        lines: Lines that are done.
        source_sha256: Checksum of what was read for them, in hexadecimal.
        is_whole: Whether an earlier job was killed when nothing but the note was left to remove.

    Raises:
        FileExistsError: if the part belongs to another job, or to nobody, or the output exists.
        ValueError: if the part or its note is damaged.
    """

    def __init__(self, output, job):
        self.lines, self.source_sha256, self.is_whole = 0, "", False
        self._output, self._job = output, job
        self._path, self._note = output.with_name(f"{output.name}.part"), _note_of(output)
        self._written, self._size, self._file = hashlib.sha256(), 0, None

    def __enter__(self):
        note = self._read_note()
        if os.path.lexists(self._output):
            self._end_of(note)
        elif not os.path.lexists(self._path) or not note["lines"]:
            self._begin()
        else:
            self._go_on(note)
        return self

    def __exit__(self, *_):
        if self._file is not None:
            self._file.close()

    def write(self, lines, count, source_sha256):
        """Appends `count` lines.

        Args:
            lines: Their bytes.
            count: How many they are.
            source_sha256: Checksum of all that was read so far, in hexadecimal.
        """
        self._file.write(lines)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._written.update(lines)
        self.lines, self._size = self.lines + count, self._size + len(lines)
        self.source_sha256 = source_sha256
        self._write_note()

    def become_output(self):
        """Gives the part its final name, unless a file of that name has come from elsewhere."""
        if os.path.lexists(self._output):
            raise FileExistsError(
                f"translations need a new file. Received: {self._output}, which was made while "
                f"they were; they are in {self._path}"
            )
        self._file.close()
        os.replace(self._path, self._output)
        self._remove()

    def _read_note(self):
        if not self._note.exists():
            if os.path.lexists(self._path):
                raise FileExistsError(
                    "an unfinished translation is kept in a file of its own, which must not be "
                    f"there yet. Received: {self._path}, which belongs to no note {self._note.name}"
                )
            return None
        try:
            note = read_json(self._note, "the note of an interrupted translation", _FIELDS)
            check_seal(self._note, note)
            return note
        except ValueError as error:
            raise ValueError(f"{error}; delete it and {self._path} to start again") from error

    def _end_of(self, note):
        """An output with a note: of a job that was killed in its last moment, or from elsewhere."""
        if note and not os.path.lexists(self._path) and self._is_made_by(note):
            same = note["job"] == self._job
            self._remove()
            if same:
                self.lines, self.is_whole = note["lines"], True
                return
        raise FileExistsError(f"translations need a new file. Received: {self._output}")

    def _is_made_by(self, note):
        size = self._output.stat().st_size
        return size == note["bytes"] and checksum(self._output) == note["sha256"]

    def _begin(self):
        self._write_note()
        self._path.unlink(missing_ok=True)
        self._file = open(self._path, "xb")  # noqa: SIM115 (`__exit__` closes it)

    def _go_on(self, note):
        if differences := sorted(
            name for name, value in self._job.items() if note["job"].get(name) != value
        ):
            raise FileExistsError(
                "an interrupted translation goes on only with the same run, search and file; "
                f"delete {self._path.name} and its note to start again. Received: {self._note}, "
                f"which differs in {', '.join(differences)}"
            )
        left, lines = note["bytes"], 0
        self._file = open(self._path, "r+b")  # noqa: SIM115 (`__exit__` closes it)
        while left > 0 and (block := self._file.read(min(left, _BLOCK))):
            self._written.update(block)
            left, lines = left - len(block), lines + block.count(b"\n")
        if (left, lines, self._written.hexdigest()) != (0, note["lines"], note["sha256"]):
            self._file.close()
            raise ValueError(
                "an interrupted translation goes on only if its part is what its note says; "
                f"delete both to start again. Received: {self._path} with {lines:,} lines, where "
                f"{self._note.name} says {note['lines']:,}"
                + (", and other ones" if lines == note["lines"] else "")
            )
        self._file.truncate(note["bytes"])
        self.lines, self._size = lines, note["bytes"]
        self.source_sha256 = note["source_sha256"]

    def _write_note(self):
        fields = {
            "job": self._job,
            "lines": self.lines,
            "bytes": self._size,
            "sha256": self._written.hexdigest(),
            "source_sha256": self.source_sha256,
        }
        write_text(self._note, json.dumps(sealed(fields)) + "\n")

    def _remove(self):
        self._path.unlink(missing_ok=True)
        with locked(self._note):  # removes what a kill has left of its writing
            pass
        self._note.unlink(missing_ok=True)  # last: with it somebody would go on


def _note_of(output):
    return output.with_name(f"{output.name}.part.json")
