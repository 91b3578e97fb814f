//! Nodes that others change too: from a seed image (IBU, IBI), and two nodes with fencing (TNF). The programs are named
//! stubs; only what this program leaves alone and says is tested here.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use mco_rescue::node::images::Digest;
use serde_json::{Value, json};

use crate::support::http::{Authority, Request, Response, Routes, Server, VALID};
use crate::support::mounts::{with_mounts, with_network};
use crate::support::ostree_node::{NEXT, OstreeNode};
use crate::support::{TestRoot, file, flat, machine_config};

const OTHER: &str = "sysroot/ostree/deploy/rhcos_4_17_9/deploy";
const SUM: &str = "c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0.0";

/// STUB of systemctl: the monitor has been at work since the kernel began.
const MONITOR: &str = r#"case $* in
    "show "*lca-init-monitor.service) echo "ActiveState=$(cat /stub/monitor)"; echo SubState=running; echo InactiveExitTimestampMonotonic=1 ;;
    daemon-reload | try-restart* | *reboot) echo "systemctl $*" >>/stub/log ;;
    stop* | start* | disable* | mask*) echo "systemctl $*" >>/stub/log ;;
    *) exit 1 ;;
esac"#;

fn wants(image: &str) -> Value {
    let files = json!({"storage": {"files": [file("/etc/site", 0o644, "new\n")]}});
    let mut config = machine_config("rendered-master-next", files);
    config["spec"]["osImageURL"] = json!(image);
    config
}

/// Upgraded from a seed image; the stateroot from before is the way back.
fn from_a_seed() -> OstreeNode {
    let node = OstreeNode::new();
    crate::support::copy_program(&node.root, "/bin/cat");
    node.root.write("config", &wants(NEXT).to_string());
    node.root
        .write(&format!("{OTHER}/{SUM}/etc/old"), "of the other state\n");
    node.root.write(
        "sysroot/ostree/deploy/rhcos_4_17_9/var/lib/etcd/db",
        "old\n",
    );
    // Longer than this machine runs, whenever that is.
    let config = json!({"monitor_enabled": true, "monitor_timeout": 4_000_000_000_u64});
    node.root
        .write("var/lib/lca/autorollback_config.json", &config.to_string());
    std::fs::create_dir_all(node.root.path("run/systemd/system")).unwrap();
    node.root.write("stub/monitor", "active\n");
    node.program("systemctl", MONITOR);
    node
}

fn notice(document: &Value, subject: &str) -> Option<String> {
    let all = document.as_array().unwrap().iter();
    let found = all.clone().find(|one| one["subject"] == subject)?;
    Some(found["message"].as_str().unwrap().to_owned())
}

#[test]
fn the_other_stateroot_and_the_monitor_of_an_upgrade_are_reported_and_left_alone() {
    with_mounts(|| {
        let node = from_a_seed();
        let plan = node
            .run(&["plan", "--output", "json", "/config"])
            .ok()
            .json();
        let seed = notice(&plan["notices"], "seed image").unwrap();
        assert!(seed.contains("/var/lib/lca"), "{seed}");
        assert!(seed.contains("rhcos_4_17_9"), "{seed}");
        let monitor = notice(&plan["notices"], "lca-init-monitor.service").unwrap();
        for words in [
            "boots the other stateroot in ",
            "A run with a reboot, or a repair that takes longer, is undone",
            "systemctl stop lca-init-monitor.service",
        ] {
            assert!(monitor.contains(words), "{monitor}");
        }
        // It may be at work, and so may an update.
        node.program("systemctl", "echo 'Connection timed out' >&2; exit 1");
        let plan = node.run(&["plan", "--output", "json", "/config"]).ok();
        let notices = &plan.json()["notices"];
        let monitor = notice(notices, "lca-init-monitor.service").unwrap();
        assert!(
            monitor.starts_with("whether it runs is unknown: "),
            "{monitor}"
        );
        let systemd = notice(notices, "systemd").unwrap();
        assert!(systemd.contains("Connection timed out"), "{systemd}");
        node.program("systemctl", MONITOR);

        // The stub cannot say that the unit which completes it starts.
        let apply = ["apply", "--yes", "--complete-by-hand", "/config"];
        node.run(&apply).ok();
        let status = node.run(&["status", "--output", "json"]).ok().json();
        assert!(
            notice(&status["beside"], "seed image").is_some(),
            "{status}"
        );
        let said = notice(&status["beside"], "lca-init-monitor.service");
        assert!(said.is_some(), "{status}");
        let log = node.root.read("stub/log");
        for never in [
            "cleanup -r",
            "cleanup -b",
            "undeploy",
            "lca",
            "systemctl stop",
        ] {
            assert!(!log.contains(never), "{log}");
        }
        assert_eq!(
            node.root.read(&format!("{OTHER}/{SUM}/etc/old")),
            "of the other state\n"
        );

        node.root.write("stub/monitor", "inactive\n");
        let status = node.run(&["status", "--output", "json"]).ok().json();
        let said = notice(&status["beside"], "lca-init-monitor.service");
        assert_eq!(said, None, "a monitor that has ended boots nothing");
    });
}

/// A config whose name has the hash of other contents.
fn rewritten() -> Value {
    let files = json!({"storage": {"files": [file("/etc/site", 0o644, "recert\n")]}});
    machine_config("rendered-worker-0123456789abcdef0123456789abcdef", files)
}

#[test]
fn a_hash_that_recert_made_wrong_is_not_corruption() {
    let root = TestRoot::new();
    root.write("config", &rewritten().to_string());
    let config = root.path("config");
    let plan = ["plan", "--output", "json", config.to_str().unwrap()];
    let refused = root.run(&plan).exits(1).json();
    assert_eq!(refused["name_hash"], "wrong", "{refused}");
    root.write("var/lib/lca/workspace/initmonitor_mode", "ibu");
    let found = root.run(&plan).ok().json();
    assert_eq!(found["name_hash"], "unknown", "{found}");
    assert_eq!(found["blockers"], json!([]));
    let text = root.run(&["plan", config.to_str().unwrap()]).ok().out();
    assert!(
        flat(&text).contains("recert rewrote the contents"),
        "{text}"
    );
}

fn with_kubelet() -> Value {
    let unit = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let units = json!([{"name": "kubelet.service", "enabled": true, "contents": unit}]);
    let files = json!([file("/etc/site", 0o644, "new\n")]);
    machine_config(
        "rendered-master-1",
        json!({"storage": {"files": files}, "systemd": {"units": units}}),
    )
}

const LINK: &str = "etc/systemd/system/multi-user.target.wants/kubelet.service";

#[test]
fn a_kubelet_that_pacemaker_disabled_stays_disabled_and_is_not_drift() {
    let root = TestRoot::new();
    root.write("config", &with_kubelet().to_string());
    let config = root.path("config");
    let config = config.to_str().unwrap();
    root.run(&["apply", "--yes", config]).ok();
    assert!(root.exists(LINK), "anywhere else it is enabled");
    std::fs::remove_file(root.path(LINK)).unwrap();
    root.run(&["verify", config]).exits(3);

    // The cluster was set up, and its setup ended with `systemctl disable kubelet`.
    root.write("etc/corosync/corosync.conf", "totem {\n}\n");
    root.run(&["verify", config]).ok();
    root.write("etc/site", "by hand\n");
    let plan = root.run(&["plan", config]).ok().out();
    assert!(
        flat(&plan).contains("Pacemaker manages kubelet and etcd here"),
        "{plan}"
    );
    root.run(&["apply", "--yes", config]).ok();
    assert_eq!(root.read("etc/site"), "new\n");
    assert!(!root.exists(LINK), "kubelet.service was enabled");
}

#[test]
fn what_the_kubelet_is_given_outside_of_the_config_is_not_drift() {
    let root = TestRoot::new();
    root.write("config", &with_kubelet().to_string());
    let config = root.path("config");
    let config = config.to_str().unwrap();
    root.run(&["apply", "--yes", config]).ok();
    let sizes = "etc/openshift/kubelet.conf.d/20-auto-sizing.conf";
    root.write(sizes, "kind: KubeletConfiguration\n");
    root.write("etc/node-sizing-version.json", "{}\n");
    root.run(&["verify", config]).ok();
    let said = root.run(&["apply", "--yes", config]).ok().out();
    assert!(root.exists(sizes), "{said}");
}

/// STUB of skopeo: it keeps its calls.
const SKOPEO: &str = r#"case $1 in --version) echo 'skopeo version 1.18' ;; *) echo "skopeo $*" >>/stub/log ;; esac"#;
/// STUB of podman: nothing is in the storage.
const PODMAN: &str = "case $* in *images*) echo '[]' ;; *) exit 1 ;; esac";

#[test]
fn the_release_registry_of_a_control_plane_node_is_asked_first() {
    with_network(|| {
        let node = OstreeNode::new();
        node.program("skopeo", SKOPEO);
        node.program("podman", PODMAN);
        let manifest = r#"{"schemaVersion": 2, "config": {}, "layers": []}"#;
        let digest = Digest::of_bytes(manifest.as_bytes());
        let image = format!("quay.example/os@{digest}");
        node.root.write("config", &wants(&image).to_string());
        let said = || {
            let plan = node.run(&["plan", "--output", "json", "/config"]).ok();
            notice(&plan.json()["notices"], "release registry")
        };
        assert_eq!(said(), None);
        // A store that cannot be inspected is not a missing one.
        node.root.link("var/lib/iri-registry", "iri-registry");
        let unknown = said().unwrap();
        assert!(unknown.contains("it is unknown whether"), "{unknown}");
        assert!(unknown.contains("/var/lib/iri-registry"), "{unknown}");
        node.root.remove("var/lib/iri-registry");
        fs::create_dir_all(node.root.path("var/lib/iri-registry")).unwrap();
        let silent = said().unwrap();
        assert!(silent.contains("connection refused"), "{silent}");
        assert!(silent.contains("systemctl status iri-registry"), "{silent}");
        // A registry with another image, then with the wanted one, which asks for the credentials of the kubelet.
        let authority = Authority::new("release registry");
        let identity = authority.issue(&["localhost"], VALID);
        node.root.write(
            "etc/pki/ca-trust/source/anchors/iri-root-ca.crt",
            &authority.pem,
        );
        // Without its credentials the registry is not asked, and the reason is said.
        node.root.write("var/lib/kubelet/config.json", "{");
        let damaged = said().unwrap();
        assert!(
            damaged.contains("/var/lib/kubelet/config.json is not a pull secret"),
            "{damaged}"
        );
        node.root.write(
            "var/lib/kubelet/config.json",
            r#"{"auths": {"localhost:22625": {"auth": "bWU6eA=="}, "quay.example": {"auth": "b3RoZXI6eQ=="}}}"#,
        );
        let path = format!("/v2/openshift/release-images/manifests/{digest}");
        let has_it = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&has_it);
        // The images that the payload names are in a repository of their own.
        let beside = format!("/v2/openshift/release/manifests/{digest}");
        let has_it_beside = Arc::new(AtomicBool::new(false));
        let asked_beside = Arc::clone(&has_it_beside);
        let routes = Routes::new().at(&beside, move |_: &Request| {
            if asked_beside.load(Relaxed) {
                Response::ok(manifest)
            } else {
                Response::status(404)
            }
        });
        let routes = routes.at(&path, move |request: &Request| {
            match (request.header("authorization"), asked.load(Relaxed)) {
                (Some("Basic bWU6eA=="), true) => Response::ok(manifest),
                (Some("Basic bWU6eA=="), false) => Response::ok("another"),
                _ => Response::status(401),
            }
        });
        let tags = format!(
            r#"{{"name": "openshift/release-images", "tags": ["4.22.16-x86_64", "sha256-{}.sig", "4.22.9-x86_64"]}}"#,
            "0".repeat(64)
        );
        let routes = routes.at(
            "/v2/openshift/release-images/tags/list",
            move |_: &Request| Response::ok(&tags),
        );
        let port = "127.0.0.1:22625".parse().unwrap();
        let _server = Server::tls_at(port, routes, &identity);
        let other = said().unwrap();
        assert!(other.contains("has another digest"), "{other}");
        assert!(
            other.contains("it has the releases 4.22.16-x86_64, 4.22.9-x86_64. Look at it"),
            "{other}"
        );
        has_it_beside.store(true, Relaxed);
        let from =
            format!("copied from there: docker://localhost:22625/openshift/release@{digest}");
        assert!(said().unwrap().contains(&from), "{:?}", said());
        has_it.store(true, Relaxed);
        let from = format!("docker://localhost:22625/openshift/release-images@{digest}");
        assert!(
            said()
                .unwrap()
                .contains(&format!("copied from there: {from}"))
        );
        node.run(&["apply", "--yes", "/config"]).ok();
        let calls = node.calls();
        let copy = calls.iter().position(|call| {
            call.starts_with("skopeo copy")
                && call.contains(&from)
                && call.contains("--authfile=/var/lib/kubelet/config.json")
        });
        let rebase = calls.iter().position(|call| {
            call.contains(&format!("containers-storage:{image}"))
                && call.starts_with("rpm-ostree rebase")
        });
        assert!(copy.is_some() && copy < rebase, "{calls:?}");
        // Where a mirror leads to it, rpm-ostree asks it itself.
        node.run(&["rollback", "--yes"]).ok();
        node.root.write(
            "etc/containers/registries.conf",
            "[[registry]]\nlocation = \"quay.example/os\"\n[[registry.mirror]]\n\
             location = \"localhost:22625/openshift/release-images\"\n",
        );
        let mirrored = said().unwrap();
        let asked = format!("is queried: localhost:22625/openshift/release-images@{digest}");
        assert!(mirrored.contains(&asked), "{mirrored}");
    });
}
