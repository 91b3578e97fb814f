#!/usr/bin/env bash
# Makes a system extension of a packed release: a squashfs that systemd-sysext lays over /usr of a node, without a rebuild.
#
#   packaging/sysext.sh TARBALL OUT      OUT gets mco-rescue-VERSION-ARCH.raw
#
# The module for dracut is left out: an initramfs is not made of a running node's /usr. On the node the image has to be named
# mco-rescue.raw, as its release file is.
set -euo pipefail

tarball=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
name=${tarball##*/}
name=${name%.tar.gz}
# As systemd names them.
case ${name##*-} in
    x86_64) arch=x86-64 ;;
    aarch64) arch=arm64 ;;
    ppc64le) arch=ppc64-le ;;
    *) arch=${name##*-} ;;
esac

umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir "$tree"
tar --extract --no-same-owner --file "$tarball" --directory "$tree" --strip-components 1 "$name/usr"
rm -rf "$tree/usr/lib/dracut"
release=$tree/usr/lib/extension-release.d/extension-release.mco-rescue
mkdir -p "${release%/*}"
# The program is static and asks nothing of the system, so the image goes with every one.
printf 'ID=_any\nARCHITECTURE=%s\n' "$arch" >"$release"
# mksquashfs takes the times of all files, and its own, from here: the time of the commit.
SOURCE_DATE_EPOCH=$(stat -c %Y "$tree/usr/bin/mco-rescue")
export SOURCE_DATE_EPOCH
find "$tree" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" -- {} +
rm -f "$out/$name.raw"
mksquashfs "$tree" "$out/$name.raw" -quiet -no-progress -noappend -all-root -no-xattrs -comp gzip
echo "$out/$name.raw"
