#!/usr/bin/env bash
# Packs a built binary with its manual, units and licences: the same bytes of the same binary and sources.
#
#   packaging/pack.sh BINARY TARGET OUT
#
# OUT gets mco-rescue-VERSION-ARCH.tar.gz, and the bill of materials beside it where cargo-sbom is here.
# RUN=FILE is a binary of the same sources that runs on this machine, where BINARY is for another one.
set -euo pipefail

binary=$(realpath "$1")
target=$2
mkdir -p "$3"
out=$(realpath "$3")
run=$(realpath "${RUN:-$binary}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C TZ=UTC0

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# The name that rpm and uname have for it.
arch=${target%%-*}
arch=${arch/powerpc64le/ppc64le}
name=mco-rescue-$version-$arch
# Of the commit, or of the newest entry of the change log in an unpacked archive.
if [[ -z ${SOURCE_DATE_EPOCH-} ]]; then
    if [[ -e .git ]]; then
        SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    else
        day=$(sed -n 's/^## \[.*\] - \([0-9-]*\)$/\1/p' CHANGELOG.md | head -n 1)
        SOURCE_DATE_EPOCH=$(date --date "$day 00:00 UTC" +%s)
    fi
fi
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
tree=$work/$name
make --no-print-directory install DESTDIR="$tree" PREFIX=/usr BINARY="$binary" RUN="$run" >/dev/null
licences=$tree/usr/share/licenses/mco-rescue
packaging/third-party.py "$target" >"$licences/THIRD-PARTY.txt"
install -m 0644 "$(rustc --print sysroot)/share/doc/rust/COPYRIGHT-library.html" "$licences/rust-library.html"
install -m 0644 CHANGELOG.md "$tree/usr/share/doc/mco-rescue/CHANGELOG.md"
install -D -m 0644 packaging/50-mco-rescue.preset "$tree/usr/lib/systemd/system-preset/50-mco-rescue.preset"
# For a person who copies the program alone to a node.
ln -s usr/bin/mco-rescue "$tree/mco-rescue"

# Nothing of this machine: its paths are of no use to a reader, and differ on the next one.
for place in "$PWD" "${CARGO_HOME:-$HOME/.cargo}" "${RUSTUP_HOME:-$HOME/.rustup}" "$work"; do
    if grep -rqaF -- "$place" "$tree"; then
        echo "packaging/pack.sh: a path of this machine is in: $(grep -rlaF -- "$place" "$tree" | head -n 3)" >&2
        exit 1
    fi
done

tar --create --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --directory "$work" "$name" | gzip --no-name --best >"$out/$name.tar.gz"
packaging/sbom.sh "$target" "$out/$name"
echo "$out/$name.tar.gz"
