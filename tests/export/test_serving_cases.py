"""Faults reported to other projects, tried on what a server loads: a session and its signatures.

tests/FIELD_CASES.md names the projects.
"""

import contextlib
import json
import unicodedata
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer import (
    Greedy,
    SmoothedCrossEntropy,
    Transformer,
    TransformerConfig,
    Translator,
)
from keras_transformer.evaluation import saved_model_translate
from keras_transformer.export import export_saved_model
from keras_transformer.export.serving.graphs import ServingGraphs, ServingModule
from keras_transformer_runner.tokenizers import (
    BytesTokenizer,
    CharacterTokenizer,
    SentencePieceTokenizer,
)


@contextlib.contextmanager
def loaded(path):
    """A function of a signature's name and inputs, by TensorFlow's C++ loader."""
    import tensorflow_text  # noqa: F401 (the ops)

    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():  # and no longer: Python's own translator is eager
        signatures = tf.compat.v1.saved_model.load(session, ["serve"], str(path)).signature_def

    def run(name, **inputs):
        signature = signatures[name]
        feeds = {signature.inputs[key].name: values for key, values in inputs.items()}
        return session.run({key: info.name for key, info in signature.outputs.items()}, feeds)

    yield run
    session.close()


@pytest.fixture(scope="module")
def served(saved_model):
    with loaded(saved_model.path) as run:
        yield run


@pytest.fixture(scope="module")
def in_python(saved_model):
    """The signatures by `tf.saved_model.load`."""
    loaded = tf.saved_model.load(str(saved_model.path))
    yield loaded.signatures  # which live as long as the object


@pytest.fixture(scope="module")
def short(trained, tokenizer, tmp_path_factory):
    """A model that trains under XLA, exported with limits: its folder and Python's translator."""
    model = Transformer(trained.config)
    model.set_weights(trained.get_weights())
    model.compile("sgd", SmoothedCrossEntropy(0.0, pad_id=tokenizer.pad_id), jit_compile=True)
    limits = dict(strategy=Greedy(max_length=5), max_source_length=7)
    path = tmp_path_factory.mktemp("short") / "m"
    export_saved_model(model, tokenizer, path, samples=["ab"], warmup_batch_sizes=(), **limits)
    return SimpleNamespace(path=path, live=Translator(model, tokenizer, **limits))


def config_of(tokenizer):
    """The smallest model for a tokenizer."""
    return TransformerConfig(
        **dict(vocab_size=tokenizer.vocab_size, model_dim=14, num_heads=2, intermediate_dim=11),
        **dict(encoder_layers=1, decoder_layers=1, dropout=0.0, pad_id=tokenizer.pad_id),
        **dict(unk_id=tokenizer.unk_id, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id),
    )


def decoded(values):
    return [value.decode() for value in values]


# --- Strings and XLA -----------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_that_xla_compiles_is_served_without_it(short, texts, odd_texts):
    assert short.live.model.jit_compile is True
    some = [text for text in [*texts, *odd_texts] if len(short.live.tokenizer.encode(text)) < 7]
    with loaded(short.path) as run:
        found = run("serving_default", text=some)["translation"]
    assert len(some) > 10 and decoded(found) == short.live.translate(some)
    proto = saved_model_pb2.SavedModel.FromString((short.path / "saved_model.pb").read_bytes())
    (graph,) = [meta_graph.graph_def for meta_graph in proto.meta_graphs]
    functions = graph.library.function
    nodes = [*graph.node, *(node for function in functions for node in function.node_def)]
    assert len(functions) > 20 and "SentencepieceTokenizeOp" in {node.op for node in nodes}
    compiled = [one for one in (*functions, *nodes) if one.attr["_XlaMustCompile"].b]
    assert compiled == [] == [node.name for node in nodes if "Xla" in node.op]


@pytest.mark.release
def test_a_server_that_compiles_what_it_can_gives_the_same_text(
    saved_model, live, texts, run_python, monkeypatch
):
    """Text cannot be compiled: XLA takes the numbers behind it and leaves the tokenizer alone."""
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    script = (
        "import json, sys, tensorflow as tf, tensorflow_text\n"
        "with tf.compat.v1.Session(graph=tf.Graph()) as session:\n"
        "    graph = tf.compat.v1.saved_model.load(session, ['serve'], sys.argv[1])\n"
        "    signature = graph.signature_def['serving_default']\n"
        "    found = session.run(signature.outputs['translation'].name,\n"
        "        {signature.inputs['text'].name: json.loads(sys.argv[2])})\n"
        "print(json.dumps([text.decode() for text in found]))\n"
    )
    some = [*texts[:12], "", "</s> ab"]
    done = run_python("-c", script, saved_model.path, json.dumps(some))
    assert "Compiled cluster using XLA" in done.stderr
    assert json.loads(done.stdout) == live.translate(some)


# --- Where an answer ends ------------------------------------------------------------------


def test_after_eos_come_pads_and_no_answer_goes_on(served, live, texts, other_texts):
    growing = ["abcdefghabcdefgh"[:length] for length in range(1, 17)]
    everything = [*texts, *other_texts, *growing]  # the toy learns otherwise on each processor
    eos, pad = live.tokenizer.eos_id, live.tokenizer.pad_id
    rows = live.pad([live.source_ids(text) for text in everything])
    found = served("translate_ids", source_ids=rows)
    assert found["status"].tolist() == [b"ok"] * len(everything)
    details = live.translate_with_details(everything)
    lengths = set()
    for row, (expected,) in zip(found["target_ids"].tolist(), details, strict=True):
        assert row == [*expected.ids, *[pad] * (len(row) - len(expected.ids))]
        assert (eos in row) is not expected.truncated
        lengths.add(len(expected.ids))
    assert len(lengths) > 10  # none of them is the limit's
    told = served("translate", text=everything, n_best=np.zeros(len(everything), "int32"))
    assert told["truncated"][:, 0].tolist() == [one.truncated for (one,) in details]


def test_a_long_text_is_answered_whole_or_named(served, live, short):
    """No limit of 100 or 250 tokens that nobody has set, on either side."""
    long = " ".join("abcdefgh"[index * 5 % 8] for index in range(150))
    assert len(live.source_ids(long)) > 300
    ((expected,),) = live.translate_with_details([long])
    found = served("translate", text=[long], n_best=np.zeros(1, "int32"))
    assert (found["status"][0], found["truncated"][0, 0]) == (b"ok", expected.truncated)
    assert found["translations"][0, 0].decode() == expected.text
    ids = served("score", text=[long], target=[long])["target_ids"][0]
    assert ids.tolist() == live.source_ids(long)
    # Beyond the limits, which the export sets, and below them.
    some = ["ab", "a b c d", "abcde"]
    with loaded(short.path) as run:
        found = run("translate", text=some, n_best=np.ones(3, "int32"))
    assert found["status"].tolist() == [b"ok", b"too_long", b"ok"]
    with pytest.raises(ValueError, match="Received: too_long for text 3, 'a b c d'"):
        saved_model_translate(short.path)([some[0], "", some[1]])
    ((one,), (other,)) = short.live.translate_with_details([some[0], some[2]])
    assert decoded(found["translations"][:, 0]) == [one.text, "", other.text]
    assert found["truncated"][:, 0].tolist() == [one.truncated, False, True]


# --- Calls whose inputs do not agree ---------------------------------------------------------


@pytest.mark.parametrize("name, other", [("translate", "n_best"), ("score", "target")])
def test_inputs_of_unequal_counts_are_refused_by_every_loader(served, in_python, name, other):
    rule = f"`{other}` must have a value for each of `text`. Received: values and texts"
    text = tf.constant(["ab", "c"])
    for count in (1, 2, 3):
        values = tf.constant([1] * count) if other == "n_best" else tf.constant(["A"] * count)
        inputs = {"text": text, other: values}
        calls = (
            lambda inputs=inputs: served(name, **{key: x.numpy() for key, x in inputs.items()}),
            lambda inputs=inputs: in_python[name](**inputs),
        )
        for call in calls:
            if count == 2:
                assert list(np.asarray(call()["status"])) == [b"ok"] * 2
            else:
                with pytest.raises(tf.errors.InvalidArgumentError, match=rule):
                    call()


# --- What text means -----------------------------------------------------------------------

FAMILY, SHRI = "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u0dc1\u0dca\u200d\u0dbb\u0dd3"
MARKS = ["caf\u00e9", "cafe\u0301", "\u2026", "\ufe30", "\ufb01x", "\uff12 2", "\u0149 x"]
MARKS += [FAMILY, SHRI, "\u05e9\u05dc\u05d5\u05dd 123", "a\u00a0b", "a\u3000b", "x\u200db"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "normalization", ["nmt_nfkc", pytest.param("identity", marks=pytest.mark.slow)]
)
def test_a_server_normalizes_as_training_did(normalization, tmp_path):
    keras.utils.set_random_seed(3)
    tokenizer = SentencePieceTokenizer.train(
        [*MARKS, "the cafe ...", "n x fi"] * 3, 60, model_type="char", normalization=normalization
    )
    model = Transformer(config_of(tokenizer))
    options = dict(samples=MARKS[:2], strategy=Greedy(extra_length=3), warmup_batch_sizes=())
    export_saved_model(model, tokenizer, tmp_path / "m", **options)
    forms = [unicodedata.normalize(form, text) for text in MARKS for form in ("NFC", "NFD")]
    with loaded(tmp_path / "m") as run:
        found = run("score", text=forms, target=forms)["target_ids"].tolist()
        states = run("embed", text=forms)["embedding"]
    found = [[id for id in row if id != tokenizer.pad_id][:-1] for row in found]
    # A reader of text in training has these very ids.
    assert found == [tokenizer.encode(text) for text in forms]
    assert tokenizer.unk_id not in sum(found[: 2 * len(MARKS)], [])
    composed, decomposed = forms.index(MARKS[0]), forms.index(MARKS[1])
    are_one = found[composed] == found[decomposed]
    assert are_one is (normalization == "nmt_nfkc")
    assert np.allclose(states[composed], states[decomposed], atol=1e-6) is are_one
    for text in (FAMILY, SHRI, "x\u200db"):  # joiners survive both rules
        row = found[forms.index(text)]
        assert tokenizer.decode(row) == text
    # What "identity" promises: not even a compatibility character changes.
    kept = [tokenizer.decode(found[forms.index(text)]) == text for text in ("\ufe30", "\u0149 x")]
    assert kept == [normalization == "identity"] * 2


SCRIPTS = [
    "\u4e2d\u6587\u6587\u672c",
    "foo (bar).",
    "\u042f\u044f",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
]
SCRIPTS += [
    "\u0631\u0642\u0645 123",
    "\u05e9\u05dc\u05d5\u05dd 12",
    FAMILY,
    "don't stop",
    "a\u0301 \u00e1",
]


@pytest.mark.parametrize(
    "kind",
    [
        "sentencepiece",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("bytes", "characters")),
    ],
)
def test_text_comes_back_as_it_went(kind, tmp_path, monkeypatch):
    """Both directions of a tokenizer, with a model between that repeats: nothing is lost."""
    options = dict(model_type="char", normalization="identity")
    tokenizer = {
        "bytes": BytesTokenizer,
        "characters": lambda: CharacterTokenizer.train(SCRIPTS),
        "sentencepiece": lambda: SentencePieceTokenizer.train(SCRIPTS * 3, 60, **options),
    }[kind]()
    repeat = property(lambda self: lambda source_ids: source_ids)
    monkeypatch.setattr(ServingGraphs, "_best_search", repeat)
    module = ServingModule(Translator(Transformer(config_of(tokenizer)), tokenizer))
    text = tf.TensorSpec((None,), tf.string, name="text")
    default = tf.function(module.graphs._serving_default, input_signature=[text])
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"serving_default": default})
    with loaded(tmp_path / "m") as run:
        found = run("serving_default", text=[text.encode() for text in [*SCRIPTS, ""]])
    assert decoded(found["translation"]) == [*SCRIPTS, ""]
