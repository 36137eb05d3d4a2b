#!/usr/bin/env bash
# arm64_python.sh ROOT ARGUMENTS...: the arm64 Python of arm64_root.sh, under qemu-user.
#
# -cpu is a Cortex-A76, a phone's core of 2018. Not qemu's default, `max`: before 8.2.3 its SME
# outer product is wrong, and so is every int8 product with more than one row.
set -euo pipefail

root=$1
shift
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || {
    echo "arm64_python.sh: needs qemu-aarch64-static (Debian package qemu-user-static)" >&2
    exit 77
}
exec "$qemu" -cpu cortex-a76 -L "$root" \
    -E PYTHONHOME="$root/usr" -E PYTHONPATH="$root/opt/site${PYTHONPATH:+:$PYTHONPATH}" \
    -E PYTHONDONTWRITEBYTECODE=1 -E OPENBLAS_NUM_THREADS=1 -U OPENBLAS_CORETYPE \
    -U OPENBLAS_L2_SIZE -U LD_LIBRARY_PATH "$root/usr/bin/python3.11" "$@"
