"""`keras.distribution` on JAX: runs on 4 and 8 devices are those of one, and move between them.

The devices are virtual ones of the CPU: XLA compiles the same programs, with the same collectives.
"""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from toy_experiment import write_experiment
from toy_model import toy_config, toy_transformer
from toy_options import OPTIONS

from keras_transformer.config import TransformerConfig
from keras_transformer.experiment import Experiment
from keras_transformer.experiment.corpora import open_corpora
from keras_transformer.experiment.sections import TrainingSection
from keras_transformer.models import LanguageModel, SequenceClassifier
from keras_transformer.training import check_layouts, layout_map, train, with_rows_filled
from keras_transformer.training.data import TrainingData, make_tokenizers
from keras_transformer.training.layouts import make_distribution

DEVICES = 8
# XLA compiles tiny programs in a tenth of the time without its optimizations.
FLAGS = (
    f"--xla_force_host_platform_device_count={DEVICES} --xla_cpu_multi_thread_eigen=false "
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)
RUNS = """
import json, sys
from pathlib import Path

import keras
import numpy as np

from keras_transformer import Experiment, load_run, train
from keras_transformer.training import run as run_module

experiment, root = Path(sys.argv[1]), Path(sys.argv[2])
devices = keras.distribution.list_devices("cpu")
assert len(devices) == 8, devices
run_module.draw_run = lambda *_: None
specs = {}

class Killed(Exception):
    pass

class Killing(run_module.TrainingCheckpoint):
    left = None

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        if Killing.left == batch:
            raise Killed

    def restore(self, model):
        progress = super().restore(model)
        variables = [*model.variables, *model.optimizer.variables]
        specs.clear()
        for variable in variables:
            sharding = variable.value.sharding
            if not sharding.is_fully_replicated:
                axes = [axis for axis in sharding.spec]
                specs[variable.path] = [axes, variable.value.addressable_shards[0].data.size]
        return progress

run_module.TrainingCheckpoint = Killing

def run(name, count, killed_at=None, **options):
    Killing.left = killed_at
    keras.distribution.list_devices = lambda *_: devices[:count]
    options = {f"training.{key}": value for key, value in options.items()}
    try:
        train(Experiment.load(experiment, options), root / name)
    except Killed:
        return None
    lines = (root / name / "metrics.jsonl").read_text().splitlines()
    weights = {w.path: w.numpy().tolist() for w in load_run(root / name).model.weights}
    return {"records": [json.loads(line) for line in lines], "weights": weights}

results = {"one": run("one", 1)}
data = dict(distribution='"data_parallel"')
run("shared", 4, killed_at=3, **data)
results["data on 4, then 8"] = run("shared", 8, **data)
split = dict(distribution='"model_parallel"', model_devices="2")
run("split", 4, killed_at=3, **split)
run("split", 8, killed_at=3, **split)  # in the second epoch
results["specs"] = dict(specs)
results["split on 4, then 8, then 1"] = run("split", 1, **split)
print(json.dumps(results))
"""
OPTIONS_OF_RUNS = {
    # 14 rows a batch of training and 9 of validation, which neither 4 nor 8 divide.
    "training.batch_tokens": "240",
    "training.max_epochs": "2",
    "training.jit_compile": "true",
    "training.accumulate_batches": "2",
    "tokenizer.vocab_size": "48",
}


def children_environment():
    kept = {**os.environ, "KERAS_BACKEND": "jax", "XLA_FLAGS": FLAGS, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return {**kept, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    path = write_experiment(folder / "data")
    path.write_text(Experiment.load(path, OPTIONS_OF_RUNS).to_toml())
    script = folder / "runs.py"
    script.write_text(RUNS)
    command = [sys.executable, script, path, folder]
    done = subprocess.run(command, env=children_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["data on 4, then 8", "split on 4, then 8, then 1"])
def test_a_run_that_was_killed_goes_on_with_other_devices_as_on_one(results, name):
    """With dropout, rows that do not divide, two batches an update, and the kill inside one."""
    one, other = results["one"], results[name]
    assert len(one["records"]) == len(other["records"]) == 2
    for expected, found in zip(one["records"], other["records"], strict=True):
        assert expected.keys() == found.keys()
        for figure in expected.keys() - {"seconds"}:
            assert expected[figure] == pytest.approx(found[figure], rel=2e-5), figure
    for path, expected in one["weights"].items():
        # The bias of keys moves all scores of a query alike: its gradient is 0 but for rounding,
        # of which Adam makes steps as large as any.
        if "key" not in path or "bias" not in path:
            np.testing.assert_allclose(other["weights"][path], expected, atol=1e-4, err_msg=path)


@pytest.mark.slow
def test_each_device_holds_its_part_of_weights_and_slots(results):
    split = {path: axes for path, (axes, _) in results["specs"].items()}
    assert split["embedding/embeddings"] == ["model", None]
    assert split["encoder_0/self_attention/query_key_value/kernel"] == [None, "model"]
    assert split["decoder_0/cross_attention/output/kernel"] == ["model", None]
    assert split["decoder_0/feed_forward/intermediate/bias"] == ["model"]
    # The vocabulary's 48 rows on two devices, of the weights, of Adam's two slots, and of what is
    # accumulated.
    parts = [part for path, (_, part) in results["specs"].items() if "embedding" in path]
    assert parts == [48 * 10 // 2] * 4
    assert not any("norm" in path for path in split)


MODELS = {
    **{name: OPTIONS[name] for name in ("the paper's", "like T5", "like Marian", "additive")},
    **{name: OPTIONS[name] for name in ("nothing shared", "swiglu", "ssru", "use_feed_forward")},
    **{name: OPTIONS[name] for name in ("use_bias", "learned")},
}


def mesh_of(rows, shared, names=("batch", "model")):
    return keras.distribution.DeviceMesh((rows, shared), names, np.arange(rows * shared))


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_all_kernels_and_tables_of_all_models_are_split(options):
    model = toy_transformer(**options)
    layouts = layout_map(model.config, mesh_of(1, 1))
    check_layouts(model, layouts)
    whole = [
        weight.path
        for weight in model.weights
        if layouts[weight.path] is None and weight.path.endswith(("kernel", "embeddings"))
    ]
    assert [path for path in whole if "recurrence" not in path and "position" not in path] == []


@pytest.mark.parametrize("kind", [LanguageModel, SequenceClassifier])
def test_other_models_take_the_same_layouts(kind):
    arguments = (3,) if kind is SequenceClassifier else ()
    model = kind(toy_config(encoder_layers=1, decoder_layers=1), *arguments)
    check_layouts(model, layout_map(model.config, mesh_of(1, 1)))


def test_heads_are_split_on_their_borders_in_columns_and_rows():
    sizes = dict(vocab_size=32000, target_vocab_size=32004, embedding_sharing="none")
    config = TransformerConfig.preset("base", **sizes)
    layouts = layout_map(config, mesh_of(2, 4))
    assert layouts["encoder_0/self_attention/output/kernel"].axes == ("model", None)
    assert layouts["decoder_3/cross_attention/query/kernel"].axes == (None, "model")
    assert layouts["encoder_0/self_attention/query_key_value/by_head"].axes == (None, "model")
    assert layouts["source_embedding/embeddings"].axes == ("model", None)
    assert layouts["source_positions/embeddings"] is None
    # 32,004 rows do not divide by 8.
    assert layout_map(config, mesh_of(1, 8))["source_embedding/embeddings"] is None
    other = layout_map(config, mesh_of(2, 4, ("data", "tensor")), axis="tensor")
    assert other["encoder_0/feed_forward/gate/kernel"].axes == (None, "tensor")


@pytest.mark.parametrize(
    ("shared", "options", "message"),
    [
        (5, {}, "`num_heads` must be divisible by the devices .* num_heads=8, devices=5"),
        (2, {"intermediate_dim": 7}, "`intermediate_dim` must be divisible .* devices=2"),
        (2, {"vocab_size": 31}, "`vocab_size` must be divisible by .* vocab_size=31, devices=2"),
    ],
)
def test_sizes_must_divide(shared, options, message):
    config = TransformerConfig.preset("base", **{"vocab_size": 32000, **options})
    with pytest.raises(ValueError, match=message):
        layout_map(config, mesh_of(1, shared), split_vocabulary=True)


def test_an_axis_must_be_of_the_mesh():
    with pytest.raises(ValueError, match="`axis` must be one of the mesh. Received: axis='tensor'"):
        layout_map(toy_config(), mesh_of(1, 2), axis="tensor")


def test_a_key_that_matches_nothing_or_does_not_fit_is_an_error():
    model = toy_transformer()
    layouts = layout_map(model.config, mesh_of(1, 1))
    layouts["feed_forward/output/bias"] = ("model",)  # a part of a path
    with pytest.raises(ValueError, match="must match the whole path .* 'feed_forward/output/bias'"):
        check_layouts(model, layouts)
    for rows, axes in ((1, (None,)), (2, ("batch", None))):
        layouts = keras.distribution.LayoutMap(mesh_of(rows, 1))
        layouts[".*embedding/embeddings"] = axes
        with pytest.raises(ValueError, match="whose sizes divide by the devices of each. Received"):
            check_layouts(model, layouts)


def test_rows_are_filled_with_what_counts_nothing():
    ids = np.arange(1, 11, dtype="int32").reshape(5, 2)
    weights = np.arange(1, 6).astype("float32")
    batches = tf.data.Dataset.from_tensors(({"a": ids}, ids + 10, weights))
    ((inputs, labels, filled),) = with_rows_filled(batches, 4, pad_id=9)
    np.testing.assert_array_equal(inputs["a"], [*ids, [9, 9], [9, 9], [9, 9]])
    np.testing.assert_array_equal(labels, [*(ids + 10), [9, 9], [9, 9], [9, 9]])
    np.testing.assert_array_equal(filled, [1, 2, 3, 4, 5, 0, 0, 0])
    twice = tf.data.Dataset.from_tensors((np.concatenate([ids, ids]),))  # as R-Drop takes them
    ((filled,),) = with_rows_filled(twice, 4, pad_id=9, copies=2)
    np.testing.assert_array_equal(filled, 2 * [*ids, [9, 9], [9, 9], [9, 9]])
    assert with_rows_filled(batches, 1, pad_id=9) is batches
    with pytest.raises(ValueError, match="`multiple` must be a positive integer"):
        with_rows_filled(batches, 0, pad_id=9)


def test_r_drop_compares_a_row_with_itself_where_rows_do_not_divide(tmp_path):
    described = Experiment.load(write_experiment(tmp_path), {"training.r_drop": "1.0"})
    corpora = open_corpora(described.data)
    data = TrainingData.make(
        described, corpora, make_tokenizers(described.tokenizer, corpora[0]), None, 7
    )
    for batches in (data.batches(0, 0).take(3), data.validation_batches()):
        for inputs, labels in batches:
            assert labels.shape[0] % 14 == 0
            for ids in (*inputs.values(), labels):
                np.testing.assert_array_equal(*np.split(ids, 2))


def section(**options):
    return TrainingSection(max_epochs=1, **options)


def test_a_run_on_tensorflow_says_where_keras_distributes(tmp_path):
    described = Experiment.load(
        write_experiment(tmp_path), {"training.distribution": '"data_parallel"'}
    )
    with pytest.raises(RuntimeError, match="needs the JAX backend .* on TensorFlow use `training."):
        train(described, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert make_distribution(section(), toy_config()) is None


def test_devices_must_divide_and_be_of_one_machine(monkeypatch):
    class Many:
        num_processes = 2

        def __init__(self, **options):
            self.options = options

    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    monkeypatch.setattr(keras.distribution, "DataParallel", Many)
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: ["cpu:0", "cpu:1", "cpu:2"])
    with pytest.raises(RuntimeError, match="is for the devices of one machine. Received: 2 proc"):
        make_distribution(section(distribution="data_parallel"), toy_config())
    with pytest.raises(ValueError, match="`training.model_devices` must divide .*=2, devices=3"):
        make_distribution(
            section(distribution="model_parallel", model_devices=2), toy_config(num_heads=2)
        )
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: ["cpu:0"])
    assert make_distribution(section(distribution="data_parallel"), toy_config()) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distribution": "both"}, "`training.distribution` must be one of .*'both'"),
        (
            {"distribution": "data_parallel", "strategy": "mirrored"},
            "one of them must be 'none'. Received: strategy='mirrored', distribution='data_par",
        ),
        ({"model_devices": 2}, "`training.model_devices` goes with the distribution 'model_par"),
        (
            {"distribution": "model_parallel", "model_devices": 0},
            "`training.model_devices` must be at least 1|`model_devices` must be at least 1",
        ),
    ],
)
def test_the_section_checks_its_keys(options, message):
    with pytest.raises(ValueError, match=message):
        section(**options)
