"""Toy models of one stack in the special ids of a tokenizer, for tests of what devices run."""

from toy_options import randomise_all

from keras_transformer import LanguageModel, TransformerConfig

CLASSES = 5
TEXTS = ["abc", "h", "b a d", "gfedcba", "", "1 2 b", "zz"]


def config_of(tokenizer, **changes):
    """A toy config in the special ids of the tokenizer."""
    own = {
        **dict(vocab_size=tokenizer.vocab_size, model_dim=13, num_heads=3, key_dim=6),
        **dict(value_dim=5, intermediate_dim=17, encoder_layers=1, decoder_layers=1, dropout=0.0),
        **{name: getattr(tokenizer, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")},
    }
    return TransformerConfig(**{**own, **changes})


def language_model_of(tokenizer, **changes):
    model = randomise_all(LanguageModel(config_of(tokenizer, **changes)), 9)
    embeddings = model.get_layer("embedding").embeddings
    embeddings.assign(0.2 * embeddings)  # so that a token does not just repeat itself
    return model
