//! The checks, one file each. Each is a pure judgement on [`super::Evidence`].

mod fp_01_not_booted;
mod fp_02_no_config;
mod fp_03_drift;
mod fp_04_config_not_found;
mod fp_05_pull;
mod fp_06_server_trust;
mod fp_07_boot_full;
mod fp_09_certificates;
mod fp_10_power_cut;
mod fp_12_network;
mod fp_13_immutable;
mod fp_14_rpm_ostree;
mod fp_15_clock;

use super::Check;

/// All checks, in the order in which they are told among equals.
pub const CHECKS: [Check; 13] = [
    fp_01_not_booted::CHECK,
    fp_02_no_config::CHECK,
    fp_03_drift::CHECK,
    fp_04_config_not_found::CHECK,
    fp_05_pull::CHECK,
    fp_06_server_trust::CHECK,
    fp_07_boot_full::CHECK,
    fp_09_certificates::CHECK,
    fp_10_power_cut::CHECK,
    fp_12_network::CHECK,
    fp_13_immutable::CHECK,
    fp_14_rpm_ostree::CHECK,
    fp_15_clock::CHECK,
];
