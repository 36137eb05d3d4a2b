#!/usr/bin/env bash
# arm64_root.sh DEST: an arm64 Python 3.11 with LiteRT in DEST, to run under qemu-user, and what
# the native core is compiled against.
#
# Debian's arm64 packages are unpacked, not installed, and the wheels come from pip's own index: no
# debootstrap, chroot or binfmt_misc, and the host's package lists are not touched. Needs a Debian
# host with apt sources, and a pip (PIP, `python3 -m pip` by default). Takes some 200 MB
# on disk. DEST appears only once it is whole.
set -euo pipefail

if [ $# != 1 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
dest=$1
[ ! -e "$dest" ] || {
    echo "arm64_root.sh: DEST must not exist. Received: $dest" >&2
    exit 2
}
for tool in apt-get dpkg-deb; do
    command -v $tool >/dev/null || {
        echo "arm64_root.sh: needs $tool, so a Debian host" >&2
        exit 77
    }
done

mkdir -p "$(dirname "$dest")"
work=$(mktemp -d "$dest.XXXXXX")
trap 'rm -rf "$work"' EXIT
apt=$work/apt root=$work/root
mkdir -p "$apt"/{state/lists/partial,cache/archives/partial} "$root"/{opt/site,tmp,proc}
: >"$apt/status"
options=(
    -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64
    -o Dir::State="$apt/state" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache"
    -o APT::Install-Recommends=false -o APT::Sandbox::User="$(id -un)"
    -o APT::Keep-Downloaded-Packages=true
)
apt-get "${options[@]}" update
apt-get "${options[@]}" -y --download-only install \
    python3.11-minimal libpython3.11-stdlib libstdc++6 libgcc-s1 zlib1g libc6 \
    libsentencepiece-dev nlohmann-json3-dev >/dev/null
for package in "$apt"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$root"
done

platforms=()
for tag in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014; do
    platforms+=(--platform "${tag}_aarch64")
done
${PIP:-python3 -m pip} install --quiet --disable-pip-version-check --target "$root/opt/site" \
    --only-binary=:all: --implementation cp --python-version 3.11 --abi cp311 "${platforms[@]}" \
    ai-edge-litert==2.3.0 numpy==2.4.6 sentencepiece==0.2.3

# qemu before 8.2 shows the guest the x86 host's /proc/cpuinfo, on which LiteRT's CPU detection
# dereferences NULL. The features must not exceed those of the -cpu in arm64_python.sh.
cat >"$root/proc/cpuinfo" <<'CPU'
processor	: 0
BogoMIPS	: 108.00
Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x3
CPU part	: 0xd0c
CPU revision	: 1

CPU
mv "$root" "$dest"
