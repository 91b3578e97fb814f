#!/usr/bin/env bash
# Makes packages for rpm of a packed release; needs rpmbuild and no compiler.
#
#   packaging/rpm.sh TARBALL OUT
set -euo pipefail

tarball=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
name=${tarball##*/}
name=${name%.tar.gz}
arch=${name##*-}
# The time of the commit is that of the files in the tarball.
SOURCE_DATE_EPOCH=$(date --date "$(tar --list --verbose --full-time --utc --file "$tarball" | awk 'NR == 1 { print $4, $5 }') UTC" +%s)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/SOURCES"
cp -- "$tarball" "$work/SOURCES/"
log=$work/log
# --nodeps: on Debian the packages of a build are not in the database of rpm.
if ! rpmbuild -bb --nodeps --with prebuilt --target "$arch" \
    --define "_topdir $work" --define '_buildhost localhost' --define '_build_id_links none' \
    --define "_bindir /usr/bin" --define "_mandir /usr/share/man" --define '_binary_payload w6.gzdio' \
    "$here/mco-rescue.spec" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
find "$work/RPMS" -name '*.rpm' -exec cp -t "$out" -- {} +
find "$out" -maxdepth 1 -name '*.rpm' -printf '%p\n' | sort
