//! `doctor --fix`: each cure makes its check healthy and can be taken back; whatever stands against it changes nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use super::worker::{KEYFILES, SECRET, copy};
use super::{
    RECORD, doctor, doctor_on, finding, fp_41, fp_45, fp_48, fp_66, master, of, small, worker,
};
use crate::support::control_plane::{ControlPlane, MANIFESTS};
use crate::support::faults::{self, duplicate, every, try_each};
use crate::support::mounts::{mount, with_mounts};
use crate::support::scenes::{can_disturb, everything_is_asked_for};
use crate::support::trace::{can_trace, stopped};
use crate::support::{Lacks, PROGRAM, STATE, Snapshot, TestRoot, flat, flat_run, is_root, skip};
use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};

/// Makes a healthy node sick in one way; what the fix has to make of it.
struct Cure {
    id: &'static str,
    what: &'static str,
    sicken: fn(&TestRoot),
    cured: fn(&TestRoot),
}

const ANNOTATIONS: &str = "etc/machine-config-daemon/node-annotations.json";
const KEPT: &str = "etc/machine-config-daemon/node-annotation.json.bak";
const WANTS: &str = "etc/systemd/system/multi-user.target.wants";
const KEYS: &str = "home/core/.ssh/authorized_keys";

const CURES: [Cure; 27] = [
    Cure {
        id: "FP-12",
        what: "the bridge br-ex is incomplete",
        sicken: |root| {
            for name in ["br-ex", "ovs-if-br-ex"] {
                keyfile(
                    root,
                    name,
                    &format!("[connection]\nid={name}\ntype=ovs-port\n"),
                );
            }
        },
        cured: |root| {
            let aside = asides(root);
            assert_eq!(aside.len(), 2, "{aside:?}");
            let of = |name: &str| format!("etc/NetworkManager/{name}.nmconnection.mco-rescue-");
            assert!(aside[0].starts_with(&of("br-ex")), "{aside:?}");
            assert!(aside[1].starts_with(&of("ovs-if-br-ex")), "{aside:?}");
            assert!(aside.iter().all(|path| root.mode(path) == 0o600));
        },
    },
    Cure {
        id: "FP-12",
        what: "2 connections of NetworkManager are empty",
        sicken: |root| {
            keyfile(root, "a", "");
            keyfile(root, "b", " \n");
        },
        cured: |root| assert_eq!(asides(root).len(), 2),
    },
    Cure {
        id: "FP-22",
        what: "node-annotations.json cannot be read",
        sicken: |root| {
            root.write(KEPT, "{}");
            root.write(ANNOTATIONS, "{\"");
        },
        cured: |root| assert!(!root.exists(ANNOTATIONS)),
    },
    Cure {
        id: "FP-22",
        what: "the Node lacks the daemon's annotations",
        sicken: |root| {
            root.write(KEPT, "{}");
            let current = json!({"machineconfiguration.openshift.io/currentConfig": "rendered-a"});
            root.write(ANNOTATIONS, &current.to_string());
        },
        cured: |root| assert!(!root.exists(ANNOTATIONS)),
    },
    Cure {
        id: "FP-22",
        what: "the record is ignored; another config is used",
        sicken: |root| {
            root.write(KEPT, "{}");
            let prefix = "machineconfiguration.openshift.io/";
            let both = json!({format!("{prefix}currentConfig"): "a", format!("{prefix}desiredConfig"): "a"});
            root.write(ANNOTATIONS, &both.to_string());
        },
        cured: |root| assert!(!root.exists(ANNOTATIONS)),
    },
    Cure {
        id: "FP-24",
        what: "the trigger of the first boot is back",
        sicken: |root| {
            root.write(KEPT, "{}");
            root.write("etc/ignition-machine-config-encapsulated.json", "{}");
        },
        cured: |root| {
            assert!(!root.exists("etc/ignition-machine-config-encapsulated.json"));
            assert_eq!(asides(root).len(), 1);
        },
    },
    Cure {
        id: "FP-24",
        what: "stamps of the daemon contradict the disk",
        sicken: |root| {
            root.write(
                "etc/machine-config-daemon/orig/etc/b.conf",
                "kept by hand\n",
            )
        },
        cured: |root| {
            let aside = asides(root);
            assert_eq!(root.read(&aside[0]), "kept by hand\n");
        },
    },
    Cure {
        id: "FP-25",
        what: "files in the way of enabling units",
        sicken: |root| {
            root.link("etc/systemd/system/lost.service", "/opt/lost.service");
            root.write(&format!("{WANTS}/stray.service"), "a file\n");
        },
        cured: |root| {
            let aside = asides(root);
            assert_eq!(aside.len(), 2, "{aside:?}");
            assert_eq!(root.target(&aside[0]).unwrap(), "/opt/lost.service");
            assert!(!root.exists(&format!("{WANTS}/stray.service")));
        },
    },
    Cure {
        id: "FP-25",
        what: "files in the way of enabling units",
        sicken: |root| {
            root.write("usr/lib/systemd/system/there.service", "[Service]\n");
            root.write(&format!("{WANTS}/there.service"), "a file\n");
        },
        cured: |root| {
            let link = root.target(&format!("{WANTS}/there.service"));
            assert_eq!(link.unwrap(), "/usr/lib/systemd/system/there.service");
            assert_eq!(root.read(&asides(root)[0]), "a file\n");
        },
    },
    Cure {
        id: "FP-25",
        what: "missing units are enabled",
        sicken: |root| {
            root.link(
                &format!("{WANTS}/gone.service"),
                "/usr/lib/systemd/system/gone.service",
            );
        },
        cured: |root| assert!(!root.exists(&format!("{WANTS}/gone.service"))),
    },
    Cure {
        id: "FP-27",
        what: "a pull secret cannot be used",
        sicken: |root| {
            root.write("etc/ostree/auth.json", r#"{"auths":{"#);
        },
        cured: |root| assert!(!root.exists("etc/ostree/auth.json")),
    },
    Cure {
        id: "FP-33",
        what: "no login works: no valid key, no password",
        sicken: |root| {
            root.chmod("home/core/.ssh", 0o777);
            root.chmod("home/core/.ssh/authorized_keys.d", 0o772);
        },
        cured: |root| {
            assert_eq!(root.mode("home/core/.ssh"), 0o755);
            assert_eq!(root.mode("home/core/.ssh/authorized_keys.d"), 0o750);
        },
    },
    Cure {
        id: "FP-33",
        what: "sshd ignores a file with keys",
        sicken: |root| {
            root.write(KEYS, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO b\n");
            root.chmod(KEYS, 0o666);
            if is_root() {
                chown(root.path(KEYS), Some(4242), Some(4242)).unwrap();
            }
        },
        cured: |root| {
            assert_eq!(root.mode(KEYS), 0o644);
            let owner = fs::metadata(root.path(KEYS)).unwrap();
            assert_eq!((owner.uid(), owner.gid()), root.core());
        },
    },
    Cure {
        id: "FP-08",
        what: "NetworkManager ignores a connection's file",
        sicken: |root| {
            keyfile(root, "lan", "[connection]\nid=lan\ntype=ethernet\n");
            root.chmod(&format!("{KEYFILES}/lan.nmconnection"), 0o644);
        },
        cured: |root| assert_eq!(root.mode(&format!("{KEYFILES}/lan.nmconnection")), 0o600),
    },
    Cure {
        id: "FP-54",
        what: "the manifest of etcd is missing",
        sicken: |root| root.remove(&format!("{MANIFESTS}/etcd-pod.yaml")),
        cured: |root| assert_eq!(root.mode(&format!("{MANIFESTS}/etcd-pod.yaml")), 0o600),
    },
    Cure {
        id: "FP-54",
        what: "the manifest of etcd is unusable",
        sicken: |root| root.write(&format!("{MANIFESTS}/etcd-pod.yaml"), ""),
        cured: |root| {
            // The kubelet would read it in its own directory.
            let aside = asides(root);
            let of_etcd = "etc/kubernetes/etcd-pod.yaml.mco-rescue-";
            assert!(aside[0].starts_with(of_etcd), "{aside:?}");
            assert!(
                root.read(&format!("{MANIFESTS}/etcd-pod.yaml"))
                    .contains("etcd")
            );
        },
    },
    Cure {
        id: "FP-41",
        what: "allocated_pods_state is damaged",
        sicken: |root| root.write(fp_41::ALLOCATED, ""),
        cured: |root| {
            let aside = asides(root);
            assert!(aside[0].starts_with(fp_41::ALLOCATED), "{aside:?}");
            assert!(!root.exists(fp_41::ALLOCATED));
        },
    },
    Cure {
        id: "FP-45",
        what: "the host has no name of its own",
        sicken: |root| fp_45::named(root, "localhost"),
        cured: |root| assert_eq!(root.read("etc/hostname"), "worker-0\n"),
    },
    Cure {
        id: "FP-66",
        what: "the user openvswitch is missing, and 2 more",
        sicken: |root| {
            fp_66::with_accounts_of_the_os(root);
            root.write(
                "etc/nsswitch.conf",
                "passwd:\tfiles systemd\ngroup: sss\nhosts: dns\n",
            );
        },
        cured: |root| {
            assert_eq!(
                root.read("etc/nsswitch.conf"),
                "passwd:\tfiles altfiles systemd\ngroup: sss altfiles\nhosts: dns\n"
            );
        },
    },
    Cure {
        id: "FP-66",
        what: "2 lines of the account files end with carriage returns",
        sicken: |root| {
            // Where accounts were ever changed, the lock file is left.
            root.write("etc/.pwd.lock", "");
            root.chmod("etc/.pwd.lock", 0o600);
            let passwd = root.read("etc/passwd");
            root.write(
                "etc/passwd",
                &format!("{passwd}a:x:1500:1500::/:/bin/sh\r\n"),
            );
            root.write("etc/group", "root:x:0:\na:x:1500:core\r\nb:x:1501:\n");
        },
        cured: |root| {
            assert!(
                root.read("etc/passwd")
                    .ends_with("a:x:1500:1500::/:/bin/sh\n")
            );
            assert_eq!(
                root.read("etc/group"),
                "root:x:0:\na:x:1500:core\nb:x:1501:\n"
            );
        },
    },
    Cure {
        id: "FP-67",
        what: "SELINUXTYPE names a policy that does not exist",
        sicken: |root| {
            root.write("etc/selinux/targeted/contexts/files/file_contexts", "");
            root.write(
                "etc/selinux/config",
                "# mode\nSELINUX=enforcing\nSELINUXTYPE=target\n",
            );
        },
        cured: |root| {
            let config = root.read("etc/selinux/config");
            assert_eq!(config, "# mode\nSELINUX=enforcing\nSELINUXTYPE=targeted\n");
        },
    },
    Cure {
        id: "FP-67",
        what: "SELinux has no mode, and denies nothing",
        sicken: |root| {
            root.write("etc/selinux/targeted/contexts/files/file_contexts", "");
            root.write(
                "etc/selinux/config",
                " SELINUX=enforcing\nSELINUXTYPE=targeted",
            );
        },
        cured: |root| {
            let config = root.read("etc/selinux/config");
            assert_eq!(
                config,
                " SELINUX=enforcing\nSELINUXTYPE=targeted\nSELINUX=enforcing\n"
            );
        },
    },
    Cure {
        id: "FP-71",
        what: "the kernel module openvswitch is turned off",
        sicken: |root| {
            let lines = "# site\ninstall openvswitch \\\n /bin/false\noptions a b=1\ninstall openvswitch /bin/true\n";
            root.write("etc/modprobe.d/site.conf", lines);
        },
        cured: |root| {
            let left = root.read("etc/modprobe.d/site.conf");
            assert_eq!(left, "# site\noptions a b=1\n");
        },
    },
    Cure {
        id: "FP-71",
        what: "the kernel module veth is turned off",
        sicken: |root| {
            let lines = "install veth /bin/true\nblacklist veth\nblacklist floppy\n";
            root.write("usr/lib/modprobe.d/os.conf", lines);
        },
        cured: |root| assert_eq!(root.read("etc/modprobe.d/os.conf"), "blacklist floppy\n"),
    },
    Cure {
        id: "FP-72",
        what: "crio.service is masked",
        sicken: |root| root.link("etc/systemd/system/crio.service", "/dev/null"),
        cured: |root| {
            let aside = asides(root);
            assert!(
                aside[0].starts_with("etc/systemd/crio.service.mco-rescue-"),
                "{aside:?}"
            );
            assert!(!root.exists("etc/systemd/system/crio.service"));
        },
    },
    Cure {
        id: "FP-66",
        what: "/etc/openvswitch does not belong to openvswitch",
        sicken: |root| {
            fp_66::with_accounts_of_the_os(root);
            fp_66::with_foreign_state(root);
        },
        cured: |root| {
            for path in ["etc/openvswitch", "etc/openvswitch/a/b"] {
                let owner = fs::metadata(root.path(path)).unwrap();
                assert_eq!((owner.uid(), owner.gid()), (977, 978), "{path}");
            }
            let root_owned = fs::metadata(root.path("etc/openvswitch/of-root")).unwrap();
            assert_eq!((root_owned.uid(), root_owned.gid()), (0, 0));
        },
    },
    Cure {
        id: "FP-48",
        what: "the next boot removes all container images",
        sicken: fp_48::cut_off,
        cured: |root| {
            assert_eq!(root.read("var/lib/crio/clean.shutdown"), "");
            assert_eq!(root.mode("var/lib/crio/clean.shutdown"), 0o644);
        },
    },
];

/// A connection of NetworkManager, as it writes one, of long ago.
fn keyfile(root: &TestRoot, name: &str, text: &str) {
    let path = format!("{KEYFILES}/{name}.nmconnection");
    root.write(&path, text);
    root.chmod(&path, 0o600);
    let file = fs::File::options().write(true).open(root.path(&path));
    let long_ago = SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000, 123_456_789);
    file.unwrap().set_modified(long_ago).unwrap();
}

/// What was moved aside.
fn asides(root: &TestRoot) -> Vec<String> {
    let all = root.snapshot().into_keys();
    all.filter(|path| path.contains(".mco-rescue-")).collect()
}

/// Everything of a tree outside our own directory, with the times of its files.
fn with_times(root: &TestRoot) -> Vec<(String, String)> {
    let time = |path: &str| {
        let meta = fs::symlink_metadata(root.path(path)).unwrap();
        let is_file = meta.is_file();
        is_file.then(|| (meta.mtime(), meta.mtime_nsec()))
    };
    let all = root.snapshot().into_iter();
    all.map(|(path, entry)| {
        let text = format!("{entry:?} {:?}", time(&path));
        (path, text)
    })
    .collect()
}

/// The finding that a table row is about.
fn found(seen: &Value, cure: &Cure) -> Value {
    let all = of(seen, cure.id);
    let one = all.iter().find(|one| one["what"] == cure.what);
    one.unwrap_or_else(|| panic!("{} {}: {seen:#}", cure.id, cure.what))
        .clone()
}

#[test]
fn each_cure_makes_its_check_healthy_and_rollback_brings_the_former_tree() {
    let plane = ControlPlane::new();
    let templates = [small::node(), worker::healthy(), master::with(&plane)];
    for cure in &CURES {
        if cure.what.contains("does not belong") && !is_root() {
            skip(Lacks::Root, "giving files away needs root");
            continue;
        }
        // The kubelet and its certificates are on the second one, and the static pods on the third.
        let template = match cure.id {
            "FP-41" | "FP-45" | "FP-48" | "FP-71" => &templates[1],
            "FP-54" => &templates[2],
            _ => &templates[0],
        };
        let root = copy(template);
        let said = format!("{} {}", cure.id, cure.what);
        (cure.sicken)(&root);
        let (before, all) = (with_times(&root), root.everything());
        let seen = found(&doctor(&root), cure);
        let command = format!("mco-rescue doctor --fix {} --root ", cure.id);
        let printed = seen["fix"]["command"].as_str().unwrap();
        assert!(printed.starts_with(&command), "{seen:#}");
        let text = root.run(&["doctor"]).out();
        assert!(text.contains(&format!("  Fix      {command}")), "{text}");

        // Without a terminal and --yes it shows everything and does nothing.
        let shown = root.run(&["doctor", "--fix", cure.id]).exits(1);
        assert!(shown.err().contains("add --yes"), "{said}: {}", shown.err());
        for change in seen["fix"]["changes"].as_array().unwrap() {
            let path = change["path"].as_str().unwrap();
            assert!(shown.out().contains(path), "{said}: {}", shown.out());
        }
        assert_eq!(root.everything(), all, "{said}");

        let run = root.run(&["doctor", "--fix", cure.id, "--yes"]).ok();
        let out = flat(&run.out());
        let fixed = format!("Fixed: {} no longer finds \"{}\"", cure.id, cure.what);
        assert!(out.contains(&fixed), "{said}: {out}");
        assert!(out.contains("Undo: mco-rescue rollback --root"));
        assert_eq!(of(&doctor(&root), cure.id), Vec::<Value>::new(), "{said}");
        (cure.cured)(&root);
        let status = root.run(&["status"]).ok().out();
        assert!(
            status.contains(&format!("doctor --fix {}", cure.id)),
            "{status}"
        );
        assert_eq!(root.read(RECORD), template.read(RECORD), "{said}");

        let (cured, again) = (root.everything(), ["doctor", "--fix", cure.id, "--yes"]);
        let healthy = root.run(&again).ok().out();
        let nothing = format!("{} finds nothing wrong", cure.id);
        assert!(healthy.contains(&nothing), "{said}: {healthy}");
        assert_eq!(root.everything(), cured, "{said}");

        root.run(&["rollback", "--yes"]).ok();
        assert_eq!(with_times(&root), before, "{said}");
        found(&doctor(&root), cure);
    }
}

#[test]
fn what_is_moved_aside_is_the_same_file_with_its_times() {
    let root = small::node();
    keyfile(&root, "a", "");
    let path = format!("{KEYFILES}/a.nmconnection");
    let before = fs::metadata(root.path(&path)).unwrap();
    root.run(&["doctor", "--fix", "12", "--yes"]).ok();
    let after = fs::metadata(root.path(&asides(&root)[0])).unwrap();
    assert_eq!(
        (after.ino(), after.mtime(), after.mtime_nsec(), after.mode()),
        (
            before.ino(),
            before.mtime(),
            before.mtime_nsec(),
            before.mode()
        )
    );
}

#[test]
fn the_document_names_changes_outcome_and_what_is_left() {
    let root = small::node();
    keyfile(&root, "a", "");
    let json = |args: &[&str], code: i32| {
        let args = [&["doctor", "--output", "json", "--fix"], args].concat();
        root.run(&args).exits(code).json()
    };
    let healthy = json(&["FP-33"], 0);
    assert_eq!(healthy["outcome"], "healthy");
    let fixed = json(&["FP-12", "--yes"], 0);
    assert_eq!(fixed["outcome"], "fixed");
    assert_eq!(fixed["what"], "1 connection of NetworkManager is empty");
    assert_eq!(fixed["steps"], 2);
    assert_eq!(fixed["findings"], json!([]));
    root.write("etc/of-config.conf", "edited\n");
    let none = json(&["FP-03", "--yes"], 3);
    assert_eq!(none["outcome"], "no-fix");
    assert_eq!(none["steps"], 0);
    let next = none["next"].as_array().unwrap();
    assert!(
        next.iter()
            .any(|one| one.as_str().unwrap().contains("mco-rescue apply"))
    );
}

#[test]
fn a_finding_that_needs_more_than_files_keeps_its_commands() {
    let root = small::node();
    root.write("etc/of-config.conf", "edited\n");
    let before = root.everything();
    let run = root.run(&["doctor", "--fix", "FP-03", "--yes"]).exits(3);
    let out = flat(&run.out());
    assert!(out.contains("does not cover what"), "{out}");
    assert!(out.contains("then mco-rescue apply"), "{out}");
    assert_eq!(root.everything(), before);
}

#[test]
fn a_check_that_does_not_exist_and_options_without_a_fix_are_refused() {
    let root = small::node();
    let before = root.everything();
    let run = root.run(&["doctor", "--fix", "FP-99", "--yes"]).exits(1);
    assert!(run.err().contains("there is no check") && run.err().contains("doctor --list"));
    root.run(&["doctor", "--finding", "1"]).exits(2);
    root.run(&["doctor", "FP-12", "--fix", "FP-12"]).exits(2);
    root.run(&["doctor", "--fix", "FP-12", "--bundle", "/nonexistent/x"])
        .exits(2);
    assert_eq!(root.everything(), before);
}

#[test]
fn of_several_findings_one_at_a_time_is_cured() {
    let root = small::node();
    keyfile(&root, "empty", "");
    keyfile(&root, "br-ex", "[connection]\nid=br-ex\ntype=ovs-bridge\n");
    let before = root.everything();
    let seen = doctor(&root);
    let commands: Vec<Value> = of(&seen, "FP-12")
        .iter()
        .map(|one| one["fix"]["command"].clone())
        .collect();
    let ends = |at: usize, end: &str| commands[at].as_str().unwrap().contains(end);
    assert!(
        ends(0, "--finding 1") && ends(1, "--finding 2"),
        "{commands:?}"
    );
    for args in [
        &["--yes"][..],
        &["--yes", "--finding", "3"],
        &["--yes", "--finding", "0"],
    ] {
        let args = [&["doctor", "--fix", "FP-12"], args].concat();
        let err = root.run(&args).exits(1).err();
        assert!(
            err.contains("--finding N") && err.contains("1  the bridge br-ex"),
            "{err}"
        );
        assert_eq!(root.everything(), before);
    }
    let second = ["doctor", "--fix", "FP-12", "--finding", "2", "--yes"];
    let out = flat(&root.run(&second).ok().out());
    assert!(
        out.contains("no longer finds \"1 connection of NetworkManager is empty\""),
        "{out}"
    );
    // What is left is told with it.
    assert!(out.contains("the bridge br-ex is incomplete"), "{out}");
    let left = of(&doctor(&root), "FP-12");
    assert_eq!(left.len(), 1, "{left:#?}");
    assert!(root.exists(&format!("{KEYFILES}/br-ex.nmconnection")));
}

#[test]
fn what_the_recorded_config_brings_has_no_cure_but_apply() {
    let root = TestRoot::new();
    let mut config = small::config();
    let files = config["spec"]["config"]["storage"]["files"].as_array_mut();
    let path = format!("/{KEYFILES}/eno1.nmconnection");
    files.unwrap().push(crate::support::file(
        &path,
        0o600,
        "[connection]\nid=eno1\n",
    ));
    root.apply(&config);
    small::furnish(&root);
    root.write(&path, "");
    let seen = doctor(&root);
    assert_eq!(finding(&seen, "FP-12")["fix"], Value::Null, "{seen:#}");
    root.run(&["doctor", "--fix", "FP-12", "--yes"]).exits(3);
}

#[test]
fn where_the_first_boot_is_not_over_the_annotations_stay() {
    let root = small::node();
    root.write(ANNOTATIONS, "{\"");
    let seen = doctor(&root);
    assert_eq!(finding(&seen, "FP-22")["fix"], Value::Null, "{seen:#}");
}

#[test]
fn a_pull_secret_that_is_the_only_one_is_not_moved() {
    let root = small::node();
    root.remove(SECRET);
    root.write("etc/ostree/auth.json", r#"{"auths":{"#);
    let seen = doctor(&root);
    assert_eq!(finding(&seen, "FP-27")["fix"], Value::Null, "{seen:#}");
}

#[test]
fn a_running_node_is_told_what_the_files_need_next() {
    worker::on_a_node(|node| {
        keyfile(&node.root, "eno9", "");
        let fix = finding(&doctor_on(node), "FP-12")["fix"].clone();
        assert_eq!(fix["command"], "mco-rescue doctor --fix FP-12");
        assert_eq!(fix["then"], json!(["nmcli connection reload"]));
        let run = node.run(&["doctor", "--fix", "FP-12", "--yes"]).ok();
        assert!(
            run.out().contains("Next: nmcli connection reload\n"),
            "{}",
            run.out()
        );
        assert!(run.out().contains("Undo: mco-rescue rollback\n"));
        worker::is_well(node, "FP-12");
        node.run(&["rollback", "--yes"]).ok();
        assert!(node.root.exists(&format!("{KEYFILES}/eno9.nmconnection")));
    });
}

/// Refused with these words, and nothing is changed.
#[track_caller]
fn is_refused(root: &TestRoot, args: &[&str], words: &[&str]) {
    let before = root.everything();
    let args = [&["doctor", "--yes", "--fix", "FP-12"], args].concat();
    let said = flat_run(&root.run(&args).exits(1));
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    assert_eq!(root.everything(), before);
}

#[test]
fn the_lock_of_another_run_and_an_awaited_boot_stop_it() {
    let root = small::node();
    keyfile(&root, "a", "");
    let directory = fs::File::open(root.path(STATE)).unwrap();
    let held = Flock::lock(directory, FlockArg::LockExclusive).unwrap();
    is_refused(&root, &[], &["process"]);
    drop(held);
    let awaited = json!({
        "version": 1, "way": "forward", "run": null, "boot": "b", "from": "f", "image": "i",
        "config": {"name": small::NAME, "digest": "", "origin": ""}, "kernel_arguments": [], "since": 0,
        "failed": null,
    });
    root.write(&format!("{STATE}/awaited.json"), &awaited.to_string());
    is_refused(
        &root,
        &[],
        &["waits for the next boot", "mco-rescue rollback"],
    );
    root.remove(&format!("{STATE}/awaited.json"));
    root.run(&["doctor", "--fix", "FP-12", "--yes"]).ok();
}

#[test]
fn a_machine_that_is_not_a_node_needs_to_be_meant() {
    let root = TestRoot::new();
    root.write("usr/lib/os-release", "ID=debian\n");
    keyfile(&root, "a", "");
    is_refused(&root, &[], &["--not-a-node"]);
    root.run(&["doctor", "--fix", "FP-12", "--yes", "--not-a-node"])
        .ok();
    assert_eq!(asides(&root).len(), 1);
}

#[test]
fn a_full_disk_and_a_read_only_one_are_said_before_anything_is_changed() {
    if !is_root() {
        return skip(Lacks::Root, "mounting needs root");
    }
    with_mounts(|| {
        let root = small::node();
        keyfile(&root, "a", "");
        let etc = root.path("etc");
        let etc = etc.to_str().unwrap();
        mount(&["--bind", etc, etc]);
        mount(&["-o", "remount,bind,ro", etc]);
        is_refused(&root, &[], &["read-only mount"]);
        mount(&["-o", "remount,bind,rw", etc]);
        let state = root.path(STATE);
        let state = state.to_str().unwrap();
        let marker = root.read(&format!("{STATE}/marker"));
        mount(&["-t", "tmpfs", "-o", "size=32k", "tmpfs", state]);
        root.write(&format!("{STATE}/marker"), &marker);
        is_refused(&root, &[], &["not enough room"]);
    });
}

#[test]
fn a_flagged_file_is_moved_only_when_that_is_asked_for() {
    let root = small::node();
    keyfile(&root, "a", "");
    let path = root.path(&format!("{KEYFILES}/a.nmconnection"));
    let chattr = |flag: &str| Command::new("chattr").arg(flag).arg(&path).status();
    if !is_root() || !chattr("+i").is_ok_and(|status| status.success()) {
        return skip(
            Lacks::root_or_program("chattr"),
            "flags of files cannot be set here",
        );
    }
    let run = root.run(&["doctor", "--fix", "FP-12", "--yes"]);
    let refused = flat_run(&run);
    let cleared = root.run(&["doctor", "--fix", "FP-12", "--yes", "--clear-immutable"]);
    let aside = asides(&root);
    // Else the directory could not be removed.
    for path in aside
        .iter()
        .map(|path| root.path(path))
        .chain([path.clone()])
    {
        let _ = Command::new("chattr").arg("-i").arg(path).status();
    }
    run.exits(1);
    assert!(refused.contains("--clear-immutable"), "{refused}");
    cleared.ok();
    assert_eq!(aside.len(), 1);
    assert!(!path.exists());
    root.run(&["rollback", "--yes", "--clear-immutable"]).ok();
    let _ = Command::new("chattr").arg("-i").arg(&path).status();
    assert!(path.exists());
}

#[test]
fn an_ordinary_user_is_sent_to_sudo() {
    if !is_root() {
        return skip(Lacks::Root, "giving something away needs root");
    }
    let root = small::node();
    keyfile(&root, "a", "");
    root.chmod("", 0o755);
    root.chmod(&format!("{KEYFILES}/a.nmconnection"), 0o644);
    let before = root.everything();
    let mut command = root.command(&["doctor", "--yes", "--fix", "FP-12"]);
    let Ok(output) = command.uid(65534).stdin(Stdio::null()).output() else {
        return skip(
            Lacks::Machine,
            &format!("{PROGRAM} is where nobody may run it"),
        );
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("sudo"), "{said}");
    assert_eq!(root.everything(), before);
}

#[test]
fn a_file_that_changes_between_look_and_change_stays_as_it_is() {
    if !can_trace() {
        return;
    }
    let path = format!("{KEYFILES}/a.nmconnection");
    let args = ["doctor", "--yes", "--fix", "FP-12"];
    let template = small::node();
    keyfile(&template, "a", "");
    let theirs = "[connection]\nid=a\ntype=ethernet\n";
    // Behind the lock; and when the intent is written, just before anything is staged.
    for (call, words) in [
        ("flock", "changed meanwhile"),
        ("renameat", "changed by another program"),
    ] {
        let root = duplicate(template.dir());
        let run = stopped(&root, &[(call, 1)], &args);
        root.write(&path, theirs);
        root.chmod(&path, 0o600);
        let changed = root.snapshot();
        let run = run.resume();
        assert_eq!(run.code, Some(1), "{call}: {}", run.said);
        assert!(flat(&run.said).contains(words), "{call}: {}", run.said);
        assert_eq!(root.snapshot(), changed, "{call}");
        assert_eq!(root.run(&["recover"]).ok().out(), "Nothing to recover.\n");
    }
}

/// A tree whose moved files have the same name in every run.
fn without_stamps(root: &TestRoot) -> Snapshot {
    let all = root.snapshot().into_iter();
    let named = all.map(|(path, entry)| match path.split_once(".mco-rescue-") {
        Some((name, _)) => (format!("{name} aside"), entry),
        None => (path, entry),
    });
    named.collect()
}

/// What a call meets, as strace takes it.
const FAULTS: [&str; 3] = ["signal=KILL", "error=ENOSPC", "error=EIO"];

#[test]
fn a_cure_that_meets_a_fault_at_any_call_is_whole_or_not_begun() {
    if !can_disturb() {
        return;
    }
    let args = ["doctor", "--yes", "--fix", "FP-25"];
    let template = small::node();
    let unit = "usr/lib/systemd/system/there.service";
    template.write(unit, "[Service]\n");
    template.write(&format!("{WANTS}/there.service"), "a file\n");
    template.link("etc/systemd/system/lost.service", "/opt/lost.service");
    let old = without_stamps(&template);
    let names = [
        "renameat",
        "renameat2",
        "linkat",
        "unlinkat",
        "mkdirat",
        "symlinkat",
        "syncfs",
        "fsync",
    ];
    let clean = duplicate(template.dir());
    let run = faults::traced(&clean, &names.join(","), &[], &args);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let new = without_stamps(&clean);
    assert_ne!(old, new);
    let all = every(&run.calls, &names);
    for (number, fault) in FAULTS.into_iter().enumerate() {
        let mut points = all.clone();
        if !everything_is_asked_for() {
            points = points.into_iter().skip(number).step_by(5).collect();
        }
        try_each(&format!("doctor --fix, {fault}"), &points, |(call, nth)| {
            let root = duplicate(template.dir());
            let inject = format!("{call}:{fault}:when={nth}");
            let run = faults::traced(&root, call, &[inject], &args);
            let said = format!("{:?}: {}", run.code, run.err);
            let mut problems = Vec::new();
            let is = without_stamps(&root);
            match run.code {
                Some(0) if is != new => problems.push(format!("0 is not all of it: {said}")),
                Some(1 | 4) if is != old => problems.push(format!("not as before: {said}")),
                None | Some(0 | 1 | 4 | 5) => {}
                _ => problems.push(format!("another exit code: {said}")),
            }
            root.run(&["recover"]).ok();
            let is = without_stamps(&root);
            if is != old && is != new {
                problems.push(format!("neither old nor new: {said}"));
            }
            // The next run leads to the end, and one rollback back.
            root.run(&args).ok();
            if without_stamps(&root) != new {
                problems.push(format!("the next run does not lead to the cure: {said}"));
            }
            root.run(&["rollback", "--yes"]).ok();
            if without_stamps(&root) != old {
                problems.push(format!("rollback does not lead back: {said}"));
            }
            problems
        });
    }
}

#[test]
fn an_interrupted_run_is_finished_first() {
    if !can_trace() {
        return;
    }
    let template = small::node();
    keyfile(&template, "a", "");
    let args = ["doctor", "--yes", "--fix", "FP-12"];
    let clean = duplicate(template.dir());
    let run = faults::traced(&clean, "renameat2", &[], &args);
    assert_eq!(run.code, Some(0), "{}", run.err);
    // Killed between the names: the first of two is in place.
    let root = duplicate(template.dir());
    faults::kill(&root, "renameat2", run.calls.len(), &args);
    let seen = doctor(&root);
    assert!(
        finding(&seen, "FP-10")["next"][0]
            .as_str()
            .unwrap()
            .contains("recover"),
        "{seen:#}"
    );
    keyfile(&root, "b", "");
    let again = root.run(&["doctor", "--fix", "FP-12", "--yes"]);
    // What was found before the recovery may be another thing than after it.
    if again.code() != 0 {
        assert!(
            flat_run(&again).contains("changed meanwhile"),
            "{}",
            again.err()
        );
        root.run(&["doctor", "--fix", "FP-12", "--yes"]).ok();
    }
    assert_eq!(of(&doctor(&root), "FP-12"), Vec::<Value>::new());
    assert_eq!(asides(&root).len(), 2);
}
