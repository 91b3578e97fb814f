#!/bin/bash
# dracut module: the static binary and three units. It decides nothing; `mco-rescue firstboot` does.

# Only when it is asked for: `dracut --add mco-rescue`, or dracut/mco-rescue.conf in dracut.conf.d.
check() {
    return 255
}

depends() {
    echo systemd
}

installkernel() {
    # The stick or virtual medium that is labelled MCO-RESCUE.
    # shellcheck disable=SC2154  # set by dracut
    hostonly='' instmods vfat exfat iso9660 udf ext4 xfs =fs/nls usb_storage uas sd_mod sr_mod
}

# Names of dracut's own, such as find_binary, must not be taken.
#
# Beside this script, where the host has it, or where `mco-rescue install` put it.
mco_rescue_binary() {
    local path
    # shellcheck disable=SC2154  # set by dracut
    for path in "$moddir/mco-rescue" "${dracutsysrootdir-}/usr/bin/mco-rescue" "${dracutsysrootdir-}/usr/local/bin/mco-rescue"; do
        if [[ -x $path ]]; then
            echo "$path"
            return 0
        fi
    done
    dfatal 'mco-rescue: no binary. Put it beside module-setup.sh, or at /usr/bin/mco-rescue'
    return 1
}

mco_rescue_unit() {
    local unit=$1 target=$2
    # shellcheck disable=SC2154  # set by dracut
    inst_simple "$moddir/$unit" "$systemdsystemunitdir/$unit"
    # shellcheck disable=SC2154  # set by dracut
    mkdir -p "$initdir/$systemdsystemunitdir/$target.wants"
    ln_r "$systemdsystemunitdir/$unit" "$systemdsystemunitdir/$target.wants/$unit"
}

install() {
    local binary config
    binary=$(mco_rescue_binary) || return 1
    inst_simple "$binary" /usr/bin/mco-rescue
    # What it may call; it does without what is not there, and says so.
    inst_multiple -o blkid systemctl unshare mount useradd usermod userdel groupadd groupmod groupdel
    # Wanted, never required: a node must boot without us.
    mco_rescue_unit mco-rescue-firstboot.service initrd.target
    mco_rescue_unit mco-rescue-shell.service initrd.target
    mco_rescue_unit mco-rescue-beside-ignition.service ignition-complete.target
    inst_simple "$moddir/ignition-fetch.conf" "$systemdsystemunitdir/ignition-fetch.service.d/50-mco-rescue.conf"
    # Configs and an authority that the image brings along.
    for config in "${dracutsysrootdir-}"/usr/lib/mco-rescue/configs/* "${dracutsysrootdir-}/usr/lib/mco-rescue/ca.pem" \
        "${dracutsysrootdir-}/usr/lib/mco-rescue/policy" "${dracutsysrootdir-}/usr/lib/mco-rescue/allowed_signers"; do
        if [[ -f $config ]]; then
            inst_simple "$config" "${config#"${dracutsysrootdir-}"}"
        fi
    done
}
