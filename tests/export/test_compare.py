"""The report of all modes: figures from a process of its own, and a page for people."""

import copy
import dataclasses
import json
import sys

import pytest

from keras_transformer.export import MODES, compare_modes
from keras_transformer.export.litert import compare
from keras_transformer_runner import Runner
from keras_transformer_runner.atomic import new_folder
from keras_transformer_runner.measure import measure


@pytest.fixture(scope="module")
def compared(trained, tokenizer, live, texts, tmp_path_factory):
    """`(folder, report)` of two modes, of which the second breaks its promise."""
    folder = tmp_path_factory.mktemp("compared") / "modes"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODES, "int8", dataclasses.replace(MODES["int8"], promised_agreement=1.1))
        made = compare_modes(
            trained, tokenizer, folder, samples=texts, references=live.translate(texts),
            modes=["float32", "int8"], bleu_tokenize="char",
        )  # fmt: skip
    return folder, made


@pytest.mark.slow
def test_a_mode_that_breaks_its_promise_is_refused(compared, live, texts):
    folder, made = compared
    assert made["modes"]["float32"]["refused"] == []
    reason, *others = made["modes"]["int8"]["refused"]
    assert all(other.startswith("a int8 litert must lose at most 0.2 BLEU") for other in others)
    assert reason.startswith("a int8 litert must give at least 110% of Python's tokens. Received:")
    names = {path.name for path in folder.iterdir()}
    assert names == {"float32", "report.json", "report.md", "report.png"}
    assert Runner(folder / "float32").translate(texts) == live.translate(texts)
    assert (folder / "float32" / "parity.json").is_file()


def test_a_card_that_somebody_wrote_is_not_replaced(tmp_path):
    (tmp_path / "float32").mkdir()
    (tmp_path / "report.json").touch()
    (tmp_path / "float32" / "README.md").write_text("Mine.")
    with (
        pytest.raises(FileExistsError, match="which also holds float32/README.md"),
        new_folder(tmp_path, replaces=compare._FILES, mark="report.json"),
    ):
        pass


@pytest.mark.slow
def test_figures(compared, trained, texts):
    folder, made = compared
    assert json.loads((folder / "report.json").read_text(encoding="utf-8")) == json.loads(
        json.dumps(made)
    )
    assert made["parameters"] == trained.count_params() and made["sentences"] == len(texts)
    assert made["python_bleu"] == pytest.approx(100)
    float32, int8 = made["modes"].values()
    assert float32["identical"] == len(texts) and float32["token_agreement"] == 1
    assert float32["bleu"] == made["python_bleu"]
    assert int8["size_bytes"] < float32["size_bytes"]
    model = folder / "float32" / "model.tflite"
    assert float32["bytes_a_parameter"] == model.stat().st_size / trained.count_params()
    for row in (float32, int8):
        assert 0 < row["median_seconds"] <= row["p95_seconds"] < 5
        assert row["load_seconds"] > 0 and row["first_seconds"] > 0
        assert row["tokens_a_second"] > 0 and row["sentences"] == len(texts)
        assert "FULLY_CONNECTED" in row["ops"] and row["runtime"].startswith("ai-edge-litert")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_memory_is_that_of_an_app_and_not_of_tensorflow(compared):
    for row in compared[1]["modes"].values():
        assert 10e6 < row["idle_bytes"] < row["peak_bytes"] < 200e6
        assert row["delegates"] == ["XNNPACK"]


def test_no_text_of_the_samples_is_in_the_report(compared, texts):
    folder, _ = compared
    for name in ("report.json", "report.md"):
        content = (folder / name).read_text(encoding="utf-8")
        assert not [text for text in texts if len(text) > 5 and text in content]


def test_page(compared):
    folder, made = compared
    page = (folder / "report.md").read_text(encoding="utf-8")
    assert page == compare.markdown(made)
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows] == ["| mode", "| float32", "| int8"]
    assert len({len(row) for row in rows}) == 1
    assert rows[1][3:6] == ["100.00%", "24 of 24", "100.00"]
    assert rows[2][-1] == "refused |" and "`int8` is refused: a int8 litert must" in page
    assert "BLEU in Python: 100.00." in page and "delegates: XNNPACK; ops: ADD," in page


def test_page_and_plot_without_references(compared):
    made = copy.deepcopy(compared[1])
    made["python_bleu"] = None
    for row in made["modes"].values():
        row["bleu"] = row["peak_bytes"] = None
    assert "BLEU in Python" not in compare.markdown(made)
    quality, speed = compare.plot(made).axes
    assert quality.get_title(loc="left") == "tokens as in Python, %"
    assert [line.get_ydata()[0] for line in quality.lines][0] == 100
    assert speed.get_title(loc="left") == "tokens a second"


def test_plot(compared):
    folder, made = compared
    assert (folder / "report.png").read_bytes()[:4] == b"\x89PNG"
    quality, speed = compare.plot(made).axes
    names = [line.get_label() for line in quality.lines]
    assert names == ["float32", "int8 (refused)", "Python"]
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in speed.lines]
    assert points == [
        (row["size_bytes"] / 1e6, row["tokens_a_second"]) for row in made["modes"].values()
    ]


def test_without_matplotlib_there_is_no_plot(compared, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert compare.plot(compared[1]) is None


def test_a_folder_that_does_not_run(tmp_path):
    with pytest.raises(RuntimeError, match="(?s)run in a process of its own.*FileNotFoundError"):
        measure(tmp_path, ["a"])


def test_wrong_arguments_cost_nothing(trained, tokenizer, texts, tmp_path):
    def compare(**kwargs):
        kwargs = {"samples": texts, **kwargs}
        compare_modes(trained, tokenizer, tmp_path / "a", **kwargs)

    with pytest.raises(ValueError, match="`mode` must be one of .*Received: 'int2'"):
        compare(modes=["float32", "int2"])
    with pytest.raises(ValueError, match="`references` must have one line for each"):
        compare(references=["a"])
    with pytest.raises(TypeError, match="`samples` must be a list of strings"):
        compare(samples="abc")
    assert list(tmp_path.iterdir()) == []
