"""Averages of weight files."""

import h5py
import keras
import numpy as np
import pytest
from backend import array
from toy_model import toy_transformer

from keras_transformer.training import average_weights


def make_model(units=7):
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(units), keras.layers.Dense(2)])


def save_with_weights(path, value):
    model = make_model()
    model.set_weights([np.full_like(weight, value) for weight in model.get_weights()])
    model.save_weights(path)
    return path


def test_average_is_the_mean(tmp_path):
    paths = [save_with_weights(tmp_path / f"{v}.weights.h5", v) for v in (1.0, 2.0, 6.0)]
    output = average_weights(paths, tmp_path / "average.weights.h5")
    model = make_model()
    model.load_weights(output)
    for weight in model.get_weights():
        np.testing.assert_array_equal(weight, np.full_like(weight, 3.0))


def test_average_of_large_half_precision_weights_is_finite(tmp_path):
    for name in ("a.h5", "b.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            file["weight"] = np.array([65504.0], "float16")
    average_weights([tmp_path / "a.h5", tmp_path / "b.h5"], tmp_path / "c.h5")
    with h5py.File(tmp_path / "c.h5") as file:
        assert file["weight"][0] == 65504.0


@pytest.mark.quick(1)
@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16", "float16", "float64"])
def test_average_of_any_dtype_is_the_mean_of_all_files(dtype, tmp_path):
    def new(seed):
        return toy_transformer(seed, dtype=dtype, decoder_layers=1)

    paths = [tmp_path / f"{seed}.weights.h5" for seed in range(3)]
    models = [new(seed) for seed in range(3)]
    for model, path in zip(models, paths, strict=True):
        model.save_weights(path)
    averaged = new(5)
    averaged.load_weights(average_weights(paths, tmp_path / "average.weights.h5"))
    wide = "float64" if dtype == "float64" else "float32"
    for ours, *each in zip(averaged.weights, *(model.weights for model in models), strict=True):
        mean = np.mean([array(weight).astype("float64") for weight in each], axis=0).astype(wide)
        assert ours.dtype == each[0].dtype
        np.testing.assert_array_equal(array(ours), mean.astype(array(ours).dtype), ours.path)


def test_an_average_keeps_seeds_and_refuses_quantized_weights(tmp_path):
    for name, seed in (("a", 3), ("b", 4)):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["seed"], file["scale"] = np.array([seed, 9], "uint32"), np.float32([seed])
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    with h5py.File(average_weights(paths, tmp_path / "c.h5"), "r") as file:
        assert file["seed"][()].tolist() == [4, 9] and file["scale"][()].tolist() == [3.5]
    with h5py.File(tmp_path / "b.h5", "r+") as file:
        file["kernel"] = np.int8([[1]])
    with pytest.raises(ValueError, match="weights of floating .*Received: .*b.h5 with kernel of"):
        average_weights(paths, tmp_path / "d.h5")
    assert not (tmp_path / "d.h5").exists()


def test_average_needs_files_of_one_architecture(tmp_path):
    with pytest.raises(ValueError, match="`paths` must name at least one file"):
        average_weights([], tmp_path / "average.weights.h5")
    one = save_with_weights(tmp_path / "one.weights.h5", 1.0)
    make_model(units=5).save_weights(tmp_path / "two.weights.h5")
    with pytest.raises(ValueError, match="`paths` must hold the same arrays.*one.weights.h5"):
        average_weights([one, tmp_path / "two.weights.h5"], tmp_path / "average.weights.h5")
    assert not (tmp_path / "average.weights.h5").exists()


@pytest.mark.parametrize("size", [0, 9, 3000])
def test_average_of_a_cut_file_of_others(tmp_path, size):
    one = save_with_weights(tmp_path / "one.weights.h5", 1.0)
    two = tmp_path / "two.weights.h5"
    two.write_bytes(one.read_bytes()[:size])
    for paths in ([one, two], [two, one]):
        with pytest.raises(ValueError, match="paths.*two.weights|a whole HDF5 file.*two.weights"):
            average_weights(paths, tmp_path / "average.weights.h5")
    assert sorted(path.name for path in tmp_path.iterdir()) == [one.name, two.name]


def test_average_of_weights_that_are_not_finite(tmp_path):
    one = save_with_weights(tmp_path / "one.weights.h5", np.nan)
    with pytest.raises(ValueError, match="weights must be finite. Received: .*one.weights.h5: "):
        average_weights([one], tmp_path / "average.weights.h5")
