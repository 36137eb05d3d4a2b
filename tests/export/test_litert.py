"""The LiteRT folder: builtin ops, one name for all, Python's tokens, small, and never an abort."""

import hashlib
import json

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from toy_device_models import language_model_of
from toy_options import randomise_all

from keras_transformer import (
    BytesTokenizer,
    Greedy,
    Sampling,
    Transformer,
    TransformerConfig,
    Translator,
)
from keras_transformer.export import MODES, ParityError, export_litert
from keras_transformer.export.litert import flatbuffer, writer
from keras_transformer.export.litert.export_models import export_language_model
from keras_transformer.export.parity import compare
from keras_transformer_runner import Runner
from keras_transformer_runner.tokenizers import SentencePieceTokenizer


@pytest.fixture(scope="module")
def runner(device):
    return Runner(device.path)


@pytest.fixture(scope="module")
def int8_runner(int8_device):
    return Runner(int8_device.path)


def raw(folder):
    """The file's own function: a source as a list of ids -> the whole output row as a list."""
    interpreter = Interpreter(model_path=str(folder / "model.tflite"))
    translate = interpreter.get_signature_runner("translate")
    return lambda ids: translate(source_ids=np.array([ids], "int32"))["target_ids"][0].tolist()


def tokens(live, text):
    """Python's tokens of a text that is decoded alone."""
    return live.translate_ids([live.source_ids(text)])[0]


# --- The same tokens -----------------------------------------------------------------------


@pytest.mark.smoke
def test_float32_equals_python_on_every_length(runner, live, texts, other_texts, odd_texts):
    everything = [*texts, *other_texts, *odd_texts]
    for text in everything:
        assert runner.translate_ids(runner.encode(text)) == tokens(live, text)
    expected = live.translate(everything)
    assert runner.translate(everything) == expected
    assert runner.translate(everything[::-1]) == expected[::-1]


def test_after_eos_come_pads(device, live, texts, tokenizer):
    run = raw(device.path)
    for text in texts:
        expected = tokens(live, text)
        row = run(live.source_ids(text))
        pads = len(live.source_ids(text)) + 50 - len(expected) - 1
        assert row == [*expected, tokenizer.eos_id, *[tokenizer.pad_id] * pads]


def test_int8_keeps_its_promise_on_other_sentences_too(int8_runner, live, texts, other_texts):
    everything = [*texts, *other_texts]
    expected = [(text, tokens(live, text)) for text in everything]
    received = [(text, int8_runner.translate_ids(int8_runner.encode(text))) for text in everything]
    agreement = compare(everything, expected, received)["token_agreement"]
    assert agreement >= max(0.9, MODES["int8"].promised_agreement), agreement
    # It listens to the source: answers differ as Python's do.
    distinct = len({tuple(ids) for _, ids in expected})
    assert distinct > 25
    assert len({tuple(ids) for _, ids in received}) >= 0.9 * distinct


@pytest.fixture(scope="module")
def short(trained, tokenizer, texts, tmp_path_factory):
    """A folder whose search is cut after five tokens."""
    path = tmp_path_factory.mktemp("short") / "made"
    limits = dict(strategy=Greedy(extra_length=2, max_length=5), max_source_length=9)
    export_litert(trained, tokenizer, path, samples=texts[:4], **limits)
    return path


@pytest.mark.slow
def test_limits_are_exported(short, trained, tokenizer, live):
    python = Translator(trained, tokenizer, Greedy(extra_length=2, max_length=5))
    run, runner = raw(short), Runner(short)
    for text in ("a", "ab", "abc", "abcd", "abcdefg"):
        ids, free = live.source_ids(text), tokens(live, text)
        row = run(ids)
        assert len(row) == min(len(ids) + 2, 5)
        assert runner.translate_ids(ids) == tokens(python, text) == free[:5]
    assert tokenizer.eos_id not in row  # the last one reached its limit
    with pytest.raises(ValueError, match="at most `max_source_length` = 9 tokens. Received: 10"):
        runner.translate(["abcdefgh"])


# --- What is in the folder -----------------------------------------------------------------


def test_ops_are_builtin(device, int8_device):
    for export in (device, int8_device):
        model = flatbuffer.read((export.path / "model.tflite").read_bytes())
        assert all(code.customCode is None for code in model.operatorCodes)
        assert export.report.ops == flatbuffer.op_names(model)
        assert not [op for op in export.report.ops if op.startswith(("CUSTOM", "FLEX"))]
        assert {"EMBEDDING_LOOKUP", "FULLY_CONNECTED", "WHILE", "ARG_MAX"} <= set(export.report.ops)
        assert "TOPK_V2" not in export.report.ops  # greedy search wants no more than the best


def test_one_signature_of_named_tensors(device, int8_device):
    for export in (device, int8_device):
        interpreter = Interpreter(model_path=str(export.path / "model.tflite"))
        assert interpreter.get_signature_list() == {
            "translate": {"inputs": ["source_ids"], "outputs": ["target_ids"]}
        }
        (source,) = interpreter.get_signature_runner("translate").get_input_details().values()
        assert source["shape_signature"].tolist() == [1, -1] and source["dtype"] == np.int32


def test_metadata(device, int8_device, short, tokenizer, trained):
    metadata = json.loads((device.path / "metadata.json").read_text())
    ids = {name: getattr(trained.config, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    assert metadata.items() >= {**ids, "vocab_size": 31, "format": 1, "mode": "float32"}.items()
    assert metadata["signature"] == "translate" and metadata["max_source_length"] == 512
    search = metadata["search"]
    assert (search["name"], search["extra_length"], search["max_length"]) == ("Greedy", 50, None)
    assert (device.path / "tokenizer.model").read_bytes() == tokenizer.model_proto
    assert set(metadata["sha256"]) == {"model.tflite", "tokenizer.model"}
    for name, digest in metadata["sha256"].items():
        assert hashlib.sha256((device.path / name).read_bytes()).hexdigest() == digest
    assert json.loads((int8_device.path / "metadata.json").read_text())["mode"] == "int8"
    search = json.loads((short / "metadata.json").read_text())["search"]
    assert (search["extra_length"], search["max_length"]) == (2, 5)


def test_reports(device, int8_device, texts):
    for export, mode in ((device, "float32"), (int8_device, "int8")):
        report = export.report
        assert (report.artefact, report.mode, report.samples) == ("litert", mode, len(texts))
        assert report.token_agreement >= report.promised_agreement == MODES[mode].promised_agreement
        written = json.loads((export.path / "parity.json").read_text(encoding="utf-8"))
        assert written["token_agreement"] == report.token_agreement
        assert written["ops"] == list(report.ops)
        own = ("parity.json", "README.md")
        files = [path for path in export.path.iterdir() if path.name not in own]
        assert report.size_bytes == sum(path.stat().st_size for path in files)
        assert report.seconds_a_sample > 0
    assert device.report.token_agreement == 1
    assert int8_device.report.size_bytes < device.report.size_bytes


# --- Every kind of model, in another process -----------------------------------------------

VARIANTS = """
import json, os, sys
os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
import keras, numpy as np
from keras_transformer import Runner, SentencePieceTokenizer, SmoothedCrossEntropy
from keras_transformer import Transformer, Translator
from keras_transformer.export import export_litert, export_saved_model
from keras_transformer.models.transfer import in_float32

folder, samples = sys.argv[1], json.loads(sys.argv[2])
tokenizer = SentencePieceTokenizer.load(folder + "/tokenizer.model")
reloaded = keras.models.load_model(folder + "/trained.keras")
keras.utils.set_random_seed(3)


def like(dtype="float32", weights=True):
    model = Transformer(reloaded.config, dtype=dtype)
    if weights:
        model.set_weights(reloaded.get_weights())
    return model


def mixed_and_compiled():
    model = like("mixed_bfloat16")
    model.compile(keras.optimizers.SGD(0.0), SmoothedCrossEntropy(), jit_compile=True)
    ids = np.full((2, 3), 5)
    model.fit({"source_ids": ids, "target_ids": ids}, ids, verbose=0)
    return model


makers = {
    "reloaded": lambda: reloaded,
    "fresh": lambda: like(weights=False),
    "mixed_bfloat16 with jit": mixed_and_compiled,
}
for name, make in makers.items():
    model, path = make(), f"{folder}/{name}"
    served = export_saved_model(model, tokenizer, path + "-savedmodel", samples=samples)
    device = export_litert(model, tokenizer, path + "-litert", samples=samples)
    print(json.dumps({
        "name": name,
        "agreements": [served.token_agreement, device.token_agreement],
        "mode": served.mode,
        "python": Translator(in_float32(model), tokenizer).translate(samples),
        "runner": Runner(path + "-litert").translate(samples),
    }))
"""


@pytest.mark.slow
def test_every_kind_of_model_exports_quietly(trained, tokenizer, live, texts, run_python, tmp_path):
    trained.save(tmp_path / "trained.keras")
    tokenizer.save(tmp_path / "tokenizer.model")
    samples = texts[::4]
    done = run_python("-c", VARIANTS, tmp_path, json.dumps(samples), package=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr
    assert "flatbuffer_helpers" not in done.stderr  # the converter's chatter
    found = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert list(found) == ["reloaded", "fresh", "mixed_bfloat16 with jit"]
    for name, row in found.items():
        assert row["agreements"] == [1, 1]
        assert row["mode"] == ("bfloat16" if "bfloat16" in name else "float32")
        assert row["runner"] == row["python"]
        assert (row["python"] == live.translate(samples)) == (name != "fresh")


# --- Failures ------------------------------------------------------------------------------


@pytest.fixture
def stub(monkeypatch):
    """Puts bytes in the place of the converter's result."""

    def put(content):
        graph = flatbuffer.read(content) if b"TFL3" in content[:8] else None
        monkeypatch.setattr(writer, "convert", lambda *_: (content, graph))

    return put


@pytest.mark.quick(2)
@pytest.mark.parametrize("mode", list(MODES))
def test_a_wrong_file_is_not_written(mode, stub, trained, tokenizer, texts, short, tmp_path):
    floor = f"{MODES[mode].promised_agreement:.0%} of Python's tokens"
    stub((short / "model.tflite").read_bytes())
    with pytest.raises(ParityError, match=f"{mode} litert must give at least {floor}. Received: "):
        export_litert(trained, tokenizer, tmp_path / "a" / "b", samples=texts[9:11], mode=mode)
    assert list(tmp_path.iterdir()) == []


def test_a_quantizer_that_loses_weights_is_caught(
    trained, tokenizer, texts, tmp_path, monkeypatch, capfd
):
    write_small = flatbuffer.write_small

    def lossy(model):
        for buffer in model.buffers:
            if buffer.data is not None and len(buffer.data) == 31 * 29:
                buffer.data = np.zeros_like(buffer.data)
        return write_small(model)

    monkeypatch.setattr(flatbuffer, "write_small", lossy)
    with pytest.raises(ParityError, match="int8 litert must give at least .* Received: 0.00%"):
        export_litert(trained, tokenizer, tmp_path / "made", samples=texts, mode="int8")
    assert list(tmp_path.iterdir()) == []
    out, err = capfd.readouterr()  # the quantizer likes to talk
    assert out == "" and "uantiz" not in err


def test_a_file_that_cannot_run_is_not_written(stub, trained, tokenizer, texts, tmp_path):
    stub(b"no flatbuffer")
    with pytest.raises(ValueError, match="not a valid Flatbuffer"):
        export_litert(trained, tokenizer, tmp_path / "made", samples=texts)
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments(stub, device, trained, tokenizer, texts, tmp_path):
    stub((device.path / "model.tflite").read_bytes())

    def export(**kwargs):
        kwargs = {"samples": texts, **kwargs}
        return export_litert(trained, kwargs.pop("tokenizer", tokenizer), tmp_path / "m", **kwargs)

    with pytest.raises(
        ValueError, match=r"`mode` must be one of \('float32', .*'int4'\). .*'int2'"
    ):
        export(mode="int2")
    with pytest.raises(ValueError, match="`samples` must hold at least one sentence"):
        export(samples=[])
    with pytest.raises(TypeError, match="`samples` must be a list of strings. Received: 'abc'"):
        export(samples="abc")
    with pytest.raises(TypeError, match="`samples` must be a list of strings. Received: 'abc'"):
        export(mode="int4", calibration_samples="abc")
    with pytest.raises(ValueError, match="`references` must have one line for each .*1 for 24"):
        export(references=["a"])
    with pytest.raises(ValueError, match="`signatures` must be"):
        export(signatures=("encode",))
    with pytest.raises(ValueError, match="at most `max_source_length` = 4 tokens"):
        export(max_source_length=4)
    other = SentencePieceTokenizer.train(["abc"] * 5, 8, model_type="char")
    with pytest.raises(ValueError, match="same `vocab_size`. Received: tokenizer 8, model 31"):
        export(tokenizer=other)
    assert list(tmp_path.iterdir()) == []


def test_sampling_is_refused_before_any_work(trained, tokenizer, tmp_path):
    options = dict(samples=["a"], strategy=Sampling(seed=7))
    with pytest.raises(ValueError, match="holds a greedy or a beam search.* Received: .*Sampling"):
        export_litert(trained, tokenizer, tmp_path / "made", **options)
    model = language_model_of(tokenizer)
    with pytest.raises(ValueError, match="holds a greedy or a beam search.* Received: .*Sampling"):
        export_language_model(model, tokenizer, tmp_path / "made", **options)


def test_a_full_disk(full_disk, stub, device, trained, tokenizer, texts, tmp_path):
    stub((device.path / "model.tflite").read_bytes())
    with pytest.raises(OSError, match=f"File too large: '{tmp_path}/a/made'$"):
        export_litert(trained, tokenizer, tmp_path / "a" / "made", samples=texts[:2])
    assert list(tmp_path.iterdir()) == []


def test_overwrite(stub, device, trained, tokenizer, texts, tmp_path):
    stub((device.path / "model.tflite").read_bytes())
    path = tmp_path / "made"
    path.mkdir()
    (path / "old").write_text("0")
    with pytest.raises(FileExistsError, match="needs a new folder. Received: .*, which exists"):
        export_litert(trained, tokenizer, path, samples=texts)
    assert [entry.name for entry in path.iterdir()] == ["old"]
    with pytest.raises(FileExistsError, match="replaces only what .* which also holds old"):
        export_litert(trained, tokenizer, path, samples=texts, overwrite=True)
    assert [entry.name for entry in path.iterdir()] == ["old"]
    (path / "old").unlink()
    for _ in range(2):
        export_litert(trained, tokenizer, path, samples=texts, overwrite=True)
    names = {"README.md", "model.tflite", "tokenizer.model", "metadata.json", "parity.json"}
    assert {entry.name for entry in path.iterdir()} == names
    assert list(tmp_path.iterdir()) == [path]
    assert Runner(path).translate(texts[:2]) == Runner(device.path).translate(texts[:2])


@pytest.mark.slow
def test_a_table_is_stored_once_behind_an_rms_norm(tmp_path):
    """As T5 has it: a converter would multiply the norm's scale into a second table."""
    tokenizer = BytesTokenizer()
    config = TransformerConfig(
        **dict(vocab_size=tokenizer.vocab_size, model_dim=64, num_heads=2, intermediate_dim=16),
        **dict(encoder_layers=1, decoder_layers=1, residual="pre", normalization="rms"),
    )
    model = randomise_all(Transformer(config), 3)
    path, options = tmp_path / "device", dict(strategy=Greedy(extra_length=3))
    report = export_litert(model, tokenizer, path, samples=["abc", "b a"], **options)
    assert report.identical == 2
    assert report.weight_bytes < 4.5 * model.count_params()
