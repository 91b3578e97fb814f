//! FP-20: a config that the node cannot be brought to.

use super::small::{self, ENTRY, NAME, live, record_on, recorded};
use super::{Dark, doctor, doctor_on, found, of, says};
use crate::support::file;
use crate::support::mounts::mount;
use serde_json::{Value, json};

pub(super) const DARK: &[Dark] = &[("FP-20", "FIPS mode: no boot entry", |root| {
    root.remove(ENTRY)
})];

#[test]
fn a_node_that_is_not_in_the_fips_mode_of_its_config_is_reported() {
    let root = small::node();
    recorded(&root, |spec| spec["fips"] = json!(true));
    says(
        &found(&doctor(&root), "FP-20", "warning"),
        &["FIPS mode is off", "refusing to modify FIPS"],
    );
    root.write(ENTRY, "version 1\noptions rw fips=1\n");
    assert_eq!(of(&doctor(&root), "FP-20"), Vec::<Value>::new());
}

#[test]
fn the_fips_mode_of_a_running_node_is_that_of_its_kernel() {
    live(|node| {
        record_on(node, |_| {});
        let settings = node.root.path("proc/sys");
        mount(&["-t", "tmpfs", "tmpfs", settings.to_str().unwrap()]);
        node.root.write("proc/sys/crypto/fips_enabled", "0\n");
        assert_eq!(of(&doctor_on(node), "FP-20"), Vec::<Value>::new());
        node.root.write("proc/sys/crypto/fips_enabled", "1\n");
        says(
            &found(&doctor_on(node), "FP-20", "warning"),
            &[
                "FIPS mode is on, the config wants it off",
                "/proc/sys/crypto/fips_enabled",
            ],
        );
    });
}

/// Parts of a config that the daemon changes on no node that has booted, and its words.
#[test]
fn a_wanted_config_that_the_daemon_calls_unreconcilable_is_reported_with_its_words() {
    let ignition = |section: &str, value: Value| {
        let mut wanted = small::config();
        wanted["spec"]["config"][section] = value;
        wanted
    };
    let storage = |section: &str, value: Value| {
        let mut wanted = small::config();
        wanted["spec"]["config"]["storage"][section] = value;
        wanted
    };
    let mut fips = small::config();
    fips["spec"]["fips"] = json!(true);
    let filesystem = json!([{"device": "/dev/vdb", "format": "xfs", "path": "/data"}]);
    let raid = json!([{"name": "data", "level": "raid1", "devices": ["/dev/vdb", "/dev/vdc"]}]);
    let own = json!({"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a"]});
    let (mut moved, someone) = (
        own.clone(),
        json!({"users": [own.clone(), {"name": "someone"}]}),
    );
    moved["homeDir"] = json!("/data/core");
    for (mut wanted, words) in [
        (fips, "detected change to FIPS flag"),
        (
            storage("disks", json!([{"device": "/dev/vdb"}])),
            "ignition disks section",
        ),
        (
            storage("filesystems", filesystem),
            "ignition filesystems section",
        ),
        (storage("raid", raid), "ignition raid section"),
        (
            storage("directories", json!([{"path": "/etc/site"}])),
            "ignition directories section",
        ),
        (
            storage("links", json!([{"path": "/etc/x", "target": "/y"}])),
            "ignition links section",
        ),
        (
            ignition("kernelArguments", json!({"shouldExist": ["a"]})),
            "ignition kargs section",
        ),
        (ignition("passwd", someone), "non-core user"),
        (
            ignition("passwd", json!({"users": [moved]})),
            "are not reconcilable",
        ),
        (
            ignition("passwd", json!({"users": [own], "groups": [{"name": "g"}]})),
            "Groups section",
        ),
    ] {
        wanted["metadata"]["name"] = json!("rendered-worker-b");
        let root = small::node();
        let wanted = root.config(&wanted);
        root.run(&["fetch", wanted.path()]).ok();
        small::annotated(&root, Some(NAME), Some("rendered-worker-b"));
        says(
            &found(&doctor(&root), "FP-20", "warning"),
            &[
                "the desired config will be refused",
                "can't reconcile",
                words,
                "cached:rendered-worker-b",
            ],
        );
    }
}

#[test]
fn a_wanted_config_that_the_daemon_goes_to_is_not_trouble() {
    let root = small::node();
    let mut wanted = small::config();
    wanted["metadata"]["name"] = json!("rendered-worker-b");
    wanted["spec"]["config"]["storage"]["files"][0] = file("/etc/of-config.conf", 0o644, "y\n");
    let wanted = root.config(&wanted);
    root.run(&["fetch", wanted.path()]).ok();
    small::annotated(&root, Some(NAME), Some("rendered-worker-b"));
    let seen = doctor(&root);
    assert_eq!(of(&seen, "FP-20"), Vec::<Value>::new());
    assert_eq!(of(&seen, "FP-22"), Vec::<Value>::new());
}
