"""`train`: from an experiment to a run folder with a trained model."""

import contextlib
import dataclasses
import json
import math
import os
import sys
from pathlib import Path

import keras

from keras_transformer.config import TransformerConfig
from keras_transformer.data import PreparedCorpus
from keras_transformer.experiment.corpora import open_corpora
from keras_transformer.experiment.experiment import Experiment
from keras_transformer.experiment.length import NOW, STOP_FILE, Extension, wanted_end
from keras_transformer.experiment.run_folder import (
    CHECKPOINTS,
    CONFIG_FILE,
    EXPERIMENT_FILE,
    METRICS_FILE,
    SAMPLES_FILE,
    STATE_FILE,
    check_folder,
    create_folder,
    hold_folder,
    hold_inside,
)
from keras_transformer.experiment.start import START_FILE, find_start, tokenizers_of_start
from keras_transformer.experiment.tokenizers import Tokenizers
from keras_transformer.experiment.unused_keys import check_keys
from keras_transformer.models import Transformer
from keras_transformer.presets.record import MODEL_FILE, write_record
from keras_transformer.training.callbacks import (
    Clock,
    EarlyEnd,
    MetricsFile,
    OpenEndedProgress,
    SwapAverages,
    TimeBudget,
    read_metrics,
    updates_of,
)
from keras_transformer.training.checkpoint import TrainingCheckpoint
from keras_transformer.training.data import (
    TrainingData,
    choose_samples,
    make_tokenizers,
)
from keras_transformer.training.distribution import is_chief, is_shared, make_strategy, wait_for
from keras_transformer.training.freezing import freeze
from keras_transformer.training.layouts import check_backend, make_distribution, row_multiple
from keras_transformer.training.objective import check_accumulation, compile_model
from keras_transformer.training.rematerialization import rematerialize
from keras_transformer.training.run_card import write_run_card
from keras_transformer.training.run_plots import draw_run
from keras_transformer.training.start import take_over
from keras_transformer.training.state import average_weights, saved_progress
from keras_transformer.training.student import Student
from keras_transformer.training.time_left import TimeLeft
from keras_transformer.training.validation_bleu import ValidationBleu
from keras_transformer_runner.atomic import write_file
from keras_transformer_runner.lines import one_line
from keras_transformer_runner.streams import log


def train(
    experiment: Experiment,
    run_dir: os.PathLike | str,
    *,
    resume: bool = True,
    more_epochs: int | None = None,
) -> Path:
    """Trains a model and leaves everything about it in a folder.

    The folder gets `config.json`, `experiment.toml`, the tokenizers, `samples.txt`,
    `checkpoints/`, `metrics.jsonl` (a line an epoch), `tensorboard/` and, at the end, `plots/`, a
    model card, `README.md` (one that somebody has edited is kept), and `model.keras`: the average
    of the last snapshots or the single best one, whichever has the better validation metric;
    without validation data the average. Nothing is created before the inputs have been checked.
    Killed at any moment, the same call goes on from the last checkpoint to the same weights.

    A run that is finished goes on with `more_epochs`, in the same folder and with its history:
    both schedules know no end, so it is the run that it would be had it been that long from the
    start. Two things differ where it was ended within an epoch (by `max_minutes` or
    `stop_run(now=True)`): the weights of that moment may be the best snapshot. And `patience`
    counts anew.

    Args:
        experiment: An `Experiment`.
        run_dir: The folder, new or of the same experiment interrupted.
        resume: Whether an interrupted run may go on.
        more_epochs: Epochs that a finished run is to have beside those it has had, whatever
            `max_epochs` and `max_minutes` say. Killed, the same call or one without it goes on.

    Returns:
        `run_dir` as a `Path`.

    Raises:
        FileExistsError: if the folder holds something else, another experiment, a finished run,
            or an interrupted one and `resume` is `False`.
        FileNotFoundError: if a corpus file is missing.
        TargetInUseError: if another process trains in the folder.
        ValueError: if the corpus or the experiment is not usable, a file of the interrupted run is
            damaged, or training diverges; if `more_epochs` is given for a run that is not finished.

    Example:
        >>> with open("pairs.tsv", "w") as file:
        ...     _ = file.write("ab\\tba\\nabc\\tcba\\n")
        >>> experiment = kt.Experiment.from_dict({
        ...     "data": {"tsv": "pairs.tsv"},
        ...     "tokenizer": {"type": "characters"},
        ...     "model": {
        ...         "model_dim": 6, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1,
        ...         "intermediate_dim": 7,
        ...     },
        ...     "training": {"max_epochs": 1, "jit_compile": False, "warmup_steps": 1},
        ... })
        >>> run = kt.load_run(kt.train(experiment, "run"))
        >>> run.tokenizer.pieces[4:], run.samples
        (['a', 'b', 'c'], ('ab', 'abc'))
    """
    run_dir = Path(run_dir)
    experiment.check_files()
    experiment.decoding.search()  # raises now, and not when the trained model is to translate
    if experiment.tokenizer.file:
        Tokenizers.make(experiment.tokenizer, ()).config_fields()
    strategy = make_strategy(experiment.training.strategy)
    check_backend(experiment.training.distribution)
    with contextlib.ExitStack() as held:
        if is_chief(strategy):
            hold_folder(held, run_dir, experiment, resume, more_epochs)
        else:
            wait_for(run_dir / EXPERIMENT_FILE)
        resuming = check_folder(run_dir, experiment, resume, more_epochs)
        _train(experiment, run_dir, strategy, held, resuming, more_epochs)
    return run_dir


def _train(experiment, run_dir, strategy, held, resuming, more_epochs):
    start = find_start(experiment, run_dir)
    described = experiment  # as the folder keeps it
    experiment = _with_model(experiment, start, run_dir)
    if not resuming:
        check_keys(experiment)
        check_accumulation(experiment.training)
    corpora = open_corpora(experiment.data)
    tokenizers = _tokenizers(experiment, corpora[0], start, run_dir if resuming else None)
    config = experiment.config(**tokenizers.config_fields())
    distribution = make_distribution(experiment.training, config)
    if distribution is not None:
        held.enter_context(distribution.scope())
    multiple = row_multiple(distribution)
    data = TrainingData.make(experiment, corpora, tokenizers, strategy, multiple)
    if not resuming:
        data.check_validation()
    # Whatever can be wrong with the inputs has been found by now, but for weights to start from.
    with strategy.scope() if is_shared(strategy) else contextlib.nullcontext():
        keras.utils.set_random_seed(experiment.training.seed)
        model = (Student if experiment.training.teacher_weight else Transformer)(config)
        taken = take_over(start, model, tokenizers) if start else None
        freeze(model, experiment.training.freeze or ())
        if experiment.training.rematerialize:
            rematerialize(model)
        compile_model(model, experiment.training)
    samples = choose_samples(corpora, tokenizers.source, experiment.max_length)
    if not resuming:
        files = {
            CONFIG_FILE: config.to_json(),
            EXPERIMENT_FILE: described.to_toml(),
            SAMPLES_FILE: "".join(f"{one_line(text)}\n" for text in samples),
        }
        if taken:
            files[START_FILE] = json.dumps(taken, indent=2) + "\n"
        create_folder(run_dir, files, tokenizers)
        hold_inside(held, run_dir)
    frozen = sum(math.prod(weight.shape) for weight in model.non_trainable_weights)
    of_them = f", {frozen:,} of them frozen" if experiment.training.freeze else ""
    log(f"{model.count_params():,} weights{of_them}, vocabulary {config.vocab_size}")
    # Keras prints its progress on standard output, which belongs to the caller.
    with contextlib.redirect_stdout(sys.stderr):
        fitting = _Fitting(
            model, experiment, data, run_dir, corpora[1], samples, is_chief(strategy), more_epochs
        )
        fitting.run()
        _warn_of_warmup(model, experiment.training)
        if fitting.chief:
            fitting.finish()


def _with_model(experiment, start, run_dir):
    """The experiment with the model that it inherits, or that its run has inherited."""
    if start is not None:
        return experiment.inheriting(start.config)
    if not experiment.inherits_model:
        return experiment
    return experiment.inheriting(_config_of(run_dir))


def _config_of(run_dir):
    return TransformerConfig.from_json((run_dir / CONFIG_FILE).read_text(encoding="utf-8"))


def _tokenizers(experiment, corpus, start, resumed):
    """The tokenizers: of the run that goes on, of what it starts from, or the experiment's."""
    if resumed:
        return Tokenizers.load(resumed)
    prepared = isinstance(corpus, PreparedCorpus)  # which has its own
    taken = None if prepared else tokenizers_of_start(start, experiment)
    return taken or make_tokenizers(experiment.tokenizer, corpus)


def _warn_of_warmup(model, options):
    steps, warmup = updates_of(model), options.warmup_steps
    if steps < warmup:
        log(
            f"training ended after {steps} updates, within the warm-up of {warmup}: "
            "train for longer, or lower training.warmup_steps"
        )


class _Fitting:
    """The part of a run that trains: `fit` with its callbacks, and the choice of the weights."""

    def __init__(self, model, experiment, data, run_dir, valid_pairs, samples, chief, more_epochs):
        run = (run_dir / EXPERIMENT_FILE).read_text(encoding="utf-8")
        folder = run_dir / CHECKPOINTS
        options, extension = experiment.training, Extension.read(run_dir)
        self.planned = None
        if more_epochs:
            done = saved_progress(folder / STATE_FILE, run=run).epoch
            self.planned = extension = Extension.plan(run_dir, more_epochs, done)
        if extension:
            options = dataclasses.replace(
                options, max_epochs=extension.max_epochs, max_minutes=None
            )
        self.model, self.data, self.options = model, data, options
        self.experiment = dataclasses.replace(experiment, training=options)
        self.run_dir, self.samples, self.chief = run_dir, samples, chief
        # Several workers have to end at the same step.
        self.stoppable = options.strategy != "multi_worker"
        self.clock = Clock()
        self.budget = TimeBudget(self.clock, options.max_minutes)
        self.time_left = TimeLeft(
            self.clock,
            data.steps,
            max_epochs=options.max_epochs,
            max_minutes=options.max_minutes,
            patience=options.patience is not None,
        )
        self.checkpoint = TrainingCheckpoint(
            folder,
            data.steps,
            save_every_steps=options.save_every_steps,
            keep_snapshots=options.average_checkpoints,
            fingerprint=data.training.fingerprint,
            valid_fingerprint=data.valid.fingerprint if data.valid is not None else "",
            run=run,
            seconds=self.clock.seconds,
            best_by=options.best_by,
            patience=options.patience,
            patient_from=extension.from_epoch if extension else 0,
            write=chief,
        )
        self.validation_bleu = None
        if options.score_every_epochs and valid_pairs is not None:
            longest = experiment.max_length
            if isinstance(valid_pairs, PreparedCorpus):  # which has its own `max_length`
                longest = min(valid_pairs.max_length, model.config.max_positions or math.inf)
                valid_pairs = valid_pairs.decoded()
            self.validation_bleu = ValidationBleu(
                self.checkpoint.snapshot_model,
                data.tokenizers,
                valid_pairs,
                every=options.score_every_epochs,
                max_source_length=longest,
            )

    def run(self):
        """Trains until the epochs, the minutes or the patience are used up, or `stop_run` asks."""
        if self.chief:
            read_metrics(self.run_dir / METRICS_FILE)  # a damaged one is told now
        progress = self.checkpoint.restore(self.model)
        if self.planned:  # with all that it needs
            self.planned.begin(self.run_dir)
        self.clock.before = progress.seconds
        last_epoch = self.options.max_epochs or sys.maxsize
        if progress.epoch or progress.step:
            log(f"going on after {progress.epoch} epochs and {progress.step} steps")
        if progress.step and not self._is_over():  # the rest of an epoch
            self._fit(progress.epoch, progress.epoch + 1, progress.step)
            if self.options.ema is not None:  # at its end, `fit` has put the averages in place
                self.checkpoint.restore(self.model)
        epoch = self.checkpoint.progress.epoch
        if epoch < last_epoch and not self._is_over():
            self._fit(epoch, last_epoch, 0)

    def _is_over(self):
        if not self.checkpoint.snapshots():  # of which the model is made
            return False
        end = wanted_end(self.run_dir) if self.stoppable else None
        stopped = end is not None and (end == NOW or not self.checkpoint.progress.step)
        return stopped or self.budget.used_up() or self.checkpoint.is_hopeless()

    def _fit(self, first_epoch, epochs, step):
        self.model.fit(
            self.data.batches(first_epoch, step),
            initial_epoch=first_epoch,
            epochs=epochs,
            steps_per_epoch=self.data.steps - step,
            validation_data=self.data.validation_batches(),
            validation_steps=self.data.validation_steps,
            shuffle=False,  # the batches are shuffled already
            callbacks=self._callbacks(),
            verbose=1 if sys.stderr.isatty() else 2,
        )

    def _callbacks(self):
        """The callbacks, in the order in which Keras calls them at the end of an epoch."""
        callbacks = [self.budget]
        if self.stoppable:
            callbacks.append(EarlyEnd(self.run_dir))
        if self.options.ema is not None:  # the averages are what is validated
            callbacks.append(SwapAverages())
        if self.validation_bleu is not None:
            callbacks.append(self.validation_bleu)
        if self.chief:
            callbacks += [
                MetricsFile(self.run_dir / METRICS_FILE, self.checkpoint),
                keras.callbacks.TensorBoard(self.run_dir / "tensorboard", write_graph=False),
            ]
        callbacks.append(self.checkpoint)  # an epoch that counts has its other files
        if self.chief:
            callbacks.append(self.time_left)  # after all that takes time
        if not self.options.max_epochs:
            callbacks.append(OpenEndedProgress())  # in the place of the one that Keras appends
        return callbacks

    def finish(self):
        """Draws the plots and writes `model.keras`: with it the run is finished."""
        final, name = self._choose()

        def write(temporary):
            final.save(temporary)
            write_record(self.run_dir, {MODEL_FILE: temporary})
            write_run_card(self.run_dir, self.experiment, self.data, final, temporary)

        try:
            metrics = self.run_dir / METRICS_FILE
            draw_run(self.run_dir, metrics, final, self.data.tokenizers, self.samples)
        finally:  # no plot is worth a model
            write_file(self.run_dir / MODEL_FILE, write)
        (self.run_dir / STOP_FILE).unlink(missing_ok=True)
        log(f"wrote {self.run_dir / MODEL_FILE}: {name}")

    def _choose(self):
        """The model with the better weights, the averaged or the best ones, and their name."""
        folder = self.checkpoint.folder
        average = average_weights(self.checkpoint.snapshots(), folder / "average.weights.h5")
        candidates = {"the average of the last snapshots": average}
        for path in self.checkpoint.best_snapshot():
            self.checkpoint.check_snapshot(path)
            candidates["the best snapshot"] = path
        # Without an optimizer the file is a third of the size.
        final = Transformer.from_config(self.model.get_config())
        metrics = {}
        for name, path in candidates.items():
            final.load_weights(path)
            if self.data.valid is not None:
                metrics[name] = self._validation_metric(final)
                log(f"validation {self.options.best_by} of {name}: {metrics[name]:.4f}")
        best = min if self.options.best_by == "loss" else max
        name = best(metrics, key=metrics.get) if metrics else next(iter(candidates))
        final.load_weights(candidates[name])
        return final, name

    def _validation_metric(self, final):
        """The metric of a model by which the best is chosen."""
        if self.options.best_by != "loss":
            return self.validation_bleu.scores(final)[self.options.best_by].value
        judge = self.model  # whose evaluation is compiled already
        if is_shared(self.data.strategy):
            judge = final
            compile_model(final, self.options)
        else:
            judge.set_weights(final.get_weights())
        batches = self.data.validation_batches(shared=False)
        return judge.evaluate(batches, verbose=0, return_dict=True)["loss"]
