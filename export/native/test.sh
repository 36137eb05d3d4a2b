#!/usr/bin/env bash
# test.sh: tests the native core (tests/export/test_native*.py), then follows README.md's commands,
# on this processor and on an emulated arm64 one.
#
#   PYTHON=.venv/bin/python export/native/test.sh
#
# PYTHON has this package with its extras `litert` and `test`. As root on Debian it installs what
# is missing. ARM64_ROOT is where the emulated system lies, or is put (220 MB).
# Exit status: that of the tests, 77 if something is missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}

missing() {
    echo "test.sh: $*" >&2
    exit 77
}

apt_get() { # the scripts of export/ may run side by side
    DEBIAN_FRONTEND=noninteractive flock "${TMPDIR:-/tmp}/keras-transformer.apt.lock" apt-get -qq "$@"
}
wanted=()
need() { # need COMMAND-OR-HEADER PACKAGE...
    local what=$1
    shift
    command -v "$what" >/dev/null || [ -e "/usr/include/$what" ] || wanted+=("$@")
}
need cmake cmake make
need g++ g++
need sentencepiece_processor.h libsentencepiece-dev
need nlohmann/json.hpp nlohmann-json3-dev
need unicode/ubrk.h libicu-dev
need javac default-jdk-headless
need clang clang
need qemu-aarch64-static qemu-user-static
need aarch64-linux-gnu-g++ g++-aarch64-linux-gnu
if [ ${#wanted[@]} -gt 0 ]; then
    { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || missing "needs ${wanted[*]}"
    apt_get update && apt_get -y --no-install-recommends install "${wanted[@]}" >/dev/null ||
        missing "could not be installed: ${wanted[*]}"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ARM64_ROOT=${ARM64_ROOT:-$work/arm64}
[ -d "$ARM64_ROOT" ] || PIP="${PIP:-$python -m pip}" "$here/arm64_root.sh" "$ARM64_ROOT" ||
    missing "the arm64 system could not be made"
cd "$here/../.."
"$python" -m pytest -q -p no:cacheprovider -m "not release" \
    tests/export/test_native*.py

# README.md's two lists of commands in a kit, but for what is installed above, with a folder of a toy.
PYTHONPATH=.:tests/support "$python" - "$work/device" <<'PYTHON'
import sys

from toy_model import talkative_toy

from keras_transformer import BytesTokenizer, export_litert

tokenizer = BytesTokenizer()
model = talkative_toy(3, vocab_size=tokenizer.vocab_size, **tokenizer.special_ids._asdict())
export_litert(model, tokenizer, sys.argv[1], samples=["A man is sleeping."])
PYTHON
expected=$("$python" -m keras_transformer_runner "$work/device" "A man is sleeping.")
"$python" -m keras_transformer_command new native "$work/kit"
ln -s "$ARM64_ROOT" "$work/kit/arm64"
cd "$work/kit"
for title in x86-64 arm64; do
    commands=$(sed -n "/^## .*$title/,/^## [^#]/{/^\`\`\`sh/,/^\`\`\`/{/^\`\`\`/d;/apt-get\|arm64_root/d;p}}" \
        "$here/README.md" | sed "s|python3 -m pip|${PIP:-$python -m pip}|; s|FOLDER|$work/device|")
    printf '%s: the commands of README.md\n%s\n' "$title" "$commands"
    found=$(set -e; eval "$commands" 2>"$work/log" | tail -n 1) || { cat "$work/log"; exit 1; }
    [ "$found" = "$expected" ] || {
        echo "test.sh: '$expected' must be the answer. Received: '$found'" >&2
        exit 1
    }
done
