"""Requests as clients of LibreTranslate make them, and whatever else may come."""

import contextlib
import http.client
import json

import pytest
from http_service import LONGEST, Capitals, ask, served

from keras_transformer_runner.server.fields import Limits

PAIR = dict(source="en", target="de")


@pytest.fixture(scope="module")
def address():
    limits = Limits(characters=100, texts=3, body_bytes=2_000)
    pairs = {"en:de": Capitals(n_best=3), "de:en": Capitals(n_best=2), "de:fr": Capitals()}
    with served(pairs, limits=limits) as address:
        yield address


def translated(address, q, **more):
    answer = ask(address, "/translate", {**PAIR, "q": q, **more})
    assert answer.status == 200, answer.body
    return answer.body


def test_a_text_and_a_list(address):
    text = " One. Two?\r\n\r\n\tThree\n"
    assert translated(address, text) == {"translatedText": text.upper()}
    assert translated(address, ["a. B", "", " \n"]) == {"translatedText": ["A. B", "", " \n"]}
    assert translated(address, []) == {"translatedText": []}
    assert translated(address, "", format="text", api_key="any") == {"translatedText": ""}
    long = "word " * (LONGEST - 1)
    assert translated(address, long) == {"translatedText": long.upper()}


def test_the_language_of_the_source_says_where_sentences_end(address):
    de = dict(source="de", target="en")
    assert translated(address, "am 3. Mai", alternatives=1) == {
        "translatedText": "AM 3. MAI",
        "alternatives": ["AM 3.~ MAI~"],
    }
    assert translated(address, "am 3. Mai", alternatives=1, **de) == {
        "translatedText": "AM 3. MAI",
        "alternatives": ["AM 3. MAI~"],
    }


def test_alternatives(address):
    assert translated(address, "a. B", alternatives=2) == {
        "translatedText": "A. B",
        "alternatives": ["A.~ B~", "A.~~ B~~"],
    }
    # More than there are, and fewer of a sentence.
    assert translated(address, ["a. B? C", ""], alternatives=10**9) == {
        "translatedText": ["A. B? c".upper(), ""],
        "alternatives": [["A.~ B?~ C~", "A.~~ B?~ C~~"], []],
    }
    without = dict(source="de", target="fr", alternatives="2")
    assert translated(address, "a", **without) == {"translatedText": "A", "alternatives": []}


def test_forms_and_addresses(address):
    fields = {**PAIR, "q": "ä. B&c"}
    expected = (200, {"translatedText": "Ä. B&C"})
    answers = [
        ask(address, "/translate", form=fields),
        ask(address, "/translate?q=%C3%A4.+B%26c&source=en&target=de", method="POST"),
        ask(address, "/translate?source=en&q=no", form={"q": "ä. B&c", "target": "de"}),
    ]
    parts = "".join(
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    kind = {"content-type": "multipart/form-data; boundary=x"}
    answers.append(ask(address, "/translate", body=f"{parts}--x--\r\n".encode(), **kind))
    assert [(answer.status, answer.body) for answer in answers] == [expected] * 4


def test_auto_is_the_likeliest_source_of_the_target(address):
    text = "Ein Mann in einem Hemd"
    found = translated(address, text, source="auto", target="en")
    assert found["translatedText"] == text.upper()
    assert found["detectedLanguage"]["language"] == "de"
    assert found["detectedLanguage"]["confidence"] > 90
    found = translated(address, [text, "a"], source="auto", target="de")  # but from English alone
    assert [each["language"] for each in found["detectedLanguage"]] == ["en", "en"]


def test_languages_settings_and_detect(address):
    assert ask(address, "/languages").body == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["en", "fr"]},
        {"code": "fr", "name": "French", "targets": []},
    ]
    settings = ask(address, "/frontend/settings").body
    assert settings["charLimit"] == 100 and settings["keyRequired"] is False
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    found = ask(address, "/detect", form={"q": "Ein Mann in einem Hemd"})
    assert [each["language"] for each in found.body] == ["de", "en"]


FAULTS = {
    "no q": ({"q": None}, 400, "`q` must be given"),
    "q a number": ({"q": 7}, 400, "`q` must be a string or a list of strings. Received: 7"),
    "q of numbers": ({"q": ["a", 7]}, 400, "`q` must be a string or a list of strings"),
    "a surrogate": ({"q": "a\ud800"}, 400, "`q` must be Unicode text without lone surrogates"),
    "many texts": ({"q": ["a"] * 4}, 400, "at most 3 texts. Received: 4"),
    "many characters": ({"q": ["a" * 60] * 2}, 400, "at most 100 characters. Received: 120"),
    "no source": ({"source": ""}, 400, "`source` must be given as a string. Received: ''"),
    "no target": ({"target": None}, 400, "`target` must be given as a string. Received: None"),
    "another pair": ({"target": "fr"}, 400, "served (en:de, de:en, de:fr). Received: 'en:fr'"),
    "auto to none": ({"source": "auto", "target": "es"}, 400, "Received: 'auto:es'"),
    "markup": ({"format": "html"}, 400, "`format` must be 'text'"),
    "half": ({"alternatives": 0.5}, 400, "`alternatives` must be a whole number"),
    "less": ({"alternatives": -1}, 400, "`alternatives` must be a whole number"),
    "a word": ({"alternatives": "x"}, 400, "`alternatives` must be a whole number"),
    "a fault of the model": ({"q": "fault"}, 500, "the server could not answer; its log says why"),
    "large": ({"q": "a" * 3_000}, 413, "a request must have at most 2000 bytes"),
}


@pytest.mark.parametrize("fields, status, message", FAULTS.values(), ids=FAULTS)
def test_what_is_wrong_with_fields(address, fields, status, message):
    answer = ask(address, "/translate", {**PAIR, "q": "a", **fields})
    assert answer.status == status and message in answer.body["error"]
    assert set(answer.body) == {"error"} and "\n" not in answer.body["error"]


BODIES = {
    "no JSON": (b"{", "application/json", "the body must be JSON in UTF-8"),
    "no UTF-8": (b'{"q": "\xff"}', "application/json", "the body must be JSON in UTF-8"),
    "deep": (b"[" * 1_900, "application/json", "the body must be JSON in UTF-8"),
    "a list": (b"[1]", "application/json", "the body must be a JSON object. Received: [1]"),
    "JSON as a form": (json.dumps({"q": "a"}).encode(), "text/plain", "`q` must be given"),
    "no form": (b"x", "multipart/form-data", "Missing boundary"),
    "a file": (
        b'--x\r\nContent-Disposition: form-data; name="q"; filename="f"\r\n\r\na\r\n--x--\r\n',
        "multipart/form-data; boundary=x",
        "Too many files",
    ),
}


@pytest.mark.parametrize("body, kind, message", BODIES.values(), ids=BODIES)
def test_what_is_wrong_with_a_body(address, body, kind, message):
    answer = ask(address, "/translate", body=body, **{"content-type": kind})
    assert answer.status == 400 and message in answer.body["error"]


def test_other_paths_and_methods(address):
    answer = ask(address, "/nothing%FF")
    rule = "the path must be one of this server. Received: /nothing\ufffd"
    assert answer.status == 404 and answer.body == {"error": rule}
    answer = ask(address, "/translate")
    rule = "/translate must be asked by POST. Received: GET"
    assert answer.status == 405 and answer.body == {"error": rule}
    assert answer.headers["allow"] == "POST"
    answer = ask(address, "/languages", {})
    assert answer.body == {"error": "/languages must be asked by GET, HEAD. Received: POST"}


def test_the_page(address):
    for path, kind in [("/", "text/html"), ("/page.js", "javascript"), ("/page.css", "text/css")]:
        answer = ask(address, path)
        assert answer.status == 200 and kind in answer.headers["content-type"]
    assert "default-src 'none'" in ask(address, "/").body


def test_a_key():
    with served({"en:de": Capitals()}, api_key="schlüssel") as address:
        fields = {**PAIR, "q": "a"}
        bearer = "Bearer schlüssel".encode()
        assert ask(address, "/translate", {**fields, "api_key": "schlüssel"}).status == 200
        assert ask(address, "/translate", form={**fields, "api_key": "schlüssel"}).status == 200
        assert ask(address, "/translate", fields, authorization=bearer).status == 200
        for wrong in ("", "x", 7, None, "\ud800"):
            answer = ask(address, "/translate", {**fields, "api_key": wrong})
            assert answer.status == 403
            assert answer.body == {"error": "`api_key` must be the key of this server"}
        assert ask(address, "/detect", {"q": "a"}).status == 403
        assert ask(address, "/translate", fields, authorization="Basic x").status == 403
        assert ask(address, "/frontend/settings").body["keyRequired"] is True
        assert ask(address, "/languages").status == 200


def test_pages_elsewhere():
    preflight = {"access-control-request-method": "POST", "origin": "https://a.example"}
    with served({"en:de": Capitals()}, origins=["https://a.example"]) as address:
        answer = ask(address, "/translate", method="OPTIONS", **preflight)
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        answer = ask(address, "/languages", origin="https://b.example")
        assert answer.headers["access-control-allow-origin"] is None
    with served({"en:de": Capitals()}) as address:
        answer = ask(address, "/languages", origin="https://a.example")
        assert answer.headers["access-control-allow-origin"] is None


def test_a_language_that_cannot_be_told():
    with served({"xx:de": Capitals()}) as address:
        for path, fields in (("/detect", {}), ("/translate", {"source": "auto", "target": "de"})):
            answer = ask(address, path, {"q": "a", **fields})
            assert answer.status == 400 and "can be told from others" in answer.body["error"]


@pytest.mark.parametrize("labels", [["a", "b", "c"], []])
def test_classes_come_with_the_likeliest_first(labels):
    model = Capitals(signature="classify")
    model.metadata["labels"] = labels
    with served({"one": model, "other": model}) as address:
        answer = ask(address, "/classify", dict(text=["x"], model="one"))
        names = [labels[index] if labels else str(index) for index in (1, 2, 0)]
        assert [each["label"] for each in answer.body["classes"][0]] == names
        assert answer.body["classes"][0][0]["probability"] == 0.5
        answer = ask(address, "/classify", dict(text="x"))
        assert "`model` must be one of ['one', 'other']" in answer.body["error"]


FORM = {"content-type": "application/x-www-form-urlencoded"}


def as_form(address, body, path="/translate", **headers):
    return ask(address, path, body=body, **{**FORM, **headers})


def test_a_form_is_utf_8_with_escapes_or_without(address):
    """`curl -d 'q=größe'` escapes nothing, `--data-urlencode` all."""
    for q in ("größe".encode(), b"gr%C3%B6%C3%9Fe"):
        for kind in (FORM["content-type"], "application/x-www-form-urlencoded; charset=utf-8"):
            answer = as_form(address, b"q=" + q + b"&source=en&target=de", **{"content-type": kind})
            assert (answer.status, answer.body) == (200, {"translatedText": "GRÖSSE"})
    for body, path in (
        (b"q=gr\xf6e&source=en&target=de", "/translate"),
        (b"q=gr%F6e&source=en&target=de", "/translate"),
        (b"source=en&target=de", "/translate?q=gr%F6e"),
    ):
        answer = as_form(address, body, path)
        assert (answer.status, answer.body) == (400, {"error": "a form must be UTF-8"})


def test_fields_come_once_and_texts_as_often_as_there_are(address):
    answer = as_form(address, b"q=one&q=two&source=en&target=de")
    assert answer.body == {"translatedText": ["ONE", "TWO"]}
    answer = as_form(address, b"q=&source=en&target=de&api_key=")
    assert answer.body == {"translatedText": ""}
    answer = as_form(address, b"source=en&target=de", "/translate?q=one&q=two")
    assert answer.body == {"translatedText": ["ONE", "TWO"]}
    answer = as_form(address, b"q=one&source=en&source=fr&target=de")
    assert (answer.status, answer.body["error"]) == (
        400,
        "`source` must be given once. Received: 'fr'",
    )
    answer = as_form(address, b"&q=one&&source=en&target=de&", "/translate?debug")
    assert answer.body == {"translatedText": "ONE"}
    answer = as_form(address, b"q=Tom & Jerry&source=en&target=de")
    assert answer.status == 400
    assert answer.body["error"].startswith("a form must hold fields name=value, `&` between them")


def test_no_alternatives_may_be_said_as_null(address):
    assert translated(address, "a", alternatives=None) == {"translatedText": "A"}
    answer = ask(address, "/translate", {**PAIR, "q": "a", "alternatives": True})
    assert answer.status == 400 and "`alternatives` must be a whole number" in answer.body["error"]


def test_a_body_that_is_announced_as_too_large_is_not_waited_for(address):
    connection = http.client.HTTPConnection(*address, timeout=30)
    with contextlib.closing(connection):
        connection.putrequest("POST", "/translate")
        connection.putheader("content-type", "application/json")
        connection.putheader("content-length", "99999999999")
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 413
        assert b"at most 2000 bytes" in answer.read()
