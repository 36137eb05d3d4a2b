"""What `compare` shows of a comparison: lines on standard output, and a folder."""

import importlib.util
import json

import numpy as np

from keras_transformer.command.inputs import write_lines
from keras_transformer_runner.atomic import new_folder
from keras_transformer_runner.lines import json_line, one_line
from keras_transformer_runner.streams import log

_NAMES = {"chrf": "chrF", "bleu": "BLEU"}
_MOST_GROUPS = 6  # of sentences by their length
_FEWEST = 5  # sentences in each


def print_comparison(found, sources, references, translations, examples):
    """Prints scores, p-values, signatures, and the sentences that differ most.

    Args:
        found: A `Comparison`.
        sources: Their lines, or `None`.
        references: Their lines.
        translations: Lists of lines by the system's name.
        examples: Sentences a direction.
    """
    write_lines(_table(found))
    write_lines(f"{name}\t{signature}" for name, signature in found.signatures.items())
    for name in found.names[1:]:
        texts = {"source": sources, "reference": references}
        shown = [(what, lines) for what, lines in texts.items() if lines is not None]
        shown += [(each, translations[each]) for each in (found.names[0], name)]
        for word, places in zip(("better", "worse"), found.extremes(name, examples), strict=True):
            if places:
                write_lines(_examples(found, name, word, places, shown))


def _table(found):
    """A row a system: its scores, with 95% confidence intervals and p-values."""
    rows = [["", *found.scores]]
    for name in found.names:
        cells = []
        for systems in found.scores.values():
            score = systems[name]
            p_value = "" if score.p_value is None else f", p = {score.p_value:.4f}"
            cells.append(f"{score.value:.2f} ({score.mean:.2f} ± {score.interval:.2f}{p_value})")
        rows.append([name, *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()


def _examples(found, name, word, places, shown):
    base, differences = found.names[0], found.differences(name)
    yield ""
    yield f"{name} is {word} than {base}, by {_NAMES[found.by]} of a sentence:"
    width = max(len(what) for what, _ in shown)
    for place in places:
        yield f"  line {place + 1}: {differences[place]:+.1f}"
        for what, lines in shown:
            yield f"    {what:{width}}  {one_line(lines[place])}"


def write_comparison(folder, found, sources, references, translations, systems):
    """Writes the folder of a comparison, which appears whole.

    Args:
        folder: The folder, new or empty.
        found: A `Comparison`.
        sources: Their lines, or `None`.
        references: Their lines.
        translations: Lists of lines by the system's name.
        systems: What each system is, a dictionary by its name.
    """
    with new_folder(folder, what="a comparison") as temporary:
        (temporary / "translations").mkdir()
        files = {f"translations/{name}.txt": texts for name, texts in translations.items()}
        for name, texts in {"sources.txt": sources, "references.txt": references, **files}.items():
            if texts is not None:
                _write(temporary / name, map(one_line, texts))
        figures = {"systems": systems, "lines": len(references), **found.to_dict()}
        _write(temporary / "comparison.json", [json.dumps(figures, indent=2, ensure_ascii=False)])
        _write(temporary / "sentences.jsonl", _sentences(found, sources, references, translations))
        _plot(temporary, found, sources, references)


def _write(path, lines):
    text = "".join(f"{line}\n" for line in lines)
    path.write_text(text, encoding="utf-8", newline="\n")


def _sentences(found, sources, references, translations):
    for place, reference in enumerate(references):
        yield json_line(
            {
                **({} if sources is None else {"source": sources[place]}),
                "reference": reference,
                "translations": {name: texts[place] for name, texts in translations.items()},
                found.by: {name: scores[place] for name, scores in found.sentences.items()},
            }
        )


def _plot(folder, found, sources, references):
    if importlib.util.find_spec("matplotlib") is None:
        log("no plots: they need matplotlib (pip install 'keras-transformer-edge[plots]')")
        return
    from keras_transformer.plots import plot_histograms, plot_lines

    metric, what = _NAMES[found.by], "reference" if sources is None else "source"
    lengths = np.array([len(text) for text in (references if sources is None else sources)])
    groups = _by_length(lengths)
    lines = {
        name: (
            [float(lengths[group].mean()) for group in groups],
            [float(np.mean(np.array(scores)[group])) for group in groups],
        )
        for name, scores in found.sentences.items()
    }
    label = f"{what} length, characters (means of {len(groups)} groups)"
    by_length = plot_lines({f"mean {metric} of sentences": lines}, x_label=label)
    by_length.savefig(folder / "score_by_length.png")
    panels = {}
    for name in found.names[1:]:
        differences = [each for each in found.differences(name) if each]
        equal = len(references) - len(differences)
        heading = f"{name}: {len(differences):,} sentences differ, {equal:,} do not"
        panels[heading] = differences or [0.0]
    label = f"{metric} of a sentence, beyond that of {found.names[0]}"
    plot_histograms(panels, x_label=label).savefig(folder / "differences.png")


def _by_length(lengths):
    """Places of sentences in groups of about equal size, the shortest sentences first."""
    order = np.argsort(lengths, kind="stable")
    count = max(1, min(_MOST_GROUPS, len(order) // _FEWEST))
    return np.array_split(order, count)
