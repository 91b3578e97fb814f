#!/usr/bin/env bash
# Unpacks the emulators of qemu-user below a directory: tests/qemu.sh DIR. They are those of Debian 13, which need no library: the
# ones of Debian 12 do not know openat2, without which mco-rescue does not work. Nothing is installed. Needs Debian.
set -euo pipefail

dir=$(realpath -m -- "${1:?usage: qemu.sh DIR}")
if [[ -e $dir/done ]]; then
    exit 0
fi
rm -rf -- "$dir"
mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"

# The lists of this machine stay as they are.
echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main' >"$dir/sources.list"
apt=(apt-get -qq -o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache")
cd "$dir"
"${apt[@]}" update
# apt-get download writes to the working directory.
"${apt[@]}" download qemu-user
dpkg-deb -x qemu-user_*.deb .
rm -rf lists cache sources.list qemu-user_*.deb
touch "done"
