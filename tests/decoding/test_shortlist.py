"""Lexical shortlists: a search among candidates is the search of a smaller vocabulary."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
from backend import array, in_graph
from keras import KerasTensor, ops
from toy_model import BOS, EOS, PAD, V, sources, talkative_toy

from keras_transformer.decoding import BeamSearch, Ensemble, Greedy, Sampling, decode
from keras_transformer.decoding.shortlist import Shortlist, check_shortlist
from keras_transformer.decoding.shortlisted import candidates_of
from keras_transformer_runner.integrity import seal_file

SOURCES = sources([5, 3, 0, 7, 2])
PREFIXES = np.array([[10, PAD], [5, 7], [9, PAD], [PAD, PAD], [3, PAD]], "int32")
IDS = KerasTensor((None, None), "int32")
SEARCHES = [
    Greedy(extra_length=5, scores=True),
    BeamSearch(beam_size=3, n_best=3, extra_length=5, token_log_probs=True),
    Sampling(n_best=2, top_k=3, top_p=0.9, extra_length=5),
    Greedy(extra_length=5, no_repeat_ngram=2, repetition_penalty=1.2, forbidden_ids=(8, 21)),
]
REFERENCE = [SEARCHES[0], SEARCHES[1], SEARCHES[3]]  # samples are others than the model's


@functools.cache
def shortlist():
    rng = np.random.default_rng(2)
    lists = [rng.choice(V, 1 + token % 4, replace=False) for token in range(V)]
    return Shortlist([8, 9], lists, target_size=V)


class Renormalised:
    """A model whose probabilities are those among each row's candidates: the reference."""

    def __init__(self, model, rows):
        self.model, self.rows = model, rows

    def __getattr__(self, name):
        return getattr(self.model, name)

    def step(self, token_ids, cache, position, beams=1, **options):
        logits, *others = self.model.step(token_ids, cache, position, beams=beams, **options)
        logits = array(logits).copy()
        for row, ids in enumerate(np.repeat(np.array(self.rows, object), beams, axis=0)):
            out = np.setdiff1d(np.arange(V), [*ids, PAD, BOS, EOS])
            logits[row, 0, out] = -1e30
        return ops.convert_to_tensor(logits), *others


def candidates(prefixes=None):
    """The ids that each row of `SOURCES` may take."""
    rows = [[*shortlist().ids_for(row[row != PAD])] for row in SOURCES]
    return rows if prefixes is None else [[*a, *b] for a, b in zip(rows, prefixes, strict=True)]


def decoded(model, search, source_ids, prefix_ids=None, run=lambda function, **_: function):
    def translate(source_ids, *prefixes):
        found = shortlist().candidate_ids(source_ids, PAD)
        inputs = dict(zip(["prefix_ids"], prefixes, strict=False))
        return decode(model, source_ids, search, candidate_ids=found, **inputs)

    given = [source_ids] if prefix_ids is None else [source_ids, prefix_ids]
    return run(translate, signature=[IDS] * len(given))(*given)


def assert_same(one, other, rows=slice(None)):
    """The second may have other rows, and fewer columns."""
    for a, b in zip((one.ids, *one.hypotheses), (other.ids, *other.hypotheses), strict=True):
        if b is None:
            continue
        a, b = array(a)[rows], array(b)
        size = min(a.shape[-1], b.shape[-1])
        np.testing.assert_allclose(a[..., :size], b[..., :size], rtol=1e-5, atol=1e-5)


@pytest.mark.quick(2)
@pytest.mark.parametrize("prefixes", [None, PREFIXES], ids=["", "prefixes"])
@pytest.mark.parametrize("search", REFERENCE, ids=lambda search: type(search).__name__)
def test_it_finds_what_the_renormalised_model_finds(search, prefixes):
    model = talkative_toy()
    found = decoded(model, search, SOURCES, prefixes)
    inputs = {} if prefixes is None else {"prefix_ids": prefixes}
    reference = Renormalised(model, candidates(prefixes))
    assert_same(found, decode(reference, SOURCES, search, **inputs))


@pytest.mark.quick(1)
@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: type(search).__name__)
def test_neither_graphs_nor_batch_mates_change_anything(search):
    model = talkative_toy()
    whole = decoded(model, search, SOURCES, PREFIXES, in_graph)
    assert_same(whole, decoded(model, search, SOURCES, PREFIXES))
    for row in (1, 3):
        alone = decoded(model, search, SOURCES[row : row + 1], PREFIXES[row : row + 1])
        assert_same(whole, alone, slice(row, row + 1))


@pytest.mark.parametrize(
    "search",
    [
        Greedy(max_length=6, min_length=4, no_repeat_ngram=1),
        BeamSearch(beam_size=2, max_length=6, min_length=3, forbidden_ids=(8,)),
        Sampling(max_length=6, min_length=4),
    ],
    ids=lambda search: type(search).__name__,
)
def test_where_a_row_may_take_none_of_its_candidates_it_ends(search):
    """And takes none of another's, though the search bans EOS there."""
    model, few = talkative_toy(), np.array([[8, PAD, PAD], [9, 10, 11]], "int32")
    few[0, 0] = 8 if search.forbidden_ids or search.no_repeat_ngram else PAD
    rows = SOURCES[[0, 3]]
    whole = decode(model, rows, search, candidate_ids=few)
    assert {*array(whole.ids)[0].tolist()} <= {8, EOS, PAD} and EOS in array(whole.ids)[0]
    alone = decode(model, rows[:1], search, candidate_ids=few[:1])
    assert_same(whole, alone, slice(1))
    allowed = np.array([[9, 8], [9, 11]], "int32")  # of the first row's no more than 8
    found = decode(model, rows, search, candidate_ids=few, allowed_ids=allowed)
    assert_same(found, alone, slice(1))


def test_all_ids_are_no_shortlist():
    everything = np.tile(np.arange(V, dtype="int32"), (len(SOURCES), 1))
    for model in (talkative_toy(), talkative_toy(output_bias=True)):
        found = decode(model, SOURCES, SEARCHES[1], candidate_ids=everything)
        assert_same(found, decode(model, SOURCES, SEARCHES[1]))


def test_an_ensemble_and_a_list_of_allowed_ids():
    allowed = np.array([[8, 9, PAD], [9, 10, 11]], "int32")
    model = Ensemble([talkative_toy(), talkative_toy(36, decoder_layers=1)])
    search, rows = BeamSearch(beam_size=2, n_best=2, extra_length=3), SOURCES[[0, 3]]
    ids = shortlist().candidate_ids(rows, PAD)
    found = decode(model, rows, search, candidate_ids=ids)
    for index in (0, 1):
        own = decode(model, rows[index : index + 1], search, candidate_ids=ids[index : index + 1])
        assert_same(found, own, slice(index, index + 1))
    search = BeamSearch(beam_size=2, extra_length=3, min_length=3)
    found = decode(model, rows, search, candidate_ids=ids, allowed_ids=allowed)
    for row, source, ids in zip(array(found.ids), rows, allowed, strict=True):
        both = {*shortlist().ids_for(source)} & {*ids.tolist()}
        assert {*row.tolist()} <= {*both, EOS, PAD}
        assert {*row.tolist()} & both


def test_sizes_for_a_compiler_are_powers_of_two():
    config, ids = talkative_toy().config, np.array([[7, 7, 3], [5, BOS, PAD]], "int32")
    found, more = (candidates_of(ids, config, few_sizes=few) for few in (False, True))
    assert array(found.ids)[:6].tolist() == [BOS, PAD, EOS, 3, 5, 7]
    assert array(found.allowed)[:, :6].astype(int).tolist() == [
        [1, 1, 1, 1, 0, 1],
        [1, 1, 1, 0, 1, 0],
    ]
    assert not array(found.allowed)[:, 6:].any()
    assert array(found.slots)[[BOS, PAD, EOS, 3, 5, 7, 8]].tolist() == [0, 1, 2, 3, 4, 5, 2]
    assert array(more.ids).shape == (256,)
    assert not array(more.allowed)[:, 6:].any()


def test_a_model_without_an_output_for_candidates_is_refused():
    model = talkative_toy()
    own = SimpleNamespace(
        config=model.config, encode=model.encode, start=model.start, step=model.step
    )
    with pytest.raises(TypeError, match="`model` must be a `Transformer` or an `Ensemble` to go"):
        decode(own, SOURCES, Greedy(), candidate_ids=SOURCES)


def test_files_come_back_and_damage_is_an_error(tmp_path):
    path = tmp_path / "shortlist.npz"
    made = Shortlist([5, 3, 5], [[7], [], [2, 1]], target_size=9)
    made.save(path, owner="one")
    assert Shortlist.load(path) == Shortlist.load(path, owner="one") == made
    assert made != Shortlist([5, 3], [[7], [], [2, 0]], target_size=9)
    assert made.ids_for([2, 0, 99, -1]) == [1, 2, 3, 5, 7]
    with pytest.raises(ValueError, match="Received: a file of another run"):
        Shortlist.load(path, owner="other")
    with pytest.raises(FileNotFoundError, match="a shortlist must be made first"):
        Shortlist.load(tmp_path / "none.npz")
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="must be as it was written"):
        Shortlist.load(path)
    with open(path, "wb") as file:
        np.savez(file, frequent=np.zeros(3))
    seal_file(path)
    with pytest.raises(ValueError, match=r"must be a shortlist. Received: \['frequent'\]"):
        Shortlist.load(path)


def test_the_best_of_a_table():
    rows = [np.array(each) for each in ([2, 0, 2, 2, 2], [1, 4, 0, 3, 2], [0.5, 1, 0.2, 0.5, 0.1])]
    options = dict(source_size=3, target_size=5)
    made = Shortlist.from_scores(*rows, **options, best=3, threshold=0.2)
    assert [made.ids_for([token]) for token in range(3)] == [[4], [], [0, 1, 3]]
    assert Shortlist.from_scores(*rows, **options, best=1).ids_for([2]) == [1]  # not 3
    joint = Shortlist.from_scores(*rows, source_size=5, target_size=5, best=1, joint=True)
    assert joint.ids_for([2, 3]) == [1, 2, 3]
    empty = Shortlist.from_scores(*rows, **options, best=0)
    assert array(empty.candidate_ids(np.array([[2, 1]]), 4)).tolist() == [[4, 4]]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([], []), {}, "`lists` must have one for each source id. Received: none"),
        (([], [[1]]), dict(joint=True), "must have as many ids on both sides. Received: 1 and 3"),
        (([3], [[1]]), {}, r"ids must lie in \[0, 3\). Received: 3 to 3"),
        (([1], [[1, -1]]), {}, r"ids must lie in \[0, 3\). Received: -1 to 1"),
        (([1], [[1]]), dict(joint=1), "`joint` must be"),
    ],
    ids=str,
)
def test_faulty_tables_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        Shortlist(*arguments, target_size=3, **options)


def test_a_table_of_other_vocabularies_is_refused():
    rows = [np.array([3]), np.array([1]), np.array([1.0])]
    with pytest.raises(ValueError, match=r"source ids must lie in \[0, 3\). Received: 3 to 3"):
        Shortlist.from_scores(*rows, source_size=3, target_size=3)
    with pytest.raises(TypeError, match="`shortlist` must be a `Shortlist`. Received: list"):
        check_shortlist([], talkative_toy().config)
    with pytest.raises(ValueError, match="a shortlist for 1 and 3 ids, a model of 23 and 23"):
        check_shortlist(Shortlist([], [[1]], target_size=3), talkative_toy().config)
