//! FP-25: units that cannot be loaded or enabled.

use super::small::{self, endless, live, record_on};
use super::{Dark, doctor, doctor_on, found, of, says};
use serde_json::Value;

pub(super) const DARK: &[Dark] = &[("FP-25", "links of units", |root| {
    endless(root, "etc/systemd/system")
})];

#[test]
fn files_where_links_of_units_belong_and_links_to_nowhere_are_reported() {
    let root = small::node();
    let wants = "etc/systemd/system/multi-user.target.wants";
    root.write(&format!("{wants}/stray.service"), "");
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-25", "warning"),
        &["error enabling units", "stray.service"],
    );
    root.remove(&format!("{wants}/stray.service"));
    root.link("etc/systemd/system/lost.service", "/opt/lost.service");
    says(
        &found(&doctor(&root), "FP-25", "warning"),
        &["leads to /opt/lost.service"],
    );
    root.remove("etc/systemd/system/lost.service");
    root.link(
        &format!("{wants}/gone.service"),
        "/usr/lib/systemd/system/gone.service",
    );
    found(&doctor(&root), "FP-25", "notice");
    // To systemd the name counts, wherever the link leads.
    root.write(
        "etc/systemd/system/gone.service",
        "[Service]\nExecStart=/bin/true\n",
    );
    root.link("etc/systemd/system/masked.service", "/dev/null");
    assert_eq!(of(&doctor(&root), "FP-25"), Vec::<Value>::new());
}

#[test]
fn links_that_lead_to_each_other_are_named_with_what_they_stop() {
    let root = small::node();
    let units = "etc/systemd/system";
    root.link(&format!("{units}/a.service"), "b.service");
    root.link(
        &format!("{units}/b.service"),
        "/etc/systemd/system/a.service",
    );
    says(
        &found(&doctor(&root), "FP-25", "warning"),
        &[
            "/etc/systemd/system/a.service",
            "leads to b.service, which leads back to it",
            "Too many levels of symbolic links",
            "error enabling units",
        ],
    );
    root.remove(&format!("{units}/a.service"));
    root.remove(&format!("{units}/b.service"));
    assert_eq!(of(&doctor(&root), "FP-25"), Vec::<Value>::new());
}

#[test]
fn services_without_which_there_is_no_node_are_reported_when_they_fail() {
    live(|node| {
        record_on(node, |_| {});
        for (active, sub, fails) in [
            ("active", "running", false),
            ("inactive", "dead", false),
            ("activating", "start", false),
            ("activating", "auto-restart", true),
            ("failed", "failed", true),
        ] {
            let answer = format!(
                "case $* in *SubState*) printf 'Id=crio.service\\nActiveState=active\\nSubState=running\\n\\n\
                 Id=kubelet.service\\nActiveState={active}\\nSubState={sub}\\n' ;; *) exit 1 ;; esac"
            );
            node.program("systemctl", &answer);
            let seen = doctor_on(node);
            if !fails {
                assert_eq!(of(&seen, "FP-25"), Vec::<Value>::new(), "{active} {sub}");
                continue;
            }
            says(
                &found(&seen, "FP-25", "critical"),
                &[
                    "kubelet.service is not running",
                    sub,
                    "journalctl -b -u kubelet.service",
                ],
            );
        }
    });
}

#[test]
fn a_kubelet_that_the_config_enables_and_that_does_not_run_is_critical() {
    live(|node| {
        record_on(node, |spec| {
            let units = spec["config"]["systemd"]["units"].as_array_mut().unwrap();
            let mut kubelet = units
                .iter_mut()
                .find(|unit| unit["name"] == "kubelet.service");
            kubelet.as_mut().unwrap()["enabled"] = Value::Bool(true);
            let text =
                "[Service]\nExecStart=/usr/bin/kubelet\n[Install]\nWantedBy=multi-user.target\n";
            kubelet.unwrap()["contents"] = text.into();
        });
        let unit = node.root.read(super::RECORD);
        assert!(unit.contains("/usr/bin/kubelet"));
        let text = "[Service]\nExecStart=/usr/bin/kubelet\n[Install]\nWantedBy=multi-user.target\n";
        node.root.write("etc/systemd/system/kubelet.service", text);
        let manager = |active: &str, job: &str| {
            let script = format!(
                "case $* in *SubState*) printf 'Id=kubelet.service\\nActiveState={active}\\nSubState=x\\n' ;; \
                 list-jobs*) printf '{job}' ;; show*) : ;; *) exit 1 ;; esac"
            );
            node.program("systemctl", &script);
        };
        manager("active", "");
        says(
            &found(&doctor_on(node), "FP-25", "critical"),
            &[
                "kubelet.service is not enabled",
                "mco-rescue apply --files-only",
            ],
        );
        let link = "etc/systemd/system/multi-user.target.wants/kubelet.service";
        node.root.link(link, "/etc/systemd/system/kubelet.service");
        assert_eq!(of(&doctor_on(node), "FP-25"), Vec::<Value>::new());
        manager("inactive", "");
        says(
            &found(&doctor_on(node), "FP-25", "critical"),
            &[
                "kubelet.service is not started",
                "ordering cycle",
                "systemctl start kubelet.service",
            ],
        );
        // It waits for its turn.
        manager("inactive", "7 kubelet.service start waiting\\n");
        assert_eq!(of(&doctor_on(node), "FP-25"), Vec::<Value>::new());
    });
}
