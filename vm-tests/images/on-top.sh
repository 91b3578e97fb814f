#!/usr/bin/env bash
# on-top.sh ROOT PROGRAM ARGS...: runs PROGRAM TREE ARGS..., where TREE is ROOT
# and what PROGRAM writes to it is in memory only. In a mount and pid namespace
# of its own, so that nothing is left to be unmounted. As root.
set -euo pipefail

root=$(realpath "${1:?usage: on-top.sh ROOT PROGRAM ARGS...}")
shift
scratch=$(mktemp -d)
trap 'rmdir "$scratch"' EXIT
# shellcheck disable=SC2016  # the inner shell expands these
unshare --mount --propagation private --pid --fork --kill-child bash -euo pipefail -c '
    scratch=$1 root=$2 program=$3
    shift 3
    mount -t tmpfs -o mode=0755 tmpfs "$scratch"
    mkdir "$scratch"/{upper,work,tree}
    mount -t overlay -o "lowerdir=$root,upperdir=$scratch/upper,workdir=$scratch/work" overlay "$scratch/tree"
    "$program" "$scratch/tree" "$@"
' bash "$scratch" "$root" "$@"
