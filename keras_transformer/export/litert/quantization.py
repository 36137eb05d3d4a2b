"""A float32 LiteRT file -> the same with smaller weights, as a `Mode` says."""

import warnings

import numpy as np

from keras_transformer.export.litert import flatbuffer
from keras_transformer.export.litert.gptq import rounded
from keras_transformer.export.litert.modes import FLOAT, STATIC
from keras_transformer.quiet import quiet

# Prefixes of the name of an op's output, by which the quantizer's rules find the op.
_STATIC = "static"  # a product with calibrated scales
_WIDE = "wide"  # a weight of 4 bits that has to have 8


def quantized(graph, mode, statistics=None):
    """Returns the graph with quantized weights; `graph` itself is used up.

    The matrix that an embedding shares with the output projection stays one.

    Args:
        graph: What `flatbuffer.read` gives, with lookups instead of gathers.
        mode: A `Mode`.
        statistics: What `calibration.statistics` gives, for modes that are calibrated.
    """
    if mode.weight_bits == 32:
        return graph
    flatbuffer.name_tensors(graph)
    ranges = {}
    if mode.products == STATIC:
        ranges = _mark_static(graph, statistics)
    if mode.weight_bits == 4:
        _mark_odd(graph)
        _round_weights(graph, statistics, mode.weight_bits)
    content = flatbuffer.write_apart(graph)
    with quiet(), warnings.catch_warnings():
        # The quantizer looks at the float file with an interpreter of a kind that warns.
        warnings.simplefilter("ignore")
        from litert_quantizer import quantizer

        result = quantizer.Quantizer(content, _recipe(mode)).quantize(ranges or None)
    return flatbuffer.read(bytes(result.quantized_model))


def _recipe(mode):
    """One rule for products and lookups, or the matrix that they share would be stored twice."""
    from litert_quantizer import qtyping, recipe_manager

    names = qtyping.TFLOperationName
    recipe = recipe_manager.RecipeManager()
    for operation in (names.FULLY_CONNECTED, names.EMBEDDING_LOOKUP):
        if mode.products == FLOAT:
            casting = {"algorithm_key": recipe_manager.AlgorithmName.FLOAT_CASTING}
            extra = casting if mode.weight_bits == 16 else {}
            recipe.add_weight_only_config(".*", operation, mode.weight_bits, **extra)
        else:
            recipe.add_dynamic_config(".*", operation, mode.weight_bits)
            recipe.add_dynamic_config(f"^{_WIDE}", operation, 8)
    if mode.products == STATIC:
        recipe.add_static_config(
            f"^{_STATIC}",
            names.FULLY_CONNECTED,
            activation_num_bits=8,
            weight_num_bits=mode.weight_bits,
        )
    return recipe.get_quantization_recipe()


def _mark_static(graph, statistics):
    """Names what is to have calibrated scales; returns the ranges by tensor name."""
    shared, ranges = flatbuffer.looked_up(graph), {}
    for product in flatbuffer.products(graph):
        seen = statistics.statistics_of(product)
        if seen is None or seen.is_last or product.weight.buffer in shared:
            continue
        inputs = product.graph.tensors[product.op.inputs[0]]
        outputs = _marked(product, _STATIC)
        for tensor, limits in ((inputs, seen.input_range), (outputs, seen.output_range)):
            low, high = ranges.get(tensor.name, limits)
            ranges[tensor.name] = min(low, limits[0]), max(high, limits[1])
    return {
        name.decode(): {"min": np.array([[low]], "float32"), "max": np.array([[high]], "float32")}
        for name, (low, high) in ranges.items()
    }


def _mark_odd(graph):
    """Leaves 8 bits to weights with an odd number of inputs.

    Two numbers of 4 bits share a byte, over the ends of rows too, where LiteRT reads them wrongly.
    """
    for found in flatbuffer.weight_ops(graph):
        if found.weight.shape[1] % 2:
            _marked(found, _WIDE)


def _marked(found, mark):
    """The tensor that comes out of an op, once the mark begins its name."""
    outputs = found.graph.tensors[found.op.outputs[0]]
    outputs.name = f"{mark} {outputs.name.decode()}".encode()
    return outputs


def _round_weights(graph, statistics, bits):
    shared, done = flatbuffer.looked_up(graph), set()
    for product in flatbuffer.products(graph):
        buffer, shape = product.weight.buffer, product.weight.shape
        if buffer in done or shape[1] % 2:
            continue
        done.add(buffer)
        weight = np.frombuffer(product.data, "float32").reshape(shape)
        seen = statistics.statistics_of(product)
        gram = None if seen is None else seen.gram
        near = rounded(weight, gram, bits, is_looked_up=buffer in shared)
        graph.buffers[buffer].data = np.frombuffer(near.tobytes(), np.uint8)
