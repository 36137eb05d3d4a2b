"""Every kind of tokenizer goes into both artefacts, and gives there what it gives in Python."""

import keras
import pytest
from toy_model import randomise

from keras_transformer import (
    Greedy,
    Runner,
    Transformer,
    TransformerConfig,
    Translator,
    export_litert,
    export_saved_model,
)
from keras_transformer.command.systems import find_systems, plain_text_of
from keras_transformer.export.parity import bleu
from keras_transformer_runner.tokenizers import (
    BytesTokenizer,
    CharacterTokenizer,
    VocabularyTokenizer,
)

TEXTS = ["a", "ab@@ c d", "", "  ", "é d\tc", "</s> a", "x\u3000y", "d d d c@@", "\ufffd a"]
KINDS = {
    "vocabulary": lambda: VocabularyTokenizer(["a", "ab@@", "c", "d", "é", "c@@", "de@@"]),
    "bytes": BytesTokenizer,
    "characters": lambda: CharacterTokenizer("abcdeé @"),
}


def model_of(tokenizer):
    keras.utils.set_random_seed(3)
    return randomise(
        Transformer(
            TransformerConfig(
                **dict(vocab_size=tokenizer.vocab_size, model_dim=14, num_heads=2),
                **dict(encoder_layers=1, decoder_layers=1, intermediate_dim=17, dropout=0.0),
            )
        )
    )


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", KINDS)
def test_both_artefacts_answer_as_python_does(kind, tmp_path):
    tokenizer = KINDS[kind]()
    model, strategy = model_of(tokenizer), Greedy(extra_length=5)
    arguments = dict(samples=TEXTS, strategy=strategy)
    served = export_saved_model(
        model, tokenizer, tmp_path / "served", **arguments, warmup_batch_sizes=()
    )
    answers = Translator(model, tokenizer, strategy).translate(TEXTS)
    # References of split text are joined as answers are.
    pieces = [" ".join(map("@@ ".join, answer.split(" "))) for answer in answers]
    scored = dict(references=pieces if kind == "vocabulary" else answers, bleu_tokenize="char")
    device = export_litert(model, tokenizer, tmp_path / "device", **arguments, **scored)
    assert device.bleu == bleu(answers, answers, "char") > 99
    assert served.identical == device.identical == len(TEXTS)
    assert not [op for op in served.ops if "entencepiece" in op]
    runner = Runner(tmp_path / "device")
    assert len(set(answers)) > 3 and answers[2] == answers[3] == ""
    assert runner.translate(TEXTS) == answers
    for system in find_systems([tmp_path / "served", tmp_path / "device"]):
        plain_text = plain_text_of(system) or str
        assert list(map(plain_text, TEXTS)) == list(map(tokenizer.plain_text, TEXTS))
    assert [runner.encode(text)[:-1] for text in TEXTS] == [tokenizer.encode(t) for t in TEXTS]
    assert (tmp_path / "device" / "tokenizer.json").read_bytes() == tokenizer.to_bytes()
