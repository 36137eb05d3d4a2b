"""Language models and classifiers with their tokenizers: what a `Translator` is of a `Transformer`.

They hold what an export needs to know, and Python's answers, which it is compared with.
"""

from keras_transformer.arguments import check_flag, check_size
from keras_transformer.decoding import Greedy
from keras_transformer.export.python_answers import (
    checked_labels,
    class_pair,
    python_continuations,
    python_probabilities,
)
from keras_transformer.translation.arguments import check_tokenizer
from keras_transformer_runner.tokenizers.base import check_text_size


class TextModel:
    """A model with one tokenizer for both sides.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        vocab_size: V of the model.
        max_source_length: Most tokens of a text; at most the model's positions.
    """

    adds_eos = False

    def __init__(self, model, tokenizer, vocab_size, max_source_length):
        check_size(max_source_length=max_source_length)
        check_tokenizer(tokenizer, "tokenizer", model.config, vocab_size)
        self.model = model
        self.tokenizer = self.target_tokenizer = tokenizer
        positions = model.config.max_positions
        self.max_source_length = min(max_source_length, positions or max_source_length)

    def source_ids(self, text):
        """The ids of one text as the model takes them."""
        check_text_size(text, self.max_source_length)
        ids = [*self.tokenizer.encode(text), *[self.tokenizer.eos_id] * self.adds_eos]
        if len(ids) > self.max_source_length:
            raise ValueError(
                f"a text must have at most `max_source_length` = {self.max_source_length} tokens. "
                f"Received: {len(ids)} tokens, {text[:60]!r}…"
            )
        return ids


class TextGenerator(TextModel):
    """A `LanguageModel` that continues prompts.

    Args:
        model, tokenizer, max_source_length: See `TextModel`.
        strategy: The search; `Greedy()` when `None`.
    """

    def __init__(self, model, tokenizer, strategy, max_source_length):
        super().__init__(model, tokenizer, model.config.target_size, max_source_length)
        self.strategy = strategy or Greedy()
        self.strategy.check_ids(model.config, model.config.target_size)

    def answers(self, texts):
        """For each prompt the text of it and what follows."""
        rows = [self.source_ids(text) for text in texts]
        return [*map(self.tokenizer.decode, python_continuations(self.model, rows, self.strategy))]


class TextClassifier(TextModel):
    """A `SequenceClassifier` or a `TokenClassifier` of texts.

    Args:
        model, tokenizer, max_source_length: See `TextModel`.
        labels: Names of the classes, or `None`.
        adds_eos: Whether EOS follows a text's pieces, as it did in training.
    """

    def __init__(self, model, tokenizer, labels, adds_eos, max_source_length):
        super().__init__(model, tokenizer, model.config.vocab_size, max_source_length)
        check_flag(adds_eos=adds_eos)
        self.adds_eos = adds_eos
        self.labels = checked_labels(labels, model.num_classes)

    @property
    def names(self):
        """What each class is called: its number where it has no name."""
        return self.labels or [str(index) for index in range(self.model.num_classes)]

    def source_ids(self, text):
        ids = super().source_ids(text)
        if not ids:
            raise ValueError(
                f"every text to classify must have an id. Received: {text!r}, which has none"
            )
        return ids

    def probabilities(self, texts):
        """For each text an array (C,), or (S, C)."""
        return [python_probabilities(self.model, self.source_ids(text)) for text in texts]

    def pair(self, probabilities):
        """The classes of one text as `(text, ids)`."""
        return class_pair(probabilities, self.labels)
