#!/usr/bin/env bash
# Makes a release of the committed sources: packed binaries, sums, provenance, signature.
#
#   packaging/release.sh OUT [TARGET...]     by default every promised target that can be built here
#
# It builds from an export of the commit in a directory of its own, so neither local changes nor the place have a part in it.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$1
shift
mkdir -p "$out"
out=$(realpath "$out")
if (($# == 0)); then
    set -- {x86_64,aarch64,powerpc64le,s390x}-unknown-linux-gnu
fi
if [[ -n $(ls -A "$out") ]]; then
    echo "packaging/release.sh: $out is not empty; remove it first" >&2
    exit 1
fi
# Before the minutes of the builds.
missing=()
if [[ -n ${RELEASE_KEY-} ]]; then
    command -v cargo-sbom >/dev/null || missing+=('cargo-sbom, for the bill of materials: cargo install cargo-sbom --locked')
    command -v ssh-keygen >/dev/null || missing+=('ssh-keygen, for the signature; on Debian: apt-get install openssh-client')
    [[ -r $RELEASE_KEY ]] || missing+=("the key $RELEASE_KEY: ssh-keygen -t ed25519 -f '$RELEASE_KEY' -C release@mco-rescue")
    # A signature is for all that is promised, or for those that were named.
    for target; do
        if why=$(packaging/build.sh --reason "$target"); then :; else
            missing+=("$target: $why; tests/setup.sh cross, or name the architectures: packaging/release.sh OUT TARGET...")
        fi
    done
fi
if ((${#missing[@]} > 0)); then
    printf 'packaging/release.sh: a signed release needs %s\n' "${missing[@]}" >&2
    exit 1
fi
if [[ -n $(git status --porcelain --untracked-files=no) ]]; then
    echo 'packaging/release.sh: local changes are left out; this is a release of the commit' >&2
fi

version=$(git show HEAD:Cargo.toml | sed -n 's/^version = "\(.*\)"/\1/p')
export MCO_RESCUE_COMMIT SOURCE_DATE_EPOCH
MCO_RESCUE_COMMIT=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)

# The bill of materials names crates of other systems, too.
cargo fetch --locked --quiet

# One place, so that a second release compiles only what has changed.
work=$PWD/target/release-sources
rm -rf "$work"
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT
source=mco-rescue-$version
git archive --format=tar --prefix="$source/" HEAD >"$work/source.tar"
tar --extract --file "$work/source.tar" --directory "$work"
gzip --no-name --best <"$work/source.tar" >"$out/$source.tar.gz"

# One that runs here prints the manual of all.
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target/dist}
run=$("$work/$source/packaging/build.sh" "$host")
left_out=()
for target; do
    if why=$("$work/$source/packaging/build.sh" --reason "$target"); then
        binary=$("$work/$source/packaging/build.sh" "$target")
        RUN=$run "$work/$source/packaging/pack.sh" "$binary" "$target" "$out"
    else
        left_out+=("$target: $why")
    fi
done
RELEASE_COMMIT=$MCO_RESCUE_COMMIT "$work/$source/packaging/seal.sh" "$out"
if ((${#left_out[@]} > 0)); then
    printf 'NOT BUILT: %s\n' "${left_out[@]}" >&2
fi
cat "$out/SHA256SUMS"
