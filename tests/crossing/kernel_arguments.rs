//! Kernel arguments that the target does not take.

use serde_json::json;

use super::Lab;
use crate::support::RECORD;

const V1: &str = "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1";

#[test]
fn cgroup_v1_is_cured() {
    let lab = Lab::healthy();
    lab.write_entry(&format!("rw {V1} root=UUID=1"));
    let found = lab.findings();
    assert_eq!(lab.short(), ["kernel-arguments cured cgroup v1"]);
    for words in [
        "/boot/loader/entries/ostree-1.conf",
        V1,
        "Will proceed with cgroup v2 after 30 s.",
        "rpm-ostree kargs --delete-if-present=systemd.unified_cgroup_hierarchy=0 \
         --delete-if-present=systemd.legacy_systemd_cgroup_controller=1",
    ] {
        assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
    }
}

#[test]
fn forced_cgroup_v1_stops_the_kubelet() {
    let lab = Lab::healthy();
    lab.write_entry("systemd.unified_cgroup_hierarchy=no SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1");
    let found = lab.findings();
    assert_eq!(lab.short(), ["kernel-arguments cured cgroup v1"]);
    assert!(
        found[0]
            .text
            .contains("kubelet is configured to not run on a host using cgroup v1")
    );
    assert!(
        found[0]
            .text
            .contains("--delete-if-present=SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1")
    );
}

#[test]
fn a_config_that_asks_for_cgroup_v1_has_to_be_changed() {
    let lab = Lab::healthy();
    lab.write_entry(V1);
    let record = json!({"spec": {"kernelArguments": ["systemd.unified_cgroup_hierarchy=0"]}});
    lab.node.write(RECORD, &record.to_string());
    assert_eq!(lab.short(), ["kernel-arguments inhibitor cgroup v1"]);
    let text = &lab.findings()[0].text;
    assert!(
        text.contains("spec.kernelArguments of the config"),
        "{text}"
    );
    assert!(text.contains("cgroupMode: v2"), "{text}");
}

#[test]
fn the_last_value_counts_and_other_targets_take_all() {
    for arguments in [
        "systemd.unified_cgroup_hierarchy=0 systemd.unified-cgroup-hierarchy=1",
        "systemd.unified_cgroup_hierarchy cgroup_no_v1=\"all\"",
        "systemd.legacy_systemd_cgroup_controller=1",
        "ifname=ens3:52:54:00:00:00:01",
    ] {
        let lab = Lab::healthy();
        lab.write_entry(arguments);
        assert_eq!(lab.short(), [""; 0], "{arguments}");
    }
    let lab = Lab::healthy();
    lab.write_entry(V1);
    lab.target.write(
        "usr/lib/os-release",
        "ID=rhel\nVARIANT_ID=coreos\nVERSION_ID=9.6\nRHEL_VERSION=9.6\n",
    );
    assert_eq!(lab.short(), [""; 0]);
}

#[test]
fn without_entries_the_command_line_is_read_and_without_both_nothing_is_known() {
    let lab = Lab::healthy();
    lab.node.remove("boot/loader.1/entries/ostree-1.conf");
    lab.node.write(
        "proc/cmdline",
        &format!("BOOT_IMAGE=(hd0)/x {V1} ostree=/ostree/boot.1/rhcos/aa/0\n"),
    );
    let of = |lab: &Lab| {
        let mut short = lab.short();
        short.retain(|one| one.starts_with("kernel-arguments"));
        short
    };
    assert_eq!(of(&lab), ["kernel-arguments cured cgroup v1"]);
    lab.node.remove("proc/cmdline");
    assert_eq!(of(&lab), ["kernel-arguments unknown kernel arguments"]);
}

#[test]
fn names_that_the_kernel_gives_itself_are_a_warning() {
    let lab = Lab::healthy();
    lab.write_entry("ifname=eth0:52:54:00:00:00:01 biosdevname=1");
    assert_eq!(
        lab.short(),
        [
            "kernel-arguments warning ifname=eth0:52:54:00:00:00:01",
            "kernel-arguments warning biosdevname=1"
        ]
    );
}
