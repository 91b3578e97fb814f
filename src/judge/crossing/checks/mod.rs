//! The checks made before a node boots another OS image, one per file.

mod accounts;
mod blocked_modules;
mod boot_entries;
mod boot_filesystem;
mod boot_loader;
mod boot_space;
mod bootable;
mod container_runtime;
mod cpu_level;
mod encrypted_root;
mod faults;
mod identity;
mod image_arguments;
mod image_fetch;
mod interface_drivers;
mod interface_names;
mod kernel_arguments;
mod kernel_type;
mod kubelet_checkpoints;
mod kubelet_skew;
mod legacy_connections;
mod login;
mod masked_units;
mod missing_units;
mod multipath;
mod network_files;
mod own_modules;
mod packages;
mod pull_files;
mod root_drivers;
mod secure_boot;
mod selinux;
mod service_files;
mod xfs_format;

use super::CrossingCheck;

/// Id of the architecture check.
pub const ARCHITECTURE: &str = "architecture";

/// All checks, in the order in which they matter during a boot.
pub const ALL: &[CrossingCheck] = &[
    identity::MACHINE,
    identity::NODE_IMAGE,
    bootable::CHECK,
    image_fetch::CHECK,
    image_arguments::CHECK,
    identity::RELEASE,
    cpu_level::CHECK,
    boot_loader::CHECK,
    boot_entries::CHECK,
    secure_boot::CHECK,
    boot_filesystem::CHECK,
    boot_space::CHECK,
    boot_space::SYSROOT,
    root_drivers::CHECK,
    own_modules::CHECK,
    blocked_modules::CHECK,
    xfs_format::CHECK,
    multipath::CHECK,
    encrypted_root::CHECK,
    kernel_arguments::CHECK,
    kernel_type::CHECK,
    selinux::CHECK,
    missing_units::CHECK,
    masked_units::CHECK,
    interface_drivers::CHECK,
    interface_names::CHECK,
    legacy_connections::CHECK,
    network_files::CHECK,
    service_files::CHECK,
    container_runtime::CHECK,
    pull_files::CHECK,
    kubelet_skew::CHECK,
    kubelet_checkpoints::CHECK,
    packages::CHECK,
    accounts::CHECK,
    login::CHECK,
];
