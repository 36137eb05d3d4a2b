"""BLEU and chrF of real decoding, while a model trains."""

import keras

from keras_transformer.decoding import Greedy
from keras_transformer.evaluation import text_scores
from keras_transformer.translation import Translator
from keras_transformer_runner.streams import log


class ValidationBleu(keras.callbacks.Callback):
    """Translates a validation set greedily at the end of epochs; adds `val_bleu` and `val_chrf`.

    The scores join the logs of the epoch, so callbacks that come later see them. Each signature
    is printed once.

    Args:
        model: Function that gives the model to translate with: the same object each time, with
            the current weights (see `TrainingCheckpoint.snapshot_model`), so that its graph is
            traced once.
        tokenizers: `Tokenizers`.
        pairs: `(source, target)` strings.
        every: Epochs between two scores.
        max_source_length: Longer sources, in tokens, are left out.
    """

    def __init__(self, model, tokenizers, pairs, *, every=1, max_source_length=1024):
        super().__init__()
        self.every = every
        self._snapshot = model
        self._tokenizers = tokenizers
        self._translator = None
        self._limit = max_source_length
        self._pairs, self._left_out = [], 0
        for source, target in pairs:
            if source.strip() and len(tokenizers.source.encode(source)) < max_source_length:
                self._pairs.append((source, tokenizers.target.plain_text(target)))
            else:
                self._left_out += 1

    def scores(self, weights_of=None):
        """`{"bleu": Score, "chrf": Score}` of the model with its current or with other weights.

        Args:
            weights_of: A model of the same architecture.
        """
        model = self._snapshot()
        if weights_of is not None:
            model.set_weights(weights_of.get_weights())
        if self._translator is None:
            self._translator = Translator(
                model,
                self._tokenizers.source,
                Greedy(),
                target_tokenizer=self._tokenizers.target,
                max_source_length=self._limit,
            )
        sources, references = zip(*self._pairs, strict=True)
        return text_scores(self._translator.translate(sources), references)

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.every:
            return
        first = self._translator is None
        if first and self._left_out:
            log(
                f"val_bleu and val_chrf of {len(self._pairs):,} pairs; left out: "
                f"{self._left_out:,} with a source that is blank or longer than {self._limit:,} ids"
            )
        for name, score in self.scores().items():
            logs[f"val_{name}"] = score.value
            log(f"val_{name} {score.value:.2f}" + (f"  {score.signature}" if first else ""))
