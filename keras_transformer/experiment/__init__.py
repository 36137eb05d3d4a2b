"""An experiment as a file, its tokenizers, and the folder of its run. Needs no Keras to import."""

from keras_transformer.experiment.experiment import Experiment
from keras_transformer.experiment.length import stop_run
from keras_transformer.experiment.run_folder import Run, load_run
from keras_transformer.experiment.tokenizers import Tokenizers, learn_tokenizer

__all__ = ["Experiment", "Run", "Tokenizers", "learn_tokenizer", "load_run", "stop_run"]
