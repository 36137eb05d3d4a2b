"""The graphs that a server runs, with their names: what a client of a SavedModel relies on."""

import abc
import dataclasses
import functools

import tensorflow as tf

from keras_transformer.decoding import decode, score
from keras_transformer.decoding.constraints import IMPOSSIBLE
from keras_transformer.decoding.generation import told_prefix
from keras_transformer.decoding.shortlist import candidate_inputs
from keras_transformer.export.backend import as_graph, variables
from keras_transformer.export.serving import inputs
from keras_transformer.export.serving.pieces import in_pieces
from keras_transformer.translation.translation import with_scores
from keras_transformer_runner.folder import prefix_fields

TEXT_SIGNATURE = "serving_default"
IDS_SIGNATURE = "translate_ids"
TEXT = tf.TensorSpec((None,), tf.string, name="text")
N_BEST = tf.TensorSpec((None,), tf.int32, name="n_best")
SOURCE_IDS = tf.TensorSpec((None, None), tf.int32, name="source_ids")

# Most tokens of the rows that run at once, pads included; what is larger runs in pieces, for a
# server's memory has a bound (benchmarks/serving_memory.py). The logits of all tokens are the most
# that `score` has, the cache of all tokens, in each beam, the most that a search has. Most calls
# are smaller: 32 rows of 128 tokens are one piece of a search.
SCORED_TOKENS, ENCODED_TOKENS, SEARCHED_TOKENS = 2048, 4096, 4096
SEARCHED_BEAMS = 4  # with more of them, as many tokens fewer

# What the export's own description says of each signature beside names and shapes.
DESCRIPTIONS = {
    "serving_default": "The translation of each text; empty for an empty text and for one that is "
    "too long (`translate` tells which).",
    "translate": "The `n_best` translations of each text, best first, with scores. n_best 0 means "
    "as many as the export's strategy gives. Behind `counts`, translations are empty and scores "
    "-1e30.",
    "translate_ids": "Pieces and EOS, then pads, to the same. Pads behind a row cost nothing.",
    "score": "The model's log-probability of a given translation, EOS included, with the search's "
    "length penalty in `score` and by token; 0 at pads.",
    "encode": "The encoder's states; 0 where `mask` is false, which is at pads.",
    "embed": "The mean of a text's encoder states, EOS's included.",
}


class ServingModule(tf.Module):
    """A translator, with its model and tokenizers, as exportable graphs.

    Or another object with a `model` and tokenizers, by graphs of its own: `LanguageModelGraphs`,
    `ClassifierGraphs`.

    No row runs longer than the translator's `max_source_length`, and none changes another's
    answer: a row that cannot be answered is empty, and its `status` names the fault.

    `serving_default`: `text` (B,) string -> `translation` (B,) string.
    `translate`: `text`, `n_best` (B,) int32 -> `translations` (B, N) string, `scores` (B, N)
    float32, `truncated` (B, N) boolean, `counts` (B,) int32, `status` (B,) string; N is fixed.
    `translate_ids`: `source_ids` (B, S) int32, pieces and EOS, then pads -> `target_ids` (B, T)
    int32, pieces and EOS, then pads, `status`.
    `score`: `text`, `target` (B,) string -> `log_prob`, `score` (B,) float32, `target_ids` (B, T)
    int32, `token_log_probs` (B, T) float32, `status`.
    `encode`: `text` -> `states` (B, S, D) float32, `mask` (B, S) boolean, `status`.
    `embed`: `text` -> `embedding` (B, D) float32, `status`.

    Args:
        translator: A `Translator`.
        ids_only: Whether only `translate_ids` is made, also under the name `serving_default`: no
            tokenizer, and none of its ops, is inside then.
        kind: The class of the graphs; `ServingGraphs` when `None`.
    """

    def __init__(self, translator, *, ids_only=False, kind=None):
        super().__init__()
        # Tracked so that they are saved: the weights, and the tokenizers' models.
        self.model_variables = variables(translator.model)
        if not ids_only:
            self.tokenizer = translator.tokenizer.tf_resources
            self.target_tokenizer = translator.target_tokenizer.tf_resources
        self.graphs = (kind or ServingGraphs)(translator, ids_only)

    @property
    def signatures(self):
        """Concrete functions by signature name."""
        return self.graphs.signatures


class SearchGraphs(abc.ABC):
    """Graphs of a model that searches.

    No `tf.Module`, which would save, and list beside the signatures, all functions that it holds.

    Args:
        translator: Anything with the `model`, `strategy`, `tokenizer`, `target_tokenizer` and
            `max_source_length` of a `Translator`.
        ids_only: See `ServingModule`.
    """

    ids_signature = IDS_SIGNATURE
    ids_input = SOURCE_IDS
    descriptions = DESCRIPTIONS
    further_tokens = 0  # of each row while it runs, for the size of a piece

    def __init__(self, translator, ids_only):
        self.translator = translator
        self.ids_only = ids_only

    def about(self, name):
        """What the description says of a signature."""
        return self.descriptions[self.ids_signature if self.ids_only else name]

    def facts(self):
        """The bounds and settings in the description."""
        own = self.translator
        longest, strategy = own.max_source_length, own.strategy
        limits = (
            longest + strategy.extra_length,
            strategy.max_length,
            own.model.config.max_positions,
        )
        return {
            "bounds": {
                **inputs.bounds(longest, self.ids_only),
                "target_tokens": min(limit for limit in limits if limit is not None),
                "n_best": self.max_n_best,
            },
            "strategy": repr(strategy),
            **prefix_fields(own.tokenizer, own.target_tokenizer),
        }

    @property
    def max_n_best(self):
        """N, the most answers to a text that a call can have."""
        strategy = self.translator.strategy
        return getattr(strategy, "beam_size", getattr(strategy, "n_best", 1))

    @functools.cached_property
    def signatures(self):
        """Concrete functions by signature name."""
        ids_graph, text_graphs = self._graphs()
        graphs = {self.ids_signature: (ids_graph, [self.ids_input])}
        if self.ids_only:
            graphs[TEXT_SIGNATURE] = graphs[self.ids_signature]
        else:
            graphs |= text_graphs
        return {
            name: as_graph(graph, specs).get_concrete_function()
            for name, (graph, specs) in graphs.items()
        }

    @abc.abstractmethod
    def _graphs(self):
        """The graph of ids, and those of texts with their inputs, by name."""

    @abc.abstractmethod
    def _decoded(self, source_ids, strategy):
        """What a search finds for rows of ids, a `DecodingResult`."""

    @functools.cached_property
    def _best_search(self):
        """`source_ids` -> best ids (B, T). Traced once for all signatures that need no scores."""
        strategy = self.translator.strategy
        if getattr(strategy, "scores", True):  # the other search finds the same
            return lambda source_ids: self._scored_search(source_ids)[0][:, 0]

        def search(source_ids):
            return (self._decoded(source_ids, strategy).ids,)

        return as_graph(
            lambda source_ids: self._searched(search, source_ids, (tf.int32,))[0],
            [self.ids_input],
        )

    @functools.cached_property
    def _scored_search(self):
        """`source_ids` -> ids (B, N, T) and scores (B, N)."""
        strategy, changes = self.translator.strategy, {}
        if hasattr(strategy, "token_log_probs"):  # which no signature gives
            changes["token_log_probs"] = strategy.token_log_probs
        strategy = dataclasses.replace(with_scores(strategy, self.max_n_best), **changes)

        def search(source_ids):
            found = self._decoded(source_ids, strategy).hypotheses
            return found.ids, found.scores

        return as_graph(
            lambda source_ids: self._searched(search, source_ids, (tf.int32, tf.float32)),
            [self.ids_input],
        )

    def _searched(self, search, source_ids, dtypes):
        beams = max(SEARCHED_BEAMS, self.translator.strategy.beams)
        tokens = SEARCHED_TOKENS * SEARCHED_BEAMS // beams
        return in_pieces(search, [source_ids], tokens, dtypes, self.further_tokens)

    def _wanted(self, n_best):
        """How many answers a row gets for its `n_best` (B,), of which 0 is the strategy's own."""
        own = getattr(self.translator.strategy, "n_best", 1)
        return tf.where(n_best == 0, own, n_best)

    def _hypotheses(self, ids, scores, wanted, name):
        """The first `wanted` (B,) of what a search has found: texts of this name, and more."""
        config, tokenizer = self.translator.model.config, self.translator.target_tokenizer
        given = (scores > IMPOSSIBLE / 2) & (tf.range(self.max_n_best) < wanted[:, tf.newaxis])
        ids = tf.where(given[:, :, tf.newaxis], ids, config.pad_id)
        texts = tokenizer.tf_decode(tf.reshape(ids, (-1, tf.shape(ids)[2])))
        ends = tf.reduce_any(ids == config.eos_id, axis=2)
        is_some = tf.reduce_any(ids != config.pad_id, axis=2)
        size = (-1, self.max_n_best)  # a size that is known stands in the signature
        return {
            name: tf.reshape(texts, size),
            "scores": tf.reshape(tf.where(given, scores, IMPOSSIBLE), size),
            "truncated": tf.reshape(is_some & ~ends, size),
            "counts": tf.reduce_sum(tf.cast(given, tf.int32), axis=1),
        }


class ServingGraphs(SearchGraphs):
    """The graphs of a translator's `ServingModule`."""

    def _graphs(self):
        target = tf.TensorSpec((None,), tf.string, name="target")
        return self._translate_ids, {
            TEXT_SIGNATURE: (self._serving_default, [TEXT]),
            "translate": (self._translate, [TEXT, N_BEST]),
            "score": (self._score, [TEXT, target]),
            "encode": (self._encode, [TEXT]),
            "embed": (self._embed, [TEXT]),
        }

    def facts(self):
        shortlist = self.translator.shortlist
        summary = {} if shortlist is None else {"shortlist": shortlist.summary}
        # What `compare` joins references of split text by.
        joiner = getattr(self.translator.target_tokenizer, "joiner", None)
        split = {} if joiner is None else {"joiner": joiner}
        return {**super().facts(), **summary, **split}

    def _decoded(self, source_ids, strategy):
        translator = self.translator
        options = told_prefix(translator.target_prefix_ids, source_ids)
        pad_id = translator.model.config.pad_id
        options |= candidate_inputs(translator.shortlist, source_ids, pad_id)
        return decode(translator.model, source_ids, strategy, **options)

    def _source(self, text):
        """`source_ids` (B, S) and (B,) boolean: the text is too long, and its row all pads."""
        tokenizer = self.translator.tokenizer
        pieces, too_long = inputs.rows_of_text(text, tokenizer, self.translator.max_source_length)
        return inputs.ended(pieces, too_long, tokenizer), too_long

    def _serving_default(self, text):
        ids = self._best_search(self._source(text)[0])
        return {"translation": self.translator.target_tokenizer.tf_decode(ids)}

    def _translate_ids(self, source_ids):
        translator = self.translator
        source_ids, too_long, outside = inputs.rows_of_ids(
            source_ids, translator.model.config, translator.max_source_length
        )
        return {
            "target_ids": self._best_search(source_ids),
            "status": inputs.status_of([(inputs.OUTSIDE, outside), (inputs.TOO_LONG, too_long)]),
        }

    def _translate(self, text, n_best):
        source_ids, too_long = self._source(text)
        n_best = inputs.as_many(n_best, text, "n_best")
        status = inputs.status_of(
            [
                (inputs.BAD_N_BEST, (n_best < 0) | (n_best > self.max_n_best)),
                (inputs.TOO_LONG, too_long),
            ]
        )
        ids, scores = self._scored_search(source_ids)
        # An empty text has one translation, which is empty.
        has_content = inputs.has_content(source_ids, self.translator.model.config)
        wanted = tf.where(has_content, self._wanted(n_best), 1)
        wanted = tf.where(status == inputs.OK, wanted, 0)
        return {**self._hypotheses(ids, scores, wanted, "translations"), "status": status}

    def _score(self, text, target):
        translator = self.translator
        config, tokenizer = translator.model.config, translator.target_tokenizer
        source_ids, too_long = self._source(text)
        target = inputs.as_many(target, text, "target")
        pieces, target_too_long = inputs.rows_of_text(
            target, tokenizer, translator.max_source_length
        )
        # No text for no text has no tokens, not even EOS, and so the log-probability 0.
        is_none = ~inputs.has_content(source_ids, config) & (pieces.row_lengths() == 0)
        blank = too_long | target_too_long | is_none
        pieces = inputs.begun(pieces, translator.target_prefix_ids)
        target_ids = inputs.ended(inputs.without(pieces, blank), blank, tokenizer)
        log_probs, totals = in_pieces(
            self._scores, [source_ids, target_ids], SCORED_TOKENS, (tf.float32, tf.float32)
        )
        lengths = tf.reduce_sum(tf.cast(target_ids != config.pad_id, tf.float32), axis=1)
        return {
            "log_prob": totals,
            "score": translator.strategy.score_of(totals, lengths),
            "target_ids": target_ids,
            "token_log_probs": log_probs,
            "status": inputs.status_of(
                [(inputs.TOO_LONG, too_long), (inputs.TARGET_TOO_LONG, target_too_long)]
            ),
        }

    def _scores(self, source_ids, target_ids):
        """What `score` gives, but for the prefix, which is told and has log-probability 0."""
        found = score(self.translator.model, source_ids, target_ids)
        told = len(self.translator.target_prefix_ids)
        if not told:
            return found
        log_probs = tf.where(tf.range(tf.shape(target_ids)[1]) < told, 0.0, found.log_probs)
        return log_probs, tf.reduce_sum(log_probs, axis=1)

    def _encode(self, text):
        source_ids, too_long = self._source(text)
        mask = source_ids != self.translator.model.config.pad_id

        def encode(source_ids):
            return (tf.cast(self.translator.model.encode(source_ids).states, tf.float32),)

        (states,) = in_pieces(encode, [source_ids], ENCODED_TOKENS, (tf.float32,))
        states = tf.where(mask[:, :, tf.newaxis], states, 0.0)
        status = inputs.status_of([(inputs.TOO_LONG, too_long)])
        return {"states": states, "mask": mask, "status": status}

    def _embed(self, text):
        found = self._encode(text)
        lengths = tf.reduce_sum(tf.cast(found["mask"], tf.float32), axis=1, keepdims=True)
        mean = tf.reduce_sum(found["states"], axis=1) / tf.maximum(lengths, 1.0)
        return {"embedding": mean, "status": found["status"]}
