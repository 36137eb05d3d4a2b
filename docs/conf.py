"""How Sphinx makes the site: `python -m sphinx -W -c docs . build/site`, from the root.

The source folder is the root of the repository, so that a page links to files beside `docs/` as
it does on a plain Git host, and the pages of `export/` and `benchmarks/` are pages of the site.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "extensions")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from keras_transformer_runner import __version__  # noqa: E402

project = "keras_transformer"
author = "the authors of keras_transformer"
copyright = "the authors of keras_transformer, Apache-2.0"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxarg.ext",
    "contents",
    "docstrings",
    "experiment_keys",
    "public_names",
]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**.md",
    "examples/README.md",
    "export/**.md",
    "benchmarks/results/*/README.md",
    "tests/FIELD_CASES.md",
]
exclude_patterns = ["**/node_modules", "**/.*", "build", "runs"]

myst_heading_anchors = 4  # headings have the anchors that a Git host gives them

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False
napoleon_custom_sections = [("Call arguments", "params_style"), ("Attributes", "params_style")]
napoleon_use_rtype = False
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"

# sphinx-argparse does not answer links of Markdown, and need not.
suppress_warnings = ["myst.domains"]
smartquotes = False  # --option stays --option

html_theme = "furo"
html_title = f"keras_transformer {version}"
html_show_sphinx = False
html_copy_source = False
