//! The checks, one file each. Each is a pure judgment on [`super::DoctorEvidence`].
//!
//! A new check is a file here, its `mod` line and its line in [`CHECKS`]; the compiler rejects one line without the other.
//! Help, completion, `doctor ID` and the page below `docs/doctor` are generated from the list.

mod doors;
mod fp_01_not_booted;
mod fp_02_no_config;
mod fp_03_drift;
mod fp_04_config_not_found;
mod fp_05_pull;
mod fp_06_server_trust;
mod fp_07_boot_full;
mod fp_08_bad_config;
mod fp_09_certificates;
mod fp_10_power_cut;
mod fp_12_network;
mod fp_13_immutable;
mod fp_14_rpm_ostree;
mod fp_15_clock;
mod fp_16_disk_full;
mod fp_17_etc_went_back;
mod fp_18_kernel_arguments;
mod fp_19_extensions;
mod fp_20_fips;
mod fp_21_wrong_target;
mod fp_22_annotations;
mod fp_23_restored_etcd;
mod fp_24_bookkeeping;
mod fp_25_units;
mod fp_26_labels;
mod fp_27_secrets;
mod fp_28_boot_image;
mod fp_29_first_boot_network;
mod fp_30_console;
mod fp_31_kubelet_authority;
mod fp_32_name_servers;
mod fp_33_locked_out;
mod fp_34_drain;
mod fp_35_lost_network;
mod fp_36_runtime;
mod fp_37_boot_loader;
mod fp_38_processor;
mod fp_39_cold_control_plane;
mod fp_40_etcd_data;
mod fp_41_kubelet_checkpoints;
mod fp_42_boot_filesystem;
mod fp_43_cgroup;
mod fp_44_waiting_unit;
mod fp_45_hostname;
mod fp_46_node_address;
mod fp_47_ovs_databases;
mod fp_48_image_store;
mod fp_49_no_node_image;
mod fp_50_damaged_os;
mod fp_51_layered_packages;
mod fp_53_virtual_address;
mod fp_54_static_pods;
mod fp_55_two_nodes;
mod fp_56_secure_boot;
mod fp_57_encrypted_root;
mod fp_58_multipath;
mod fp_59_boot_order;
mod fp_60_no_kubelet;
mod fp_61_kubeconfig;
mod fp_62_network_not_read;
mod fp_63_pull_files;
mod fp_66_accounts;
mod fp_67_selinux_policy;
mod fp_71_kernel_modules;
mod fp_72_masked_units;

use super::DoctorCheck;

/// All checks, in the order in which findings of the same severity are reported.
pub const CHECKS: &[DoctorCheck] = &[
    fp_01_not_booted::CHECK,
    fp_02_no_config::CHECK,
    fp_03_drift::CHECK,
    fp_04_config_not_found::CHECK,
    fp_05_pull::CHECK,
    fp_06_server_trust::CHECK,
    fp_07_boot_full::CHECK,
    fp_08_bad_config::CHECK,
    fp_09_certificates::CHECK,
    fp_10_power_cut::CHECK,
    fp_12_network::CHECK,
    fp_13_immutable::CHECK,
    fp_14_rpm_ostree::CHECK,
    fp_15_clock::CHECK,
    fp_16_disk_full::CHECK,
    fp_17_etc_went_back::CHECK,
    fp_18_kernel_arguments::CHECK,
    fp_19_extensions::CHECK,
    fp_20_fips::CHECK,
    fp_21_wrong_target::CHECK,
    fp_22_annotations::CHECK,
    fp_23_restored_etcd::CHECK,
    fp_24_bookkeeping::CHECK,
    fp_25_units::CHECK,
    fp_26_labels::CHECK,
    fp_27_secrets::CHECK,
    fp_28_boot_image::CHECK,
    fp_29_first_boot_network::CHECK,
    fp_30_console::CHECK,
    fp_31_kubelet_authority::CHECK,
    fp_32_name_servers::CHECK,
    fp_33_locked_out::CHECK,
    fp_34_drain::CHECK,
    fp_35_lost_network::CHECK,
    fp_36_runtime::CHECK,
    fp_37_boot_loader::CHECK,
    fp_38_processor::CHECK,
    fp_39_cold_control_plane::CHECK,
    fp_40_etcd_data::CHECK,
    fp_41_kubelet_checkpoints::CHECK,
    fp_42_boot_filesystem::CHECK,
    fp_43_cgroup::CHECK,
    fp_44_waiting_unit::CHECK,
    fp_45_hostname::CHECK,
    fp_46_node_address::CHECK,
    fp_47_ovs_databases::CHECK,
    fp_48_image_store::CHECK,
    fp_49_no_node_image::CHECK,
    fp_50_damaged_os::CHECK,
    fp_51_layered_packages::CHECK,
    fp_53_virtual_address::CHECK,
    fp_54_static_pods::CHECK,
    fp_55_two_nodes::CHECK,
    fp_56_secure_boot::CHECK,
    fp_57_encrypted_root::CHECK,
    fp_58_multipath::CHECK,
    fp_59_boot_order::CHECK,
    fp_60_no_kubelet::CHECK,
    fp_61_kubeconfig::CHECK,
    fp_62_network_not_read::CHECK,
    fp_63_pull_files::CHECK,
    fp_66_accounts::CHECK,
    fp_67_selinux_policy::CHECK,
    fp_71_kernel_modules::CHECK,
    fp_72_masked_units::CHECK,
];

/// An id of a problem that a check with another id reports.
#[derive(Debug, Clone, Copy)]
pub struct Alias {
    /// The id, such as `FP-11`; `doctor ID` accepts it.
    pub id: &'static str,
    /// The id of the check that reports it.
    pub of: &'static str,
    /// The reason, as a sentence.
    pub why: &'static str,
}

/// Ids that `doctor ID` explains by another check, because each fact is reported only once.
pub const ALIASES: &[Alias] = &[
    Alias {
        id: "FP-11",
        of: "FP-37",
        why: "FP-11, the prompt grub> after an update of the OS, is what a stale or incomplete boot loader leads to. FP-37 \
              reports its cause before the reboot.",
    },
    Alias {
        id: "FP-52",
        of: "FP-01",
        why: "FP-52, a shutdown that could not write the staged OS, is reported by FP-01, as the record and the running OS \
              differ then. Its words are in /boot/ostree/finalize-failure.stamp. No space on /boot is FP-07, and an immutable file \
              FP-13. The stop may also have taken more than five minutes, or the merge of /etc failed: journalctl -b -1 -u \
              ostree-finalize-staged.",
    },
];

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that reads the sources"
)]
mod tests {
    use super::{ALIASES, CHECKS};

    #[test]
    fn every_file_is_in_the_list_in_the_order_of_the_ids() {
        let files = std::fs::read_dir("src/diagnose/doctor/checks").unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut numbers: Vec<String> = names
            .filter_map(|name| Some(name.strip_prefix("fp_")?.split('_').next()?.to_owned()))
            .collect();
        numbers.sort();
        let listed: Vec<&str> = CHECKS.iter().map(|check| &check.id[3..]).collect();
        assert_eq!(listed, numbers);
        assert!(CHECKS.iter().all(|check| check.id.starts_with("FP-")));
        let known = |id| CHECKS.iter().any(|check| check.id == id);
        assert!(
            ALIASES
                .iter()
                .all(|alias| known(alias.of) && !known(alias.id))
        );
    }
}
