"""`train`: from an experiment to a run folder with a trained model."""

import contextlib
import dataclasses
import hashlib
import itertools
import sys
from pathlib import Path

import keras
import numpy as np

from keras_transformer.models import Transformer
from keras_transformer.text import (
    ParallelCorpus,
    SentencePieceTokenizer,
    batches_per_epoch,
    choose_buckets,
    evaluation_batches,
    tokenize_corpus,
    training_batches,
)
from keras_transformer.training.callbacks import Clock, MetricsFile, TimeBudget
from keras_transformer.training.checkpoint import (
    BEST_FILE,
    TrainingCheckpoint,
    average_weights,
    write_atomically,
)
from keras_transformer.training.loss import SmoothedCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy, TokenMeanLoss
from keras_transformer.training.run_folder import (
    CONFIG_FILE,
    EXPERIMENT_FILE,
    METRICS_FILE,
    MODEL_FILE,
    SAMPLES_FILE,
    TOKENIZER_FILE,
    check_folder,
    create_folder,
)
from keras_transformer.training.schedule import PaperSchedule

_SAMPLES = 64


class _AsTimeAllows(int):
    """A number of epochs that Keras' progress does not show, since only the time is limited."""

    def __format__(self, spec):
        return "(as time allows)"


def train(experiment, run_dir, *, resume=True):
    """Trains a model and leaves everything about it in a folder.

    The folder gets `config.json`, `experiment.toml`, `tokenizer.model`, `samples.txt`,
    `checkpoints/`, `metrics.jsonl` (a line an epoch), `tensorboard/` and, at the end,
    `model.keras`: the average of the last snapshots or the single best one, whichever has the
    lower validation loss; without validation data the average. Nothing is created before the
    inputs have been checked. Killed at any moment, the same call goes on from the last checkpoint
    to the same weights.

    Args:
        experiment: An `Experiment`.
        run_dir: The folder, new or of the same experiment interrupted.
        resume: Whether an interrupted run may go on.

    Returns:
        `run_dir` as a `Path`.

    Raises:
        FileExistsError: if the folder holds something else, another experiment, a finished run,
            or an interrupted one and `resume` is `False`.
        FileNotFoundError: if a corpus file is missing.
        ValueError: if the corpus or the experiment is not usable, or training diverges.
    """
    run_dir = Path(run_dir)
    resuming = check_folder(run_dir, experiment, resume)
    corpora = _check_corpora(experiment)
    tokenizer = (
        SentencePieceTokenizer.load(run_dir / TOKENIZER_FILE)
        if resuming
        else _train_tokenizer(experiment, corpora)
    )
    config = experiment.config(
        vocab_size=tokenizer.vocab_size,
        pad_id=tokenizer.pad_id,
        unk_id=tokenizer.unk_id,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )
    data = _Data.make(experiment, corpora, tokenizer)
    # Whatever can be wrong with the inputs has been found by now.
    keras.utils.set_random_seed(experiment.training.seed)
    model = Transformer(config)
    compile_model(model, experiment.training)
    if not resuming:
        samples = _samples(corpora, tokenizer, experiment.data.max_length)
        create_folder(
            run_dir,
            {
                CONFIG_FILE: config.to_json(),
                EXPERIMENT_FILE: experiment.to_toml(),
                SAMPLES_FILE: "".join(f"{text}\n" for text in samples),
            },
            tokenizer,
        )
    _say(f"{model.count_params():,} weights, vocabulary {config.vocab_size}")
    # Keras prints its progress on standard output, which belongs to the caller.
    with contextlib.redirect_stdout(sys.stderr):
        checkpoint = _fit(model, experiment, data, run_dir)
        steps, warmup = int(model.optimizer.iterations), experiment.training.warmup_steps
        if steps < warmup:
            _say(
                f"training ended after {steps} steps, within the warm-up of {warmup}: "
                "train for longer, or lower training.warmup_steps"
            )
        _finish(model, data, checkpoint, run_dir)
    return run_dir


def compile_model(model, training):
    """Compiles a `Transformer` with the paper's optimizer, schedule and loss.

    Args:
        model: The `Transformer`.
        training: A `TrainingSection`.
    """
    pad_id = model.config.pad_id
    smoothing = training.label_smoothing
    model.compile(
        optimizer=keras.optimizers.Adam(
            PaperSchedule(
                model.config.model_dim, training.warmup_steps, training.learning_rate_scale
            ),
            beta_1=0.9,
            beta_2=0.98,
            epsilon=1e-9,
            global_clipnorm=training.clipnorm,
        ),
        loss=SmoothedCrossEntropy(smoothing, pad_id),
        metrics=[TokenMeanLoss(smoothing, pad_id), TokenAccuracy(pad_id), Perplexity(pad_id)],
        jit_compile=training.jit_compile,
    )
    # Keras makes the metrics' variables in the first step, too late to restore a half-done epoch.
    logits = np.zeros((1, 1, model.config.vocab_size), "float32")
    model.compute_metrics(None, np.full((1, 1), pad_id, "int32"), logits)
    model.reset_metrics()


def _check_corpora(experiment):
    """The training and the validation corpus (or `None`), both read through once."""
    data = experiment.data
    corpora = []
    for name, source, target in (
        ("training", data.tsv or data.source, data.target),
        ("validation", data.valid_tsv or data.valid_source, data.valid_target),
    ):
        if source is None:
            corpora.append(None)
            continue
        corpus = ParallelCorpus(source, target)
        report = corpus.check()
        _say(f"{name}: {report.pairs:,} pairs, {report.skipped:,} of them with an empty side")
        corpora.append(corpus)
    return corpora


def _train_tokenizer(experiment, corpora):
    options = dataclasses.asdict(experiment.tokenizer)
    vocab_size = options.pop("vocab_size")
    return SentencePieceTokenizer.train(corpora[0].sentences(), vocab_size, **options)


def _samples(corpora, tokenizer, max_length):
    """Source sentences of the validation corpus, or else of the training corpus."""
    sources = (source for source, _ in corpora[1] or corpora[0] if source.strip())
    fitting = (text for text in sources if len(tokenizer.encode(text)) < max_length)
    return list(itertools.islice(fitting, _SAMPLES))


@dataclasses.dataclass(frozen=True)
class _Data:
    """The tokenized corpus as batches."""

    training: object  # TokenizedCorpus
    shapes: dict  # batch_tokens and buckets
    seed: int
    steps: int  # batches in an epoch
    valid: object  # tf.data.Dataset or None
    tokenizer: SentencePieceTokenizer

    @classmethod
    def make(cls, experiment, corpora, tokenizer):
        options, length = experiment.training, experiment.data.max_length
        training, valid = (
            corpus and tokenize_corpus(corpus, tokenizer, max_length=length) for corpus in corpora
        )
        buckets = options.buckets or choose_buckets(training.pair_lengths)
        shapes = {"batch_tokens": options.batch_tokens, "buckets": buckets}
        steps = batches_per_epoch(training, **shapes)
        if valid is not None:
            valid = evaluation_batches(valid, tokenizer, batch_tokens=options.batch_tokens)
        _say(
            f"training on {len(training.source_lengths):,} pairs, {steps:,} batches an epoch in "
            f"lengths {list(buckets)}; left out: {training.skipped}"
        )
        return cls(training, shapes, options.seed, steps, valid, tokenizer)

    def batches(self, epoch, step):
        return training_batches(
            self.training,
            self.tokenizer,
            **self.shapes,
            seed=self.seed,
            start_epoch=epoch,
            skip_batches=step,
        )

    def fingerprint(self):
        digest = hashlib.sha256()
        for name in ("source_values", "source_lengths", "target_values", "target_lengths"):
            digest.update(getattr(self.training, name).tobytes())
        return digest.hexdigest()


def _fit(model, experiment, data, run_dir):
    """Trains until the epochs or the minutes are used up; returns the `TrainingCheckpoint`."""
    options = experiment.training
    clock = Clock()
    checkpoint = TrainingCheckpoint(
        run_dir / "checkpoints",
        data.steps,
        save_every_steps=options.save_every_steps,
        keep_snapshots=options.average_checkpoints,
        fingerprint=data.fingerprint(),
        seconds=clock.seconds,
    )
    progress = checkpoint.restore(model)
    clock.before = progress.seconds
    budget = TimeBudget(clock, options.max_minutes)
    last_epoch = options.max_epochs or _AsTimeAllows(sys.maxsize)
    if progress.epoch or progress.step:
        _say(f"going on after {progress.epoch} epochs and {progress.step} steps")

    def fit(first_epoch, epochs, step):
        model.fit(
            data.batches(first_epoch, step),
            initial_epoch=first_epoch,
            epochs=epochs,
            steps_per_epoch=data.steps - step,
            validation_data=data.valid,
            shuffle=False,  # the batches are shuffled already
            callbacks=[
                budget,
                MetricsFile(run_dir / METRICS_FILE, checkpoint),
                keras.callbacks.TensorBoard(run_dir / "tensorboard", write_graph=False),
                checkpoint,  # last: once an epoch counts as done, its other files are there
            ],
            verbose=1 if sys.stderr.isatty() else 2,
        )

    if progress.step and not budget.used_up():  # the rest of an epoch
        fit(progress.epoch, progress.epoch + 1, progress.step)
    epoch = checkpoint.progress.epoch
    if epoch < last_epoch and not budget.used_up():
        fit(epoch, last_epoch, 0)
    return checkpoint


def _finish(model, data, checkpoint, run_dir):
    """Writes `model.keras` from the better of the averaged and the best snapshot."""
    folder = checkpoint.folder
    average = average_weights(checkpoint.snapshots(), folder / "average.weights.h5")
    candidates = {"the average of the last snapshots": average}
    if (folder / BEST_FILE).exists():
        candidates["the best snapshot"] = folder / BEST_FILE
    # Without an optimizer the file is a third of the size.
    final = Transformer.from_config(model.get_config())
    losses = {}
    for name, path in candidates.items():
        final.load_weights(path)
        model.set_weights(final.get_weights())
        if data.valid is not None:
            logs = model.evaluate(data.valid, verbose=0, return_dict=True)
            losses[name] = logs["loss"]
            _say(f"validation loss of {name}: {losses[name]:.4f}")
    name = min(losses, key=losses.get) if losses else next(iter(candidates))
    final.load_weights(candidates[name])
    write_atomically(run_dir / MODEL_FILE, final.save)
    _say(f"wrote {run_dir / MODEL_FILE}: {name}")


def _say(text):
    print(text, file=sys.stderr, flush=True)
