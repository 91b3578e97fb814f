#!/usr/bin/env bash
# Runs the tests of the library for other architectures, under qemu-user: one with small ends first, and one with big ends.
#
#   TARGETS="s390x-unknown-linux-gnu ..." tests/release/cross.sh [FILTER...]
#
# What this machine has no compiler or emulator for is skipped, aloud. The kernel is this machine's, with its pages of 4 KiB.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/cross}
status=0
table=()
for target in ${TARGETS:-aarch64-unknown-linux-gnu powerpc64le-unknown-linux-gnu s390x-unknown-linux-gnu}; do
    arch=${target%%-*}
    arch=${arch/powerpc64le/ppc64le}
    if why=$(packaging/build.sh --reason "$target"); then :; else
        table+=("$target	SKIP: $why")
        continue
    fi
    if ! emulator=$(command -v "qemu-$arch-static"); then
        table+=("$target	SKIP: no emulator (on Debian: apt-get install qemu-user-static)")
        continue
    fi
    name=${target//-/_}
    tools=${target%%-*}-linux-gnu-
    log=$(mktemp)
    if ! env "CC_$name=${tools}gcc" "AR_$name=${tools}ar" "CARGO_TARGET_${name^^}_LINKER=${tools}gcc" \
        "CARGO_TARGET_${name^^}_RUNNER=$emulator" \
        cargo test --locked --lib --target "$target" -- "$@" 2>&1 | tee "$log"; then
        status=1
    fi
    table+=("$target	$(grep '^test result' "$log" || echo 'not built')")
    rm -f "$log"
done
printf '%s\n' "${table[@]}"
exit "$status"
