"""The model card of a preset: what it is, what it was made of, how good it is."""

import dataclasses
import json

from keras_transformer_runner import __version__

_NOT_SAID = "not stated"
_USE = """## Use
```python
import keras_transformer as kt

{use}
```
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """What a model card says beside the numbers of the model.

    Attributes:
        name: Its heading.
        license: Of the weights, as its SPDX identifier or in words.
        data: What the model was trained on.
        figures: How good it is, by the name of the figure.
        search: How it translates.
        notes: More about it, in Markdown.
    """

    name: str = "Transformer"
    license: str | None = None
    data: str | None = None
    figures: dict | None = None
    search: str | None = None
    notes: str | None = None

    def text(self, config, parameters, use):
        """The card in Markdown, with the front matter that model hubs read.

        Args:
            config: The `TransformerConfig`.
            parameters: The number of weights.
            use: Python that loads the preset.
        """
        rows = {
            "made with": f"keras_transformer {__version__}",
            "parameters": f"{parameters:,}",
            "search": self.search,
            "training data": self.data or _NOT_SAID,
            "licence": self.license or _NOT_SAID,
        }
        front = ["library_name: keras", "tags:", "- keras_transformer"]
        if self.license:  # JSON's strings are YAML's too
            front.insert(0, f"license: {json.dumps(self.license)}")
        parts = [
            "\n".join(["---", *front, "---"]),
            f"# {self.name}",
            _table("", "", {name: value for name, value in rows.items() if value}),
            "## Model\n" + _table("field of `TransformerConfig`", "value", _changed(config)),
        ]
        if self.figures:
            parts.append("## Figures\n" + _table("figure", "value", self.figures))
        if self.notes:
            parts.append(self.notes)
        return "\n\n".join([*parts, _USE.format(use=use)])


def _changed(config):
    """The fields of a config that are not left at their defaults."""
    return {
        field.name: value
        for field in dataclasses.fields(config)
        if (value := getattr(config, field.name)) != field.default
    }


def _table(first, second, rows):
    lines = [f"| {first} | {second} |", "|---|---|"]
    lines += [f"| {_cell(name)} | {_cell(value)} |" for name, value in rows.items()]
    return "\n".join(lines)


def _cell(value):
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return " ".join(text.replace("|", "\\|").split())
