#!/usr/bin/env bash
# Proves that a release is the same wherever it is made: builds and packs the commit twice, at once, and compares.
#
# The second time the directory and its length, the registry of cargo, HOME, the clock, the times of the sources, the time zone,
# the language and the number of jobs are other ones; as root also the user and the name of the machine. It takes two release builds.
#
#   tests/release/reproducible.sh [TARGET]     keeps results and logs below target/reproducible
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
host=$(rustc -vV | sed -n 's/^host: //p')
target=${1:-$host}
if why=$(packaging/build.sh --reason "$target"); then :; else
    echo "SKIP: $target cannot be built here: $why" >&2
    exit 0
fi
kept=$PWD/target/reproducible
rm -rf "$kept"
mkdir -p "$kept"
# The bill of materials names crates of other systems, too, and the builds do without a network.
cargo fetch --locked --quiet
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
chmod 0755 "$place"
first=$place/a
second=$place/another-place-with-a-longer-name
mkdir -p "$first/out" "$second/out" "$second/home/.cargo" "$second/rust" "$second/bin"
for copy in "$first" "$second"; do
    git archive --prefix=source/ HEAD | tar --extract --directory "$copy"
done
facts=(MCO_RESCUE_COMMIT="$(git rev-parse HEAD)" SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" CARGO_NET_OFFLINE=true)
if [[ $target != "$host" ]]; then
    # A program that runs here prints the manual.
    install -m 0755 "$(packaging/build.sh "$host")" "$place/run"
    facts+=(RUN="$place/run")
fi
# shellcheck disable=SC2016 # these are for the other shell
steps='cd "$1/source"; echo "in $(pwd) on $(date +%F), as $(id -u), on $(uname -n)"
    binary=$(packaging/build.sh "$2"); cp "$binary" "$1/out/"; packaging/pack.sh "$binary" "$2" "$1/out"'

build_first() {
    env "${facts[@]}" CARGO_TARGET_DIR="$first/source/target" bash -euc "$steps" bash "$first" "$target"
}

build_second() {
    local other path=$second/rust/bin:$second/bin:/usr/bin:/bin tool today
    cp -r "${CARGO_HOME:-$HOME/.cargo}/registry" "$second/home/.cargo/"
    find "$second/source" -exec touch --no-dereference --date '2001-02-03 04:05:06' -- {} +
    # Everything that is linked with the C library reads this clock: rustc, cargo, build scripts, cc, tar, gzip, python3.
    cc -shared -fPIC -O1 -o "$second/clock.so" tests/release/clock.c
    other=("${facts[@]}" HOME="$second/home" TZ=Asia/Tokyo LANG=de_DE.UTF-8 CARGO_BUILD_JOBS=3
        CARGO_TARGET_DIR="$second/source/other-target" LD_PRELOAD="$second/clock.so" CLOCK_SHIFT=-34560000)
    today=$(date +%F)
    if [[ $(env "${other[@]}" date +%F) == "$today" ]]; then
        echo 'the second clock is the first one'
        return 1
    fi
    if tool=$(command -v cargo-sbom); then
        install -m 0755 "$tool" "$second/bin/cargo-sbom"
    fi
    if ((EUID != 0)); then
        echo 'SKIP: the same user and name of the machine: only root can have another one'
        rmdir "$second/rust"
        ln -s "$(rustc --print sysroot)" "$second/rust"
        env -i PATH="$path" "${other[@]}" bash -euc "umask 077; $steps" bash "$second" "$target"
        return
    fi
    chown -R 65534:65534 "$second"
    # shellcheck disable=SC2016 # these are for the other shell
    # The compiler of root's home, at a place that the other user can enter.
    unshare --mount --uts bash -euc '
        echo another-machine >/proc/sys/kernel/hostname
        mount --bind "$1" "$2"
        # Some machines keep /dev/null from others.
        [[ $(stat -c %a /dev/null) == 666 ]] || { mknod -m 0666 "$3" c 1 3; mount --bind "$3" /dev/null; }
        shift 3
        exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"' bash \
        "$(rustc --print sysroot)" "$second/rust" "$second/null" \
        env -i PATH="$path" "${other[@]}" bash -euc "umask 077; $steps" bash "$second" "$target"
}

echo "two builds of $(git rev-parse HEAD) for $target; their logs are in $kept"
build_first >"$kept/first.log" 2>&1 &
one=$!
build_second >"$kept/second.log" 2>&1 &
two=$!
failed=
wait "$one" || failed+=' first'
wait "$two" || failed+=' second'
cp -r "$first/out" "$kept/first"
cp -r "$second/out" "$kept/second"
grep -h '^in \|^SKIP' "$kept"/*.log
if [[ -n $failed ]]; then
    echo "not built:$failed" >&2
    tail -n 20 "$kept"/*.log >&2
    exit 1
fi
(cd "$kept" && sha256sum first/* second/*)
if ! diff -r "$kept/first" "$kept/second"; then
    echo "not reproducible: compare $kept/first with $kept/second (diffoscope shows how)" >&2
    exit 1
fi
echo "reproducible: both builds gave the same bytes for $target"
