#!/usr/bin/env bash
# Adds to a directory of packed files the statement of their provenance, their sums, and the signature of the sums.
#
#   packaging/seal.sh DIRECTORY
#
# RELEASE_KEY=FILE is the private ssh key that signs (or a public one whose private key the agent has). Without it there
# is no signature, and this is said. RELEASE_COMMIT is the commit of the sources.
set -euo pipefail

here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
key=${RELEASE_KEY:+$(realpath "$RELEASE_KEY")}
cd "$1"
export LC_ALL=C
rm -f provenance.json SHA256SUMS SHA256SUMS.sig
python3 "$here/provenance.py" "${RELEASE_COMMIT-}" >provenance.json
find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%P\0' | sort -z | xargs -0 sha256sum -- >SHA256SUMS
if [[ -z $key ]]; then
    echo 'SKIP: the sums are not signed: RELEASE_KEY=FILE names the ssh key' >&2
    exit 0
fi
# `mco-rescue-release` is what the signature is for: one for anything else is refused.
ssh-keygen -q -Y sign -f "$key" -n mco-rescue-release SHA256SUMS
