"""Files of `torch.save` without torch: nothing in them is run, nothing outside them is read."""

import io
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest

from keras_transformer.interop.arrays import read_arrays

ROWS = np.arange(12, dtype="float32").reshape(4, 3)


@pytest.fixture
def made_by_torch(repo_root):
    return repo_root / "tests" / "interop" / "fixtures" / "arrays"


DATA = ROWS.tobytes()


def pickled(thing):
    """A pickle of `thing`, with the tensor's parts as `Named`."""
    stream = io.BytesIO()
    pickler = pickle._Pickler(stream, 2)
    pickler.dispatch = dict(pickler.dispatch)
    pickler.dispatch[Named] = lambda self, named: self.write(named.instructions(self))
    pickler.dump(thing)
    return stream.getvalue()


class Named:
    """A global of a module, called with arguments if there are any, or a persistent id."""

    def __init__(self, name, *arguments):
        self.name, self.arguments = name, arguments

    def instructions(self, pickler):
        if self.name == "persistent":
            pickler.save(self.arguments[0])
            return b"Q"
        module, name = self.name.rsplit(".", 1)
        pickler.write(f"c{module}\n{name}\n".encode())
        if not self.arguments:
            return b""
        pickler.save(self.arguments)
        return b"R"


def storage(kind="FloatStorage", key="0", sixth=()):
    return Named("persistent", ("storage", Named(f"torch.{kind}"), key, "cpu", 12, *sixth))


def tensor(offset=0, shape=(4, 3), strides=(3, 1), of=None):
    parts = (of or storage(), offset, shape, strides, False, Named("collections.OrderedDict", ()))
    return Named("torch._utils._rebuild_tensor_v2", *parts)


def write_archive(path, content, *, compression=zipfile.ZIP_STORED, data=None, **more):
    entries = {"data.pkl": content, "byteorder": b"little", "data/0": data or DATA, **more}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, entry in entries.items():
            if entry:
                archive.writestr(f"archive/{name}", entry)


def test_an_archive_written_by_hand(tmp_path):
    write_archive(tmp_path / "a.bin", pickled({"a": tensor(), "b": tensor(3, (2,), (6,))}))
    arrays = read_arrays(tmp_path / "a.bin")
    np.testing.assert_array_equal(arrays["a"], ROWS, strict=True)
    np.testing.assert_array_equal(arrays["b"], ROWS[[1, 3], 0], strict=True)


def test_a_whole_module_is_an_error_that_names_it(made_by_torch):
    with pytest.raises(ValueError, match="Received: torch.nn.modules.linear.Linear"):
        read_arrays(made_by_torch / "module.bin")


TENSORS = {
    "beyond": (tensor(1), "'a' must lie within its storage"),
    "strides beyond": (tensor(0, (4, 3), (4, 1)), "'a' must lie within its storage"),
    "numbers twice": (tensor(0, (40, 30), (0, 0)), "'a' must lie within its storage"),
    "offset": (tensor(13, (0,), (1,)), None),
    "negative": (tensor(11, (4, 3), (-3, -1)), "must have sizes of at least 0"),
    "a flag": (tensor(True), "must have sizes of at least 0"),
    "axes": (tensor(0, (4, 3), (3,)), "must have a stride an axis"),
    "no storage": (tensor(of=3), "must be made of a storage"),
    "another storage": (tensor(of=storage(key="7")), "must hold the storage '7'"),
    "an odd kind": (tensor(of=storage("QInt8Storage")), "Received: torch.QInt8Storage"),
    "no class": (
        tensor(of=Named("persistent", ("storage", "torch.FloatStorage", "0", "cpu", 12))),
        "a storage must have a known type",
    ),
    "another reference": (tensor(of=Named("persistent", ("file", 3))), "must refer to storages"),
    "a number": (3, "must be a dictionary of tensors.*Received: 'a'"),
    "a dictionary": ({"b": tensor()}, "must be a dictionary of tensors.*Received: 'a'"),
    "a call": (Named("os.system", "touch fell"), "nothing that has to be run. Received: os.system"),
    "built in": (Named("builtins.eval", "1"), "Received: builtins.eval"),
    "an attribute": (Named("torch.serialization.os.system", "touch fell"), "serialization.os"),
    "numpy": (Named("numpy.core.multiarray._reconstruct", 1), "Received: numpy.core"),
}


@pytest.mark.parametrize("value, message", TENSORS.values(), ids=TENSORS)
def test_a_tensor_that_is_none_is_an_error(tmp_path, monkeypatch, value, message):
    monkeypatch.chdir(tmp_path)
    write_archive(tmp_path / "a.bin", pickled({"a": value}))
    if message is None:
        assert read_arrays("a.bin")["a"].shape == (0,)
        return
    with pytest.raises(ValueError, match=message):
        read_arrays("a.bin")
    assert os.listdir() == ["a.bin"]


_DEEP = b"\x80\x02})" + b"\x85" * 300_000 + b"Ns."  # a tuple in a tuple in ... as a key
_WIDE = b"\x80\x02})" + b"".join(bytes([113, i, 104, i, 134]) for i in range(60))
_SIZES = b"\x80\x02]q\x00(" + b"N" * 300_000 + b"ectorch\nSize\nq\x01" + b"h\x01h\x00\x85R" * 9
PICKLES = {
    "keys without end": (_DEEP, "must have strings as keys, not tuple"),
    "keys of many parts": (_WIDE + b"Ns.", "must have strings as keys, not tuple"),
    "many keys of many parts": (_WIDE + b"(NNu.", "cannot be read"),
    "a reference of many parts": (_WIDE.replace(b"}", b"") + b"Q.", "must refer to storages only"),
    "copies of a list": (_SIZES + b".", "must be of at most 64 axes"),
    "a list": (pickled([tensor()]), "must be a dictionary of tensors.*Received: list"),
    "cut": (pickled({"a": tensor()})[:-9], "the names of the tensors cannot be read"),
    "an old instruction": (b"(S'touch fell'\nios\nsystem\n.", "STRING that tensors do not need"),
    "a memo without end": (b"\x80\x02Nr\xff\xff\xff\x7f.", "a memo without end"),
    "bytes without end": (b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.", "cannot be read"),
    "changes of a class": (
        b"\x80\x02ccollections\nOrderedDict\n}X\x01\0\0\0aNsb.",
        "the names of the tensors cannot be read",
    ),
    "changes of a function": (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x08\0\0\0__call__Nsb.",
        "the names of the tensors cannot be read",
    ),
    "changes of a kind": (
        b"\x80\x02ctorch\nFloatStorage\nN}X\x04\0\0\0nameX\x0b\0\0\0LongStorages\x86b.",
        "the names of the tensors cannot be read",
    ),
}


@pytest.mark.parametrize("content, message", PICKLES.values(), ids=PICKLES)
def test_a_wrong_pickle_is_an_error(tmp_path, content, message):
    write_archive(tmp_path / "a.bin", content)
    with pytest.raises(ValueError, match=message):
        read_arrays(tmp_path / "a.bin")
    write_archive(tmp_path / "b.bin", pickled({"a": tensor()}))  # and nothing has changed
    np.testing.assert_array_equal(read_arrays(tmp_path / "b.bin")["a"], ROWS)


ARCHIVES = {
    "no pickle": ({"content": None}, "must hold one data.pkl. Received: 0"),
    "no storage": ({"data/0": None}, "must hold the storage '0'"),
    "short": ({"data": b"\0" * 44}, "'a' must lie within its storage"),
    "big-endian": ({"byteorder": b"big"}, "must be of a little-endian machine"),
    "compressed": ({"compression": zipfile.ZIP_DEFLATED}, "must not be compressed"),
    "huge": (
        {"content": bytes(100_000_001), "compression": zipfile.ZIP_DEFLATED},
        "must have at most 100000000 bytes",
    ),
}


@pytest.mark.parametrize("changes, message", ARCHIVES.values(), ids=ARCHIVES)
def test_a_wrong_archive_is_an_error(tmp_path, changes, message):
    write_archive(tmp_path / "a.bin", **{"content": pickled({"a": tensor()}), **changes})
    with pytest.raises(ValueError, match=message):
        read_arrays(tmp_path / "a.bin")


FILES = {
    "of another kind": (b"\x89HDF\r\n", "must be .*safetensors.*begins with b'.x89HDF"),
    "cut": (b"PK\x03\x04" + bytes(90), "must be a whole zip file"),
}


@pytest.mark.parametrize("content, message", FILES.values(), ids=FILES)
def test_a_file_that_is_no_archive_is_an_error(tmp_path, content, message):
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_arrays(tmp_path)


@pytest.mark.parametrize("place", [0, 42, 330, 2**31])
def test_a_storage_outside_of_its_archive_is_an_error(tmp_path, place):
    path = tmp_path / "a.bin"
    write_archive(path, pickled({"a": tensor()}))
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"archive/data/0") - 46  # in the directory at the end
    struct.pack_into("<I", content, entry + 42, place)
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match="must lie within its file|checksum differs|whole zip file"
    ):
        read_arrays(path)["a"]


# --- The format before torch 1.6 -----------------------------------------------------------

MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def write_legacy(path, *, version=1001, system=None, state=None, keys=("0",), items=12):
    parts = [
        version,
        {"protocol_version": 1001, "little_endian": True} if system is None else system,
        {"a": tensor(of=storage(sixth=(None,)))} if state is None else state,
        list(keys),
    ]
    data = struct.pack("<Q", items) + DATA
    path.write_bytes(MAGIC + b"".join(map(pickled, parts)) + data)


def test_a_file_before_torch_1_6_written_by_hand(tmp_path):
    write_legacy(tmp_path / "a.bin")
    arrays = read_arrays(tmp_path / "a.bin")
    np.testing.assert_array_equal(arrays["a"], ROWS, strict=True)


LEGACY = {
    "another version": ({"version": 1000}, "must have version 1001"),
    "no system": ({"system": []}, "must have version 1001"),
    "big-endian": ({"system": {"little_endian": False}}, "must be of a little-endian machine"),
    "no tensors": ({"state": [3]}, "must be a dictionary of tensors"),
    "a call": (
        {"state": {"a": Named("os.system", "touch fell")}},
        "nothing that has to be run. Received: os.system",
    ),
    "a view": (
        {"state": {"a": tensor(of=storage(sixth=(("1", 0, 3),)))}},
        "must refer to storages only",
    ),
    "another key": ({"keys": ["1"]}, "must list the storages of its tensors"),
    "keys that are none": ({"keys": [0, 0]}, "must list the storages of its tensors"),
    "too few numbers": ({"items": 11}, "'a' must lie within its storage"),
    "too many numbers": ({"items": 13}, "the storage '0' must lie within its file"),
    "numbers without end": ({"items": 2**63}, "the storage '0' must lie within its file"),
}


@pytest.mark.parametrize("changes, message", LEGACY.values(), ids=LEGACY)
def test_a_wrong_file_before_torch_1_6_is_an_error(tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    write_legacy(tmp_path / "a.bin", **changes)
    with pytest.raises(ValueError, match=message):
        read_arrays("a.bin")
    assert os.listdir() == ["a.bin"]
