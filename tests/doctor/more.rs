//! `doctor` on a node that is well and on one with each trouble: the checks of clock, disk, arguments, packages,
//! records, units, labels, secrets, consoles, names and logins. Those of a running node and of its disks are in `os`.
#![allow(unsafe_code)]

mod os;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use crate::support::ostree_node::IMAGE;
use crate::support::{PROGRAM, Run, TestRoot, file, is_root, kubelet_unit, machine_config, say};
use serde_json::{Value, json};

const RECORD: &str = "etc/machine-config-daemon/currentconfig";
const NAME: &str = "rendered-worker-a";
const PULL_SECRET: &str = r#"{"auths":{"registry.example":{"auth":"c2VjcmV0OnNlY3JldA=="}}}"#;
const ENTRY: &str = "boot/loader/entries/ostree-1.conf";

/// What a node is in: a file, a unit, the pull secret, a key.
fn config() -> Value {
    let unit = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let ignition = json!({
        "storage": {"files": [
            file("/etc/of-config.conf", 0o644, "x\n"),
            file("/var/lib/kubelet/config.json", 0o600, PULL_SECRET),
        ]},
        "systemd": {"units": [{"name": "own.service", "enabled": true, "contents": unit}, kubelet_unit()]},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]},
    });
    let mut config = machine_config(NAME, ignition);
    config["spec"]["osImageURL"] = json!(IMAGE);
    config
}

/// A certificate of the authority that the API shows to kubelets, by years.
fn authority(name: &str, from: i32, until: i32) -> String {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    let key = rcgen::KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem()
}

const SIGNER: &str = "openshift-kube-apiserver_kube-apiserver-to-kubelet-signer@1";

fn furnish(root: &TestRoot) {
    let policy = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
    root.write("etc/containers/policy.json", policy);
    root.write(
        "etc/kubernetes/kubelet-ca.crt",
        &authority(SIGNER, 2020, 2090),
    );
    root.write("etc/resolv.conf", "search example\nnameserver 192.0.2.1\n");
    root.write(
        ENTRY,
        "title OS\nversion 1\nlinux /ostree/os-1/vmlinuz\noptions rw console=tty0\n",
    );
    root.write(
        "usr/lib/os-release",
        "ID=scos\nOSTREE_VERSION='9.6.20250701-0'\n",
    );
    root.write(
        ".coreos-aleph-version.json",
        r#"{"build": "418.94.202501300131-0", "imgid": "x"}"#,
    );
}

/// A node that has booted before and is what its record says.
fn well() -> TestRoot {
    let root = TestRoot::new();
    root.apply(&config());
    furnish(&root);
    root
}

/// Changes the recorded config without the disk.
fn recorded(root: &TestRoot, change: impl FnOnce(&mut Value)) {
    let mut config = config();
    change(&mut config["spec"]);
    root.write(RECORD, &config.to_string());
}

fn answer(run: &Run) -> Value {
    assert!(
        [0, 3, 6].contains(&run.code()),
        "{}{}",
        run.out(),
        run.err()
    );
    run.json()
}

fn doctor(root: &TestRoot) -> Value {
    answer(&root.run(&["doctor", "--output", "json"]))
}

fn of(seen: &Value, id: &str) -> Vec<Value> {
    let all = seen["findings"].as_array().unwrap().iter();
    all.filter(|one| one["id"] == id).cloned().collect()
}

/// The one finding of a check, with its severity; all its words.
#[track_caller]
fn found(seen: &Value, id: &str, severity: &str) -> String {
    let all = of(seen, id);
    assert_eq!(all.len(), 1, "{id}: {seen:#}");
    assert_eq!(all[0]["severity"], severity, "{:#}", all[0]);
    assert!(
        !all[0]["next"].as_array().unwrap().is_empty(),
        "{:#}",
        all[0]
    );
    assert!(all[0]["what"].as_str().unwrap().len() <= 60, "{:#}", all[0]);
    all[0].to_string()
}

/// What a check could not look at.
#[track_caller]
fn unseen(seen: &Value, id: &str) -> String {
    let mut checks = seen["checks"].as_array().unwrap().iter();
    let check = checks.find(|check| check["id"] == id).unwrap();
    check["unseen"].to_string()
}

#[track_caller]
fn says(text: &str, all: &[&str]) {
    for one in all {
        assert!(text.contains(one), "no {one:?} in {text}");
    }
}

#[test]
fn a_node_that_is_well_has_nothing_and_everything_was_looked_at() {
    let root = well();
    let before = root.everything();
    let run = root.run(&["doctor", "--output", "json"]).ok();
    let seen = run.json();
    assert_eq!(seen["findings"], json!([]), "{seen:#}");
    let ids: Vec<&str> = seen["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["id"].as_str().unwrap())
        .collect();
    let pages = std::fs::read_dir("docs/doctor").unwrap().count();
    assert_eq!(ids.len() + 1, pages, "{ids:?}");
    assert_eq!(root.everything(), before, "doctor changed something");
}

#[test]
fn every_check_explains_itself_in_eighty_columns() {
    let root = TestRoot::new();
    let all = root.run(&["doctor", "--output", "json"]).json();
    for check in all["checks"].as_array().unwrap() {
        let text = root
            .run(&["doctor", check["id"].as_str().unwrap()])
            .ok()
            .out();
        assert!(text.contains("Looks at"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}

#[test]
fn a_clock_before_a_signature_or_a_build_is_behind() {
    let root = well();
    root.write("etc/kubernetes/ca.crt", &authority("later", 2089, 2090));
    let text = found(&doctor(&root), "FP-15", "critical");
    says(
        &text,
        &["is behind by", "etc/kubernetes/ca.crt", "2089-01-01"],
    );
    root.remove("etc/kubernetes/ca.crt");
    // So does the day on which the OS was built.
    root.write(
        "usr/lib/os-release",
        "ID=scos\nOSTREE_VERSION='9.6.20890701-0'\n",
    );
    says(
        &found(&doctor(&root), "FP-15", "critical"),
        &["the OS was built", "2089-07-01", "/etc/os-release"],
    );
}

#[test]
fn an_etc_that_went_back_is_told_with_the_config_of_the_other_deployment() {
    let root = well();
    let other = format!(
        "sysroot/ostree/deploy/os/deploy/{}.0/{RECORD}",
        "ab".repeat(32)
    );
    let mut newer = config();
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
fn arguments_that_the_daemon_never_finds_and_those_that_lose_are_told() {
    let root = well();
    recorded(&root, |spec| {
        spec["kernelArguments"] = json!(["dyndbg=\"file a +p\""])
    });
    let text = found(&doctor(&root), "FP-18", "warning");
    says(
        &text,
        &["has a blank in it", "missing expected kernel arguments"],
    );
    recorded(&root, |spec| {
        spec["kernelArguments"] = json!(["nosmt=force"])
    });
    root.write(ENTRY, "version 1\noptions rw nosmt=force nosmt=off\n");
    says(
        &found(&doctor(&root), "FP-18", "notice"),
        &["nosmt=off comes behind it"],
    );
    root.write(ENTRY, "version 1\noptions rw nosmt=off nosmt=force\n");
    assert_eq!(of(&doctor(&root), "FP-18"), Vec::<Value>::new());
}

#[test]
fn name_servers_of_a_disk_are_worth_knowing_only() {
    let root = well();
    root.write("etc/resolv.conf", "");
    says(
        &found(&doctor(&root), "FP-32", "notice"),
        &["no server in it"],
    );
    root.remove("etc/resolv.conf");
    assert_eq!(of(&doctor(&root), "FP-32"), Vec::<Value>::new());
}

#[test]
fn a_node_that_is_not_in_the_fips_mode_of_its_config_is_told() {
    let root = well();
    recorded(&root, |spec| spec["fips"] = json!(true));
    says(
        &found(&doctor(&root), "FP-20", "warning"),
        &["FIPS mode is off", "refusing to modify FIPS"],
    );
    root.write(ENTRY, "version 1\noptions rw fips=1\n");
    assert_eq!(of(&doctor(&root), "FP-20"), Vec::<Value>::new());
}

#[test]
fn annotations_that_cannot_be_read_or_are_incomplete_are_critical() {
    let (prefix, path) = (
        "machineconfiguration.openshift.io/",
        "etc/machine-config-daemon/node-annotations.json",
    );
    let root = well();
    root.write(path, "{\"");
    found(&doctor(&root), "FP-22", "critical");
    let current = format!("{prefix}currentConfig");
    root.write(path, &json!({ current.clone(): NAME }).to_string());
    says(
        &found(&doctor(&root), "FP-22", "critical"),
        &["desiredConfig", "annotation not found"],
    );
    let desired = format!("{prefix}desiredConfig");
    root.write(
        path,
        &json!({ current.clone(): NAME, desired.clone(): NAME }).to_string(),
    );
    assert_eq!(of(&doctor(&root), "FP-22"), Vec::<Value>::new());
    root.write(path, &json!({ current: "a", desired: "a" }).to_string());
    says(
        &found(&doctor(&root), "FP-22", "warning"),
        &["ignores currentconfig"],
    );
}

#[test]
fn a_record_that_is_gone_after_the_first_boot_is_told() {
    let root = well();
    root.remove(RECORD);
    assert_eq!(of(&doctor(&root), "FP-22"), Vec::<Value>::new());
    root.write("etc/machine-config-daemon/node-annotation.json.bak", "{}");
    says(
        &found(&doctor(&root), "FP-22", "warning"),
        &["record is gone"],
    );
}

#[test]
fn a_first_boot_that_somebody_put_back_is_critical() {
    let root = well();
    root.write("etc/machine-config-daemon/node-annotation.json.bak", "{}");
    assert_eq!(of(&doctor(&root), "FP-24"), Vec::<Value>::new());
    root.write("etc/ignition-machine-config-encapsulated.json", "{}");
    says(
        &found(&doctor(&root), "FP-24", "critical"),
        &["kubelet does not start"],
    );
    // It is over, so nobody is told to finish it.
    assert_eq!(of(&doctor(&root), "FP-10"), Vec::<Value>::new());
}

#[test]
fn stamps_that_contradict_what_the_os_ships_are_told() {
    let root = well();
    root.write(
        "etc/machine-config-daemon/noorig/etc/chrony.conf.mcdnoorig",
        "",
    );
    assert_eq!(of(&doctor(&root), "FP-24"), Vec::<Value>::new());
    root.write("usr/etc/chrony.conf", "shipped\n");
    says(
        &found(&doctor(&root), "FP-24", "notice"),
        &["/etc/chrony.conf", "the OS ships it"],
    );
}

#[test]
fn files_where_links_of_units_belong_and_links_to_nowhere_are_told() {
    let root = well();
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

/// Sets a label by hand, as `chcon` does; false where the file system takes none.
fn label(root: &TestRoot, path: &str, kind: &str) -> bool {
    let path = std::ffi::CString::new(root.path(path).as_os_str().as_bytes()).unwrap();
    let label = format!("system_u:object_r:{kind}:s0\0");
    let name = c"security.selinux".as_ptr();
    // SAFETY: both names end in a zero byte, and the value is as long as is said.
    0 == unsafe { libc::lsetxattr(path.as_ptr(), name, label.as_ptr().cast(), label.len(), 0) }
}

/// A policy with a label for a file and for the units.
fn with_policy(root: &TestRoot) {
    root.write(
        "etc/selinux/config",
        "SELINUX=enforcing\nSELINUXTYPE=targeted\n",
    );
    root.write(
        CONTEXTS,
        "/etc/of-config\\.conf\tsystem_u:object_r:etc_t:s0\n\
         /etc/systemd/system/own\\.service\tsystem_u:object_r:systemd_unit_file_t:s0\n",
    );
}

const CONTEXTS: &str = "etc/selinux/targeted/contexts/files/file_contexts";

#[test]
fn labels_that_the_policy_does_not_give_are_told_with_the_command() {
    let root = TestRoot::new();
    with_policy(&root);
    root.apply(&config());
    furnish(&root);
    if !is_root() || !label(&root, "etc/of-config.conf", "etc_t") {
        return say("SKIP: labels cannot be set here");
    }
    assert_eq!(of(&doctor(&root), "FP-26"), Vec::<Value>::new());
    label(&root, "etc/of-config.conf", "tmp_t");
    let text = found(&doctor(&root), "FP-26", "warning");
    says(
        &text,
        &[
            "tmp_t, should be etc_t",
            ".autorelabel",
            "not be allowed to read",
        ],
    );
    label(&root, "etc/of-config.conf", "etc_t");
    label(&root, "etc/systemd/system/own.service", "tmp_t");
    says(
        &found(&doctor(&root), "FP-26", "warning"),
        &[
            "should be systemd_unit_file_t",
            "systemd may not load these units",
        ],
    );
    root.write(CONTEXTS, "/etc/of-config\\.conf\n");
    let seen = doctor(&root);
    assert_eq!(of(&seen, "FP-26"), Vec::<Value>::new());
    says(&unseen(&seen, "FP-26"), &["labels: "]);
}

#[test]
fn a_pull_secret_that_cannot_be_used_is_told_and_never_shown() {
    let root = well();
    let path = "var/lib/kubelet/config.json";
    root.write(
        path,
        r#"{"auths":{"registry.example":{"auth":"c2VjcmV0OnNlY3JldA=="}"#,
    );
    let seen = doctor(&root).to_string();
    assert!(!seen.contains("c2VjcmV0"), "{seen}");
    let all = of(&doctor(&root), "FP-27");
    assert_eq!(all[0]["severity"], "warning", "{all:#?}");
    root.write(path, r#"{"auths":{"other.example":{"auth":"eA=="}}}"#);
    root.chmod(path, 0o600);
    says(
        &found(&doctor(&root), "FP-27", "notice"),
        &["changed on the node", "content mismatch"],
    );
}

#[test]
fn a_kubelet_without_its_authority_is_critical() {
    let root = TestRoot::new();
    let mut config = config();
    let files = config["spec"]["config"]["storage"]["files"]
        .as_array_mut()
        .unwrap();
    files.push(file("/etc/kubernetes/kubelet-ca.crt", 0o644, "x\n"));
    root.apply(&config);
    furnish(&root);
    assert_eq!(of(&doctor(&root), "FP-27"), Vec::<Value>::new());
    root.remove("etc/kubernetes/kubelet-ca.crt");
    says(
        &found(&doctor(&root), "FP-27", "critical"),
        &["kubelet-ca.crt"],
    );
    // The command that it names is the remedy.
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(of(&doctor(&root), "FP-27"), Vec::<Value>::new());
}

#[test]
fn a_disk_from_an_old_image_is_told() {
    let root = well();
    let old = r#"{"build": "48.84.202109241901-0"}"#;
    root.write(".coreos-aleph-version.json", old);
    says(
        &found(&doctor(&root), "FP-28", "notice"),
        &["48.84.202109241901-0", "3 years"],
    );
    root.write("etc/ignition-machine-config-encapsulated.json", "{}");
    found(&doctor(&root), "FP-28", "warning");
}

#[test]
fn a_console_that_throws_everything_away_is_told() {
    let root = well();
    root.write(
        ENTRY,
        "version 1\noptions rw console=tty0 console=ttynull\n",
    );
    says(
        &found(&doctor(&root), "FP-30", "warning"),
        &["switched off", "console=ttynull"],
    );
}

#[test]
fn an_authority_of_the_kubelet_that_has_expired_is_told() {
    let root = well();
    let path = "etc/kubernetes/kubelet-ca.crt";
    let expired = authority(SIGNER, 2020, 2021);
    root.write(path, &expired);
    assert_eq!(of(&doctor(&root), "FP-31"), Vec::<Value>::new());
    assert_eq!(of(&doctor(&root), "FP-09").len(), 1);
    // Another authority beside it will not do; a newer signer will.
    let beside = expired + &authority("other", 2020, 2090);
    root.write(path, &beside);
    says(
        &found(&doctor(&root), "FP-31", "warning"),
        &["oc logs", "2021-01-01"],
    );
    root.write(path, &(beside + &authority(SIGNER, 2020, 2090)));
    assert_eq!(of(&doctor(&root), "FP-31"), Vec::<Value>::new());
}

#[test]
fn a_node_that_nobody_can_log_in_to_is_critical() {
    let root = well();
    root.chmod("home/core/.ssh", 0o777);
    let text = found(&doctor(&root), "FP-33", "critical");
    says(
        &text,
        &["/home/core/.ssh has mode 0777", "Permission denied"],
    );
    // A password is a way in at the console.
    root.write("etc/shadow", "core:$6$salt$hash:19000:0:99999:7:::\n");
    let seen = doctor(&root);
    found(&seen, "FP-33", "warning");
    assert!(!seen.to_string().contains("$6$"), "{seen:#}");
    root.chmod("home/core/.ssh", 0o700);
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
    root.write(
        "etc/ssh/sshd_config.d/10-x.conf",
        "PubkeyAuthentication no\n",
    );
    says(&found(&doctor(&root), "FP-33", "warning"), &["10-x.conf"]);
}

#[test]
fn keys_of_somebody_else_are_refused_and_given_back_by_the_command() {
    if !is_root() {
        return say("SKIP: giving files to others needs root");
    }
    let root = well();
    let keys = "home/core/.ssh/authorized_keys.d/ignition";
    std::os::unix::fs::chown(root.path(keys), Some(4242), None).unwrap();
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-33", "critical"),
        &["belongs to user 4242"],
    );
    let command = of(&seen, "FP-33")[0]["next"][0]
        .as_str()
        .unwrap()
        .to_owned();
    let status = std::process::Command::new("sh")
        .args(["-c", &command])
        .status();
    assert!(status.unwrap().success(), "{command}");
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
}

#[test]
fn keys_that_are_gone_are_missed_only_where_the_config_gives_some() {
    let root = well();
    root.remove("home/core/.ssh/authorized_keys.d/ignition");
    says(
        &found(&doctor(&root), "FP-33", "critical"),
        &["gives 1 key to core", "mco-rescue apply"],
    );
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
    root.remove("home/core/.ssh/authorized_keys.d/ignition");
    recorded(&root, |spec| {
        spec["config"]["passwd"] = json!({"users": []})
    });
    found(&doctor(&root), "FP-33", "notice");
}

/// Something that a check cannot look at, and why.
type Dark = (&'static str, &'static str, fn(&TestRoot));

/// A directory where a file belongs.
fn directory(root: &TestRoot, path: &str) {
    let _ = fs::remove_file(root.path(path));
    fs::create_dir_all(root.path(path)).unwrap();
}

/// A link that leads to itself where a directory belongs.
fn endless(root: &TestRoot, path: &str) {
    let _ = fs::remove_dir_all(root.path(path));
    root.link(path, path.rsplit('/').next().unwrap());
}

const DARK: [Dark; 18] = [
    ("FP-01", "this root is no deployment of ostree", |_| {}),
    ("FP-01", "the record cannot be read", |root| {
        directory(root, RECORD)
    }),
    ("FP-03", "files beside the recorded config", |root| {
        root.remove(RECORD)
    }),
    ("FP-16", "there is neither /sysroot nor /var", |root| {
        fs::remove_dir_all(root.path("var")).unwrap();
    }),
    ("FP-17", "records in other deployments", |root| {
        endless(root, "sysroot/ostree/deploy");
    }),
    ("FP-18", "the arguments that the node boots with", |root| {
        root.remove(ENTRY);
        recorded(root, |spec| spec["kernelArguments"] = json!(["nosmt"]));
    }),
    ("FP-19", "packages of extensions", |root| {
        recorded(root, |spec| spec["extensions"] = json!(["usbguard"]));
    }),
    ("FP-20", "FIPS mode: no boot entry", |root| {
        root.remove(ENTRY)
    }),
    ("FP-22", "node-annotations.json", |root| {
        directory(root, "etc/machine-config-daemon/node-annotations.json");
    }),
    ("FP-24", "the daemon's copies and stamps", |root| {
        endless(root, "etc/machine-config-daemon/orig");
    }),
    ("FP-25", "links of units", |root| {
        endless(root, "etc/systemd/system")
    }),
    ("FP-27", "pull secrets", |root| {
        directory(root, "etc/ostree/auth.json")
    }),
    ("FP-28", "no file tells its day", |root| {
        root.remove(".coreos-aleph-version.json")
    }),
    ("FP-28", "the boot image: ", |root| {
        directory(root, ".aleph-version.json")
    }),
    ("FP-30", "console= of the kernel", |root| root.remove(ENTRY)),
    ("FP-31", "/etc/kubernetes/kubelet-ca.crt has none", |root| {
        root.remove("etc/kubernetes/kubelet-ca.crt");
    }),
    ("FP-32", "name servers", |root| {
        directory(root, "etc/resolv.conf")
    }),
    ("FP-33", "keys and passwords", |root| {
        directory(root, "home/core/.ssh/authorized_keys");
    }),
];

#[test]
fn what_a_check_cannot_look_at_is_said_and_never_taken_for_wrong() {
    for (id, why, darken) in DARK {
        let root = well();
        darken(&root);
        let seen = doctor(&root);
        assert_eq!(of(&seen, id), Vec::<Value>::new(), "{id} {why}");
        let said = unseen(&seen, id);
        assert!(said.contains(why), "{id}: no {why:?} in {said}");
    }
}

#[test]
fn one_difference_is_named_unless_its_name_is_long_and_what_the_daemon_does_not_see_is_a_notice() {
    let root = well();
    root.write("etc/of-config.conf", "y\n");
    says(
        &found(&doctor(&root), "FP-03", "warning"),
        &["/etc/of-config.conf is not as recorded", "; changed 20"],
    );
    root.run(&["apply", "--yes"]).ok();
    let unit = "etc/systemd/system/own.service";
    root.write(
        unit,
        "[Service]\nExecStart=/bin/false\n[Install]\nWantedBy=multi-user.target\n",
    );
    says(
        &found(&doctor(&root), "FP-03", "warning"),
        &["a file or unit is not as recorded", "own.service"],
    );
    root.run(&["apply", "--yes"]).ok();
    root.remove("home/core/.ssh/authorized_keys.d/ignition");
    let text = found(&doctor(&root), "FP-03", "notice");
    says(
        &text,
        &[
            "1 difference that the daemon does not see",
            "mco-rescue verify",
        ],
    );
}

#[test]
fn a_clock_before_this_nodes_own_files_may_be_right() {
    let root = well();
    let written_in = |seconds: u64| {
        let file = fs::File::options()
            .write(true)
            .open(root.path("etc/machine-id"));
        let time = SystemTime::now() + Duration::from_secs(seconds);
        file.unwrap().set_modified(time).unwrap();
    };
    written_in(500);
    assert_eq!(of(&doctor(&root), "FP-15"), Vec::<Value>::new());
    for (seconds, span) in [
        (1230, "20 minutes"),
        (5 * 3600 + 30, "5 hours"),
        (5 * 86_400 + 30, "5 days"),
    ] {
        written_in(seconds);
        let text = found(&doctor(&root), "FP-15", "warning");
        says(
            &text,
            &["is behind by", span, "/etc/machine-id", "or it was ahead"],
        );
        assert!(!text.contains("x509"), "{text}");
    }
}

#[test]
fn an_argument_that_never_closes_its_quote_is_told() {
    let root = well();
    recorded(&root, |spec| spec["kernelArguments"] = json!(["a=\"1"]));
    says(
        &found(&doctor(&root), "FP-18", "warning"),
        &["never closes its quote", "oc edit mc NAME"],
    );
}

/// As the API had the annotations when it was asked last.
fn annotated(root: &TestRoot, current: Option<&str>, desired: Option<&str>) {
    let seen = json!({"version": 1, "node": "worker-0", "seen": 1_700_000_000, "current": current,
        "desired": desired, "state": "Working"});
    root.write("var/lib/mco-rescue/annotations.json", &seen.to_string());
}

/// Parts of a config that the daemon changes on no node that has booted, and its words.
#[test]
fn a_wanted_config_that_the_daemon_calls_unreconcilable_is_told_with_its_words() {
    let ignition = |section: &str, value: Value| {
        let mut wanted = config();
        wanted["spec"]["config"][section] = value;
        wanted
    };
    let storage = |section: &str, value: Value| {
        let mut wanted = config();
        wanted["spec"]["config"]["storage"][section] = value;
        wanted
    };
    let mut fips = config();
    fips["spec"]["fips"] = json!(true);
    let filesystem = json!([{"device": "/dev/vdb", "format": "xfs", "path": "/data"}]);
    let raid = json!([{"name": "data", "level": "raid1", "devices": ["/dev/vdb", "/dev/vdc"]}]);
    let own = json!({"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]});
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
        let root = well();
        let wanted = root.config(&wanted);
        root.run(&["fetch", wanted.path()]).ok();
        annotated(&root, Some(NAME), Some("rendered-worker-b"));
        says(
            &found(&doctor(&root), "FP-20", "warning"),
            &[
                "the cluster wants a config that is refused",
                "can't reconcile",
                words,
                "cached:rendered-worker-b",
            ],
        );
    }
}

#[test]
fn a_wanted_config_that_the_daemon_goes_to_is_no_trouble() {
    let root = well();
    let mut wanted = config();
    wanted["metadata"]["name"] = json!("rendered-worker-b");
    wanted["spec"]["config"]["storage"]["files"][0] = file("/etc/of-config.conf", 0o644, "y\n");
    let wanted = root.config(&wanted);
    root.run(&["fetch", wanted.path()]).ok();
    annotated(&root, Some(NAME), Some("rendered-worker-b"));
    let seen = doctor(&root);
    assert_eq!(of(&seen, "FP-20"), Vec::<Value>::new());
    assert_eq!(of(&seen, "FP-22"), Vec::<Value>::new());
}

#[test]
fn an_annotation_that_the_node_object_lacks_is_critical() {
    let root = well();
    annotated(&root, Some(NAME), None);
    says(
        &found(&doctor(&root), "FP-22", "critical"),
        &[
            "lacks annotations",
            "desiredConfig",
            "annotation not found",
            "--for-cluster",
        ],
    );
    // The daemon takes the other one from its record.
    annotated(&root, None, Some(NAME));
    assert_eq!(of(&doctor(&root), "FP-22"), Vec::<Value>::new());
    let file = json!({"machineconfiguration.openshift.io/desiredConfig": NAME});
    root.write(
        "etc/machine-config-daemon/node-annotations.json",
        &file.to_string(),
    );
    root.remove("var/lib/mco-rescue/annotations.json");
    root.remove(RECORD);
    says(
        &found(&doctor(&root), "FP-22", "critical"),
        &[
            "node-annotations.json has no currentConfig",
            "annotation not found",
        ],
    );
}

#[test]
fn copies_and_stamps_of_one_file_and_files_that_are_neither_are_told() {
    let root = well();
    let daemon = "etc/machine-config-daemon";
    root.write(&format!("{daemon}/orig/etc/a.conf.mcdorig"), "of the OS\n");
    assert_eq!(of(&doctor(&root), "FP-24"), Vec::<Value>::new());
    root.write(&format!("{daemon}/noorig/etc/a.conf.mcdnoorig"), "");
    root.write(&format!("{daemon}/orig/etc/b.conf"), "");
    says(
        &found(&doctor(&root), "FP-24", "notice"),
        &[
            "/etc/a.conf",
            "has a copy and a stamp",
            "orig/etc/b.conf",
            "is neither copy nor stamp",
        ],
    );
}

#[test]
fn a_pull_secret_without_entries_is_told_and_that_of_the_internal_registry_may_be_empty() {
    let root = well();
    root.write("etc/mco/internal-registry-pull-secret.json", "{}");
    assert_eq!(of(&doctor(&root), "FP-27"), Vec::<Value>::new());
    root.write("etc/ostree/auth.json", r#"{"auths":{}}"#);
    says(
        &found(&doctor(&root), "FP-27", "warning"),
        &["cannot be used", "/etc/ostree/auth.json", "it has no entry"],
    );
}

#[test]
fn what_the_daemon_writes_itself_once_it_runs_is_missed_with_a_warning() {
    let root = TestRoot::new();
    let bundle = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
    let mut config = config();
    let files = config["spec"]["config"]["storage"]["files"].as_array_mut();
    files.unwrap().push(file(bundle, 0o644, "x\n"));
    root.apply(&config);
    furnish(&root);
    assert_eq!(of(&doctor(&root), "FP-27"), Vec::<Value>::new());
    root.remove(bundle);
    says(
        &found(&doctor(&root), "FP-27", "warning"),
        &[
            "missing that the daemon writes itself",
            "ca-bundle.pem",
            "once it runs",
        ],
    );
}

#[test]
fn an_authority_of_the_kubelet_is_due_before_it_expires() {
    let root = well();
    let path = "etc/kubernetes/kubelet-ca.crt";
    let days = |days: u64| Duration::from_secs(days * 86_400);
    let signed = |ago: u64, left: u64| {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.not_before = (SystemTime::now() - days(ago)).into();
        params.not_after = (SystemTime::now() + days(left)).into();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, SIGNER);
        let key = rcgen::KeyPair::generate().unwrap();
        root.write(path, &params.self_signed(&key).unwrap().pem());
    };
    signed(200, 165);
    assert_eq!(of(&doctor(&root), "FP-31"), Vec::<Value>::new());
    signed(300, 65);
    says(
        &found(&doctor(&root), "FP-31", "notice"),
        &[
            "is due for replacement",
            "is the pool paused",
            "scp core@OTHER-NODE:",
        ],
    );
}

#[test]
fn a_disk_of_a_node_that_answers_for_names_itself_says_so() {
    let root = well();
    root.write("etc/resolv.conf", "nameserver 127.0.0.1\n");
    root.write("etc/kubernetes/manifests/coredns.yaml", "kind: Pod\n");
    says(
        &found(&doctor(&root), "FP-32", "notice"),
        &[
            "the node asks itself alone for names",
            "coredns.yaml",
            "static pod",
        ],
    );
}

#[test]
fn a_file_with_keys_that_sshd_refuses_beside_one_that_it_takes_is_a_warning() {
    let root = well();
    let keys = "home/core/.ssh/authorized_keys";
    root.write(keys, "ssh-ed25519 AAAA b\n");
    std::os::unix::fs::chown(root.path(keys), Some(root.core().0), Some(root.core().1)).unwrap();
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
    root.chmod(keys, 0o666);
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-33", "warning"),
        &[
            "sshd refuses a file with keys",
            "authorized_keys has mode 0666",
            "chmod -R go-w",
        ],
    );
    let command = of(&seen, "FP-33")[0]["next"][0]
        .as_str()
        .unwrap()
        .to_owned();
    let status = std::process::Command::new("sh")
        .args(["-c", &command])
        .status();
    assert!(status.unwrap().success(), "{command}");
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
}

#[test]
fn passwords_that_only_root_may_see_are_not_taken_for_none() {
    if !is_root() {
        return say("SKIP: keeping something from oneself needs root");
    }
    let root = well();
    root.remove("home/core/.ssh/authorized_keys.d/ignition");
    for directory in ["", "home/core/.ssh", "home/core/.ssh/authorized_keys.d"] {
        root.chmod(directory, 0o755);
    }
    let mut command = root.command(&["doctor", "--output", "json"]);
    let Ok(output) = command.uid(65534).stdin(Stdio::null()).output() else {
        return say(&format!("SKIP: {PROGRAM} is where nobody may run it"));
    };
    let seen = answer(&Run::of(output));
    says(
        &found(&seen, "FP-33", "warning"),
        &["nobody can log in over ssh"],
    );
    says(&unseen(&seen, "FP-33"), &["/etc/shadow cannot be read"]);
}
