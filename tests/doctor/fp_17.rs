//! FP-17: /etc went back, or will, with a deployment.

use std::fs;
use std::time::{Duration, SystemTime};

use super::small::{self, NAME, endless, live, record_on, rpm_ostree_says};
use super::{Dark, RECORD, doctor, doctor_on, found, of, says};
use crate::support::ostree_node::{BOOTED, NEXT};
use serde_json::{Value, json};

pub(super) const DARK: &[Dark] = &[("FP-17", "records in other deployments", |root| {
    fs::create_dir_all(root.path("sysroot/ostree/deploy/os")).unwrap();
    endless(root, "sysroot/ostree/deploy/os/deploy");
})];

#[test]
fn an_etc_that_went_back_is_reported_with_the_config_of_the_other_deployment() {
    let root = small::node();
    let other = format!(
        "sysroot/ostree/deploy/os/deploy/{}.0/{RECORD}",
        "ab".repeat(32)
    );
    let mut newer = small::config();
    newer["metadata"]["name"] = json!("rendered-worker-newer");
    root.write(&other, &newer.to_string());
    let written = |ago: u64| {
        let file = fs::File::options()
            .write(true)
            .open(root.path(&other))
            .unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(ago))
            .unwrap();
    };
    written(9000);
    assert_eq!(of(&doctor(&root), "FP-17"), Vec::<Value>::new());
    let record = fs::File::options()
        .write(true)
        .open(root.path(RECORD))
        .unwrap();
    record
        .set_modified(SystemTime::now() - Duration::from_secs(20_000))
        .unwrap();
    let seen = doctor(&root);
    let text = found(&seen, "FP-17", "warning");
    says(
        &text,
        &["rendered-worker-newer", NAME, "mco-rescue plan --root"],
    );
    // The file that it names is one that plan takes.
    let command = of(&seen, "FP-17")[0]["next"][0]
        .as_str()
        .unwrap()
        .to_owned();
    let named = command.split(' ').next_back().unwrap().to_owned();
    assert!(
        root.run(&["plan", &named])
            .out()
            .contains("rendered-worker-newer")
    );
}

#[test]
fn the_record_in_another_stateroot_is_no_older_or_newer_one() {
    live(|node| {
        record_on(node, |_| {});
        let mut newer = small::config();
        newer["metadata"]["name"] = json!("rendered-worker-newer");
        let write = |stateroot: &str, name: &str| {
            let other = format!("sysroot/ostree/deploy/{stateroot}/deploy/{name}.0/{RECORD}");
            node.root.write(&other, &newer.to_string());
            let future = SystemTime::now() + Duration::from_secs(3600);
            let file = fs::File::options().write(true).open(node.root.path(&other));
            file.unwrap().set_modified(future).unwrap();
        };
        let own = format!(
            "sysroot/ostree/deploy/rhcos/deploy/{}.0/etc/a",
            "ab".repeat(32)
        );
        node.root.write(&own, "");
        // An upgrade of the whole image has a stateroot of its own, also with the same commit.
        node.reboots_into(NEXT);
        record_on(node, |_| {});
        write("rhcos_4.21.3", BOOTED);
        assert_eq!(of(&doctor_on(node), "FP-17"), Vec::<Value>::new());
        write("rhcos", BOOTED);
        let text = found(&doctor_on(node), "FP-17", "warning");
        says(&text, &["rendered-worker-newer", "deploy/rhcos/deploy"]);
    });
}

#[test]
fn a_directory_that_is_not_a_deployment_any_more_has_no_newer_etc() {
    live(|node| {
        record_on(node, |_| {});
        let left = |name: &str| {
            let other = format!("sysroot/ostree/deploy/rhcos/deploy/{name}/{RECORD}");
            let mut newer = small::config();
            newer["metadata"]["name"] = json!("rendered-worker-newer");
            node.root.write(&other, &newer.to_string());
            let future = SystemTime::now() + Duration::from_secs(3600);
            let file = fs::File::options().write(true).open(node.root.path(&other));
            file.unwrap().set_modified(future).unwrap();
        };
        // Its staging was lost with the power, and its directory stayed.
        left(&format!("{}.0", "5eed".repeat(16)));
        assert_eq!(of(&doctor_on(node), "FP-17"), Vec::<Value>::new());
        // One that rpm-ostree lists was booted.
        node.reboots_into(NEXT);
        record_on(node, |_| {});
        left(&format!("{BOOTED}.0"));
        let text = found(&doctor_on(node), "FP-17", "warning");
        says(&text, &["rendered-worker-newer"]);
    });
}

#[test]
fn a_next_boot_into_another_deployment_is_reported_with_its_record() {
    live(|node| {
        record_on(node, |_| {});
        // What the stub has first in its list: a rollback, neither staged nor booted.
        rpm_ostree_says(node, " 1 true false; printf", " 1 false false; printf");
        let first =
            format!("image=ostree-unverified-registry:{NEXT}\npackages=\"\"\nremovals=\"\"\n");
        node.root.write("stub/staged", &first);
        let deployment = format!("{}.1", "5eed".repeat(16));
        let other = format!("sysroot/ostree/deploy/rhcos/deploy/{deployment}/{RECORD}");
        let mut old = small::config();
        node.root.write(&other, &old.to_string());
        assert_eq!(of(&doctor_on(node), "FP-17"), Vec::<Value>::new());
        old["metadata"]["name"] = json!("rendered-worker-old");
        node.root.write(&other, &old.to_string());
        says(
            &found(&doctor_on(node), "FP-17", "warning"),
            &[
                "the next boot uses another /etc",
                "rendered-worker-old",
                NAME,
                "rpm-ostree rollback",
            ],
        );
        // Staged, it is what somebody is about to enter on purpose.
        rpm_ostree_says(node, " 1 false false; printf", " 1 true false; printf");
        assert_eq!(of(&doctor_on(node), "FP-17"), Vec::<Value>::new());
    });
}

#[test]
fn a_next_boot_into_another_stateroot_is_named() {
    live(|node| {
        record_on(node, |_| {});
        rpm_ostree_says(node, " 1 true false; printf", " 1 false false; printf");
        let first =
            format!("image=ostree-unverified-registry:{NEXT}\npackages=\"\"\nremovals=\"\"\n");
        node.root.write("stub/staged", &first);
        assert_eq!(of(&doctor_on(node), "FP-17"), Vec::<Value>::new());
        rpm_ostree_says(node, "\"osname\": \"rhcos\"", "\"osname\": \"%s\"");
        let name = "\"$1\" \"$2\" \"$([ $4 = true ] && echo rhcos || echo rhcos_4.21.3)\" \"$3\"";
        rpm_ostree_says(node, "\"$1\" \"$2\" \"$3\"", name);
        let text = found(&doctor_on(node), "FP-17", "warning");
        says(&text, &["enters another stateroot", "rhcos_4.21.3"]);
    });
}

#[test]
fn an_etc_that_every_boot_makes_anew_is_named() {
    let root = small::node();
    root.write("usr/etc/a", "");
    assert_eq!(of(&doctor(&root), "FP-17"), Vec::<Value>::new());
    root.write(
        "usr/lib/ostree/prepare-root.conf",
        "[etc]\ntransient=true\n",
    );
    let text = found(&doctor(&root), "FP-17", "warning");
    says(
        &text,
        &["[etc] transient=true in /usr/lib/ostree/prepare-root.conf"],
    );
}
