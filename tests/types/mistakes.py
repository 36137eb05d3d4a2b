"""Mistakes that an editor must see. `tests/test_types.py` says which line must be reported."""

import keras_transformer as kt
import keras_transformer_runner as runner

kt.Transfomer  # error: attr-defined
kt.TransformerConfig(vocab_size="x")  # error: arg-type
kt.TransformerConfig(vocab_size=10, number_of_heads=2)  # error: call-arg
kt.MultiHeadSelfAttention(num_heads="x", key_dim=4)  # error: arg-type
kt.DecoderBlock(num_heads=2, key_dim=4)  # error: call-arg
kt.BeamSearch(beam_width=4)  # error: call-arg
kt.Translator(model=None)  # error: call-arg
kt.load_run(7)  # error: arg-type
kt.Greedy(extra=4)  # error: call-arg
runner.Runner("folder").translate(7)  # error: arg-type
runner.Runner("folder").translate_ids(["a"])  # error: list-item
