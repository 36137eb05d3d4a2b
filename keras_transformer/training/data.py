"""The corpora of an experiment: checked, tokenized, and as the batches of `fit`."""

import dataclasses
import functools
import itertools

from keras_transformer.arguments import check_size
from keras_transformer.data import (
    Faults,
    JoinedCorpus,
    MixedCorpus,
    PreparedCorpus,
    batches_per_epoch,
    choose_buckets,
    evaluation_batches,
    join_tokenized,
    pack_corpus,
    tokenize_corpus,
    training_batches,
)
from keras_transformer.data.scored import with_probabilities
from keras_transformer.experiment.corpora import training_weights
from keras_transformer.experiment.tokenizers import Tokenizers
from keras_transformer.models.checked_data import Ids
from keras_transformer.training.distribution import distributed, is_shared, with_rows_filled
from keras_transformer_runner.streams import log

_SAMPLES = 64


def choose_samples(corpora, tokenizer, max_length):
    """Source sentences of the validation corpus, or else of the training corpus."""
    corpus = corpora[1] or corpora[0]
    pairs = corpus
    if isinstance(corpus, PreparedCorpus):
        pairs = corpus.decoded()
    elif isinstance(corpus, JoinedCorpus):
        pairs = corpus.in_turn()
    sources = (source for source, _ in pairs if source.strip())
    fitting = (text for text in sources if len(tokenizer.encode(text)) < max_length)
    return list(itertools.islice(fitting, _SAMPLES))


def make_tokenizers(section, corpus):
    """The tokenizers of a run: those of a prepared corpus, or what a `TokenizerSection` asks for.

    Raises:
        ValueError: if both say which.
    """
    if not isinstance(corpus, PreparedCorpus):
        return Tokenizers.make(section, corpus)
    if section != type(section)():
        raise ValueError(
            "a prepared corpus has its tokenizers, so [tokenizer] must be left out. "
            f"Received: {section}"
        )
    source, target = corpus.source_tokenizer, corpus.target_tokenizer
    return Tokenizers(source, source if source.fingerprint == target.fingerprint else target)


def _tokenized(corpus, tokenizers, max_length, places, mix=join_tokenized):
    """A corpus as ids, without the pairs that need more than `max_length` or `places`."""
    if corpus is None:
        return None
    if isinstance(corpus, PreparedCorpus):  # which has its own `max_length`
        corpus.check_tokenizers(*tokenizers)
        return corpus if places is None else corpus.up_to(places)
    max_length = max_length if places is None else min(max_length, places)
    parts = [
        tokenize_corpus(
            part, tokenizers.source, target_tokenizer=tokenizers.target, max_length=max_length
        )
        for part in (corpus.parts if isinstance(corpus, JoinedCorpus) else [corpus])
    ]
    return mix(parts) if isinstance(corpus, JoinedCorpus) else parts[0]


def _mixed(parts, section):
    """Tokenized corpora as one, in which an epoch has as many pairs of each as a section says."""
    weights = training_weights(section, [len(part) for part in parts])
    if all(weight == 1 for weight in weights.values()):
        return join_tokenized(parts)
    mixed = MixedCorpus(parts, list(weights.values()))
    for part, (name, weight) in zip(parts, weights.items(), strict=True):
        log(f"  {name}: {len(part):,} pairs, weight {weight:.3g}")
    return mixed


def _scored(corpus, section, tokenizers):
    """A tokenized corpus with what the teachers say of it."""
    if section.distilled is None:
        raise ValueError(
            "`training.teacher_weight` goes with `data.distilled`. Received: distilled=None"
        )
    return with_probabilities(corpus, section.distilled, tokenizers)


def _buckets(corpus, places):
    """`choose_buckets`, but no bucket is longer than the model has places."""
    chosen = choose_buckets(corpus)
    return chosen if places is None else tuple(min(bucket, places) for bucket in chosen)


def _left_out(corpus):
    """What a tokenized corpus lacks, as the end of a line; nothing where it has all."""
    # The lines of several corpora together are not known.
    faults = Faults(corpus.skipped, getattr(corpus, "skipped_lines", {}))
    return f"; left out: {faults}" if str(faults) else ""


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """The tokenized corpora as batches.

    Attributes:
        training: `TokenizedCorpus`, `MixedCorpus` or `PreparedCorpus`.
        valid: The same of the validation corpus, or `None`.
        options: The `TrainingSection`.
        buckets: Lengths that batches are padded to.
        valid_buckets: The same of the validation batches.
        steps: Batches in an epoch.
        tokenizers: `Tokenizers`.
        strategy: The `tf.distribute.Strategy`, or `None`.
        row_multiple: What the rows of a batch must divide by.
    """

    training: object
    valid: object
    options: object
    buckets: tuple
    valid_buckets: tuple | None
    steps: int
    tokenizers: Tokenizers
    strategy: object = None
    row_multiple: int = 1

    def check_validation(self):
        """Raises ValueError for options that need validation data, where there are none."""
        options = {name: getattr(self.options, name) for name in ("score_every_epochs", "patience")}
        if self.valid is None and any(options.values()):
            raise ValueError(
                "`training.score_every_epochs` and `training.patience` need validation data, such "
                f"as `data.valid_source`. Received: none, and {options}"
            )

    @classmethod
    def make(cls, experiment, corpora, tokenizers, strategy=None, row_multiple=1):
        options, length = experiment.training, experiment.data.max_length
        places = experiment.model.get("max_positions")
        most = options.buckets[-1] if options.buckets else places
        mix = functools.partial(_mixed, section=experiment.data)
        training = _tokenized(corpora[0], tokenizers, length, most, mix)
        if options.teacher_weight:
            training = _scored(training, experiment.data, tokenizers)
        valid = _tokenized(corpora[1], tokenizers, length, places)
        buckets = options.buckets or _buckets(training, places)
        if options.pack:
            if isinstance(training, PreparedCorpus):
                raise ValueError(
                    "`training.pack` is for a corpus in memory. "
                    f"Received: the prepared corpus {training.name}"
                )
            if isinstance(training, MixedCorpus):
                raise ValueError(
                    "`training.pack` does not go with weights of sources and a temperature. "
                    f"Received: weights={training.weights}"
                )
            buckets = buckets[-1:]
            pairs = len(training)
            training = pack_corpus(training, tokenizers.source, length=buckets[0])
            log(f"packed {pairs:,} pairs into {len(training):,} rows")
        steps = batches_per_epoch(training, batch_tokens=options.batch_tokens, buckets=buckets)
        count = "1 XLA program" if len(buckets) == 1 else f"{len(buckets)} XLA programs"
        programs = f", so at most {count} of the training step"
        log(
            f"training on {len(training):,} {'rows' if options.pack else 'pairs'}, {steps:,} "
            f"batches an epoch in lengths {list(buckets)}{programs * options.jit_compile}"
            f"{_left_out(training)}"
        )
        if valid is not None and _left_out(valid):
            log(f"validating on {len(valid):,} pairs{_left_out(valid)}")
        of_valid = None if valid is None else _buckets(valid, places)
        return cls(
            *(training, valid, options, buckets, of_valid, steps, tokenizers, strategy),
            row_multiple=row_multiple,
        )

    def batches(self, epoch, step):
        """The training batches from step `step` of epoch `epoch`, without end."""
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
                batches = _given_twice(batches)
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
                self.valid,
                self.tokenizers.source,
                batch_tokens=self.options.batch_tokens,
                buckets=self.valid_buckets,
            )
            return _given_twice(batches) if self.options.r_drop else batches

        return self._shared(make) if shared else self._filled(make())

    @property
    def validation_steps(self):
        """The number of validation batches; `None` without validation data."""
        if self.valid is None:
            return None
        return batches_per_epoch(
            self.valid, batch_tokens=self.options.batch_tokens, buckets=self.valid_buckets
        )

    def _shared(self, make):
        if not is_shared(self.strategy):
            return self._filled(make())
        source, target = self.tokenizers
        sizes = {"source_ids": source.vocab_size, "target_ids": target.vocab_size}
        ids = Ids(sizes, target.vocab_size, target.pad_id)
        return distributed(self.strategy, make, source.pad_id, ids, self._copies)

    def _filled(self, batches):
        pad_id = self.tokenizers.source.pad_id
        return with_rows_filled(batches, self.row_multiple, pad_id, self._copies)

    @property
    def _copies(self):
        """How often a batch holds its rows."""
        return 2 if self.options.r_drop else 1


def _given_twice(batches):
    """Batches whose rows come again, as R-Drop's loss takes them."""
    import tensorflow as tf

    @tf.autograph.experimental.do_not_convert
    def twice(inputs, labels):
        inputs = {name: tf.concat([ids, ids], axis=0) for name, ids in inputs.items()}
        return inputs, tf.concat([labels, labels], axis=0)

    return batches.map(twice)


def weighted_for_accumulation(batches, count, pad_id):
    """Gives batches sample weights, so that the loss sees `count` of them as a single one.

    Keras averages the gradients of `gradient_accumulation_steps` batches, whatever they hold. The
    weight of every row of a batch is `count / tokens`, where `tokens` are the real target tokens
    of its `count` batches: then the average of gradients of a loss with `reduction="sum"` is the
    gradient of the mean over all these tokens.

    Args:
        batches: A `tf.data.Dataset` of `(inputs, labels (B, T))`, from the first batch of an
            update on.
        count: Batches an update.
        pad_id: The label that is no token.

    Returns:
        A `tf.data.Dataset` of `(inputs, labels, weights)`, weights float32 (B,).
    """
    import tensorflow as tf

    check_size(count=count)

    @tf.autograph.experimental.do_not_convert
    def tokens_too(total, ids):
        return total + tf.math.count_nonzero(ids != pad_id, dtype=tf.int32)

    @tf.autograph.experimental.do_not_convert
    def weighted(inputs, labels):
        weight = tf.cast(count / tf.maximum(labels.reduce(0, tokens_too), 1), tf.float32)

        @tf.autograph.experimental.do_not_convert
        def with_weight(inputs, labels):
            return inputs, labels, tf.fill(tf.shape(labels)[:1], weight)

        return tf.data.Dataset.zip((inputs, labels)).map(with_weight)

    return batches.window(count).flat_map(weighted)
