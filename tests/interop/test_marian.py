"""Marian's own models: logits of its formulas, ids of its vocabularies, and what is refused."""

import ctranslate2
import numpy as np
import pytest
from ctranslate2.converters import MarianConverter
from toy_marian import (
    DIM,
    VOCAB,
    WORDS,
    Marian,
    write_folder,
    write_model,
)

from keras_transformer import (
    BeamSearch,
    Greedy,
    align,
    export_litert,
    export_saved_model,
    load_run,
)
from keras_transformer.interop import from_pretrained
from keras_transformer.interop.marian import from_marian
from keras_transformer_runner import Runner
from keras_transformer_runner.tokenizers.renumbered import PieceTable

SELF_ATTENTION = {"transformer-decoder-autoreg": "self-attention", "dec-cell": "gru"}
KINDS = {
    "student": {},
    "teacher": {**SELF_ATTENTION, "transformer-ffn-activation": "swish"},
    "shared by target and output": {"tied-embeddings-all": False, "tied-embeddings": True},
    "shared by both sides": {"tied-embeddings-all": False, "tied-embeddings-src": True},
    "shared by all, in two words": {
        **{"tied-embeddings-all": False, "tied-embeddings-src": True, "tied-embeddings": True},
    },
    "nothing shared, other sizes": {"tied-embeddings-all": False, "dim-vocabs": [VOCAB, VOCAB + 3]},
    "learned positions": {"transformer-train-position-embeddings": True},
    "norms before": {
        **{"transformer-preprocess": "n", "transformer-postprocess": "da"},
        **{"transformer-postprocess-top": "n"},
    },
    "norms before, self-attention": {
        **SELF_ATTENTION,
        **{"transformer-preprocess": "n", "transformer-postprocess": "da"},
    },
    "norm of embeddings": {"transformer-postprocess-emb": "nd"},
    "another block's alignment": {"transformer-guided-alignment-layer": 1, "enc-depth": 1},
}


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marian") / "student"
    return folder, *write_folder(folder)


@pytest.fixture(scope="module")
def imported(student):
    return from_marian(student[0])


def rows(rng, lengths):
    return [[*rng.integers(2, VOCAB, length - 1), 0] for length in lengths]


def logits(model, source, target):
    inputs = {
        "source_ids": np.array([source], "int32"),
        "target_ids": np.array([[model.config.bos_id, *target]], "int32"),
    }
    return np.asarray(model(inputs, training=False))[0]


@pytest.mark.quick(3)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_marians(kind, tmp_path):
    settings, arrays = write_folder(tmp_path / "model", KINDS[kind])
    model = from_marian(tmp_path / "model").model
    rng, theirs = np.random.default_rng(3), Marian(settings, arrays)
    for source, target in zip(rows(rng, (5, 1, 9)), rows(rng, (4, 8, 1)), strict=True):
        expected = theirs.logits(source, target)
        actual = logits(model, source, target)
        size = expected.shape[1]
        np.testing.assert_allclose(actual[:, :size], expected, atol=2e-5)
        np.testing.assert_allclose(actual[:, size:], -1e3, atol=1e2)  # no probability


def test_alignments_are_those_of_the_last_block_and_first_head(student, imported):
    _, settings, arrays = student
    (source, target), theirs = rows(np.random.default_rng(4), (6, 5)), Marian(settings, arrays)
    theirs.logits(source, target[:-1])
    found = align(imported.model, np.array([source]), np.array([target]))
    np.testing.assert_allclose(found.probabilities[0], theirs.alignments[-1][0], atol=1e-5)


def test_equals_ctranslate2_where_that_has_the_model(tmp_path):
    """It has self-attention alone, and other positions: those of Marian are given in a table."""
    settings, arrays = write_folder(tmp_path / "model", SELF_ATTENTION)
    half, places = DIM // 2, np.arange(64)
    angles = np.outer(places, 10000.0 ** (-np.arange(half) / (half - 1)))
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("float32")
    write_model(tmp_path / "positions.npz", settings, {**arrays, "Wpos": table})
    ids = "".join(f"{piece}: {token}\n" for token, piece in enumerate(pieces_of(VOCAB)))
    (tmp_path / "vocab.yml").write_text(ids)
    converter = MarianConverter(str(tmp_path / "positions.npz"), [str(tmp_path / "vocab.yml")] * 2)
    converter.convert(str(tmp_path / "converted"))
    theirs = ctranslate2.Translator(str(tmp_path / "converted"), intra_threads=1)
    model = from_marian(tmp_path / "model").model
    rng = np.random.default_rng(5)
    for source, target in zip(rows(rng, (5, 7)), rows(rng, (6, 4)), strict=True):
        words = [[pieces_of(VOCAB)[token] for token in row[:-1]] for row in (source, target)]
        (scored,) = theirs.score_batch([words[0]], [words[1]])
        values = logits(model, source, target[:-1]).astype("float64")
        values -= np.log(np.exp(values).sum(axis=-1, keepdims=True))
        expected = [row[token] for row, token in zip(values, target, strict=True)]
        np.testing.assert_allclose(scored.log_probs, expected, atol=1e-4)


def pieces_of(size):
    return ["</s>", "<unk>", *(f"w{token}" for token in range(2, size))]


# --- Vocabularies, search and runs ---------------------------------------------------------


def test_ids_are_those_of_the_vocabulary(student, imported):
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(str(student[0] / "vocab.spm"))
    config, tokenizer = imported.model.config, imported.tokenizer
    assert imported.target_tokenizer is tokenizer
    assert tokenizer.special_ids == config.special_ids == (VOCAB, 1, VOCAB, 0)
    for text in (*WORDS[:9], "zz a", "", "</s> ae"):
        assert tokenizer.encode(text) == processor.encode(text)
        ids = processor.encode(WORDS[0])
        assert tokenizer.decode(ids) == processor.decode(ids)


def test_the_search_is_that_of_the_decoder_file(imported, tmp_path):
    assert imported.search == BeamSearch(
        **dict(beam_size=4, length_penalty=1.0, length_normalization="power"),
        **dict(candidates="joint", stopping="first_finished", forbidden_ids=(1,)),
    )
    assert "max-length-factor" in str(imported.report)
    options = "beam-size: 1\nallow-unk: true\nshortlist: [lex.bin, false]\nmax-length-factor: 2.0\n"
    write_folder(tmp_path / "model", decoder=options)
    found = from_marian(tmp_path / "model")
    assert found.search == Greedy()
    assert "lexical shortlist" in str(found.report) and "= 2.0" in str(found.report)
    (tmp_path / "model" / "decoder.yml").unlink()
    assert from_marian(tmp_path / "model" / "model.npz").search == Greedy(forbidden_ids=(1,))


def test_a_run_of_it_translates_alike(student, imported, tmp_path):
    texts = WORDS[:5]
    assert isinstance(from_pretrained(student[0]).search, BeamSearch)
    answers = imported.translator().translate(texts)
    run = load_run(imported.save_run(tmp_path / "run", samples=texts))
    assert run.model.config.decoder_recurrence == "ssru"
    assert run.translator().translate(texts) == answers


@pytest.mark.slow
def test_a_student_exports_to_both_with_the_same_answers(imported, tmp_path):
    texts, folder = WORDS[:8], tmp_path / "device"
    options = dict(samples=texts, strategy=imported.search)
    model, tokenizer = imported.model, imported.tokenizer
    served = export_saved_model(model, tokenizer, tmp_path / "served", **options)
    device = export_litert(model, tokenizer, folder, **options)
    assert served.identical == device.identical == len(texts)
    assert Runner(folder).translate(texts) == imported.translator().translate(texts)
    export_litert(model, tokenizer, tmp_path / "int8", mode="int8", **options)  # keeps its promise


@pytest.mark.slow
def test_a_vocabulary_of_yaml_beside_two_piece_models(tmp_path):
    """As OPUS-MT has it: joint ids, in another order than the models' own."""
    folder = tmp_path / "model"
    write_folder(folder, vocabularies=("source.spm", "target.spm"), decoder=None)
    tables = {
        side: [
            piece.text for piece in PieceTable.read((folder / f"{side}.spm").read_bytes()).pieces
        ]
        for side in ("source", "target")
    }
    joint = dict.fromkeys(["</s>", "<unk>", ">>fra<<", '"', "'"])
    joint |= dict.fromkeys(tables["source"][2:20]) | dict.fromkeys(tables["target"][2:20])
    ids = {piece: token for token, piece in enumerate([*joint][:VOCAB])}
    lines = (f"{yaml_piece(piece)}: {token}\n" for piece, token in ids.items())
    (folder / "opus.vocab.yml").write_text("".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=r"`target_language` must be given.*\['fra'\].*None"):
        from_marian(folder)
    with pytest.raises(ValueError, match="`target_language` must be one of|did you mean 'fra'"):
        from_marian(folder, target_language="frra")
    with pytest.raises(ValueError, match="`source_language` must be None.*Received: 'deu'"):
        from_marian(folder, source_language="deu", target_language="fra")
    found = from_marian(folder, target_language="fra")
    assert found.tokenizer.prefix_ids == (2,) and found.target_tokenizer.prefix_ids == ()
    assert from_marian(folder, target_language="").tokenizer.prefix_ids == ()
    for text in WORDS[:4]:
        plain = found.target_tokenizer.encode(text)
        assert found.tokenizer.encode(text)[0] == 2 and 2 not in plain
        assert 2 not in found.tokenizer.encode(">>fra<< " + text)[1:]
    assert found.tokenizer.pieces[:6] == [*[*joint][:5], tables["source"][2]]


def yaml_piece(piece):
    return '"' + piece.replace("\\", "\\\\").replace('"', '\\"') + '"'
