"""What goes into and comes out of every weight when the model reads a user's sentences.

The decoding loop is in the bodies of WHILE ops, where no calibrator looks. So the numbers are
taken in one full pass over source and target, which computes what the cached steps compute, and are
matched to the loop by the weights themselves: a product is known by the rows of its matrix, which
the converter may have joined or split. Both graphs are traced with nothing folded into weights
(see `layers.lowering.tracing`).
"""

import dataclasses
import typing

import numpy as np
import tensorflow as tf

from keras_transformer.layers.lowering.tracing import traced

_SIGNATURE = "full_pass"
MOST_SENTENCES = 256
_BATCH = 16  # sentences whose numbers are kept at a time


class Calibration(typing.NamedTuple):
    """A model and what it is to read.

    Attributes:
        model: A Keras model of token ids, such as `Transformer` or `LanguageModel`.
        rows: A list of inputs, each a dict from input name to a list of ids. The first
            `MOST_SENTENCES` are read.
    """

    model: object
    rows: list


@dataclasses.dataclass
class Statistics:
    """What was seen at one product with a weight of (outputs, inputs).

    Attributes:
        input_range: Least and greatest number that went in, and 0.
        output_range: The same for what came out, behind bias and activation.
        gram: Sum of x xᵀ over all inputs x, (inputs, inputs) float64.
        is_last: Whether it is the model's last product, which gives its answer.
    """

    input_range: tuple = (0.0, 0.0)
    output_range: tuple = (0.0, 0.0)
    gram: np.ndarray | float = 0.0
    is_last: bool = False

    def add(self, inputs, outputs):
        """Takes in (N, inputs) that went in and (N, outputs) that came out."""
        gram = (inputs.T @ inputs).astype("float64")
        self.merge(Statistics(_limits(inputs), _limits(outputs), gram))

    def merge(self, other):
        """Takes in what was seen where the same weight is used again."""
        self.input_range = _union(self.input_range, other.input_range)
        self.output_range = _union(self.output_range, other.output_range)
        self.gram = self.gram + other.gram
        self.is_last |= other.is_last


def _limits(values):
    return float(values.min()), float(values.max())


def _union(a, b):
    return min(a[0], b[0]), max(a[1], b[1])


class FullPass(tf.Module):
    """A model as one graph, one sentence at a time: ids in, its output out."""

    def __init__(self, model):
        super().__init__()
        self.model_variables = [variable.value for variable in model.weights]
        self._names = [tensor.name for tensor in model.inputs]
        as_dict = isinstance(model.input, dict)

        def run(**ids):
            inputs = ids if as_dict else ids[self._names[0]]
            return {"output": model(inputs, training=False)}

        specs = {name: tf.TensorSpec((1, None), tf.int32, name=name) for name in self._names}
        self.run = tf.function(run, autograph=False).get_concrete_function(**specs)


def statistics(calibration, converted):
    """Runs the sentences and returns what was `Seen`.

    Args:
        calibration: A `Calibration`.
        converted: `converted(module, signatures)` -> the bytes of a float32 LiteRT file.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    from keras_transformer.export.litert import flatbuffer

    with traced(weight_folding=False):  # as the graphs that the numbers are for
        module = FullPass(calibration.model)
    content = converted(module, {_SIGNATURE: module.run})
    products = list(flatbuffer.products(flatbuffer.read(content)))
    found = [Statistics() for _ in products]
    interpreter = Interpreter(
        model_content=content,
        # Delegates need not keep what they compute on the way.
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    run = interpreter.get_signature_runner(_SIGNATURE)
    rows = calibration.rows[:MOST_SENTENCES]
    for start in range(0, len(rows), _BATCH):
        seen = []
        for row in rows[start : start + _BATCH]:
            run(**{name: np.array([ids], "int32") for name, ids in row.items()})
            seen.append([_in_and_out(interpreter, product.op) for product in products])
        for statistic, pairs in zip(found, zip(*seen, strict=True), strict=True):
            statistic.add(*map(np.concatenate, zip(*pairs, strict=True)))
    found[-1].is_last = True
    return Seen(products, found)


class Seen:
    """`Statistics` of every product of the full pass, for products of the same rows anywhere."""

    def __init__(self, products, found):
        by_key, self._by_row = {}, {}
        for product, statistic in zip(products, found, strict=True):
            shared = by_key.setdefault(product.key, Statistics())
            shared.merge(statistic)
            self._by_row |= dict.fromkeys(product.row_keys(), shared)

    def statistics_of(self, product):
        """The `Statistics` of a `flatbuffer.WeightOp`, or `None` where a row is not known."""
        rows = product.row_keys()
        if not rows or not rows <= self._by_row.keys():
            return None
        first, *others = {id(self._by_row[row]): self._by_row[row] for row in rows}.values()
        merged = dataclasses.replace(first)
        for other in others:  # of the same input, whose gram matrix counts once
            merged.merge(dataclasses.replace(other, gram=0.0))
        return merged


def _in_and_out(interpreter, op):
    """What went into and came out of an op in the last run, (N, inputs) and (N, outputs)."""
    tensors = (interpreter.get_tensor(index) for index in (op.inputs[0], op.outputs[0]))
    return tuple(tensor.reshape(-1, tensor.shape[-1]) for tensor in tensors)
