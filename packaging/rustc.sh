#!/usr/bin/env bash
# The compiler as packaging/build.sh calls it: with the flags in REMAP, one a line, for build scripts and macros too. What is compiled for the
# machine itself gets no RUSTFLAGS, but its digest is in everything that uses it.
set -euo pipefail

mapfile -t flags <<<"$REMAP"
exec "$@" "${flags[@]}"
