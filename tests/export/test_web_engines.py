"""The page in Firefox and WebKitGTK: export/web/test.sh installs what Debian has of them."""

import pytest
from page import SCRIPTS, node_json
from page_engines import engine

from keras_transformer.export import MODES
from keras_transformer.export.parity import compare

TYPED = 3  # by hand, as it were; the others go to a translator on the page's own thread


@pytest.fixture(scope="module", params=["firefox", "webkit"])
def visits(request, make_site, fixed, int8_fixed, everything, texts):
    """One visit each to the page of the float32 and of the int8 file."""
    browser = engine(request.param)
    visit = dict(typed=[*texts[:TYPED], f"{texts[4]}\n\n{texts[7]}"], texts=everything)
    visit["offline"] = texts[:TYPED]
    sites = [str(make_site(folder)) for folder in (fixed, int8_fixed)]
    requests = [{**visit, "site": site} for site in sites]
    return node_json(SCRIPTS / "engines.mjs", browser, request=requests)


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
