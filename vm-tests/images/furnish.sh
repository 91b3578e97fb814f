#!/usr/bin/env bash
# furnish.sh TREE: makes a node of the Debian tree, as its image would be: the
# user core without any key, presets, a network, and what the cases ask it.
# What is a stand-in says so.
set -euo pipefail

tree=${1:?usage: furnish.sh TREE}

file() {
    mkdir -p "$(dirname "$tree/$1")"
    cat >"$tree/$1"
}

echo localhost | file etc/hostname
# The program changes nothing on a system that is no CoreOS.
printf '%s\n' 'ID=rhcos' 'VARIANT_ID=coreos' 'PRETTY_NAME="A node for the virtual machines"' |
    file usr/lib/os-release
# With an empty file systemd would not take it for a first boot.
echo uninitialized | file etc/machine-id
: | file etc/resolv.conf
echo '# the root comes from the kernel command line' | file etc/fstab

chroot "$tree" groupadd --system wheel
chroot "$tree" useradd --uid 1000 --user-group --groups wheel,sudo --create-home --shell /bin/bash core
echo 'core ALL=(ALL) NOPASSWD: ALL' | file etc/sudoers.d/core
chmod 0440 "$tree/etc/sudoers.d/core"

# As CoreOS has it: the keys of a config have a file of their own.
file etc/ssh/sshd_config.d/40-core.conf <<'END'
AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys.d/ignition
PasswordAuthentication no
UseDNS no
END

# Two cards: the one that ssh comes by, and the cluster's.
card() {
    file "etc/systemd/network/$1.network" <<END
[Match]
MACAddress=$2

[Network]
Address=$3
LinkLocalAddressing=no
END
}
card 10-ssh 52:54:00:00:00:01 10.0.2.15/24
card 20-cluster 52:54:00:00:00:02 10.0.3.15/24

# As on CoreOS: what no preset enables is off.
echo 'disable *' | file usr/lib/systemd/system-preset/99-default.preset
file usr/lib/systemd/system-preset/40-vm.preset <<'END'
enable ssh.service
enable systemd-networkd.service
enable vm-case.service
enable chatty.service
enable talkative.service
END
rm -rf "$tree"/etc/systemd/system/*.wants
mkdir -p "$tree/etc/systemd/system/multi-user.target.wants"
for unit in ssh systemd-networkd vm-case; do
    ln -s "/usr/lib/systemd/system/$unit.service" "$tree/etc/systemd/system/multi-user.target.wants/$unit.service"
done
# Seconds under emulation, and nothing that a case looks at. The network generator's second run fails on what its
# first, in the initramfs, has left, where the kernel command line has an address.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer systemd-networkd-wait-online.service systemd-network-generator.service getty@tty1.service serial-getty@ttyS0.service; do
    ln -sf /dev/null "$tree/etc/systemd/system/$unit"
done

# Enabled by their preset when systemd boots for the first time, and not before.
for unit in chatty talkative; do
    file "usr/lib/systemd/system/$unit.service" <<END
[Unit]
Description=A service of the image that its preset enables (stand-in)

[Service]
ExecStart=/bin/sleep infinity

[Install]
WantedBy=multi-user.target
END
done
# What a case wants done on a node that nobody can log in to.
file usr/lib/systemd/system/vm-case.service <<'END'
[Unit]
Description=What the case asks of the booted node
ConditionPathExists=/etc/vm-case.sh
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/bin/bash /etc/vm-case.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0

[Install]
WantedBy=multi-user.target
END
# Debian's Ignition relabels, whatever the policy's state; nothing is loaded unless a case asks for it.
printf '%s\n' 'SELINUX=disabled' 'SELINUXTYPE=default' 'SETLOCALDEFS=0' | file etc/selinux/config
