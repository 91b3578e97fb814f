#!/usr/bin/env bash
# next-root.sh OUT: a Debian 13 tree with systemd 257, udev and OpenSSH, for a
# guest whose udev gives interfaces the names of the next major version. It has
# no kernel of its own. As root; a minute.
set -euo pipefail

out=${1:?usage: next-root.sh OUT}
packages=(
    systemd systemd-sysv udev dbus libpam-systemd kmod
    openssh-server sudo passwd iproute2 procps util-linux e2fsprogs
)

# mmdebstrap unpacks there, and /tmp may be a small memory.
TMPDIR=$(dirname "$out")
export TMPDIR
mmdebstrap --quiet --variant=minbase --mode=root --format=directory \
    --aptopt='Acquire::Languages "none"' --aptopt='Apt::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt=force-unsafe-io \
    --include="$(IFS=,; echo "${packages[*]}")" \
    trixie "$out"
rm -rf "$out"/var/cache/apt/* "$out"/var/lib/apt/lists/*
