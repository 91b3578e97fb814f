#!/usr/bin/env bash
# The disks of a box. on-top.sh runs it, twice:
#
# box.sh TREE commit OUT ENGINE [IMAGE]
#     OUT becomes a repository with the systems 1.0 and 2.0 as box/1 and box/2.
# box.sh TREE disks OUT ENGINE REPOSITORY
#     OUT/root and OUT/boot become the disks of a node that runs 1.0.
#
# ENGINE is a tar of an rpm-ostree for this tree, below one directory; the images
# are then real: OUT/oci has 1.0, OUT/layer-b is the one layer that makes 2.0 of it.
# Or it is the directory of the stand-in, for which IMAGE is the name of 2.0.
# BOOTC is a tar of a bootc, likewise; with RPM_OSTREE='to make images' the systems
# have no other engine.
set -euo pipefail

tree=$1 what=$2 out=$3 engine=$4 more=${5-}
readonly name=quay.example/okd/os kernel=6.12.0-box
here=$(dirname "$0")

file() {
    mkdir -p "$(dirname "$tree/$1")"
    cat >"$tree/$1"
}

is_real() {
    [[ ! -d $engine ]]
}

# Programs of the tree, before it gets its shape; the device nodes are its own. OUT's directory is /run/out.
enter() {
    mount -t proc proc "$tree/proc"
    mount -t tmpfs -o mode=0755 tmpfs "$tree/dev"
    local node
    for node in null:3 zero:5 full:7 random:8 urandom:9; do
        mknod -m 0666 "$tree/dev/${node%:*}" c 1 "${node#*:}"
    done
    ln -s /proc/self/fd "$tree/dev/fd"
    mount -t tmpfs -o mode=0755 tmpfs "$tree/run"
    mkdir -p "$out" "$tree/run/out"
    mount --bind "$out" "$tree/run/out"
}

leave() {
    umount "$tree/run/out" "$tree/run" "$tree/dev" "$tree/proc"
}

in_tree() {
    chroot "$tree" env -i HOME=/root LC_ALL=C TMPDIR=/run/out PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

unpack() {
    tar -xf "$1" -C "$tree" --strip-components=1 --no-same-owner --keep-directory-symlink
}

put_engine() {
    if is_real; then
        if [[ $what != commit || ${RPM_OSTREE-} != 'to make images' ]]; then unpack "$engine"; fi
        if [[ -n ${BOOTC-} ]]; then unpack "$BOOTC"; fi
    else
        mkdir -p "$tree"/usr/{libexec,lib}/stand-in
        install -m 0755 "$engine/client" "$tree/usr/bin/rpm-ostree"
        install -m 0755 "$engine/daemon" "$tree/usr/libexec/stand-in/rpm-ostreed"
        printf '%s box/1\n' "$name@sha256:$(printf 'a%.0s' {1..64})" >"$tree/usr/lib/stand-in/images"
        printf '%s box/2\n' "$more" >>"$tree/usr/lib/stand-in/images"
    fi
}

# Above what furnish.sh gives every node: what a box has in place of a machine, and containers.
furnish() {
    "$here/furnish.sh" "$tree"
    rm -rf "$tree"/etc/systemd/system/multi-user.target.wants/* "$tree/etc/selinux"
    echo 0123456789abcdef0123456789abcdef | file etc/machine-id
    echo 'LABEL=boot /boot ext4 ro,nodev,nosuid 0 0' | file etc/fstab
    # The host's kernel has these; a box keeps off them.
    local unit
    for unit in sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount; do
        ln -sf /dev/null "$tree/etc/systemd/system/$unit"
    done
    mkdir -p "$tree/usr/lib/systemd/system/multi-user.target.wants"
    ln -sf ../ostree-finalize-staged.path "$tree/usr/lib/systemd/system/multi-user.target.wants/"
    echo '{"default": [{"type": "insecureAcceptAnything"}]}' | file etc/containers/policy.json
    file etc/containers/storage.conf <<'CONF'
[storage]
driver = "overlay"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"
CONF
    file etc/containers/registries.conf.d/99-mirror.conf <<CONF
[[registry]]
location = "${name%%/*}"

[[registry.mirror]]
location = "127.0.0.1:5000"
insecure = true
CONF
    echo '{"auths": {}}' | file etc/ostree/auth.json
    # rpm-ostreed runs skopeo as this user, which has to have a name.
    chroot "$tree" useradd --system --home-dir / --shell /usr/sbin/nologin rpm-ostree
    # Else rpm would make a directory there, and rpm-ostreed would not start.
    echo 'L /var/lib/rpm - - - - ../../usr/share/rpm' | file usr/lib/tmpfiles.d/box-rpm.conf
    echo '%_dbpath /usr/share/rpm' | file usr/lib/rpm/macros.d/macros.box
}

# rpm-ostree wants to know which packages an image is made of: this one.
make_rpmdb() {
    enter
    in_tree bash -euo pipefail -s >"$out/rpmdb.log" 2>&1 <<'RPM' || { cat "$out/rpmdb.log" >&2; exit 1; }
cd /run
cat >os-base.spec <<SPEC
Name: os-base
Version: 1.0
Release: 1
Summary: Everything there is
License: none
BuildArch: noarch
%description
Everything there is.
%files
SPEC
rpmbuild -bb --quiet --define '_topdir /run/build' --define '_rpmdir /run/built' os-base.spec
mkdir -p /usr/share/rpm /usr/lib/sysimage
rpm --initdb
rpm --install --nodeps --nosignature built/noarch/os-base-*.rpm
cp -a /usr/share/rpm /usr/lib/sysimage/rpm-ostree-base-db
RPM
    leave
    rm "$out/rpmdb.log"
    rmdir "$out"
}

# What is of one system only, below a directory: its name, its version, and an initramfs, as ostree compares these.
mark() {
    local top=$1 version=$2
    mkdir -p "$top/usr/lib/modules/$kernel"
    cat >"$top/usr/lib/os-release" <<OS
NAME="A node in a box"
ID=rhcos
VARIANT_ID=coreos
VERSION_ID=9.6
OSTREE_VERSION=$version
PRETTY_NAME="A node in a box $version"
OS
    echo "$version" >"$top/usr/lib/os-version"
    head -c 4M /dev/zero | tr '\0' "${version:0:1}" >"$top/usr/lib/modules/$kernel/initramfs.img"
}

commit() {
    put_engine
    furnish
    if is_real; then make_rpmdb; fi
    rm -f "$tree/usr/lib/os-release" "$tree/etc/os-release"
    ln -s ../usr/lib/os-release "$tree/etc/os-release"
    "$here/shape.sh" "$tree"
    mark "$tree" 1.0
    head -c 1M /dev/zero | tr '\0' k >"$tree/usr/lib/modules/$kernel/vmlinuz"
    ostree init --repo="$out" --mode=bare
    ostree config --repo="$out" set core.fsync false
    record 1
    if ! is_real; then
        mark "$tree" 2.0
        record 2
    fi
}

record() {
    ostree commit --repo="$out" -b "box/$1" --tree=dir="$tree" --bootable --no-xattrs \
        --add-metadata-string=version="$1.0" -s 'A node in a box' >/dev/null
}

# The image of 1.0 and what makes 2.0 of it.
encapsulate() {
    in_tree rpm-ostree compose container-encapsulate --repo=/run/repository --label=version=1.0 \
        --max-layers=4 --label=containers.bootc=1 box/1 oci:/run/out/oci:a
    mark "$out/layer-b" 2.0
}

deploy() {
    local sysroot=/run/out/sysroot arguments digest origin
    arguments=(--karg=root=LABEL=root --karg=rw --karg=systemd.show_status=0 --karg=audit=0)
    mkdir "$out/sysroot"
    in_tree ostree admin init-fs --modern "$sysroot"
    in_tree ostree admin os-init --sysroot="$sysroot" rhcos
    configure() { in_tree ostree config --repo="$sysroot/ostree/repo" set "$@"; }
    configure core.fsync false
    configure sysroot.readonly true
    configure sysroot.bootloader none
    if is_real; then
        digest=$(grep -o 'sha256:[0-9a-f]*' "$out/oci/index.json" | head -n 1)
        in_tree /usr/libexec/libostree/ext/ostree-container container image deploy --sysroot "$sysroot" \
            --stateroot rhcos --imgref ostree-unverified-image:oci:/run/out/oci:a \
            --target-imgref "ostree-unverified-registry:$name@$digest" "${arguments[@]}"
    else
        in_tree ostree pull-local --repo="$sysroot/ostree/repo" /run/repository box/1 box/2
        origin=$name@sha256:$(printf 'a%.0s' {1..64})
        printf '[origin]\ncontainer-image-reference=ostree-unverified-registry:%s\n' "$origin" >"$out/origin"
        in_tree ostree admin deploy --sysroot="$sysroot" --os=rhcos --origin-file=/run/out/origin "${arguments[@]}" box/1
        rm "$out/origin"
    fi
    configure core.fsync true
}

disks() {
    trap 'chattr -R -f -i "$out/sysroot" || true; rm -rf "$out/sysroot"' EXIT
    put_engine
    enter
    mkdir "$tree/run/repository"
    mount --bind "$more" "$tree/run/repository"
    if is_real; then encapsulate; fi
    deploy
    local var=$out/sysroot/ostree/deploy/rhcos/var
    mkdir -p "$var"/{lib,log/journal,cache,opt,srv,mnt,usrlocal/bin}
    mkdir -m 0700 "$var/roothome"
    mkdir -p "$var/home/core"
    chown -R 1000:1000 "$var/home/core"
    mke2fs -q -F -t ext4 -L boot -d "$out/sysroot/boot" "$out/boot" 200M
    rm -rf "$out"/sysroot/boot/*
    mke2fs -q -F -t ext4 -L root -d "$out/sysroot" "$out/root" 4000M
}

case $what in
    commit) commit ;;
    disks) disks ;;
    *) exit 2 ;;
esac
