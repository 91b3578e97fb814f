#!/usr/bin/env bash
# root.sh OUT: a Debian 12 tree with systemd, dracut, Ignition, OSTree, OpenSSH,
# the account tools and an SELinux policy. As root; a minute and 170 MB fetched.
# Nothing in it is ours yet.
set -euo pipefail

out=${1:?usage: root.sh OUT}
packages=(
    systemd systemd-sysv udev dbus libpam-systemd
    # dracut's ignition module depends on url-lib and network, and those on curl.
    dracut dracut-network curl zstd ignition
    linux-image-cloud-amd64 kmod e2fsprogs dmsetup util-linux
    # ostree runs bwrap when it finalizes a deployment that has an SELinux policy.
    ostree ostree-boot bubblewrap
    openssh-server sudo passwd iproute2 procps ca-certificates
    policycoreutils selinux-utils selinux-policy-default
)

# mmdebstrap unpacks there, and /tmp may be a small memory.
TMPDIR=$(dirname "$out")
export TMPDIR
# The link keeps the kernel's package from building an initramfs of its own.
# shellcheck disable=SC2016  # mmdebstrap's shell expands $1
mmdebstrap --quiet --variant=minbase --mode=root --format=directory \
    --aptopt='Acquire::Languages "none"' --aptopt='Apt::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt=force-unsafe-io \
    --essential-hook='mkdir -p "$1/etc/kernel/postinst.d"; ln -s /bin/true "$1/etc/kernel/postinst.d/dracut"' \
    --include="$(IFS=,; echo "${packages[*]}")" \
    bookworm "$out"
