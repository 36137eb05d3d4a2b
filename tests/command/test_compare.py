"""`keras-transformer compare`, of runs and of files of translations."""

import json
import os
import shutil
from types import SimpleNamespace

import pytest

from keras_transformer.command import cli, compare, systems
from keras_transformer.command.systems import find_systems
from keras_transformer.experiment import load_run
from keras_transformer_runner.tokenizers import VocabularyTokenizer


@pytest.fixture
def files(toy, tmp_path):
    """Two files of translations, references and sources."""
    source, target = (toy.with_name(f"valid.{side}") for side in ("src", "tgt"))
    lines = target.read_text().splitlines()
    texts = {"good.txt": lines, "bad.txt": [line[:-1] + "x" for line in lines]}
    texts["bad.txt"][3] = lines[3]
    for name, content in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in content))
    return tmp_path / "bad.txt", tmp_path / "good.txt", source, target


def run(*arguments):
    return cli.main(["compare", *map(str, arguments)])


def test_files_need_no_model(files, tmp_path, capsys):
    bad, good, _, target = files
    out = tmp_path / "out"
    arguments = ["--samples", 50, "--metrics", "chrf,ter", "--examples", "1", "--output", out]
    assert run(bad, good, "--target", target, *arguments) == 0
    head, first, second, *rest = capsys.readouterr().out.splitlines()
    assert head.split() == ["chrF2", "TER"]
    assert first.startswith("bad ") and "p = " not in first
    assert second.startswith("good  100.00 (100.00 ± 0.00, p = 0.0")
    assert rest[0].startswith("chrF2\tnrefs:1|bs:50|seed:12345|") and rest[1].startswith("TER\t")
    assert "good is better than bad, by chrF of a sentence:" in rest
    assert not any("is worse" in line or "  source" in line for line in rest)
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert names == {
        *("comparison.json", "sentences.jsonl", "references.txt", "score_by_length.png"),
        *("differences.png", "translations/bad.txt", "translations/good.txt"),
    }
    assert (out / "translations" / "bad.txt").read_text() == bad.read_text()
    figures = json.loads((out / "comparison.json").read_text())
    assert figures["baseline"] == "bad" and figures["lines"] == 17
    assert figures["systems"]["good"] == {"path": str(good), "kind": "file"}
    assert figures["sentences"]["differences"]["good"]["equal"] == 1
    lines = (out / "sentences.jsonl").read_text().splitlines()
    assert len(lines) == 17 and json.loads(lines[3])["chrf"] == {"bad": 100, "good": 100}
    assert run(*(out / "translations").iterdir(), "--target", out / "references.txt") == 0


@pytest.mark.slow
def test_a_run_and_its_own_translations_are_equal(run_dir, files, tmp_path, capsys):
    *_, source, target = files
    translations = load_run(run_dir).translator().translate(source.read_text().splitlines())
    (tmp_path / "written").write_text("".join(f"{line}\n" for line in translations))
    test_set = ["--source", source, "--target", target, "--samples", 20]
    out = tmp_path / "out"
    assert run(run_dir, tmp_path / "written", *test_set, "--output", out) == 0
    captured = capsys.readouterr()
    rows = [line.split() for line in captured.out.splitlines()[1:3]]
    assert [row[0] for row in rows] == ["run", "written"] and rows[0][1] == rows[1][1]
    assert "better" not in captured.out and "run translates 17 sentences" in captured.err
    assert (out / "sources.txt").read_text() == source.read_text()
    assert cli.main(["evaluate", str(run_dir), *map(str, test_set[:4]), "--metrics", "chrf"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    figures = json.loads((out / "comparison.json").read_text())["metrics"]["chrF2"]
    assert f"= {figures['systems']['run']['value']:.2f}" in line


@pytest.mark.slow
def test_all_that_can_be_wrong_is_known_before_anything_translates(
    fails, run_dir, files, tmp_path, monkeypatch
):
    def too_early(*_):
        pytest.fail("too late")

    monkeypatch.setattr(compare, "translate_function", too_early)
    bad, good, source, target = files
    both = ["--source", source, "--target", target]
    (tmp_path / "short").write_text("x\n")
    (tmp_path / "empty").touch()
    for arguments, message in (
        ([bad, tmp_path / "short", "--target", target], "with 1 lines, 17 references"),
        ([run_dir, tmp_path / "short", *both], "with 1 lines, 17 references"),
        ([bad, bad, "--target", target], "what is compared must be different. Received: "),
        ([run_dir, f"{run_dir}/.", *both], "must be different"),
        ([bad, good, "--target", tmp_path / "empty"], "must hold a line. Received: "),
        ([bad, tmp_path / "none", "--target", target], "a text file must exist"),
        ([bad, good, "--target", tmp_path / "none"], "a text file must exist"),
        ([bad, good, "--source", "-", "--target", target], "compare needs files, or pipes by name"),
        ([bad, tmp_path, *both], "`compare` takes a run or a preset of a translator"),
        ([bad, good, "--target", target, "--seed", 0], "`seed` must be a positive integer"),
        ([bad, good, "--target", target, "--examples", -1], "`examples` must be an integer"),
        ([bad, good, "--target", target, "--tokenize", "x"], "`tokenize` must be one of"),
        ([bad, good, "--target", target, "--output", tmp_path], "a comparison needs a new folder"),
        ([bad, good, "--target", target, "--beam-size", 4], "--beam-size needs a run: of an"),
        ([run_dir, bad, *both, "--shortlist"], "--shortlist needs shortlist.npz"),
    ):
        assert message in fails("compare", *arguments)


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="needs pipes by name")
def test_a_pipe_is_read_once(files):
    """As the shell's `<(head -100 FILE)` is."""
    bad, good, source, target = files
    pipes = []
    for path in (source, target):
        read, write = os.pipe()
        os.write(write, path.read_bytes())  # less than a pipe holds
        os.close(write)
        pipes.append(read)
    paths = [f"/dev/fd/{read}" for read in pipes]
    assert run(bad, good, "--source", paths[0], "--target", paths[1], "--samples", 20) == 0
    for read in pipes:
        os.close(read)


@pytest.mark.parametrize("signature", ["classify", "generate"])
def test_what_does_not_translate(fails, files, tmp_path, signature):
    bad, _, source, target = files
    device, served = tmp_path / "device", tmp_path / "served" / "1" / "assets.extra"
    device.mkdir()
    served.mkdir(parents=True)
    (device / "model.tflite").touch()
    (device / "metadata.json").write_text(json.dumps({"signature": signature}))
    (served.parent / "saved_model.pb").touch()
    (served / "serving.json").write_text(json.dumps({"signatures": {signature: {}}}))
    for folder in (device, tmp_path / "served"):
        line = fails("compare", bad, folder, "--source", source, "--target", target)
        assert f"whose model has the signatures {signature} and does not translate" in line
    (served / "serving.json").write_text('{"signatures": 5}')  # whoever loads it tells the damage
    assert [each.kind for each in find_systems([tmp_path / "served"])] == ["savedmodel"]
    classifier = tmp_path / "preset"
    classifier.mkdir()
    (classifier / "config.json").write_text("{}")
    line = fails("compare", bad, classifier, "--source", source, "--target", target)
    assert f"`compare` takes a run or a preset of a translator, {'a'}" in line


def test_artefacts_translate_too(files, tmp_path, monkeypatch, capsys):
    """They lie in folders that are no runs."""
    _, good, source, target = files
    device, served = tmp_path / "device", tmp_path / "served" / "1"
    device.mkdir()
    served.mkdir(parents=True)
    (device / "model.tflite").touch()
    (device / "metadata.json").write_text(json.dumps({"signature": "translate"}))
    (served / "saved_model.pb").touch()
    asked = []

    def translate_function(arguments):
        asked.append((arguments.backend, arguments.artifact))
        return lambda sources: good.read_text().splitlines()

    monkeypatch.setattr(compare, "translate_function", translate_function)
    # Both have split text: the references are joined as their translations are.
    pieces = SimpleNamespace(target_tokenizer=VocabularyTokenizer(["a"], joiner="@@"))
    monkeypatch.setattr(systems, "open_folder", {str(device): pieces}.__getitem__)
    served.joinpath("assets.extra").mkdir()
    (served / "assets.extra" / "serving.json").write_text(
        json.dumps({"signatures": {"translate": {}}, "joiner": "@@"})
    )
    split = tmp_path / "split"
    split.write_text(target.read_text().replace("a", "@@ a"))
    test_set = ["--source", source, "--target", split, "--samples", 9]
    assert run(device, served.parent, *test_set) == 0
    assert asked == [("litert", str(device)), ("savedmodel", str(served.parent))]
    rows = capsys.readouterr().out.splitlines()[1:3]
    assert [row.split()[:2] for row in rows] == [["device", "100.00"], ["served", "100.00"]]


def test_equal_names_are_numbered(files, tmp_path, capsys):
    bad, good, _, target = files
    (tmp_path / "sub").mkdir()
    shutil.copy(good, tmp_path / "sub" / "bad.txt")
    assert run(bad, tmp_path / "sub" / "bad.txt", "--target", target, "--samples", 9) == 0
    rows = capsys.readouterr().out.splitlines()[1:3]
    assert [row.split()[0] for row in rows] == ["1-bad", "2-bad"]


def test_white_space_is_read_alike(monkeypatch):
    functions = iter([str, lambda text: " ".join(text.split())])
    monkeypatch.setattr(systems, "plain_text_of", lambda _: next(functions))
    found = [systems.System(name, name, "litert") for name in "ab"]
    assert compare._plain_references(["x  y "], found) == ["x  y "]


def test_runs_must_read_the_references_alike(fails, run_dir, files, tmp_path, monkeypatch):
    from keras_transformer_runner.tokenizers import SentencePieceTokenizer

    bad, _, source, target = files
    other = tmp_path / "other"
    shutil.copytree(run_dir, other)
    found = iter([str, str.upper])
    monkeypatch.setattr(
        SentencePieceTokenizer, "plain_text", property(lambda _: next(found)), raising=True
    )
    line = fails("compare", run_dir, other, "--source", source, "--target", target)
    assert "must read the references as the same text" in line and str(other) in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--target", "r"], "compare takes two RUNs or more"),
        (["a", "b"], "compare needs references: --target, or a --source that has both sides"),
        (["a", "b", "--source", "s"], "compare needs references"),
        (["a", ".", "--target", "r"], "compare needs --source, but where all RUNs are files"),
        (
            ["a", "b", "--target", "r", "--format", "jsonl"],
            "--format of compare goes with --source",
        ),
        (["a", "b", "--target", "r", "--target-key", "x"], "--target-key of compare goes with"),
        (["a", "b", "--target", "r", "--metrics", "bleu,comet"], "must be some of bleu,chrf,ter"),
        (["a", "b", "--target", "r", "--metrics", "bleu,bleu"], "each once. Received: bleu,bleu"),
    ],
)
def test_usage(capsys, arguments, message):
    with pytest.raises(SystemExit) as error:
        cli.main(["compare", *arguments])
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_the_command_knows_every_metric():
    from keras_transformer import evaluation
    from keras_transformer.command.export_parser import METRICS

    assert METRICS == evaluation.METRICS
