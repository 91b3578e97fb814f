#!/usr/bin/env bash
# ostree.sh TREE OUT: the same node on OSTree: a disk with one deployment, whose
# /etc is writable and whose /var is the stateroot's. As its image would be, its
# stateroot is called rhcos. on-top.sh runs it.
set -euo pipefail

tree=$1 out=${2:?usage: ostree.sh TREE OUT}
"$(dirname "$0")/furnish.sh" "$tree"
version=$(basename "$tree"/usr/lib/modules/*)
cp "$tree/boot/vmlinuz-$version" "$tree/usr/lib/modules/$version/vmlinuz"
echo 'given to the guest from outside' >"$tree/usr/lib/modules/$version/initramfs.img"

"$(dirname "$0")/shape.sh" "$tree"

scratch=$(mktemp -d "$out.XXXXXX")
trap 'chattr -R -i "$scratch" 2>/dev/null || true; rm -rf "$scratch"' EXIT
chmod 0755 "$scratch"
sysroot=$scratch/sysroot
mkdir "$sysroot"
ostree admin init-fs --modern "$sysroot"
ostree admin os-init --sysroot="$sysroot" rhcos
repo=$sysroot/ostree/repo
ostree config --repo="$repo" set core.fsync false
ostree config --repo="$repo" set sysroot.readonly true
ostree config --repo="$repo" set sysroot.bootloader none
commit=$(ostree commit --repo="$repo" -b vm/node --tree=dir="$tree" --bootable \
    --add-metadata-string=version=1.0 -s 'A node for the virtual machines')
ostree admin deploy --sysroot="$sysroot" --os=rhcos --karg=root=LABEL=root --karg=rw "$commit"
ostree config --repo="$repo" set core.fsync true
# What tmpfiles makes at boot anyway, and homes, as an installer leaves them.
var=$sysroot/ostree/deploy/rhcos/var
mkdir -p "$var"/{lib,log,cache,opt,srv,mnt,usrlocal/bin}
cp -a "$tree/usr/share/vm/home" "$var/home"
mke2fs -q -F -t ext4 -L root -d "$sysroot" "$out" 2500M
