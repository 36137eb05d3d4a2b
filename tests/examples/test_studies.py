"""The studies show what they say they show."""

import digits
import keras
import norm_study
import numpy as np
import pytest
import rank_collapse
import score_scaling


def assert_picture(path):
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) > 10_000


def test_rank_collapses_doubly_exponentially_without_skips(tmp_path, capsys):
    results = rank_collapse.main(sentences=3, length=13, out=tmp_path)
    for norm, (gain, limit) in {"none": (2.5, 5), "layer": (2.0, 6)}.items():
        residuals = results[norm]["neither"]
        assert 0.9 < residuals[0] < 1.1
        # Each step of the logarithm is a multiple of the step before, up to rounding.
        growth = rank_collapse.growth(residuals)
        assert len(growth) >= 3 and growth.min() > gain
        assert residuals[limit:].max() < 1e-14
        assert results[norm]["FFN only"][limit:].max() < 1e-14
    assert_picture(tmp_path / "rank_collapse.png")
    assert capsys.readouterr().out.count("the logarithm's steps grow by") == 2


def test_skips_keep_the_rank(tmp_path):
    results = rank_collapse.main(sentences=3, length=13, out=tmp_path)
    for lines in results.values():
        for name in ("skips and FFN", "skips only"):
            steps = np.diff(np.log(lines[name]))
            assert lines[name][-1] > 0.01
            assert steps.min() > np.log(0.5)  # no block takes more than half


def test_growth_is_that_of_the_logarithm():
    doubly = np.exp(-0.1 * 3.0 ** np.arange(6))  # log -0.1, -0.3, -0.9, ...
    np.testing.assert_allclose(rank_collapse.growth(doubly), 3)
    singly = 0.5 ** np.arange(1, 8)
    np.testing.assert_allclose(rank_collapse.growth(singly), 1)
    np.testing.assert_allclose(rank_collapse.growth(np.append(doubly, [1e-16, 2e-16])), 3)


def test_scaling_keeps_entropy_and_gradient(tmp_path, capsys):
    key_dims = (4, 32, 256, 1024)
    results = score_scaling.main(key_dims, count=512, out=tmp_path)
    scaled, unscaled = score_scaling.SCORES
    for what, lines in results.items():
        assert max(lines[scaled]) / min(lines[scaled]) < 1.15, what
    entropies, medians = (results[what] for what in (score_scaling.ENTROPY, score_scaling.MEDIAN))
    means = results[score_scaling.MEAN]
    assert np.all(np.diff(entropies[unscaled]) < 0)
    assert entropies[unscaled][-1] < 0.2 < 3 < entropies[scaled][-1]
    assert medians[unscaled][-1] < medians[scaled][-1] / 100
    # Even the mean, which a few undecided queries keep up, falls as 1 / sqrt(d_k).
    assert means[unscaled][-1] / means[unscaled][-2] == pytest.approx(0.5, abs=0.1)
    assert_picture(tmp_path / "score_scaling.png")
    assert len(capsys.readouterr().out.splitlines()) == 3 + len(key_dims)


def test_the_weights_are_softmax_over_bare_scores():
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(1, 5, 7)), rng.normal(size=(1, 3, 7))
    exact = np.exp(queries[0] @ keys[0].T / np.sqrt(7))
    weights = score_scaling.attention_weights("scaled_dot_product", queries, keys)
    np.testing.assert_allclose(weights, exact / exact.sum(-1, keepdims=True), rtol=1e-12)
    weights = score_scaling.attention_weights("dot_product", queries, keys)
    exact = exact ** np.sqrt(7)
    np.testing.assert_allclose(weights, exact / exact.sum(-1, keepdims=True), rtol=1e-12)


def test_entropy_and_jacobian_by_definition():
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=3)
    norms = [np.linalg.norm(np.diag(p) - np.outer(p, p)) for p in weights]
    measured = score_scaling.measure(weights)
    assert measured[score_scaling.MEAN] == pytest.approx(np.mean(norms))
    assert measured[score_scaling.MEDIAN] == pytest.approx(np.median(norms))
    entropy = -(weights * np.log(weights)).sum(1).mean()
    assert measured[score_scaling.ENTROPY] == pytest.approx(entropy)
    assert max(score_scaling.measure(np.eye(3)).values()) == 0


def test_the_taggers_data():
    lengths = np.tile([2, 5, 3], 50)
    ids, labels = norm_study.make_rows(np.random.default_rng(0), lengths, 7)
    assert ids.shape == labels.shape == (150, 7)
    for length, row, marks in zip(lengths, ids, labels, strict=True):
        assert np.all(row[:length] >= norm_study.FIRST_ID) and not row[length:].any()
        np.testing.assert_array_equal(marks[:length], row[:length] > row[:length].mean())
        assert np.all(marks[length:] == norm_study.IGNORED)


@pytest.mark.release
def test_batch_norm_suffers_where_lengths_vary(tmp_path, capsys):
    results = norm_study.main((2, 16), batches=(4,), steps=300, seeds=1, out=tmp_path)
    losses = {line: values[0] for line, values in results[4].items()}
    short, trained = np.transpose(list(losses.values()))
    layer, rms, inference, training = short
    # An unseen length: far worse than the others, and than with its own batch's statistics.
    assert inference > 1.5 * max(layer, rms)
    assert inference > 1.3 * training
    assert max(trained[:2]) < min(trained[2:]) < 0.2
    assert_picture(tmp_path / "norm_study.png")
    assert "trained on lengths 8 to 24" in capsys.readouterr().out


@pytest.mark.quick(1)
@pytest.mark.parametrize("normalization", ["layer", "rms", "batch"])
def test_only_batch_norm_has_two_modes(normalization):
    keras.utils.set_random_seed(0)
    model = norm_study.train(normalization, batch_size=2, steps=2, seed=0)
    inference = norm_study.measure(model, 5, 2, training=False, sentences=6)
    training = norm_study.measure(model, 5, 2, training=True, sentences=6)
    if normalization == "batch":
        assert abs(training - inference) > 1e-3
    else:
        assert training == pytest.approx(inference, rel=1e-5)


def test_patches_are_squares_of_four_pixels():
    images = np.random.default_rng(0).random((3, 8, 8), "float32")
    model = digits.make_model(width=6, heads=2, blocks=1)
    to_patches = keras.Model(model.input, model.layers[3].output)
    patches = np.asarray(to_patches(images))
    assert patches.shape == (3, 16, 4)
    for row in range(4):
        for column in range(4):
            square = images[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            np.testing.assert_array_equal(patches[:, 4 * row + column], square.reshape(3, 4))


@pytest.mark.release
def test_the_encoder_reads_digits(capsys):
    assert digits.main() >= 0.97
    assert "of 360 held-out digits" in capsys.readouterr().out
