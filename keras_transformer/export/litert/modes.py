"""The number formats of a LiteRT file, and what each of them promises."""

import dataclasses

import keras_transformer.arguments as arguments

FLOAT, DYNAMIC, STATIC = "float", "dynamic", "static"


@dataclasses.dataclass(frozen=True)
class Mode:
    """A number format and its promise. An export that breaks the promise fails.

    Weights means the matrices: embeddings and the kernels of dense layers. Biases and the gains of
    norms stay float32 in every mode, and so do attention's own products, softmax and norms.

    Attributes:
        weight_bits: Bits of a weight: 32 and 16 are floats, 8 and 4 integers with a float scale a
            row (an output channel), which is also a row of the embedding. In a mode of 4 bits, a
            weight with an odd number of inputs is stored with 8.
        products: What multiplies with the weights. `"float"`: floats, with the weights widened to
            float32. `"dynamic"`: 8-bit integers, whose scale is computed from the numbers of each
            call. `"static"`: 8-bit integers, whose scale was measured on sentences at export; the
            output projection stays dynamic, as 256 levels are too few to tell the best logits
            apart.
        promised_agreement: Least share of Python's tokens.
        promised_bleu_loss: Most BLEU, of 100, below Python's; checked where there are references.
        promised_bytes: Most bytes of weights for each parameter of the model, with 32 KiB more for
            constants. The file also holds scales (12 bytes a row) and the graph.
    """

    weight_bits: int
    products: str
    promised_agreement: float
    promised_bleu_loss: float
    promised_bytes: float

    @property
    def is_calibrated(self):
        """Whether the export runs sentences through the model to choose the numbers."""
        return self.products == STATIC or self.weight_bits == 4


# Measured with 2.6 million parameters on Multi30k: `benchmarks/results/litert_modes/report.md`.
# A model that is small for its vocabulary, or badly trained, may come out below.
MODES = {
    "float32": Mode(32, FLOAT, 1.0, 0.0, 4.0),
    "float16": Mode(16, FLOAT, 0.95, 0.1, 2.1),
    "int8": Mode(8, DYNAMIC, 0.8, 0.2, 1.1),
    "int8_weight_only": Mode(8, FLOAT, 0.8, 0.2, 1.1),
    "int8_full": Mode(8, STATIC, 0.7, 1.0, 1.1),
    "int4": Mode(4, DYNAMIC, 0.5, 0.7, 0.6),
}


def mode_named(name):
    """The `Mode` of a name.

    Raises:
        ValueError: if there is none.
    """
    arguments.check_choice(MODES, mode=name)
    return MODES[name]
