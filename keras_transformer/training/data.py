"""The corpora of an experiment: checked, tokenized, and as the batches of `fit`."""

import dataclasses
import hashlib
import itertools

from keras_transformer.text import (
    ParallelCorpus,
    batches_per_epoch,
    choose_buckets,
    evaluation_batches,
    tokenize_corpus,
    training_batches,
)
from keras_transformer.training.accumulation import weighted_for_accumulation
from keras_transformer.training.progress import say
from keras_transformer.training.replicas import distributed
from keras_transformer.training.strategies import is_shared
from keras_transformer.training.tokenizers import Tokenizers

_SAMPLES = 64


def open_corpora(section):
    """The training and the validation corpus (or `None`), both read through once.

    Args:
        section: A `DataSection`.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a corpus is not usable.
    """
    corpora = []
    for name, source, target in (
        ("training", section.tsv or section.source, section.target),
        ("validation", section.valid_tsv or section.valid_source, section.valid_target),
    ):
        if source is None:
            corpora.append(None)
            continue
        corpus = ParallelCorpus(source, target)
        report = corpus.check()
        say(f"{name}: {report.pairs:,} pairs, {report.skipped:,} of them with an empty side")
        corpora.append(corpus)
    return corpora


def choose_samples(corpora, tokenizer, max_length):
    """Source sentences of the validation corpus, or else of the training corpus."""
    sources = (source for source, _ in corpora[1] or corpora[0] if source.strip())
    fitting = (text for text in sources if len(tokenizer.encode(text)) < max_length)
    return list(itertools.islice(fitting, _SAMPLES))


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """The tokenized corpora as batches.

    Attributes:
        training: `TokenizedCorpus`.
        valid: The same of the validation corpus, or `None`.
        options: The `TrainingSection`.
        buckets: Lengths that batches are padded to.
        steps: Batches in an epoch.
        tokenizers: `Tokenizers`.
        strategy: The `tf.distribute.Strategy`, or `None`.
    """

    training: object
    valid: object
    options: object
    buckets: tuple
    steps: int
    tokenizers: Tokenizers
    strategy: object = None

    @classmethod
    def make(cls, experiment, corpora, tokenizers, strategy=None):
        options, length = experiment.training, experiment.data.max_length
        training, valid = (
            corpus
            and tokenize_corpus(
                corpus, tokenizers.source, target_tokenizer=tokenizers.target, max_length=length
            )
            for corpus in corpora
        )
        buckets = options.buckets or choose_buckets(training.pair_lengths)
        steps = batches_per_epoch(training, batch_tokens=options.batch_tokens, buckets=buckets)
        say(
            f"training on {len(training.source_lengths):,} pairs, {steps:,} batches an epoch in "
            f"lengths {list(buckets)}, so at most {len(buckets)} XLA programs of the training "
            f"step; left out: {training.skipped}"
        )
        return cls(training, valid, options, buckets, steps, tokenizers, strategy)

    def batches(self, epoch, step):
        """The training batches from step `step` of epoch `epoch` on, without end."""
        count = self.options.accumulate_batches
        # An update may begin before the step, even in the epoch before.
        ahead = (epoch * self.steps + step) % count
        first = epoch * self.steps + step - ahead

        def make():
            batches = training_batches(
                self.training,
                self.tokenizers.source,
                batch_tokens=self.options.batch_tokens,
                buckets=self.buckets,
                seed=self.options.seed,
                start_epoch=first // self.steps,
                skip_batches=first % self.steps,
            )
            if self.options.r_drop:
                batches = batches.map(_given_twice)
            if count > 1:
                pad_id = self.tokenizers.source.pad_id
                batches = weighted_for_accumulation(batches, count, pad_id).skip(ahead)
            return batches

        return self._shared(make)

    def validation_batches(self, *, shared=True):
        """The validation batches once, or `None`; `shared` by the strategy's replicas."""
        if self.valid is None:
            return None

        def make():
            batches = evaluation_batches(
                self.valid, self.tokenizers.source, batch_tokens=self.options.batch_tokens
            )
            return batches.map(_given_twice) if self.options.r_drop else batches

        return self._shared(make) if shared else make()

    @property
    def validation_steps(self):
        """Their number; `None` without validation data."""
        if self.valid is None:
            return None
        return batches_per_epoch(self.valid, batch_tokens=self.options.batch_tokens)

    def _shared(self, make):
        if not is_shared(self.strategy):
            return make()
        return distributed(self.strategy, make, self.tokenizers.source.pad_id)

    def fingerprint(self):
        """Identifies the training data."""
        digest = hashlib.sha256()
        for name in ("source_values", "source_lengths", "target_values", "target_lengths"):
            digest.update(getattr(self.training, name).tobytes())
        return digest.hexdigest()


def _given_twice(inputs, labels):
    """A batch whose rows come again, as R-Drop's loss takes them."""
    import tensorflow as tf

    twice = {name: tf.concat([ids, ids], axis=0) for name, ids in inputs.items()}
    return twice, tf.concat([labels, labels], axis=0)
