"""Package definition. Packages are named one by one, so that nothing else gets into the wheel."""

import os
import re
import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

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
    "keras_transformer.kits",
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
    # setuptools and build make the distributions that tests/test_packaging.py looks into.
    "test": ["pytest>=8,<10", "pytest-xdist<4", "hypothesis<7", "pandas<4", "ruff<0.18", "mypy<3"]
    + ["build<2", "twine<8", "check-jsonschema<1"]
    + ["setuptools>=77.0.3,<81", "fonttools<5", "tf-keras<2.22", "protobuf<8", "packaging<27"]
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


class BuildWithKits(build_py):
    """Adds what `keras-transformer new` writes: its files lie where they are worked on."""

    def run(self):
        super().run()
        for target, source in self._kit_files().items():
            self.mkpath(os.path.dirname(target))
            self.copy_file(source, target)

    def get_outputs(self, include_bytecode=True):
        return [*super().get_outputs(include_bytecode), *self._kit_files()]

    def _kit_files(self):
        if self.editable_mode:
            return {}  # which finds them where they lie
        contents = runpy.run_path(str(ROOT / "keras_transformer" / "kits" / "contents.py"))
        folder = Path(self.build_lib, "keras_transformer", "kits", "files")
        found = {}
        for name, kit in contents["KITS"].items():
            files = contents["kit_files"](kit, ROOT).values()
            if not files:
                raise FileNotFoundError(f"the kit `{name}` needs the folder {kit.place}")
            found |= {str(folder / path.relative_to(ROOT)): str(path) for path in files}
        return found


def version():
    """Reads `__version__` from the source: importing the package would need its dependencies."""
    source = (ROOT / "keras_transformer_runner" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE).group(1)


def long_description():
    """README. A package index has none of the files that it links to: without the address of the
    repository, KERAS_TRANSFORMER_REPOSITORY=https://HOST/OWNER/NAME, they are left out."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    repository = os.environ.get("KERAS_TRANSFORMER_REPOSITORY", "").rstrip("/")
    if not repository:
        text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*", "", text)
        return re.sub(r"\[([^\]]+)\]\((?!https?:|#)[^)]*\)", r"\1", text)
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
    keywords="transformer, machine translation, keras, tensorflow, jax, tf serving, litert, "
    "tensorflow lite, on-device, sentencepiece",
    # The code, and Unicode's lists of abbreviations.
    license_expression="Apache-2.0 AND Unicode-3.0",
    license_files=["LICENSE", "keras_transformer_runner/UNICODE_LICENSE"],
    python_requires=">=3.11,<3.14",
    packages=PACKAGES,
    package_data={
        "keras_transformer": ["py.typed"],
        "keras_transformer_runner": [
            *("py.typed", "abbreviations.json", "LICENSE", "UNICODE_LICENSE"),
        ],
        "keras_transformer_runner.server": ["page/*"],
    },
    cmdclass={"build_py": BuildWithKits},
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
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Libraries :: Python Modules",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
)
