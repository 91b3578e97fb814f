//! The checks, one file each. Each is a pure judgement on [`super::Evidence`].

mod fp_03_drift;
mod fp_15_clock;
mod fp_16_disk_full;
mod fp_17_etc_went_back;
mod fp_18_kernel_arguments;
mod fp_19_extensions;
mod fp_20_fips;
mod fp_22_annotations;
mod fp_24_bookkeeping;
mod fp_25_units;
mod fp_26_labels;
mod fp_27_secrets;
mod fp_28_boot_image;
mod fp_30_console;
mod fp_31_kubelet_authority;
mod fp_32_name_servers;
mod fp_33_locked_out;

use super::Check;

/// All checks, in the order in which they are told among equals.
pub const CHECKS: [Check; 17] = [
    fp_03_drift::CHECK,
    fp_16_disk_full::CHECK,
    fp_33_locked_out::CHECK,
    fp_15_clock::CHECK,
    fp_28_boot_image::CHECK,
    fp_26_labels::CHECK,
    fp_30_console::CHECK,
    fp_17_etc_went_back::CHECK,
    fp_18_kernel_arguments::CHECK,
    fp_31_kubelet_authority::CHECK,
    fp_19_extensions::CHECK,
    fp_22_annotations::CHECK,
    fp_25_units::CHECK,
    fp_27_secrets::CHECK,
    fp_32_name_servers::CHECK,
    fp_20_fips::CHECK,
    fp_24_bookkeeping::CHECK,
];
