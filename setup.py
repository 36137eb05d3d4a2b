"""Package definition. Packages are named one by one, so that nothing else gets into the wheel."""

import os
import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent

PACKAGES = [
    "keras_transformer",
    "keras_transformer.command",
    "keras_transformer.data",
    "keras_transformer.decoding",
    "keras_transformer.distillation",
    "keras_transformer.experiment",
    "keras_transformer.export",
    "keras_transformer.export.litert",
    "keras_transformer.export.serving",
    "keras_transformer.interop",
    "keras_transformer.layers",
    "keras_transformer.layers.lowering",
    "keras_transformer.models",
    "keras_transformer.presets",
    "keras_transformer.training",
    "keras_transformer.translation",
    "keras_transformer_command",
    "keras_transformer_runner",
    "keras_transformer_runner.server",
    "keras_transformer_runner.tokenizers",
]

# Whatever we import is named by what needs it, even where another package brings it, and has an
# upper bound: above the newest that the tests ran on, at the next number that may break things.
LITERT = ["ai-edge-litert>=2.1,<2.4", "litert-quantizer>=0.11,<0.12", "flatbuffers<26"]
EXAMPLES = ["babel<3", "rich<16", "scikit-learn<2"]
# The other backend that layers, models and decoding run on.
JAX = ["jax[cpu]<0.11"]
PLOTS = ["matplotlib>=3.8,<4"]
# The official protos, for the client in export/serving.
SERVING = ["tensorflow-serving-api>=2.20,<2.22", "grpcio<2"]
# importlib_resources: what tensorflow-datasets imports without asking for it.
TFDS = ["tensorflow-datasets<5", "importlib_resources<8"]
BEAM = ["apache-beam<3"]
# A runner of it for several machines.
BEAM_DASK = ["apache-beam[dask]<3", "dask<2027", "distributed<2027"]
# The other runtime that our weights are written for.
CTRANSLATE2 = ["ctranslate2<5"]
# Where sentences end, for whole texts.
SENTENCES = ["icu4py>=1.2,<2"]
# The HTTP server on the runner: what answers, forms, metrics, which language, its name.
SERVE = [
    *SENTENCES,
    *("ai-edge-litert>=2.1,<2.4", "starlette>=1,<2", "uvicorn>=0.50,<1", "python-multipart<0.1"),
    *("prometheus-client>=0.22,<1", "py3langid>=0.4,<0.5", "babel<3"),
]
# The site: Sphinx, its Markdown, its theme, and pages made of the command's parsers.
DOCS = ["sphinx>=9,<10", "myst-parser>=5,<6", "furo<2027", "sphinx-argparse>=0.6,<0.7"]
# tf-models-official pins TensorFlow: its 2.20 release is the newest there is.
TF_MODELS = ["tf-models-official~=2.20.0"]

EXTRAS = {
    "litert": LITERT,
    "examples": EXAMPLES + PLOTS,
    "plots": PLOTS,
    "jax": JAX,
    "serving": SERVING,
    "tfds": TFDS,
    "beam": BEAM,
    "beam-dask": BEAM_DASK,
    "tf-models": TF_MODELS,
    "ctranslate2": CTRANSLATE2,
    "sentences": SENTENCES,
    "serve": SERVE,
    "docs": DOCS,
    # setuptools builds the wheel that tests/test_packaging.py looks into.
    "test": ["pytest>=8,<10", "pytest-xdist<4", "hypothesis<7", "ruff<0.18", "mypy<3"]
    + ["setuptools>=70.1,<81", "fonttools<5", "tf-keras<2.22", "protobuf<8", "packaging<27"]
    + ["nbclient<1", "nbformat<6", "ipykernel<8"]
    # What the files of export/serving are checked by.
    + ["kubernetes-validate>=1.37,<2", "compose-spec>=0.2,<0.3", "pyyaml<7"]
    + CTRANSLATE2
    + DOCS
    + JAX
    + LITERT
    + EXAMPLES
    + PLOTS
    + SERVE
    # Clients of the interface that the server has.
    + ["libretranslatepy<3", "deep-translator<2"]
    + SERVING
    + TFDS
    + BEAM_DASK
    + TF_MODELS,
}


def version():
    """Reads `__version__` from the source: importing the package would need its dependencies."""
    source = (ROOT / "keras_transformer_runner" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE).group(1)


def long_description():
    """README. Its links are relative; a package index, which has none of the files, needs the
    address of the repository for them: KERAS_TRANSFORMER_REPOSITORY=https://HOST/OWNER/NAME."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    repository = os.environ.get("KERAS_TRANSFORMER_REPOSITORY", "").rstrip("/")
    if not repository:
        return text
    links = {r"(!\[[^\]]*\]\()(?!\w+:)": "raw", r"((?<!!)\[[^\]]*\]\()(?!\w+:|#)": "blob"}
    for link, kind in links.items():
        text = re.sub(link, rf"\1{repository}/{kind}/main/", text)
    return text


setup(
    name="keras-transformer-edge",
    version=version(),
    description="Keras 3 Transformers from a parallel corpus to TF Serving and to the device",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11,<3.14",
    packages=PACKAGES,
    package_data={
        "keras_transformer": ["py.typed"],
        "keras_transformer_runner": ["py.typed", "abbreviations.json", "UNICODE_LICENSE"],
        "keras_transformer_runner.server": ["page/*"],
    },
    install_requires=[
        "tensorflow>=2.20,<2.22",
        "keras>=3.13,<3.16",
        # 2.21.0 cannot be imported; there are no Windows wheels.
        'tensorflow-text>=2.20,!=2.21.0,<2.22; platform_system != "Windows"',
        "sentencepiece<0.3",
        "sacrebleu<3",
        # Not a dependency of TensorFlow any more since 2.21, but its summaries need it.
        "tensorboard<2.22",
        "numpy<2.5",
        "h5py<4",
        "tomli-w<2",
    ],
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": [
            "keras-transformer = keras_transformer_command:main",
            "keras-transformer-run = keras_transformer_runner.command:main",
            "keras-transformer-serve = keras_transformer_runner.server.command:main",
        ]
    },
    classifiers=[
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
    ],
)
