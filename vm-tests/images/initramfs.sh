#!/usr/bin/env bash
# initramfs.sh TREE OUT KIND [MODULE BINARY]: an initramfs by dracut, inside the
# tree: `lean` (no Ignition, no network) or `ignition`; with the dracut module
# in MODULE and its binary, or without. on-top.sh runs it.
set -euo pipefail

tree=$1 out=$2 kind=${3:?usage: initramfs.sh TREE OUT KIND [MODULE BINARY]} module=${4:-} binary=${5:-}
ours=()
if [[ -n $module ]]; then
    cp -r "$module" "$tree/usr/lib/dracut/modules.d/50mco-rescue"
    cp "$binary" "$tree/usr/bin/mco-rescue"
    ours=(mco-rescue)
fi
drivers='virtio_blk virtio_pci virtio_net virtio_rng qemu_fw_cfg overlay'
case $kind in
    lean)
        modules="bash systemd systemd-initrd udev-rules rootfs-block fs-lib base dracut-systemd ostree shutdown ${ours[*]}"
        what=(--modules "$modules" --drivers "$drivers")
        ;;
    ignition)
        what=(--add "systemd ostree ignition ${ours[*]}" --add-drivers "$drivers"
            --omit 'plymouth i18n lvm mdraid multipath crypt dmraid btrfs nvdimm resume bluetooth'
            # Debian's Ignition wants it, and its module does not bring it.
            --install setfiles)
        ;;
    *) echo "initramfs.sh: no such kind: $kind" >&2; exit 1 ;;
esac
mount -t proc proc "$tree/proc"
mount -t sysfs sys "$tree/sys"
mount -t tmpfs run "$tree/run"
mount -t tmpfs tmp "$tree/var/tmp"
version=$(basename "$tree"/usr/lib/modules/*)
if ! chroot "$tree" dracut --force --no-hostonly --no-hostonly-cmdline --reproducible --no-early-microcode \
    --compress 'zstd -3 -T0 -q' --kver "$version" "${what[@]}" /run/initramfs.img >"$tree/run/log" 2>&1; then
    cat "$tree/run/log" >&2
    exit 1
fi

cp "$tree/run/initramfs.img" "$out"
chmod 0644 "$out"
