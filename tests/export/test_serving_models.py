"""SavedModels of language models and classifiers: Python's answers, whatever is in the batch."""

import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from serving_process import load_client
from toy_device_models import CLASSES, TEXTS, config_of, language_model_of
from toy_model import randomise

from keras_transformer import (
    BeamSearch,
    Greedy,
    LanguageModel,
    SequenceClassifier,
    TokenClassifier,
    Transformer,
)
from keras_transformer.artifacts import check_whole, read_description
from keras_transformer.decoding import generate
from keras_transformer.decoding.compiled import compiled
from keras_transformer.export import ParityError, export_saved_model
from keras_transformer.export.backend import as_graph
from keras_transformer.export.serving import graphs
from keras_transformer.export.serving.classifiers import ClassifierGraphs
from keras_transformer.export.serving.language_models import LanguageModelGraphs
from keras_transformer.export.serving.text_models import TextClassifier, TextGenerator

LABELS = ["v", "é\n", "x", "y", ""]
LONGEST = 12  # tokens
STRATEGY = BeamSearch(beam_size=3, n_best=2, extra_length=5)
TOO_LONG = "a" * (LONGEST + 1)


@pytest.fixture(scope="module")
def models(tokenizer):
    return {
        "texts": randomise(SequenceClassifier(config_of(tokenizer), CLASSES), 5),
        "tokens": randomise(TokenClassifier(config_of(tokenizer), CLASSES), 6),
        "language": language_model_of(tokenizer),
    }


OPTIONS = {
    "texts": dict(labels=LABELS),
    "tokens": dict(adds_eos=False, samples=[text for text in TEXTS if text]),
    "language": dict(strategy=STRATEGY),
}


@pytest.fixture(scope="module")
def served(models, tokenizer, tmp_path_factory):
    """The path, the report and the loaded signatures of each model."""
    root, found = tmp_path_factory.mktemp("served"), {}
    for name, model in models.items():
        options = dict(samples=TEXTS, max_source_length=LONGEST, warmup_batch_sizes=(1, 2))
        options |= OPTIONS[name]
        report = export_saved_model(model, tokenizer, root / name, **options)
        found[name] = root / name, report, tf.saved_model.load(str(root / name)).signatures
    return found


def called(run, **inputs):
    kinds = {"text": tf.string}
    values = {name: tf.constant(each, kinds.get(name, tf.int32)) for name, each in inputs.items()}
    return {name: each.numpy() for name, each in run(**values).items()}


def rows_of(tokenizer, texts, end=()):
    rows = [[*tokenizer.encode(text), *end] for text in texts]
    width = max(map(len, rows)) + 1
    return [row + [tokenizer.pad_id] * (width - len(row)) for row in rows]


def bytes_of(texts):
    return [text.encode() for text in texts]


# --- Classifiers ---------------------------------------------------------------------------


def probabilities(model, ids):
    return keras.ops.convert_to_numpy(keras.ops.softmax(model(np.array([ids]))))[0]


@pytest.mark.slow
def test_classes_of_texts(served, models, tokenizer):
    _, report, signatures = served["texts"]
    assert report.identical == report.samples == len(TEXTS)
    texts, eos = [*TEXTS[:3], TOO_LONG, *TEXTS[3:]], [tokenizer.eos_id]
    found = called(signatures["serving_default"], text=texts)
    assert [*found["status"]] == [b"ok"] * 3 + [b"too_long"] + [b"ok"] * (len(TEXTS) - 3)
    for index, text in enumerate(texts):
        alone = called(signatures["serving_default"], text=[text])
        assert alone["labels"][0] == found["labels"][index]
        if text == TOO_LONG:
            assert (found["labels"][3], found["class_ids"][3]) == (b"", -1)
            assert not found["probabilities"][3].any()
            continue
        expected = probabilities(models["texts"], [*tokenizer.encode(text), *eos])
        np.testing.assert_allclose(found["probabilities"][index], expected, rtol=0, atol=1e-5)
        assert found["class_ids"][index] == expected.argmax()
        assert found["labels"][index].decode() == LABELS[expected.argmax()]
    by_ids = called(signatures["classify_ids"], source_ids=rows_of(tokenizer, TEXTS, eos))
    np.testing.assert_allclose(by_ids["probabilities"][3:], found["probabilities"][4:], atol=1e-6)
    assert len(set(found["class_ids"].tolist())) > 2
    assert called(signatures["serving_default"], text=[])["labels"].shape == (0,)


def test_a_text_as_long_as_the_positions(tokenizer):
    """No row gets a pad at a position beyond the table, which makes it and its mates NaN."""
    config = config_of(tokenizer, positions="learned", max_positions=6)
    model = randomise(SequenceClassifier(config, CLASSES), 5)
    owner = TextClassifier(model, tokenizer, None, adds_eos=False, max_source_length=99)
    run = as_graph(ClassifierGraphs(owner, False)._serving_default, [graphs.TEXT])
    texts = ["abcde", "b"]
    assert len(tokenizer.encode(texts[0])) == 6
    found = called(run, text=[*texts, ""])
    assert [*found["status"]] == [b"ok", b"ok", b"no_tokens"]
    np.testing.assert_allclose(found["probabilities"][:2], owner.probabilities(texts), atol=1e-5)


@pytest.mark.slow
def test_classes_of_tokens(served, models, tokenizer):
    _, _, signatures = served["tokens"]
    found = called(signatures["serving_default"], text=["abc", "", "b a d", TOO_LONG])
    assert [*found["status"]] == [b"ok", b"no_tokens", b"ok", b"too_long"]
    for row, text in ((0, "abc"), (2, "b a d")):
        ids = tokenizer.encode(text)
        expected, count = probabilities(models["tokens"], ids), len(ids)
        assert found["source_ids"][row][:count].tolist() == ids
        np.testing.assert_allclose(found["probabilities"][row][:count], expected, atol=1e-5)
        assert found["class_ids"][row][:count].tolist() == expected.argmax(-1).tolist()
        assert [*found["labels"][row][:count]] == bytes_of(map(str, expected.argmax(-1)))
        assert set(found["class_ids"][row][count:]) <= {-1}
        assert set(found["labels"][row][count:]) <= {b""}
        assert not found["probabilities"][row][count:].any()
    assert set(found["class_ids"][1]) == set(found["class_ids"][3]) == {-1}
    wrong = called(signatures["classify_ids"], source_ids=[[5, 6, 99], [5, 6, 7], [0, 0, 0]])
    assert [*wrong["status"]] == [b"id_outside_vocabulary", b"ok", b"no_tokens"]
    expected = probabilities(models["tokens"], [5, 6, 7])
    np.testing.assert_allclose(wrong["probabilities"][1][:3], expected, atol=1e-5)


# --- Language models -----------------------------------------------------------------------


def hypotheses(model, tokenizer, prompts):
    """The texts and scores that Python finds for each prompt."""
    rows = np.array(rows_of(tokenizer, prompts), "int32")
    run = compiled(functools.partial(generate, model, strategy=STRATEGY), model)
    found = run(rows).hypotheses
    texts = [[*map(tokenizer.decode, row)] for row in keras.ops.convert_to_numpy(found.ids)]
    return texts, keras.ops.convert_to_numpy(found.scores)


def test_continuations(served, models, tokenizer):
    _, report, signatures = served["language"]
    assert report.identical == report.samples == len(TEXTS)
    assert report.token_agreement == report.promised_agreement == 1
    prompts = [TEXTS[0], TOO_LONG, *TEXTS[1:]]
    expected, scores = hypotheses(models["language"], tokenizer, TEXTS)
    expected.insert(1, ["", ""])
    best = [texts[0].encode() for texts in expected]
    assert [*called(signatures["serving_default"], text=prompts)["generated"]] == best
    found = called(signatures["generate"], text=prompts, n_best=[0] * len(prompts))
    assert [*found["status"]] == [b"ok", b"too_long", *[b"ok"] * (len(TEXTS) - 1)]
    assert [*found["counts"]] == [2, 0, *[2] * (len(TEXTS) - 1)]
    assert [[*row[:2]] for row in found["generated"]] == [bytes_of(texts[:2]) for texts in expected]
    np.testing.assert_allclose(np.delete(found["scores"], 1, 0)[:, :2], scores[:, :2], rtol=1e-5)
    rows = rows_of(tokenizer, TEXTS)
    by_ids = called(signatures["generate_ids"], prompt_ids=rows)
    assert bytes_of(map(tokenizer.decode, by_ids["target_ids"])) == [best[0], *best[2:]]
    for prompt, text in zip(prompts[:3], best[:3], strict=True):  # alone
        assert [*called(signatures["serving_default"], text=[prompt])["generated"]] == [text]


def test_what_is_wrong_with_a_row(served, tokenizer):
    signatures = served["language"][2]
    found = called(signatures["generate"], text=["abc"] * 4, n_best=[1, 4, -1, 3])
    assert [*found["status"]] == [b"ok", b"bad_n_best", b"bad_n_best", b"ok"]
    assert [*found["counts"]] == [1, 0, 0, 3] and [*found["generated"][1]] == [b""] * 3
    rows = [[5, -1], [5, 99], [5, 6], [0, 0]]
    found = called(signatures["generate_ids"], prompt_ids=rows)
    assert [*found["status"]] == [b"id_outside_vocabulary"] * 2 + [b"ok"] * 2
    pads = {tokenizer.pad_id}
    assert [set(row) == pads for row in found["target_ids"]] == [True, True, False, False]
    assert called(signatures["serving_default"], text=[])["generated"].shape == (0,)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`n_best` must have a value for each"):
        called(signatures["generate"], text=["a", "b"], n_best=[1])


@pytest.mark.slow
def test_pieces_change_no_answer(served, models, tokenizer, monkeypatch):
    for name in ("ENCODED_TOKENS", "SEARCHED_TOKENS"):
        monkeypatch.setattr(graphs, name, 20)
    owner = TextGenerator(models["language"], tokenizer, STRATEGY, LONGEST)
    module = graphs.ServingModule(owner, ids_only=True, kind=LanguageModelGraphs)
    rows = rows_of(tokenizer, TEXTS)
    pieces = called(module.signatures["generate_ids"], prompt_ids=rows)
    whole = called(served["language"][2]["generate_ids"], prompt_ids=rows)
    np.testing.assert_array_equal(pieces["target_ids"], whole["target_ids"])


# --- Both ----------------------------------------------------------------------------------

NAMES = {
    "texts": {"serving_default", "classify_ids"},
    "tokens": {"serving_default", "classify_ids"},
    "language": {"serving_default", "generate", "generate_ids"},
}


@pytest.mark.parametrize("kind", NAMES)
def test_what_it_says_of_itself(kind, served):
    path, report, signatures = served[kind]
    check_whole(path)
    facts = read_description(path)
    assert set(signatures) == set(facts["signatures"]) == NAMES[kind]
    assert all(len(each["about"]) > 40 for each in facts["signatures"].values())
    bounds = {"source_tokens": LONGEST, "text_bytes": 64 * LONGEST}
    more = {"target_tokens": LONGEST + 5, "n_best": 3} if kind == "language" else {}
    assert facts["bounds"] == {**bounds, **more}
    if kind == "texts":
        assert (facts["labels"], facts["adds_eos"]) == (LABELS, True)
    written = json.loads((path / "assets.extra" / "parity.json").read_text("utf-8"))
    assert written["identical"] == report.samples and facts["requires"]["xla"] is False
    records = tf.data.TFRecordDataset(str(path / "assets.extra" / "tf_serving_warmup_requests"))
    assert sum(1 for _ in records) == 2 * len(NAMES[kind])


def test_ids_only(models, tokenizer, tmp_path):
    options = dict(samples=["abc", "h"], ids_only=True, warmup_batch_sizes=())
    export_saved_model(models["texts"], tokenizer, tmp_path / "texts", **options)
    facts = read_description(tmp_path / "texts")
    assert facts["bounds"]["text_bytes"] is None and facts["labels"] == [*map(str, range(CLASSES))]
    assert set(facts["signatures"]) == {"serving_default", "classify_ids"}
    assert facts["requires"]["tensorflow_text"] == []


def test_wrong_answers_are_refused(models, tokenizer, tmp_path, monkeypatch):
    options = dict(samples=["abc", "h"], ids_only=True, warmup_batch_sizes=())
    own = ClassifierGraphs._classified

    def changed(graphs, *given):
        found = own(graphs, *given)
        return {**found, "probabilities": found["probabilities"] + 0.002}

    monkeypatch.setattr(ClassifierGraphs, "_classified", changed)
    with pytest.raises(ParityError, match="probabilities within 0.001. Received: .* of 0.002"):
        export_saved_model(models["texts"], tokenizer, tmp_path / "x", **options)
    repeat = property(lambda graphs: lambda ids: ids)
    monkeypatch.setattr(LanguageModelGraphs, "_best_search", repeat)
    with pytest.raises(ParityError, match="a float32 savedmodel must give at least 100%"):
        options |= dict(strategy=Greedy(extra_length=2))
        export_saved_model(models["language"], tokenizer, tmp_path / "x", **options)
    assert list(tmp_path.iterdir()) == []


def test_arguments_of_another_kind(models, tokenizer, tmp_path):
    def refused(model, error, match, **options):
        options = dict(samples=["a"]) | options
        with pytest.raises(error, match=match):
            export_saved_model(model, tokenizer, tmp_path / "x", **options)

    translator = Transformer(config_of(tokenizer))
    for name, value in (("labels", LABELS), ("adds_eos", False)):
        for model in (translator, models["language"]):
            refused(
                model,
                ValueError,
                f"`{name}` must be .* for a {type(model).__name__}",
                **{name: value},
            )
    classifier = models["texts"]
    refused(classifier, ValueError, "`strategy` must be None for a Seq", strategy=Greedy())
    for model in (classifier, models["language"]):
        refused(model, ValueError, "`target_tokenizer` must be None", target_tokenizer=tokenizer)
        refused(
            model,
            ValueError,
            "at most `max_source_length` = 2 tok",
            samples=["abc"],
            max_source_length=2,
        )
        refused(model, ValueError, "`max_source_length` must be", max_source_length=0)
    refused(classifier, ValueError, "every class .*Received: 2 labels", labels=["x", "y"])
    refused(classifier, TypeError, "`labels` must be a list of strings", labels="abcde")
    refused(classifier, ValueError, "must have an id. Received: ''", samples=[""], adds_eos=False)
    refused(classifier, ValueError, "`adds_eos` must be True or False", adds_eos=1)
    refused(LanguageModel(config_of(tokenizer, vocab_size=29)), ValueError, "same `vocab_size`")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def client():
    return load_client()


@pytest.fixture(scope="module")
def local(client, served):
    """A client of signatures in this process: it gets what a server answers, without the server."""

    class Local(client.Client):
        def __init__(self, address, model, tls=None, **options):
            super().__init__(model, **{"batch_size": 2, **options})

        def _predict(self, signature, inputs, seconds):
            found = called(served[self.model][2][signature], **inputs)
            return {name: each.tolist() for name, each in found.items()}

    return Local


def test_the_client_as_a_command(local, client, served, monkeypatch, capsys):
    monkeypatch.setattr(client, "GrpcClient", local)
    assert client.main(["--model", "language", "--task", "generate", "abc", TOO_LONG]) == 0
    best = called(served["language"][2]["serving_default"], text=["abc"])["generated"][0]
    written = capsys.readouterr()
    assert written.out == best.decode() + "\n\n"
    assert written.err == "client: no answer: too_long\n"
    with pytest.raises(SystemExit):
        client.main(["--task", "classify", "--text", "abc"])
    assert "--text goes with --task translate" in capsys.readouterr().err
    assert client.main(["--model", "texts", "--task", "classify", "abc"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "ok" and answer["labels"] in LABELS
    assert sum(answer["probabilities"]) == pytest.approx(1)


def test_the_client_reads_them(local, client, served):
    def caller(model):
        return local("localhost", model)

    texts = caller("texts")
    labels = [answer.labels for answer in texts.classify(TEXTS)]
    expected = called(served["texts"][2]["serving_default"], text=TEXTS)
    assert labels == [label.decode() for label in expected["labels"]]
    (fault,) = texts.classify([TOO_LONG])
    assert (fault.status, fault.labels, sum(fault.probabilities)) == ("too_long", "", 0)
    first, second = caller("tokens").classify(["abc", ""])
    assert len(first.labels) == len(first.probabilities) == 4 and len(first.probabilities[0]) == 5
    assert (second.status, second.labels) == ("no_tokens", ())
    language = caller("language")
    best = called(served["language"][2]["serving_default"], text=TEXTS)["generated"]
    assert language.generate(TEXTS) == [text.decode() for text in best]
    assert [len(each.translations) for each in language.generate_n_best(TEXTS[:3], 2)] == [2] * 3
    with pytest.raises(client.ServingError, match="text 1: too_long"):
        language.generate(["a", TOO_LONG])
    with pytest.raises(TypeError, match="`texts` must be a list of strings. Received: 'ab'"):
        texts.classify("ab")
