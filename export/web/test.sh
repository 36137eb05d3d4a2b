#!/usr/bin/env bash
# test.sh: tests the page (tests/export/test_web*.py) in headless Chromium.
#
#   PYTHON=.venv/bin/python export/web/test.sh
#
# PYTHON has this package with its extras `litert` and `test`. Packages come by `npm ci`; as root on
# Debian it installs Node and Chromium.
# Exit status: that of the tests, 77 if something is missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}

missing() {
    echo "test.sh: $*" >&2
    exit 77
}

wanted=()
command -v npm >/dev/null || wanted+=(nodejs npm)
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || wanted+=(chromium)
if [ ${#wanted[@]} -gt 0 ]; then
    { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || missing "needs ${wanted[*]}"
    apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y --no-install-recommends install "${wanted[@]}" >/dev/null ||
        missing "could not be installed: ${wanted[*]}"
fi
node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' ||
    missing "needs Node 20 or newer. Received: $(node --version)"

npm ci --prefix "$here" --silent --no-audit --no-fund || missing "npm ci failed"
cd "$here/../.."
"$python" -m pytest -q -p no:cacheprovider -m "not release" \
    tests/export/test_web.py tests/export/test_web_modules.py tests/export/test_web_build.py \
    tests/export/test_web_folder.py
