//! The checks before a node boots another OS image, one file each.

mod boot_filesystem;
mod boot_space;
mod container_runtime;
mod identity;
mod kernel_arguments;
mod kubelet_skew;
mod packages;

use super::CrossingCheck;

/// All checks, in the order of a boot.
pub const ALL: &[CrossingCheck] = &[
    identity::CHECK,
    boot_filesystem::CHECK,
    boot_space::CHECK,
    boot_space::SYSROOT,
    kernel_arguments::CHECK,
    container_runtime::CHECK,
    kubelet_skew::CHECK,
    packages::CHECK,
];
