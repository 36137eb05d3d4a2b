"""A tokenizer.json alone gives the ids of the SentencePiece model that it was made from."""

import base64

import pytest
import sentencepiece
from sentencepiece import SentencePieceProcessor
from tokenizer_folders import (
    FAIRSEQ,
    TEXTS,
    by_table,
    check_ids,
    fairseq_config,
    fairseq_ids,
    toy_models,
    write,
)

from keras_transformer.interop.tokenizers import read_tokenizers
from keras_transformer_runner.tokenizers.renumbered import PieceTable


@pytest.fixture(scope="module")
def models():
    return toy_models()


def charsmap_of(model):
    """SentencePiece's table of characters, in base64 as in a tokenizer.json."""
    fields = sentencepiece.SentencePieceNormalizer(model_proto=model).serialized_model_proto()
    start = fields.index(b"\x12", fields.index(b"nmt_nfkc")) + 1
    size = shift = 0
    while True:
        byte, start = fields[start], start + 1
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return base64.b64encode(fields[start : start + size]).decode()


def fast(model, ids, **parts):
    """A tokenizer.json as transformers writes it, with these ids."""
    table = PieceTable.read(model)
    scores = {piece.text: piece.score for piece in table.pieces}
    special = [
        piece for piece in ids if piece not in scores or piece in ("<s>", "</s>", "<unk>", "<pad>")
    ]
    pieces = sorted(ids, key=ids.get)
    if table.model_type == 1:
        vocab = [[piece, scores.get(piece, 0.0)] for piece in pieces]
        content = {"type": "Unigram", "unk_id": ids["<unk>"], "vocab": vocab}
    else:
        cuts = ((piece, cut) for piece in scores for cut in range(1, len(piece)))
        merges = sorted((-scores[piece], piece[:cut], piece[cut:]) for piece, cut in cuts)
        merges = [[left, right] for _, left, right in merges if left in scores and right in scores]
        content = {"type": "BPE", "unk_token": "<unk>", "vocab": ids, "merges": merges}
    return {
        "added_tokens": [
            {"id": ids[piece], "content": piece, "special": True} for piece in special
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": charsmap_of(model)},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            ],
        },
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "model": content,
        **parts,
    }


@pytest.mark.parametrize("family", FAIRSEQ)
def test_a_tokenizer_json_alone(models, tmp_path, family):
    model, kind, languages, german, english, more = FAIRSEQ[family]
    ids = fairseq_ids(models[model], languages)
    folder = write(tmp_path / family, tokenizer__json=fast(models[model], ids))
    source, target, _ = read_tokenizers(
        folder, fairseq_config(kind, ids, **more), source_language=german, target_language=english
    )
    assert (source.prefix_ids, target.prefix_ids) == ((ids[german],), (ids[english],))
    check_ids(source, by_table(models[model], ids), [*TEXTS, "ﬁn ½  e\u0301"])


@pytest.mark.parametrize("model", ["t5", "bytes"])
def test_a_tokenizer_json_of_t5(models, tmp_path, model):
    processor = SentencePieceProcessor(model_proto=models[model])
    ids = {processor.id_to_piece(token): token for token in range(len(processor))}
    content = fast(models[model], ids)
    content["model"]["byte_fallback"] = model == "bytes"
    steps = [{"type": "WhitespaceSplit"}, content["pre_tokenizer"]]
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    folder = write(tmp_path / "t5", tokenizer__json=content)
    source, _, _ = read_tokenizers(folder, {"model_type": "t5", "vocab_size": 400})
    check_ids(source, processor.encode)


@pytest.mark.parametrize("model", ["t5", "bpe"])
def test_a_tokenizer_json_that_does_something_else(models, tmp_path, model):
    ids = {piece.text: token for token, piece in enumerate(PieceTable.read(models[model]).pieces)}
    good = fast(models[model], ids)
    wrong = {
        "`model` must be one of .*'WordPiece'": dict(model={"type": "WordPiece"}),
        "`normalizer` must be .* Received: 'NFKC'": dict(normalizer={"type": "NFKC"}),
        "`pre_tokenizer` must be .* Received: 'ByteLevel'": dict(
            pre_tokenizer={"type": "ByteLevel"}
        ),
        "must have its fields": dict(added_tokens=[{}]),
        "must have its fields .*TypeError": dict(added_tokens=None),
    }
    if model == "bpe":
        suffixed = good["model"] | {"end_of_word_suffix": "</w>"}
        gap = good["model"] | {"vocab": ids | {"x": 999}}
        wrong |= {
            "`end_of_word_suffix` of a BPE model must be none": dict(model=suffixed),
            "must have the ids from 0 on": dict(model=gap),
        }
    for message, parts in wrong.items():
        folder = write(tmp_path / "t5", tokenizer__json=good | parts)
        with pytest.raises(ValueError, match=message):
            read_tokenizers(folder, {"model_type": "t5", "vocab_size": 400})


def test_a_text_without_a_space_before_it(models, tmp_path):
    ids = {piece.text: token for token, piece in enumerate(PieceTable.read(models["t5"]).pieces)}
    never = {"type": "Metaspace", "prepend_scheme": "never"}
    content = fast(models["t5"], ids, pre_tokenizer=never, normalizer=None)
    folder = write(tmp_path / "t5", tokenizer__json=content)
    source, _, _ = read_tokenizers(folder, {"model_type": "t5", "vocab_size": 400})
    assert source.encode("s") == [ids["s"]]
