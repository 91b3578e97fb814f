#!/usr/bin/env bash
# Unpacks NetworkManager, nft, sshd and chronyd, with the libraries that this machine
# lacks, below a directory: tests/services.sh DIR. They are not installed: the
# packages' own scripts would start them, and they would take this machine's
# network. Needs root on Debian; a few seconds and 30 MB.
set -euo pipefail

dir=$(realpath -m -- "${1:?usage: services.sh DIR}")
if [[ -e $dir/done && -e $dir/usr/sbin/chronyd ]]; then
    exit 0
fi
rm -rf -- "$dir"
mkdir -p "$dir/packages/partial" "$dir/lib" "$dir/usr" "$dir/etc"

apt-get -qq update
apt-get -qq install --yes --no-install-recommends --reinstall --download-only \
    -o "Dir::Cache::archives=$dir/packages" network-manager nftables openssh-server chrony
for package in "$dir/packages"/*.deb; do
    dpkg-deb -x "$package" "$dir"
done
# Programs look for it below /usr, and so does the test.
cp -r "$dir/lib/." "$dir/usr/lib/"
cd "$dir"
rm -rf packages lib var
touch ./done
