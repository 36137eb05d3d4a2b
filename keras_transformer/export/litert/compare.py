"""All modes of one model side by side: what each costs, and what it loses."""

import json
import os
import platform
import shutil
from collections.abc import Iterable, Sequence

from keras_transformer.decoding.options import SearchOptions
from keras_transformer.export.backend import check_backend
from keras_transformer.export.litert.conversion import check_size
from keras_transformer.export.litert.export_translator import (
    PythonAnswers,
    calibration_for,
    device_translator,
    write_mode,
)
from keras_transformer.export.litert.modes import MODES, mode_named
from keras_transformer.export.litert.writer import search_settings
from keras_transformer.export.parity import checked_references, checked_samples
from keras_transformer.models import Transformer
from keras_transformer.plots import plot_lines
from keras_transformer_runner.atomic import new_folder
from keras_transformer_runner.folder import CARD, FILES, REPORT
from keras_transformer_runner.measure import measure
from keras_transformer_runner.tokenizers import Tokenizer

_JSON = "report.json"
_OF_MODE = [name for name in FILES if name != CARD]  # a card there is somebody's own
_FILES = (_JSON, "report.md", "report.png")
_FILES += tuple(f"{mode}/{name}" for mode in MODES for name in _OF_MODE)
_TIMED = 200  # sentences, for latency and memory
_KEPT = ("size_bytes", "identical", "token_agreement", "bleu", "ops")


def compare_modes(
    model: Transformer,
    tokenizer: Tokenizer,
    path: os.PathLike | str,
    *,
    samples: Sequence[str],
    references: Sequence[str] | None = None,
    modes: Iterable[str] | None = None,
    strategy: SearchOptions | None = None,
    target_tokenizer: Tokenizer | None = None,
    calibration_samples: Sequence[str] | None = None,
    bleu_tokenize: str = "13a",
    max_source_length: int = 512,
    overwrite: bool = False,
) -> dict:
    """Exports a model in several modes, measures each, and writes a report.

    The folder holds `report.json`, `report.md` and, where matplotlib is installed, `report.png`
    (size against BLEU and speed), and for each mode a folder as `export_litert` writes it, without
    a model card. A mode that breaks its promise has its numbers in the report, with the reason,
    and no folder.

    Each mode is timed in a fresh process, one sentence at a time on one thread, on up to 200 of
    the samples. Nothing else should run on the machine.

    Example:
        >>> from keras_transformer.export import compare_modes
        >>> tokenizer = kt.BytesTokenizer()
        >>> config = kt.TransformerConfig(vocab_size=tokenizer.vocab_size, model_dim=8, num_heads=2,
        ...     encoder_layers=1, decoder_layers=1, intermediate_dim=16)
        >>> report = compare_modes(kt.Transformer(config), tokenizer, "modes",
        ...     samples=["A man rides."], modes=["float32"])
        >>> report["modes"]["float32"]["token_agreement"]
        1.0

    Args:
        model, tokenizer, samples, references, strategy, target_tokenizer: As in `export_litert`.
        calibration_samples, bleu_tokenize, max_source_length: As in `export_litert`.
        path: The folder to make.
        modes: Keys of `MODES`; all when `None`.
        overwrite: Whether the folder of an earlier report is replaced; no other ever is.

    Returns:
        The content of `report.json`, a dict: `modes` has a dict for each mode with `size_bytes`,
        `bytes_a_parameter`, `token_agreement`, `identical`, `bleu`, `refused` (what it breaks of
        its promise, a list), `ops`, and what `measure` gives.

    Raises:
        TypeError, ValueError, FileExistsError, RuntimeError: As `export_litert`.
    """
    check_backend()
    modes = list(MODES) if modes is None else list(modes)
    for mode in modes:
        mode_named(mode)
        if isinstance(model, Transformer):
            check_size(model, mode)
    translator = device_translator(model, tokenizer, strategy, target_tokenizer, max_source_length)
    samples = checked_samples(samples)
    references = checked_references(references, samples, bleu_tokenize)
    replaces = _FILES if overwrite else None
    with new_folder(path, replaces=replaces, mark=_JSON, what="an export") as folder:
        answers = PythonAnswers.translated_by(translator, samples, references, bleu_tokenize)
        rows = {}
        for mode in modes:
            calibration = calibration_for(mode, translator, answers, calibration_samples)
            rows[mode] = _mode(folder / mode, translator, mode, answers, calibration)
        report = {**_head(translator, answers), "modes": rows}
        (folder / _JSON).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        (folder / "report.md").write_text(markdown(report), encoding="utf-8")
        figure = plot(report)
        if figure is not None:
            figure.savefig(folder / "report.png")
    return report


def _head(translator, answers):
    return {
        "parameters": translator.model.count_params(),
        "search": search_settings(translator.strategy),
        "sentences": len(answers.samples),
        "python_bleu": answers.bleu,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
    }


def _mode(folder, translator, mode, answers, calibration):
    """One mode's numbers; its folder stays only if it keeps its promise."""
    folder.mkdir()
    found = write_mode(folder, translator, mode, answers, calibration)
    found.write(folder / REPORT)
    row = {name: getattr(found, name) for name in _KEPT}
    row["bytes_a_parameter"] = (folder / "model.tflite").stat().st_size / found.parameters
    row["runtime"] = found.runtime
    row.update(measure(folder, answers.samples[:_TIMED]))
    row["refused"] = [reason.partition(", first at")[0] for reason in found.broken_promises()]
    if row["refused"]:
        shutil.rmtree(folder)
    return row


def markdown(report):
    """The report as a page with a table."""
    search, has_bleu = report["search"], report["python_bleu"] is not None
    lines = [
        "# LiteRT modes side by side",
        "",
        f"{report['parameters']:,} parameters, {search['name']}"
        + (f" of {search['beam_size']}" if "beam_size" in search else "")
        + f", {report['sentences']:,} sentences; {report['machine']}, one thread.",
        *([f"BLEU in Python: {report['python_bleu']:.2f}."] if has_bleu else []),
        "",
        "| mode | MB | bytes a parameter | tokens as in Python | equal texts | BLEU | median ms "
        "| p95 ms | tokens/s | load ms | first ms | peak MB | |",
        "|---|" + "---:|" * 11 + "---|",
        *(_table_row(mode, row, report) for mode, row in report["modes"].items()),
        "",
        "MB: the folder, tokenizer included. Latency: text to text, one sentence at a time. Load: "
        "opening the folder, imports not counted. First: the first sentence, with what the runtime "
        "prepares. Peak: resident memory of the whole process, Python included.",
        "",
        *_reasons(report),
        *_delegates(report),
    ]
    return "\n".join(lines) + "\n"


def _table_row(mode, row, report):
    def shown(value, form):
        return "" if value is None else format(value, form)

    cells = [
        mode,
        f"{row['size_bytes'] / 1e6:.2f}",
        f"{row['bytes_a_parameter']:.3f}",
        f"{row['token_agreement']:.2%}",
        f"{row['identical']} of {report['sentences']}",
        shown(row["bleu"], ".2f"),
        f"{1e3 * row['median_seconds']:.2f}",
        f"{1e3 * row['p95_seconds']:.2f}",
        f"{row['tokens_a_second']:.0f}",
        f"{1e3 * row['load_seconds']:.0f}",
        f"{1e3 * row['first_seconds']:.0f}",
        shown(row["peak_bytes"] and row["peak_bytes"] / 1e6, ".0f"),
        "refused" if row["refused"] else "",
    ]
    return f"| {' | '.join(cells)} |"


def _reasons(report):
    for mode, row in report["modes"].items():
        if row["refused"]:
            yield f"`{mode}` is refused: {'; '.join(row['refused'])}."
            yield ""


def _delegates(report):
    groups = {}
    for mode, row in report["modes"].items():
        key = (tuple(row["delegates"]), tuple(row["ops"]), row["runtime"])
        groups.setdefault(key, []).append(mode)
    for (delegates, ops, runtime), modes in groups.items():
        yield (
            f"**{', '.join(modes)}** on {runtime}, delegates: {', '.join(delegates) or 'none'}; "
            f"ops: {', '.join(ops)}."
        )
        yield ""


def plot(report):
    """Size against BLEU (agreement, without references) and against speed.

    Returns:
        A `matplotlib.figure.Figure`, or `None` where matplotlib is not installed.
    """
    python_bleu, rows = report["python_bleu"], report["modes"].values()
    sizes = [row["size_bytes"] / 1e6 for row in rows]
    names = [mode + " (refused)" * bool(row["refused"]) for mode, row in report["modes"].items()]

    def points(values):
        return {
            name: ([size], [value]) for name, size, value in zip(names, sizes, values, strict=True)
        }

    speed = points([row["tokens_a_second"] for row in rows])
    if python_bleu is None:
        quality = points([100 * row["token_agreement"] for row in rows])
        panels = {"tokens as in Python, %": quality, "tokens a second": speed}
    else:
        quality = points([row["bleu"] for row in rows])
        quality["Python"] = ([0, max(sizes)], [python_bleu, python_bleu])
        panels = {"BLEU": quality, "tokens a second": speed}
    try:
        figure = plot_lines(panels, x_label="MB on disk")
    except ImportError:
        return None
    figure.axes[1].set_ylim(bottom=0)
    return figure
