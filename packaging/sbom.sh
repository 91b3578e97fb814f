#!/usr/bin/env bash
# Writes the bill of materials, as CycloneDX and as SPDX: NAME.cdx.json and NAME.spdx.json.
#
#   packaging/sbom.sh TARGET NAME
#
# cargo-sbom makes both of Cargo.lock. What it takes from the clock, from chance and from this machine is replaced, so that the
# files are the same of the same sources.
set -euo pipefail

target=$1
name=$2
if ! command -v cargo-sbom >/dev/null; then
    echo 'SKIP: no bill of materials: there is no cargo-sbom (cargo install cargo-sbom --locked)' >&2
    exit 0
fi
# It asks for every crate of Cargo.lock, those of other systems too.
if ! cargo metadata --format-version 1 --locked >/dev/null 2>&1; then
    echo 'packaging/sbom.sh: not all crates of Cargo.lock are here: cargo fetch --locked' >&2
    exit 1
fi
for format in cyclone_dx_json_1_6:cdx spdx_json_2_3:spdx; do
    cargo sbom --output-format "${format%:*}" |
        packaging/settle-sbom.py "$target" >"$name.${format#*:}.json"
done
