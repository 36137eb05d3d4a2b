"""The page of the HTTP server in browsers: export/web/test.sh installs what Debian has of them."""

import pytest
from http_service import Capitals, served
from page import SCRIPTS, node_json
from page_engines import engine

TYPED = "ä man.\n\n Two 🙂"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chromium", "firefox", "webkit"])
def test_what_is_typed_is_translated_and_what_is_wrong_shown(kind):
    browser = engine(kind)
    with served({"de:en": Capitals(), "de:pt-BR": Capitals()}, api_key="k") as address:
        request = dict(url="http://{}:{}/".format(*address))
        request["visits"] = [dict(typed=TYPED, key=key) for key in ("k", "wrong")]
        right, wrong = node_json(SCRIPTS / "served.mjs", browser, request=request)
    assert right == dict(
        sources=["German"],
        targets=["English", "Brazilian Portuguese"],
        asksForKey=True,
        translation=TYPED.upper(),
        lang="en",
        count=f"{len(TYPED)} of 10000 characters",
        error="",
        unnamed=[],
    )
    assert wrong["translation"] == ""
    assert wrong["error"] == "Not translated: `api_key` must be the key of this server"
