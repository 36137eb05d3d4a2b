"""Kernels laid out for the products of a search: the same numbers, and no product left out."""

import builtins
import io
from types import SimpleNamespace

import numpy as np
import pytest
from backend import array, dtype_of, in_graph, tensorflow_only
from keras import ops
from toy_model import sources, talkative_toy, toy_config, toy_transformer

from keras_transformer.decoding import BeamSearch, Ensemble, Greedy, Sampling, decode, generate
from keras_transformer.decoding.plan import _layers_with_kernels
from keras_transformer.layers.embedding import TokenEmbedding
from keras_transformer.layers.lowering import prepacked, tracing
from keras_transformer.layers.projection import Projection
from keras_transformer.models import LanguageModel, Transformer
from keras_transformer.translation import Translator

SOURCES = sources([7, 3, 0, 5, 9])
STRATEGIES = [
    Greedy(extra_length=6, scores=True),
    BeamSearch(beam_size=3, n_best=2, extra_length=6),
    Sampling(n_best=2, seed=5, extra_length=6),
]


@pytest.fixture
def small(monkeypatch):
    """Blocks are for any kernel, on any machine."""
    monkeypatch.setattr(prepacked, "_LEAST", 1)
    monkeypatch.setattr(prepacked, "suit_this_machine", lambda: True)


def states(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.mark.parametrize("dim, units", [(5, 32), (5, 96), (7, 33), (3, 1), (40, 63)])
@pytest.mark.parametrize("rows", [1, 6])
def test_a_product_with_blocks_is_the_product(dim, units, rows):
    kernel, inputs = states(dim, units), states(rows, dim, seed=1)
    for blocks in (prepacked.cut(kernel), prepacked.cut_transposed(kernel.T)):
        assert tuple(blocks.columns.shape) == (-(-units // 32), dim, 32)
        found = array(prepacked.product(ops.convert_to_tensor(inputs), blocks))
        np.testing.assert_allclose(found, inputs @ kernel, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "bfloat16"])
@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("name", ["projection", "no bias", "embedding"])
def test_layers_give_the_same(small, name, in_blocks, dtype):
    if name == "embedding":
        layer, options = TokenEmbedding(45, 6, dtype=dtype), {"reverse": True}
        layer.build(None)
    else:
        layer, options = Projection(45, use_bias=name == "projection", dtype=dtype), {}
        layer.build((None, None, 6))
        for seed, weight in enumerate(layer.weights):
            weight.assign(states(*weight.shape, seed=seed))
    inputs = ops.convert_to_tensor(states(2, 3, 6))
    expected = layer(inputs, **options)
    with tracing.traced(kernels=prepacked.prepacked([layer], in_blocks)):
        made = prepacked.kernel_of(layer)
        assert isinstance(made, prepacked.ColumnBlocks) == in_blocks
        found = layer(inputs, **options)
    assert prepacked.kernel_of(layer) is None
    assert dtype_of(found) == dtype_of(expected) and found.shape == expected.shape
    tolerance = 1e-5 if dtype == "float32" else 5e-2
    np.testing.assert_allclose(
        array(ops.cast(found, "float32")), array(ops.cast(expected, "float32")), atol=tolerance
    )


def test_small_kernels_stay_as_they_are():
    layer, table = Projection(255), TokenEmbedding(300, 255)
    layer.build((None, 1000))
    table.build(None)
    assert layer.prepacked_kernel(True) is None
    assert tuple(table.prepacked_kernel(True).shape) == (255, 300)
    large = Projection(256)
    large.build((None, 256))
    assert isinstance(large.prepacked_kernel(True), prepacked.ColumnBlocks)


def model_of(kind):
    if kind == "language model":
        return LanguageModel(toy_config(decoder_layers=2, activation="swiglu"))
    if kind == "ensemble":
        config = toy_config(embedding_sharing="none")
        return Ensemble([talkative_toy(), Transformer(config)])
    if kind == "gated":
        return talkative_toy(activation="geglu", use_bias=False)
    if kind == "no feed-forward":
        return talkative_toy(use_feed_forward=False)
    return talkative_toy()


CASES = [(kind, STRATEGIES[0]) for kind in ("paper", "gated", "language model")]
CASES += [
    pytest.param(kind, STRATEGIES[0], marks=pytest.mark.slow)
    for kind in ("no feed-forward", "ensemble")
]
CASES += [pytest.param("paper", each, marks=pytest.mark.release) for each in STRATEGIES[1:]]


@pytest.mark.quick(1)
@tensorflow_only("a graph for batches")
@pytest.mark.parametrize("kind, strategy", CASES, ids=lambda case: getattr(case, "beams", case))
def test_a_search_finds_the_same_and_all_its_products_are_ready(small, monkeypatch, kind, strategy):
    import tensorflow as tf

    model = model_of(kind)
    search = generate if kind == "language model" else decode
    asked, made, multiplied = [], set(), []
    kernel_of, product = prepacked.kernel_of, prepacked.product

    def watched(layer):
        if tracing.kernels():
            asked.append(layer)
            made.update(tracing.kernels())
            assert kernel_of(layer) is not None, layer.path
        return kernel_of(layer)

    def counted(rows, kernel):
        multiplied.append(isinstance(kernel, prepacked.ColumnBlocks))
        return product(rows, kernel)

    def found(for_this_cpu):
        signature = [tf.TensorSpec((None, None), tf.int32)]
        run = in_graph(
            lambda ids: search(model, ids, strategy, for_this_cpu=for_this_cpu), signature=signature
        )
        hypotheses = run(SOURCES).hypotheses
        return [array(field) for field in hypotheses if field is not None]

    expected = found(False)
    monkeypatch.setattr(prepacked, "kernel_of", watched)
    monkeypatch.setattr(prepacked, "product", counted)
    for actual, other in zip(found(True), expected, strict=True):
        if other.dtype.kind == "f":
            np.testing.assert_allclose(actual, other, rtol=1e-4, atol=1e-4)
        else:
            np.testing.assert_array_equal(actual, other)
    assert asked and True in multiplied
    # TensorFlow prunes what no step multiplies with: the source's, and tables for lookups alone.
    vain = made - {id(layer) for layer in asked}
    others = [layer.path for layer in _layers_with_kernels(model) if id(layer) in vain]
    of_source = ("encoder", "source_embedding", "cross_attention/key", "cross_attention/value")
    unneeded = (*of_source, "target_embedding")
    assert len(others) == len(vain)
    assert all(any(part in path for part in unneeded) for path in others), others


@pytest.mark.slow
@tensorflow_only("a graph for batches")
def test_the_weights_are_those_of_now(small):
    model = toy_transformer()
    names = ("vocab_size", "pad_id", "unk_id", "bos_id", "eos_id")
    tokenizer = SimpleNamespace(**{name: getattr(model.config, name) for name in names})
    translator = Translator(model, tokenizer, Greedy(extra_length=6))
    before = translator.translate_ids(SOURCES)
    for weight in model.weights:
        if weight.path.endswith(("kernel", "embeddings")):
            weight.assign(-1.3 * weight)
    after = translator.translate_ids(SOURCES)
    fresh = Translator(model, tokenizer, Greedy(extra_length=6)).translate_ids(SOURCES)
    assert after == fresh != before


@tensorflow_only("a graph for batches")
def test_only_a_graph_that_stays_here_has_blocks(small, monkeypatch):
    import tensorflow as tf

    made = []
    monkeypatch.setattr(prepacked, "cut", lambda kernel: made.append(kernel))
    monkeypatch.setattr(prepacked, "cut_transposed", lambda table: made.append(table))
    signature = [tf.TensorSpec((None, None), tf.int32)]
    in_graph(lambda ids: decode(talkative_toy(), ids, Greedy()), signature=signature)(SOURCES)
    assert not made


VNNI = "processor\t: 0\nflags\t\t: fpu avx512f avx512_vnni\n"


@pytest.mark.parametrize(
    "flags, variable, gpus, expected",
    [
        (VNNI, None, [], True),
        (VNNI, "1", [], True),
        (VNNI, "0", [], False),
        (VNNI, "false", [], False),
        (VNNI, None, ["GPU:0"], False),
        ("flags\t\t: fpu avx2 avx_vnni\n", None, [], False),
        ("Features\t: fp asimd\n", None, [], False),
        (None, None, [], False),
    ],
)
def test_which_machines_blocks_suit(monkeypatch, flags, variable, gpus, expected):
    import tensorflow as tf

    real = builtins.open

    def opened(path, *arguments, **options):
        if path != "/proc/cpuinfo":
            return real(path, *arguments, **options)
        if flags is None:
            raise FileNotFoundError(path)
        return io.StringIO(flags)

    monkeypatch.setattr(builtins, "open", opened)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    if variable is not None:
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", variable)
    prepacked.suit_this_machine.cache_clear()
    try:
        assert prepacked.suit_this_machine() is expected
    finally:
        prepacked.suit_this_machine.cache_clear()
