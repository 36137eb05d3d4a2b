"""Makes `keras.models.load_model` know this package's classes without importing Keras early.

Keras finds a custom class only after the module that defines it has been imported. A user who
writes `import keras_transformer` and then `keras.models.load_model(...)` should not need
`custom_objects`, yet importing the package must not cost the seconds that Keras costs. So the
classes are registered at the moment Keras itself is imported, whichever comes first.
"""

import importlib
import importlib.abc
import sys

# Each module that defines classes which a saved model may name.
_MODULES = (
    "keras_transformer.models",
    "keras_transformer.training.loss",
    "keras_transformer.training.metrics",
    "keras_transformer.training.optimizer",
    "keras_transformer.training.schedule",
)


def register_with_keras():
    """Registers the package's Keras classes now, or as soon as `keras` is imported."""
    if "keras" in sys.modules:
        _import_registered_classes()
    elif not any(isinstance(finder, _KerasImportHook) for finder in sys.meta_path):
        sys.meta_path.insert(0, _KerasImportHook())


def _import_registered_classes():
    for module in _MODULES:
        importlib.import_module(module)


class _KerasImportHook(importlib.abc.MetaPathFinder):
    """Runs the registration once, right after the first `import keras`."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "keras":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _LoaderWithRegistration(spec.loader)
                return spec
        return None


class _LoaderWithRegistration(importlib.abc.Loader):
    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        # Only now: TensorFlow and others look for Keras without importing it.
        sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, _KerasImportHook)]
        # If the layers brought Keras in, they are half loaded now, and register when done.
        if "keras_transformer.layers" not in sys.modules:
            _import_registered_classes()
