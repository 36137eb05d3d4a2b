"""The folder of a run: what lies where, making it at once, and loading it."""

import contextlib
import dataclasses
import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_transformer.arguments import check_size
from keras_transformer.config import TransformerConfig
from keras_transformer.experiment.experiment import Experiment
from keras_transformer.experiment.figures import best_figures
from keras_transformer.experiment.tokenizers import Tokenizers
from keras_transformer.presets.folder import (
    CONFIG_FILE,
    EXPERIMENT_FILE,
    SAMPLES_FILE,
    SHORTLIST_FILE,
)
from keras_transformer.presets.record import MODEL_FILE, RECORD_FILE, check_record, write_record
from keras_transformer_runner.atomic import TargetInUseError, locked, new_folder
from keras_transformer_runner.folders import received
from keras_transformer_runner.integrity import checksum
from keras_transformer_runner.lines import read_lines
from keras_transformer_runner.tokenizers import Tokenizer

if TYPE_CHECKING:
    from keras_transformer.decoding import BeamSearch, Greedy, Sampling
    from keras_transformer.decoding.shortlist import Shortlist
    from keras_transformer.models import Transformer
    from keras_transformer.translation import Translator

LEAST_SOURCE_LENGTH = 1024  # of a limit on sources to translate, where none is asked for
METRICS_FILE = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
STATE_FILE = "state.npz"  # among the checkpoints
EXTENSION_FILE = "more_epochs.json"
# What `atomic` names things while it writes: what is written, and locks.
_LEFT_BEHIND = re.compile(r"\.[0-9a-f]{8}\.(?:writing|replaced)\.(.+)|\.(.+)\.lock")
TRAINING = "training"  # is locked in the folder while a process trains there


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run, loaded.

    Attributes:
        model: The trained `Transformer`, in float32 whatever it was trained in, so that its text
            is the same on every runtime.
        tokenizer: The `Tokenizer` of its source.
        target_tokenizer: That of its target: the same object where they share a vocabulary.
        config: Its `TransformerConfig`.
        experiment: The `Experiment` that made it.
        samples: Some source sentences of its corpus, to compare an exported model on.
        figures: Its best figures on the validation set, as text by name.
        shortlist: A `Shortlist` that its translator is to have, or `None`.

    Example:
        >>> from keras_transformer.experiment import Run
        >>> tokenizer = kt.CharacterTokenizer("abc")
        >>> config = kt.TransformerConfig(
        ...     vocab_size=tokenizer.vocab_size, model_dim=6, num_heads=2, encoder_layers=1,
        ...     decoder_layers=1, intermediate_dim=7,
        ... )
        >>> experiment = kt.Experiment.from_dict(
        ...     {"data": {"tsv": "pairs.tsv"}, "training": {"max_epochs": 1}}
        ... )
        >>> run = Run(kt.Transformer(config), tokenizer, tokenizer, config, experiment, ("ab",))
        >>> run.with_decoding(beam_size=4).strategy.beam_size
        4
        >>> run.max_source_length, run.samples_within(3)
        (1024, ('ab',))
        >>> run.translator().strategy.extra_length
        50
        >>> run.with_prefixes(target=["b"]).prefixes
        ((), (5,))
        >>> run.save_to_preset("preset", license="MIT")
        >>> kt.load_run("preset").samples
        ('ab',)
    """

    model: "Transformer"
    tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    config: TransformerConfig
    experiment: Experiment
    samples: tuple[str, ...]
    figures: dict[str, str] = dataclasses.field(default_factory=dict)
    shortlist: "Shortlist | None" = None

    @property
    def strategy(self) -> "Greedy | BeamSearch | Sampling":
        """The search of the experiment's `[decoding]`."""
        return self.experiment.decoding.search()

    def with_decoding(self, **changes: Any) -> "Run":
        """The same run with other values in the experiment's `[decoding]`; `None` changes none."""
        decoding = self.experiment.decoding.with_changes(**changes)
        experiment = dataclasses.replace(self.experiment, decoding=decoding)
        return dataclasses.replace(self, experiment=experiment)

    @property
    def prefixes(self) -> tuple[tuple[int, ...], ...]:
        """The `prefix_ids` of the source's tokenizer and of the target's, where there are any."""
        ids = (self.tokenizer.prefix_ids, self.target_tokenizer.prefix_ids)
        return ids if any(ids) else ()

    def with_prefixes(
        self,
        *,
        source: Iterable[int | str] | None = None,
        target: Iterable[int | str] | None = None,
    ) -> "Run":
        """The same run, which translates from or into another language of its model.

        Args:
            source: Ids or pieces before every source, see `Tokenizer.with_prefix`; `None` for those
                that there are.
            target: The same for the target.

        Raises:
            TypeError, ValueError: as `Tokenizer.with_prefix`.
        """
        changes = {}
        if source is not None:
            changes["tokenizer"] = self.tokenizer.with_prefix(source)
        if target is not None:
            changes["target_tokenizer"] = self.target_tokenizer.with_prefix(target)
        return dataclasses.replace(self, **changes)

    @property
    def tokenizers_fingerprint(self) -> str:
        """Names the vocabularies, which a shortlist belongs to."""
        return f"{self.tokenizer.fingerprint} {self.target_tokenizer.fingerprint}"

    @property
    def shortlist_fields(self) -> tuple[str, ...]:
        """What names the shortlist that translations depend on; nothing without one."""
        return () if self.shortlist is None else (self.shortlist.fingerprint,)

    def with_shortlist(self, run_dir: os.PathLike | str) -> "Run":
        """The same run, which translates with the shortlist of its folder.

        Args:
            run_dir: The folder, where `keras-transformer shortlist` has written one.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if it is damaged, or was made for other vocabularies.
        """
        from keras_transformer.decoding.shortlist import Shortlist

        path = Path(run_dir) / SHORTLIST_FILE
        shortlist = Shortlist.load(path, owner=self.tokenizers_fingerprint)
        return dataclasses.replace(self, shortlist=shortlist)

    @property
    def max_source_length(self) -> int:
        """The most source tokens to translate: 1024, or `data.max_length` if that is more.

        A preset or an imported run has its own limit there.
        """
        data = self.experiment.data
        return (
            max(LEAST_SOURCE_LENGTH, data.max_length) if data.imported is None else data.max_length
        )

    def samples_within(self, max_source_length: int) -> tuple[str, ...]:
        """Gives the samples that are short enough, to compare an exported model on.

        Args:
            max_source_length: Most source tokens, EOS included.

        Raises:
            ValueError: if all are longer.
        """
        check_size(max_source_length=max_source_length)
        lengths = [len(self.tokenizer.encode(text)) + 1 for text in self.samples]
        found = tuple(
            text
            for text, length in zip(self.samples, lengths, strict=True)
            if length <= max_source_length
        )
        if lengths and not found:
            raise ValueError(
                "`max_source_length` must not be below the shortest of the run's samples, "
                f"{min(lengths)} tokens. Received: max_source_length={max_source_length}"
            )
        return found

    def translator(self, *, jit_compile: bool = False) -> "Translator":
        """A `Translator` with the experiment's search; `jit_compile` is its argument."""
        from keras_transformer.translation import Translator

        return Translator(
            self.model,
            self.tokenizer,
            strategy=self.strategy,
            target_tokenizer=self.target_tokenizer,
            max_source_length=self.max_source_length,
            jit_compile=jit_compile,
            shortlist=self.shortlist,
        )

    def save_to_preset(
        self,
        folder: os.PathLike | str,
        *,
        license: str | None = None,
        data: str | None = None,
    ) -> None:
        """Writes what others need of the run to a new folder: `Translator.save_to_preset`.

        The model card has the figures of the run. Paths and checkpoints stay here.

        Args:
            folder: The folder, new or empty.
            license: Of the weights, for the card.
            data: What it was trained on, for the card.

        Raises:
            FileExistsError: if something is there.
        """
        self.translator().save_to_preset(
            folder, license=license, data=data, figures=self.figures, samples=self.samples
        )


def load_run(run_dir: os.PathLike | str) -> Run:
    """Loads a run folder that `train` has finished.

    Args:
        run_dir: The folder.

    Returns:
        A `Run`.

    Raises:
        FileNotFoundError: if the folder is no run, a file of it is missing, or training has not
            finished.
        ValueError: if a file is not what `train` has left.

    Example (the run that the example of `train` makes):
        >>> run = kt.load_run("run")  # doctest: +SKIP
        >>> run.translator().translate(["ab"])  # doctest: +SKIP
        ['ba']
    """
    run_dir = Path(run_dir)
    check_finished(run_dir)
    if not check_record(run_dir, (MODEL_FILE, CONFIG_FILE, EXPERIMENT_FILE, SAMPLES_FILE)):
        warnings.warn(
            f"{run_dir} has no {RECORD_FILE}, as the first runs had none: whether its files are "
            "damaged is not known",
            stacklevel=2,
        )
    import keras

    from keras_transformer.models.transfer import in_float32

    tokenizers = Tokenizers.load(run_dir)
    return Run(
        model=in_float32(keras.models.load_model(run_dir / MODEL_FILE, compile=False)),
        tokenizer=tokenizers.source,
        target_tokenizer=tokenizers.target,
        config=TransformerConfig.from_json((run_dir / CONFIG_FILE).read_text(encoding="utf-8")),
        experiment=Experiment.load(run_dir / EXPERIMENT_FILE),
        samples=tuple(read_lines(run_dir / SAMPLES_FILE)),
        figures=best_figures(run_dir / METRICS_FILE),
    )


def check_run(run_dir):
    """Raises a `FileNotFoundError` that says what a folder is, if it is no run."""
    if not (Path(run_dir) / EXPERIMENT_FILE).is_file():
        raise FileNotFoundError(
            f"a run folder must hold {EXPERIMENT_FILE}. Received: {received(run_dir)}"
        )


def check_finished(run_dir):
    """Raises a `FileNotFoundError` if a folder is no run, or training has not finished."""
    check_run(run_dir)
    if not (Path(run_dir) / MODEL_FILE).is_file():
        raise FileNotFoundError(
            f"a run must be finished (hold {MODEL_FILE}); train it again to let it go on. "
            f"Received: {run_dir}"
        )


def check_shortlist(run_dir):
    """Raises a `FileNotFoundError` unless the shortlist of a run has been made."""
    if not (Path(run_dir) / SHORTLIST_FILE).is_file():
        raise FileNotFoundError(
            f"--shortlist needs {SHORTLIST_FILE}: run `keras-transformer shortlist` first. "
            f"Received: {run_dir}"
        )


def model_fingerprint(run_dir):
    """A hash of the model and the tokenizers of a finished run."""
    tokenizers = Tokenizers.load(run_dir)
    return (checksum(Path(run_dir) / MODEL_FILE), *(each.fingerprint for each in tokenizers))


def check_folder(run_dir, experiment, resume, more_epochs=None):
    """Whether the folder holds an interrupted run of the experiment, or one to train for longer.

    Raises:
        FileExistsError: if it holds anything else, or `resume` is `False`.
        FileNotFoundError, ValueError: if a file of it is missing or damaged, or there is nothing
            to train for longer.
    """
    check_size(optional=True, more_epochs=more_epochs)
    if not run_dir.exists() or (run_dir.is_dir() and not any(run_dir.iterdir())):
        if os.path.ismount(run_dir):  # nothing can be renamed to it
            raise FileExistsError(
                "a new run needs a folder within a volume, not where the volume is mounted. "
                f"Received: {run_dir}"
            )
        if more_epochs:
            raise FileNotFoundError(f"`more_epochs` is for a finished run. Received: {run_dir}")
        return False
    if not (run_dir / EXPERIMENT_FILE).is_file():
        raise FileExistsError(
            f"a run needs a new or empty folder, or one that holds a run. Received: {run_dir}"
        )
    check_record(run_dir, (CONFIG_FILE, EXPERIMENT_FILE, SAMPLES_FILE), unread={MODEL_FILE})
    found = Experiment.load(run_dir / EXPERIMENT_FILE)
    if found != experiment:
        raise FileExistsError(
            "a run folder belongs to one experiment; choose another folder. "
            f"Received: {run_dir}, which differs in {', '.join(_differences(found, experiment))}"
        )
    if more_epochs:
        _check_extension(run_dir, experiment)
    elif (run_dir / MODEL_FILE).exists():
        raise FileExistsError(
            "a finished run is not trained again; use it with `translate` or `export`, let it go "
            f"on with `more_epochs`, or choose another folder. Received: {run_dir}"
        )
    if not resume:
        raise FileExistsError(
            f"an interrupted run goes on only with `resume=True`. Received: {run_dir}"
        )
    return True


def _check_extension(run_dir, experiment):
    """Raises an error if the run of a folder cannot be trained for longer than it was to be."""
    if not ((run_dir / MODEL_FILE).exists() or (run_dir / EXTENSION_FILE).exists()):
        raise ValueError(
            "`more_epochs` is for a finished run: train this one without it to its end. "
            f"Received: {run_dir}"
        )
    if not (run_dir / CHECKPOINTS / STATE_FILE).exists():
        raise FileNotFoundError(
            f"a run to go on with must hold {CHECKPOINTS}/{STATE_FILE}, as `train` leaves it; "
            f"start a new run from it with `training.start_from`. Received: {run_dir}"
        )
    if experiment.training.strategy == "multi_worker":
        raise ValueError(
            "`more_epochs` does not go with the strategy 'multi_worker'. "
            f"Received: strategy={experiment.training.strategy!r}"
        )


def _differences(one, other):
    one, other = one.to_dict(), other.to_dict()
    return [
        f"{section}.{key}"
        for section in one
        for key in sorted({*one[section], *other[section]})
        if one[section].get(key) != other[section].get(key)
    ]


def hold_folder(held, run_dir, experiment, *options):
    """Holds a run folder, so that no other process trains in it.

    Args:
        held: A `contextlib.ExitStack` that lasts as long as training.
        run_dir, experiment, *options: As for `check_folder`.

    Raises:
        FileExistsError: as `check_folder`.
        TargetInUseError: if another process trains there.
    """
    check_folder(run_dir, experiment, *options)
    try:
        held.enter_context(locked(run_dir))
    except TargetInUseError:
        raise
    except OSError:  # a folder that is mounted may stand where nothing can be written
        if not run_dir.exists():
            raise
    if check_folder(run_dir, experiment, *options):  # which another may have made by now
        hold_inside(held, run_dir)
        if not (run_dir / RECORD_FILE).exists():
            names = (CONFIG_FILE, EXPERIMENT_FILE, SAMPLES_FILE, *Tokenizers.files(run_dir))
            write_record(run_dir, {name: run_dir / name for name in names})


def hold_inside(held, run_dir):
    """Holds a run folder also against processes that see it by another path, and tidies it up."""
    held.enter_context(locked(run_dir / TRAINING))
    for path in sorted(run_dir.rglob(".*")):
        if (found := _LEFT_BEHIND.fullmatch(path.name)) and (found[1] or _is_lock(path)):
            # Whoever holds a target removes what is left of it; a target of the living stays.
            target = path.with_name(found[found.lastindex])
            with contextlib.suppress(TargetInUseError), locked(target):
                pass


def _is_lock(path):
    """Whether a file is a lock of ours, signed or not yet."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else "?"
    return not text or text.startswith('{"pid": ')


def create_folder(run_dir, texts, tokenizers):
    """Makes a run folder, which the caller holds, appear with all its first files at once.

    Args:
        run_dir: The folder, which must be new or empty.
        texts: Content by file name.
        tokenizers: The `Tokenizers`, which are saved there too.
    """
    with new_folder(run_dir, what="a run", lock=False) as folder:
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
        tokenizers.save(folder)
        write_record(folder, {path.name: path for path in folder.iterdir()})
