//! `doctor`: a healthy node, and the same node with one thing wrong at a time, through the command line.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{BOOTED, IMAGE, NEXT, OstreeNode};
use crate::support::sysroot::Sysroot;
use crate::support::{self, PROGRAM, Run, TestRoot, file, kubelet_unit, machine_config, say};
use mco_rescue::doctor::WHAT;
use mco_rescue::doctor::checks::CHECKS;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

/// Exit codes.
const FINE: i32 = 0;
const WARNING: i32 = 3;
const CRITICAL: i32 = 6;

/// A self-signed certificate with its key, as the kubelet keeps its own: both in one file.
fn certificate(name: &str, from: i32, until: i32) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 12, 31);
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem() + &key.serialize_pem()
}

fn prepared_for(network: &str, name: &str) -> Value {
    let unit = format!(
        "[Service]\nType=oneshot\nExecStart=/usr/local/bin/configure-ovs.sh {network}\n[Install]\nWantedBy=network-online.target\n"
    );
    let mut config = machine_config(
        name,
        json!({
            "storage": {"files": [file("/etc/pool.conf", 0o644, "a\n"), file("/etc/other.conf", 0o600, "b\n")]},
            "systemd": {"units": [{"name": "ovs-configuration.service", "enabled": true, "contents": unit}, kubelet_unit()]},
        }),
    );
    config["spec"]["osImageURL"] = IMAGE.into();
    config
}

fn config() -> Value {
    prepared_for("OVNKubernetes", "rendered-worker-a")
}

const POLICY: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;

/// What every node has besides its config; it boots images.
fn furnish(root: &TestRoot) {
    fs::create_dir_all(root.path("usr/etc")).unwrap();
    root.write("etc/containers/policy.json", POLICY);
    root.write("home/core/.ssh/authorized_keys", "ssh-ed25519 AAAA a\n");
    root.write("etc/resolv.conf", "nameserver 192.0.2.1\n");
    root.write(
        "var/lib/kubelet/config.json",
        r#"{"auths": {"quay.example": {"auth": "c2VjcmV0"}}}"#,
    );
    root.write("etc/kubernetes/cni/net.d/10-ovn-kubernetes.conf", "{}\n");
    let client = "var/lib/kubelet/pki/kubelet-client-current.pem";
    root.write(client, &certificate("system:node:worker-0", 2024, 2080));
    root.chmod(client, 0o600);
    root.write(
        "etc/kubernetes/kubelet-ca.crt",
        &certificate("kubelet-signer", 2024, 2080),
    );
}

fn healthy() -> TestRoot {
    let root = TestRoot::new();
    furnish(&root);
    root.apply(&config());
    root
}

/// One thing that is wrong.
struct Sick {
    id: &'static str,
    code: i32,
    /// A part of what is said, and of a command.
    what: &'static str,
    next: &'static str,
    sicken: fn(&TestRoot),
}

fn import(root: &TestRoot, config: &Value) {
    let config = root.config(config);
    root.run(&["fetch", config.path()]).ok();
}

fn storage(root: &TestRoot, layers: &str) {
    let store = "var/lib/containers/storage";
    root.write(&format!("{store}/overlay-layers/layers.json"), layers);
    root.write(
        &format!("{store}/overlay-images/images.json"),
        r#"[{"id": "i1", "names": ["quay.example/a:1"], "layer": "aaaaaaaaaaaaaaaa"}]"#,
    );
    fs::create_dir_all(root.path(&format!("{store}/overlay/aaaaaaaaaaaaaaaa"))).unwrap();
}

/// Two kernels, of which a boot entry names one.
fn kernels(root: &TestRoot) {
    for name in ["a", "b"] {
        root.write(&format!("boot/ostree/rhcos-{name}/vmlinuz"), "");
    }
    root.write(
        "boot/loader/entries/ostree-1.conf",
        "title A\nversion 1\nlinux /ostree/rhcos-a/vmlinuz\noptions rw ostree=/ostree/boot.1/rhcos/a/0\n",
    );
}

fn keyfile(root: &TestRoot, name: &str) {
    root.write(
        &format!("etc/NetworkManager/system-connections/{name}.nmconnection"),
        &format!("[connection]\nid={name}\ntype=ovs-port\n[802-1x]\npassword=topsecret\n"),
    );
}

const SICK: [Sick; 22] = [
    Sick {
        id: "FP-02",
        code: CRITICAL,
        what: "no config has reached this node",
        next: "mco-rescue fetch --from-media --root",
        sicken: |root| {
            root.remove("etc/machine-config-daemon/currentconfig");
            root.write("etc/machine-id", "uninitialized\n");
        },
    },
    Sick {
        id: "FP-03",
        code: WARNING,
        what: "/etc/pool.conf is not as recorded",
        next: "mco-rescue apply --root",
        sicken: |root| root.write("etc/pool.conf", "edited\n"),
    },
    Sick {
        id: "FP-03",
        code: WARNING,
        what: "2 files or units are not as recorded",
        next: "mco-rescue verify --root",
        sicken: |root| {
            root.write("etc/pool.conf", "edited\n");
            root.chmod("etc/other.conf", 0o644);
        },
    },
    Sick {
        id: "FP-04",
        code: WARNING,
        what: "the wanted config is not on this node",
        next: "oc get mc rendered-worker-b",
        sicken: |root| {
            let seen = json!({"version": 1, "node": "worker-0", "seen": 1_700_000_000,
                "current": "rendered-worker-a", "desired": "rendered-worker-b", "state": "Working"});
            root.write("var/lib/mco-rescue/annotations.json", &seen.to_string());
        },
    },
    Sick {
        id: "FP-04",
        code: WARNING,
        what: "bootstrap's config is not the cluster's",
        next: "mco-rescue status --for-cluster",
        sicken: |root| root.write("etc/machine-config-daemon/bootstrapconfigdiff", "-a\n+b\n"),
    },
    Sick {
        id: "FP-04",
        code: FINE,
        what: "a config in the cache is damaged",
        next: "mco-rescue cache list",
        sicken: |root| {
            import(root, &prepared_for("OVNKubernetes", "rendered-worker-c"));
            let cache = fs::read_dir(root.path("var/lib/mco-rescue/cache")).unwrap();
            let file = cache.map(|entry| entry.unwrap().path()).next().unwrap();
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, &text[..text.len() / 2]).unwrap();
        },
    },
    Sick {
        id: "FP-05",
        code: WARNING,
        what: "the OS image cannot be pulled",
        next: "vi /",
        sicken: |root| {
            root.write(
                "etc/containers/policy.json",
                r#"{"default": [{"type": "reject"}]}"#,
            )
        },
    },
    Sick {
        id: "FP-05",
        code: WARNING,
        what: "the OS image cannot be pulled",
        next: "cp /",
        sicken: |root| root.remove("etc/containers/policy.json"),
    },
    Sick {
        id: "FP-27",
        code: WARNING,
        what: "a pull secret cannot be used",
        next: "mco-rescue verify --root",
        sicken: |root| root.write("var/lib/kubelet/config.json", "{\"auths\": {\"quay"),
    },
    Sick {
        id: "FP-06",
        code: CRITICAL,
        what: "the authority of the cluster's servers has expired",
        next: "mco-rescue fetch --ca FILE",
        sicken: |root| root.write("etc/kubernetes/ca.crt", &certificate("root-ca", 2010, 2020)),
    },
    Sick {
        id: "FP-07",
        code: FINE,
        what: "kernels on /boot that no entry names",
        next: "ostree admin cleanup",
        sicken: kernels,
    },
    Sick {
        id: "FP-09",
        code: CRITICAL,
        what: "the kubelet's client certificate has expired",
        next: "oc get csr -o name | xargs oc adm certificate approve",
        sicken: |root| {
            let client = "var/lib/kubelet/pki/kubelet-client-current.pem";
            root.write(client, &certificate("system:node:worker-0", 2020, 2021));
        },
    },
    Sick {
        id: "FP-09",
        code: WARNING,
        what: "kubelet-ca.crt has expired",
        next: "oc get mcp",
        sicken: |root| {
            root.write(
                "etc/kubernetes/kubelet-ca.crt",
                &certificate("kubelet-signer", 2010, 2020),
            );
        },
    },
    Sick {
        id: "FP-10",
        code: CRITICAL,
        what: "1 file of the config is empty",
        next: "mco-rescue apply --root",
        sicken: |root| root.write("etc/pool.conf", ""),
    },
    Sick {
        id: "FP-10",
        code: CRITICAL,
        what: "the daemon's record cannot be read",
        next: "mco-rescue apply cached:NAME",
        sicken: |root| root.write("etc/machine-config-daemon/currentconfig", ""),
    },
    Sick {
        id: "FP-10",
        code: CRITICAL,
        what: "the first boot is not finished",
        next: "mco-rescue firstboot --complete",
        sicken: |root| {
            root.write(
                "etc/ignition-machine-config-encapsulated.json",
                &config().to_string(),
            );
        },
    },
    Sick {
        id: "FP-10",
        code: WARNING,
        what: "the store of container images is damaged",
        next: "mv /",
        sicken: |root| storage(root, ""),
    },
    Sick {
        id: "FP-10",
        code: WARNING,
        what: "the store of container images is damaged",
        next: "mv /",
        sicken: |root| storage(root, r#"[{"id": "bbbbbbbbbbbbbbbb"}]"#),
    },
    Sick {
        id: "FP-12",
        code: CRITICAL,
        what: "the cluster network is not that of the config",
        next: "mco-rescue apply cached:rendered-worker-b",
        sicken: |root| {
            root.apply(&prepared_for("OpenShiftSDN", "rendered-worker-a"));
            import(root, &prepared_for("OVNKubernetes", "rendered-worker-b"));
        },
    },
    Sick {
        id: "FP-12",
        code: CRITICAL,
        what: "the bridge br-ex is half-built",
        next: "mv /",
        sicken: |root| {
            ["br-ex", "ovs-if-br-ex"]
                .iter()
                .for_each(|name| keyfile(root, name))
        },
    },
    Sick {
        id: "FP-12",
        code: WARNING,
        what: "1 connection of NetworkManager is empty",
        next: "mv /",
        sicken: |root| {
            root.write(
                "etc/NetworkManager/system-connections/eno1.nmconnection",
                "",
            )
        },
    },
    Sick {
        id: "FP-15",
        code: CRITICAL,
        what: "the clock of this machine is behind",
        next: "date -u -s '2070-01-01 00:00:00'",
        sicken: |root| {
            let client = "var/lib/kubelet/pki/kubelet-client-current.pem";
            root.write(client, &certificate("system:node:worker-0", 2070, 2080));
        },
    },
];

/// Runs `doctor` on a simple terminal.
fn doctor(root: &TestRoot, args: &[&str]) -> Run {
    let mut command = root.command(&["doctor"]);
    command.args(args).env("TERM", "dumb").stdin(Stdio::null());
    Run::of(command.output().unwrap())
}

fn ids(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

/// What holds of every answer: it fits, it is plain, and nobody's secrets are in it.
fn is_fit_to_be_read_aloud(text: &str, context: &str) {
    assert!(text.is_ascii(), "{context}: {text}");
    for line in text.lines() {
        let label = line.trim_start().split("  ").next().unwrap();
        // Commands and the daemon's words are to be copied.
        let whole = ["Next", "then", "Says"].contains(&label);
        // A path is one word, and stays whole.
        let path = line.split_whitespace().count() <= 2;
        assert!(whole || path || line.len() <= 80, "{context}: {line:?}");
    }
    for secret in ["PRIVATE KEY", "c2VjcmV0", "topsecret"] {
        assert!(!text.contains(secret), "{context}: {text}");
    }
}

#[test]
fn a_healthy_node_has_nothing_and_is_told_what_was_looked_at() {
    let root = healthy();
    let run = doctor(&root, &[]).ok();
    let text = run.out();
    assert!(text.starts_with("Nothing found wrong with "), "{text}");
    for check in CHECKS {
        assert!(text.contains(check.id), "{}: {text}", check.id);
    }
    assert!(text.contains("Not looked at:\n"), "{text}");
    is_fit_to_be_read_aloud(&text, "healthy");
    let report = doctor(&root, &["--output", "json"]).ok().json();
    assert_eq!(report["schema"], "mco-rescue/doctor/v1");
    assert_eq!(report["worst"], Value::Null);
    assert_eq!(report["checks"].as_array().unwrap().len(), CHECKS.len());
}

#[test]
fn every_sickness_is_found_and_leads_to_a_command() {
    for sick in SICK {
        let root = healthy();
        (sick.sicken)(&root);
        let before = root.everything();
        let text = doctor(&root, &[]).out();
        let context = format!("{} {}", sick.id, sick.what);
        let report = doctor(&root, &["--output", "json"]).exits(sick.code).json();
        assert_eq!(
            root.everything(),
            before,
            "{context}: something was changed"
        );

        let findings = report["findings"].as_array().unwrap();
        let found = findings
            .iter()
            .find(|one| one["id"] == sick.id && one["what"].as_str().unwrap().contains(sick.what));
        let found = found.unwrap_or_else(|| panic!("{context}: {report:#}"));
        let commands = found["next"].as_array().unwrap();
        let has = |part: &str| {
            commands
                .iter()
                .any(|one| one.as_str().unwrap().starts_with(part))
        };
        assert!(has(sick.next), "{context}: {found:#}");
        assert!(
            !found["evidence"].as_array().unwrap().is_empty(),
            "{context}"
        );
        assert!(!found["means"].as_str().unwrap().is_empty(), "{context}");
        for one in findings {
            let what = one["what"].as_str().unwrap();
            assert!(what.len() <= WHAT, "{context}: {what}");
        }

        is_fit_to_be_read_aloud(&text, &context);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("Found: "), "{context}: {text}");
        let worst = &findings[0];
        let heading = format!(
            "{} {}: {}",
            worst["severity"].as_str().unwrap().to_ascii_uppercase(),
            worst["id"].as_str().unwrap(),
            worst["what"].as_str().unwrap()
        );
        assert_eq!(lines[1], heading, "{context}");
        assert!(
            lines[2].trim_start().starts_with("Next "),
            "{context}: {text}"
        );
    }
}

#[test]
fn a_kernel_that_would_not_fit_on_boot_is_found() {
    let root = healthy();
    kernels(&root);
    // A hole: it takes no room here.
    let kernel = File::create(root.path("boot/ostree/rhcos-a/vmlinuz")).unwrap();
    kernel.set_len(1 << 42).unwrap();
    let report = doctor(&root, &["--output", "json"]).exits(WARNING).json();
    let found = finding(&report, "FP-07");
    assert!(
        found["what"].as_str().unwrap().starts_with("/boot lacks "),
        "{found:#}"
    );
    let status = found["next"][0].as_str().unwrap();
    assert!(
        status.starts_with("ostree admin status --sysroot="),
        "{status}"
    );
}

#[test]
fn the_worst_comes_first() {
    let root = healthy();
    root.write("etc/pool.conf", "edited\n");
    kernels(&root);
    root.write("etc/kubernetes/ca.crt", &certificate("root-ca", 2010, 2020));
    let report = doctor(&root, &["--output", "json"]).exits(CRITICAL).json();
    assert_eq!(ids(&report), ["FP-06", "FP-03", "FP-07"]);
    assert_eq!(report["worst"], "critical");
}

#[test]
fn what_the_daemon_will_say_of_drift_is_in_the_finding() {
    let root = healthy();
    root.write("etc/pool.conf", "edited\n");
    let report = doctor(&root, &["--output", "json"]).exits(WARNING).json();
    let verify = root.run(&["verify", "--output", "json"]).exits(3).json();
    assert_eq!(report["findings"][0]["daemon"], verify["verdict"]);
    assert!(
        verify["verdict"]
            .as_str()
            .unwrap()
            .contains("content mismatch")
    );
}

#[test]
fn an_interrupted_run_comes_first() {
    let root = healthy();
    let config = root.config(&prepared_for("OVNKubernetes", "rendered-worker-b"));
    let killed = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=syncfs"])
        .args([
            "-e",
            "inject=syncfs:signal=SIGKILL:when=2",
            PROGRAM,
            "--root",
        ])
        .arg(root.dir())
        .args(["apply", "--yes", config.path()])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status();
    if killed.is_err() {
        return say("SKIP: strace is not installed");
    }
    let report = doctor(&root, &["--output", "json"]).exits(CRITICAL).json();
    let first = &report["findings"][0];
    assert_eq!(first["what"], "a run of mco-rescue is half-way");
    assert!(
        first["next"][0]
            .as_str()
            .unwrap()
            .starts_with("mco-rescue recover")
    );
    root.run(&["recover"]).ok();
    doctor(&root, &[]).ok();
}

#[test]
fn what_cannot_be_looked_at_is_said_and_keeps_nothing_back() {
    let root = TestRoot::empty();
    let run = doctor(&root, &[]).exits(WARNING);
    assert!(
        run.out().contains("there is no system at this root"),
        "{}",
        run.out()
    );
    assert!(run.out().contains("Not looked at:\n"), "{}", run.out());
    // A cache that is no directory is not looked at, and the drift is found all the same.
    let root = healthy();
    root.write("etc/pool.conf", "edited\n");
    root.write("var/lib/mco-rescue/annotations.json", "no json");
    let report = doctor(&root, &["--output", "json"]).exits(WARNING).json();
    assert_eq!(ids(&report), ["FP-03"]);
}

#[test]
fn a_file_that_only_root_may_read_is_said_without_root() {
    if !support::is_root() {
        return say("SKIP: giving a file to root needs root");
    }
    let root = healthy();
    fs::set_permissions(
        root.dir(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let mut command = root.command(&["doctor", "--output", "json"]);
    let command = std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let output = command.stdin(Stdio::null()).output();
    let Ok(output) = output else {
        return say("SKIP: the program is where nobody may run it");
    };
    let report = Run::of(output).json();
    let check = |id: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks
            .iter()
            .find(|check| check["id"] == id)
            .unwrap()
            .clone()
    };
    let unseen = check("FP-09")["unseen"].to_string();
    assert!(unseen.contains("kubelet-client-current.pem"), "{report:#}");
}

#[test]
fn one_check_is_explained_in_depth_however_its_id_is_written() {
    for check in CHECKS {
        let root = TestRoot::empty();
        let text = doctor(&root, &[check.id]).ok().out();
        assert!(
            text.starts_with(&format!("{}: {}\n", check.id, check.title)),
            "{text}"
        );
        assert!(text.lines().count() > 8, "{text}");
        is_fit_to_be_read_aloud(&text, check.id);
    }
    let root = TestRoot::empty();
    assert_eq!(
        doctor(&root, &["fp-3"]).ok().out(),
        doctor(&root, &["FP-03"]).ok().out()
    );
    let wrong = doctor(&root, &["FP-99"]).exits(1);
    assert!(wrong.err().contains("FP-03"), "{}", wrong.err());
    let json = doctor(&root, &["FP-03", "--output", "json"]).ok().json();
    assert_eq!(json["schema"], "mco-rescue/doctor-check/v1");
}

#[test]
fn letters_beyond_ascii_come_only_where_the_terminal_has_them() {
    let root = healthy();
    let name = "etc/NetworkManager/system-connections/caf\u{e9}.nmconnection";
    root.write(name, "");
    let with = |language: &str, terminal: &str| {
        let mut command = root.command(&["doctor"]);
        let command = command
            .env_remove("LC_ALL")
            .env_remove("LC_CTYPE")
            .env("LANG", language);
        Run::of(
            command
                .env("TERM", terminal)
                .stdin(Stdio::null())
                .output()
                .unwrap(),
        )
        .out()
    };
    assert!(with("C.UTF-8", "xterm").contains('\u{e9}'));
    for (language, terminal) in [("C", "xterm"), ("C.UTF-8", "dumb"), ("C.UTF-8", "vt220")] {
        let text = with(language, terminal);
        assert!(
            text.is_ascii() && text.contains("caf\\u{e9}"),
            "{language} {terminal}: {text}"
        );
    }
}

/// On a booted node, with programs that answer as the real ones do.
fn on_a_node(test: impl FnOnce(&OstreeNode) + Send) {
    with_mounts(|| {
        let node = OstreeNode::new();
        furnish(&node.root);
        fs::create_dir_all(node.root.path("run/multus/cni/net.d")).unwrap();
        node.root
            .write("run/multus/cni/net.d/10-ovn-kubernetes.conf", "{}\n");
        node.root.apply(&config());
        test(&node);
    });
}

fn of_node(node: &OstreeNode, code: i32) -> Value {
    node.run(&["doctor", "--output", "json"]).exits(code).json()
}

fn finding<'a>(report: &'a Value, id: &str) -> &'a Value {
    let mut findings = report["findings"].as_array().unwrap().iter();
    let found = findings.find(|one| one["id"] == id);
    found.unwrap_or_else(|| panic!("no {id}: {report:#}"))
}

#[test]
fn a_healthy_node_that_runs_has_nothing() {
    on_a_node(|node| {
        let report = of_node(node, FINE);
        assert_eq!(ids(&report), Vec::<String>::new(), "{report:#}");
        assert_eq!(
            node.calls(),
            Vec::<String>::new(),
            "nothing was told to do anything"
        );
    });
}

#[test]
fn a_record_that_was_never_booted_is_found() {
    on_a_node(|node| {
        let record = "etc/machine-config-daemon/currentconfig";
        let text = node.root.read(record).replace(IMAGE, NEXT);
        node.root.write(record, &text);
        let report = of_node(node, CRITICAL);
        let found = finding(&report, "FP-01");
        assert_eq!(found["what"], "the recorded OS image does not run");
        let daemon = found["daemon"].as_str().unwrap();
        assert!(daemon.contains("expected target osImageURL"), "{daemon}");
        assert_eq!(found["next"][1], "mco-rescue apply --reboot");
        assert_eq!(node.calls(), Vec::<String>::new());
    });
}

#[test]
fn an_os_that_is_staged_waits_for_a_reboot() {
    on_a_node(|node| {
        let record = "etc/machine-config-daemon/currentconfig";
        let text = node.root.read(record).replace(IMAGE, NEXT);
        node.root.write(record, &text);
        let staged =
            format!("image=ostree-unverified-registry:{NEXT}\npackages=\"\"\nremovals=\"\"\n");
        node.root.write("stub/staged", &staged);
        let report = of_node(node, WARNING);
        let found = finding(&report, "FP-01");
        assert_eq!(found["what"], "what the record says waits for a reboot");
        assert_eq!(found["next"][0], "systemctl reboot");
    });
}

#[test]
fn kernel_arguments_that_are_not_in_force_are_found() {
    on_a_node(|node| {
        let mut with = config();
        with["spec"]["kernelArguments"] = json!(["nosmt"]);
        node.root
            .write("etc/machine-config-daemon/currentconfig", &with.to_string());
        let report = of_node(node, CRITICAL);
        let found = finding(&report, "FP-01");
        assert_eq!(found["what"], "recorded kernel arguments are not in force");
        assert!(
            found["daemon"]
                .as_str()
                .unwrap()
                .ends_with("missing expected kernel arguments: [nosmt]")
        );
    });
}

#[test]
fn a_shutdown_that_could_not_write_the_os_is_found() {
    on_a_node(|node| {
        let stamp = "error: Installing kernel: regfile copy: No space left on device\n";
        node.root.write("boot/ostree/finalize-failure.stamp", stamp);
        let report = of_node(node, CRITICAL);
        let found = finding(&report, "FP-01");
        assert!(
            found["evidence"][0]["said"]
                .as_str()
                .unwrap()
                .contains("No space left")
        );
    });
}

#[test]
fn a_disk_of_a_node_is_judged_by_its_files() {
    let outer = TestRoot::empty();
    let place = format!("{BOOTED}.0");
    fs::create_dir(outer.path(&place)).unwrap();
    let origin = |image: &str| {
        format!("[origin]\ncontainer-image-reference=ostree-unverified-registry:{image}\n")
    };
    let inside = |path: &str| format!("{place}/{path}");
    let sysroot = inside(&format!(
        "sysroot/ostree/deploy/rhcos/deploy/{place}.origin"
    ));
    outer.write(
        &inside("etc/machine-config-daemon/currentconfig"),
        &config().to_string(),
    );
    outer.write(
        &inside("etc/machine-id"),
        "0123456789abcdef0123456789abcdef\n",
    );
    outer.write(&inside("var/lib/x"), "");
    let run = || {
        let mut command = Command::new(PROGRAM);
        let command = command
            .arg("--root")
            .arg(outer.path(&place))
            .args(["doctor", "--output", "json"]);
        Run::of(command.stdin(Stdio::null()).output().unwrap()).json()
    };
    outer.write(&sysroot, &origin(IMAGE));
    let report = run();
    assert!(!ids(&report).contains(&"FP-01".to_owned()), "{report:#}");
    outer.write(&sysroot, &origin(NEXT));
    let report = run();
    let found = finding(&report, "FP-01");
    assert_eq!(found["what"], "the recorded OS image does not run");
    assert!(
        found["evidence"][0]["said"]
            .as_str()
            .unwrap()
            .contains(NEXT)
    );
}

#[test]
fn a_mounted_disk_is_seen_whole() {
    let Some(disk) = Sysroot::new() else { return };
    fs::remove_file(disk.0.path("sysroot")).unwrap();
    assert!(disk.deploy(&["--karg=number=1".to_owned()]));
    fs::create_dir_all(disk.0.path("ostree/deploy/os/var/lib")).unwrap();
    let deployments = fs::read_dir(disk.0.path("ostree/deploy/os/deploy")).unwrap();
    let mut deployments = deployments.map(|entry| entry.unwrap().path());
    let etc = deployments.find(|path| path.is_dir()).unwrap().join("etc");
    fs::create_dir_all(etc.join("machine-config-daemon")).unwrap();
    fs::write(etc.join("machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
    let files = json!({"storage": {"files": [file("/etc/machine-id2", 0o644, "x")]}});
    let mut wanted = machine_config("rendered-worker-a", files);
    wanted["spec"]["osImageURL"] = "".into();
    wanted["spec"]["kernelArguments"] = json!(["number=1", "number=2"]);
    fs::write(
        etc.join("machine-config-daemon/currentconfig"),
        wanted.to_string(),
    )
    .unwrap();

    let secret = "ostree/deploy/os/var/lib/kubelet/config.json";
    disk.0.write(secret, "{");

    let report = doctor(&disk.0, &["--output", "json"])
        .exits(CRITICAL)
        .json();
    assert_eq!(report["root"], disk.0.dir().to_str().unwrap());
    // The commands that are told name files that are there for others too.
    let command = finding(&report, "FP-27")["next"][1].as_str().unwrap();
    assert_eq!(command, format!("ls -l {}", disk.0.path(secret).display()));
    let found = finding(&report, "FP-01");
    let said = found["daemon"].as_str().unwrap();
    assert!(
        said.ends_with("missing expected kernel arguments: [number=2]"),
        "{said}"
    );
    let checks = report["checks"].as_array().unwrap().iter();
    let unseen: Vec<&Value> = checks
        .filter(|check| ["FP-07", "FP-13"].iter().any(|id| check["id"] == *id))
        .map(|check| &check["unseen"])
        .collect();
    assert_eq!(
        unseen,
        [&json!([]), &json!([])],
        "kernels and deployments are seen"
    );
}

#[test]
fn an_rpm_ostree_that_does_not_answer_is_found() {
    on_a_node(|node| {
        node.program(
            "rpm-ostree",
            "echo 'error: Could not activate remote peer' >&2; exit 1",
        );
        let report = of_node(node, WARNING);
        let found = finding(&report, "FP-14");
        assert_eq!(found["what"], "rpm-ostree does not answer");
        assert!(
            found["next"][0]
                .as_str()
                .unwrap()
                .starts_with("systemctl status rpm-ostreed")
        );
    });
}

#[test]
fn a_daemon_that_was_killed_for_want_of_memory_is_told_apart() {
    on_a_node(|node| {
        node.program(
            "rpm-ostree",
            "echo 'error: Bus owner changed, aborting' >&2; exit 1",
        );
        let answer = r#"case $* in
            *Result*) printf 'LoadState=loaded\nResult=oom-kill\nConditionResult=yes\nExecMainStatus=9\n' ;;
            *) exit 1 ;; esac"#;
        node.program("systemctl", answer);
        let report = of_node(node, WARNING);
        let found = finding(&report, "FP-14");
        assert!(
            found["evidence"][0]["said"]
                .as_str()
                .unwrap()
                .contains("out of memory"),
            "{found:#}"
        );
        assert_eq!(found["next"][0], "systemctl stop kubelet crio");
    });
}

#[test]
fn a_running_transaction_is_only_a_notice() {
    on_a_node(|node| {
        let real = node.root.read("usr/sbin/rpm-ostree");
        let busy = real.replace(
            r#""transaction": null"#,
            r#""transaction": ["Rebase", ":1.9", "/org/projectatomic/rpmostree1/rhcos"]"#,
        );
        node.program("rpm-ostree", busy.trim_start_matches("#!/bin/sh\n"));
        let report = of_node(node, FINE);
        let found = finding(&report, "FP-14");
        assert_eq!(found["severity"], "notice");
        assert!(
            found["evidence"][0]["said"]
                .as_str()
                .unwrap()
                .contains("Rebase")
        );
    });
}

#[test]
fn a_first_boot_that_waits_for_an_image_is_found() {
    on_a_node(|node| {
        let answer = r#"case $* in
            *ActiveState,SubState*) printf 'Id=machine-config-daemon-pull.service\nActiveState=activating\nSubState=auto-restart\n' ;;
            *) exit 1 ;; esac"#;
        node.program("systemctl", answer);
        let report = of_node(node, CRITICAL);
        let found = finding(&report, "FP-05");
        assert_eq!(found["what"], "the first boot waits for an image");
    });
}

/// A root whose attributes are taken away before it is removed.
struct Flagged(TestRoot);

impl Drop for Flagged {
    fn drop(&mut self) {
        let mut command = Command::new("chattr");
        let _ = command
            .args(["-R", "-ia"])
            .arg(self.0.dir())
            .stderr(Stdio::null())
            .status();
    }
}

#[test]
fn a_file_that_may_not_be_changed_is_found_in_the_config_and_in_an_old_deployment() {
    let root = Flagged(healthy());
    let old = format!("sysroot/ostree/deploy/rhcos/deploy/{BOOTED}.0/etc/agent.conf");
    root.0.write(&old, "");
    let set = |path: &str| {
        let mut command = Command::new("chattr");
        let command = command
            .arg("+i")
            .arg(root.0.path(path))
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !set("etc/pool.conf") {
        return say("SKIP: chattr is missing, or sets no flags here");
    }
    let report = doctor(&root.0, &["--output", "json"]).exits(WARNING).json();
    let found = finding(&report, "FP-13");
    assert_eq!(found["what"], "a path of the config may not be changed");
    let next = found["next"][0].as_str().unwrap();
    assert!(
        next.starts_with("mco-rescue apply --clear-immutable"),
        "{next}"
    );

    assert!(set(&old));
    let report = doctor(&root.0, &["--output", "json"]).exits(WARNING).json();
    let findings = report["findings"].as_array().unwrap().iter();
    let next: Vec<&str> = findings.filter_map(|one| one["next"][0].as_str()).collect();
    assert!(
        next.contains(&format!("chattr -ia {}/{old}", root.0.dir().display()).as_str()),
        "{report:#}"
    );
}
