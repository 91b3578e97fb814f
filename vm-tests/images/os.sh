#!/usr/bin/env bash
# os.sh TREE OUT INITRAMFS STANDIN: a node whose operating system can be changed:
# OUT/root and OUT/boot are its disks. Two commits are in its repository, 1.0 is
# deployed from the image quay.example/okd/os@sha256:aaaa..., and 2.0, with another
# initramfs and another version file, can be had as ...@sha256:bbbb... from the
# stand-in for rpm-ostree in STANDIN. skopeo is that of the machine that builds it.
# on-top.sh runs it.
set -euo pipefail

tree=$1 out=$2 initramfs=$3 standin=${4:?usage: os.sh TREE OUT INITRAMFS STANDIN}
here=$(dirname "$0")

# What ostree.sh makes of the tree is what is wanted; its disk is not.
"$here/ostree.sh" "$tree" "$out.first"
rm -f "$out.first"

mkdir -p "$tree"/usr/{libexec,lib}/stand-in
install -m 0755 "$standin/client" "$tree/usr/bin/rpm-ostree"
install -m 0755 "$standin/daemon" "$tree/usr/libexec/stand-in/rpm-ostreed"
# Debian's, with what it is linked with: it brings images into containers-storage.
skopeo=$(command -v skopeo)
for file in "$skopeo" $(ldd "$skopeo" | grep -o '/[^ ]*'); do
    [[ -e $tree/usr/${file#/usr/} || -e $tree$file ]] || install -D -m 0755 "$(realpath "$file")" "$tree/usr/${file#/usr/}"
done
repeated() { printf "$1%.0s" {1..64}; }
image() { echo "quay.example/okd/os@sha256:$(repeated "$1")"; }
{
    echo "$(image a) vm/1"
    echo "$(image b) vm/2"
} >"$tree/usr/lib/stand-in/images"
# ostree runs it in every new deployment that has a policy; the real one takes minutes under emulation.
printf '#!/bin/sh\n# stand-in\nexit 0\n' >"$tree/usr/sbin/semodule"
# The runtime that CRI-O takes if no file of its configuration names one.
printf '#!/bin/sh\n# stand-in\nexit 0\n' >"$tree/usr/bin/crun"
chmod 0755 "$tree/usr/bin/crun" "$tree/usr/sbin/semodule"
# As on CoreOS: a partition of its own, read-only.
echo 'LABEL=boot /boot ext4 ro,nodev,nosuid 0 0' >"$tree/usr/etc/fstab"
mkdir -p "$tree/usr/lib/systemd/system/multi-user.target.wants"
ln -sf ../ostree-finalize-staged.path "$tree/usr/lib/systemd/system/multi-user.target.wants/"
rm -f "$tree/usr/lib/os-release"

scratch=$(mktemp -d "$out.XXXXXX")
trap 'chattr -R -i "$scratch" 2>/dev/null || true; rm -rf "$scratch"' EXIT
chmod 0755 "$scratch"
sysroot=$scratch/sysroot
repo=$sysroot/ostree/repo
mkdir "$sysroot"
ostree admin init-fs --modern "$sysroot"
ostree admin os-init --sysroot="$sysroot" rhcos
ostree config --repo="$repo" set core.fsync false
ostree config --repo="$repo" set sysroot.readonly true
ostree config --repo="$repo" set sysroot.bootloader none

commit() {
    local modules=("$tree"/usr/lib/modules/*)
    cat >"$tree/usr/lib/os-release" <<OS
NAME="A node for the virtual machines"
ID=rhcos
VARIANT_ID=coreos
VERSION_ID=9.6
OSTREE_VERSION=$1.0
PRETTY_NAME="A node for the virtual machines $1.0"
OS
    ln -sf ../usr/lib/os-release "$tree/usr/etc/os-release"
    echo "$1.0" >"$tree/usr/lib/os-version"
    # The kernel passes over what pads an archive; ostree takes it for another initramfs.
    { cat "$initramfs"; head -c "$(($1 * 512))" /dev/zero; } >"${modules[0]}/initramfs.img"
    ostree commit --repo="$repo" -b "vm/$1" --tree=dir="$tree" --bootable \
        --add-metadata-string=version="$1.0" -s 'A node for the virtual machines' >/dev/null
}
commit 1
commit 2
printf '[origin]\ncontainer-image-reference=ostree-unverified-registry:%s\n' "$(image a)" >"$scratch/origin"
ostree admin deploy --sysroot="$sysroot" --os=rhcos --origin-file="$scratch/origin" --karg=root=LABEL=root --karg=rw \
    --karg=rd.shell=0 --karg=rd.emergency=poweroff --karg=systemd.show_status=0 --karg=audit=0 "$(ostree rev-parse --repo="$repo" vm/1)"
ostree config --repo="$repo" set core.fsync true

var=$sysroot/ostree/deploy/rhcos/var
mkdir -p "$var"/{lib,log/journal,cache,opt,srv,mnt,usrlocal/bin}
cp -a "$tree/usr/share/vm/home" "$var/home"
mkdir "$out"
mke2fs -q -F -t ext4 -L boot -d "$sysroot/boot" "$out/boot" 128M
rm -rf "${sysroot:?}"/boot/*
mke2fs -q -F -t ext4 -L root -d "$sysroot" "$out/root" 3000M
