#!/usr/bin/env bash
# shape.sh TREE: gives a Debian tree the shape of an OSTree tree: everything that
# changes is in /etc or /var. Homes are kept in /usr/share/vm/home for the disk.
set -euo pipefail

tree=${1:?usage: shape.sh TREE}
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
# Where Debian ships it as an example only.
[[ -e $tree/usr/lib/systemd/system/tmp.mount ]] || cp "$tree/usr/share/systemd/tmp.mount" "$tree/usr/lib/systemd/system/"
ln -sf ../tmp.mount "$tree/usr/lib/systemd/system/local-fs.target.wants/tmp.mount"
mv "$tree/etc" "$tree/usr/etc"
