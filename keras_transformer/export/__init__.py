"""What leaves Python: a SavedModel for TF Serving, and a LiteRT file for devices."""

from keras_transformer.export.litert.compare import compare_modes
from keras_transformer.export.litert.export_models import export_classifier, export_language_model
from keras_transformer.export.litert.export_translator import export_litert
from keras_transformer.export.litert.graphs import LANGUAGE_MODEL_SIGNATURES, SIGNATURES
from keras_transformer.export.litert.modes import MODES
from keras_transformer.export.parity import ParityError, ParityReport
from keras_transformer.export.serving.saved_model import export_saved_model

__all__ = [
    "LANGUAGE_MODEL_SIGNATURES",
    "MODES",
    "SIGNATURES",
    "ParityError",
    "ParityReport",
    "compare_modes",
    "export_classifier",
    "export_language_model",
    "export_litert",
    "export_saved_model",
]
