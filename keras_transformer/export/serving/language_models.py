"""A language model as a server runs it: prompts in, prompts with their continuations out."""

import tensorflow as tf

from keras_transformer.decoding import generate
from keras_transformer.export.serving import inputs
from keras_transformer.export.serving.graphs import N_BEST, TEXT, TEXT_SIGNATURE, SearchGraphs

DESCRIPTIONS = {
    "serving_default": "Each prompt and what the model goes on with; empty for a prompt that is "
    "too long (`generate` tells which). An empty prompt starts from nothing.",
    "generate": "The `n_best` continuations of each prompt with the prompt before them, best "
    "first, with scores of the whole. n_best 0 means as many as the export's strategy gives. "
    "Behind `counts`, texts are empty and scores -1e30.",
    "generate_ids": "Pieces of a prompt without BOS and EOS, then pads, to these, what follows and "
    "EOS, then pads.",
}


class LanguageModelGraphs(SearchGraphs):
    """The graphs of a `TextGenerator`'s `ServingModule`.

    `serving_default`: `text` (B,) string -> `generated` (B,) string.
    `generate`: `text`, `n_best` (B,) int32 -> `generated` (B, N) string, `scores` (B, N) float32,
    `truncated` (B, N) boolean, `counts` (B,) int32, `status` (B,) string; N is fixed.
    `generate_ids`: `prompt_ids` (B, P) int32, pieces, then pads -> `target_ids` (B, T) int32, these
    and what follows and EOS, then pads, `status`.
    """

    ids_signature = "generate_ids"
    ids_input = tf.TensorSpec((None, None), tf.int32, name="prompt_ids")
    descriptions = DESCRIPTIONS

    @property
    def further_tokens(self):
        """The tokens behind a prompt, which take memory as the prompt's do."""
        return self.translator.strategy.extra_length

    def _graphs(self):
        return self._generate_ids, {
            TEXT_SIGNATURE: (self._serving_default, [TEXT]),
            "generate": (self._generate, [TEXT, N_BEST]),
        }

    def _decoded(self, source_ids, strategy):
        return generate(self.translator.model, source_ids, strategy)

    def _prompts(self, text):
        """`prompt_ids` (B, P), at least a column wide, and (B,) boolean: the prompt is too long."""
        tokenizer, longest = self.translator.tokenizer, self.translator.max_source_length
        pieces, too_long = inputs.rows_of_text(text, tokenizer, longest, ends=False)
        return inputs.unended(pieces, tokenizer.pad_id), too_long

    def _without(self, ids, rows):
        return tf.where(rows[:, tf.newaxis], self.translator.model.config.pad_id, ids)

    def _serving_default(self, text):
        prompt_ids, too_long = self._prompts(text)
        ids = self._without(self._best_search(prompt_ids), too_long)
        return {"generated": self.translator.target_tokenizer.tf_decode(ids)}

    def _generate_ids(self, prompt_ids):
        prompt_ids, too_long, outside = inputs.rows_of_ids(
            prompt_ids, self.translator.model.config, self.translator.max_source_length
        )
        return {
            "target_ids": self._without(self._best_search(prompt_ids), too_long | outside),
            "status": inputs.status_of([(inputs.OUTSIDE, outside), (inputs.TOO_LONG, too_long)]),
        }

    def _generate(self, text, n_best):
        prompt_ids, too_long = self._prompts(text)
        n_best = inputs.as_many(n_best, text, "n_best")
        is_wrong = (n_best < 0) | (n_best > self.max_n_best)
        status = inputs.status_of([(inputs.BAD_N_BEST, is_wrong), (inputs.TOO_LONG, too_long)])
        ids, scores = self._scored_search(prompt_ids)
        wanted = tf.where(status == inputs.OK, self._wanted(n_best), 0)
        return {**self._hypotheses(ids, scores, wanted, "generated"), "status": status}
