"""Models whose float32 file would be beyond what a flatbuffer holds."""

import collections
import functools

import pytest
from ai_edge_litert import schema_py_generated as schema

from keras_transformer.export import export_litert
from keras_transformer.export.litert import conversion, flatbuffer, writer
from keras_transformer.export.litert.compare import compare_modes
from keras_transformer.export.litert.conversion import check_size


def test_a_file_beyond_2_gib_is_refused_before_any_work(trained, tokenizer, tmp_path, monkeypatch):
    class Large:
        def __init__(self, parameters):
            self.count_params = lambda: parameters

    for mode, most in (("float32", 532_676_608), ("int4", 532_676_608), ("int8", 1_937_005_847)):
        check_size(Large(most), mode)
        message = (
            rf"at most {most:,} parameters in mode '{mode}'.*Received: {most + 1:,} parameters"
        )
        with pytest.raises(ValueError, match=message):
            check_size(Large(most + 1), mode)
    monkeypatch.setattr(conversion, "MOST_BYTES", 4 * trained.count_params() - 1)
    monkeypatch.setattr(writer, "convert", functools.partial(pytest.fail, "converted"))
    for export in (export_litert, functools.partial(compare_modes, modes=["float32"])):
        with pytest.raises(
            ValueError, match=r"A mode with fewer bits \(float16, int8, int8_weight"
        ):
            export(trained, tokenizer, tmp_path / "a", samples=["a"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_weights_beyond_2_gib_lie_behind_the_flatbuffer_on_the_way(
    trained, tokenizer, texts, tmp_path, monkeypatch
):
    """With a lower limit; the file is that of a small model but for the order of its weights."""
    export_litert(trained, tokenizer, tmp_path / "small", samples=texts[:3], mode="int8")
    monkeypatch.setattr(conversion, "MOST_BYTES", 3 * trained.count_params())
    sizes = []
    convert = conversion.float_file

    def watched(*args, **kwargs):
        content = convert(*args, **kwargs)
        root = schema.Model.GetRootAs(content, 0)
        sizes.append(sum(root.Buffers(i).Size() for i in range(root.BuffersLength())))
        return content

    monkeypatch.setattr(conversion, "float_file", watched)
    export_litert(trained, tokenizer, tmp_path / "large", samples=texts[:3], mode="int8")
    assert sizes[0] > 3 * trained.count_params()  # all weights were behind it
    assert _weights(tmp_path / "large") == _weights(tmp_path / "small")


def _weights(folder):
    graph = flatbuffer.read((folder / "model.tflite").read_bytes())
    return collections.Counter(found.key for found in flatbuffer.weight_ops(graph))
