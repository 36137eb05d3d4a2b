"""The folder of a run: what lies where, making it at once, and loading it."""

import dataclasses
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import keras

from keras_transformer.arguments import check_size
from keras_transformer.config import TransformerConfig
from keras_transformer.decoding import BeamSearch, Greedy, Sampling, Translator
from keras_transformer.models import Transformer
from keras_transformer.models.transfer import in_float32
from keras_transformer.text import Tokenizer, read_lines
from keras_transformer.training.experiment import Experiment
from keras_transformer.training.tokenizers import Tokenizers

MODEL_FILE = "model.keras"
CONFIG_FILE = "config.json"
EXPERIMENT_FILE = "experiment.toml"
METRICS_FILE = "metrics.jsonl"
SAMPLES_FILE = "samples.txt"


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
    """

    model: Transformer
    tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    config: TransformerConfig
    experiment: Experiment
    samples: tuple

    @property
    def strategy(self):
        """The decoding strategy of the experiment."""
        section = self.experiment.decoding
        searches = {"greedy": Greedy, "beam": BeamSearch, "sampling": Sampling}
        return searches[section.strategy_name](**section.options)

    def with_decoding(self, **changes):
        """The same run with other values in the experiment's `[decoding]`; `None` changes none."""
        changes = {name: value for name, value in changes.items() if value is not None}
        decoding = dataclasses.replace(self.experiment.decoding, **changes)
        experiment = dataclasses.replace(self.experiment, decoding=decoding)
        return dataclasses.replace(self, experiment=experiment)

    @property
    def max_source_length(self):
        """Most source tokens to translate: 1024, or as many as training saw."""
        return max(1024, self.experiment.data.max_length)

    def samples_within(self, max_source_length):
        """The sentences of the validation set to compare an export on that are no longer.

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

    def translator(self, *, jit_compile=False):
        """A `Translator` with the experiment's strategy; `jit_compile` is its argument."""
        return Translator(
            self.model,
            self.tokenizer,
            strategy=self.strategy,
            target_tokenizer=self.target_tokenizer,
            max_source_length=self.max_source_length,
            jit_compile=jit_compile,
        )


def load_run(run_dir):
    """Loads a run folder that `train` has finished.

    Args:
        run_dir: The folder.

    Returns:
        A `Run`.

    Raises:
        FileNotFoundError: if the folder is no run, or training has not finished.
    """
    run_dir = Path(run_dir)
    if not (run_dir / EXPERIMENT_FILE).is_file():
        raise FileNotFoundError(f"a run folder must hold {EXPERIMENT_FILE}. Received: {run_dir}")
    if not (run_dir / MODEL_FILE).is_file():
        raise FileNotFoundError(
            f"a run must be finished (hold {MODEL_FILE}); train it again to let it go on. "
            f"Received: {run_dir}"
        )
    tokenizers = Tokenizers.load(run_dir)
    return Run(
        model=in_float32(keras.models.load_model(run_dir / MODEL_FILE, compile=False)),
        tokenizer=tokenizers.source,
        target_tokenizer=tokenizers.target,
        config=TransformerConfig.from_json((run_dir / CONFIG_FILE).read_text(encoding="utf-8")),
        experiment=Experiment.load(run_dir / EXPERIMENT_FILE),
        samples=tuple(read_lines(run_dir / SAMPLES_FILE)),
    )


def model_fingerprint(run_dir):
    """A hash of the model and the tokenizers of a finished run."""
    with open(Path(run_dir) / MODEL_FILE, "rb") as file:
        model = hashlib.file_digest(file, "sha256").hexdigest()
    return (model, *(each.fingerprint for each in Tokenizers.load(run_dir)))


def check_folder(run_dir, experiment, resume):
    """Whether the folder holds an interrupted run of the experiment.

    Raises:
        FileExistsError: if it holds anything else, or `resume` is `False`.
    """
    if not run_dir.exists() or (run_dir.is_dir() and not any(run_dir.iterdir())):
        return False
    if not (run_dir / EXPERIMENT_FILE).is_file():
        raise FileExistsError(
            f"a run needs a new or empty folder, or one that holds a run. Received: {run_dir}"
        )
    found = Experiment.load(run_dir / EXPERIMENT_FILE)
    if found != experiment:
        raise FileExistsError(
            "a run folder belongs to one experiment; choose another folder. "
            f"Received: {run_dir}, which differs in {', '.join(_differences(found, experiment))}"
        )
    if (run_dir / MODEL_FILE).exists():
        raise FileExistsError(
            "a finished run is not trained again; use it with `translate` or `export`, or choose "
            f"another folder. Received: {run_dir}"
        )
    if not resume:
        raise FileExistsError(
            f"an interrupted run goes on only with `resume=True`. Received: {run_dir}"
        )
    return True


def _differences(one, other):
    one, other = one.to_dict(), other.to_dict()
    return [
        f"{section}.{key}"
        for section in one
        for key in sorted({*one[section], *other[section]})
        if one[section].get(key) != other[section].get(key)
    ]


def create_folder(run_dir, texts, tokenizers):
    """Makes the run folder appear with all its first files at once.

    Args:
        run_dir: The folder, which must be new or empty.
        texts: Content by file name.
        tokenizers: The `Tokenizers`, which are saved there too.
    """
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{run_dir.name}-", dir=run_dir.parent))
    try:
        temporary.chmod(0o755)
        for name, text in texts.items():
            (temporary / name).write_text(text, encoding="utf-8", newline="\n")
        tokenizers.save(temporary)
        if run_dir.exists():
            run_dir.rmdir()  # Windows renames onto no folder, not even an empty one
        os.replace(temporary, run_dir)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
