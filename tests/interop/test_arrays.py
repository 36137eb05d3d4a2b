"""Checkpoints without torch: what it wrote is read as it was, and nothing else is done."""

import json
import random
import struct
import zipfile

import numpy as np
import pytest

from keras_transformer.interop.arrays import read_arrays

# Written by torch 2.13 and safetensors 0.8: an `OrderedDict` with `_metadata` of the tensors below,
# and a whole `torch.nn.Linear`.
ROWS = np.arange(12, dtype="float32").reshape(4, 3)
EXPECTED = {
    "float32": ROWS,
    "transposed": ROWS.T,
    "rows": ROWS[1:3],
    "bfloat16": np.array([[1.5, -2]], "float32"),
    "float16": np.array([0.25, 3], "float16"),
    "int64": np.array([2**40, -1]),
    "bool": np.array([True, False]),
    "scalar": np.array(2.5, "float32"),
    "empty": np.zeros((0, 4), "float32"),
    "parameter": np.ones(2, "float32"),
}


@pytest.fixture
def made_by_torch(repo_root):
    return repo_root / "tests" / "interop" / "fixtures" / "arrays"


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["torch.bin", "torch_before_1_6.bin", "torch.safetensors"])
def test_files_of_torch_are_read_as_they_were(made_by_torch, name):
    arrays = read_arrays(made_by_torch / name)
    assert set(arrays) == set(EXPECTED) and len(arrays) == len(EXPECTED)
    for key, expected in EXPECTED.items():
        assert arrays[key].dtype == expected.dtype
        np.testing.assert_array_equal(arrays[key], expected, strict=True)


def test_npz_with_names_of_marian(tmp_path):
    weights = {"encoder_l1_self_Wq": ROWS, "special:model.yml": np.frombuffer(b"a: 1\0", "i1")}
    np.savez(tmp_path / "model.npz", **weights)
    arrays = read_arrays(tmp_path)
    np.testing.assert_array_equal(arrays["encoder_l1_self_Wq"], ROWS, strict=True)
    assert arrays["special:model.yml"].tobytes() == b"a: 1\0"


def test_uses_are_counted(tmp_path):
    np.savez(tmp_path / "a.npz", one=ROWS, two=ROWS + 1, three=ROWS)
    arrays = read_arrays(tmp_path / "a.npz")
    assert "one" in arrays and "four" not in arrays and arrays.get("four") is None
    np.testing.assert_array_equal(arrays.take("two"), ROWS + 1)
    arrays["one"]  # looking at one is no use of it
    assert arrays.unused() == ["one", "three"]
    with pytest.raises(ValueError, match="must be taken once. Received twice: 'two'"):
        arrays.take("two")
    with pytest.raises(ValueError, match="must hold the tensor 'thre'.*mean 'three'"):
        arrays.take("thre")


def test_the_best_file_of_a_folder_is_taken(made_by_torch, tmp_path):
    np.savez(tmp_path / "marian.npz", other=ROWS)
    assert list(read_arrays(tmp_path)) == ["other"]
    (tmp_path / "pytorch_model.bin").write_bytes((made_by_torch / "torch.bin").read_bytes())
    assert set(read_arrays(tmp_path)) == set(EXPECTED)
    write_safetensors(tmp_path / "model.safetensors", {"best": ROWS})
    assert list(read_arrays(tmp_path)) == ["best"]


def test_a_folder_without_or_with_several(tmp_path):
    with pytest.raises(FileNotFoundError, match="must hold one of .*npz. Received"):
        read_arrays(tmp_path)
    with pytest.raises(FileNotFoundError, match="must be a checkpoint's file or folder"):
        read_arrays(tmp_path / "none.npz")
    for name in ("a.npz", "b.npz"):
        np.savez(tmp_path / name, x=ROWS)
    with pytest.raises(ValueError, match="must hold one .*npz.*'a.npz', 'b.npz'"):
        read_arrays(tmp_path)


def write_safetensors(path, arrays, **changes):
    """A safetensors file; `changes` of the entry of the first tensor."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in arrays.items():
        place = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": place}
        data += array.tobytes()
    header[next(iter(arrays))].update(changes)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_index(folder, name, weight_map):
    (folder / f"{name}.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_a_checkpoint_in_several_files(tmp_path):
    write_safetensors(tmp_path / "model-1.safetensors", {"a": ROWS, "b": ROWS + 1})
    write_safetensors(tmp_path / "model-2.safetensors", {"c": ROWS + 2})
    files = {"a": "model-1.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"}
    write_index(tmp_path, "model.safetensors", files)
    arrays = read_arrays(tmp_path)
    assert list(arrays) == ["a", "b", "c"]
    np.testing.assert_array_equal(arrays["c"], ROWS + 2, strict=True)


INDEXES = {
    "no map": ([1], "must hold a `weight_map`"),
    "no names": ({"a": 3}, "must hold a `weight_map`"),
    "outside": ({"a": "../x.safetensors"}, "must name files beside it"),
    "absolute": ({"a": "/x.safetensors"}, "must name files beside it"),
    "lacks one": ({"a": "1.safetensors", "z": "1.safetensors"}, "what the index says.*'z'"),
    "twice": ({"a": "1.safetensors", "b": "2.safetensors"}, "must lie in one file.*'a'"),
}


@pytest.mark.parametrize("weight_map, message", INDEXES.values(), ids=INDEXES)
def test_a_wrong_index_is_an_error(tmp_path, weight_map, message):
    write_safetensors(tmp_path / "1.safetensors", {"a": ROWS})
    write_safetensors(tmp_path / "2.safetensors", {"a": ROWS, "b": ROWS})
    write_index(tmp_path, "model.safetensors", weight_map)
    with pytest.raises(ValueError, match=message):
        read_arrays(tmp_path)


def test_a_file_of_an_index_that_is_missing(tmp_path):
    write_index(tmp_path, "pytorch_model.bin", {"a": "pytorch_model-1.bin"})
    with pytest.raises(FileNotFoundError, match="a file of the index must exist"):
        read_arrays(tmp_path)


ENTRIES = {
    "dtype": ({"dtype": "F8_E4M3"}, "'a' must have a dtype of"),
    "no list": ({"shape": 3}, "'a' must have a dtype of"),
    "no pair": ({"data_offsets": [0]}, "'a' must have a dtype of"),
    "negative": ({"shape": [-4, -3]}, "'a' must lie within its file"),
    "a flag": ({"shape": [4, 3, True]}, "'a' must lie within its file"),
    "too large a shape": ({"shape": [4, 4]}, "'a' must lie within its file"),
    "beyond the end": ({"data_offsets": [4, 52]}, "'a' must lie within its file"),
    "before the start": ({"data_offsets": [-8, 40]}, "'a' must lie within its file"),
    "a huge one": ({"shape": [2**62, 2**62], "data_offsets": [0, 2**126]}, "within its file"),
}


@pytest.mark.parametrize("changes, message", ENTRIES.values(), ids=ENTRIES)
def test_a_wrong_entry_of_a_header_is_an_error(tmp_path, changes, message):
    write_safetensors(tmp_path / "a.safetensors", {"a": ROWS}, **changes)
    with pytest.raises(ValueError, match=message):
        read_arrays(tmp_path / "a.safetensors")


HEADERS = {
    "nothing": (b"", "must not be empty"),
    "short": (b"\x02\0\0", "must begin with the size of its header"),
    "longer than the file": (struct.pack("<Q", 3) + b"{}", "must begin with the size"),
    "too long": (struct.pack("<Q", 2**60) + b"{}", "must begin with the size"),
    "no JSON": (struct.pack("<Q", 3) + b"{'}", "must be JSON"),
    "deep": (struct.pack("<Q", 200_000) + b"[" * 200_000, "must be JSON"),
    "a list": (struct.pack("<Q", 2) + b"[]", "must name tensors"),
}


@pytest.mark.parametrize("content, message", HEADERS.values(), ids=HEADERS)
def test_a_wrong_header_is_an_error(tmp_path, content, message):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_arrays(path)


@pytest.mark.parametrize("content", [b"no zip", b"PK\x03\x04"])
def test_an_npz_that_is_none_is_an_error(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match="must be a whole zip file"):
        read_arrays(tmp_path)


def test_an_npz_runs_no_pickle(tmp_path):
    np.savez(tmp_path / "a.npz", good=ROWS, bad=np.array([{}], dtype=object))
    arrays = read_arrays(tmp_path)
    np.testing.assert_array_equal(arrays["good"], ROWS)
    with pytest.raises(ValueError, match="the array 'bad.npy' must be whole .*allow_pickle"):
        arrays.take("bad")


def test_an_npz_with_another_file_in_it(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ValueError, match="an .npz must hold arrays. Received: 'readme.txt'"):
        read_arrays(tmp_path)


@pytest.mark.parametrize(
    "name", ["torch.bin", "torch_before_1_6.bin", "torch.safetensors", "a.npz"]
)
def test_damage_is_an_error_or_changes_numbers_only(made_by_torch, tmp_path, name):
    np.savez(tmp_path / "a.npz", **EXPECTED)
    source = made_by_torch / name if name.startswith("torch") else tmp_path / name
    content, rng = source.read_bytes(), random.Random(7)
    path, faults = tmp_path / f"damaged{source.suffix}", 0
    for _ in range(150):
        damaged = bytearray(content[: rng.choice([None, rng.randrange(len(content))])])
        for _ in range(rng.choice([0, 1, 8])):
            if damaged:  # of one byte, wherever
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.unlink(missing_ok=True)  # the old one may still be mapped
        path.write_bytes(damaged)
        try:
            for array in read_arrays(path).values():
                array.sum()
        except ValueError:
            faults += 1
    assert faults > 20


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 303012345\n"


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "model.npz"])
def test_weights_of_a_clone_without_its_large_files(tmp_path, name):
    (tmp_path / name).write_text(POINTER)
    with pytest.raises(ValueError, match=rf"{name}: .* by `git lfs pull`. Received: a pointer"):
        read_arrays(tmp_path)
