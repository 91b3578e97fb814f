#!/usr/bin/env bash
# Builds the static release binary for one target: the same bytes of the same sources, wherever and whenever it runs.
#
#   packaging/build.sh TARGET       prints the path of the binary
#   packaging/build.sh --reason TARGET    prints what is missing for it, and fails; says nothing if it can be built
#
# CARGO_TARGET_DIR says where it works (target/dist), MCO_RESCUE_COMMIT which commit the sources are (asked of git).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

host=$(rustc -vV | sed -n 's/^host: //p')

# What Debian calls the tools for a target; nothing for the machine's own.
tools_for() {
    case $1 in
        "$host") ;;
        powerpc64le-*) echo powerpc64le-linux-gnu- ;;
        *-unknown-linux-gnu) echo "${1%%-*}-linux-gnu-" ;;
    esac
}

# The first thing that is missing for a target, and where it is.
reason() {
    local target=$1 prefix
    prefix=$(tools_for "$target")
    if [[ ! -d $(rustc --print sysroot)/lib/rustlib/$target/lib ]]; then
        echo "no standard library of Rust (rustup target add $target)"
    elif [[ -n $prefix ]] && ! command -v "${prefix}gcc" >/dev/null; then
        echo "no compiler for C (on Debian: apt-get install gcc-${prefix%-})"
    elif [[ ! -e $("${prefix}gcc" -print-file-name=libc.a) ]]; then
        echo "no static C library (the package for development of glibc for $target)"
    else
        return 1
    fi
}

if [[ $1 == --reason ]]; then
    if reason "$2"; then exit 1; else exit 0; fi
fi

target=$1
if why=$(reason "$target"); then
    echo "packaging/build.sh: $target cannot be built here: $why" >&2
    exit 1
fi

prefix=$(tools_for "$target")
name=${target//-/_}
cargo_home=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
sources=$(pwd -P)
# Where the sources of Rust's library are installed, the compiler names that place instead of the one of its own build.
sysroot=$(rustc --print sysroot)
library=/rustc/$(rustc -vV | sed -n 's/^commit-hash: //p')

# These would replace what is said below.
unset CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET CFLAGS
# As in .cargo/config.toml, once: in an export below a checkout cargo adds the flags of both, and functions get other names.
export RUSTFLAGS='-C target-feature=+crt-static'
export CARGO_INCREMENTAL=0 LC_ALL=C TZ=UTC0
CARGO_TARGET_DIR=$(realpath -m -- "${CARGO_TARGET_DIR:-target/dist}")
export CARGO_TARGET_DIR
if [[ -z ${MCO_RESCUE_COMMIT-} && -e .git ]]; then
    MCO_RESCUE_COMMIT=$(git rev-parse HEAD)
    export MCO_RESCUE_COMMIT
fi
# ring has C and assembly: no path of this machine in those objects either.
export "CFLAGS_$name=-ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$sources=/mco-rescue -ffile-prefix-map=$CARGO_TARGET_DIR=/target"
if [[ -n $prefix ]]; then
    export "CC_$name=${prefix}gcc" "AR_$name=${prefix}ar" "CARGO_TARGET_${name^^}_LINKER=${prefix}gcc"
fi
# Through a wrapper: no part of the names of functions, and macros, which are of this machine, are compiled with these too.
export RUSTC_WRAPPER=$sources/packaging/rustc.sh
REMAP=--remap-path-prefix=$cargo_home=/cargo
REMAP+=$'\n'--remap-path-prefix=$sources=/mco-rescue
# Sources that a build script writes are below it. Of two that fit, the last one counts.
REMAP+=$'\n'--remap-path-prefix=$CARGO_TARGET_DIR=/target
REMAP+=$'\n'--remap-path-prefix=$sysroot/lib/rustlib/src/rust=$library
export REMAP
cargo build --release --locked --bin mco-rescue --target "$target" >&2
echo "$CARGO_TARGET_DIR/$target/release/mco-rescue"
