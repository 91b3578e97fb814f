#!/usr/bin/env bash
# tiny.sh OUT KERNEL INIT: the initramfs of the tiny guests: a static busybox,
# the kernel modules for a virtual disk, and INIT as /init. Three megabytes;
# the kernel takes further archives after it (the binary, a case's files).
set -euo pipefail

out=${1:?usage: tiny.sh OUT KERNEL INIT} kernel=$2 init=$3
scratch=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/tree
mkdir -p "$tree"/{bin,dev,proc,sys,run,tmp,mnt,lib/modules}
cp "$(command -v busybox)" "$tree/bin/busybox"
cp "$init" "$tree/init"
chmod 0755 "$tree/init" "$tree/bin/busybox"

# The modules that one of these needs, in the order in which they have to be loaded.
list() {
    local version module
    version=$(basename "$kernel"/lib/modules/*)
    for module in "$@"; do
        modprobe -d "$kernel" -S "$version" --show-depends "$module"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++'
}
for name in disk xfs btrfs vfat exfat; do
    case $name in
        disk) modules=(virtio_pci virtio_blk) ;;
        xfs) modules=(xfs) ;;
        btrfs) modules=(btrfs) ;;
        vfat) modules=(vfat nls_cp437 nls_ascii) ;;
        exfat) modules=(exfat) ;;
    esac
    list "${modules[@]}" | while IFS= read -r path; do
        cp "$path" "$tree/lib/modules/"
        basename "$path"
    done >"$tree/lib/modules/$name"
done

(cd "$tree" && find . -mindepth 1 | LC_ALL=C sort | cpio -o -H newc --quiet) | gzip -1 >"$out.packed"
mv "$out.packed" "$out"
