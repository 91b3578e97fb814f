//! FP-72: units that the node needs are masked.

use super::small::{self, live, record_on};
use super::{doctor, doctor_on, found, of, says};
use serde_json::Value;

#[test]
fn a_masked_unit_that_the_node_needs_is_named_with_what_it_stops() {
    let units = "etc/systemd/system";
    for (unit, stops) in [
        ("NetworkManager.service", "the node has no network"),
        ("crio.service", "no container is started"),
        ("ovs-configuration.service", "the bridge br-ex is not made"),
        (
            "rpm-ostreed.service",
            "the operating system cannot be updated",
        ),
        ("kubelet-dependencies.target", "the kubelet is not started"),
    ] {
        let root = small::node();
        root.link(&format!("{units}/{unit}"), "/dev/null");
        let unmask = format!("systemctl --root={} unmask {unit}", root.dir().display());
        says(
            &found(&doctor(&root), "FP-72", "critical"),
            &[&format!("{unit} is masked"), stops, &unmask],
        );
        root.remove(&format!("{units}/{unit}"));
        assert_eq!(of(&doctor(&root), "FP-72"), Vec::<Value>::new(), "{unit}");
    }
}

#[test]
fn the_mask_of_a_unit_of_the_config_is_taken_away_by_apply() {
    let root = small::node();
    let kubelet = "etc/systemd/system/kubelet.service";
    root.remove(kubelet);
    root.link(kubelet, "/dev/null");
    let report = doctor(&root);
    says(
        &found(&report, "FP-72", "critical"),
        &[
            "kubelet.service is masked",
            "the node is not Ready",
            "mco-rescue apply",
        ],
    );
    says(
        &found(&report, "FP-03", "warning"),
        &["kubelet.service is not as recorded", "no pod is started"],
    );
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(of(&doctor(&root), "FP-72"), Vec::<Value>::new());
}

#[test]
fn masks_that_are_meant_or_stop_nothing_are_healthy() {
    let root = small::node();
    root.link("etc/systemd/system/cups.service", "/dev/null");
    assert_eq!(of(&doctor(&root), "FP-72"), Vec::<Value>::new());
    small::recorded(&root, |spec| {
        let units = spec["config"]["systemd"]["units"].as_array_mut().unwrap();
        units.push(serde_json::json!({"name": "rpm-ostreed.service", "mask": true}));
    });
    root.link("etc/systemd/system/rpm-ostreed.service", "/dev/null");
    assert_eq!(of(&doctor(&root), "FP-72"), Vec::<Value>::new());
}

#[test]
fn a_mask_of_the_running_system_alone_is_found() {
    live(|node| {
        record_on(node, |_| {});
        node.root
            .link("run/systemd/system/crio.service", "/dev/null");
        says(
            &found(&doctor_on(node), "FP-72", "critical"),
            &[
                "/run/systemd/system/crio.service",
                "systemctl unmask --runtime crio.service",
            ],
        );
    });
}

/// Before it happens: what it stops stands beside the refusal of the mask.
#[test]
fn a_config_that_masks_such_a_unit_says_so_in_the_plan() {
    let root = small::node();
    let mut config = small::config();
    let units = config["spec"]["config"]["systemd"]["units"]
        .as_array_mut()
        .unwrap();
    units.push(serde_json::json!({"name": "NetworkManager.service", "mask": true}));
    let file = root.config(&config);
    let plan = root.run(&["plan", "--files-only", file.path()]).exits(1);
    says(
        &crate::support::flat_run(&plan),
        &[
            "NetworkManager.service is masked by the config",
            "the node has no network",
        ],
    );
}
