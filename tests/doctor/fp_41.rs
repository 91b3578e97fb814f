//! FP-41: checkpoint files that the kubelet refuses.

use super::small::{endless, live, record_on};
use super::worker::{Branch, Row, all_met, healthy, sick, well};
use super::{Dark, doctor, doctor_on, found, of, says, unseen};
use crate::support::TestRoot;
use crate::support::ostree_node::OstreeNode;
use serde_json::Value;

pub(super) const DARK: &[Dark] = &[("FP-41", "allocated_pods_state", |root| {
    endless(root, ALLOCATED)
})];

pub(super) const ALLOCATED: &str = "var/lib/kubelet/allocated_pods_state";
const ACTUATED: &str = "var/lib/kubelet/actuated_pods_state";
const POD_STATUS: &str = "var/lib/kubelet/pod_status_manager_state";
const PROCESSORS: &str = "var/lib/kubelet/cpu_manager_state";
const MEMORY: &str = "var/lib/kubelet/memory_manager_state";
const DRA: &str = "var/lib/kubelet/dra_manager_state";
const DEVICES: &str = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";
const CONFIG: &str = "etc/kubernetes/kubelet.conf";
const CLEANUP: &str = "etc/systemd/system/kubelet-cleanup.service";

/// Checksums that Kubernetes' own tests have for these contents.
const SOUND_DATA: &str =
    r#"{"data":"{\"policyName\":\"none\",\"defaultCPUSet\":\"4-6\"}","checksum":657950972}"#;
const NO_PROCESSORS: &str = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
const SOME_PROCESSORS: &str = r#"{"policyName":"none","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"1-3"}},"checksum":3610638499}"#;
const NEW_PROCESSORS: &str = r#"{"policyName":"none","defaultCpuSet":"","checksum":1,"data":"{\"policyName\":\"none\",\"defaultCPUSet\":\"4-6\"}","dataChecksum":657950972}"#;
const SOME_MEMORY: &str = r#"{"policyName":"static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},"entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}},"checksum":4215593881}"#;
const OLD_POD_STATUS: &str = r#"{"allocationEntries":{},"checksum":1}"#;

fn release(root: &TestRoot, version: &str) {
    root.write(
        "etc/os-release",
        &format!("ID=scos\nOPENSHIFT_VERSION={version}\n"),
    );
}

/// The unit that removes files at boot, as releases have it.
fn clean_up(root: &TestRoot) {
    let unit = format!(
        "[Service]\nExecStart=/bin/rm -f /{PROCESSORS}\nExecStart=/bin/rm -f /{MEMORY}\nExecStart=-/bin/rm -f /{DRA}\n"
    );
    root.write(CLEANUP, &unit);
    let wants = "etc/systemd/system/multi-user.target.wants/kubelet-cleanup.service";
    root.link(wants, &format!("/{CLEANUP}"));
}

const fn refused(
    what: &'static str,
    seen: &'static [&'static str],
    next: &'static [&'static str],
) -> Branch {
    Branch {
        id: "FP-41",
        severity: "critical",
        what,
        seen,
        next,
    }
}

const ALLOCATED_ASIDE: &[&str] = &[
    "mv ROOT/var/lib/kubelet/allocated_pods_state ROOT/var/lib/kubelet/allocated_pods_state.mco-rescue-",
];
const PROCESSORS_ASIDE: &[&str] = &["mv ROOT/var/lib/kubelet/cpu_manager_state "];

#[rustfmt::skip]
const DAMAGED: [Row; 10] = [
    sick(|root| root.write(ALLOCATED, ""),
        refused("allocated_pods_state is damaged", &["empty", "unexpected end of JSON input", "pod allocation checkpoint file", "move-aside"], ALLOCATED_ASIDE)),
    sick(|root| root.write(ALLOCATED, &"\0".repeat(40)),
        refused("allocated_pods_state is damaged", &["40 bytes, all of them NUL"], ALLOCATED_ASIDE)),
    sick(|root| root.write(ALLOCATED, &SOUND_DATA[..30]),
        refused("allocated_pods_state is damaged", &["cut short"], ALLOCATED_ASIDE)),
    sick(|root| root.write(ALLOCATED, &format!("{SOUND_DATA}\"checksum\":1}}")),
        refused("allocated_pods_state is damaged", &["13 bytes follow", "after top-level value"], ALLOCATED_ASIDE)),
    sick(|root| root.write(ALLOCATED, &SOUND_DATA.replace("4-6", "4-7")),
        refused("allocated_pods_state is damaged", &["checksum is 657950972", "checkpoint is corrupted"], ALLOCATED_ASIDE)),
    sick(|root| root.write(ACTUATED, "{\"data\""),
        refused("actuated_pods_state is damaged", &["cut short"], &["mv ROOT/var/lib/kubelet/actuated_pods_state "])),
    sick(|root| root.write(PROCESSORS, &SOME_PROCESSORS.replace("\"1-3\",\"entries\"", "\"1-4\",\"entries\"")),
        refused("cpu_manager_state is damaged", &["checksum is 3610638499", "the CPU manager checkpoint file"], PROCESSORS_ASIDE)),
    sick(|root| root.write(PROCESSORS, &NEW_PROCESSORS.replace("4-6", "4-7")),
        refused("cpu_manager_state is damaged", &["dataChecksum is 657950972"], PROCESSORS_ASIDE)),
    sick(|root| root.write(DRA, "{"),
        refused("dra_manager_state is damaged", &["failed to get checkpoint dra_manager_state"], &["mv ROOT/var/lib/kubelet/dra_manager_state "])),
    sick(|root| { release(root, "4.19.4"); root.write(POD_STATUS, OLD_POD_STATUS) },
        refused("pod_status_manager_state is from an older kubelet", &["1.31 and older", "checkpoint is corrupted"], &["mv ROOT/var/lib/kubelet/pod_status_manager_state "])),
];

#[rustfmt::skip]
const SOUND: [Row; 9] = [
    well("FP-41", |root| { root.write(ALLOCATED, SOUND_DATA); root.write(ACTUATED, &SOUND_DATA.replace("\"checksum\"", "\"version\":\"v2\",\"checksum\"")) }),
    well("FP-41", |root| { root.write(CONFIG, "kind: KubeletConfiguration\n"); root.write(PROCESSORS, NO_PROCESSORS) }),
    well("FP-41", |root| { root.write(CONFIG, "{}"); root.write(PROCESSORS, SOME_PROCESSORS) }),
    well("FP-41", |root| { root.write(CONFIG, "{}"); root.write(PROCESSORS, NEW_PROCESSORS) }),
    well("FP-41", |root| { root.write(CONFIG, "memoryManagerPolicy: Static\n"); root.write(MEMORY, SOME_MEMORY) }),
    // Of another release: read by no kubelet here, or not known.
    well("FP-41", |root| { release(root, "4.20.1"); root.write(POD_STATUS, OLD_POD_STATUS) }),
    well("FP-41", |root| { release(root, "4.20.1"); root.write(POD_STATUS, "") }),
    well("FP-41", |root| { release(root, "4.18.1"); root.write(POD_STATUS, OLD_POD_STATUS); root.write(ALLOCATED, "") }),
    // A write that was cut off leaves a temporary file, which the kubelet ignores.
    well("FP-41", |root| root.write("var/lib/kubelet/.123456789", "{")),
];

#[test]
fn a_file_that_the_kubelet_refuses_is_reported_with_its_words() {
    all_met(&DAMAGED);
}

#[test]
fn sound_files_and_those_of_other_releases_are_no_finding() {
    all_met(&SOUND);
}

#[test]
fn a_policy_that_differs_from_the_configuration_is_reported() {
    let root = healthy();
    root.write(PROCESSORS, NO_PROCESSORS);
    let checked = |configured: &[(&str, &str)]| {
        for (path, text) in configured {
            root.write(path, text);
        }
        of(&doctor(&root), "FP-41")
    };
    // Nothing to compare with.
    assert_eq!(checked(&[]), Vec::<Value>::new());
    says(
        &unseen(&doctor(&root), "FP-41"),
        &["/etc/kubernetes/kubelet.conf is missing"],
    );
    assert_eq!(
        checked(&[(CONFIG, "cpuManagerPolicy: none\n")]),
        Vec::<Value>::new()
    );
    let told = checked(&[(CONFIG, "cpuManagerPolicy: static\n")]);
    says(
        &told[0].to_string(),
        &[
            "cpu_manager_state names another policy",
            "cpuManagerPolicy: static",
            r#"configured policy \"static\" differs from state checkpoint policy \"none\""#,
        ],
    );
    // The directory counts only where the unit names it; the last file of it wins.
    let directory = "etc/openshift/kubelet.conf.d";
    let (first, last) = (
        format!("{directory}/10-a.conf"),
        format!("{directory}/90-b.conf"),
    );
    let ignored = format!("{directory}/99-c.yaml");
    let parts = [
        (first.as_str(), "cpuManagerPolicy: static\n"),
        (&last, "cpuManagerPolicy: none\n"),
        (&ignored, "cpuManagerPolicy: static\n"),
    ];
    assert_eq!(checked(&parts).len(), 1);
    root.write(
        "etc/systemd/system/kubelet.service.d/20-a.conf",
        "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet \\\n  --config=/etc/kubernetes/kubelet.conf --config-dir=/etc/openshift/kubelet.conf.d\n",
    );
    assert_eq!(checked(&[]), Vec::<Value>::new());
    let told = checked(&[(&last, "cpuManagerPolicy: static\n")]);
    says(
        &told[0].to_string(),
        &["/etc/openshift/kubelet.conf.d/90-b.conf"],
    );
    // The next boot removes the file: of a disk there is nothing to tell.
    clean_up(&root);
    assert_eq!(checked(&[]), Vec::<Value>::new());
    root.write(PROCESSORS, "");
    says(
        &found(&doctor(&root), "FP-41", "notice"),
        &["kubelet-cleanup.service removes it at the next boot"],
    );
}

#[test]
fn a_clean_up_that_is_masked_or_disabled_removes_nothing() {
    let root = healthy();
    root.write(PROCESSORS, "");
    clean_up(&root);
    found(&doctor(&root), "FP-41", "notice");
    root.remove("etc/systemd/system/multi-user.target.wants/kubelet-cleanup.service");
    found(&doctor(&root), "FP-41", "critical");
    clean_up(&root);
    root.remove(CLEANUP);
    root.link(CLEANUP, "/dev/null");
    found(&doctor(&root), "FP-41", "critical");
}

#[test]
fn what_is_not_known_is_not_judged() {
    let root = healthy();
    root.write(CONFIG, "memoryManagerPolicy: Static\n");
    root.write(MEMORY, &SOME_MEMORY.replace("4215593881", "7"));
    root.write(ALLOCATED, r#"{"data":"","checksum":1,"later":2}"#);
    let seen = doctor(&root);
    assert_eq!(of(&seen, "FP-41"), Vec::<Value>::new());
    says(
        &unseen(&seen, "FP-41"),
        &[
            "/var/lib/kubelet/memory_manager_state cannot be judged",
            "/var/lib/kubelet/allocated_pods_state cannot be judged",
            "later",
        ],
    );
}

#[test]
fn the_kubelet_starts_without_its_list_of_devices() {
    let root = healthy();
    root.write(
        DEVICES,
        r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":7}"#,
    );
    assert_eq!(of(&doctor(&root), "FP-41"), Vec::<Value>::new());
    root.write(DEVICES, r#"{"Data":"#);
    says(
        &found(&doctor(&root), "FP-41", "warning"),
        &["Continue after failing to read checkpoint file"],
    );
}

fn kubelet_is(node: &OstreeNode, active: &str, sub: &str) {
    let answer = format!(
        "case $* in *SubState*) printf 'Id=kubelet.service\\nActiveState={active}\\nSubState={sub}\\n' ;; *) exit 1 ;; esac"
    );
    node.program("systemctl", &answer);
}

#[test]
fn on_the_node_the_state_of_the_kubelet_decides() {
    live(|node| {
        record_on(node, |_| {});
        let root = &node.root;
        root.write(ALLOCATED, "");
        kubelet_is(node, "active", "running");
        says(
            &found(&doctor_on(node), "FP-41", "warning"),
            &["has read it before"],
        );
        kubelet_is(node, "activating", "auto-restart");
        Branch {
            id: "FP-41",
            severity: "critical",
            what: "allocated_pods_state is damaged",
            seen: &["every 10 seconds"],
            next: &[
                "systemctl stop kubelet",
                "mv /var/lib/kubelet/allocated_pods_state /var/lib/kubelet/allocated_pods_state.mco-rescue-$(date",
                "systemctl start kubelet",
            ],
        }
        .met_by(&doctor_on(node), "");
        root.remove(ALLOCATED);
        // The policy was changed, and the reboot is still to come.
        root.write(CONFIG, "cpuManagerPolicy: static\n");
        root.write(PROCESSORS, NO_PROCESSORS);
        clean_up(root);
        found(&doctor_on(node), "FP-41", "critical");
        Branch {
            id: "FP-41",
            severity: "critical",
            what: "cpu_manager_state names another policy",
            seen: &["differs from state checkpoint policy"],
            next: &["systemctl reboot"],
        }
        .met_by(&doctor_on(node), "");
        kubelet_is(node, "active", "running");
        assert_eq!(of(&doctor_on(node), "FP-41"), Vec::<Value>::new());
    });
}
