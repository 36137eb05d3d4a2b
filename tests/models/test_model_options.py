"""Every option of a model, called eagerly: the reference's numbers, cached steps, no leaks."""

import dataclasses

import keras
import numpy as np
import numpy_reference as reference
import pytest
from toy_model import D, V, frozen_toy, toy_config
from toy_options import (
    COMBINED,
    OPTIONS,
    SMALL,
    TOGETHER,
    S,
    T,
    assert_near,
    batch,
    every_option,
    logits,
    options_together,
    toy,
    toy_logits,
)

from keras_transformer import config as config_module
from keras_transformer.checks import check_causality, check_padding_invariance
from keras_transformer.config import TransformerConfig
from keras_transformer.models import attention_scores


def test_the_table_changes_every_field_and_has_every_choice():
    fields = {field.name for field in dataclasses.fields(TransformerConfig)}
    together = {name: OPTIONS[name] for name in TOGETHER}
    assert {field for options in together.values() for field in options} == fields
    choices = dict(
        residual=config_module.RESIDUALS,
        normalization=config_module.NORMALIZATIONS,
        positions=config_module.POSITIONS,
        attention_score=config_module.SCORES,
        embedding_sharing=config_module.SHARING,
    )
    for field, wanted in choices.items():
        found = {getattr(toy_config(**options), field) for options in together.values()}
        assert found == {*wanted}
    activations = {options.get("activation") for options in together.values()}
    assert {"gelu_tanh", *config_module.GATED_ACTIVATIONS} < activations
    combined = [OPTIONS[name] for name in COMBINED]
    for field in choices.keys() - {"embedding_sharing"}:
        found = {getattr(toy_config(**options), field) for options in combined}
        assert found == {*choices[field]}, field
    for field in ("use_residual", "use_feed_forward", "use_bias", "attention_chunk", "packed",
                  "attention_window", "feed_forward_bias", "output_bias", "embedding_norm",
                  "embedding_scale", "first_position", "alignment_head",
                  "decoder_recurrence"):  # fmt: skip
        assert any(field in options for options in combined), field


@pytest.mark.quick(15)
@every_option
def test_logits_and_attention_equal_the_reference(name):
    model, (source_ids, target_ids) = toy(name), batch(name)
    expected, encoder, decoder = reference.transformer(model, model.config, source_ids, target_ids)
    assert_near(toy_logits(name), expected, share=2e-5)
    seen = attention_scores(model, source_ids, target_ids)
    own, cross = [pair[0] for pair in decoder], [pair[-1] for pair in decoder]
    wanted = [encoder, [] if model.config.decoder_recurrence else own, cross]
    for arrays, others in zip((seen.encoder, seen.decoder, seen.cross), wanted, strict=True):
        for array, other in zip(arrays, others, strict=True):
            assert isinstance(array, np.ndarray) and array.dtype == np.float32
            assert_near(array, other)


@pytest.mark.quick(10)
@pytest.mark.parametrize("lengths", [[1] * T, [3] + [1] * (T - 3)], ids=str)
@options_together
def test_steps_equal_the_full_pass(name, lengths):
    model, (source_ids, target_ids) = toy(name), batch(name)
    cache, position, pieces = model.start(model.encode(source_ids), T + 2), 0, []
    for length in lengths:
        part = target_ids[:, position : position + length]
        outputs, cache = model.step(part, cache, position)
        pieces.append(keras.ops.convert_to_numpy(outputs))
        position += length
    assert_near(np.concatenate(pieces, axis=1), toy_logits(name))


@pytest.mark.quick(4)
@options_together
def test_nothing_leaks(name):
    model, (source_ids, target_ids) = toy(name), batch(name)
    report = check_causality(model, source_ids, target_ids)
    assert report.passed and report.compared == 3 * T * (T - 1) // 2, report
    pad_id = model.config.pad_id
    report = check_padding_invariance(model, source_ids, target_ids, pad_id=pad_id, extra=(7,))
    assert report.passed and report.compared, report


@pytest.mark.quick(5)
@options_together
def test_batch_mates_change_nothing(name):
    """Not even one whose source is empty."""
    model, (source_ids, target_ids) = toy(name), batch(name)
    for row, expected in enumerate(toy_logits(name)):
        assert_near(logits(model, source_ids[[row]], target_ids[[row]])[0], expected)


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", [name for name in OPTIONS if "positions" in OPTIONS[name]])
def test_order_of_source_tokens_matters_where_there_are_positions(name):
    model, (source_ids, target_ids) = toy(name), batch(name, (S,))
    swapped = source_ids[:, [1, 0, *range(2, S)]]
    moved = np.abs(logits(model, swapped, target_ids) - logits(model, source_ids, target_ids))
    assert (moved.max() < 1e-5) == (model.config.positions == "none")
    assert moved.max() < 1e-5 or moved.max() > 1e-3


@pytest.mark.parametrize("name", ["learned", "learned, nothing shared, gelu"])
def test_beyond_the_learned_table_is_an_error_that_names_it(name):
    model, (source_ids, target_ids) = toy(name), batch(name)
    rows = OPTIONS[name]["max_positions"]
    message = f"`max_positions`.*Received: .*{rows + 1}.*max_positions={rows}"
    with pytest.raises(ValueError, match=message):
        logits(model, np.resize(source_ids, (3, rows + 1)), target_ids)
    with pytest.raises(ValueError, match=message):
        logits(model, source_ids, np.resize(target_ids, (3, rows + 1)))
    with pytest.raises(ValueError, match=message):
        model.encode(np.resize(source_ids, (3, rows + 1)))
    cache = model.start(model.encode(source_ids), rows + 4)
    with pytest.raises(ValueError, match=message):
        model.step(target_ids[:, :1], cache, rows)


@pytest.mark.parametrize(
    ("sharing", "matrices"),
    [("all", 1), ("target_output", 2), ("source_target", 2), ("none", 3)],
)
def test_matrices_of_each_sharing(sharing, matrices):
    model = frozen_toy(**SMALL, embedding_sharing=sharing)
    shapes = [tuple(weight.shape) for weight in model.weights]
    assert shapes.count((V, D)) == matrices
