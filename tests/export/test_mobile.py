"""Exported files on an emulated arm64 processor: see export/mobile/README.md."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from keras_transformer.export import MODES

MOBILE = pathlib.Path(__file__).parents[2] / "export" / "mobile"
NATIVE = MOBILE.parent / "native"


@pytest.fixture(scope="session")
def check():
    spec = importlib.util.spec_from_file_location("mobile_check", MOBILE / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def root():
    path = os.environ.get("ARM64_ROOT")
    if not path or not os.path.isdir(path):
        pytest.skip("ARM64_ROOT names no arm64 system: export/mobile/check.sh makes one")
    return path


@pytest.fixture(scope="session")
def python_answers(live, texts, other_texts, odd_texts):
    """The model's own answers, in Python."""
    everything = [*texts, *other_texts, *odd_texts]
    answers = []
    for text in everything:
        source_ids = live.source_ids(text)
        target_ids = live.translate_ids([source_ids])[0]
        text = live.target_tokenizer.decode(target_ids)
        answers.append(dict(source_ids=source_ids, target_ids=target_ids, text=text))
    return everything, answers


@pytest.mark.slow
def test_float32_gives_the_same_tokens_on_arm64(check, root, device, python_answers):
    texts, expected = python_answers
    received = check.on_arm64(root, device.path, texts)
    assert received == expected
    assert len({answer["text"] for answer in received}) > 25


@pytest.mark.slow
def test_int8_keeps_its_promise_on_arm64(check, root, int8_device, python_answers):
    texts, expected = python_answers
    received = check.on_arm64(root, int8_device.path, texts)
    result = check.agreement(texts, expected, received)
    assert result["same_source_ids"] == len(texts)
    assert result["token_agreement"] >= max(0.9, MODES["int8"].promised_agreement)


@pytest.mark.slow
def test_a_failure_of_the_emulated_runner_is_told(check, root, tmp_path):
    with pytest.raises(RuntimeError, match="(?s)work on arm64. Received: status 1.*metadata.json"):
        check.on_arm64(root, tmp_path, ["a"])


@pytest.mark.slow
def test_the_command_compares_two_exports(
    check, root, device, int8_device, texts, tmp_path, capsys
):
    file = write_texts(tmp_path / "texts", texts)
    arguments = [root, str(int8_device.path), file, "--reference", str(device.path)]
    assert check.main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["mode"], result["samples"]) == ("int8", len(texts))
    assert result["promised"] == MODES["int8"].promised_agreement


# --- The command, without an emulator ------------------------------------------------------

ANSWERS = [
    {"source_ids": [5, 3], "target_ids": [7], "text": "b"},
    {"source_ids": [6, 5, 3], "target_ids": [8, 9, 11], "text": "bcd"},
]


@pytest.fixture
def folder(tmp_path):
    """What `check.py` reads itself of an exported folder."""
    report = {"mode": "int8", "promised_agreement": 0.75}
    (tmp_path / "parity.json").write_text(json.dumps(report))
    return tmp_path


@pytest.fixture
def run_check(check, monkeypatch, folder):
    """The exit status of `check.py` for given answers of the two machines."""

    def run(here, there):
        monkeypatch.setattr(check, "on_this_machine", lambda folder, texts: here)
        monkeypatch.setattr(check, "on_arm64", lambda root, folder, texts: there)
        return check.main(["root", str(folder), write_texts(folder / "texts", ["a", "ab"])])

    return run


def write_texts(path, texts):
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return str(path)


def changed(**fields):
    """ANSWERS with another second one."""
    return [ANSWERS[0], {**ANSWERS[1], **fields}]


def test_the_command_prints_what_it_counted(run_check, capsys):
    assert run_check(ANSWERS, ANSWERS) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["identical"] == result["same_source_ids"] == 2
    assert (result["promised"], result["mode"]) == (0.75, "int8")


def test_the_status_follows_the_promise(run_check):
    assert run_check(ANSWERS, changed(target_ids=[8, 9, 10])) == 0  # 5 of 6
    assert run_check(ANSWERS, changed(target_ids=[8, 10, 10])) == 1  # 4 of 6
    assert run_check(ANSWERS, changed(source_ids=[6, 6, 3])) == 1


def test_the_command_tells_what_is_wrong(check, folder, capsys):
    assert check.main(["root", str(folder), str(folder / "none")]) == 1
    assert "none" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        check.main([])


@pytest.fixture
def stand_in(check, monkeypatch, tmp_path):
    """A shell script in place of the emulator's."""

    def stand_in(script):
        path = tmp_path / "arm64_python.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(check, "HERE", tmp_path)

    return stand_in


def test_another_processor_is_no_check(check, stand_in):
    stand_in("""echo '{"machine": "x86_64", "answers": []}'""")
    with pytest.raises(RuntimeError, match="machine must be aarch64. Received: x86_64"):
        check.on_arm64("root", "folder", ["a"])


def test_no_emulator_is_a_status_of_its_own(check, folder, monkeypatch, capsys):
    commands = folder / "bin"
    commands.mkdir()
    for name in ("bash", "env"):
        (commands / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(commands))
    monkeypatch.setattr(check, "on_this_machine", lambda folder, texts: ANSWERS)
    assert check.main(["root", str(folder), write_texts(folder / "texts", ["a", "ab"])]) == 77
    assert "qemu-user-static" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["a", "b"]])
def test_the_script_for_the_arm64_system_tells_its_use(arguments):
    script = [NATIVE / "arm64_root.sh", *arguments]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("arm64_root.sh DEST: an arm64 Python")


def test_the_script_for_the_arm64_system_replaces_nothing(tmp_path):
    script = [NATIVE / "arm64_root.sh", tmp_path]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "DEST must not exist" in done.stderr
