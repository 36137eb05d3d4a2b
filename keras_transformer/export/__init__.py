"""What leaves Python: a SavedModel for TF Serving, a LiteRT file for devices, and its runner."""

import importlib

_EXPORTS = {
    "export_saved_model": "saved_model",
    "export_litert": "litert",
    "export_language_model": "device_exports",
    "export_classifier": "device_exports",
    "SIGNATURES": "device_graphs",
    "compare_modes": "report",
    "MODES": "modes",
    "ParityError": "parity",
    "Runner": "runner",
}

__all__ = list(_EXPORTS)


def __getattr__(name):
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
