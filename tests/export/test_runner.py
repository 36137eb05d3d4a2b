"""The runner: no TensorFlow, no wrong answer from a damaged folder, the same from eight threads."""

import concurrent.futures
import hashlib
import json
import os
import shutil
import subprocess
import venv
from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer_runner import Runner
from keras_transformer_runner.integrity import sealed
from keras_transformer_runner.tokenizers import SentencePieceTokenizer

MODULE = "keras_transformer_runner"


@pytest.fixture(scope="module")
def runner(device):
    return Runner(device.path)


@pytest.fixture
def copy(device, tmp_path):
    """A copy of the folder, to be damaged."""
    return shutil.copytree(device.path, tmp_path / "copy")


# --- What it needs -------------------------------------------------------------------------

WITHOUT_TENSORFLOW = """
import json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text", "keras", "litert_quantizer"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
from keras_transformer_runner.runner import Runner
print(json.dumps(Runner(sys.argv[1]).translate(json.loads(sys.argv[2]))))
ours = [name for name in sys.modules if name.startswith("keras_transformer")]
print(json.dumps(sorted(ours)))
print(json.dumps([name for name in ("tensorflow", "keras", "jax", "torch") if name in sys.modules]))
"""


def test_needs_neither_tensorflow_nor_keras(device, live, texts, odd_texts, run_json, tmp_path):
    folder = shutil.copytree(device.path, tmp_path / "moved")
    everything = [*texts, *odd_texts]
    answers, ours, heavy = run_json(
        WITHOUT_TENSORFLOW, folder, json.dumps(everything), package=True
    )
    assert answers == live.translate(everything)
    assert {name.split(".")[0] for name in ours} == {"keras_transformer_runner"}
    assert heavy == []


@pytest.mark.slow
def test_its_distribution_runs_where_nothing_else_is_installed(
    device, live, texts, repo_root, tmp_path
):
    """An environment of its own with the distribution of `keras_transformer_runner` alone."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    pip = [programs / "python", "-m", "pip"]
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(repo_root / "keras_transformer_runner", tmp_path / "clone", ignore=ignored)
    wheels = tmp_path / "wheels"
    subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, tmp_path / "clone"],
        check=True,
    )
    (wheel,) = wheels.iterdir()
    assert wheel.name.startswith("keras_transformer_edge_runner-")
    assert wheel.stat().st_size < 1e6
    subprocess.run([*pip, "install", "--quiet", wheel], check=True)
    listed = subprocess.check_output([*pip, "list", "--format=json"], text=True)
    installed = {one["name"].lower() for one in json.loads(listed)}
    assert {"keras-transformer-edge-runner", "ai-edge-litert", "numpy", "sentencepiece"} < installed
    assert installed.isdisjoint({"tensorflow", "keras", "keras-transformer-edge"})
    for options in ([], ["--weight-cache", "made"], ["--weight-cache", "made"]):
        command = [programs / "keras-transformer-run", device.path, *options, *texts]
        answers = subprocess.check_output(command, cwd=tmp_path, text=True)
        assert answers.splitlines() == live.translate(texts)


def test_threads_get_what_one_gets(runner, live, texts, other_texts):
    everything = [*texts, *other_texts] * 4
    expected = live.translate(everything)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda text: runner.translate([text])[0], everything)
        assert list(answers) == expected


def test_tensors_are_bound_by_name(device, monkeypatch):
    runner = Runner(device.path)
    calls = []

    def translate(*args, **kwargs):
        calls.append((args, {name: (ids.dtype, ids.tolist()) for name, ids in kwargs.items()}))
        return {"attention": np.array([[9]]), "target_ids": np.array([[7, 8, 3, 0]])}

    monkeypatch.setattr(runner._interpreter, "get_signature_runner", {"translate": translate}.get)
    assert runner.translate_ids([5, 6, 3]) == [7, 8]
    assert calls == [((), {"source_ids": (np.int32, [[5, 6, 3]])})]


@pytest.mark.parametrize(
    "row", [[5, 0, 6, 3, 0, 0], [0, 5, 3, 0], [5, 6, 7], [3, 0], [0, 0], [5, 1, 2, 6, 3]]
)
def test_reads_a_row_as_python_does(row, device, live, monkeypatch):
    """An untrained model may choose a pad or BOS; a row that met its limit has no EOS."""
    runner = Runner(device.path)
    ids = np.array([row], "int32")
    monkeypatch.setattr(runner, "_run", lambda name, source_ids: {"target_ids": ids})
    found = SimpleNamespace(ids=ids)
    monkeypatch.setattr(live, "_searcher", lambda strategy: lambda source_ids: found)
    assert runner.translate_ids([5, 3]) == live.translate_ids([[5, 3]])[0]
    assert runner.translate(["a"]) == live.translate(["a"])


# --- Input ---------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize("text", ["", "   ", "\n", "\u3000"])
def test_no_text_gives_no_text(runner, text):
    assert runner.translate([text]) == [""]


def test_no_texts(runner):
    assert runner.translate([]) == []
    assert runner.translate_ids([]) == []


def test_encodes_as_the_tokenizer(runner, live, texts, odd_texts):
    for text in [*texts, *odd_texts, "a\ud800b", "\ud83d\ude00"]:
        assert runner.encode(text) == live.source_ids(text)


@pytest.mark.parametrize("outside", [31, -1, 2**31, 2**40, -(2**40)])
def test_ids_outside_the_vocabulary(runner, outside):
    rule = rf"ids must lie in \[0, 31\). Received: {min(outside, 3)} to {max(outside, 5)}"
    with pytest.raises(ValueError, match=rule):
        runner.translate_ids([5, outside, 3])


def test_wrong_ids(runner):
    with pytest.raises(ValueError, match=r"must be one list of ids. Received: shape \(1, 2\)"):
        runner.translate_ids([[5, 3]])
    with pytest.raises(ValueError, match=r"must be one list of ids. Received: shape \(\)"):
        runner.translate_ids(5)
    with pytest.raises(TypeError, match="must be integers. Received: dtype float64"):
        runner.translate_ids([5.7, 3.0])


def test_too_long(runner):
    assert len(runner.encode("a" * 510)) == 512
    runner.translate(["a" * 510])
    with pytest.raises(ValueError, match="at most `max_source_length` = 512 tokens. Received: 513"):
        runner.translate(["a" * 511])
    with pytest.raises(ValueError, match="at most `max_source_length` = 512 tokens. Received: 600"):
        runner.translate_ids([5] * 600)
    assert runner.translate([" " * 32768]) == [""]  # of which no token is made
    with pytest.raises(ValueError, match="and so at most 32768 bytes. Received: 32769 bytes"):
        runner.translate([" " * 32769])


def test_wrong_texts(runner):
    for text in ("ab", b"ab"):
        with pytest.raises(TypeError, match="`texts` must be a list of strings. Received: b?'ab'"):
            runner.translate(text)
    with pytest.raises(TypeError, match="`text` must be a string. Received: bytes"):
        runner.translate(["a", b"b"])


# --- Folders that are not whole ------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.tflite", "tokenizer.model", "metadata.json"])
def test_a_missing_file(copy, name):
    (copy / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"must hold {name}. Received"):
        Runner(copy)


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="must hold metadata.json. Received: .*nowhere"):
        Runner(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["model.tflite", "tokenizer.model"])
@pytest.mark.parametrize("where", [0, 0.5, -1])
def test_a_flipped_bit(copy, name, where):
    content = bytearray((copy / name).read_bytes())
    content[int(where * len(content)) if where > 0 else where] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} must be the file .* damaged or belongs to anoth"):
        Runner(copy)


def test_a_file_cut_short(copy):
    content = (copy / "model.tflite").read_bytes()
    (copy / "model.tflite").write_bytes(content[:-1])
    with pytest.raises(ValueError, match="model.tflite must be the file .* damaged"):
        Runner(copy)


@pytest.mark.slow
def test_a_file_of_another_export(copy, int8_device):
    shutil.copy(int8_device.path / "model.tflite", copy / "model.tflite")
    with pytest.raises(ValueError, match="model.tflite must be the file .* belongs to another"):
        Runner(copy)


def test_damaged_metadata_never_gives_a_wrong_answer(copy, texts, live):
    path = copy / "metadata.json"
    content, refused = path.read_bytes(), 0
    samples = texts[2:5]
    expected = live.translate(samples)
    for position in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 7
        path.write_bytes(damaged)
        try:
            answers = Runner(copy).translate(samples)
        except ValueError:
            refused += 1
        else:
            assert answers == expected, bytes(damaged)
    assert refused > len(content) / 3 / 2


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": 2}, "must have format 1. Received: 2"),
        (
            {"eos_id": 4},
            "must agree on vocab_size, pad_id, bos_id and eos_id. Received: .*'eos_id': 4",
        ),
        ({"vocab_size": 32}, "must agree on vocab_size, .*'vocab_size': 32"),
        ({"pad_id": 5}, "must agree on vocab_size, .*'pad_id': 5"),
        ({"bos_id": 5}, "must agree on vocab_size, .*'bos_id': 5"),
        ({"target_vocab_size": 32}, "must agree on target_vocab_size, .*'target_vocab_size': 32"),
        ({"max_source_length": "512"}, "`max_source_length` of type int. Received: '512'"),
        ({"eos_id": True}, "`eos_id` of type int. Received: True"),
        ({"max_source_length": 2**63}, "`max_source_length` must be in \\[0, 2.*Received: 9"),
        ({"pad_id": -1}, "`pad_id` must be in \\[0, 2.*Received: -1"),
        ({"sha256": None}, "`sha256` of type dict. Received: None"),
        ({"signature": "other"}, "must have the signature that metadata.json names, .*'other'"),
        ({"signature": "classify"}, "must have the signature .*'classify', and in the file"),
    ],
)
def test_wrong_metadata(copy, change, message):
    path = copy / "metadata.json"
    path.write_text(json.dumps(sealed({**json.loads(path.read_text()), **change})))
    with pytest.raises(ValueError, match=message):
        Runner(copy)


@pytest.mark.parametrize("content", ["", "[]", "{}", "5", '{"format"', "\x00"])
def test_no_metadata(copy, content):
    (copy / "metadata.json").write_text(content)
    with pytest.raises(ValueError, match="metadata.json must (be the metadata|have a field)"):
        Runner(copy)


def test_a_tokenizer_of_another_vocabulary(copy):
    other = SentencePieceTokenizer.train(["abc"] * 5, 8, model_type="char")
    other.save(copy / "tokenizer.model")
    metadata = json.loads((copy / "metadata.json").read_text())
    metadata["sha256"]["tokenizer.model"] = hashlib.sha256(other.model_proto).hexdigest()
    (copy / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(ValueError, match=r"must agree on .* in the tokenizer \(8, 0, 2, 3\)"):
        Runner(copy)


# --- One interpreter, many calls ------------------------------------------------------------


def test_lengths_leave_nothing_behind(device, runner, live, other_texts):
    """Long, short, long again, as a fresh interpreter answers; a failed call in between too."""
    texts = [other_texts[6], "a", other_texts[6], "h", other_texts[2], ""]
    fresh = [Runner(device.path).translate([text])[0] for text in texts]
    received = []
    for text in texts:
        with pytest.raises(ValueError, match="ids must lie in"):
            runner.translate_ids([5] * 9 + [31])
        received += runner.translate([text])
    assert received == fresh == live.translate(texts)


def test_answers_end_with_their_eos_and_pads(runner, device, live, texts):
    """The file's own row: Python's tokens, EOS, and pads up to the last slot."""
    pad_id, eos_id = live.model.config.pad_id, live.model.config.eos_id
    for text in texts[:8]:
        ids = live.source_ids(text)
        row = runner._run("translate", source_ids=np.array([ids], "int32"))["target_ids"][0]
        tokens = [*live.translate_ids([ids])[0], eos_id]
        assert row.tolist() == tokens + [pad_id] * (len(row) - len(tokens))


def test_texts_are_checked_before_the_first_is_translated(device, monkeypatch):
    runner = Runner(device.path)
    monkeypatch.setattr(runner, "_run", None)
    with pytest.raises(TypeError, match="`text` must be a string"):
        runner.translate(["a", 5])


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs Linux")
def test_the_model_is_mapped_not_read(device):
    path = device.path.resolve() / "model.tflite"
    with open("/proc/self/maps", encoding="utf-8") as file:
        before = file.read().count(str(path))
    runner = Runner(path.parent)
    with open("/proc/self/maps", encoding="utf-8") as file:
        assert file.read().count(str(path)) == before + 1
    assert runner.translate([""]) == [""]


@pytest.mark.parametrize("content", [b"", b"no model", b"\x1c\x00\x00\x00TFL3" + bytes(64)])
def test_a_file_that_is_no_model_though_its_checksum_fits(copy, content):
    replaced(copy, "model.tflite", content)
    with pytest.raises(ValueError, match="must be a model that this version of LiteRT can run."):
        Runner(copy)


def test_a_file_that_is_no_tokenizer_though_its_checksum_fits(copy):
    for content in (b"", b"no tokenizer", b"{}", b"\x0a\x05abc"):
        replaced(copy, "tokenizer.model", content)
        with pytest.raises(ValueError, match="tokenizer.model"):
            Runner(copy)


def replaced(folder, name, content):
    """Writes a file and its checksum."""
    (folder / name).write_bytes(content)
    metadata = json.loads((folder / "metadata.json").read_text())
    metadata["sha256"][name] = hashlib.sha256(content).hexdigest()
    (folder / "metadata.json").write_text(json.dumps(sealed(metadata)))


def test_an_opened_folder_keeps_freed_memory(device, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "keras_transformer_runner.model.keep_freed_memory", lambda: asked.append(True)
    )
    with pytest.raises(FileNotFoundError):
        Runner(tmp_path / "none")
    assert not asked
    Runner(device.path)
    assert asked
