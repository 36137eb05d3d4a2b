import keras
import numpy as np
import pytest

from keras_transformer.training import InverseSquareRootSchedule, PaperSchedule

# 512**-0.5 * min(s**-0.5, s * 4000**-1.5), by hand.
PAPER_VALUES = {0: 0.0, 1: 1.746928e-07, 4000: 6.987712e-04, 8000: 4.941059e-04}


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
@pytest.mark.parametrize("step", PAPER_VALUES)
def test_values_of_the_paper_for_any_step_dtype(step, dtype):
    schedule = PaperSchedule(512)

    rate = schedule(keras.ops.convert_to_tensor(step, dtype))

    np.testing.assert_allclose(float(rate), PAPER_VALUES[step], rtol=1e-6, atol=0)
    np.testing.assert_allclose(float(schedule(step)), PAPER_VALUES[step], rtol=1e-6, atol=0)


def test_scale_and_peak():
    schedule = PaperSchedule(7, warmup_steps=5, scale=3.0)
    rates = [float(schedule(step)) for step in range(12)]

    assert np.argmax(rates) == 5
    np.testing.assert_allclose(rates[5], 3 * (7 * 5) ** -0.5, rtol=1e-6)


def test_a_saved_model_keeps_the_schedule(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.Adam(PaperSchedule(5, warmup_steps=7, scale=2.0)), "mse")
    model.train_on_batch(np.ones((2, 3)), np.ones((2, 2)))
    model.save(tmp_path / "model.keras")

    loaded = keras.models.load_model(tmp_path / "model.keras")

    assert int(loaded.optimizer.iterations) == 1
    np.testing.assert_allclose(
        float(loaded.optimizer.learning_rate), float(PaperSchedule(5, 7, 2.0)(1)), rtol=1e-6
    )


@pytest.mark.parametrize("wrong", [{"model_dim": 0}, {"warmup_steps": 0}, {"scale": -1.0}])
def test_arguments_must_be_positive(wrong):
    (name, value) = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=f"`{name}` must be positive. Received: {name}={value}"):
        PaperSchedule(**{"model_dim": 5, **wrong})


def test_inverse_square_root_by_its_peak():
    schedule = InverseSquareRootSchedule(0.3, warmup_steps=4)
    rates = [float(schedule(step)) for step in range(17)]

    np.testing.assert_allclose(rates[:5], [0, 0.075, 0.15, 0.225, 0.3], rtol=1e-6)
    np.testing.assert_allclose(rates[16], 0.15, rtol=1e-6)
    assert InverseSquareRootSchedule.from_config(schedule.get_config())(9) == schedule(9)


def test_both_schedules_are_one_curve():
    paper = PaperSchedule(8, warmup_steps=50)
    peak = float(paper(50))
    for step in (0, 1, 49, 50, 51, 1000):
        ours = float(InverseSquareRootSchedule(peak, 50)(step))
        np.testing.assert_allclose(ours, float(paper(step)), rtol=1e-6)


@pytest.mark.parametrize("wrong", [{"peak": 0.0}, {"warmup_steps": -1}])
def test_peak_and_warmup_must_be_positive(wrong):
    (name, value) = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=f"`{name}` must be positive. Received: {name}={value}"):
        InverseSquareRootSchedule(**{"peak": 1.0, **wrong})


def test_is_for_the_optimizer_and_not_for_callbacks_of_epochs():
    def fit(rate, *callbacks):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile(keras.optimizers.SGD(rate), "mse", jit_compile=False)
        x, y = np.ones((2, 3)), np.ones((2, 2))
        return model.fit(x, y, epochs=2, verbose=0, callbacks=list(callbacks)).history

    schedule, by_epoch = PaperSchedule(5, 3), keras.callbacks.LearningRateScheduler
    with pytest.raises(ValueError, match="`schedule` function should be a float"):
        fit(0.1, by_epoch(schedule))
    with pytest.raises(TypeError, match="its learning rate is not settable"):
        fit(schedule, by_epoch(lambda epoch: 0.1))
    steps_per_epoch = 1  # the example of the docstring
    rates = fit(0.1, by_epoch(lambda epoch: float(schedule((epoch + 1) * steps_per_epoch))))
    assert rates["learning_rate"] == pytest.approx([float(schedule(1)), float(schedule(2))])
