"""Sampling: the right frequencies, the right filters, and the same draws wherever a row lies."""

import numpy as np
import pytest
from backend import array, compiled, in_graph, tensor
from keras import ops
from toy_model import PAD, sources, talkative_toy
from toy_tables import IDS, SOURCES, V, log_softmax, own_log_probs, search, table_of, tokens

from keras_transformer.decoding import Greedy, Sampling, decode
from keras_transformer.decoding.constraints import IMPOSSIBLE
from keras_transformer.decoding.sampling import gumbel_noise, sample_keys

DRAWS = 4096
# The 0.999 quantile of chi-square with n degrees of freedom, n from 1 on.
QUANTILES = [10.83, 13.82, 16.27, 18.47, 20.52, 22.46, 24.32, 26.12, 27.88, 29.59]


def assert_drawn_from(counts, probabilities):
    """Pearson's chi-square test; what has no probability must have no draw."""
    expected = np.asarray(probabilities) * np.sum(counts)
    possible = expected > 0
    assert np.all(np.asarray(counts)[~possible] == 0)
    terms = (np.asarray(counts)[possible] - expected[possible]) ** 2 / expected[possible]
    assert terms.sum() < QUANTILES[possible.sum() - 2], (counts, expected)


def first_tokens(strategy, table, **inputs):
    ids = search(strategy, table, [1], **inputs)[0]
    return np.bincount(ids[0, :, 0], minlength=V)


def allowed_probabilities(logits, temperature=1.0):
    values = np.array(logits, "float64") / temperature
    values[[IDS.pad_id, IDS.bos_id]] = -np.inf
    values = np.exp(values - values.max())
    return values / values.sum()


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_tokens_are_as_frequent_as_likely(temperature, seed):
    strategy = Sampling(n_best=DRAWS, temperature=temperature, seed=seed)
    table = table_of(1)
    state = (IDS.bos_id + 1) % len(table)
    counts = first_tokens(strategy, table)
    assert_drawn_from(counts, allowed_probabilities(table[state], temperature))


def test_pairs_of_tokens_are_as_frequent_as_likely():
    """A position's draw does not depend on that of the position before."""
    table = np.tile(np.where(np.isin(np.arange(V), [0, 1, 3]), 0.0, IMPOSSIBLE), (13, 1))
    table[:, 3] = np.log(2)
    ids = search(Sampling(n_best=DRAWS), table, [2])[0][0]
    counts = np.bincount(ids[:, 0] * V + ids[:, 1], minlength=V * V)
    one = np.zeros(V)
    one[[0, 1, 3]] = 0.25, 0.25, 0.5
    assert_drawn_from(counts, np.outer(one, one).ravel())


def test_samples_of_different_seeds_and_sources_are_independent():
    ids = [
        search(Sampling(n_best=DRAWS, seed=seed), np.zeros((13, V)), [1, 1])[0][:, :, 0]
        for seed in (0, 1)
    ]
    choice = np.setdiff1d(np.arange(V), [IDS.pad_id, IDS.bos_id])
    for one, other in [(ids[0][0], ids[1][0]), (ids[0][0], ids[0][1])]:
        same = np.sum(one == other)
        assert_drawn_from([same, DRAWS - same], [1 / len(choice), 1 - 1 / len(choice)])


def test_noise_has_the_gumbel_distribution():
    keys = sample_keys(3, tensor(SOURCES[:1]), IDS.pad_id, 64)
    noise = np.sort(array(gumbel_noise(keys, tensor(5, "int32"), 1024)).ravel().astype("float64"))
    expected = np.exp(-np.exp(-noise))
    ranks = (np.arange(noise.size) + 0.5) / noise.size
    # Kolmogorov-Smirnov, 0.999 quantile
    assert np.max(np.abs(expected - ranks)) < 1.95 / noise.size**0.5
    assert np.all(np.isfinite(noise))


@pytest.mark.parametrize("bits", [0, 1, 2**31, 2**32 - 1])
def test_noise_is_finite_for_every_hash(bits, monkeypatch):
    from keras_transformer.decoding import sampling

    monkeypatch.setattr(
        sampling, "mix_bits", lambda value: ops.zeros_like(value) + ops.cast(bits, "uint32")
    )
    found = array(gumbel_noise(ops.zeros(2, "uint32"), tensor(0, "int32"), 3))
    assert np.all(np.isfinite(found))


def by_hand(log_probs, top_k, top_p, min_p):
    """What stays, by sets: ties with the last one stay too."""
    probabilities = np.exp(np.asarray(log_probs, "float64"))
    stays = probabilities > 0
    if top_k:
        stays &= probabilities >= np.sort(probabilities)[::-1][min(top_k, len(stays)) - 1]
    if top_p < 1:
        kept = np.where(stays, probabilities, 0) / probabilities[stays].sum()
        total, last = 0.0, None
        for value in np.sort(kept)[::-1]:
            if total >= top_p:
                break
            total, last = total + value, value
        stays &= kept >= last * (1 - 1e-9)
    if min_p > 0:
        stays &= probabilities >= min_p * probabilities.max()
    return stays


@pytest.mark.parametrize("min_p", [0.0, 0.03, 0.4, 1.0])
@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.83, 0.999, 1.0])
@pytest.mark.parametrize("top_k", [0, 1, 3, V - 1, V, 99])
def test_filters_equal_those_by_hand(top_k, top_p, min_p):
    strategy = Sampling(top_k=top_k, top_p=top_p, min_p=min_p)
    rng = np.random.default_rng(0)
    rows = [log_softmax(2 * rng.normal(size=V)) for _ in range(17)]
    rows += [log_softmax(np.repeat([0.0, 1.0, 2.5], [5, 4, 2])), np.full(V, -np.log(V))]
    found = array(strategy.filtered(tensor(np.array(rows), "float32")))
    for row, taken_out in zip(rows, found, strict=True):
        np.testing.assert_array_equal(~taken_out, by_hand(row, top_k, top_p, min_p))
        assert not taken_out[np.argmax(row)]


@pytest.mark.parametrize(
    "options", [dict(top_k=3), dict(top_p=0.8), dict(min_p=0.2), dict(top_k=4, top_p=0.9)], ids=str
)
def test_filtered_draws_are_as_frequent_as_likely(options):
    table = table_of(2)
    probabilities = allowed_probabilities(table[(IDS.bos_id + 1) % len(table)], 1.5)
    with np.errstate(divide="ignore"):
        stays = by_hand(np.log(probabilities), **{"top_k": 0, "top_p": 1, "min_p": 0, **options})
    assert 1 < stays.sum() < 9
    counts = first_tokens(Sampling(n_best=DRAWS, temperature=1.5, **options), table)
    assert_drawn_from(counts, np.where(stays, probabilities, 0) / probabilities[stays].sum())


@pytest.mark.parametrize("options", [dict(temperature=0.0), dict(temperature=1e-6), dict(top_k=1)])
def test_the_limit_is_greedy_search(options):
    for seed in range(5):
        table = table_of(seed)
        expected = search(Greedy(scores=True), table, [9, 3, 9])
        for sampled, greedy in zip(
            search(Sampling(n_best=2, **options), table, [9, 3, 9]), expected, strict=True
        ):
            np.testing.assert_allclose(sampled[:, :1], greedy, atol=1e-6)
            np.testing.assert_allclose(sampled[:, 1:], greedy, atol=1e-6)


def test_of_equals_the_lowest_id_wins_at_temperature_0():
    table = np.zeros((13, V))
    table[:, [3, 7, 9]] = 2.5
    assert tokens(search(Sampling(temperature=0.0), table, [3])[0][0, 0]) == [3, 3, 3]


def test_log_probs_are_the_models_before_temperature_and_filters():
    strategy = Sampling(n_best=5, temperature=2.0, top_k=4, repetition_penalty=1.5)
    ids, scores, log_probs = search(strategy, table_of(4), [9, 4])
    for row in range(2):
        for n in range(5):
            found = tokens(ids[row, n])
            own = own_log_probs(table_of(4), found)
            np.testing.assert_allclose(log_probs[row, n, : len(found)], own, atol=1e-5)
            assert np.all(log_probs[row, n, len(found) :] == 0)
            np.testing.assert_allclose(scores[row, n], sum(own), atol=1e-4)


def test_a_seed_gives_its_samples_and_another_others():
    ids = [search(Sampling(seed=seed), table_of(5), [9] * 4)[0] for seed in (7, 7, 8)]
    np.testing.assert_array_equal(ids[0], ids[1])
    assert np.any(ids[0] != ids[2])


def test_fewer_samples_are_the_first_ones():
    many, few = (search(Sampling(n_best=n), table_of(5), [9] * 4)[0] for n in (5, 2))
    np.testing.assert_array_equal(many[:, :2], few)
    assert len({tuple(row) for row in many[0].tolist()}) > 2


def test_samples_need_sources():
    with pytest.raises(ValueError, match="`source_ids` must be given.*Received: None"):
        Sampling().search(None, None, tensor(np.array([3], "int32")), 3, IDS)


# --- With a model --------------------------------------------------------------------------

LENGTHS = [7, 3, 2, 5, 0, 4]
STRATEGY = Sampling(n_best=3, extra_length=4, seed=11, top_p=0.9)


@pytest.fixture(scope="module")
def run():
    model = talkative_toy()
    return in_graph(lambda ids: decode(model, ids, STRATEGY).hypotheses.ids)


def rows_of(ids):
    return [[[int(t) for t in row if t != PAD] for row in rows] for rows in array(ids)]


@pytest.mark.slow
def test_batches_order_and_padding_change_nothing(run):
    source_ids = sources(LENGTHS)
    expected = rows_of(run(source_ids))
    assert len({str(rows) for rows in expected}) == len(LENGTHS) and expected[4] == [[]] * 3
    order = [3, 0, 5, 4, 2, 1]
    assert rows_of(run(source_ids[order])) == [expected[row] for row in order]
    padded = np.pad(source_ids, ((0, 0), (0, 6)), constant_values=PAD)
    assert rows_of(run(padded)) == expected
    for row in range(len(LENGTHS)):
        assert rows_of(run(source_ids[[row]])) == [expected[row]]
    many = np.tile(source_ids, (11, 1))[:64]
    assert rows_of(run(many)) == (expected * 11)[:64]


@pytest.mark.slow
def test_eager_and_xla_draw_the_same(run):
    source_ids = sources(LENGTHS)
    expected = rows_of(run(source_ids))
    model = talkative_toy()
    assert rows_of(decode(model, source_ids, STRATEGY).hypotheses.ids) == expected
    jit = compiled(lambda ids: decode(model, ids, STRATEGY).hypotheses.ids)
    assert rows_of(jit(source_ids)) == expected


def test_the_draws_are_the_same_on_every_backend():
    """Golden: the hashes are whole numbers, and these logits are exact."""
    table = np.tile(np.arange(V) % 3, (13, 1))
    assert search(Sampling(n_best=2, seed=3), table, [6])[0].tolist() == [
        [[10, 8, 5, 4, 4, 4], [7, 5, 4, 4, 4, 4]]
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(temperature=-1.0), "`temperature` must be 0 or at least 1e-06. Received: -1.0"),
        (dict(temperature=1e-9), "`temperature` must be 0 or at least 1e-06. Received: 1e-09"),
        (dict(temperature=float("nan")), "`temperature` must be a finite number. Received"),
        (dict(top_k=-1), "`top_k` must be an integer of at least 0. Received: top_k=-1"),
        (dict(top_p=0), r"`top_p` must be in \(0, 1\]. Received: 0"),
        (dict(top_p=1.5), r"`top_p` must be in \(0, 1\]. Received: 1.5"),
        (dict(min_p=-0.1), r"`min_p` must be in \[0, 1\]. Received: -0.1"),
        (dict(min_p=1.1), r"`min_p` must be in \[0, 1\]. Received: 1.1"),
        (dict(seed=-1), "`seed` must be an integer of at least 0. Received: seed=-1"),
        (dict(seed=2**32), "`seed` must be below 2\\^32. Received: 4294967296"),
        (dict(n_best=0), "`n_best` must be a positive integer. Received: n_best=0"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**arguments)
