//! FP-49: the operating system that boots is not that of a node.

use std::fs;

use super::small::{live, record_on};
use super::worker::{self, Branch, Row, all_met, sick, well};
use super::{doctor, doctor_on, found, of, says};
use crate::support::TestRoot;
use serde_json::Value;

const WANTS: &str = "etc/systemd/system/multi-user.target.wants";
const UNIT: &str = "etc/systemd/system/kubelet.service";
const ENCAPSULATED: &str = "etc/ignition-machine-config-encapsulated.json";

/// A system with an enabled kubelet, of which the programs are missing.
fn plain(root: &TestRoot) {
    root.write("usr/lib/systemd/systemd", "");
    root.write(
        "etc/os-release",
        "ID=fedora\nVARIANT_ID=coreos\nVERSION_ID=40\n",
    );
    root.write(UNIT, "[Unit]\nRequires=crio.service\n[Service]\nExecStart=/usr/local/bin/kubenswrapper /usr/bin/kubelet\n");
    root.link(
        &format!("{WANTS}/kubelet.service"),
        "/etc/systemd/system/kubelet.service",
    );
}

fn programs(root: &TestRoot) {
    for program in ["kubelet", "crio", "ovs-vsctl"] {
        root.write(&format!("usr/bin/{program}"), "");
    }
}

const NO_IMAGE: Branch = Branch {
    id: "FP-49",
    severity: "critical",
    what: "the booted OS is not a node image",
    seen: &[
        "Failed at step EXEC spawning /usr/bin/kubelet: No such file or directory",
        "/usr/bin/crio",
        "ID=fedora VARIANT_ID=coreos VERSION_ID=40, no OPENSHIFT_VERSION",
        "plain operating system",
    ],
    next: &["mco-rescue plan --root ROOT", "mco-rescue apply --reboot"],
};

#[rustfmt::skip]
const ROWS: [Row; 10] = [
    sick(plain, NO_IMAGE),
    sick(|root| { plain(root); programs(root); root.remove("usr/bin/crio"); },
        Branch { seen: &["Failed at step EXEC spawning /usr/bin/crio"], ..NO_IMAGE }),
    sick(|root| { plain(root); programs(root); root.remove("usr/bin/ovs-vsctl");
            root.link(&format!("{WANTS}/ovs-configuration.service"), "/etc/systemd/system/ovs-configuration.service"); },
        Branch { seen: &["spawning /usr/bin/ovs-vsctl"], ..NO_IMAGE }),
    sick(|root| { plain(root); root.write(UNIT, "[Service]\nExecStart=/usr/bin/hyperkube kubelet\n"); },
        Branch { seen: &["spawning /usr/bin/hyperkube"], ..NO_IMAGE }),
    well("FP-49", |root| { plain(root); programs(root); }),
    // No kubelet starts here.
    well("FP-49", |root| { plain(root); root.remove(&format!("{WANTS}/kubelet.service")); }),
    // A root without an operating system.
    well("FP-49", |root| { plain(root); root.remove("usr/lib/systemd/systemd"); }),
    // The first boot of this disk is still to come: FP-10 says so.
    well("FP-49", |root| { plain(root); root.write(ENCAPSULATED, &worker::config().to_string()); }),
    sick(|root| { plain(root); programs(root); root.link("opt/cni", "/var/lost"); },
        Branch { id: "FP-49", severity: "critical", what: "/opt/cni is a dangling link",
            seen: &["leads to /var/lost, which is missing", "move-aside"], next: &["mv ROOT/opt/cni ROOT/opt/cni.mco-rescue-"] }),
    well("FP-49", |root| { plain(root); programs(root); root.link("opt/cni", "/var/there"); fs::create_dir_all(root.path("var/there")).unwrap(); }),
];

#[test]
fn an_enabled_kubelet_whose_program_is_missing_is_reported() {
    all_met(&ROWS);
}

#[test]
fn a_first_boot_at_work_is_left_alone_and_one_that_failed_is_reported() {
    live(|node| {
        record_on(node, |_| {});
        plain(&node.root);
        found(&doctor_on(node), "FP-49", "critical");
        node.root.write(ENCAPSULATED, &worker::config().to_string());
        node.root.remove("etc/machine-config-daemon/currentconfig");
        let answer = |active: &str, sub: &str| {
            format!(
                "case $* in *SubState*) printf 'Id=machine-config-daemon-firstboot.service\\nActiveState={active}\\nSubState={sub}\\n' ;; \
                 *) exit 1 ;; esac"
            )
        };
        node.program("systemctl", &answer("activating", "start"));
        assert_eq!(of(&doctor_on(node), "FP-49"), Vec::<Value>::new());
        node.program("systemctl", &answer("failed", "failed"));
        says(
            &found(&doctor_on(node), "FP-49", "critical"),
            &[
                "no full config is here",
                "mco-rescue fetch --server HOST --pool POOL",
                "mco-rescue apply --latest --takeover",
            ],
        );
        let served = worker::config().to_string();
        node.root
            .write("etc/mcs-machine-config-content.json", &served);
        says(
            &found(&doctor_on(node), "FP-49", "critical"),
            &[
                "has not changed to the node image",
                "mco-rescue firstboot --complete",
            ],
        );
    });
}

#[test]
fn the_link_in_the_way_of_crio_is_moved_aside_by_the_fix() {
    let root = worker::healthy();
    plain(&root);
    programs(&root);
    root.link("opt/cni", "/var/lost");
    found(&doctor(&root), "FP-49", "critical");
    root.run(&["doctor", "--fix", "FP-49", "--yes"]).ok();
    assert_eq!(of(&doctor(&root), "FP-49"), Vec::<Value>::new());
    let names = fs::read_dir(root.path("opt")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.collect();
    assert!(
        names.len() == 1 && names[0].starts_with("cni.mco-rescue-"),
        "{names:?}"
    );
    root.run(&["rollback", "--yes"]).ok();
    found(&doctor(&root), "FP-49", "critical");
}
