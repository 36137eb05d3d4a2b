"""Teachers and a student of toy size, for tests of distillation."""

import keras

import keras_transformer as kt
from keras_transformer_runner.translation import Translation

SENTENCES = [("ab", "ba"), ("abc", "cba"), ("ab", "b"), ("", "x"), ("cab", "bac"), ("b", "")]


STUDENT = """
[data]
tsv = "pairs.tsv"
valid_tsv = "valid.tsv"

[tokenizer]
type = "characters"

[model]
model_dim = 6
num_heads = 2
encoder_layers = 1
decoder_layers = 1
intermediate_dim = 7

[training]
max_epochs = 1
warmup_steps = 1
jit_compile = false
"""


def save_teacher(folder, seed, tokenizer=None, **fields):
    """Saves a model of random weights, which writes something for every source."""
    keras.utils.set_random_seed(seed)
    tokenizer = tokenizer or kt.CharacterTokenizer("abc")
    config = kt.TransformerConfig(
        vocab_size=tokenizer.vocab_size,
        model_dim=8,
        num_heads=2,
        encoder_layers=1,
        decoder_layers=1,
        intermediate_dim=8,
        **tokenizer.special_ids._asdict(),
        **fields,
    )
    search = kt.BeamSearch(beam_size=3, extra_length=2, forced_eos=True)
    translator = kt.Translator(kt.Transformer(config), tokenizer, search, max_source_length=8)
    translator.save_to_preset(folder)
    return folder


def write_student(folder, sentences=SENTENCES):
    """Writes a corpus and a student's experiment; returns the path of the TOML file."""
    pairs = "".join(f"{source}\t{target}\n" for source, target in sentences)
    (folder / "pairs.tsv").write_text(pairs)
    (folder / "valid.tsv").write_text("abc\tcba\n")
    (folder / "student.toml").write_text(STUDENT)
    return folder / "student.toml"


class Stub:
    """In the place of a `Translator`: it knows up to five letters, and cuts off what has four."""

    batch_size = 2

    def source_ids(self, text):
        if len(text) > 5:
            raise ValueError("too long")
        return list(text)

    def translate_with_details(self, texts, *, n_best=None):
        found = ([text[::-1], text, text.upper()][:n_best] for text in texts)
        return [
            [Translation(each, (), -1.0, truncated=len(each) == 4) for each in of_text]
            for of_text in found
        ]
