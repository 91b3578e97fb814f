#!/usr/bin/env bash
# Proves that a release is the same wherever it is made: builds and packs the commit twice and compares.
#
# The second time the directory and its length, the registry of cargo, HOME, the time zone and the language are other ones; as root also
# the user, and with faketime the clock. It takes two release builds.
#
#   tests/release/reproducible.sh [TARGET]     keeps both results below target/reproducible
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=${1:-$(rustc -vV | sed -n 's/^host: //p')}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
chmod 0755 "$place"
first=$place/a
second=$place/another-place-with-a-longer-name
mkdir -p "$first/out" "$second/out" "$second/home/.cargo" "$second/rust"
for copy in "$first" "$second"; do
    git archive --prefix=source/ HEAD | tar --extract --directory "$copy"
done
commit=$(git rev-parse HEAD)
epoch=$(git log -1 --format=%ct)
facts=(MCO_RESCUE_COMMIT="$commit" SOURCE_DATE_EPOCH="$epoch" CARGO_NET_OFFLINE=true)
# shellcheck disable=SC2016 # these are for the other shell
steps='cd "$1/source" && binary=$(packaging/build.sh "$2") && packaging/pack.sh "$binary" "$2" "$1/out"'

echo '== first build'
env "${facts[@]}" CARGO_TARGET_DIR="$first/source/target" bash -euc "$steps" bash "$first" "$target"

echo '== second build'
cp -r "${CARGO_HOME:-$HOME/.cargo}/registry" "$second/home/.cargo/"
other=("${facts[@]}" HOME="$second/home" TZ=Asia/Tokyo LANG=de_DE.UTF-8 CARGO_TARGET_DIR="$second/source/other-target")
clock=()
# rustc does not start under faketime: it keeps the clock. cargo, build scripts, cc, tar and gzip have the other one.
mkdir "$second/shim"
printf '#!/bin/sh\nunset LD_PRELOAD\nexec "%s" "$@"\n' "$second/rust/bin/rustc" >"$second/shim/rustc"
chmod 0755 "$second/shim/rustc"
if command -v faketime >/dev/null; then
    clock=(faketime -f +400d)
else
    echo 'SKIP: the same clock: there is no faketime'
fi
if ((EUID == 0)); then
    chown -R 65534:65534 "$second"
    # shellcheck disable=SC2016 # these are for the other shell
    # The compiler of root's home, at a place that the other user can enter.
    unshare --mount bash -euc '
        mount --bind "$1" "$2"
        # Some machines keep /dev/null from others.
        [[ -w /dev/null && $(stat -c %a /dev/null) == 666 ]] || { mknod -m 0666 "$3" c 1 3; mount --bind "$3" /dev/null; }
        shift 3
        exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"' bash \
        "$(rustc --print sysroot)" "$second/rust" "$second/null" \
        env -i "${other[@]}" PATH="$second/shim:$second/rust/bin:/usr/bin:/bin" "${clock[@]}" \
        bash -euc "umask 077; $steps" bash "$second" "$target"
else
    echo 'SKIP: the same user: only root can be another one'
    rmdir "$second/rust"
    ln -s "$(rustc --print sysroot)" "$second/rust"
    env -i "${other[@]}" PATH="$second/shim:$second/rust/bin:/usr/bin:/bin" "${clock[@]}" \
        bash -euc "umask 077; $steps" bash "$second" "$target"
fi

kept=target/reproducible
rm -rf "$kept"
mkdir -p "$kept"
cp -r "$first/out" "$kept/first"
cp -r "$second/out" "$kept/second"
(cd "$kept" && sha256sum first/* second/*)
if ! diff -r "$kept/first" "$kept/second"; then
    echo "not reproducible: compare $kept/first with $kept/second (diffoscope shows how)" >&2
    exit 1
fi
echo "reproducible: both builds gave the same bytes for $target"
