"""What changes in a text that is encoded and decoded, and when it changes no more."""

import random

import pytest

from keras_transformer_runner.tokenizers import SentencePieceTokenizer

PARTS = [
    "a",
    "bc",
    "?",
    " ",
    "  ",
    "\u2581",
    "\u2603",
    "\u2047",
    "\ufe30",
    "e\u0301",
    "\u3000",
    "\t",
]


@pytest.mark.parametrize("normalization", ["nmt_nfkc", "nfkc_cf", "identity"])
@pytest.mark.parametrize(
    "options", [{}, {"model_type": "char"}, {"byte_fallback": True, "vocab_size": 290}]
)
def test_encode_and_decode_have_a_fixed_point_at_the_second_pass(normalization, options):
    rng = random.Random(5)
    for sign in ("?", ""):  # what NFKC makes of the sign of an unknown piece is known, or not
        tokenizer = SentencePieceTokenizer.train(
            [f"a bc d{sign} e"] * 9, **{"vocab_size": 20, "normalization": normalization, **options}
        )
        texts = ["".join(rng.choices(PARTS, k=rng.randint(1, 6))) for _ in range(300)]
        for text in [*texts, "a\u2603b", " \u2603 ", "\u2603\u2603"]:
            once, twice, thrice = _passes(tokenizer, text, 3)
            assert thrice == twice, (text, once, twice, thrice)


def test_identity_keeps_characters_but_not_every_space():
    """What the document of `normalization` says, with all characters known."""
    tokenizer = SentencePieceTokenizer.train(
        ["a b e\u0301 \ufe30"] * 9, 20, model_type="char", normalization="identity"
    )
    assert _passes(tokenizer, "e\u0301 \ufe30", 1) == ["e\u0301 \ufe30"]
    assert _passes(tokenizer, "  a   b ", 1) == ["a b"]
    assert _passes(tokenizer, "a\u2581b", 1) == ["a b"]


def _passes(tokenizer, text, count):
    """`text` after 1, 2, ... times of `decode(encode(text))`."""
    found = []
    for _ in range(count):
        text = tokenizer.decode(tokenizer.encode(text))
        found.append(text)
    return found
