"""The browsers of this machine, as `launch` of tests/export/web/automation.mjs wants them."""

import json
import pathlib
import shutil

import pytest
from page import WEB


def _binary(*names):
    return next(filter(None, map(shutil.which, names)), None)


def _chromium():
    binary = _binary("chromium", "chromium-browser")
    return binary and dict(binary=binary, driver=str(WEB))


def _firefox():
    binary = _binary("firefox-esr", "firefox")
    return binary and dict(binary=binary)


def _webkit():
    """The browser of WebKitGTK's own tests, which has no place in PATH."""
    found = sorted(pathlib.Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
    driver = shutil.which("WebKitWebDriver")
    has_all = found and driver and shutil.which("Xvfb")
    return dict(binary=str(found[-1]), driver=driver) if has_all else None


ENGINES = {"chromium": _chromium, "firefox": _firefox, "webkit": _webkit}


def engine(kind):
    """JSON for `launch`; skips the test where the browser or a package is missing."""
    if not (WEB / "node_modules").is_dir():
        pytest.skip("no packages in export/web: export/web/test.sh installs them")
    found = ENGINES[kind]()
    if found is None:
        pytest.skip(f"{kind} is not installed: export/web/test.sh says what is needed")
    return json.dumps(dict(kind=kind, **found))
