#!/usr/bin/env bash
# Makes sure that the programs the tests call are here; `tests/setup.sh bench`: those of the benchmarks; `tests/setup.sh cross`:
# compilers, libraries and emulators of the other architectures; `tests/setup.sh release`: the tools of a signed release.
#
# As root on Debian the missing ones are installed, and only those. Anywhere
# else nothing is touched: what is missing is listed, with the packages that
# have it on Debian, and the exit status is 1.
set -euo pipefail

# Some of these live where an ordinary user's PATH does not lead.
PATH=$PATH:/usr/sbin:/sbin

# Program, a path where it may be outside PATH (or -), package on Debian.
needed='
cc                 -                                             gcc
shellcheck         -                                             shellcheck
systemctl          -                                             systemd
ignition           /usr/lib/dracut/modules.d/30ignition/ignition ignition
ignition-validate  -                                             ignition
strace             -                                             strace
mkfs.ext4          -                                             e2fsprogs
mkfs.xfs           -                                             xfsprogs
mkfs.btrfs         -                                             btrfs-progs
debugfs            -                                             e2fsprogs
file               -                                             file
nm                 -                                             binutils
readelf            -                                             binutils
python3            -                                             python3
cpio               -                                             cpio
strip              -                                             binutils
rpm                -                                             rpm
setpriv            -                                             util-linux
skopeo             -                                             skopeo
podman             -                                             podman
etcd               -                                             etcd-server
ovsdb-server       -                                             openvswitch-common
cryptsetup         -                                             cryptsetup-bin
openssl            -                                             openssl
age                -                                             age
ssh-keygen         -                                             openssh-client
ip                 -                                             iproute2
ostree             -                                             ostree
grub-editenv       -                                             grub-common
unshare            -                                             util-linux
useradd            -                                             passwd
tmux               -                                             tmux
modprobe           -                                             kmod
'

# What shows the pages. The largest download here, some 100 MB.
for_pages='
chromium           -                                             chromium
'

# What vm-tests/ calls besides, for its boxes too. Where these cannot be had its cases are skipped.
for_machines='
qemu-system-x86_64 -                                             qemu-system-x86
mmdebstrap         -                                             mmdebstrap
busybox            -                                             busybox-static
cpio               -                                             cpio
depmod             -                                             kmod
zstd               -                                             zstd
mke2fs             -                                             e2fsprogs
mkfs.vfat          -                                             dosfstools
mkfs.exfat         -                                             exfatprogs
mcopy              -                                             mtools
ostree             -                                             ostree
socat              -                                             socat
ssh                -                                             openssh-client
nsenter            -                                             util-linux
losetup            -                                             mount
xz                 -                                             xz-utils
grub-mkimage       -                                             grub-common
boot.img           /usr/lib/grub/i386-pc                         grub-pc-bin
kernel.img         /usr/lib/grub/x86_64-efi                      grub-efi-amd64-bin
OVMF_CODE_4M.fd    /usr/share/OVMF                               ovmf
sfdisk             -                                             fdisk
shimx64.efi        /usr/lib/shim                                 shim-unsigned
'

# What tests/install makes packages with, and lets read what is installed; likewise.
for_packages='
groff              -                                             groff-base
mandoc             -                                             mandoc
zsh                -                                             zsh
fish               -                                             fish
dracut             -                                             dracut-core
rpmbuild           -                                             rpm
rpmlint            -                                             rpmlint
mksquashfs         -                                             squashfs-tools
sos                -                                             sosreport
kubectl            -                                             kubernetes-client
'

# What benches/ calls. The tests do not, so `tests/setup.sh bench` alone looks for these, and for nothing else.
for_bench='
cc                 -                                             gcc
hyperfine          -                                             hyperfine
ignition           /usr/lib/dracut/modules.d/30ignition/ignition ignition
mkfs.ext4          -                                             e2fsprogs
nm                 -                                             binutils
python3            -                                             python3
strace             -                                             strace
unshare            -                                             util-linux
valgrind           -                                             valgrind
/usr/bin/time      -                                             time
'

# What `make release` calls, beside what it is built with.
for_release='
cc                 -                                             gcc
git                -                                             git
gzip               -                                             gzip
make               -                                             make
python3            -                                             python3
ssh-keygen         -                                             openssh-client
tar                -                                             tar
'

# Compilers and C libraries for `make dist`. What cannot be had is said aloud.
for_cross='
aarch64-linux-gnu-gcc     -                                          gcc-aarch64-linux-gnu
libc.a                    /usr/aarch64-linux-gnu/include/gnu         libc6-dev-arm64-cross
powerpc64le-linux-gnu-gcc -                                          gcc-powerpc64le-linux-gnu
libc.a                    /usr/powerpc64le-linux-gnu/include/gnu     libc6-dev-ppc64el-cross
s390x-linux-gnu-gcc       -                                          gcc-s390x-linux-gnu
libc.a                    /usr/s390x-linux-gnu/include/gnu           libc6-dev-s390x-cross
'

# Fills `programs` and `packages` with what is missing of a table.
find_missing() {
    local program elsewhere package
    programs=()
    packages=()
    while read -r program elsewhere package; do
        if [[ -z $program || -x $elsewhere ]] || command -v "$program" >/dev/null; then
            continue
        fi
        programs+=("$program")
        if [[ " ${packages[*]-} " != *" $package "* ]]; then
            packages+=("$package")
        fi
    done <<<"$1"
}

# Says what is not tested here. Under MCO_RESCUE_STRICT=1 that is an error for root, who can install what is missing.
skip() {
    echo "SKIP: $1"
    if [[ ${MCO_RESCUE_STRICT-} == 1 ]] && ((EUID == 0)); then
        echo 'tests/setup.sh: MCO_RESCUE_STRICT=1 allows no such gap' >&2
        exit 1
    fi
}

is_debian() {
    command -v apt-get >/dev/null && grep -qxE 'ID="?debian"?' /etc/os-release 2>/dev/null
}

# Runs a command that has nothing to say unless it fails.
quietly() {
    local log
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        echo "tests/setup.sh: failed: $*" >&2
        exit 1
    fi
    rm -f "$log"
}

# A real SELinux policy for tests/apply/labels.rs, which passes over it where there is none.
make_policy() {
    if ! is_debian; then
        skip "no SELinux policy for the tests: it is made of Debian packages"
    else
        quietly "${BASH_SOURCE%/*}/selinux-policy.sh" "${CARGO_TARGET_DIR:-target}/selinux"
    fi
}

# The real sshd for tests/trial, which passes over it where there is none.
make_openssh() {
    local dir=${CARGO_TARGET_DIR:-target}/openssh log
    if ! is_debian; then
        skip 'no sshd for the tests: it is unpacked from a Debian package'
        return 0
    fi
    # A library and a program that open no port; sshd itself is not installed.
    if ((EUID == 0)) && ! { command -v sudo && ldconfig -p | grep -F libwrap.so.0; } >/dev/null; then
        { apt-get update && apt-get install --yes --no-install-recommends libwrap0 sudo; } >/dev/null 2>&1 || true
    fi
    log=$(mktemp)
    if ! "${BASH_SOURCE%/*}/openssh.sh" "$dir" >"$log" 2>&1; then
        rm -rf -- "$dir"
        skip "no sshd for the tests: $(tail -n 1 "$log")"
    fi
    rm -f "$log"
}

# The real NetworkManager, nft and sshd for tests/trial, which passes over them where there are none.
make_services() {
    local dir=${CARGO_TARGET_DIR:-target}/services log
    if ! is_debian || ((EUID != 0)); then
        skip 'no NetworkManager and nft for the tests: they are unpacked from Debian packages, as root'
        return 0
    fi
    # A bus, which the tests start themselves.
    if ! { command -v dbus-daemon && command -v sysctl; } >/dev/null; then
        { apt-get update && apt-get install --yes --no-install-recommends dbus-daemon procps; } >/dev/null 2>&1 || true
    fi
    log=$(mktemp)
    if ! "${BASH_SOURCE%/*}/services.sh" "$dir" >"$log" 2>&1; then
        rm -rf -- "$dir"
        skip "no NetworkManager and nft for the tests: $(tail -n 1 "$log")"
    fi
    rm -f "$log"
}

# The real ansible-playbook for tests/install/fleet.rs, which passes over it where there is none.
make_ansible() {
    local dir=${CARGO_TARGET_DIR:-target}/ansible log
    if ! python3 -c 'import ensurepip' 2>/dev/null && ((EUID == 0)) && is_debian; then
        { apt-get update && apt-get install --yes --no-install-recommends python3-venv; } >/dev/null 2>&1 || true
    fi
    log=$(mktemp)
    if ! "${BASH_SOURCE%/*}/ansible.sh" "$dir" >"$log" 2>&1; then
        rm -rf -- "$dir"
        skip "no ansible-playbook for the tests: $(tail -n 1 "$log")"
    fi
    rm -f "$log"
}

# The validator of JSON Schema for tests/screens/documents.rs, which passes over it where there is none.
make_validator() {
    local python
    for python in /usr/bin/python3 python3; do
        if "$python" -c 'import jsonschema' 2>/dev/null; then
            return 0
        fi
    done
    if ((EUID == 0)) && is_debian && apt-get -qq update &&
        apt-get -qq install --yes --no-install-recommends python3-jsonschema >/dev/null 2>&1; then
        echo "tests/setup.sh: installed python3-jsonschema"
    else
        skip "no validator for the JSON documents (on Debian: python3-jsonschema)"
    fi
}

# Brings what is missing of a table; without it, the tests that need it are skipped.
prepare() {
    local table=$1 without=$2
    find_missing "$table"
    if ((${#programs[@]} == 0)); then
        return 0
    fi
    if ((EUID != 0)) || ! is_debian; then
        skip "$without: no ${programs[*]} (on Debian: ${packages[*]})"
        return 0
    fi
    # One from backports would be removed without a word, as this QEMU does not go with it.
    if [[ " ${packages[*]} " == *' qemu-system-x86 '* ]] && dpkg-query -W -f '${Status}' qemu-utils 2>/dev/null | grep -q ' installed$'; then
        packages+=("qemu-utils/$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)")
    fi
    apt-get -qq update || true
    if apt-get -qq install --yes --no-install-recommends --allow-downgrades "${packages[@]}" >/dev/null 2>&1; then
        echo "tests/setup.sh: installed ${packages[*]}"
    else
        skip "$without: these cannot be installed: ${packages[*]}"
    fi
}

# What other architectures need, as far as this machine gives it; emulators for `make cross-test`, too.
prepare_cross() {
    local target log
    find_missing "$for_cross"
    if ((${#programs[@]} > 0)); then
        if ((EUID == 0)) && is_debian && apt-get -qq update &&
            apt-get -qq install --yes --no-install-recommends "${packages[@]}" >/dev/null 2>&1; then
            echo "tests/setup.sh: installed ${packages[*]}"
        else
            echo "SKIP: missing for other architectures: ${programs[*]} (on Debian: apt-get install ${packages[*]})"
        fi
    fi
    log=$(mktemp)
    if is_debian && "${BASH_SOURCE%/*}/qemu.sh" target/qemu >"$log" 2>&1; then
        echo 'tests/setup.sh: the emulators are below target/qemu'
    else
        echo "SKIP: no emulators of Debian 13 to unpack: $(tail -n 1 "$log")"
    fi
    rm -f "$log"
    for target in {aarch64,powerpc64le,s390x}-unknown-linux-gnu; do
        if [[ -d $(rustc --print sysroot)/lib/rustlib/$target/lib ]]; then
            echo "tests/setup.sh: Rust's library for $target is here"
        elif command -v rustup >/dev/null && rustup --quiet target add "$target" 2>/dev/null; then
            echo "tests/setup.sh: installed Rust's library for $target"
        else
            echo "SKIP: no library of Rust for $target (rustup target add $target)"
        fi
    done
}

# The tools of a signed release, of the user who makes it.
prepare_release() {
    require "$for_release" 'a signed release'
    if command -v cargo-sbom >/dev/null; then
        echo 'tests/setup.sh: cargo-sbom is here'
    else
        cargo install cargo-sbom --locked
    fi
}

# Installs what is missing of a table, which is named for the messages; or says what it is, and fails.
require() {
    local table=$1 whose=$2 installed
    find_missing "$table"
    if ((${#programs[@]} == 0)); then
        echo "tests/setup.sh: everything $whose need is here"
        return 0
    fi
    if ((EUID != 0)) || ! is_debian; then
        {
            echo "tests/setup.sh: missing: ${programs[*]}"
            echo "On Debian, as root:  apt-get install --no-install-recommends ${packages[*]}"
        } >&2
        exit 1
    fi
    quietly apt-get update
    quietly apt-get install --yes --no-install-recommends "${packages[@]}"
    installed=${packages[*]}
    find_missing "$table"
    if ((${#programs[@]} > 0)); then
        echo "tests/setup.sh: still missing after installing $installed: ${programs[*]}" >&2
        exit 1
    fi
    echo "tests/setup.sh: installed $installed"
}

export DEBIAN_FRONTEND=noninteractive
case ${1-} in
    bench)
        require "$for_bench" 'the benchmarks'
        ;;
    cross) prepare_cross ;;
    release) prepare_release ;;
    '')
        require "$needed" 'the tests'
        make_policy
        make_openssh
        make_services
        make_ansible
        make_validator
        prepare "$for_packages" 'nothing reads what is installed'
        prepare "$for_pages" 'no browser looks at the pages'
        prepare "$for_machines" 'no virtual machines'
        ;;
    *)
        echo 'usage: tests/setup.sh [bench|cross|release]' >&2
        exit 2
        ;;
esac
