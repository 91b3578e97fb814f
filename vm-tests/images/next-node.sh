#!/usr/bin/env bash
# next-node.sh TREE OUT KERNEL: the disk of a node of the next major version: one
# ext4 with the label root, and the modules of the kernel that the tiny guests
# boot. on-top.sh runs it.
set -euo pipefail

tree=$1 out=$2 kernel=${3:?usage: next-node.sh TREE OUT KERNEL}
"$(dirname "$0")/furnish.sh" "$tree"
cp -a "$kernel/lib/modules" "$tree/usr/lib/modules"
rm -rf "${tree:?}"/boot/*
mke2fs -q -F -t ext4 -L root -d "$tree" "$out" 1500M
