#!/usr/bin/env bash
# Proves that a release is the same wherever it is made: builds and packs the commit twice and compares.
#
# The second time the directory and its length, the registry of cargo, HOME, the clock, the times of the sources, the time zone,
# the language and the number of jobs are other ones; as root also the user and the name of the machine. It takes two release builds.
#
#   tests/release/reproducible.sh [TARGET]     keeps both results below target/reproducible
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=${1:-$(rustc -vV | sed -n 's/^host: //p')}
if why=$(packaging/build.sh --reason "$target"); then :; else
    echo "SKIP: $target cannot be built here: $why" >&2
    exit 0
fi
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
run=
if [[ $target != "$(rustc -vV | sed -n 's/^host: //p')" ]]; then
    # One that runs here prints the manual.
    run=$(realpath "$(packaging/build.sh "$(rustc -vV | sed -n 's/^host: //p')")")
    install -m 0755 "$run" "$place/run"
    facts+=(RUN="$place/run")
fi
# shellcheck disable=SC2016 # these are for the other shell
steps='cd "$1/source"; echo "at $(pwd), $(date +%F), $(id -un), $(uname -n)"
    binary=$(packaging/build.sh "$2"); cp "$binary" "$1/out/"; packaging/pack.sh "$binary" "$2" "$1/out"'

echo '== first build'
env "${facts[@]}" CARGO_TARGET_DIR="$first/source/target" bash -euc "$steps" bash "$first" "$target"

echo '== second build'
cp -r "${CARGO_HOME:-$HOME/.cargo}/registry" "$second/home/.cargo/"
find "$second/source" -exec touch --no-dereference --date '2001-02-03 04:05:06' -- {} +
# Everything that is linked with the C library reads this clock: rustc, cargo, build scripts, cc, tar, gzip, python3.
cc -shared -fPIC -O1 -o "$second/clock.so" tests/release/clock.c
other=("${facts[@]}" HOME="$second/home" TZ=Asia/Tokyo LANG=de_DE.UTF-8 LC_TIME=C.UTF-8 CARGO_BUILD_JOBS=3
    CARGO_TARGET_DIR="$second/source/other-target" LD_PRELOAD="$second/clock.so" CLOCK_SHIFT=-34560000)
if tool=$(command -v cargo-sbom); then
    install -m 0755 -D "$tool" "$second/bin/cargo-sbom"
fi
path=$second/rust/bin:$second/bin:/usr/bin:/bin
today=$(date +%F)
if [[ $(env "${other[@]}" date +%F) == "$today" ]]; then
    echo 'tests/release/reproducible.sh: the second clock is the first one' >&2
    exit 1
fi
if ((EUID == 0)); then
    chown -R 65534:65534 "$second"
    # shellcheck disable=SC2016 # these are for the other shell
    # The compiler of root's home, at a place that the other user can enter.
    unshare --mount --uts bash -euc '
        hostname another-machine 2>/dev/null || echo another-machine >/proc/sys/kernel/hostname
        mount --bind "$1" "$2"
        # Some machines keep /dev/null from others.
        [[ -w /dev/null && $(stat -c %a /dev/null) == 666 ]] || { mknod -m 0666 "$3" c 1 3; mount --bind "$3" /dev/null; }
        shift 3
        exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"' bash \
        "$(rustc --print sysroot)" "$second/rust" "$second/null" \
        env -i PATH="$path" "${other[@]}" bash -euc "umask 077; $steps" bash "$second" "$target"
else
    echo 'SKIP: the same user: only root can be another one'
    rmdir "$second/rust"
    ln -s "$(rustc --print sysroot)" "$second/rust"
    env -i PATH="$path" "${other[@]}" bash -euc "umask 077; $steps" bash "$second" "$target"
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
