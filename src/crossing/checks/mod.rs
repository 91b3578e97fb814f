//! The checks before a node boots another OS image, one file each.

mod boot_filesystem;
mod boot_loader;
mod boot_space;
mod container_runtime;
mod encrypted_root;
mod identity;
mod interface_names;
mod kernel_arguments;
mod kubelet_skew;
mod multipath;
mod packages;
mod secure_boot;
mod xfs_format;

use super::CrossingCheck;

/// All checks, in the order of a boot.
pub const ALL: &[CrossingCheck] = &[
    identity::CHECK,
    boot_loader::CHECK,
    secure_boot::CHECK,
    boot_filesystem::CHECK,
    boot_space::CHECK,
    boot_space::SYSROOT,
    xfs_format::CHECK,
    multipath::CHECK,
    encrypted_root::CHECK,
    kernel_arguments::CHECK,
    interface_names::CHECK,
    container_runtime::CHECK,
    kubelet_skew::CHECK,
    packages::CHECK,
];
