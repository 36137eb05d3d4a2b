"""The HTTP server on exported folders, in a process of its own, and clients of LibreTranslate."""

import contextlib
import importlib.util
import signal
import socket
import sys
import threading

import numpy as np
import pytest
from http_service import ask
from server_process import MODULE, serving

from keras_transformer.command import cli
from keras_transformer_runner import Runner
from keras_transformer_runner.server import command

TEXT = "a man rides. ein Mann!\n\n\tab cd"


@pytest.fixture(scope="module")
def folders(native_pieces, native_language, native_tags):
    pairs = {"en:de": native_pieces, "de:en": native_pieces}
    return {**pairs, "lm": native_language, "tags": native_tags}


@pytest.fixture(scope="module")
def runners(folders):
    return {name: Runner(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def address(folders, repo_root):
    given = [f"{name}={folder}" for name, folder in folders.items()]
    with serving(repo_root, *given, "--workers", "2") as (_, address):
        yield address


def test_translations_are_the_runners(address, runners):
    expected = runners["en:de"].translate_text(TEXT, language="en")
    answer = ask(address, "/translate", dict(q=[TEXT, ""], source="en", target="de"))
    assert answer.body == {"translatedText": [expected, ""]}


def test_alternatives_are_those_of_the_search(address, runners):
    found = runners["en:de"].translate_with_details(["a man"])[0]
    assert runners["en:de"].n_best == 3 and runners["lm"].n_best == 1
    assert runners["tags"].n_best == 0
    answer = ask(address, "/translate", dict(q="a man", source="en", target="de", alternatives=5))
    best, *others = dict.fromkeys(each.text for each in found)
    assert answer.body == {"translatedText": best, "alternatives": others}


def test_models_that_do_not_translate(address, runners):
    answer = ask(address, "/generate", dict(prompt=["a man", ""]))
    assert answer.body == {"text": runners["lm"].generate(["a man", ""])}
    answer = ask(address, "/generate", form=dict(prompt="a man", model="lm"))
    assert answer.body == {"text": runners["lm"].generate(["a man"])[0]}
    answer = ask(address, "/classify", dict(text=["a man"]))
    tags = runners["tags"].classify(["a man"])[0]
    assert [each["label"] for each in answer.body["classes"][0]] == [
        str(index) for index in np.argmax(tags, axis=-1)
    ]


FAULTS = {
    "no prompt": ("/generate", {}, "`prompt` must be given"),
    "long": ("/classify", {"text": "a b " * 50}, "a text must have 1 to 40 tokens"),
    "nothing": ("/classify", {"text": ""}, "a text must have 1 to 40 tokens"),
    "another": ("/generate", {"prompt": "a", "model": "tags"}, "must be one of ['lm']"),
}


@pytest.mark.parametrize("path, fields, message", FAULTS.values(), ids=FAULTS)
def test_what_is_wrong_with_other_requests(address, path, fields, message):
    answer = ask(address, path, fields)
    assert answer.status == 400 and message in answer.body["error"]


def test_libretranslatepy(address, runners):
    from libretranslatepy import LibreTranslateAPI

    client = LibreTranslateAPI("http://{}:{}".format(*address))
    expected = runners["en:de"].translate_text(TEXT, language="en")
    assert client.translate(TEXT, "en", "de") == expected
    assert client.languages()[0] == {"code": "en", "name": "English", "targets": ["de"]}
    assert client.detect("Ein Mann in einem blauen Hemd")[0]["language"] == "de"


def test_deep_translator(address, runners):
    deep_translator = importlib.import_module("deep_translator")
    errors = importlib.import_module("deep_translator.exceptions")
    options = dict(custom_url="http://{}:{}/".format(*address), api_key="any")
    client = deep_translator.LibreTranslator(source="en", target="de", **options)
    expected = runners["en:de"].translate_text(TEXT, language="en")
    assert client.translate(TEXT) == expected
    assert client.translate_batch([TEXT, "ab"])[0] == expected
    client = deep_translator.LibreTranslator(source="auto", target="en", **options)
    assert client.translate("ein") == runners["de:en"].translate_text("ein", language="de")
    client = deep_translator.LibreTranslator(source="en", target="fr", **options)
    with pytest.raises(errors.ServerException):
        client.translate(TEXT)


def test_many_clients_get_what_one_gets(address, runners):
    texts = [f"{word} {number} man" for number in range(6) for word in ("a", "ab cd")]
    expected = [runners["en:de"].translate_text(text, language="en") for text in texts]
    found = {}

    def translate(index):
        fields = dict(q=texts[index], source="en", target="de")
        found[index] = ask(address, "/translate", fields).body["translatedText"]

    threads = [threading.Thread(target=translate, args=[index]) for index in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[index] for index in range(len(texts))] == expected


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_when_it_is_told_to(native_pieces, repo_root, ending):
    options = [native_pieces, "--source", "en", "--target", "de", "--grace", "60"]
    module = ("keras_transformer_command", "serve")
    key = {command.KEY_VARIABLE: "k"}
    with serving(repo_root, *options, module=module, **key) as (process, address):
        fields = dict(q="a b c. D e f!\n" * 100, source="en", target="de", api_key="k")
        assert ask(address, "/translate", dict(q="a", source="en", target="de")).status == 403
        answers = []
        asking = threading.Thread(target=lambda: answers.append(ask(address, "/translate", fields)))
        asking.start()
        while 'running{model="en:de"} 1.0' not in ask(address, "/metrics").body:
            assert asking.is_alive()
        process.send_signal(ending)
        asking.join()
        said, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert answers[0].status == 200 and answers[0].body["translatedText"].count("\n") == 100
    assert said == "" and errors.endswith("keras-transformer: the server has ended\n")
    assert "Traceback" not in errors and "ERROR" not in errors


def test_it_does_not_wait_longer_than_it_may(native_pieces, repo_root):
    options = [f"en:de={native_pieces}", "--grace", "0", "--max-characters", "1000000"]
    with serving(repo_root, *options) as (process, address):
        fields = dict(q="a b c. D e f!\n" * 5_000, source="en", target="de")

        statuses = []

        def ask_in_vain():
            with contextlib.suppress(OSError):
                statuses.append(ask(address, "/translate", fields).status)

        asking = threading.Thread(target=ask_in_vain)
        asking.start()
        while 'running{model="en:de"} 1.0' not in ask(address, "/metrics").body:
            assert asking.is_alive()
        process.terminate()
        process.communicate(timeout=60)
        asking.join()
    assert process.returncode == 0 and 200 not in statuses


def test_an_address_of_version_6(native_pieces, capsys):
    if not socket.has_ipv6:
        pytest.skip("needs IPv6")
    with command.bound("::1", 0) as listener:
        assert command._address(listener).startswith("http://[::1]:")


def test_what_cannot_be_served(native_pieces, native_language, tmp_path, capsys):
    pair = f"en:de={native_pieces}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = {
            "an address that is free here. Received: 127.0.0.1, ": [pair, "--port", port],
            "an address that is free here. Received: 203.0.113.1, ": [
                pair,
                "--host",
                "203.0.113.1",
            ],
            "must be given as SOURCE:TARGET=FOLDER": [str(native_pieces), "--port", "0"],
            "has the signature 'generate'": [f"en:de={native_language}", "--port", "0"],
            "must hold metadata.json": [f"en:de={tmp_path}", "--port", "0"],
            "`language` must be a BCP 47 tag": [f"english:de={native_pieces}"],
            "must stand once": [pair, pair],
        }
        for message, arguments in cases.items():
            assert command.main(arguments) == 1
            said = capsys.readouterr().err.splitlines()[-1]
            assert said.startswith("keras-transformer-serve: error: ") and message in said
    assert cli.main(["serve", str(tmp_path), "--port", "0"]) == 1
    assert capsys.readouterr().err.startswith("keras-transformer: error: ")
    with pytest.raises(ValueError, match="each name must stand once"):
        command.main([pair, pair, "--traceback"])


@pytest.mark.parametrize("package", ["icu4py", "uvicorn"])
def test_whatever_is_not_there_the_whole_extra_is_named(package, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    for alone, distribution in ((False, "edge"), (True, "edge-runner")):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, no=alone: None if no else 1)
        assert command.main(["en:de=folder"]) == 1
        command_of_it = f"pip install 'keras-transformer-{distribution}[serve]'"
        assert f"serve needs the extra serve: {command_of_it}" in capsys.readouterr().err


USAGE = {
    "--workers must be at least 1. Received: 0": ["--workers", "0"],
    "--workers must be at most 256. Received: 257": ["--workers", "257"],
    "--queue must be at least 0. Received: -1": ["--queue", "-1"],
    "--max-texts must be at least 1. Received: 0": ["--max-texts", "0"],
    "--port must be in [0, 65535]. Received: 65536": ["--port", "65536"],
    "--timeout must be a positive number of seconds. Received: nan": ["--timeout", "nan"],
    f"--api-key and {command.KEY_VARIABLE} must not be empty": ["--api-key", ""],
}


@pytest.mark.parametrize("message", USAGE)
def test_wrong_usage(message, capsys):
    for main, first in ((command.main, []), (cli.main, ["serve"])):
        with pytest.raises(SystemExit, match="2"):
            main([*first, "en:de=a", *USAGE[message]])
        assert message in capsys.readouterr().err


def test_help_names_the_module(capsys):
    with pytest.raises(SystemExit, match="0"):
        command.main(["--help"])
    assert "SOURCE:TARGET=FOLDER" in capsys.readouterr().out
    assert importlib.util.find_spec(f"{MODULE}.__main__")
