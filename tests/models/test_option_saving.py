"""Every option of a model: saved, trained for a step, in low precision, with a wrong id."""

import keras
import numpy as np
import pytest
from toy_options import (
    COMBINED,
    assert_near,
    batch,
    logits,
    options_together,
    rebuilt,
    toy,
    toy_logits,
)

from keras_transformer.config import TransformerConfig
from keras_transformer.models import Transformer
from keras_transformer.training import SmoothedCrossEntropy


@pytest.mark.quick(5)
@options_together
def test_round_trips(name, tmp_path):
    """Through a `.keras` file and through JSON, bit for bit."""
    model, ids = toy(name), batch(name)
    paths = [variable.path for variable in model.variables]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert TransformerConfig.from_json(model.config.to_json()) == model.config
    for each in (loaded, rebuilt(name)):
        assert each.config == model.config and each.get_config() == model.get_config()
        assert [variable.path for variable in each.variables] == paths
        for one, same in zip(each.weights, model.weights, strict=True):
            np.testing.assert_array_equal(one, same, err_msg=same.path)
        np.testing.assert_array_equal(logits(each, *ids), toy_logits(name))


@pytest.mark.quick(5)
@options_together
def test_one_training_step_with_an_empty_source(name):
    """Finite loss and gradients: no weight becomes NaN, and all move that have a gradient."""
    model, (source_ids, target_ids) = rebuilt(name), batch(name, (4, 0))
    loss = SmoothedCrossEntropy(0.1, pad_id=model.config.pad_id)
    model.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=True)
    before, labels = model.get_weights(), np.roll(target_ids, -1, axis=1)
    inputs = {"source_ids": source_ids, "target_ids": target_ids}
    assert np.isfinite(model.train_on_batch(inputs, labels))
    # Softmax takes no notice of a key's bias, the batch's mean of no bias at all.
    without = "bias" if model.config.normalization == "batch" else "key/bias"
    for weight, old in zip(model.weights, before, strict=True):
        value = keras.ops.convert_to_numpy(weight)
        assert np.all(np.isfinite(value)), weight.path
        assert np.any(value != old) or weight.path.endswith(without), weight.path


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", COMBINED)
def test_low_precision_is_finite_and_close(name):
    """With padding and an empty row, and as close as the dtype allows."""
    model, low = toy(name), Transformer(toy(name).config, dtype="mixed_float16")
    low.set_weights(model.get_weights())
    actual = logits(low, *batch(name))
    assert actual.dtype == np.float32 and low.output.dtype == "float32"
    assert_near(actual, toy_logits(name), share=40 * 2.0**-11)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", COMBINED)
def test_an_id_out_of_the_vocabulary_makes_its_row_nan_and_no_other(name):
    model = toy(name)
    for side, size in enumerate((model.config.vocab_size, model.config.target_size)):
        for wrong in (-1, size, 10**6):
            ids = [part.copy() for part in batch(name)]
            ids[side][0, 1] = wrong
            actual = logits(model, *ids)
            assert np.all(np.isnan(actual[0]))
            assert_near(actual[1:], toy_logits(name)[1:])
