#!/usr/bin/env bash
# box-root.sh OUT: a Debian 13 tree for the boxes: systemd, OSTree, skopeo and
# podman, and the libraries that an rpm-ostree built for Debian 13 is linked with.
# sshd, NetworkManager and nftables are for the cases that reach a node from outside.
# No kernel and no initramfs: a box runs on the host's. As root; a minute or two.
set -euo pipefail

out=${1:?usage: box-root.sh OUT}
packages=(
    systemd systemd-sysv dbus libpam-systemd polkitd
    ostree ostree-boot bubblewrap e2fsprogs util-linux procps iproute2 sudo passwd ca-certificates
    skopeo podman crun attr gpgv
    openssh-server network-manager nftables
    rpm librpm10 librpmio10 librepo0 libmodulemd2 libsolv1 libsolvext1 libjson-glib-1.0-0 libpolkit-gobject-1-0
    libarchive13t64 libjson-c5 libsmartcols1 libgpgme11t64 libcurl3t64-gnutls libcap2
)

# mmdebstrap unpacks there, and /tmp may be a small memory.
TMPDIR=$(dirname "$out")
export TMPDIR
mmdebstrap --quiet --variant=minbase --mode=root --format=directory \
    --aptopt='Acquire::Languages "none"' --aptopt='Apt::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/i18n/*' \
    --dpkgopt=force-unsafe-io --include="$(IFS=,; echo "${packages[*]}")" \
    trixie "$out"
# Every box has a copy of the tree: what only running containers need goes, and what no program reads.
rm -rf "$out"/usr/lib/{cni,locale} "$out"/usr/libexec/podman "$out"/usr/lib/*-linux-gnu/gconv \
    "$out"/usr/share/{info,zoneinfo} "$out"/var/cache/apt/* "$out"/var/lib/apt/lists/*
