"""SentencePiece models with the ids of another model: same pieces, other numbers."""

import io
import itertools
import random

import pytest
import sentencepiece
import tensorflow as tf
from sentencepiece import SentencePieceTrainer

from keras_transformer_runner.tokenizers import load_tokenizer
from keras_transformer_runner.tokenizers.base import SpecialIds
from keras_transformer_runner.tokenizers.renumbered import (
    BPE,
    CONTROL,
    UNIGRAM,
    UNKNOWN,
    Piece,
    PieceTable,
    renumbered,
)

SENTENCES = [
    "the dog sees the cat",
    "a dog and a cat see the red house",
    "houses and dogs and cats",
    "100000 haha hahaha banana bananas ananas 00 000 0000",
]
TEXTS = [
    *SENTENCES,
    *(
        "",
        "  ",
        "</s> <pad> <unk> a",
        "ttt tttt",
        "hahahahaha",
        "0000000",
        "中文 a 中",
        "é e\u0301",
    ),
]


def trained(**options):
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 5),
        model_writer=model,
        minloglevel=2,
        **{"vocab_size": 60, "hard_vocab_limit": False, **options},
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def unigram():
    return trained()


@pytest.fixture(scope="module")
def bpe():
    return trained(model_type="bpe", vocab_size=70)


def shuffled(proto):
    """The pieces of a model with ids in another order, special ones at its end."""
    pieces = [piece.text for piece in PieceTable.read(proto).pieces[3:]]
    random.Random(3).shuffle(pieces)
    pieces += ["</s>", "<unk>", "<pad>"]
    ids = {piece: token for token, piece in enumerate(pieces)}
    return ids, SpecialIds(ids["<pad>"], ids["<unk>"], ids["<pad>"], ids["</s>"])


@pytest.mark.smoke
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_pieces_stay_and_ids_change(kind, request, tmp_path):
    proto = request.getfixturevalue(kind)
    ids, special_ids = shuffled(proto)
    tokenizer = renumbered(PieceTable.read(proto), ids, special_ids, len(ids) + 3)
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto)
    assert tokenizer.special_ids == special_ids
    assert tokenizer.vocab_size == len(ids) + 3
    expected = [
        [ids.get(piece, special_ids.unk_id) for piece in processor.encode(text, out_type=str)]
        for text in TEXTS
    ]
    assert [tokenizer.encode(text) for text in TEXTS] == expected
    assert tokenizer.tf_encode(tf.constant(TEXTS)).to_list() == expected
    for text, row in zip(TEXTS, expected, strict=True):
        assert tokenizer.decode(row) == processor.decode(processor.encode(text))
    assert not {*special_ids, len(ids)} - {special_ids.unk_id} & {*sum(expected, [])}
    tokenizer.save(tmp_path / "tokenizer.model")
    assert load_tokenizer(tmp_path / "tokenizer.model").encode("the dog") == tokenizer.encode(
        "the dog"
    )


def test_bos_may_be_eos_or_an_id_of_its_own(unigram):
    ids, special_ids = shuffled(unigram)
    table = PieceTable.read(unigram)
    for bos_id in (special_ids.eos_id, len(ids)):
        changed = special_ids._replace(bos_id=bos_id)
        tokenizer = renumbered(table, ids, changed, len(ids) + 1)
        assert tokenizer.special_ids == changed
        assert tokenizer.encode("a dog") == [ids["▁a"], ids["▁dog"]]


def test_pieces_of_the_other_language_are_decoded_and_not_encoded(unigram):
    ids, special_ids = shuffled(unigram)
    others = {"▁dogs": len(ids), ">>fra<<": len(ids) + 1, "中文": len(ids) + 2, "中": len(ids) + 3}
    tokenizer = renumbered(
        PieceTable.read(unigram), ids | others, special_ids, len(ids) + 4, controls=[">>fra<<"]
    )
    assert tokenizer.encode("dogs") == [ids["▁dog"], ids["s"]]
    assert tokenizer.decode([others["▁dogs"], others[">>fra<<"], ids["▁a"]]) == "dogs a"
    assert others[">>fra<<"] not in tokenizer.encode(">>fra<< a")
    # What the model does not know at all is handed out as it is, and looked up.
    assert tokenizer.encode("中文")[-1] == others["中文"]
    assert tokenizer.encode("a中a")[-2:] == [others["中"], ids["a"]]


def test_a_model_that_spells_bytes_keeps_to_them():
    proto = trained(byte_fallback=True, vocab_size=340)
    ids, special_ids = shuffled(proto)
    others = {"中": len(ids)}
    table = PieceTable.read(proto)
    tokenizer = renumbered(table, ids | others, special_ids, len(ids) + 1)
    assert tokenizer.encode("中")[-3:] == [ids[f"<0x{byte:02X}>"] for byte in "中".encode()]
    assert tokenizer.decode(tokenizer.encode("a 中")) == "a 中"
    del ids["<0x00>"]  # then it cannot spell any
    tokenizer = renumbered(table, ids, special_ids, len(ids) + 1)
    assert tokenizer.encode("中")[-1] == special_ids.unk_id


def test_a_piece_without_id_is_spelled_in_others(unigram):
    ids, special_ids = shuffled(unigram)
    size = len(ids)
    del ids["▁dog"]
    tokenizer = renumbered(PieceTable.read(unigram), ids, special_ids, size)
    assert [tokenizer.pieces[token] for token in tokenizer.encode("dog")] == [*"▁dog"]


def test_a_bpe_model_keeps_the_pieces_that_others_are_merged_from(bpe):
    ids, special_ids = shuffled(bpe)
    table = PieceTable.read(bpe)
    size = len(ids)
    full = renumbered(table, ids, special_ids, size)
    kept = {piece: token for piece, token in ids.items() if piece != "▁hou"}
    assert ids["▁hou"] not in full.encode("houses")  # made on the way to it
    tokenizer = renumbered(table, kept, special_ids, size)
    assert tokenizer.encode("houses") == full.encode("houses")
    assert ids["▁hou"] in full.encode("hou")
    assert ids["▁hou"] not in tokenizer.encode("hou")
    with pytest.raises(ValueError, match="a BPE model must have an id, .* 1 without one, .*'▁hou'"):
        renumbered(table, kept | {"other": ids["▁hou"]}, special_ids, size)
    # An id that only BOS has is not free.
    with pytest.raises(ValueError, match="1 without one, .* and 0 free"):
        renumbered(table, kept, special_ids._replace(bos_id=ids["▁hou"]), size)


def test_equally_good_splits_are_the_same_in_the_graph():
    # "0" + "00" and "00" + "0" are as likely: rounding errors must not decide, whoever adds up.
    rng = random.Random(5)
    words = ["".join(word) for n in (1, 2, 3) for word in itertools.product("▁0a", repeat=n)]
    pieces = [
        Piece("<unk>", 0.0, UNKNOWN),
        Piece("</s>", 0.0, CONTROL),
        Piece("<pad>", 0.0, CONTROL),
    ]
    pieces += [Piece(word, -rng.uniform(1, 9) * len(word)) for word in words if word.count("▁") < 2]
    ids = {piece.text: token for token, piece in enumerate(pieces)}
    tokenizer = renumbered(
        PieceTable.make(pieces, UNIGRAM), ids, SpecialIds(2, 0, 2, 1), len(pieces)
    )
    texts = ["".join(rng.choices("0a ", k=rng.randint(20, 90))) for _ in range(500)]
    encoded = [tokenizer.encode(text) for text in texts]
    assert tokenizer.tf_encode(tf.constant(texts)).to_list() == encoded


def test_a_table_that_is_written_is_read_again(unigram, bpe):
    for proto, kind in ((unigram, UNIGRAM), (bpe, BPE)):
        table = PieceTable.read(proto)
        assert table.model_type == kind
        again = PieceTable.read(table.to_bytes(SpecialIds(1, 0, 1, 2)))
        assert [piece[::2] for piece in again.pieces] == [piece[::2] for piece in table.pieces]
        assert table.pieces[2].kind == CONTROL and table.pieces[2].text == "</s>"


def test_ids_without_a_piece_have_names_of_their_own(unigram):
    ids, special_ids = shuffled(unigram)
    size = len(ids)
    ids |= {f"<unused_{size + 1}>": size, "": size + 2}
    tokenizer = renumbered(PieceTable.read(unigram), ids, special_ids, size + 4)
    assert tokenizer.pieces[size:] == [
        *(f"<unused_{size + 1}>", f"<unused_{size + 1}>_"),
        *(f"<unused_{size + 2}>", f"<unused_{size + 3}>"),
    ]
    assert tokenizer.decode([size + 1, ids["▁dog"], size + 2]) == "dog"


def test_ids_are_checked(unigram):
    ids, special_ids = shuffled(unigram)
    table = PieceTable.read(unigram)
    for wrong in (-1, len(ids), 1.0, "1"):
        with pytest.raises(ValueError, match="an id of a piece must be in .*Received: 'x' with id"):
            renumbered(table, ids | {"x": wrong}, special_ids, len(ids))
    with pytest.raises(ValueError, match="must have one piece. Received: '.+' and 'x' with id 0"):
        renumbered(table, ids | {"x": 0}, special_ids, len(ids))
    with pytest.raises(ValueError, match="`unk_id` must be in .0, vocab_size. .* Received: 99999"):
        renumbered(table, ids, special_ids._replace(unk_id=99999), len(ids))


def test_damage_is_an_error_or_changes_pieces_only(unigram):
    ids, special_ids = shuffled(unigram)
    rng, faults = random.Random(11), 0
    for _ in range(300):
        content = bytearray(unigram[: rng.choice([None, rng.randrange(len(unigram))])])
        for _ in range(rng.choice([0, 1, 8])):
            if content:
                content[rng.randrange(min(len(content), 1500))] = rng.randrange(256)
        try:
            table = PieceTable.read(bytes(content))
            renumbered(table, ids, special_ids, len(ids)).encode("the dog")
        except ValueError:
            faults += 1
    assert faults > 30


@pytest.mark.parametrize(
    "content", [b"\x0a\xff", b"\x0a\x05\x0a\xff", b"\x0b", b"\x0a\x03\x0a\x01\xff"]
)
def test_what_is_no_model_is_an_error(content):
    with pytest.raises(ValueError, match="must be a serialized SentencePiece model"):
        PieceTable.read(content)
