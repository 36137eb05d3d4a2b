#!/usr/bin/env bash
# test.sh: tests the package and the page (tests/export/test_web*.py) in Chromium, Firefox, WebKitGTK.
#
#   PYTHON=.venv/bin/python export/web/test.sh
#
# PYTHON has this package with its extras `litert` and `test`. Packages come by `npm ci`; as root on
# Debian it installs Node and the browsers. Without Firefox or WebKitGTK their tests are skipped.
# Exit status: that of the tests, 77 if something else is missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}

missing() {
    echo "test.sh: $*" >&2
    exit 77
}

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
apt_get() { # the scripts of export/ may run side by side
    DEBIAN_FRONTEND=noninteractive flock "${TMPDIR:-/tmp}/keras-transformer.apt.lock" apt-get -qq "$@"
}
apt_install() { apt_get -y --no-install-recommends install "$@" >/dev/null; }

wanted=()
command -v npm >/dev/null || wanted+=(nodejs npm)
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || wanted+=(chromium)
others=()
command -v firefox-esr >/dev/null || command -v firefox >/dev/null || others+=(firefox-esr)
command -v WebKitWebDriver >/dev/null || others+=(webkit2gtk-driver)
command -v Xvfb >/dev/null || others+=(xvfb)
if [ $((${#wanted[@]} + ${#others[@]})) -gt 0 ] && can_install; then apt_get update || true; fi
if [ ${#wanted[@]} -gt 0 ]; then
    can_install || missing "needs ${wanted[*]}"
    apt_install "${wanted[@]}" || missing "could not be installed: ${wanted[*]}"
fi
for name in "${others[@]}"; do
    { can_install && apt_install "$name"; } || echo "test.sh: without $name, its tests are skipped" >&2
done
node -e 'process.exit(process.getBuiltinModule ? 0 : 1)' ||
    missing "needs Node 20.16 or newer. Received: $(node --version)"

npm ci --prefix "$here" --silent --no-audit --no-fund || missing "npm ci failed"
cd "$here/../.."
"$python" -m pytest -q -rs -p no:cacheprovider -m "not release" tests/export/test_web*.py
