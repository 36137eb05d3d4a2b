#!/usr/bin/env bash
# check.sh: tests exported files on an emulated arm64 processor (tests/export/test_mobile.py).
#
#   PYTHON=.venv/bin/python export/mobile/check.sh
#
# PYTHON has this package with its extras `litert` and `test`. As root on Debian it installs
# qemu-user-static. ARM64_ROOT is where the emulated system lies, or is put (200 MB).
# Exit status: that of the tests, 77 if something is missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}

missing() {
    echo "check.sh: $*" >&2
    exit 77
}

apt_get() { # the scripts of export/ may run side by side
    DEBIAN_FRONTEND=noninteractive flock "${TMPDIR:-/tmp}/keras-transformer.apt.lock" apt-get -qq "$@"
}

if ! command -v qemu-aarch64-static >/dev/null && ! command -v qemu-aarch64 >/dev/null; then
    { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; } ||
        missing "needs qemu-aarch64-static (Debian package qemu-user-static)"
    apt_get update && apt_get -y --no-install-recommends install qemu-user-static >/dev/null ||
        missing "qemu-user-static could not be installed"
fi

work=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT
if [ -z "${ARM64_ROOT:-}" ]; then
    work=$(mktemp -d)
    ARM64_ROOT=$work/root
fi
export ARM64_ROOT
[ -d "$ARM64_ROOT" ] || PIP="${PIP:-$python -m pip}" "$here/../native/arm64_root.sh" "$ARM64_ROOT" ||
    missing "the arm64 system could not be made"
cd "$here/../.."
"$python" -m pytest -q -p no:cacheprovider -m "not release" tests/export/test_mobile.py
