"""Two replicas, on one machine or as two workers, give what a single device gives."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from toy_experiment import write_experiment

from keras_transformer.experiment import load_run
from keras_transformer.models.checked_data import Ids
from keras_transformer.training.distribution import distributed, is_chief, make_strategy, wait_for

SCRIPT = """
import json, sys
import numpy as np
import keras
import tensorflow as tf

mode = sys.argv[1]
if mode == "mirrored":
    (cpu,) = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
from keras_transformer.training.distribution import distributed, is_shared, make_strategy

strategy = make_strategy(mode)
from keras_transformer import Transformer, TransformerConfig
from keras_transformer.training.data import weighted_for_accumulation
from keras_transformer.training.objective import compile_model
from keras_transformer.experiment.sections import TrainingSection

config = TransformerConfig(
    vocab_size=13, model_dim=6, num_heads=2, encoder_layers=1, decoder_layers=1,
    intermediate_dim=7, dropout=0.0,
)
rng = np.random.default_rng(0)

def batch(rows, length):
    source, labels = rng.integers(4, 13, (2, rows, length)).astype("int32")
    for row in range(rows):
        source[row, rng.integers(1, length + 1):] = 0
        labels[row, rng.integers(1, length + 1):] = 0
    target = np.pad(labels, ((0, 0), (1, 0)), constant_values=2)[:, :-1]
    return {"source_ids": source, "target_ids": target}, labels

# 12 rows; 5, which do not divide; 1, so that one replica gets nothing but pads
batches = [batch(12, 5), batch(5, 7), batch(1, 5), batch(6, 7)]

def make():
    ids = tf.TensorSpec((None, None), tf.int32)
    signature = {"source_ids": ids, "target_ids": ids}, ids
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)

def shared(make):
    return distributed(strategy, make, 0) if is_shared(strategy) else make()

def weighted():
    return weighted_for_accumulation(make().repeat(2), 2, 0)

with strategy.scope():
    keras.utils.set_random_seed(3)
    model = Transformer(config)
    section = TrainingSection(
        max_epochs=1, jit_compile=False, warmup_steps=2, clipnorm=0.5, accumulate_batches=2,
        optimizer="adamw", weight_decay=0.1, ema=0.9,
    )
    compile_model(model, section)
    model.optimizer.epsilon = 1e-3  # the papers' makes noise of gradients that are zero
history = model.fit(
    shared(weighted), epochs=2, steps_per_epoch=4, shuffle=False, verbose=0,
    validation_data=shared(make), validation_steps=4,
).history
figures = {name: [float(value) for value in values] for name, values in history.items()}
print(json.dumps([figures, [weight.ravel().tolist() for weight in model.get_weights()]]))
"""


TRAIN = """
import sys
import tensorflow as tf

experiment, run_dir, mode = sys.argv[1:]
(cpu,) = tf.config.list_physical_devices("CPU")
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from keras_transformer import Experiment, train

options = {"training.strategy": mode, "model.dropout": "0.0", "training.score_every_epochs": "2"}
train(Experiment.load(experiment, options), run_dir)
"""


@pytest.mark.release
def test_a_whole_run_is_the_same_on_two_replicas(tmp_path):
    experiment = write_experiment(tmp_path / "data")
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    for mode in ("none", "mirrored"):
        command = [sys.executable, script, experiment, tmp_path / mode, mode]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.run(command, env=environment, check=True, capture_output=True)
    records = [
        [json.loads(line) for line in (tmp_path / mode / "metrics.jsonl").read_text().splitlines()]
        for mode in ("none", "mirrored")
    ]
    for one, other in zip(*records, strict=True):
        assert one.keys() == other.keys()
        for name in one.keys() - {"seconds"}:
            assert one[name] == pytest.approx(other[name], rel=1e-5), name
    models = [load_run(tmp_path / mode).model for mode in ("none", "mirrored")]
    for one, other in zip(*(model.weights for model in models), strict=True):
        # The bias of keys moves all scores of a query alike: its gradient is 0 but for rounding,
        # of which Adam makes steps as large as any.
        if "key" not in one.path or "bias" not in one.path:
            np.testing.assert_allclose(one, other, atol=1e-4, err_msg=one.path)


def run(tmp_path, mode, workers=1):
    script = tmp_path / "fit.py"
    script.write_text(SCRIPT)
    ports = [free_port() for _ in range(workers)]
    children = []
    for index in range(workers):
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        environment.pop("TF_CONFIG", None)
        if workers > 1:
            cluster = {"worker": [f"localhost:{port}" for port in ports]}
            task = {"type": "worker", "index": index}
            environment["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
        children.append(
            subprocess.Popen(
                [sys.executable, script, mode],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    outputs = [child.communicate(timeout=240) for child in children]
    for child, (_, errors) in zip(children, outputs, strict=True):
        assert child.returncode == 0, errors[-3000:]
    return [json.loads(output.splitlines()[-1]) for output, _ in outputs]


def free_port():
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return server.getsockname()[1]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(tmp_path_factory.mktemp("alone"), "none")[0]


def assert_equal(one, other):
    (figures, weights), (expected_figures, expected_weights) = one, other
    assert figures.keys() == expected_figures.keys()
    for name, values in figures.items():
        np.testing.assert_allclose(values, expected_figures[name], rtol=1e-5, err_msg=name)
    for ours, expected in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.slow
def test_two_replicas_of_one_machine_equal_one_device(alone, tmp_path):
    (mirrored,) = run(tmp_path, "mirrored")
    assert_equal(mirrored, alone)


@pytest.mark.slow
def test_two_workers_equal_one_process(alone, tmp_path):
    for worker in run(tmp_path, "multi_worker", workers=2):
        assert_equal(worker, alone)


class Workers:
    """Stands for a strategy of two workers with two replicas each."""

    num_replicas_in_sync = 4

    def distribute_datasets_from_function(self, function):
        contexts = [tf.distribute.InputContext(2, worker, 4) for worker in range(2)]
        return [list(function(context)) for context in contexts]


def test_rows_are_shared_out_and_filled_with_pads():
    ids = np.arange(1, 11, dtype="int32").reshape(5, 2)
    weights = np.arange(1, 6).astype("float32")

    def make():
        return tf.data.Dataset.from_tensors(({"a": ids}, ids + 10, weights)).repeat(2)

    first, second = distributed(Workers(), make, pad_id=9)
    assert len(first) == len(second) == 4  # two batches, two replicas each
    shares = [*first[:2], *second[:2]]
    rows = np.concatenate([inputs["a"] for inputs, _, _ in shares])
    np.testing.assert_array_equal(rows, np.concatenate([ids, np.full((3, 2), 9)]))
    np.testing.assert_array_equal(
        np.concatenate([weight for _, _, weight in shares]), [*weights, 0, 0, 0]
    )
    assert {inputs["a"].shape for inputs, _, _ in shares} == {(2, 2)}


def test_each_share_has_its_rows_twice_as_r_drop_takes_them():
    ids = np.arange(1, 11, dtype="int32").reshape(5, 2)

    def make():
        return tf.data.Dataset.from_tensors(({"a": np.concatenate([ids, ids])},))

    shares = [share for worker in distributed(Workers(), make, 9, copies=2) for share in worker]
    rows = [*ids, *np.full((3, 2), 9)]
    for number, (inputs,) in enumerate(shares):
        np.testing.assert_array_equal(inputs["a"], 2 * rows[2 * number : 2 * number + 2])


def test_all_workers_stop_at_an_id_outside_the_vocabulary():
    ids = np.arange(1, 11, dtype="int32").reshape(5, 2)

    def make():
        return tf.data.Dataset.from_tensors(({"a": ids}, ids))

    assert len(distributed(Workers(), make, 9, Ids({"a": 11}))[0]) == 2
    for first_share_only in (ids.max(), ids[0, 0]):  # a row of the last worker or of the first
        known = Ids({"a": first_share_only})
        with pytest.raises(tf.errors.InvalidArgumentError, match="`a` must hold ids in .*id"):
            distributed(Workers(), make, 9, known)


def test_one_process_writes():
    assert is_chief(make_strategy("none"))

    class Resolver:
        task_type, task_id = "worker", 1

        def cluster_spec(self):
            return {"worker": ["a", "b"]}

    class Strategy:
        cluster_resolver = Resolver()

    assert not is_chief(Strategy())
    Strategy.cluster_resolver.task_id = 0
    assert is_chief(Strategy())


def test_a_worker_without_the_shared_folder_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_transformer.training.distribution._WAIT_SECONDS", 0)
    with pytest.raises(TimeoutError, match="on a shared file system. Received: no .*none"):
        wait_for(tmp_path / "none")
    wait_for(tmp_path)
