"""The native core with packed weights in a file: the same answers, whatever becomes of the file."""

import os
import resource
import shutil
import signal
import subprocess
import threading
import time

import pytest
from native_core import TEXTS, latin, model_sum, refreshed, run

from keras_transformer_runner import Runner
from keras_transformer_runner.atomic import locked

pytestmark = pytest.mark.slow


def files_of(folder):
    """The file of packed weights and that of its checksum; nothing else may lie there."""
    first, second = sorted(folder.iterdir())
    assert second.name == first.name + ".sha256"
    return first, second


@pytest.fixture(scope="module")
def made(native_tool, device, tmp_path_factory):
    """The two files of the float32 folder."""
    folder = tmp_path_factory.mktemp("made")
    assert native_tool(device.path, "--weight-cache", folder).returncode == 0
    return files_of(folder)


@pytest.fixture
def cache(made, tmp_path):
    """A folder with copies of the two files, and one to compare with."""
    folder = tmp_path / "cache"
    folder.mkdir()
    for path in made:
        shutil.copy2(path, folder)
    return folder


# --- The same answers ----------------------------------------------------------------------


@pytest.mark.parametrize("name, kind", [("native_words", "stream"), ("native_pieces", "n_best")])
def test_the_same_to_the_bit(name, kind, native_call, request, tmp_path):
    """At the start that writes the file, and at later ones, with other threads too."""
    folder = request.getfixturevalue(name)
    calls = [["translate", text] for text in latin(TEXTS[::3])]
    calls += [[kind, text, *([0] if kind == "n_best" else [])] for text in latin(TEXTS[:15])]
    calls += [["open", str(folder), 2, str(tmp_path)], *calls[:9], [calls[0], calls[-1]]]
    expected = native_call(folder, [call for call in calls if call[0] != "open"])
    written = set()
    for _ in range(2):
        received = native_call(folder, calls, tmp_path)
        assert [one for one in received if one is not None] == expected
        written.add(
            tuple((path.stat().st_mtime_ns, path.read_bytes()) for path in files_of(tmp_path))
        )
    assert len(written) == 1
    assert files_of(tmp_path)[0].name.startswith(model_sum(folder))


def test_python_has_files_of_its_own_in_the_same_folder(native_tool, device, live, texts, cache):
    lines = "".join(text + "\n" for text in texts)
    before = {path.name: path.read_bytes() for path in cache.iterdir()}
    assert Runner(device.path, weight_cache=cache).translate(texts) == live.translate(texts)
    done = native_tool(device.path, "--weight-cache", cache, text=lines)
    assert done.stdout.decode().splitlines() == live.translate(texts)
    after = {path.name: path.read_bytes() for path in cache.iterdir()}
    assert len(after) == 4 and before.items() <= after.items()


def test_pages_of_a_large_file_are_given_back(native_build, device, texts, live, tmp_path):
    """The rows of the embedding are read from the model's file for every sentence."""
    folder = shutil.copytree(device.path, tmp_path / "large")
    with open(folder / "model.tflite", "ab") as file:
        file.truncate(2**23)
    refreshed(folder)
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for options, gives in (([], False), (["--weight-cache", tmp_path / "cache"], True)):
        command = [native_build / "kt-translate", folder, *options]
        with subprocess.Popen(command, text=True, bufsize=1, **pipes) as process:
            process.stdin.write(texts[0] + "\n")
            assert process.stdout.readline() == live.translate(texts[:1])[0] + "\n"
            with open(f"/proc/{process.pid}/smaps", encoding="utf-8") as file:
                of_file = file.read().split(f"{(folder / 'model.tflite').resolve()}\n")[1:]
            process.stdin.close()
        resident = sum(int(part.partition("\nRss:")[2].split()[0]) for part in of_file)
        assert of_file and (resident == 0) == gives


@pytest.mark.parametrize("name", ["a#b 'c'", "é€", "[x]=$HOME", "below/the/other"])
def test_any_name_of_a_folder(name, native_tool, device, tmp_path):
    done = native_tool(device.path, "--weight-cache", tmp_path / name)
    assert done.returncode == 0 and len(files_of(tmp_path / name)) == 2
    done = native_tool(device.path, "--weight-cache", name, cwd=tmp_path)
    assert done.returncode == 0 and len(files_of(tmp_path / name)) == 2


# --- What may become of the file -----------------------------------------------------------


DAMAGES = {
    "a weight": lambda content: (
        content[: len(content) // 2]
        + bytes([content[len(content) // 2] ^ 1])
        + content[len(content) // 2 + 1 :]
    ),
    "header": lambda content: bytes([content[0] ^ 4]) + content[1:],
    "short": lambda content: content[: len(content) // 2],
    "long": lambda content: content + b"x",
    "empty": lambda content: b"",
    "missing": None,
    "a pipe": None,
}


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_made_anew(damage, index, native_tool, device, live, made, cache):
    path = sorted(cache.iterdir())[index]
    if DAMAGES[damage]:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    else:
        path.unlink()
    if damage == "a pipe":
        os.mkfifo(path)
    done = native_tool(device.path, "--weight-cache", cache, text="ab c\n", timeout=60)
    assert done.stdout.decode() == live.translate(["ab c"])[0] + "\n"
    assert [each.read_bytes() for each in files_of(cache)] == [each.read_bytes() for each in made]


def test_processes_that_make_it_at_once(native_build, device, live, made, tmp_path):
    command = [native_build / "kt-translate", device.path, "--weight-cache", tmp_path / "a" / "b"]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    started = [subprocess.Popen(command, **pipes) for _ in range(6)]
    for process in started:
        answer, errors = process.communicate(b"ab c\n", timeout=120)
        assert answer.decode() == live.translate(["ab c"])[0] + "\n", errors
    files = files_of(tmp_path / "a" / "b")
    assert [each.read_bytes() for each in files] == [each.read_bytes() for each in made]


def test_who_waits_takes_what_the_other_has_made(native_tool, device, made, tmp_path):
    (tmp_path / "cache").mkdir()
    waiting = threading.Event()

    def hold():
        with locked(tmp_path / "cache" / made[0].name):
            waiting.set()
            time.sleep(0.3)
            for path in made:
                shutil.copy2(path, tmp_path / "cache")

    other = threading.Thread(target=hold)
    other.start()
    assert waiting.wait(300)
    assert native_tool(device.path, "--weight-cache", tmp_path / "cache").returncode == 0
    other.join()
    times = [path.stat().st_mtime_ns for path in files_of(tmp_path / "cache")]
    assert times == [path.stat().st_mtime_ns for path in made]


def test_what_a_dead_process_left_is_removed(native_tool, device, cache):
    names = [path.name for path in files_of(cache)]
    left = cache / f".1f00ba47.writing.{names[0]}"
    left.mkdir()
    (left / names[0]).write_bytes(b"half")
    (cache / names[1]).unlink()  # killed between the two
    assert native_tool(device.path, "--weight-cache", cache).returncode == 0
    assert [path.name for path in files_of(cache)] == names
    left.mkdir()  # killed when all was done
    (cache / f".{names[0]}.lock").touch()
    assert native_tool(device.path, "--weight-cache", cache).returncode == 0
    assert [path.name for path in files_of(cache)] == names
    with locked(cache / names[0]):  # by somebody who will see that it is whole
        assert native_tool(device.path, "--weight-cache", cache, timeout=60).returncode == 0


def limited(bytes_of_a_file):
    """To be called in a child: what it writes beyond is an error there, and no signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_of_a_file,) * 2)


def test_what_could_not_be_written_whole_is_not_kept(native_tool, device, made, cache, tmp_path):
    size = made[0].stat().st_size
    options = dict(preexec_fn=lambda: limited(size - 50), restore_signals=False)
    done = native_tool(device.path, "--weight-cache", tmp_path / "short", **options)
    assert done.returncode == 1
    assert b"packed weights could not be written. Received: " in done.stderr
    assert list((tmp_path / "short").iterdir()) == []
    options["preexec_fn"] = lambda: limited(0)  # nothing is written where all is there
    assert native_tool(device.path, "--weight-cache", cache, **options).returncode == 0


def test_a_full_disk(native_build, device, tmp_path):
    """XNNPACK would end the process."""
    tool = native_build / "kt-translate"
    script = 'mount -t tmpfs -o size=64k tmpfs "$0" || exit 77; exec "$@"'
    command = ["sh", "-c", script, tmp_path, tool, device.path, "--weight-cache", tmp_path]
    done = run("unshare", "-m", *command, input="ab\n") if shutil.which("unshare") else None
    if done is None or done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this user may mount nothing")
    needed = 4 * (device.path / "model.tflite").stat().st_size
    assert done.returncode == 1 and f"packed weights need {needed} bytes, 65536 are" in done.stderr


def test_folders_that_cannot_be_used(native_tool, native_call, device, tmp_path):
    (tmp_path / "file").touch()
    rule = "`weight_cache` must be a folder that is there or can be made. Received: "
    cases = {
        str(tmp_path / "file"): rule + str(tmp_path / "file"),
        str(tmp_path / "file" / "below"): rule + str(tmp_path / "file" / "below"),
        "": '`weight_cache` must name a folder, without line breaks, .* Received: ""',
        "a\nb": r'Received: "a\nb"',
        'a"b': "without line breaks, quotation marks and backslashes",
    }
    if os.path.isdir("/sys/kernel"):
        cases["/sys/kernel/weights"] = rule + "/sys/kernel/weights: "
        cases["/sys/kernel"] = "`weight_cache` must be a folder that can be written. Received: "
    for folder, message in cases.items():
        done = native_tool(device.path, "--weight-cache", folder)
        assert done.returncode == 1 and done.stdout == b""
        for part in message.split(".*"):
            assert part in done.stderr.decode()
        assert done.stderr.decode().splitlines()[-1].startswith("kt-translate: error: ")
    (failed,) = native_call(device.path, [["open", str(device.path), 1, str(tmp_path / "file")]])
    assert rule in failed["error"]


def test_a_model_that_cannot_run_leaves_nothing(native_tool, device, tmp_path):
    copy = shutil.copytree(device.path, tmp_path / "copy")
    (copy / "model.tflite").write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(64))
    done = native_tool(refreshed(copy), "--weight-cache", tmp_path / "c")
    assert b"must be a model that this version of LiteRT can run" in done.stderr
    assert done.returncode == 1 and list((tmp_path / "c").iterdir()) == []
