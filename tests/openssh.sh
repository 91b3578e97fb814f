#!/usr/bin/env bash
# Unpacks a real sshd below a directory: tests/openssh.sh DIR. It is not
# installed: the package's own scripts would open a port of this machine.
# Needs Debian.
set -euo pipefail

dir=$(realpath -m -- "${1:?usage: openssh.sh DIR}")
if [[ -e $dir/done ]]; then
    exit 0
fi
rm -rf -- "$dir"
mkdir -p "$dir/packages"

# apt-get download writes to the working directory.
cd "$dir/packages"
apt-get download openssh-server
for package in *.deb; do
    dpkg-deb -x "$package" "$dir"
done
cd "$dir"
rm -rf "$dir/packages"
if ldd "$dir/usr/sbin/sshd" | grep -q 'not found'; then
    echo 'libraries of sshd are missing' >&2
    exit 1
fi
touch "$dir/done"
