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

# The shape of an OSTree tree: everything that changes is in /etc or /var.
home=$tree/home
mkdir -p "$tree/usr/share/vm"
cp -a "$home" "$tree/usr/share/vm/home"
for name in dev proc sys run tmp var home root opt srv mnt media boot; do
    rm -rf "${tree:?}/$name"
done
rm -rf "${tree:?}"/{vmlinuz,initrd.img}* "${tree:?}/usr/local"
mkdir "$tree"/{dev,proc,sys,run,var,boot,sysroot}
mkdir -m 1777 "$tree/tmp"
for name in home opt srv mnt; do
    ln -s "var/$name" "$tree/$name"
done
ln -s var/roothome "$tree/root"
ln -s run/media "$tree/media"
ln -s sysroot/ostree "$tree/ostree"
ln -s ../var/usrlocal "$tree/usr/local"
cat >"$tree/usr/lib/tmpfiles.d/ostree-vm.conf" <<'END'
d /var/lib 0755 - - -
d /var/log 0755 - - -
d /var/cache 0755 - - -
d /var/opt 0755 - - -
d /var/srv 0755 - - -
d /var/mnt 0755 - - -
d /var/usrlocal 0755 - - -
d /var/usrlocal/bin 0755 - - -
d /var/roothome 0700 - - -
d /var/tmp 1777 - - -
L /var/run - - - - ../run
END
mkdir -p "$tree/usr/lib/systemd/system/local-fs.target.wants"
cp "$tree/usr/share/systemd/tmp.mount" "$tree/usr/lib/systemd/system/"
ln -s ../tmp.mount "$tree/usr/lib/systemd/system/local-fs.target.wants/tmp.mount"
mv "$tree/etc" "$tree/usr/etc"

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
