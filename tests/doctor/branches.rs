//! `doctor`, branch by branch: every finding of the checks FP-02 to FP-15 that no other test meets, and the healthy node
//! beside it.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::support::http::{Authority, Response, Routes, Server, VALID, Years};
use crate::support::mcs::{ca, rendered, served};
use crate::support::mounts::{mount, with_mounts};
use crate::support::ostree_node::{BOOTED, IMAGE, NEXT, OstreeNode};
use crate::support::{
    self, Config, PROGRAM, Run, TestRoot, by_operator, file, kubelet_unit, machine_config, say,
};
use base64::Engine;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

/// Exit codes.
const FINE: i32 = 0;
const WARNING: i32 = 3;
const CRITICAL: i32 = 6;

const RECORD: &str = "etc/machine-config-daemon/currentconfig";
const CLIENT: &str = "var/lib/kubelet/pki/kubelet-client-current.pem";
const SERVING: &str = "var/lib/kubelet/pki/kubelet-server-current.pem";
const ETCD: &str = "etc/kubernetes/static-pod-resources/etcd-certs/secrets/etcd-all-certs";
const POLICY: &str = "etc/containers/policy.json";
const REGISTRIES: &str = "etc/containers/registries.conf";
const SECRET: &str = "var/lib/kubelet/config.json";
const KEYFILES: &str = "etc/NetworkManager/system-connections";
const DAY: Duration = Duration::from_secs(86_400);

fn signed(name: &str, from: SystemTime, until: SystemTime) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = from.into();
    params.not_after = until.into();
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem()
}

/// Valid until so many days from now; of days before now, expired, and of none an hour ago.
fn certificate(name: &str, days: i64) -> String {
    let now = SystemTime::now();
    let span = DAY * u32::try_from(days.abs()).unwrap();
    let until = match days {
        1.. => now + span,
        0 => now - DAY / 24,
        ..0 => now - span,
    };
    signed(name, now - DAY * 4000, until)
}

fn prepared_for(network: &str, name: &str) -> Value {
    let unit = format!("[Service]\nExecStart=/usr/local/bin/configure-ovs.sh {network}\n");
    let mut config = machine_config(
        name,
        json!({
            "storage": {"files": [file("/etc/pool.conf", 0o644, "a\n"), file("/etc/other.conf", 0o600, "b\n")]},
            "systemd": {"units": [{"name": "ovs-configuration.service", "contents": unit}, kubelet_unit()]},
        }),
    );
    config["spec"]["osImageURL"] = IMAGE.into();
    config
}

fn config() -> Value {
    prepared_for("OVNKubernetes", "rendered-worker-a")
}

/// What every node has besides its config; it boots images.
fn furnish(root: &TestRoot) {
    root.write(
        POLICY,
        r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
    );
    root.write("home/core/.ssh/authorized_keys", "ssh-ed25519 AAAA a\n");
    root.write("etc/resolv.conf", "nameserver 192.0.2.1\n");
    root.write(
        SECRET,
        r#"{"auths": {"quay.example": {"auth": "c2VjcmV0"}}}"#,
    );
    root.write("etc/kubernetes/cni/net.d/10-ovn-kubernetes.conf", "{}\n");
    root.write(CLIENT, &certificate("system:node:worker-0", 20));
    root.write(SERVING, &certificate("system:node:worker-0", 20));
    root.write(
        "etc/kubernetes/kubelet-ca.crt",
        &certificate("kubelet-signer", 4000),
    );
    root.write(
        &format!("{ETCD}/etcd-peer-a.crt"),
        &certificate("etcd", 300),
    );
    fs::create_dir_all(root.path("usr/etc")).unwrap();
}

/// A copy of a root, as it is.
fn copy(of: &TestRoot) -> TestRoot {
    let root = TestRoot::empty();
    let mut command = Command::new("cp");
    command.arg("-a").arg(of.dir().join(".")).arg(root.dir());
    assert!(command.status().unwrap().success());
    root
}

fn healthy() -> TestRoot {
    let root = TestRoot::new();
    furnish(&root);
    root.apply(&config());
    root
}

fn import(root: &TestRoot, config: &Value) {
    let config = root.config(config);
    root.run(&["fetch", config.path()]).ok();
}

fn answer(run: Run) -> Value {
    assert!(
        [FINE, WARNING, CRITICAL].contains(&run.code()),
        "{}{}",
        run.out(),
        run.err()
    );
    run.json()
}

fn doctor(root: &TestRoot) -> Value {
    answer(root.run(&["doctor", "--output", "json"]))
}

fn of<'a>(report: &'a Value, id: &str) -> Vec<&'a Value> {
    let all = report["findings"].as_array().unwrap().iter();
    all.filter(|one| one["id"] == id).collect()
}

/// What a check could not look at.
fn unseen(report: &Value, id: &str) -> String {
    let mut checks = report["checks"].as_array().unwrap().iter();
    checks.find(|check| check["id"] == id).unwrap()["unseen"].to_string()
}

/// One branch: what is said, from what, and what to do; `ROOT` stands for the root's directory.
struct Branch {
    id: &'static str,
    severity: &'static str,
    what: &'static str,
    /// Parts of evidence and meaning.
    seen: &'static [&'static str],
    /// How the commands begin, all of them in order.
    next: &'static [&'static str],
}

impl Branch {
    /// The check finds this and nothing else, and no line is cut off on a terminal.
    #[track_caller]
    fn met_by(&self, report: &Value, place: &str) {
        let found = of(report, self.id);
        let [found] = found.as_slice() else {
            panic!("{} {}: {:#}", self.id, self.what, report["findings"]);
        };
        // A figure that others change meanwhile is left out at the end.
        let what = found["what"].as_str().unwrap();
        let begins = self.what.ends_with(' ') && what.starts_with(self.what);
        assert!(begins || what == self.what, "{found:#}");
        assert_eq!(found["severity"], self.severity, "{found:#}");
        assert!(self.what.len() <= mco_rescue::doctor::WHAT);
        for part in self.seen {
            let part = part.replace("ROOT", place);
            assert!(found.to_string().contains(&part), "no {part:?}: {found:#}");
        }
        let next = found["next"].as_array().unwrap().iter();
        let next: Vec<&str> = next.map(|one| one.as_str().unwrap()).collect();
        assert_eq!(next.len(), self.next.len(), "{found:#}");
        for (is, begins) in next.iter().zip(self.next) {
            let begins = begins.replace("ROOT", place);
            assert!(is.starts_with(&begins), "{is} is not {begins}: {found:#}");
        }
    }
}

/// Something done to a healthy root, and what is found then; nothing: it is healthy still.
struct Row {
    id: &'static str,
    done: fn(&TestRoot),
    found: Option<Branch>,
}

const fn sick(done: fn(&TestRoot), found: Branch) -> Row {
    Row {
        id: found.id,
        done,
        found: Some(found),
    }
}

const fn well(id: &'static str, done: fn(&TestRoot)) -> Row {
    Row {
        id,
        done,
        found: None,
    }
}

fn all_met(rows: &[Row]) {
    let template = healthy();
    let report = doctor(&template);
    assert_eq!(report["findings"], json!([]));
    assert!(unseen(&report, "FP-04").contains("nothing here tells it"));
    for (number, row) in rows.iter().enumerate() {
        let root = copy(&template);
        (row.done)(&root);
        let report = doctor(&root);
        match &row.found {
            Some(branch) => branch.met_by(&report, root.dir().to_str().unwrap()),
            None => assert_eq!(of(&report, row.id), Vec::<&Value>::new(), "row {number}"),
        }
    }
}

/// Two days before the end.
const NO_CONFIG: [Row; 3] = [
    sick(
        |root| root.remove(RECORD),
        Branch {
            id: "FP-02",
            severity: "notice",
            what: "no MachineConfig is recorded here",
            seen: &["Ignition has written no config", "no node of a cluster"],
            next: &[
                "mco-rescue fetch --from-media --root ROOT",
                "mco-rescue apply --latest --root ROOT",
            ],
        },
    ),
    sick(
        |root| {
            root.remove(RECORD);
            root.write("etc/.ignition-result.json", "{}");
            root.write("etc/machine-id", "");
        },
        Branch {
            id: "FP-02",
            severity: "critical",
            what: "no config has reached this node yet",
            seen: &["Ignition has written a config", "it never joins"],
            next: &[
                "mco-rescue fetch --from-media --root ROOT",
                "mco-rescue apply --latest --root ROOT",
            ],
        },
    ),
    well("FP-02", |root| {
        root.remove(RECORD);
        root.write("etc/mcs-machine-config-content.json", &config().to_string());
    }),
];

#[test]
fn a_node_without_a_config_is_told_from_one_that_lost_its_record() {
    all_met(&NO_CONFIG);
}

/// Rendered by the operator's rules, and changed afterwards.
fn altered() -> Value {
    let mut config = by_operator("worker", "a\n");
    config["spec"]["kernelArguments"] = json!(["quiet"]);
    config
}

/// What the API said of the node last.
fn annotated(root: &TestRoot, current: &str, desired: &str) {
    let seen = json!({"version": 1, "node": "worker-0", "seen": 1_700_000_000, "current": current,
        "desired": desired, "state": "Done"});
    root.write("var/lib/mco-rescue/annotations.json", &seen.to_string());
}

const ALTERED: Branch = Branch {
    id: "FP-04",
    severity: "notice",
    what: "a config is not what its name says",
    seen: &[
        "cached:rendered-worker-",
        "the hash in the name is not that of the contents",
    ],
    next: &["oc get mc rendered-worker-"],
};

const NOT_FOUND: [Row; 10] = [
    sick(|root| import(root, &altered()), ALTERED),
    sick(
        |root| {
            import(root, &altered());
            root.remove(RECORD);
        },
        ALTERED,
    ),
    well("FP-04", |root| import(root, &by_operator("worker", "a\n"))),
    // A first boot leaves the record without its Ignition part.
    well("FP-04", |root| {
        let mut config = by_operator("worker", "a\n");
        config["spec"]["config"] = json!({"ignition": {"version": "3.4.0"}});
        root.write(RECORD, &config.to_string());
    }),
    well("FP-04", |root| {
        annotated(root, "rendered-worker-a", "rendered-worker-a")
    }),
    // These are told by others.
    well("FP-04", |root| {
        import(root, &prepared_for("OVNKubernetes", "rendered-worker-b"));
        annotated(root, "rendered-worker-a", "rendered-worker-b");
        root.remove("etc/kubernetes/kubeconfig");
    }),
    well("FP-04", |root| {
        annotated(root, "rendered-worker-a", "rendered-worker-a");
        import(root, &config());
        root.write(RECORD, "");
    }),
    well("FP-04", |root| {
        annotated(root, "", "");
        root.write("etc/machine-config-daemon/node-annotations.json", "{");
    }),
    well("FP-04", |root| {
        let mut refused = prepared_for("OVNKubernetes", "rendered-worker-b");
        refused["spec"]["fips"] = true.into();
        import(root, &refused);
        annotated(root, "rendered-worker-a", "rendered-worker-b");
    }),
    well("FP-04", |root| annotated(root, "", "")),
];

#[test]
fn a_config_that_was_altered_or_degrades_the_daemon_is_told_once() {
    all_met(&NOT_FOUND);
}

const fn refused(seen: &'static [&'static str], next: &'static [&'static str]) -> Branch {
    Branch {
        id: "FP-05",
        severity: "warning",
        what: "the OS image cannot be pulled",
        seen,
        next,
    }
}

const BLOCKED: &str = "[[registry]]\nlocation = \"quay.example\"\nblocked = true\n";

const PULL: [Row; 11] = [
    sick(
        |root| root.write(POLICY, r#"{"default": [{"type": "reject"}]}"#),
        refused(
            &[
                "/etc/containers/policy.json",
                "the signature policy rejects it",
                "Nothing needs it now",
            ],
            &["vi ROOT/etc/containers/policy.json"],
        ),
    ),
    sick(
        |root| root.write(POLICY, "{"),
        refused(
            &["reading the signature policy"],
            &["vi ROOT/etc/containers/policy.json"],
        ),
    ),
    sick(
        |root| root.remove(POLICY),
        refused(
            &["is missing, and without it nothing can be pulled"],
            &["cp ROOT/usr/etc/containers/policy.json ROOT/etc/containers/policy.json"],
        ),
    ),
    sick(
        |root| root.write(REGISTRIES, BLOCKED),
        refused(
            &[
                "no place is asked",
                "origin quay.example/os",
                "quay.example is blocked in /etc/containers/registries.conf",
            ],
            &["vi ROOT/etc/containers/registries.conf"],
        ),
    ),
    // Its mirror is for tags alone.
    sick(
        |root| {
            let mirror = "[[registry.mirror]]\nlocation = \"mirror.example/q\"\npull-from-mirror = \"tag-only\"\n";
            let file = "etc/containers/registries.conf.d/10-mirrors.conf";
            root.write(file, &format!("{BLOCKED}{mirror}"));
        },
        refused(
            &["mirror mirror.example/q/os", "10-mirrors.conf"],
            &["vi ROOT/etc/containers/registries.conf.d/10-mirrors.conf"],
        ),
    ),
    well("FP-05", |root| {
        let mirror = "[[registry.mirror]]\nlocation = \"mirror.example/q\"\n";
        root.write(REGISTRIES, &format!("{BLOCKED}{mirror}"));
    }),
    sick(
        |root| root.write("etc/containers/registries.conf.d/bad.conf", "[[registry"),
        refused(
            &["reading /etc/containers/registries.conf.d/bad.conf"],
            &["vi ROOT/etc/containers/registries.conf.d/bad.conf"],
        ),
    ),
    sick(
        |root| {
            root.write(
                REGISTRIES,
                "[registries.search]\nregistries = ['quay.example']\n",
            )
        },
        refused(
            &["it is of version 1"],
            &["vi ROOT/etc/containers/registries.conf"],
        ),
    ),
    sick(
        |root| {
            let text = root.read(RECORD).replace(IMAGE, "quay.example/OS@sha256:0");
            root.write(RECORD, &text);
        },
        refused(&["the recorded config"], &["mco-rescue show --root ROOT"]),
    ),
    // A secret that cannot be used is FP-27's.
    well("FP-05", |root| root.write(SECRET, "{\"auths\": {\"quay")),
    // What boots no images pulls none.
    well("FP-05", |root| {
        fs::remove_dir(root.path("usr/etc")).unwrap();
        root.remove(POLICY);
    }),
];

#[test]
fn everything_that_stops_a_pull_is_told_with_its_file() {
    all_met(&PULL);
}

#[test]
fn a_pull_secret_that_cannot_be_used_is_told_once() {
    let root = healthy();
    root.write(SECRET, "{\"auths\": {\"quay");
    let report = doctor(&root);
    Branch {
        id: "FP-27",
        severity: "warning",
        what: "a pull secret cannot be used",
        seen: &["/var/lib/kubelet/config.json", "it is no JSON"],
        next: &[
            "mco-rescue verify --root ROOT",
            "ls -l ROOT/var/lib/kubelet/config.json",
        ],
    }
    .met_by(&report, root.dir().to_str().unwrap());
    assert_eq!(
        report["findings"].as_array().unwrap().len(),
        1,
        "{report:#}"
    );
}

/// A pointer config with these authorities.
fn pointer(authorities: &[String]) -> String {
    let all = authorities.iter().map(|pem| {
        let text = base64::engine::general_purpose::STANDARD.encode(pem);
        json!({"source": format!("data:text/plain;charset=utf-8;base64,{text}")})
    });
    let all: Vec<Value> = all.collect();
    let config = json!({"ignition": {"version": "3.4.0",
        "config": {"merge": [{"source": "https://api-int.example:22623/config/worker"}]},
        "security": {"tls": {"certificateAuthorities": all}}}});
    config.to_string()
}

const fn distrusted(seen: &'static [&'static str]) -> Branch {
    Branch {
        id: "FP-06",
        severity: "critical",
        what: "the authority of the cluster's servers has expired",
        seen,
        next: &["date -u", "mco-rescue fetch --ca FILE --root ROOT"],
    }
}

const IGNITION: &str = "boot/ignition/config.ign";

const TRUST: [Row; 8] = [
    sick(
        |root| {
            root.remove(RECORD);
            root.write(IGNITION, &pointer(&[certificate("root-ca", -1)]));
        },
        distrusted(&[
            "/boot/ignition/config.ign",
            "CN=root-ca ended",
            "x509: certificate has expired",
        ]),
    ),
    sick(
        |root| {
            root.remove(RECORD);
            let user = "usr/lib/ignition/user.ign";
            root.write(user, &pointer(&[certificate("bootstrap-ca", -1)]));
        },
        distrusted(&["/usr/lib/ignition/user.ign", "CN=bootstrap-ca ended"]),
    ),
    // One that is good is enough, wherever it is.
    well("FP-06", |root| {
        root.remove(RECORD);
        let both = [certificate("old", -1), certificate("new", 100)];
        root.write(IGNITION, &pointer(&both));
    }),
    // After the first boot nobody asks it again.
    well("FP-06", |root| {
        root.write(IGNITION, &pointer(&[certificate("root-ca", -1)]))
    }),
    sick(
        |root| {
            let authorities = certificate("mcs-ca", -9);
            let known = json!({"version": 1, "url": "https://api-int.example:22623", "pool": "worker",
                "authorities": authorities, "answered": 1_700_000_000});
            root.write("var/lib/mco-rescue/server.json", &known.to_string());
        },
        distrusted(&["/var/lib/mco-rescue/server.json", "CN=mcs-ca ended"]),
    ),
    sick(
        |root| {
            let data = base64::engine::general_purpose::STANDARD.encode(certificate("api-ca", -9));
            let text = format!(
                "kind: Config\nclusters:\n- cluster:\n    certificate-authority-data: {data}\n"
            );
            root.write("etc/kubernetes/kubeconfig", &text);
        },
        distrusted(&["/etc/kubernetes/kubeconfig", "CN=api-ca ended"]),
    ),
    well("FP-06", |root| {
        let both = certificate("old", -1) + &certificate("new", 100);
        root.write("etc/kubernetes/ca.crt", &both);
    }),
    well("FP-06", |root| {
        root.write("etc/kubernetes/ca.crt", &certificate("new", 1))
    }),
];

#[test]
fn an_authority_is_out_of_date_when_none_of_its_file_is_valid() {
    all_met(&TRUST);
}

/// Kernels of this size, which are holes and take no room; the first is that of the boot entry.
fn kernels(root: &TestRoot, sizes: &[u64]) {
    for (name, size) in ["a", "b"].iter().zip(sizes) {
        let kernel = format!("boot/ostree/rhcos-{name}/vmlinuz");
        root.write(&kernel, "");
        let kernel = File::options().write(true).open(root.path(&kernel));
        kernel.unwrap().set_len(*size).unwrap();
    }
    root.write(
        "boot/loader/entries/ostree-1.conf",
        "title A\nversion 1\nlinux /ostree/rhcos-a/vmlinuz\noptions rw ostree=/ostree/boot.1/rhcos/a/0\n",
    );
}

const HUGE: u64 = 1 << 42;

const BOOT: [Row; 4] = [
    well("FP-07", |root| kernels(root, &[1])),
    sick(
        |root| kernels(root, &[1, 1]),
        Branch {
            id: "FP-07",
            severity: "notice",
            what: "kernels on /boot that no entry names",
            seen: &["/boot/ostree/rhcos-b", "1 MiB"],
            next: &["ostree admin cleanup --sysroot=ROOT"],
        },
    ),
    sick(
        |root| kernels(root, &[HUGE, HUGE]),
        Branch {
            id: "FP-07",
            severity: "notice",
            what: "/boot has room for the next OS only after a clean-up",
            seen: &[
                "can be removed",
                "4194304 MiB, for no boot entry",
                "4194304 MiB, for ostree-1",
            ],
            next: &[
                "ostree admin status --sysroot=ROOT",
                "ostree admin cleanup --sysroot=ROOT",
            ],
        },
    ),
    well("FP-07", |root| fs::create_dir(root.path("boot")).unwrap()),
];

#[test]
fn room_on_boot_that_a_clean_up_gives_is_told() {
    all_met(&BOOT);
}

#[test]
fn a_boot_that_is_not_mounted_is_told_with_the_command_that_mounts_it() {
    let root = healthy();
    assert!(unseen(&doctor(&root), "FP-07").contains("there is no /boot"));
    fs::create_dir(root.path("boot")).unwrap();
    let text = unseen(&doctor(&root), "FP-07");
    let place = root.dir().display();
    let command = format!(
        "mount -o ro /dev/disk/by-label/boot {place}/boot, then mco-rescue doctor --root {place} again"
    );
    assert!(text.contains(&command), "{text}");
    fs::remove_dir(root.path("usr/etc")).unwrap();
    assert_eq!(unseen(&doctor(&root), "FP-07"), "[]", "it boots no images");
}

const KUBECONFIG: &str = "etc/kubernetes/kubeconfig";

const NO_KUBECONFIG: Branch = Branch {
    id: "FP-61",
    severity: "warning",
    what: "the bootstrap kubeconfig is missing",
    seen: &[
        "cannot stat /etc/kubernetes/kubeconfig: stat /etc/kubernetes/kubeconfig: no such file or directory",
        "next update fails over it",
    ],
    next: &[
        "ssh core@OTHER-NODE sudo cat /etc/kubernetes/kubeconfig > ROOT/etc/kubernetes/kubeconfig",
        "chmod 0600 ROOT/etc/kubernetes/kubeconfig",
    ],
};

const BOOTSTRAP: [Row; 6] = [
    sick(|root| root.remove(KUBECONFIG), NO_KUBECONFIG),
    sick(
        |root| {
            root.remove(KUBECONFIG);
            root.link(KUBECONFIG, "nowhere");
        },
        NO_KUBECONFIG,
    ),
    sick(
        |root| {
            import(root, &prepared_for("OVNKubernetes", "rendered-worker-b"));
            annotated(root, "rendered-worker-a", "rendered-worker-b");
            root.remove(KUBECONFIG);
        },
        NO_KUBECONFIG,
    ),
    sick(
        |root| root.write(KUBECONFIG, ""),
        Branch {
            id: "FP-61",
            severity: "warning",
            what: "the bootstrap kubeconfig is empty",
            seen: &["0 bytes", "cannot ask for a certificate"],
            next: &["ssh core@OTHER-NODE sudo cat", "chmod 0600 ROOT"],
        },
    ),
    well("FP-61", |root| {
        root.remove(KUBECONFIG);
        root.write("etc/kubernetes/kept", "kind: Config\n");
        root.link(KUBECONFIG, "kept");
    }),
    // The first boot brings it.
    well("FP-61", |root| {
        root.remove(KUBECONFIG);
        root.remove(RECORD);
    }),
];

#[test]
fn a_kubeconfig_that_is_gone_is_found_wherever_status_speaks_of_it() {
    all_met(&BOOTSTRAP);
    for desired in ["rendered-worker-a", "rendered-worker-b"] {
        let root = healthy();
        import(&root, &prepared_for("OVNKubernetes", "rendered-worker-b"));
        annotated(&root, "rendered-worker-a", desired);
        root.remove(KUBECONFIG);
        let status = root.run(&["status"]).ok().out();
        assert!(status.contains("/etc/kubernetes/kubeconfig"), "{status}");
        assert_eq!(of(&doctor(&root), "FP-61").len(), 1);
    }
}

const CERTIFICATES: [Row; 8] = [
    sick(
        |root| root.write(CLIENT, &certificate("system:node:worker-0", -40)),
        Branch {
            id: "FP-09",
            severity: "critical",
            what: "the kubelet's client certificate has expired",
            seen: &[
                "kubeconfig is there: the kubelet asks for a new one",
                "40 days after the end",
                "Part of the existing bootstrap client certificate is expired",
                "approved, twice",
            ],
            next: &[
                "oc get csr -o name | xargs oc adm certificate approve # once the node has booted",
                "oc get csr -o name | xargs oc adm certificate approve # again, a minute later",
            ],
        },
    ),
    sick(
        |root| {
            root.write(CLIENT, &certificate("system:node:worker-0", 0));
            root.remove("etc/kubernetes/kubeconfig");
        },
        Branch {
            id: "FP-09",
            severity: "critical",
            what: "the kubelet's client certificate has expired",
            seen: &[
                "kubeconfig is missing: bring it from another node",
                "less than a day after the end",
            ],
            next: &["oc get csr", "oc get csr"],
        },
    ),
    sick(
        |root| root.write(SERVING, &certificate("system:node:worker-0", -1)),
        Branch {
            id: "FP-09",
            severity: "warning",
            what: "the kubelet's server certificate has expired",
            seen: &[
                "kubelet-server-current.pem",
                "1 day after the end",
                "oc logs, exec and debug fail",
            ],
            next: &["oc get csr -o name | xargs oc adm certificate approve"],
        },
    ),
    // Each one of them counts.
    sick(
        |root| {
            root.write(
                &format!("{ETCD}/etcd-serving-b.crt"),
                &certificate("etcd-b", -2),
            )
        },
        Branch {
            id: "FP-09",
            severity: "critical",
            what: "a certificate of etcd has expired",
            seen: &[
                "etcd-serving-b.crt",
                "CN=etcd-b until",
                "This member of etcd is not let in",
            ],
            next: &["oc get clusteroperator etcd"],
        },
    ),
    well("FP-09", |root| {
        root.write(&format!("{ETCD}/etcd-serving-b.key"), &certificate("k", -2))
    }),
    sick(
        |root| root.write(CLIENT, &certificate("system:node:worker-0", 1)),
        Branch {
            id: "FP-09",
            severity: "notice",
            what: "the kubelet's client certificate ends within two days",
            seen: &["kubelet-client-current.pem", "the node drops out then"],
            next: &["oc get csr"],
        },
    ),
    sick(
        |root| root.write(&format!("{ETCD}/etcd-peer-a.crt"), &certificate("etcd", 1)),
        Branch {
            id: "FP-09",
            severity: "notice",
            what: "a certificate of etcd ends within two days",
            seen: &["etcd-peer-a.crt"],
            next: &["oc get csr"],
        },
    ),
    // Of authorities one that is valid is enough.
    well("FP-09", |root| {
        let both = certificate("old", -1) + &certificate("kubelet-signer", 4000);
        root.write("etc/kubernetes/kubelet-ca.crt", &both);
    }),
];

#[test]
fn every_certificate_of_a_node_is_told_before_and_after_its_end() {
    all_met(&CERTIFICATES);
}

/// A connection of NetworkManager that holds a secret.
fn connection(root: &TestRoot, file: &str, id: &str) {
    let text = format!("[connection]\nid={id}\ntype=ovs-port\n[802-1x]\npassword=topsecret\n");
    root.write(&format!("{KEYFILES}/{file}.nmconnection"), &text);
}

const BRIDGE: [&str; 5] = [
    "br-ex",
    "ovs-if-br-ex",
    "ovs-port-br-ex",
    "ovs-if-phys0",
    "ovs-port-phys0",
];

const NETWORK: [Row; 5] = [
    // What is left over of an older boot has the connection's own id in its name.
    sick(
        |root| {
            connection(
                root,
                "ovs-if-br-ex-108d42c4-d0b9-4064-a40f-117e35fa1ef5",
                "ovs-if-br-ex",
            )
        },
        Branch {
            id: "FP-12",
            severity: "critical",
            what: "the bridge br-ex is half-built",
            seen: &["br-ex, ovs-port-br-ex, ovs-if-phys0, ovs-port-phys0"],
            next: &[
                "mv ROOT/etc/NetworkManager/system-connections/ovs-if-br-ex-108d42c4-d0b9-4064-a40f-117e35fa1ef5.nmconnection ROOT/root/",
            ],
        },
    ),
    well("FP-12", |root| {
        BRIDGE.iter().for_each(|name| connection(root, name, name))
    }),
    sick(
        |root| {
            root.write(&format!("{KEYFILES}/a.nmconnection"), " \n");
            root.write(&format!("{KEYFILES}/b.nmconnection"), "");
        },
        Branch {
            id: "FP-12",
            severity: "warning",
            what: "2 connections of NetworkManager are empty",
            seen: &["b.nmconnection"],
            next: &["mv ROOT/etc/NetworkManager/system-connections/a.nmconnection ROOT/root/"],
        },
    ),
    // The other network runs, and no config for it is at hand.
    sick(
        |root| {
            root.remove("etc/kubernetes/cni/net.d/10-ovn-kubernetes.conf");
            root.write("etc/cni/net.d/80-openshift-network.conf", "{}\n");
        },
        Branch {
            id: "FP-12",
            severity: "critical",
            what: "the cluster network is not that of the config",
            seen: &[
                "written by OpenShiftSDN",
                "is for OVNKubernetes",
                "no config for OpenShiftSDN",
            ],
            next: &[
                "mco-rescue plan FILE --root ROOT",
                "mco-rescue apply FILE --root ROOT",
            ],
        },
    ),
    // Which interfaces a disk will have, and what comes up on it, nobody knows.
    well("FP-12", |root| {
        root.remove("etc/kubernetes/cni/net.d/10-ovn-kubernetes.conf");
        root.write(
            &format!("{KEYFILES}/eno9.nmconnection"),
            "[connection]\nid=eno9\ntype=ethernet\ninterface-name=eno9\n",
        );
    }),
];

#[test]
fn connections_that_stop_the_network_are_told_with_the_files_of_this_root() {
    all_met(&NETWORK);
}

const EMPTIED: [Row; 1] = [sick(
    |root| {
        root.write("etc/pool.conf", "");
        root.write("etc/other.conf", "");
    },
    Branch {
        id: "FP-10",
        severity: "critical",
        what: "2 files of the config are empty",
        seen: &["/etc/other.conf", "/etc/pool.conf", "0 bytes"],
        next: &["mco-rescue apply --root ROOT"],
    },
)];

#[test]
fn files_that_a_power_cut_emptied_are_counted() {
    all_met(&EMPTIED);
}

/// Kills an apply of another config at the given call.
fn cut_off(root: &TestRoot, call: &str, nth: u32) -> bool {
    let config: Config = root.config(&prepared_for("OpenShiftSDN", "rendered-worker-b"));
    let status = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
        .arg(format!("trace={call}"))
        .arg("-e")
        .arg(format!("inject={call}:signal=SIGKILL:when={nth}"))
        .args([PROGRAM, "--root"])
        .arg(root.dir())
        .args(["apply", "--yes", config.path()])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status();
    status.is_ok()
}

#[test]
fn a_run_is_told_by_how_far_it_came() {
    let run = |severity, what| Branch {
        id: "FP-10",
        severity,
        what,
        seen: &["applying rendered-worker-b"],
        next: &["mco-rescue recover --root ROOT"],
    };
    let template = healthy();
    for (call, branch) in [
        (
            ("syncfs", 1),
            run("warning", "a run was cut off before it changed anything"),
        ),
        (
            ("syncfs", 2),
            run("critical", "a run of mco-rescue is half-way"),
        ),
        (
            ("unlinkat", 6),
            run("warning", "a finished run was not tidied up"),
        ),
    ] {
        let root = copy(&template);
        if !cut_off(&root, call.0, call.1) {
            return say("SKIP: strace is not installed");
        }
        branch.met_by(&doctor(&root), root.dir().to_str().unwrap());
        root.run(&["recover"]).ok();
        assert!(of(&doctor(&root), "FP-10").is_empty(), "{}", branch.what);
    }
}

#[test]
fn state_that_cannot_be_read_is_not_taken_for_healthy() {
    let root = healthy();
    for folder in [
        "var/lib/mco-rescue/journal.json",
        "var/lib/mco-rescue/cache/x.json",
        "etc/NetworkManager/system-connections/x.nmconnection",
        "var/lib/containers/storage/overlay-layers/layers.json",
    ] {
        fs::create_dir_all(root.path(folder)).unwrap();
    }
    root.remove(RECORD);
    fs::create_dir(root.path(RECORD)).unwrap();
    let report = doctor(&root);
    for (id, part) in [
        ("FP-02", "the records cannot be read"),
        ("FP-04", "configs: reading the cache"),
        ("FP-05", "how the image would be pulled"),
        ("FP-10", "whether a run is half-way"),
        ("FP-10", "the store of images"),
        ("FP-12", "connections: "),
        ("FP-13", "attributes of the config's files"),
    ] {
        let text = unseen(&report, id);
        assert!(text.contains(part), "{id}: {text}");
    }
}

/// On a booted node, with programs that answer as the real ones do.
fn on_a_node(test: impl FnOnce(&OstreeNode) + Send) {
    with_mounts(|| {
        let node = OstreeNode::new();
        furnish(&node.root);
        node.root.apply(&config());
        test(&node);
    });
}

fn of_node(node: &OstreeNode) -> Value {
    answer(node.run(&["doctor", "--output", "json"]))
}

#[track_caller]
fn is_well(node: &OstreeNode, id: &str) {
    let report = of_node(node);
    assert_eq!(of(&report, id), Vec::<&Value>::new());
}

/// Makes another image the recorded one.
fn record(node: &OstreeNode, from: &str, to: &str) {
    let text = node.root.read(RECORD).replace(from, to);
    node.root.write(RECORD, &text);
}

#[test]
fn a_failure_in_the_initramfs_is_told_until_a_run_makes_up_for_it() {
    on_a_node(|node| {
        let boot = |outcome: &str| {
            let text = json!({"schema": "mco-rescue/firstboot/v1", "outcome": outcome, "why": "asked for",
                "config": null, "phase": "fetching the config", "cause": "no route to api-int.example", "took": 9});
            node.root
                .write("run/mco-rescue/firstboot.json", &text.to_string());
        };
        boot("nothing");
        is_well(node, "FP-02");
        boot("failed");
        let later = SystemTime::now() + Duration::from_secs(60);
        let file = node.root.path("run/mco-rescue/firstboot.json");
        let set = |time| {
            File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_modified(time)
                .unwrap()
        };
        set(later);
        Branch {
            id: "FP-02",
            severity: "critical",
            what: "this boot could not apply its config",
            seen: &["while fetching the config", "no route to api-int.example"],
            next: &["mco-rescue fetch --from-media", "mco-rescue apply --latest"],
        }
        .met_by(&of_node(node), "");
        set(SystemTime::now() - DAY);
        is_well(node, "FP-02");
    });
}

const TO_PULL: &[&str] = &[
    "vi /etc/containers/policy.json",
    "mco-rescue pivot --os-from DIR",
];

#[test]
fn a_failure_in_the_initramfs_is_told_there() {
    on_a_node(|node| {
        node.root.write("etc/initrd-release", "ID=rhcos\n");
        for path in ["etc/passwd", "usr/bin/sh", "var/lib/x"] {
            node.root.write(&format!("sysroot/{path}"), "");
        }
        let report = || {
            let args = ["--root", "/sysroot", "doctor", "--output", "json"];
            answer(node.run(&args))
        };
        let next: &[&str] = &[
            "mco-rescue fetch --from-media --root /sysroot",
            "mco-rescue apply --latest --root /sysroot",
        ];
        let told = |what, seen| Branch {
            id: "FP-02",
            severity: "critical",
            what,
            seen,
            next,
        };
        let before = report();
        told("no config has reached this node yet", &["/currentconfig"]).met_by(&before, "");
        let server = unseen(&before, "FP-02");
        assert!(
            server.contains("whether the Machine Config Server answers"),
            "{server}"
        );
        let failed = json!({"schema": "mco-rescue/firstboot/v1", "outcome": "failed", "why": "asked for", "config": null,
            "phase": "applying it", "cause": "no space left on device", "took": 9});
        node.root
            .write("run/mco-rescue/firstboot.json", &failed.to_string());
        told(
            "this boot could not apply its config",
            &["while applying it", "no space left on device"],
        )
        .met_by(&report(), "");
    });
}

#[test]
fn an_image_that_the_node_needs_and_cannot_pull_is_critical() {
    on_a_node(|node| {
        is_well(node, "FP-05");
        node.root
            .write(POLICY, r#"{"default": [{"type": "reject"}]}"#);
        refused(&["Nothing needs it now"], TO_PULL).met_by(&of_node(node), "");
        record(node, IMAGE, NEXT);
        Branch {
            severity: "critical",
            ..refused(&["whatever the network does"], TO_PULL)
        }
        .met_by(&of_node(node), "");
        // What is staged is needed no more.
        let staged =
            format!("image=ostree-unverified-registry:{NEXT}\npackages=\"\"\nremovals=\"\"\n");
        node.root.write("stub/staged", &staged);
        refused(&["Nothing needs it now"], TO_PULL).met_by(&of_node(node), "");
        node.root.remove("stub/staged");

        // Nothing stops it, and the registry is not asked.
        node.root.write(
            POLICY,
            r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
        );
        let report = of_node(node);
        assert!(of(&report, "FP-05").is_empty(), "{report:#}");
        assert!(
            unseen(&report, "FP-05").contains(&format!("podman pull {NEXT}")),
            "{report:#}"
        );
        let anonymous = |seen| Branch {
            id: "FP-05",
            severity: "notice",
            what: "no pull secret for the place of the OS image",
            seen,
            next: &["mco-rescue verify", "mco-rescue pivot --os-from DIR"],
        };
        node.root.write(
            SECRET,
            r#"{"auths": {"other.example": {"auth": "c2VjcmV0"}}}"#,
        );
        anonymous(&[
            "/var/lib/kubelet/config.json",
            "has no entry for quay.example/os@sha256:2222",
        ])
        .met_by(&of_node(node), "");
        node.root.remove(SECRET);
        anonymous(&["/var/lib/kubelet/config.json", "is missing"]).met_by(&of_node(node), "");
        // A file without any entry, or that is none, is FP-27's.
        for text in ["{\"auths\": {}}", "{"] {
            node.root.write(SECRET, text);
            let report = of_node(node);
            assert!(of(&report, "FP-05").is_empty(), "{report:#}");
            assert_eq!(of(&report, "FP-27").len(), 1, "{report:#}");
        }
    });
}

#[test]
fn a_kernel_that_a_shutdown_cannot_write_is_critical_once_its_os_is_staged() {
    on_a_node(|node| {
        kernels(&node.root, &[1]);
        is_well(node, "FP-07");
        kernels(&node.root, &[HUGE]);
        let report = of_node(node);
        // How much it lacks depends on what others write there meanwhile.
        let lacks = |severity, seen| Branch {
            id: "FP-07",
            severity,
            what: "/boot lacks ",
            seen,
            next: &["rpm-ostree cleanup -r", "mco-rescue rollback --forget"],
        };
        lacks(
            "warning",
            &[
                "will be staged, and lost at the shutdown",
                "No space left on device",
            ],
        )
        .met_by(&report, "");
        let staged =
            format!("image=ostree-unverified-registry:{NEXT}\npackages=\"\"\nremovals=\"\"\n");
        node.root.write("stub/staged", &staged);
        lacks(
            "critical",
            &["An OS is staged, and the next shutdown cannot write it"],
        )
        .met_by(&of_node(node), "");
    });
}

#[test]
fn connections_and_cluster_network_are_judged_beside_what_the_node_has() {
    on_a_node(|node| {
        let keyfile = |name: &str, kind: &str| {
            let text = format!("[connection]\nid={name}\ntype={kind}\ninterface-name={name}\n");
            node.root
                .write(&format!("{KEYFILES}/{name}.nmconnection"), &text);
        };
        keyfile("eno9", "ethernet");
        // Without /sys nobody tells which there are.
        is_well(node, "FP-12");
        fs::create_dir(node.root.path("sys")).unwrap();
        let sys = node.root.path("sys");
        mount(&["--bind", "/sys", sys.to_str().unwrap()]);
        node.root.remove(&format!("{KEYFILES}/eno9.nmconnection"));
        keyfile("lo", "ethernet");
        // A bridge is made by its connection.
        keyfile("br9", "bridge");
        is_well(node, "FP-12");
        keyfile("eno9", "ethernet");
        Branch {
            id: "FP-12",
            severity: "warning",
            what: "a connection is for an interface that is gone",
            seen: &[
                "eno9.nmconnection",
                "is for eno9, which is not there",
                "interfaces",
            ],
            next: &["ip link", "nmcli connection show"],
        }
        .met_by(&of_node(node), "");
        node.root
            .write(&format!("{KEYFILES}/eno9.nmconnection"), "");
        Branch {
            id: "FP-12",
            severity: "warning",
            what: "1 connection of NetworkManager is empty",
            seen: &["eno9.nmconnection", "passes over it"],
            next: &[
                "mv /etc/NetworkManager/system-connections/eno9.nmconnection /root/",
                "nmcli connection reload",
            ],
        }
        .met_by(&of_node(node), "");
        node.root.remove(&format!("{KEYFILES}/eno9.nmconnection"));
        connection(&node.root, "ovs-port-phys0", "ovs-port-phys0");
        Branch {
            id: "FP-12",
            severity: "critical",
            what: "the bridge br-ex is half-built",
            seen: &["br-ex, ovs-if-br-ex, ovs-port-br-ex, ovs-if-phys0"],
            next: &[
                "mv /etc/NetworkManager/system-connections/ovs-port-phys0.nmconnection /root/",
                "systemctl reboot",
            ],
        }
        .met_by(&of_node(node), "");
        node.root
            .remove(&format!("{KEYFILES}/ovs-port-phys0.nmconnection"));
        node.root
            .remove("etc/kubernetes/cni/net.d/10-ovn-kubernetes.conf");
        Branch {
            id: "FP-12",
            severity: "warning",
            what: "the cluster network has not come up",
            seen: &["/run/multus/cni/net.d", "nothing of OVNKubernetes"],
            next: &[
                "systemctl status ovs-configuration kubelet",
                "crictl ps -a --name ovnkube",
            ],
        }
        .met_by(&of_node(node), "");
    });
}

#[test]
fn a_damaged_store_of_images_and_a_first_boot_name_the_running_services() {
    on_a_node(|node| {
        let store = "var/lib/containers/storage";
        node.root
            .write(&format!("{store}/overlay-layers/layers.json"), "");
        Branch {
            id: "FP-10",
            severity: "warning",
            what: "the store of container images is damaged",
            seen: &["layers.json", "layer not known"],
            next: &[
                "systemctl stop kubelet crio",
                "crio wipe --force",
                "systemctl start crio kubelet",
            ],
        }
        .met_by(&of_node(node), "");
        node.root
            .remove(&format!("{store}/overlay-layers/layers.json"));
        is_well(node, "FP-10");
        let kept = "etc/ignition-machine-config-encapsulated.json";
        node.root.write(kept, &config().to_string());
        let answer = r#"case $* in
            *ActiveState,SubState*) printf 'Id=machine-config-daemon-firstboot.service\nActiveState=failed\nSubState=failed\n' ;;
            *) exit 1 ;; esac"#;
        node.program("systemctl", answer);
        Branch {
            id: "FP-10",
            severity: "critical",
            what: "the first boot is not finished",
            seen: &[
                "machine-config-daemon-firstboot.service",
                "failed (failed)",
                "still there",
            ],
            next: &[
                "journalctl -b -u machine-config-daemon-firstboot",
                "mco-rescue firstboot --complete",
            ],
        }
        .met_by(&of_node(node), "");
    });
}

/// Sets an attribute; nothing where the file system takes none.
fn protected(root: &TestRoot, path: &str, attribute: &str) -> Option<Protected> {
    let path = root.path(path);
    let set = |attribute: &str| {
        let mut command = Command::new("chattr");
        command.arg(attribute).arg(&path).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !set(&format!("+{attribute}")) {
        say("SKIP: chattr is missing, or sets no flags here");
        return None;
    }
    Some(Protected(path, attribute.to_owned()))
}

/// What may not be changed, until this is dropped.
struct Protected(std::path::PathBuf, String);

impl Drop for Protected {
    fn drop(&mut self) {
        let mut command = Command::new("chattr");
        let _ = command.arg(format!("-{}", self.1)).arg(&self.0).status();
    }
}

#[test]
fn an_old_deployment_with_a_protected_file_is_told_from_one_that_is_listed() {
    on_a_node(|node| {
        let deploy = "sysroot/ostree/deploy/rhcos/deploy";
        let (listed, old) = (
            format!("{deploy}/{BOOTED}.0"),
            format!("{deploy}/{}.0", "0d".repeat(32)),
        );
        let text = unseen(&of_node(node), "FP-13");
        assert!(
            text.contains("attributes in deployments: no deployment is visible"),
            "{text}"
        );
        for place in [&listed, &old] {
            node.root.write(&format!("{place}/etc/agent.conf"), "");
        }
        is_well(node, "FP-13");
        // The directory itself carries it by ostree's design.
        let Some(_root) = protected(&node.root, &old, "i") else {
            return;
        };
        is_well(node, "FP-13");
        drop(_root);
        let held = protected(&node.root, &format!("{listed}/etc/agent.conf"), "a");
        Branch {
            id: "FP-13",
            severity: "notice",
            what: "a deployment has files that may not be changed",
            seen: &["chattr +i or +a", "Once this deployment is an old one"],
            next: &[
                "chattr -ia /sysroot/ostree/deploy/rhcos/deploy/b0b0",
                "ostree admin cleanup",
            ],
        }
        .met_by(&of_node(node), "");
        drop(held);
        let held = protected(&node.root, &format!("{old}/etc/agent.conf"), "i");
        Branch {
            id: "FP-13",
            severity: "warning",
            what: "an old deployment cannot be removed",
            seen: &[
                "rpm-ostree does not list this deployment",
                "old deployments pile up",
                "Operation not permitted",
            ],
            next: &[
                "chattr -ia /sysroot/ostree/deploy/rhcos/deploy/0d0d",
                "ostree admin cleanup",
            ],
        }
        .met_by(&of_node(node), "");
        drop(held);
        let _held = protected(&node.root, "etc/pool.conf", "a");
        Branch {
            id: "FP-13",
            severity: "warning",
            what: "a path of the config may not be changed",
            seen: &["/etc/pool.conf", "(chattr +a)"],
            next: &["mco-rescue apply --clear-immutable"],
        }
        .met_by(&of_node(node), "");
    });
}

#[test]
fn a_deployment_that_does_not_run_has_no_rpm_ostree_to_ask() {
    let disk = TestRoot::empty();
    let place = disk.path(&format!("{BOOTED}.0"));
    let healthy = healthy();
    let mut command = Command::new("cp");
    command.arg("-a").arg(healthy.dir()).arg(&place);
    assert!(command.status().unwrap().success());
    let mut command = Command::new(PROGRAM);
    command
        .arg("--root")
        .arg(&place)
        .args(["doctor", "--output", "json"]);
    let report = answer(Run::of(command.stdin(Stdio::null()).output().unwrap()));
    assert!(of(&report, "FP-14").is_empty(), "{report:#}");
    let text = unseen(&report, "FP-14");
    assert!(
        text.contains("it answers only on the booted node"),
        "{text}"
    );
}

#[test]
fn an_rpm_ostreed_that_did_not_start_is_told_with_the_reason() {
    on_a_node(|node| {
        let answers = |load: &str, result: &str, status: &str| {
            let script = format!(
                "case $* in *Result*) printf 'LoadState={load}\\nResult={result}\\nConditionResult=yes\\nExecMainStatus={status}\\n' ;; *) exit 1 ;; esac"
            );
            node.program("systemctl", &script);
        };
        answers("loaded", "success", "0");
        is_well(node, "FP-14");
        let silent = "echo 'error: Could not activate remote peer' >&2; exit 1";
        node.program("rpm-ostree", silent);
        for (load, result, status, seen, hint) in [
            (
                "masked",
                "success",
                "0",
                &["masked"] as &'static [&str],
                "systemctl unmask rpm-ostreed",
            ),
            (
                "loaded",
                "exit-code",
                "203",
                &["its program cannot be run"],
                "journalctl -b -u rpm-ostreed",
            ),
            (
                "loaded",
                "exit-code",
                "1",
                &["exit-code 1", "Bus owner changed"],
                "journalctl -b -u rpm-ostreed",
            ),
        ] {
            answers(load, result, status);
            Branch {
                id: "FP-14",
                severity: "warning",
                what: "rpm-ostreed did not start",
                seen,
                next: if hint.starts_with("systemctl") {
                    &[
                        "systemctl unmask rpm-ostreed",
                        "systemctl restart rpm-ostreed",
                    ]
                } else {
                    &[
                        "journalctl -b -u rpm-ostreed",
                        "systemctl restart rpm-ostreed",
                    ]
                },
            }
            .met_by(&of_node(node), "");
        }
        // It ran, and says nothing all the same.
        answers("loaded", "success", "0");
        Branch {
            id: "FP-14",
            severity: "warning",
            what: "rpm-ostree does not answer",
            seen: &["rpm-ostree status", "Could not activate remote peer"],
            next: &[
                "systemctl status rpm-ostreed dbus.socket",
                "journalctl -b -u rpm-ostreed",
            ],
        }
        .met_by(&of_node(node), "");
    });
}

/// A Machine Config Server whose clock is off by so many seconds.
fn server_off_by(authority: &Authority, years: Years, seconds: i64) -> Server {
    let date = move || {
        let apart = Duration::from_secs(seconds.unsigned_abs());
        let now = SystemTime::now();
        httpdate::fmt_http_date(if seconds < 0 {
            now - apart
        } else {
            now + apart
        })
    };
    let body = served(&rendered("rendered-worker-a", "a\n"));
    let routes = Routes::new()
        .at("/config/worker", move |_| {
            Response::new(200, &[("Date", &date())], &body)
        })
        .at("*", move |_| Response::new(200, &[("Date", &date())], ""));
    Server::tls(routes, &authority.issue(&["127.0.0.1"], years))
}

#[test]
fn what_the_server_said_before_counts_until_somebody_set_the_clock() {
    on_a_node(|node| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap().as_secs();
        let day = DAY.as_secs();
        let kept = |date: u64, seen: Option<u64>| {
            let text = json!({"version": 1, "url": "https://api-int.example:22623", "date": date, "seen": seen});
            node.root
                .write("var/lib/mco-rescue/server-clock.json", &text.to_string());
        };
        kept(now - 2 * day, Some(now - 5 * day));
        Branch {
            id: "FP-15",
            severity: "notice",
            what: "the clock was 3 days behind the server's",
            seen: &["If nobody has set the clock since, it still is"],
            next: &["mco-rescue fetch", "date -u"],
        }
        .met_by(&of_node(node), "");
        // It was ahead then, and was set back; there was no difference; another machine asked.
        for (date, seen) in [
            (now - 5 * day, Some(now + day)),
            (now - 5 * day, Some(now - 5 * day)),
            (now - 5 * day, None),
        ] {
            kept(date, seen);
            is_well(node, "FP-15");
        }
        let known = |url: &str| {
            let text = json!({"version": 1, "url": url, "pool": "worker", "authorities": "", "answered": now});
            node.root
                .write("var/lib/mco-rescue/server.json", &text.to_string());
        };
        known("http://127.0.0.1:9");
        let text = unseen(&of_node(node), "FP-15");
        assert!(text.contains("without TLS"), "{text}");
        let port = support::unused_port(&["127.0.0.1"]);
        known(&format!("https://127.0.0.1:{port}"));
        let text = unseen(&of_node(node), "FP-15");
        assert!(text.contains("refused"), "{text}");
        // Nobody waits for one that takes the call and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        known(&format!("https://{}", silent.local_addr().unwrap()));
        let begun = std::time::Instant::now();
        let text = unseen(&of_node(node), "FP-15");
        assert!(text.contains("the clock of the server"), "{text}");
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "{:?}",
            begun.elapsed()
        );
    });
}

fn fetch_from(server: &Server, pem: &str) -> [String; 7] {
    [
        "fetch",
        "--pool",
        "worker",
        "--server",
        &server.url(""),
        "--ca",
        pem,
    ]
    .map(str::to_owned)
}

#[test]
fn the_clock_of_the_server_is_a_witness() {
    let authority = Authority::new("root-ca");
    on_a_node(|node| {
        node.root.write("ca.pem", &authority.pem);
        let asks = |server: &Server| {
            let args = fetch_from(server, "/ca.pem");
            node.run(&args.each_ref().map(String::as_str)).ok();
        };
        let right = server_off_by(&authority, VALID, 0);
        asks(&right);
        let report = of_node(node);
        assert!(of(&report, "FP-15").is_empty(), "{report:#}");
        assert_eq!(unseen(&report, "FP-15"), "[]");
        assert_eq!(right.requests().last().unwrap().path(), "/healthz");

        let ahead = server_off_by(&authority, VALID, -9 * 86_400);
        asks(&ahead);
        let wrong = |severity, what, seen, next| Branch {
            id: "FP-15",
            severity,
            what,
            seen,
            next,
        };
        wrong(
            "critical",
            "the clock is 9 days ahead of the server's",
            &["https://127.0.0.1:", "the server's clock said "],
            &["date -u -s '", "hwclock --systohc", "chronyc makestep"],
        )
        .met_by(&of_node(node), "");
        // When nobody answers any more, what was heard before counts, and that it was before.
        drop(ahead);
        let report = of_node(node);
        wrong(
            "notice",
            "the clock was 9 days ahead of the server's",
            &[
                "/var/lib/mco-rescue/server-clock.json",
                "clock at that moment",
            ],
            &["mco-rescue fetch", "date -u"],
        )
        .met_by(&report, "");
        assert!(
            unseen(&report, "FP-15").contains("the clock of the server: "),
            "{report:#}"
        );

        let hours = server_off_by(&authority, VALID, -3 * 3600);
        asks(&hours);
        wrong(
            "warning",
            "the clock is 3 hours ahead of the server's",
            &["Certificates end too early by this clock"],
            &["date -u -s '", "hwclock --systohc", "chronyc makestep"],
        )
        .met_by(&of_node(node), "");

        let behind = server_off_by(&authority, VALID, 3 * 86_400 + 60);
        asks(&behind);
        wrong(
            "critical",
            "the clock is behind by 3 days at least",
            &["https://127.0.0.1:", "the server's clock said "],
            &["date -u -s '", "hwclock --systohc", "chronyc makestep"],
        )
        .met_by(&of_node(node), "");
    });
}

#[test]
fn a_fetch_that_fails_for_the_clock_keeps_the_servers_time() {
    let authority = Authority::new("root-ca");
    let pem = ca(&authority);
    let root = healthy();
    // By the server's clock its certificate is valid.
    let server = server_off_by(&authority, Years(2080, 2090), 55 * 365 * 86_400);
    let mut args = fetch_from(&server, pem.path().to_str().unwrap()).to_vec();
    args.extend(["--timeout", "1"].map(str::to_owned));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    root.run(&args).exits(1);
    let report = doctor(&root);
    let found = of(&report, "FP-15");
    let what = found[0]["what"].as_str().unwrap();
    assert!(
        what.starts_with("the clock of this machine is behind by 200"),
        "{what}"
    );
    assert_eq!(
        found[0]["evidence"][1]["place"],
        "/var/lib/mco-rescue/server-clock.json"
    );
}
