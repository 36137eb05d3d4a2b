"""The file that translations become: where it may be, its part, and a note that is not believed."""

import json
import os
import random

import pytest

from keras_transformer.outputs import Part, check_no_part, new_output
from keras_transformer_runner.atomic import locked

JOB = {"fingerprint": "a", "source": [7, "b"]}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def half_done(output):
    """Leaves two lines of a job; returns the note."""
    with Part(output, JOB) as part:
        part.write(b"one\n", 1, "x")
        part.write(b"two\n", 1, "y")
    return output.with_name(f"{output.name}.part.json")


def finish(output, job=JOB):
    with Part(output, job) as part:
        done = part.lines
        if not done:
            part.write(b"one\ntwo\n", 2, "y")
        part.write(b"three\n", 1, "z")
        part.become_output()
    return done


def test_a_part_goes_on(tmp_path):
    output = tmp_path / "out"
    half_done(output)
    with Part(output, JOB) as part:
        assert (part.lines, part.source_sha256, part.is_whole) == (2, "y", False)
    assert finish(output) == 2
    assert output.read_bytes() == b"one\ntwo\nthree\n" and names(tmp_path) == ["out"]


@pytest.mark.parametrize("content", [b"one\ntw", b"", b"one\nTwo\n", b"\0" * 8])
def test_a_part_that_is_not_what_its_note_says(tmp_path, content):
    half_done(tmp_path / "out")
    (tmp_path / "out.part").write_bytes(content)
    with pytest.raises(ValueError, match="only if its part is what its note says; delete both"):
        finish(tmp_path / "out")
    assert (tmp_path / "out.part").read_bytes() == content


@pytest.mark.parametrize(
    "changes",
    [
        {"lines": 10**9},
        {"lines": -1},
        {"lines": True},
        {"lines": 2.0},
        {"bytes": 10**30},
        {"bytes": -8},
        {"bytes": 4},
        {"sha256": "0"},
        {"sha256": None},
        {"source_sha256": 7},
        {"source_sha256": "x"},
        {"job": []},
        {"job": JOB | {"fingerprint": "c"}},
    ],
)
def test_a_note_is_not_believed(tmp_path, changes):
    note = half_done(tmp_path / "out")
    note.write_text(json.dumps(json.loads(note.read_text()) | changes))
    with pytest.raises(ValueError, match="out.part.json.*to start again|only if its part is what"):
        finish(tmp_path / "out")
    assert (tmp_path / "out.part").read_bytes() == b"one\ntwo\n"


def test_a_damaged_note_never_gives_another_file(tmp_path):
    note, generator = half_done(tmp_path / "out"), random.Random(1)
    content, refused = note.read_bytes(), 0
    for _ in range(200):
        place, length = generator.randrange(len(content)), generator.randint(0, 9)
        new = bytes(generator.choices(b'\0"{}:, 07e-\xff', k=generator.randint(0, 5)))
        note.write_bytes(content[:place] + new + content[place + length :])
        try:
            with Part(tmp_path / "out", JOB) as part:
                assert part.lines == 2 or json.loads(note.read_bytes())["lines"] == 0
        except (FileExistsError, ValueError) as error:
            assert "out.part" in str(error)
            refused += 1
        (tmp_path / "out.part").write_bytes(b"one\ntwo\n")
    assert refused > 100


def test_the_part_of_another_job(tmp_path):
    note = half_done(tmp_path / "out")
    with pytest.raises(FileExistsError, match="differs in fingerprint") as error:
        finish(tmp_path / "out", JOB | {"fingerprint": "c"})
    assert str(note) in str(error.value) and "delete out.part and its note" in str(error.value)
    with pytest.raises(FileExistsError, match="only with the command that began it; delete out.pa"):
        check_no_part(tmp_path / "out")
    (tmp_path / "out.part").unlink()  # a note alone keeps nothing
    assert finish(tmp_path / "out", JOB | {"fingerprint": "c"}) == 0
    check_no_part(tmp_path / "out")


def test_files_of_others_stay(tmp_path):
    (tmp_path / "out.part").write_text("precious")
    with pytest.raises(FileExistsError, match="a file of its own.*out.part, which belongs to no"):
        finish(tmp_path / "out")
    (tmp_path / "out.part.json").write_text("[]")
    with pytest.raises(ValueError, match="out.part.json must be the note of an interrupted"):
        finish(tmp_path / "out")
    assert (tmp_path / "out.part").read_text() == "precious"


def test_an_output_that_comes_meanwhile_stays(tmp_path):
    output = tmp_path / "out"
    with Part(output, JOB) as part:
        part.write(b"one\n", 1, "x")
        output.write_text("precious")
        with pytest.raises(FileExistsError, match="was made while they were; they are in .*out.pa"):
            part.become_output()
    with pytest.raises(FileExistsError, match="translations need a new file"):
        finish(output)
    assert output.read_text() == "precious" and (tmp_path / "out.part").read_text() == "one\n"


@pytest.mark.parametrize("job", [JOB, JOB | {"fingerprint": "c"}])
def test_killed_between_the_rename_and_the_end(tmp_path, job):
    """The same job has nothing left to do; another one finds a file that exists, and no note."""
    output = tmp_path / "out"
    half_done(output)
    os.replace(tmp_path / "out.part", output)
    with new_output(output) as path:
        if job == JOB:
            with Part(path, job) as part:
                assert part.is_whole and part.lines == 2
        else:
            with pytest.raises(FileExistsError, match="translations need a new file"):
                Part(path, job).__enter__()
    assert names(tmp_path) == ["out"]
    with pytest.raises(FileExistsError, match="translations need a new file. Received: .*out"):
        new_output(output).__enter__()


def test_places_that_no_file_can_have(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").touch()
    read, write = os.pipe()
    for place in (
        tmp_path,
        tmp_path / "pipe",
        tmp_path / "circle",
        "/dev/null",
        f"/dev/fd/{write}",
    ):
        with pytest.raises(FileExistsError, match="not a folder, a device, a pipe or a link"):
            new_output(place).__enter__()
    with pytest.raises(FileExistsError, match="translations need a new file. Received: .*file"):
        new_output(tmp_path / "file").__enter__()
    with pytest.raises(NotADirectoryError, match="must lie in a folder. Received: .*file/out"):
        new_output(tmp_path / "file" / "out").__enter__()
    for descriptor in (read, write):
        os.close(descriptor)
    assert names(tmp_path) == ["circle", "file", "pipe"]


def test_a_link_stands_for_what_it_points_at(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far/out")
    with new_output(tmp_path / "link") as path:
        assert path == tmp_path / "far" / "out"
        finish(path)
    assert (tmp_path / "link").read_bytes() == b"one\ntwo\nthree\n"
    assert names(tmp_path / "far") == ["out"]


def test_the_caller_may_hold_the_output(tmp_path):
    with locked(tmp_path / "out"), new_output(tmp_path / "out", lock=False) as path:
        assert path == tmp_path / "out"
