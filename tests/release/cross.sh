#!/usr/bin/env bash
# Runs the tests for other architectures, under qemu-user: those of the library, and those of the program on a root directory.
#
#   TARGETS="s390x-unknown-linux-gnu ..." tests/release/cross.sh [FILTER...]
#
# The kernel is this machine's; the emulator is registered with it in a user namespace of its own, without rights to the machine. Pages have
# 4 KiB for s390x, as there; 64 KiB for ppc64le, as there; aarch64 has both kinds, and its library is tested with both.
# What this machine has no compiler or emulator for is skipped, aloud; `tests/setup.sh cross` gets both on Debian.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/cross}
parts=("$@")
if ((${#parts[@]} == 0)); then
    # Each starts the program many times, and the emulator takes a second for a start: these are minutes, all would be hours.
    parts=(apply::actions:: apply::bare:: crossing::cpu_level:: crossing::identity:: install::packages::each os::images::)
fi

# What the kernel compares the head of a program with, in its own notation.
magic_of() {
    local head='\x7fELF\x02' rest='\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00'
    case $1 in
        aarch64) printf "%s\n" "$head\\x01$rest\\x02\\x00\\xb7\\x00" ;;
        ppc64le) printf "%s\n" "$head\\x01$rest\\x02\\x00\\x15\\x00" ;;
        s390x) printf "%s\n" "$head\\x02$rest\\x00\\x02\\x00\\x16" ;;
    esac
}

# The programs of one kind and of static-pie differ in one bit.
mask_of() {
    local head='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff'
    case $1 in
        s390x) printf "%s\n" "$head\\xff\\xfe\\xff\\xff" ;;
        *) printf "%s\n" "$head\\xfe\\xff\\xff\\xff" ;;
    esac
}

# Runs a command as an ordinary user who can start programs of an architecture.
emulated() {
    local arch=$1 emulator=$2
    shift 2
    # shellcheck disable=SC2016 # these are for the other shell
    unshare --user --map-root-user --mount bash -euc '
        mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
        printf "%s" "$1" >/proc/sys/fs/binfmt_misc/register
        shift
        exec unshare --user --map-user=1000 --map-group=1000 "$@"' bash \
        ":$arch:M:0:$(magic_of "$arch"):$(mask_of "$arch"):$emulator:F" "$@"
}

status=0
table=()
for target in ${TARGETS:-aarch64-unknown-linux-gnu powerpc64le-unknown-linux-gnu s390x-unknown-linux-gnu}; do
    arch=${target%%-*}
    arch=${arch/powerpc64le/ppc64le}
    if why=$(packaging/build.sh --reason "$target"); then :; else
        table+=("$target	SKIP: $why")
        continue
    fi
    emulator=$PWD/target/qemu/usr/bin/qemu-$arch
    if [[ ! -x $emulator ]] && ! emulator=$(command -v "qemu-$arch-static" || command -v "qemu-$arch"); then
        table+=("$target	SKIP: no emulator (tests/setup.sh cross)")
        continue
    fi
    # The first one that knows openat2.
    version=$("$emulator" --version | sed -n 's/^.* version \([0-9.]*\).*/\1/p')
    if [[ $(printf '%s\n' 9.2 "$version" | sort -V | head -n 1) != 9.2 ]]; then
        table+=("$target	SKIP: QEMU $version is older than 9.2 (tests/setup.sh cross)")
        continue
    fi
    if ! why=$(emulated "$arch" "$emulator" true 2>&1); then
        table+=("$target	SKIP: the kernel takes no emulator from a user namespace: $why")
        continue
    fi
    case $arch in
        aarch64) pages=(4096 65536) ;;
        ppc64le) pages=(65536) ;;
        *) pages=(4096) ;;
    esac
    name=${target//-/_}
    tools=${target%%-*}-linux-gnu-
    cargo=(env "CC_$name=${tools}gcc" "AR_$name=${tools}ar" "CARGO_TARGET_${name^^}_LINKER=${tools}gcc"
        cargo test --locked --target "$target")
    if ! "${cargo[@]}" --no-run --lib --test main; then
        table+=("$target	NOT BUILT")
        status=1
        continue
    fi
    for page in "${pages[@]}"; do
        for kind in library program; do
            case $kind in
                library) what=(--lib -- "$@") ;;
                # One round of the program is enough: with the larger pages, where there are two.
                program)
                    [[ $page == "${pages[-1]}" ]] || continue
                    what=(--test main -- "${parts[@]}")
                    ;;
            esac
            log=$(mktemp)
            # The emulator takes the size of its pages from the environment.
            if ! QEMU_PAGESIZE=$page emulated "$arch" "$emulator" "${cargo[@]}" "${what[@]}" 2>&1 | tee "$log"; then
                status=1
            fi
            table+=("$target	pages of $page	$kind	$(grep '^test result' "$log" || echo 'it did not end')")
            rm -f "$log"
        done
    done
done
printf '%s\n' "${table[@]}"
exit "$status"
