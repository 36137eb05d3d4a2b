"""A classifier as a server runs it: texts in, probabilities and classes out."""

import functools

import tensorflow as tf

from keras_transformer.export.backend import as_graph
from keras_transformer.export.serving import graphs, inputs
from keras_transformer.export.serving.pieces import in_pieces
from keras_transformer.models import TokenClassifier
from keras_transformer_runner.folder import prefix_fields

IDS_SIGNATURE = "classify_ids"
DESCRIPTIONS = {
    "serving_default": "The probability of each class for each text, or for each of its tokens "
    "`source_ids`, and the likeliest class with its name, which is its number where it has none. "
    "Where there is no answer, and at pads, probabilities are 0, classes -1 and names empty.",
    "classify_ids": "Pieces, and EOS where training had it, then pads, to the same.",
}


class ClassifierGraphs:
    """The graphs of a `TextClassifier`'s `ServingModule`.

    `serving_default`: `text` (B,) string -> `probabilities` float32, `class_ids` int32, `labels`
    string, `status` (B,) string. Of a `SequenceClassifier` these are (B, C), (B,), (B,), of a
    `TokenClassifier` (B, S, C), (B, S), (B, S), and there are `source_ids` (B, S) int32.
    `classify_ids`: `source_ids` (B, S) int32 -> the same.

    Args:
        classifier: A `TextClassifier`.
        ids_only: See `ServingModule`.
    """

    ids_input = graphs.SOURCE_IDS

    def __init__(self, classifier, ids_only):
        self.classifier = classifier
        self.ids_only = ids_only

    def about(self, name):
        """What the description says of a signature."""
        return DESCRIPTIONS[IDS_SIGNATURE if self.ids_only else name]

    def facts(self):
        """The bounds and settings in the description."""
        own = self.classifier
        return {
            "bounds": inputs.bounds(own.max_source_length, self.ids_only),
            "labels": own.names,
            "adds_eos": own.adds_eos,
            **prefix_fields(own.tokenizer, own.tokenizer),
        }

    @functools.cached_property
    def signatures(self):
        """Concrete functions by signature name."""
        found = {IDS_SIGNATURE: (self._classify_ids, [self.ids_input])}
        if self.ids_only:
            found[graphs.TEXT_SIGNATURE] = found[IDS_SIGNATURE]
        else:
            found[graphs.TEXT_SIGNATURE] = (self._serving_default, [graphs.TEXT])
        return {
            name: as_graph(graph, specs).get_concrete_function()
            for name, (graph, specs) in found.items()
        }

    def _serving_default(self, text):
        own = self.classifier
        tokenizer, ends = own.tokenizer, own.adds_eos
        pieces, too_long = inputs.rows_of_text(text, tokenizer, own.max_source_length, ends)
        if ends:
            source_ids = inputs.ended(pieces, too_long, tokenizer)
        else:
            source_ids = inputs.unended(pieces, tokenizer.pad_id)
        return self._classified(source_ids, [(inputs.TOO_LONG, too_long)])

    def _classify_ids(self, source_ids):
        own = self.classifier
        source_ids, too_long, outside = inputs.rows_of_ids(
            source_ids, own.model.config, own.max_source_length
        )
        faults = [(inputs.OUTSIDE, outside), (inputs.TOO_LONG, too_long)]
        return self._classified(source_ids, faults)

    def _classified(self, source_ids, faults):
        model = self.classifier.model

        def run(ids):
            logits = model(ids, training=False)
            return (tf.nn.softmax(tf.cast(logits, tf.float32), axis=-1),)

        (found,) = in_pieces(run, [source_ids], graphs.ENCODED_TOKENS, (tf.float32,))
        is_token = source_ids != model.config.pad_id
        is_empty = ~tf.reduce_any(is_token, axis=1)
        status = inputs.status_of([*faults, (inputs.NO_TOKENS, is_empty)])
        is_by_token = isinstance(model, TokenClassifier)
        is_given = is_token if is_by_token else status == inputs.OK
        class_ids = tf.where(is_given, tf.argmax(found, axis=-1, output_type=tf.int32), -1)
        names = tf.constant(self.classifier.names)
        return {
            "probabilities": tf.where(is_given[..., tf.newaxis], found, 0.0),
            "class_ids": class_ids,
            "labels": tf.where(is_given, tf.gather(names, tf.maximum(class_ids, 0)), ""),
            **({"source_ids": source_ids} if is_by_token else {}),
            "status": status,
        }
