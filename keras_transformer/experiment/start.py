"""The folder that training starts from, of a run or a preset: looked at without Keras."""

from pathlib import Path
from typing import NamedTuple

from keras_transformer.config import TransformerConfig
from keras_transformer.experiment.run_folder import (
    CHECKPOINTS,
    CONFIG_FILE,
    STATE_FILE,
    model_fingerprint,
)
from keras_transformer.experiment.sections import TokenizerSection
from keras_transformer.experiment.tokenizers import Tokenizers
from keras_transformer.presets.record import MODEL_FILE, check_record
from keras_transformer_runner.folders import received
from keras_transformer_runner.integrity import read_json

START_FILE = "start.json"  # in a run's folder: what it has taken over


class Start(NamedTuple):
    """The folder that `training.start_from` names, whose files are there and whole."""

    folder: Path
    config: TransformerConfig
    tokenizers: Tokenizers
    fingerprint: tuple  # of its weights and its tokenizers

    @classmethod
    def open(cls, folder):
        """Reads all of a folder but the weights, whose checksum is compared.

        Raises:
            FileNotFoundError: if the folder is no run or preset, or not finished.
            ValueError: if a file of it is damaged.
        """
        folder = Path(folder)
        if not (folder / CONFIG_FILE).is_file():
            raise FileNotFoundError(
                "`training.start_from` must be the folder of a run or of a preset, which holds "
                f"{CONFIG_FILE}. Received: {received(folder)}"
            )
        if "model_type" in read_json(folder / CONFIG_FILE, "a model's settings"):
            raise ValueError(
                "`training.start_from` must be the folder of a run: make one of a pretrained model "
                f"with `keras-transformer import`. Received: {folder}"
            )
        if not (folder / MODEL_FILE).is_file():
            raise FileNotFoundError(
                f"`training.start_from` must be a finished run, which holds {MODEL_FILE}: train "
                f"it to its end first. Received: {folder}"
            )
        check_record(folder, (MODEL_FILE, CONFIG_FILE))
        config = TransformerConfig.from_json((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        return cls(folder, config, Tokenizers.load(folder), model_fingerprint(folder))


def find_start(experiment, run_dir):
    """What the run in a folder is to start from: a `Start`, or `None` where that is nothing.

    A run with a checkpoint goes on from that. It needs what it has started from no longer, but
    that may not be another one by now.

    Args:
        experiment: The `Experiment`.
        run_dir: The folder of the run, which need not exist.

    Raises:
        FileNotFoundError, ValueError: as `Start.open`, or if the run has started from something
            else.
    """
    folder, run_dir = experiment.training.start_from, Path(run_dir)
    goes_on = (run_dir / CHECKPOINTS / STATE_FILE).exists()
    if folder is None or (goes_on and not Path(folder).exists()):
        return None
    start = Start.open(folder)
    report = run_dir / START_FILE
    if report.exists():
        began_with = read_json(report, "what a run has started from", {"fingerprint": list})
        if began_with["fingerprint"] != list(start.fingerprint):
            raise ValueError(
                "a run must go on with what it has started from, but `training.start_from` holds "
                f"other weights or tokenizers now. Received: start_from={folder}, run={run_dir}"
            )
    return None if goes_on else start


def tokenizers_of_start(start, experiment):
    """The tokenizers that come with the weights, or `None` where the experiment has its own."""
    if start is None or experiment.tokenizer != TokenizerSection():
        return None
    return start.tokenizers
