//! FP-08: files that a service does not take.

use std::fs;

use serde_json::{Value, json};

use super::worker::{self, Branch, Row, all_met, on_a_node, sick, well};
use super::{doctor, doctor_on, finding, found, of, says};
use crate::crossing::Lab;
use crate::support::ostree_node::OstreeNode;
use crate::support::services::find_services;
use crate::support::{
    Lacks, TestRoot, copy_unpacked, file, kubelet_unit, machine_config, say, shared_data, skip,
};

const ID: &str = "FP-08";
const KUBELET: &str = "etc/kubernetes/kubelet.conf";
const KUBELET_UNIT: &str = "etc/systemd/system/kubelet.service";
const KEYFILE: &str = "etc/NetworkManager/system-connections/lan.nmconnection";
const GOOD: &str = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ncgroupDriver: systemd\n";

fn keyfile(root: &TestRoot, text: &str, mode: u32) {
    root.write(KEYFILE, text);
    root.chmod(KEYFILE, mode);
}

fn names(root: &TestRoot, path: &str) {
    let unit = format!(
        "[Service]\nExecStart=/usr/bin/kubelet \\\n      --config={path} \\\n      --v=2\n"
    );
    root.write(KUBELET_UNIT, &unit);
}

#[test]
fn files_of_kubelet_and_networkmanager_are_judged_on_any_disk() {
    let kubelet = Branch {
        id: ID,
        severity: "critical",
        what: "the kubelet does not start with its configuration",
        seen: &["failed to load Kubelet config file /etc/kubernetes/kubelet.conf"],
        next: &[
            "mco-rescue verify --root ROOT",
            "mco-rescue apply --root ROOT",
        ],
    };
    let rows: [Row; 18] = [
        well(ID, |_| {}),
        well(ID, |root| {
            root.write(
                "etc/containers/storage.conf",
                "[storage]\ndriver = \"overlay\"\n",
            )
        }),
        sick(
            |root| root.write("etc/containers/storage.conf", "[storage\n"),
            Branch {
                id: ID,
                severity: "critical",
                what: "CRI-O does not start with one of its files",
                seen: &["/etc/containers/storage.conf", "that of the OS"],
                next: &[
                    "mv ROOT/etc/containers/storage.conf ROOT/etc/containers/storage.conf.mco-rescue-",
                ],
            },
        ),
        well(ID, |root| {
            root.write(KUBELET, GOOD);
            names(root, "/etc/kubernetes/kubelet.conf");
            keyfile(root, "[connection]\nid=lan\ntype=ethernet\n", 0o600);
        }),
        // Of NetworkManager's own, and what it does not read.
        well(ID, |root| {
            let folder = "etc/NetworkManager/system-connections";
            root.write(&format!("{folder}/lan.nmconnection.bak"), "junk");
            root.write(&format!("{folder}/.hidden"), "junk");
        }),
        // An empty keyfile is FP-12's.
        well(ID, |root| keyfile(root, "", 0o600)),
        well(ID, |root| names(root, "$CONFIG")),
        sick(|root| root.write(KUBELET, "<html>"), Branch { ..kubelet }),
        sick(|root| root.write(KUBELET, ""), Branch { ..kubelet }),
        sick(
            |root| root.write(KUBELET, "kind: Pod\napiVersion: v1\n"),
            Branch { ..kubelet },
        ),
        sick(
            |root| names(root, "/etc/kubernetes/kubelet.conf"),
            Branch { ..kubelet },
        ),
        sick(
            |root| {
                root.write(KUBELET, &format!("{GOOD}kubeReserved: {{cpu: -200m}}\nevictionHard: {{memory.available: 110%}}\n"))
            },
            Branch {
                seen: &[
                    "kubeReserved.cpu is -200m, and a reservation cannot be negative; evictionHard.memory.available is 110%",
                    "cannot be negative: -200m",
                ],
                next: &[
                    "mco-rescue verify --root ROOT",
                    "mco-rescue apply --root ROOT",
                    "mco-rescue change kubelet FIELD=VALUE --root ROOT",
                ],
                ..kubelet
            },
        ),
        sick(
            |root| {
                root.write(
                    "etc/node-sizing-enabled.env",
                    "NODE_SIZING_ENABLED=false\nSYSTEM_RESERVED_CPU=-1\n",
                )
            },
            Branch {
                seen: &["/etc/node-sizing-enabled.env", "SYSTEM_RESERVED_CPU is -1"],
                next: &[
                    "mco-rescue verify --root ROOT",
                    "mco-rescue apply --root ROOT",
                    "mco-rescue change kubelet FIELD=VALUE --root ROOT",
                ],
                ..kubelet
            },
        ),
        sick(
            |root| {
                root.write(KUBELET, GOOD);
                root.write("etc/kubernetes/other.conf", "kind: [\n");
                names(root, "/etc/kubernetes/kubelet.conf");
                let drop_in = "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --config /etc/kubernetes/other.conf\n";
                root.write("etc/systemd/system/kubelet.service.d/90-x.conf", drop_in);
            },
            Branch {
                seen: &["/etc/kubernetes/other.conf", "neither YAML nor JSON"],
                ..kubelet
            },
        ),
        sick(
            |root| {
                root.write("etc/kubernetes/manifests/site.yaml", "kind: Pod\nspec:\n  volumes:\n  - name: a\n    projected: {defaultMode: 644}\n")
            },
            Branch {
                id: ID,
                severity: "warning",
                what: "the kubelet rejects the manifest of a static pod",
                seen: &[
                    "spec.volumes[0].projected.defaultMode: 644 is a decimal number",
                    "must be a number between 0 and 0777",
                ],
                next: &[
                    "mco-rescue verify --root ROOT",
                    "vi ROOT/etc/kubernetes/manifests/site.yaml",
                ],
            },
        ),
        sick(
            |root| keyfile(root, "[connection]\nid=lan\n", 0o644),
            Branch {
                id: ID,
                severity: "warning",
                what: "NetworkManager ignores a connection's file",
                seen: &["mode 0644", "File permissions (100644) are insecure"],
                next: &["chown root:root ROOT/etc", "chmod 0600 ROOT/etc"],
            },
        ),
        // Permissions do not cure an empty file: one fact, one finding.
        sick(
            |root| keyfile(root, "", 0o644),
            Branch {
                id: "FP-12",
                severity: "warning",
                what: "1 connection of NetworkManager is empty",
                seen: &["lan.nmconnection"],
                next: &["mv ROOT/etc/NetworkManager/system-connections/lan.nmconnection"],
            },
        ),
        sick(
            |root| keyfile(root, "[connection]\nid=lan\n>>>>>>> theirs\n", 0o600),
            Branch {
                id: ID,
                severity: "warning",
                what: "NetworkManager ignores a connection's file",
                seen: &["line 3: neither a group, a key with a value, nor a comment"],
                next: &["vi ROOT/etc/NetworkManager/system-connections/lan.nmconnection"],
            },
        ),
    ];
    all_met(&rows);
}

#[test]
fn files_of_cri_o_are_judged_as_preflight_judges_them() {
    let lab = Lab::healthy();
    fs::create_dir_all(lab.node.path("usr/etc")).unwrap();
    assert_eq!(of(&doctor(&lab.node), ID), Vec::<Value>::new());
    lab.node.write("etc/crio/crio.conf.d/99-x.bak", "[crio\n");
    let text = found(&doctor(&lab.node), ID, "critical");
    says(
        &text,
        &[
            "CRI-O does not start with one of its files",
            "/etc/crio/crio.conf.d/99-x.bak",
            "crio.service: Failed with result 'exit-code'.",
            &format!(
                "mv {0}/etc/crio/crio.conf.d/99-x.bak {0}/etc/crio/99-x.bak.mco-rescue-aside",
                lab.node.dir().display()
            ),
        ],
    );
    assert_eq!(of(&doctor(&lab.node), "FP-36"), Vec::<Value>::new());
}

/// STUB of a program that tests its configuration: it prints what the real one printed, and fails.
fn program(node: &OstreeNode, name: &str, status: i32, words: &str) {
    node.program(name, &format!("echo '{words}' >&2; exit {status}"));
}

#[test]
fn on_the_node_the_programs_judge_their_own_files() {
    on_a_node(|node| {
        worker::is_well(node, ID);
        // What they say besides is not a fault of the configuration.
        program(node, "sshd", 255, "sshd: no hostkeys available -- exiting.");
        program(
            node,
            "visudo",
            1,
            "/etc/sudoers.d/x: bad permissions, should be mode 0440",
        );
        program(
            node,
            "chronyd",
            1,
            "Usage: chronyd [OPTION]... [DIRECTIVE]...",
        );
        worker::is_well(node, ID);
        for (name, words, what, file) in [
            (
                "sshd",
                "/etc/ssh/sshd_config.d/50-x.conf line 2: Bad configuration option: Bogus",
                "sshd does not start again",
                "vi /etc/ssh/sshd_config.d/50-x.conf",
            ),
            (
                "visudo",
                "/etc/sudoers.d/core:1:15: syntax error",
                "sudo rejects its rules",
                "vi /etc/sudoers.d/core",
            ),
            (
                "chronyd",
                "2026-11-23T09:19:24Z Fatal error : Invalid directive at line 2 in file /etc/chrony.conf",
                "chronyd does not start again",
                "vi /etc/chrony.conf",
            ),
        ] {
            program(node, name, 1, words);
            says(
                &found(&doctor_on(node), ID, "warning"),
                &[what, words, file],
            );
            program(node, name, 0, "");
            worker::is_well(node, ID);
        }
    });
}

#[test]
fn the_real_visudo_and_sshd_are_understood() {
    let Some(services) = find_services() else {
        return;
    };
    let services = services.to_str().unwrap();
    on_a_node(|node| {
        let mut asked = 0;
        for (dir, program, file, text, (id, severity)) in [
            (
                "",
                "visudo",
                "etc/sudoers",
                "core ALL=(ALL NOPASSWD: ALL\n",
                (ID, "warning"),
            ),
            (
                services,
                "sshd",
                "etc/ssh/sshd_config",
                "Port 22\nBogus yes\n",
                ("FP-33", "critical"),
            ),
            (
                services,
                "chronyd",
                // Where Debian's program looks.
                "etc/chrony/chrony.conf",
                "pool a.example iburst\nbogus 3\n",
                (ID, "warning"),
            ),
        ] {
            let path = format!("/usr/sbin/{program}");
            if !std::path::Path::new(&format!("{dir}{path}")).exists() {
                skip(Lacks::Setup, &format!("{program} is not installed"));
                continue;
            }
            copy_unpacked(&node.root, dir, &path);
            node.root.write(file, text);
            node.root.chmod(file, 0o440);
            found(&doctor_on(node), id, severity);
            node.root.remove(&path[1..]);
            asked += 1;
        }
        say(&format!("{asked} of 3 programs were asked"));
    });
}

/// Writes all files, units and drop-ins of a rendered config.
fn write_config(root: &TestRoot, config: &Value) {
    let spec = config.get("spec").unwrap_or(config);
    let list = |pointer: &str| {
        spec.pointer(pointer)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    for one in list("/config/storage/files") {
        let path = one["path"]
            .as_str()
            .unwrap()
            .trim_start_matches('/')
            .to_owned();
        let source = one["contents"]["source"].as_str().unwrap_or("data:,");
        let mut bytes = mco_rescue::config::document::data_url(source).unwrap();
        if one["contents"]["compression"] == "gzip" {
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text)
                .unwrap();
            bytes = text;
        }
        root.write(&path, "");
        fs::write(root.path(&path), bytes).unwrap();
        root.chmod(
            &path,
            u32::try_from(one["mode"].as_u64().unwrap_or(0o644)).unwrap(),
        );
    }
    for unit in list("/config/systemd/units") {
        let name = unit["name"].as_str().unwrap();
        let at = format!("etc/systemd/system/{name}");
        if let Some(text) = unit["contents"].as_str() {
            root.write(&at, text);
        }
        for one in unit["dropins"].as_array().into_iter().flatten() {
            let text = one["contents"].as_str().unwrap_or_default();
            root.write(&format!("{at}.d/{}", one["name"].as_str().unwrap()), text);
        }
    }
}

/// A fix, and then the check has nothing to say.
fn is_cured(root: &TestRoot) {
    let run = root.run(&["doctor", "--fix", ID, "--yes", "--not-a-node"]);
    assert_eq!(run.code(), 0, "{}{}", run.out(), run.err());
    assert_eq!(of(&doctor(root), ID), Vec::<Value>::new());
}

#[test]
fn what_files_alone_cure_is_cured() {
    let lab = Lab::healthy();
    fs::create_dir_all(lab.node.path("usr/etc")).unwrap();
    lab.node.write("etc/crio/crio.conf.d/99-x.bak", "[crio\n");
    is_cured(&lab.node);
    assert!(!lab.node.exists("etc/crio/crio.conf.d/99-x.bak"));
    let root = worker::healthy();
    keyfile(&root, "[connection]\nid=lan\n", 0o644);
    is_cured(&root);
    assert_eq!(root.mode(KEYFILE), 0o600);
    // A person has to correct what is wrong in it.
    keyfile(&root, "[connection]\nid\n", 0o600);
    assert_eq!(finding(&doctor(&root), ID)["fix"], Value::Null);
}

#[test]
fn a_plan_that_would_write_such_a_file_says_so() {
    let path = "/etc/NetworkManager/system-connections/a.nmconnection";
    let config = |files: Value| {
        let ignition = json!({"storage": {"files": files}, "systemd": {"units": [kubelet_unit()]}});
        machine_config("rendered-worker-n", ignition)
    };
    let root = TestRoot::new();
    let good = config(json!([
        file("/etc/kubernetes/kubelet.conf", 0o644, GOOD),
        file(
            "/etc/crio/crio.conf.d/00-default",
            0o644,
            "[crio.runtime]\n"
        ),
        file(path, 0o600, "[connection]\nid=a\n"),
    ]));
    let plan = |config: &Value| {
        let config = root.config(config);
        root.run(&["plan", config.path(), "--output", "json"])
            .json()["notices"]
            .to_string()
    };
    assert!(!plan(&good).contains("this file"), "{}", plan(&good));
    for (one, words) in [
        (
            file("/etc/kubernetes/kubelet.conf", 0o644, "junk\n"),
            "the kubelet does not start with this file: it has no kind",
        ),
        (
            file("/etc/crio/crio.conf.d/99-x", 0o644, "[crio\n"),
            "CRI-O does not start with this file",
        ),
        (
            file(
                "/etc/containers/storage.conf",
                0o644,
                "[storage]\ndriver = \"overlayfs\"\n",
            ),
            "CRI-O does not start with this file: storage.driver: there is no driver overlayfs",
        ),
        (
            file(path, 0o644, "[connection]\n"),
            "NetworkManager ignores this file: owner 0, mode 0644",
        ),
        (
            file(path, 0o600, "id=a\n"),
            "NetworkManager ignores this file: line 1: a key before the first group",
        ),
    ] {
        says(&plan(&config(json!([one]))), &[words]);
    }
}

#[test]
fn no_real_config_is_called_sick() {
    let Some(folder) = shared_data("rendered") else {
        return;
    };
    let mut judged = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let root = TestRoot::new();
        fs::create_dir_all(root.path("usr/etc")).unwrap();
        write_config(&root, &config);
        root.write("usr/bin/crio", "");
        root.write("usr/bin/crun", "");
        // Of two nodes: as pcs sets the cluster up.
        if path.to_string_lossy().contains("tnf") {
            let nodes = "nodelist {\n node {\n  name: a\n }\n node {\n  name: b\n }\n}\n";
            root.write("etc/corosync/corosync.conf", nodes);
        }
        let seen = doctor(&root);
        for id in [
            "FP-08", "FP-21", "FP-34", "FP-35", "FP-36", "FP-43", "FP-55", "FP-57", "FP-58",
        ] {
            assert_eq!(
                of(&seen, id),
                Vec::<Value>::new(),
                "{id} {}",
                path.display()
            );
        }
        judged += 1;
    }
    say(&format!("{judged} real configs were judged"));
    assert!(judged >= 9, "{judged}");
}
