"""What a SavedModel is compared with, and warmed up with: samples and Python's answers to them.

A class for each kind of graphs. `columns` are the inputs of all signatures by name, `pairs` the
`(text, ids)` of Python's answer to each sample, `served` those of the loaded SavedModel.
"""

import numpy as np

from keras_transformer.export.python_answers import check_probabilities
from keras_transformer.export.serving.classifiers import IDS_SIGNATURE as CLASSIFY_IDS
from keras_transformer.export.serving.graphs import TEXT_SIGNATURE
from keras_transformer.translation.translator import pad_rows


class TranslatorComparison:
    """Of a `Translator`.

    Args:
        graphs: The `ServingGraphs`, or others with a search.
        samples: Texts.
    """

    output = "translation"

    def __init__(self, graphs, samples):
        self.graphs, self.owner = graphs, graphs.translator
        self.text = as_bytes(samples)
        rows = [self.owner.source_ids(text) for text in samples]
        self.ids = pad_rows(rows, self.owner.tokenizer.pad_id)
        self.expected = self._texts(samples)

    def _texts(self, samples):
        return self.owner.translate(samples)

    @property
    def columns(self):
        """Inputs by name."""
        found = {"text": self.text, self.graphs.ids_input.name: self.ids}
        return {**found, "target": as_bytes(self.expected)}

    @property
    def pairs(self):
        """Python's answers."""
        return [self._pair(text) for text in self.expected]

    def call(self, signatures):
        """The signature that is compared, and its inputs."""
        if self.graphs.ids_only:
            return signatures[self.graphs.ids_signature], {self.graphs.ids_input.name: self.ids}
        return signatures[TEXT_SIGNATURE], {"text": self.text}

    def served(self, signatures):
        """The SavedModel's answers."""
        run, inputs = self.call(signatures)
        found = run(**inputs)
        if self.graphs.ids_only:
            texts = map(self.owner.target_tokenizer.decode, found["target_ids"].numpy())
        else:
            texts = (text.decode() for text in found[self.output].numpy())
        return [self._pair(text) for text in texts]

    def _pair(self, text):
        return text, self.owner.target_tokenizer.encode(text)


class GeneratorComparison(TranslatorComparison):
    """Of a `TextGenerator`."""

    output = "generated"

    def _texts(self, samples):
        return self.owner.answers(samples)


class ClassifierComparison:
    """Of a `TextClassifier`; its texts are names of classes, its ids their numbers.

    Args:
        graphs: The `ClassifierGraphs`.
        samples: Texts.
    """

    def __init__(self, graphs, samples):
        self.graphs, self.owner = graphs, graphs.classifier
        self.text = as_bytes(samples)
        rows = [self.owner.source_ids(text) for text in samples]
        self.counts, self.ids = [*map(len, rows)], pad_rows(rows, self.owner.tokenizer.pad_id)
        self.expected = self.owner.probabilities(samples)

    @property
    def columns(self):
        """Inputs by name."""
        return {"text": self.text, self.graphs.ids_input.name: self.ids}

    @property
    def pairs(self):
        """Python's answers."""
        return [*map(self.owner.pair, self.expected)]

    def call(self, signatures):
        """The signature that is compared, and its inputs."""
        if self.graphs.ids_only:
            return signatures[CLASSIFY_IDS], {self.graphs.ids_input.name: self.ids}
        return signatures[TEXT_SIGNATURE], {"text": self.text}

    def served(self, signatures):
        """The SavedModel's answers.

        Raises:
            ParityError: if it is one of float32 and gives other probabilities.
        """
        run, inputs = self.call(signatures)
        rows = run(**inputs)["probabilities"].numpy()
        if rows.ndim == 3:  # a row of each token
            rows = [row[:count] for row, count in zip(rows, self.counts, strict=True)]
        if self.owner.model.dtype_policy.compute_dtype == "float32":
            check_probabilities(self.expected, rows)
        return [*map(self.owner.pair, rows)]


def as_bytes(texts):
    """Strings as an array that TensorFlow takes."""
    return np.array([text.encode("utf-8", "surrogatepass") for text in texts], object)
