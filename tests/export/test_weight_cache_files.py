"""The file of packed weights: made once and whole, never used when damaged, never another's."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from keras_transformer_runner import Runner, packed_weights
from keras_transformer_runner.atomic import locked
from keras_transformer_runner.integrity import sealed


@pytest.fixture(scope="module")
def weight_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def copy(device, tmp_path):
    """A copy of the greedy folder, to be damaged."""
    return shutil.copytree(device.path, tmp_path / "copy")


# --- The file ------------------------------------------------------------------------------


def files_of(folder):
    """The file of packed weights and that of its checksum; nothing else may lie there."""
    first, second = sorted(folder.iterdir())
    assert second.name == first.name + ".sha256"
    return first, second


def test_the_file_is_made_once_and_never_changed(device, texts, other_texts, tmp_path):
    Runner(device.path, weight_cache=tmp_path / "cache").translate(texts[:1])
    files = files_of(tmp_path / "cache")
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in files]
    for threads in (1, 2):
        runner = Runner(device.path, weight_cache=str(tmp_path / "cache"), num_threads=threads)
        runner.translate([*other_texts, *texts])
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in files] == before
    Runner(device.path, weight_cache=tmp_path / "other")
    assert files_of(tmp_path / "other")[0].read_bytes() == before[0][0]


@pytest.mark.slow
def test_each_model_version_and_processor_has_a_file_of_its_own(
    device, int8_device, tmp_path, monkeypatch
):
    import ai_edge_litert

    changes = {
        "version": (ai_edge_litert, "__version__", "9.9"),
        "machine": (packed_weights.platform, "machine", lambda: "other"),
        "processor": (packed_weights, "_processor", lambda: "01234567"),
    }
    Runner(int8_device.path, weight_cache=tmp_path)
    for change in changes.values():
        Runner(device.path, weight_cache=tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(*change)
            Runner(device.path, weight_cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2 * (2 + len(changes))


DAMAGES = {
    "first byte": lambda content: b"\x01" + content[1:],
    "header": lambda content: content[:20] + bytes([content[20] ^ 4]) + content[21:],
    "weights": lambda content: content[:4096] + bytes([content[4096] ^ 1]) + content[4097:],
    "middle": lambda content: (
        content[: len(content) // 2] + bytes(9) + content[len(content) // 2 + 9 :]
    ),
    "last byte": lambda content: content[:-1] + bytes([content[-1] ^ 128]),
    "short": lambda content: content[:-1],
    "half": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "long": lambda content: content + b"\x00",
    "missing": lambda content: None,
}


@pytest.mark.quick(6)
@pytest.mark.parametrize("what", ["weights", "checksum"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_made_anew(what, damage, device, texts, tmp_path, live):
    Runner(device.path, weight_cache=tmp_path)
    files = files_of(tmp_path)
    contents = [path.read_bytes() for path in files]
    index = ("weights", "checksum").index(what)
    if what == "checksum" and damage not in ("first byte", "last byte", "half", "empty", "missing"):
        return
    changed = DAMAGES[damage](contents[index])
    assert changed != contents[index]
    if changed is None:
        files[index].unlink()
    else:
        files[index].write_bytes(changed)
    assert Runner(device.path, weight_cache=tmp_path).translate(texts) == live.translate(texts)
    assert [path.read_bytes() for path in files_of(tmp_path)] == contents


OPEN = """
import json, sys
from keras_transformer_runner.runner import Runner
print(json.dumps(Runner(sys.argv[1], weight_cache=sys.argv[2]).translate(json.loads(sys.argv[3]))))
"""


@pytest.mark.slow
def test_processes_that_make_it_at_once(device, texts, live, tmp_path, repo_root):
    command = [sys.executable, "-c", OPEN, device.path, tmp_path / "cache", json.dumps(texts[:3])]
    environment = {**os.environ, "PYTHONPATH": str(repo_root)}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    started = [subprocess.Popen(command, env=environment, **pipes) for _ in range(4)]
    for process in started:
        answer, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors[-2000:]
        assert json.loads(answer) == live.translate(texts[:3])
    files_of(tmp_path / "cache")
    assert all(map(packed_weights._is_whole, files_of(tmp_path / "cache")[:1]))


def test_a_second_process_waits_and_takes_what_the_first_has_made(device, tmp_path, monkeypatch):
    Runner(device.path, weight_cache=tmp_path / "made")
    files = files_of(tmp_path / "made")
    (tmp_path / "cache").mkdir()
    waiting = threading.Event()

    def hold():
        with locked(tmp_path / "cache" / files[0].name):
            waiting.set()
            time.sleep(0.3)
            for path in files:
                shutil.copy(path, tmp_path / "cache")

    monkeypatch.setattr(packed_weights, "_build", None)
    first = threading.Thread(target=hold)
    first.start()
    assert waiting.wait(300)
    assert Runner(device.path, weight_cache=tmp_path / "cache").translate([""]) == [""]
    first.join()
    files_of(tmp_path / "cache")


def test_what_a_dead_process_left_is_removed(device, tmp_path):
    Runner(device.path, weight_cache=tmp_path)
    files = files_of(tmp_path)
    left = tmp_path / f".1f00ba47.writing.{files[0].name}"
    left.mkdir()
    (left / files[0].name).write_bytes(files[0].read_bytes()[:-1])
    files[1].unlink()  # killed between the two
    Runner(device.path, weight_cache=tmp_path)
    assert files_of(tmp_path) == files
    left.mkdir()  # killed when all was done
    lock = tmp_path / f".{files[0].name}.lock"
    lock.touch()
    Runner(device.path, weight_cache=tmp_path)
    assert files_of(tmp_path) == files
    with locked(tmp_path / files[0].name):  # by somebody who will see that it is whole
        Runner(device.path, weight_cache=tmp_path)


# --- Errors --------------------------------------------------------------------------------


def test_no_folder_can_be_made(device, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="file"):
        Runner(device.path, weight_cache=tmp_path / "file")
    with pytest.raises(NotADirectoryError, match="below"):
        Runner(device.path, weight_cache=tmp_path / "file" / "below")


def test_a_full_disk(device, tmp_path, monkeypatch):
    size = (device.path / "model.tflite").stat().st_size
    usage = shutil.disk_usage(tmp_path)._replace(free=4 * size - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=rf"packed weights need {4 * size} bytes, .* are free"):
        Runner(device.path, weight_cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
from keras_transformer_runner.runner import Runner
try:
    Runner(sys.argv[1], weight_cache=sys.argv[2])
except OSError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")
def test_what_xnnpack_could_not_write_whole_is_not_kept(device, tmp_path, run_python):
    """It says so on standard error, and goes on."""
    Runner(device.path, weight_cache=tmp_path / "whole")
    size = files_of(tmp_path / "whole")[0].stat().st_size
    folder = tmp_path / "short"
    done = run_python("-c", LIMITED, device.path, folder, size - 50, package=True)
    assert "packed weights could not be written: " in done.stdout, done.stderr
    assert str(folder) in done.stdout
    assert list(folder.iterdir()) == []


def test_what_was_not_written_is_an_error(device, tmp_path, monkeypatch):
    load = packed_weights._load
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setattr(packed_weights, "_load", lambda model, _, n: load(model, elsewhere, n))
    with pytest.raises(OSError, match="packed weights could not be written"):
        Runner(device.path, weight_cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_old_runtime(device, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert.options", None)
    with pytest.raises(RuntimeError, match="must have ai-edge-litert 2.1.5 or later"):
        Runner(device.path, weight_cache=tmp_path)
    assert list(tmp_path.iterdir()) == [] and Runner(device.path).translate([""]) == [""]


def change_metadata(folder, change):
    path = folder / "metadata.json"
    metadata = json.loads(path.read_text())
    change(metadata)
    path.write_text(json.dumps(sealed(metadata)))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda metadata: metadata.pop("search"), "have `extra_length`, .* Received: None"),
        (lambda metadata: metadata.update(search=5), "have `extra_length`, .* Received: None"),
        (
            lambda metadata: metadata["search"].update(extra_length=-1),
            "have `extra_length`, .*: -1",
        ),
        (lambda metadata: metadata["search"].update(max_length="9"), "have `max_length`, .*: '9'"),
        (lambda metadata: metadata.update(max_positions=1.5), "have `max_positions`, .*: 1.5"),
        (lambda metadata: metadata["search"].update(n_best=True), "have `n_best`, .*: True"),
    ],
)
def test_metadata_that_do_not_bound_the_outputs(change, message, copy, tmp_path):
    change_metadata(copy, change)
    with pytest.raises(ValueError, match=f"with `weight_cache` metadata.json must {message}"):
        Runner(copy, weight_cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists() and Runner(copy).translate([""]) == [""]


@pytest.mark.parametrize("field, value", [("extra_length", 2), ("max_length", 5)])
def test_metadata_of_a_shorter_search_do_no_harm(field, value, copy, weight_cache):
    change_metadata(copy, lambda metadata: metadata["search"].update({field: value}))
    runner = Runner(copy, weight_cache=weight_cache)
    with pytest.raises(ValueError, match="metadata.json must say what the model does: by it `tar"):
        runner.translate(["abcdefgh" * 30])


def test_damaged_metadata_never_give_a_wrong_answer(copy, weight_cache, texts, live):
    path = copy / "metadata.json"
    content, expected, refused = path.read_bytes(), live.translate(texts[2:5]), 0
    for position in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 7
        path.write_bytes(damaged)
        try:
            answers = Runner(copy, weight_cache=weight_cache).translate(texts[2:5])
        except ValueError:
            refused += 1
        else:
            assert answers == expected, bytes(damaged)
    assert refused > len(content) / 7 / 2


def test_outputs_of_unknown_size(device, weight_cache):
    packed = Runner(device.path, weight_cache=weight_cache)._packed
    packed.signatures = {"translate": {"inputs": ["source_ids"], "outputs": ["attention"]}}
    with pytest.raises(ValueError, match=r"outputs must be of .*'scores'.* Received: \['attention"):
        packed.reserve()


def test_no_memory_for_outputs(device, weight_cache, monkeypatch):
    def refuse(*_):
        raise OSError(12, "Cannot allocate memory")

    packed = Runner(device.path, weight_cache=weight_cache)._packed
    monkeypatch.setattr(packed_weights.mmap, "mmap", refuse)
    with pytest.raises(ValueError, match="there must be memory for what metadata.json .*Cannot al"):
        packed.reserve()


@pytest.mark.parametrize("content", [b"", b"no model", b"\x1c\x00\x00\x00TFL3" + bytes(64)])
def test_a_file_that_is_no_model_though_its_checksum_fits(copy, content, tmp_path):
    (copy / "model.tflite").write_bytes(content)
    sha256 = {"model.tflite": hashlib.sha256(content).hexdigest()}
    change_metadata(copy, lambda metadata: metadata["sha256"].update(sha256))
    with pytest.raises(ValueError, match="must be a model that this version of LiteRT can run."):
        Runner(copy, weight_cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
