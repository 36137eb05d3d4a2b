"""Mistakes that an editor must see. `tests/test_types.py` says which line must be reported."""

import keras_transformer as kt

kt.Transfomer  # error: attr-defined
kt.TransformerConfig(vocab_size="x")  # error: arg-type
kt.TransformerConfig(vocab_size=10, number_of_heads=2)  # error: call-arg
