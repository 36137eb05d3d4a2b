"""What of Marian's own files is refused, and its two kinds of YAML."""

import re

import numpy as np
import pytest
from toy_marian import (
    DIM,
    SETTINGS,
    VOCAB,
    WORDS,
    random_arrays,
    write_folder,
    write_model,
    write_pieces,
)

from keras_transformer.interop.marian import from_marian
from keras_transformer.interop.marian_yaml import read_settings, read_vocabulary


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("marian") / "vocab.spm"
    write_pieces(path, WORDS)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"type": "s2s"}, "`type` must be 'transformer'.*Received: 's2s'"),
        ({"transformer-ffn-activation": "gelu"}, r"must be one of \('relu', 'swish'\).*sigmoid"),
        ({"transformer-ffn-activation": "tanh"}, "`transformer-ffn-activation`.*Received: 'tanh'"),
        ({"transformer-postprocess": "dhn"}, "`transformer-preprocess` and .*Received: '' and 'dh"),
        ({"transformer-postprocess-emb": "a"}, "`transformer-postprocess-emb` must be one of"),
        ({"transformer-postprocess-top": "a"}, "`transformer-postprocess-top` must be one of"),
        ({"transformer-decoder-autoreg": "average-attention"}, "`transformer-decoder-autoreg` mu"),
        ({"dec-cell": "sru"}, "`dec-cell` must be 'ssru'.*Received: 'sru'"),
        ({"transformer-rnn-projection": True}, "`transformer-rnn-projection` must be False"),
        ({"transformer-ffn-depth": 3}, "`transformer-ffn-depth` must be 2"),
        ({"transformer-decoder-ffn-depth": 3}, "`transformer-decoder-ffn-depth` must be 2"),
        ({"transformer-decoder-dim-ffn": 7}, "`transformer-decoder-dim-ffn` must be 13"),
        ({"transformer-tied-layers": [1, 1]}, r"`transformer-tied-layers` must be \[\]"),
        ({"transformer-guided-alignment-layer": 3}, "`transformer-guided-alignment-layer` must be"),
        ({"transformer-guided-alignment-layer": [1]}, "`transformer-guided-alignment-layer` must"),
        ({"transformer-postprocess-top": [1]}, "`transformer-postprocess-top` must be one of"),
        ({"dec-depth": 2**40}, "model.npz: a model's settings must fit its tensors"),
        ({"input-types": ["class"]}, "`input-types` must be"),
        ({"right-left": True}, "`right-left` must be False"),
        ({"lemma-dim-emb": 4}, "`lemma-dim-emb` must be 0"),
        ({"transformer-heads": "8x"}, "`transformer-heads` must be of type int. Received: '8x'"),
        ({"transformer-moe": 4}, "a setting must be one that is understood.*transformer-moe=4"),
    ],
    ids=lambda value: "=".join(map(str, *value.items())) if isinstance(value, dict) else "",
)
def test_settings_that_ours_cannot_have(changes, message, vocabulary, tmp_path):
    settings = {**SETTINGS, **changes}
    arrays = random_arrays(SETTINGS)
    write_model(tmp_path / "model.npz", settings, arrays)
    with pytest.raises(ValueError, match=message):
        from_marian(tmp_path / "model.npz", vocabularies=[vocabulary])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder_l2_rnn_Wf": None}, "must hold the tensor 'decoder_l2_rnn_Wf'"),
        ({"Wemb": None}, "must hold the tensor 'Wemb'"),
        ({"Wemb": np.ones(3, "float32")}, "'Wemb' must be a table, of two axes. Received: shape"),
        ({"encoder_l3_self_Wq": np.ones((DIM, DIM))}, "others: encoder_l3_self_Wq"),
        ({"decoder_l1_rnn_W": np.ones((DIM, 3), "float32")}, r"'decoder_l1_rnn_W' must have the"),
        ({"decoder_ff_logit_out_b": np.ones((1, 7), "float32")}, "must have 40 numbers. Received"),
        ({"decoder_l1_rnn_W": np.ones((DIM, DIM), "int8")}, "not quantized. Received: int8"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_tensors_that_do_not_fit(changes, message, tmp_path):
    write_folder(tmp_path / "model", **changes)
    with pytest.raises(ValueError, match=message):
        from_marian(tmp_path / "model")


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        ("word-penalty: 0.5\n", "`word-penalty` must be 0.*Received: 0.5"),
        ("beam-size: 4\nfancy: 1\n", "a setting must be one that is understood. Received: fancy=1"),
        ("beam-size: many\n", "`beam-size` must be of type int. Received: 'many'"),
        ("normalize: [1]\n", r"decoder.yml: `normalize` must be of type float. Received: \[1"),
        ("beam-size: 0\n", "model: `beam_size` must be at least 1. Received: beam_size=0"),
        (
            "vocabs: [a.spm, b.spm, c.spm]\n",
            "one for each, beside it, named in.*Received: .*'c.spm'",
        ),
        ("beam-size: {a: 1}\n", "decoder.yml: line 1 must be a setting of one level"),
    ],
)
def test_decoder_files_that_are_not_understood(decoder, message, tmp_path):
    write_folder(tmp_path / "model", decoder=decoder)
    with pytest.raises(ValueError, match=message):
        from_marian(tmp_path / "model")


def test_files_that_are_missing_or_too_many(tmp_path):
    folder = tmp_path / "model"
    with pytest.raises(FileNotFoundError, match=f"must exist. Received: {re.escape(str(folder))}"):
        from_marian(folder)
    write_folder(folder, vocabularies=())
    with pytest.raises(ValueError, match=r"a vocabulary for both sides.*Received: \[\]"):
        from_marian(folder)
    with pytest.raises(FileNotFoundError, match="a vocabulary's file must exist.*other.spm"):
        from_marian(folder, vocabularies=[folder / "other.spm"])
    (folder / "vocab.spm").write_bytes(b"\xff\xff")
    with pytest.raises(ValueError, match="vocab.spm: `model_proto` must be a serialized"):
        from_marian(folder)
    write_pieces(folder / "vocab.spm", WORDS, 30)
    (folder / "model.npz").rename(folder / "a.npz")
    write_model(folder / "b.npz", SETTINGS, {})
    with pytest.raises(ValueError, match=r"must hold one model.*\['a.npz', 'b.npz'\]"):
        from_marian(folder)
    (folder / "b.npz").rename(folder / "a.npz.optimizer.npz")
    assert from_marian(folder).model.config.vocab_size == VOCAB + 1
    np.savez(folder / "a.npz", Wemb=np.ones((3, 3)))
    with pytest.raises(ValueError, match="must hold 'special:model.yml'. Received: none"):
        from_marian(folder / "a.npz")


def test_vocabularies_that_do_not_fit(tmp_path):
    folder = tmp_path / "model"
    write_folder(folder, vocabularies=("source.spm", "target.spm"))
    (folder / "vocab.yml").write_text("</s>: 0\n<unk>: 1\na: 55\n")
    with pytest.raises(ValueError, match="must be below the rows.*40. Received: 55"):
        from_marian(folder)
    (folder / "vocab.yml").write_text("</s>: 0\na: 1\n")
    with pytest.raises(ValueError, match="must have the piece '<unk>'"):
        from_marian(folder)
    (folder / "one.yml").write_text("</s>: 1\n<unk>: 0\n")
    (folder / "vocab.yml").write_text("</s>: 0\n<unk>: 1\n")
    files = [folder / "vocab.yml", folder / "one.yml"]
    with pytest.raises(ValueError, match=r"the same ids in both.*Received: \(0, 1\) and \(1, 0\)"):
        from_marian(folder, vocabularies=files)
    with pytest.raises(ValueError, match="`target_language` must be None.*Received: 'fra'"):
        from_marian(folder, vocabularies=files[:1], target_language="fra")


def test_settings_of_yaml():
    text = """---
# a comment
a: 1  # one
b: -2.5e-3
c: "x: \\"y\\" # z"
d: 'it''s'
e:
  - true
  - ~
f:
  []
g: [1, two, "3"]
h: v1.9 2018-12-12 18:51:10 -0800
i:
"""
    assert read_settings(text, "a.yml") == {
        **dict(a=1, b=-0.0025, c='x: "y" # z', d="it's", e=[True, None], f=[], g=[1, "two", "3"]),
        **dict(h="v1.9 2018-12-12 18:51:10 -0800", i=None),
    }
    for wrong in ("a: 1\na: 2", "  - 1", "a: 1\n  - 2", "a:\n  b: 1", "a: &x 1", "just words",
                  "a: |", "a: 'open", "a:\n  - - 1", 'a: "\\q"'):  # fmt: skip
        with pytest.raises(ValueError, match="a.yml: line . must be a setting of one level"):
            read_settings(wrong, "a.yml")


def test_vocabularies_of_yaml():
    text = '</s>: 0\n",": 1\n"\\x23": 2\n\'it\'\'s\': 3\n"a: b": 4\n:: 5\n? long\n: 6\n\u2581x: 7\n'
    assert read_vocabulary(text, "v.yml") == {
        **{"</s>": 0, ",": 1, "#": 2, "it's": 3, "a: b": 4, ":": 5, "long": 6, "\u2581x": 7},
    }
    for wrong in ("a: x", "words", "a: 1\na: 2", '"a: 1'):
        with pytest.raises(ValueError, match="v.yml: line . must be a piece and its id"):
            read_vocabulary(wrong, "v.yml")
