"""The page in Firefox and WebKitGTK: export/web/test.sh installs what Debian has of them."""

import json
import pathlib
import shutil

import pytest
from page import SCRIPTS, WEB, node_json

from keras_transformer.export import MODES
from keras_transformer.export.parity import compare


def firefox():
    binary = shutil.which("firefox-esr") or shutil.which("firefox")
    return binary and dict(kind="firefox", binary=binary)


def webkit():
    """The browser of WebKitGTK's own tests, which has no place in PATH."""
    found = sorted(pathlib.Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
    driver = shutil.which("WebKitWebDriver")
    if found and driver and shutil.which("Xvfb"):
        return dict(kind="webkit", binary=str(found[-1]), driver=driver)
    return None


ENGINES = {"firefox": firefox, "webkit": webkit}
TYPED = 3  # by hand, as it were; the others go to a translator on the page's own thread


@pytest.fixture(scope="module", params=ENGINES)
def visits(request, make_site, fixed, int8_fixed, everything, texts):
    """One visit each to the page of the float32 and of the int8 file."""
    if not (WEB / "node_modules").is_dir():
        pytest.skip("no packages in export/web: export/web/test.sh installs them")
    engine = ENGINES[request.param]()
    if engine is None:
        pytest.skip(f"{request.param} is not installed: export/web/test.sh says what is needed")
    visit = dict(typed=[*texts[:TYPED], f"{texts[4]}\n\n{texts[7]}"], texts=everything)
    visit["offline"] = texts[:TYPED]
    sites = [str(make_site(folder)) for folder in (fixed, int8_fixed)]
    requests = [{**visit, "site": site} for site in sites]
    return node_json(SCRIPTS / "engines.mjs", json.dumps(engine), request=requests)


@pytest.mark.slow
def test_float32_gives_pythons_ids_and_text(visits, expected):
    assert (visits[0]["state"], visits[0]["error"]) == ("ready", "")
    assert visits[0]["answers"] == expected


@pytest.mark.slow
def test_int8_keeps_its_promise(visits, expected, everything):
    answers = visits[1]["answers"]
    pairs = [
        [(answer["text"], answer["targetIds"]) for answer in side] for side in (expected, answers)
    ]
    agreement = compare(everything, *pairs)["token_agreement"]
    assert agreement >= max(0.9, MODES["int8"].promised_agreement), agreement


@pytest.mark.slow
def test_what_is_typed_is_translated_with_and_without_a_network(visits, live, texts):
    first = live.translate(texts[:TYPED])
    two = live.translate([texts[4], texts[7]])
    assert visits[0]["typed"] == [*first, "\n\n".join(two)]
    assert visits[0]["offline"] == dict(state="ready", typed=first)
    assert visits[1]["offline"]["state"] == "ready"
