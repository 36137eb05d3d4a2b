"""The model card of a preset: what it is, what it was made of, how good it is."""

import dataclasses
import json

from keras_transformer_runner import __version__

_NOT_SAID = "not stated"
_USE = """## Use
```python
{use}
```
"""
_KERAS_USE = "import keras_transformer as kt\n\n{use}"
_LIMITS = (
    "Meant for texts like those that it was trained on; how good it is on others was not measured. "
    "As any such model it can leave out, add or change what a text says: where names, numbers or "
    "negations matter, a person has to read both sides."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """What a model card says beside the numbers of the model.

    Attributes:
        name: Its heading.
        license: Of the weights, as its SPDX identifier or in words.
        languages: Their codes, such as `"de"`; the source's first.
        data: What the model was trained on.
        figures: How good it is, by the name of the figure.
        search: How it translates.
        sections: More tables, or text in Markdown, by their headings.
        notes: More about it, in Markdown.
        translates: Whether it is a translator.
        library: What loads it, as model hubs name it.
    """

    name: str = "Transformer"
    license: str | None = None
    languages: tuple[str, ...] = ()
    data: str | None = None
    figures: dict | None = None
    search: str | None = None
    sections: dict = dataclasses.field(default_factory=dict)
    notes: str | None = None
    translates: bool = False
    library: str = "keras"

    def text(self, config, parameters, use):
        """The card in Markdown, with the front matter that model hubs read.

        Args:
            config: The `TransformerConfig`.
            parameters: The number of weights.
            use: Python that loads the preset, or of another library all that it takes.
        """
        rows = {
            "made with": f"keras_transformer {__version__}",
            "languages": (" to " if len(self.languages) == 2 else ", ").join(self.languages),
            "parameters": f"{parameters:,}",
            "search": self.search,
            "training data": self.data or _NOT_SAID,
            "licence": self.license or f"{_NOT_SAID}: fill it in here and as `license` at the top",
        }
        parts = [
            self._front_matter(),
            f"# {self.name}",
            _table("", "", {name: value for name, value in rows.items() if value}),
            "## Model\n" + _table("field of `TransformerConfig`", "value", changed_fields(config)),
        ]
        if self.figures:
            parts.append("## Figures\n" + _table("figure", "value", self.figures))
        for heading, content in self.sections.items():
            text = content if isinstance(content, str) else _table("", "", content)
            parts.append(f"## {heading}\n{text}")
        if self.notes:
            parts.append(self.notes)
        if self.translates:
            parts.append(f"## Intended use and limits\n{_LIMITS}")
        use = _KERAS_USE.format(use=use) if self.library == "keras" else use
        return "\n\n".join([*parts, _USE.format(use=use)])

    def _front_matter(self):
        # JSON's strings are YAML's too.
        licence = f"license: {json.dumps(self.license)}" if self.license else None
        lines = [licence or "# license: for you to fill in, such as cc-by-4.0"]
        if self.languages:
            lines += ["language:", *(f"- {json.dumps(code)}" for code in self.languages)]
        lines.append(f"library_name: {self.library}")
        if self.translates:
            lines.append("pipeline_tag: translation")
        return "\n".join(["---", *lines, "tags:", "- keras_transformer", "---"])


def changed_fields(record):
    """The fields of a dataclass that are not left at their defaults, by their names."""
    return {
        field.name: value
        for field in dataclasses.fields(record)
        if (value := getattr(record, field.name)) != field.default
    }


def _table(first, second, rows):
    lines = [f"| {first} | {second} |", "|---|---|"]
    lines += [f"| {_cell(name)} | {_cell(value)} |" for name, value in rows.items()]
    return "\n".join(lines)


def _cell(value):
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return " ".join(text.replace("|", "\\|").split())
