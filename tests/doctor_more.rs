//! `doctor` on a node that is well and on one with each trouble: the checks of clock, disk, arguments, packages,
//! records, units, labels, secrets, consoles, names and logins.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    missing_docs
)]

#[path = "support/mounts.rs"]
mod mounts;
#[path = "support/ostree_node.rs"]
mod ostree_node;
mod support;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use mounts::{mount, with_mounts};
use ostree_node::{IMAGE, OstreeNode};
use serde_json::{Value, json};
use support::{Run, TestRoot, file, is_root, machine_config, say};

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
        "systemd": {"units": [{"name": "own.service", "enabled": true, "contents": unit}]},
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
    for number in [
        15, 16, 17, 18, 19, 20, 22, 24, 25, 26, 27, 28, 30, 31, 32, 33,
    ] {
        assert!(ids.contains(&format!("FP-{number}").as_str()), "{ids:?}");
    }
    assert_eq!(root.everything(), before, "doctor changed something");
}

#[test]
fn every_check_explains_itself_in_eighty_columns() {
    let root = TestRoot::new();
    for number in [
        15, 16, 17, 18, 19, 20, 22, 24, 25, 26, 27, 28, 30, 31, 32, 33,
    ] {
        let text = root.run(&["doctor", &format!("FP-{number}")]).ok().out();
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
fn a_disk_without_room_is_critical_before_anything_fails() {
    with_mounts(|| {
        let root = TestRoot::new();
        let var = root.path("var");
        mount(&[
            "-t",
            "tmpfs",
            "-o",
            "size=64m",
            "tmpfs",
            var.to_str().unwrap(),
        ]);
        fs::create_dir(root.path("var/lib")).unwrap();
        root.apply(&config());
        furnish(&root);
        assert_eq!(of(&doctor(&root), "FP-16"), Vec::<Value>::new());
        let fill = |mebibytes: usize| root.write("var/fill", &"x".repeat(mebibytes << 20));
        fill(59);
        says(
            &found(&doctor(&root), "FP-16", "warning"),
            &["of 64 MiB are free"],
        );
        fill(62);
        says(
            &found(&doctor(&root), "FP-16", "critical"),
            &["No space left on device"],
        );
    });
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

/// A live node with stubs of its programs.
fn live(test: impl FnOnce(&OstreeNode) + Send) {
    with_mounts(|| {
        let node = OstreeNode::new();
        furnish(&node.root);
        test(&node);
    });
}

fn record_on(node: &OstreeNode, change: impl FnOnce(&mut Value)) {
    let mut config = config();
    change(&mut config["spec"]);
    node.root.write(RECORD, &config.to_string());
}

fn doctor_on(node: &OstreeNode) -> Value {
    answer(&node.run(&["doctor", "--output", "json"]))
}

#[test]
fn packages_of_extensions_and_kernels_are_missed_on_a_live_node() {
    live(|node| {
        record_on(node, |spec| spec["extensions"] = json!(["usbguard"]));
        says(
            &found(&doctor_on(node), "FP-19", "warning"),
            &["usbguard not layered"],
        );
        node.runs(IMAGE, "usbguard", "");
        assert_eq!(of(&doctor_on(node), "FP-19"), Vec::<Value>::new());
        record_on(node, |spec| {
            spec["extensions"] = json!(["usbguard"]);
            spec["kernelType"] = json!("realtime");
        });
        says(
            &found(&doctor_on(node), "FP-19", "warning"),
            &["realtime is wanted, default is there"],
        );
        assert_eq!(
            node.calls(),
            Vec::<String>::new(),
            "doctor changed something"
        );
    });
}

#[test]
fn a_boot_entry_that_somebody_changed_is_told_on_a_live_node() {
    live(|node| {
        record_on(node, |_| {});
        assert_eq!(of(&doctor_on(node), "FP-18"), Vec::<Value>::new());
        node.root.write("stub/kargs", "rw by-hand=1\n");
        says(
            &found(&doctor_on(node), "FP-18", "notice"),
            &["the next boot only", "by-hand=1"],
        );
    });
}

#[test]
fn a_live_node_without_name_servers_is_critical() {
    live(|node| {
        record_on(node, |_| {});
        assert_eq!(of(&doctor_on(node), "FP-32"), Vec::<Value>::new());
        node.root.write("etc/resolv.conf", "search example\n");
        says(
            &found(&doctor_on(node), "FP-32", "critical"),
            &["on [::1]:53"],
        );
        node.root.write("etc/resolv.conf", "nameserver 127.0.0.1\n");
        found(&doctor_on(node), "FP-32", "warning");
        node.root
            .write("etc/kubernetes/manifests/coredns.yaml", "kind: Pod\n");
        says(
            &found(&doctor_on(node), "FP-32", "critical"),
            &["coredns.yaml", "127.0.0.1"],
        );
    });
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

#[test]
fn labels_that_the_policy_does_not_give_are_told_with_the_command() {
    let root = TestRoot::new();
    root.write(
        "etc/selinux/config",
        "SELINUX=enforcing\nSELINUXTYPE=targeted\n",
    );
    root.write(
        "etc/selinux/targeted/contexts/files/file_contexts",
        "/etc/of-config\\.conf\tsystem_u:object_r:etc_t:s0\n",
    );
    root.apply(&config());
    furnish(&root);
    if !is_root() || !label(&root, "etc/of-config.conf", "etc_t") {
        return say("SKIP: labels cannot be set here");
    }
    assert_eq!(of(&doctor(&root), "FP-26"), Vec::<Value>::new());
    label(&root, "etc/of-config.conf", "tmp_t");
    let text = found(&doctor(&root), "FP-26", "warning");
    says(&text, &["tmp_t, should be etc_t", ".autorelabel"]);
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
        &["gives 1 keys to core", "mco-rescue apply"],
    );
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
    root.remove("home/core/.ssh/authorized_keys.d/ignition");
    recorded(&root, |spec| {
        spec["config"]["passwd"] = json!({"users": []})
    });
    found(&doctor(&root), "FP-33", "notice");
}
