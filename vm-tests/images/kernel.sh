#!/usr/bin/env bash
# kernel.sh OUT: Debian's kernel for virtual machines, unpacked: OUT/vmlinuz
# and OUT/lib/modules with their index. Nothing is installed on the host.
set -euo pipefail

out=${1:?usage: kernel.sh OUT}
scratch=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
# apt's own user writes here, and the host's lists are not to be touched.
chmod 0755 "$scratch"

package=$(apt-cache depends --important linux-image-cloud-amd64 |
    sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[[ -n $package ]] || { echo 'kernel.sh: apt knows no linux-image-cloud-amd64; run apt-get update' >&2; exit 1; }
(cd "$scratch" && apt-get -q -o APT::Sandbox::User=root download "$package")
dpkg-deb -x "$scratch"/*.deb "$scratch/unpacked"

mkdir "$out"
version=$(basename "$scratch"/unpacked/lib/modules/*)
depmod -b "$scratch/unpacked" "$version"
mkdir "$out/lib"
mv "$scratch/unpacked/lib/modules" "$out/lib/modules"
mv "$scratch/unpacked/boot/vmlinuz-$version" "$out/vmlinuz"
