import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_transformer.training as training


def test_every_name_exists():
    for name in training.__all__:
        assert getattr(training, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Trainer'"):
        _ = training.Trainer


def test_a_new_process_loads_a_compiled_model(tmp_path, repo_root):
    model = keras.Sequential([keras.Input((None, 3)), keras.layers.Dense(7)])
    model.compile(
        keras.optimizers.Adam(training.PaperSchedule(5, warmup_steps=3)),
        training.SmoothedCrossEntropy(0.2, pad_id=6),
        metrics=[
            training.TokenMeanLoss(0.2, 6),
            training.TokenAccuracy(6),
            training.Perplexity(6),
        ],
    )
    inputs, labels = np.ones((2, 4, 3), "float32"), np.array([[1, 2, 3, 6], [4, 6, 6, 6]])
    model.train_on_batch(inputs, labels)
    logs = model.test_on_batch(inputs, labels, return_dict=True)
    model.save(tmp_path / "model.keras")
    script = f"""
import sys
import keras_transformer.training
import keras, numpy as np
model = keras.models.load_model({str(tmp_path / "model.keras")!r})
assert int(model.optimizer.iterations) == 1
labels = np.array([[1, 2, 3, 6], [4, 6, 6, 6]])
logs = model.test_on_batch(np.ones((2, 4, 3), "float32"), labels, return_dict=True)
print(sorted((name, float(value)) for name, value in logs.items()))
"""
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, cwd=repo_root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    expected = sorted((name, float(value)) for name, value in logs.items())
    assert result.stdout.splitlines()[-1] == str(expected)
