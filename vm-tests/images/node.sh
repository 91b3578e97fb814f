#!/usr/bin/env bash
# node.sh TREE OUT: the disk of a node that has never booted: one ext4 with the
# label root. Kernel and initramfs are given to the guest from outside.
# on-top.sh runs it.
set -euo pipefail

tree=$1 out=${2:?usage: node.sh TREE OUT}
"$(dirname "$0")/furnish.sh" "$tree"
rm -rf "${tree:?}"/boot/*
mke2fs -q -F -t ext4 -L root -d "$tree" "$out" 1500M
