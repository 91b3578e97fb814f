//! SELinux labels, with a real policy: what `apply` puts in place has the label that the real `matchpathcon` and
//! `setfiles` give its final path, on a kernel that knows nothing of SELinux.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Lacks, PROGRAM, Run, TestRoot, file, is_root, machine_config, say, skip};
use mco_rescue::base::object::ObjectKind;
use mco_rescue::formats::labels::{FileContexts, PolicySources};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

/// As long as a real one, and without a digest that could be wrong.
const NAME: &str = "rendered-worker-0123456789abcdef0123456789abcdex";

/// What tests/selinux-policy.sh made: the policy and the tools that judge by it.
struct Policy(PathBuf);

impl Policy {
    fn here() -> Option<Self> {
        let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(target)
            .join("selinux");
        if dir.join("done").exists() {
            return Some(Self(fs::canonicalize(dir).unwrap()));
        }
        skip(
            Lacks::Setup,
            "no SELinux policy here (tests/setup.sh makes one)",
        );
        None
    }

    fn text(&self, name: &str) -> String {
        let path = self.0.join("default/contexts/files").join(name);
        fs::read_to_string(path).unwrap_or_default()
    }

    fn sources(&self) -> PolicySources {
        PolicySources {
            policy: self.text("file_contexts"),
            homes: self.text("file_contexts.homedirs"),
            policy_aliases: self.text("file_contexts.subs_dist"),
            ..PolicySources::default()
        }
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(self.0.join("tools").join(name));
        command.env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// A node with this policy, itself labelled by the real `setfiles`.
    fn root(&self) -> Option<Labelled<'_>> {
        if !is_root() {
            skip(Lacks::Root, "setting labels needs root");
            return None;
        }
        let root = TestRoot::new();
        let copied = Command::new("cp")
            .arg("-r")
            .arg(self.0.join("default"))
            .arg(root.path("etc/"))
            .status();
        assert!(copied.unwrap().success());
        fs::create_dir(root.path("etc/selinux")).unwrap();
        fs::rename(root.path("etc/default"), root.path("etc/selinux/default")).unwrap();
        root.write(
            "etc/selinux/config",
            "SELINUX=enforcing\nSELINUXTYPE=default\n",
        );
        let node = Labelled { policy: self, root };
        node.furnish();
        node.setfiles(&["-F"], "");
        if node.label("etc/shadow").is_none() {
            skip(
                Lacks::Machine,
                "labels cannot be set on the scratch file system",
            );
            return None;
        }
        Some(node)
    }
}

struct Labelled<'a> {
    policy: &'a Policy,
    root: TestRoot,
}

impl Labelled<'_> {
    fn furnish(&self) {
        let root = &self.root;
        root.write("etc/replaced.conf", "old\n");
        root.write("etc/untouched.conf", "same\n");
        root.write("usr/etc/chrony.conf", "shipped\n");
        root.write("etc/chrony.conf", "shipped\n");
        root.link("etc/old-link", "before");
        root.write("usr/lib/systemd/system/shipped.service", UNIT);
    }

    fn setfiles(&self, options: &[&str], below: &str) -> String {
        let dir = self.root.dir();
        let mut command = self.policy.tool("sbin/setfiles");
        command.args(options).arg("-r").arg(dir);
        let contexts = self
            .root
            .path("etc/selinux/default/contexts/files/file_contexts");
        let output = command
            .arg(contexts)
            .arg(self.root.path(below))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the real tool would change, path by path; `-F` compares whole labels.
    fn wrong(&self) -> BTreeMap<String, String> {
        let report = self.setfiles(&["-n", "-v", "-F"], "");
        let prefix = format!("Would relabel {}/", self.root.dir().display());
        let lines = report.lines().filter_map(|line| line.strip_prefix(&prefix));
        let pairs = lines.map(|line| line.split_once(" from ").unwrap());
        let owned = pairs.map(|(path, change)| (path.to_owned(), change.to_owned()));
        // What is kept of replaced objects has the labels that these had; the daemon's copies too (`cp -a`).
        owned
            .filter(|(path, _)| !path.starts_with("var/lib/mco-rescue/history/"))
            .filter(|(path, _)| !path.starts_with("etc/machine-config-daemon/orig/etc/"))
            .collect()
    }

    fn label(&self, path: &str) -> Option<String> {
        let root = mco_rescue::host::root::Root::open(self.root.dir()).unwrap();
        let path = mco_rescue::host::root::RootPath::parse(&format!("/{path}")).unwrap();
        root.open_place(&path)
            .unwrap()
            .unwrap()
            .read_label()
            .ok()
            .flatten()
    }

    fn type_at(&self, path: &str) -> Option<String> {
        let label = self.label(path)?;
        Some(mco_rescue::formats::labels::type_of(&label).to_owned())
    }

    /// Sets a label by hand, as `chcon` does.
    fn chcon(&self, path: &str, kind: &str) {
        let path = self.root.path(path);
        let label = format!("system_u:object_r:{kind}:s0\0");
        set_label(&path, label.as_bytes());
    }

    fn apply(&self, config: &Value) -> Run {
        self.root.apply(config)
    }

    fn labels_phase(&self) -> String {
        labels_phase(&self.root)
    }
}

#[allow(unsafe_code)]
fn set_label(path: &Path, label: &[u8]) {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let name = c"security.selinux".as_ptr();
    // SAFETY: both strings and the value live through the call.
    let done =
        unsafe { libc::lsetxattr(path.as_ptr(), name, label.as_ptr().cast(), label.len(), 0) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// What `status` says of the labels of the last run.
fn labels_phase(root: &TestRoot) -> String {
    let status = root.run(&["--output", "json", "status"]).ok().json();
    let phases = status["last_run"]["phases"].as_array().unwrap().clone();
    let phase = phases.iter().find(|phase| phase["name"] == "labels");
    phase
        .map_or("", |phase| phase["result"].as_str().unwrap())
        .to_owned()
}

/// The SELinux notices of a plan.
fn notices(root: &TestRoot, config: &Value) -> Vec<String> {
    let config = root.config(config);
    let plan = root
        .run(&["--output", "json", "plan", config.path()])
        .json();
    let all = plan["notices"].as_array().unwrap().iter();
    let ours = all.filter(|notice| notice["subject"] == "SELinux");
    ours.map(|notice| notice["message"].as_str().unwrap().to_owned())
        .collect()
}

const UNIT: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";

/// Every kind of object that a MachineConfig leads to.
fn everything() -> Value {
    let mut config = machine_config(
        NAME,
        json!({
            "storage": {
                "files": [
                    file("/etc/replaced.conf", 0o644, "new\n"),
                    file("/etc/untouched.conf", 0o644, "same\n"),
                    file("/etc/chrony.conf", 0o644, "ours\n"),
                    file("/etc/ssh/sshd_config.d/10-ours.conf", 0o600, "x\n"),
                    file("/etc/NetworkManager/system-connections/a.nmconnection", 0o600, "x\n"),
                    file("/etc/deep/in/new/directories/file", 0o644, "x\n"),
                    file("/var/log/ours/log", 0o644, "x\n"),
                    file("/usr/local/bin/tool.sh", 0o755, "#!/bin/sh\n"),
                    file("/tmp-like/x", 0o644, "x\n"),
                ],
                "directories": [{"path": "/var/lib/kubelet/pki", "mode": 0o700}],
                "links": [
                    {"path": "/etc/old-link", "target": "/etc/replaced.conf", "overwrite": true},
                    {"path": "/etc/localtime", "target": "../usr/share/zoneinfo/UTC"},
                ],
            },
            "systemd": {"units": [
                {"name": "ours.service", "contents": UNIT, "enabled": true},
                {"name": "masked.service", "mask": true},
                {"name": "shipped.service", "enabled": true,
                 "dropins": [{"name": "10-a.conf", "contents": "[Service]\nNice=1\n"}]},
            ]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA core"],
                                  "passwordHash": "$6$salt$hash"}]},
        }),
    );
    config["spec"]["config"]["ignition"]["version"] = json!("3.5.0");
    config
}

const CREATED: [(&str, &str); 16] = [
    ("etc/replaced.conf", "etc_t"),
    ("etc/old-link", "etc_t"),
    ("etc/localtime", "etc_t"),
    ("etc/shadow", "shadow_t"),
    ("etc/.pwd.lock", "shadow_lock_t"),
    ("etc/deep/in/new", "etc_t"),
    (
        "etc/NetworkManager/system-connections/a.nmconnection",
        "NetworkManager_etc_rw_t",
    ),
    ("var/log/ours", "var_log_t"),
    ("usr/local/bin/tool.sh", "bin_t"),
    ("tmp-like/x", "default_t"),
    ("etc/systemd/system/ours.service", "systemd_unit_t"),
    (
        "etc/systemd/system/multi-user.target.wants/ours.service",
        "systemd_unit_t",
    ),
    ("etc/systemd/system/masked.service", "systemd_unit_t"),
    ("home/core/.ssh/authorized_keys.d/ignition", "ssh_home_t"),
    ("etc/machine-config-daemon/currentconfig", "etc_t"),
    ("var/lib/mco-rescue/status.json", "var_lib_t"),
];

#[test]
fn everything_that_apply_puts_in_place_has_the_label_that_setfiles_gives() {
    let Some(policy) = Policy::here() else { return };
    let Some(node) = policy.root() else { return };
    assert_eq!(node.wrong(), BTreeMap::new());
    let before: BTreeSet<String> = node.root.everything().into_keys().collect();
    node.apply(&everything());
    assert_eq!(node.wrong(), BTreeMap::new());
    for (path, wanted) in CREATED {
        assert_eq!(node.type_at(path).as_deref(), Some(wanted), "{path}");
    }
    let after = node.root.everything();
    let new: Vec<_> = after
        .keys()
        .filter(|path| !before.contains(*path))
        .collect();
    let unlabelled = new.iter().filter(|path| node.label(path).is_none());
    assert_eq!(unlabelled.collect::<Vec<_>>(), [&""; 0]);
    say(&format!(
        "{} new objects, every one with the label that setfiles gives",
        new.len()
    ));
    assert!(
        node.labels_phase().ends_with(" new objects labelled"),
        "{}",
        node.labels_phase()
    );
}

#[test]
fn a_second_run_is_empty_and_has_nothing_to_say_of_labels() {
    let Some(policy) = Policy::here() else { return };
    let Some(node) = policy.root() else { return };
    node.apply(&everything());
    let config = node.root.config(&everything());
    let plan = node
        .root
        .run(&["--output", "json", "plan", config.path()])
        .ok()
        .json();
    assert_eq!(plan["steps"], json!([]));
    assert_eq!(notices(&node.root, &everything()), [""; 0]);
}

#[test]
fn accounts_homes_and_keys_of_a_bare_config_are_labelled_too() {
    let Some(policy) = Policy::here() else { return };
    let Some(node) = policy.root() else { return };
    if Command::new("useradd").arg("--help").output().is_err() {
        return skip(Lacks::Setup, "useradd is not installed");
    }
    node.root.write("etc/skel/.bashrc", "alias ll='ls -l'\n");
    node.setfiles(&["-F"], "");
    let config = json!({
        "ignition": {"version": "3.4.0"},
        "passwd": {
            "users": [{"name": "bob", "sshAuthorizedKeys": ["ssh-ed25519 AAAA bob"]}],
            "groups": [{"name": "ops"}],
        },
        "storage": {"links": [
            {"path": "/etc/hard", "target": "/etc/untouched.conf", "hard": true},
            {"path": "/etc/soft", "target": "/etc/hard"},
        ]},
    });
    node.apply(&config);
    assert_eq!(node.wrong(), BTreeMap::new());
    for (path, wanted) in [
        ("etc/passwd", "etc_t"),
        ("etc/shadow", "shadow_t"),
        ("home/bob", "user_home_dir_t"),
        ("home/bob/.bashrc", "user_home_t"),
        ("home/bob/.ssh/authorized_keys.d", "ssh_home_t"),
    ] {
        assert_eq!(node.type_at(path).as_deref(), Some(wanted), "{path}");
    }
}

#[test]
fn below_links_of_the_os_the_real_path_decides() {
    let Some(policy) = Policy::here() else { return };
    let Some(node) = policy.root() else { return };
    // As OSTree systems have them.
    for (link, real) in [("home", "var/home"), ("opt", "var/opt"), ("srv", "var/srv")] {
        let old = node.root.path(link);
        fs::create_dir_all(node.root.path("var")).unwrap();
        if old.exists() {
            fs::rename(&old, node.root.path(real)).unwrap();
        } else {
            fs::create_dir_all(node.root.path(real)).unwrap();
        }
        symlink(real, &old).unwrap();
    }
    let aliases = "/var/home /home\n";
    node.root.write(
        "etc/selinux/default/contexts/files/file_contexts.subs",
        aliases,
    );
    node.setfiles(&["-F"], "");
    let mut config = everything();
    let more = [
        file("/opt/new/bin/x", 0o755, "x\n"),
        file("/srv/new/x", 0o644, "x\n"),
    ];
    let files = config["spec"]["config"]["storage"]["files"]
        .as_array_mut()
        .unwrap();
    files.extend(more);
    node.apply(&config);
    assert_eq!(node.wrong(), BTreeMap::new());
    assert_eq!(
        node.type_at("home/core/.ssh").as_deref(),
        Some("ssh_home_t")
    );
    // The policy knows /opt/*/bin, but not below /var.
    assert_eq!(node.type_at("opt/new/bin/x").as_deref(), Some("var_t"));
}

#[test]
fn labels_set_with_semanage_count_and_those_set_by_hand_are_reset_when_a_file_is_replaced() {
    let Some(policy) = Policy::here() else { return };
    let Some(node) = policy.root() else { return };
    let local = "/etc/replaced\\.conf -- system_u:object_r:shadow_t:s0\n/etc/deep(/.*)? system_u:object_r:var_t:s0\n";
    node.root.write(
        "etc/selinux/default/contexts/files/file_contexts.local",
        local,
    );
    node.setfiles(&["-F"], "etc/selinux");
    node.chcon("etc/replaced.conf", "tmp_t");
    node.chcon("etc/chrony.conf", "tmp_t");
    node.apply(&everything());
    assert_eq!(
        node.type_at("etc/replaced.conf").as_deref(),
        Some("shadow_t")
    );
    assert_eq!(
        node.type_at("etc/deep/in/new/directories").as_deref(),
        Some("var_t")
    );
    assert_eq!(
        node.type_at("etc/chrony.conf").as_deref(),
        Some("chronyd_conf_t")
    );
    assert_eq!(node.wrong(), BTreeMap::new());
    // The daemon copies originals with their labels, and so do we.
    let orig = "etc/machine-config-daemon/orig/etc/chrony.conf.mcdorig";
    assert_eq!(node.type_at(orig).as_deref(), Some("tmp_t"));
}

#[test]
fn a_wrong_label_of_a_file_that_is_right_otherwise_is_reported_with_the_command() {
    let Some(policy) = Policy::here() else { return };
    let Some(node) = policy.root() else { return };
    node.apply(&everything());
    node.chcon("etc/untouched.conf", "var_t");
    // People set this type by hand, and restorecon leaves it.
    let by_hand = "etc/selinux/default/contexts/customizable_types";
    let list = node.root.read(by_hand);
    node.chcon("etc/replaced.conf", list.split_whitespace().next().unwrap());
    let said = notices(&node.root, &everything());
    assert_eq!(
        said,
        [
            "1 of the unchanged paths have a label that differs from the policy: /etc/untouched.conf has var_t \
          instead of etc_t. Run `restorecon -RFv /etc/untouched.conf` on the node"
        ]
    );
    let run = node.apply(&everything());
    assert!(run.out().contains("/etc/untouched.conf"), "{}", run.out());
    assert_eq!(node.type_at("etc/untouched.conf").as_deref(), Some("var_t"));
}

#[test]
fn rollback_brings_back_the_labels_of_what_was_there_before() {
    let Some(policy) = Policy::here() else { return };
    let Some(node) = policy.root() else { return };
    let replaced = [
        "etc/replaced.conf",
        "etc/old-link",
        "etc/shadow",
        "etc/chrony.conf",
    ];
    for path in replaced {
        node.chcon(path, "tmp_t");
    }
    node.apply(&everything());
    for path in replaced {
        assert_ne!(node.type_at(path).as_deref(), Some("tmp_t"), "{path}");
    }
    node.root.run(&["rollback", "--yes"]).ok();
    for path in replaced {
        assert_eq!(node.type_at(path).as_deref(), Some("tmp_t"), "{path}");
    }
}

/// Runs `apply` under strace with a fault; gives the exit code and what it said.
fn with_fault(root: &TestRoot, fault: &str) -> Option<(Option<i32>, String)> {
    let config = root.config(&everything());
    let output = Command::new("strace")
        .args([
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=lsetxattr,renameat,renameat2",
        ])
        .args(["-e", &format!("inject={fault}"), PROGRAM, "--root"])
        .arg(root.dir())
        .args(["apply", "--yes", config.path()])
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Some((output.status.code(), said))
        }
        Err(_) => {
            skip(Lacks::Setup, "strace is not installed");
            None
        }
    }
}

#[test]
fn a_run_that_is_killed_anywhere_leaves_right_labels_and_so_does_its_recovery() {
    let Some(policy) = Policy::here() else { return };
    let (mut killed, mut done) = (0, false);
    for nth in (1..40).step_by(2) {
        let Some(node) = policy.root() else { return };
        let Some((code, _)) = with_fault(
            &node.root,
            &format!("renameat,renameat2:signal=KILL:when={nth}"),
        ) else {
            return;
        };
        // What is left in staging directories goes with the recovery.
        let staged = |path: &String| path.contains("mco-rescue");
        let wrong: Vec<_> = node
            .wrong()
            .into_keys()
            .filter(|path| !staged(path))
            .collect();
        assert_eq!(wrong, [""; 0], "killed at rename {nth}");
        node.root.run(&["recover", "--yes"]).ok();
        assert_eq!(node.wrong(), BTreeMap::new(), "killed at rename {nth}");
        node.apply(&everything());
        assert_eq!(node.wrong(), BTreeMap::new(), "killed at rename {nth}");
        match code {
            None => killed += 1,
            Some(_) => done = true,
        }
    }
    say(&format!("killed at {killed} renames"));
    assert!(
        done && killed > 5,
        "the run has more renames than were tried"
    );
}

#[test]
fn an_undone_run_leaves_the_old_labels() {
    let Some(policy) = Policy::here() else { return };
    let Some(node) = policy.root() else { return };
    node.chcon("etc/replaced.conf", "tmp_t");
    let Some((code, said)) = with_fault(&node.root, "renameat2:error=EIO:when=8") else {
        return;
    };
    assert_eq!(code, Some(4), "{said}");
    let wrong: Vec<_> = node.wrong().into_keys().collect();
    assert_eq!(wrong, ["etc/replaced.conf"]);
}

#[test]
fn where_labels_cannot_be_set_the_run_ends_well_and_says_what_to_do() {
    let Some(policy) = Policy::here() else { return };
    for errno in ["EOPNOTSUPP", "EPERM", "EINVAL"] {
        let Some(node) = policy.root() else { return };
        let Some((code, said)) = with_fault(&node.root, &format!("lsetxattr:error={errno}")) else {
            return;
        };
        assert_eq!(code, Some(0), "{errno}: {said}");
        assert!(said.contains("could not be labelled"), "{said}");
        assert!(said.contains("restorecon -RFv /"), "{said}");
        assert!(
            node.labels_phase().contains("could not be labelled"),
            "{}",
            node.labels_phase()
        );
        assert_eq!(node.root.read("etc/replaced.conf"), "new\n");
    }
}

#[test]
fn a_disk_that_fails_while_labels_are_set_fails_the_run_before_any_name_changes() {
    let Some(policy) = Policy::here() else { return };
    for errno in ["ENOSPC", "EIO"] {
        let Some(node) = policy.root() else { return };
        let before = node.root.snapshot();
        let Some((code, said)) =
            with_fault(&node.root, &format!("lsetxattr:error={errno}:when=20"))
        else {
            return;
        };
        assert_eq!(code, Some(1), "{errno}: {said}");
        let mut after = node.root.snapshot();
        // The lock of the account files stays, as shadow-utils leaves it.
        after.remove("etc/.pwd.lock");
        assert_eq!(after, before);
    }
}

#[test]
fn without_a_policy_there_is_one_line_in_the_status_and_no_notice() {
    let root = TestRoot::new();
    assert_eq!(notices(&root, &everything()), [""; 0]);
    root.apply(&everything());
    assert_eq!(
        labels_phase(&root),
        "none set, as the root has no SELinux policy"
    );
}

#[test]
fn a_policy_that_cannot_be_used_is_reported_and_the_run_goes_on() {
    let config = "SELINUXTYPE=targeted\n";
    let contexts = "etc/selinux/targeted/contexts/files/file_contexts";
    let missing = format!("/{contexts} is missing");
    let broken = "SELinux does not understand line 2 of file_contexts".to_owned();
    for (text, why) in [(None, missing), (Some("/.* u:r:a_t:s0\n/etc\n"), broken)] {
        let root = TestRoot::new();
        root.write("etc/selinux/config", config);
        if let Some(text) = text {
            root.write(contexts, text);
        }
        let said = notices(&root, &everything()).join("\n");
        assert!(
            said.contains(&why) && said.contains("Run `restorecon -RFv /"),
            "{said}"
        );
        root.apply(&everything());
        assert!(
            labels_phase(&root).contains(&why),
            "{}",
            labels_phase(&root)
        );
        assert_eq!(
            notices(&root, &everything()),
            [""; 0],
            "nothing is left to do"
        );
    }
}

#[test]
fn a_line_of_the_policy_that_is_not_understood_is_named_with_its_paths() {
    let root = TestRoot::new();
    root.write("etc/selinux/config", "SELINUXTYPE=targeted\n");
    let lines = "/.* u:r:a_t:s0\n/etc/deep/(?!x).* u:r:b_t:s0\n";
    root.write("etc/selinux/targeted/contexts/files/file_contexts", lines);
    let said = notices(&root, &everything());
    let first = said.first().unwrap();
    assert!(
        first.contains("`/etc/deep/(?!x).*` is not understood"),
        "{first}"
    );
    assert!(
        first.contains("`restorecon -RFv /etc/deep/in /etc/deep/in/new "),
        "{first}"
    );
}

const KINDS: [(&str, char); 7] = [
    ("file", '-'),
    ("dir", 'd'),
    ("lnk_file", 'l'),
    ("pipe", 'p'),
    ("sock_file", 's'),
    ("chr_file", 'c'),
    ("blk_file", 'b'),
];

fn kind(letter: char) -> ObjectKind {
    let special = |type_bits| ObjectKind::Special { type_bits };
    match letter {
        'd' => ObjectKind::Directory,
        'l' => ObjectKind::Symlink { target: "x".into() },
        'p' => special(libc::S_IFIFO),
        's' => special(libc::S_IFSOCK),
        'c' => special(libc::S_IFCHR),
        'b' => special(libc::S_IFBLK),
        _ => ObjectKind::File {
            size: 0,
            sha256: String::new().into(),
        },
    }
}

/// Paths that the lines of a policy were written for, and near misses.
fn paths_of(lines: &str) -> BTreeSet<String> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let patterns = lines
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let mut paths = BTreeSet::new();
    for pattern in patterns.filter(|pattern| pattern.starts_with('/')) {
        let plain = pattern
            .replace("[^/]", "[a-z.-]")
            .replace("\\.", "%")
            .replace('.', "[a-z/_]")
            .replace('%', "\\.");
        let Ok(strategy) = proptest::string::string_regex(&plain) else {
            say(&format!("no examples for {pattern}"));
            continue;
        };
        for _ in 0..3 {
            let text = strategy.new_tree(&mut runner).unwrap().current();
            paths.insert(format!("{text}x"));
            paths.insert(text);
        }
    }
    let clean = |path: &String| {
        path.len() > 1 && !path.contains("//") && !path.ends_with('/') && path.is_ascii()
    };
    paths.retain(clean);
    paths
}

/// What the real `matchpathcon` says, in one process for each thousand paths.
fn matchpathcon(policy: &Policy, contexts: &Path, kind: &str, paths: &[&String]) -> Vec<String> {
    let mut answers = Vec::new();
    for some in paths.chunks(10_000) {
        let mut command = policy.tool("usr/sbin/matchpathcon");
        command
            .arg("-f")
            .arg(contexts)
            .args(["-n", "-m", kind])
            .args(some);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        answers.extend(
            String::from_utf8(output.stdout)
                .unwrap()
                .lines()
                .map(str::to_owned),
        );
    }
    answers
}

fn compare(policy: &Policy, directory: &Path, sources: &PolicySources) {
    let contexts = FileContexts::parse(sources).unwrap();
    let all = paths_of(&[&*sources.policy, &sources.homes, &sources.local].join("\n"));
    let all: Vec<&String> = all.iter().collect();
    let mut answers = 0;
    for (name, letter) in KINDS {
        // Few lines are for devices and the like.
        let paths: Vec<&String> = match letter {
            '-' | 'd' | 'l' => all.clone(),
            _ => all.iter().copied().step_by(5).collect(),
        };
        let theirs = matchpathcon(policy, &directory.join("file_contexts"), name, &paths);
        assert_eq!(theirs.len(), paths.len());
        let ours = paths
            .iter()
            .map(|path| contexts.find_label(path, &kind(letter)));
        for ((path, theirs), ours) in paths.iter().zip(&theirs).zip(ours) {
            assert_eq!(contexts.unclear_pattern(path, &kind(letter)), None);
            assert_eq!(ours.unwrap_or("<<none>>"), theirs, "{path} as {name}");
            answers += 1;
        }
    }
    say(&format!("{answers} answers of matchpathcon, all the same"));
}

#[test]
fn every_line_of_a_real_policy_is_read_as_matchpathcon_reads_it() {
    let Some(policy) = Policy::here() else { return };
    compare(
        &policy,
        &policy.0.join("default/contexts/files"),
        &policy.sources(),
    );
}

#[test]
fn local_lines_and_aliases_are_read_as_matchpathcon_reads_them() {
    let Some(policy) = Policy::here() else { return };
    let dir = tempfile::tempdir().unwrap();
    let lines = |text: String| {
        text.lines()
            .step_by(40)
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let sources = PolicySources {
        policy: lines(policy.text("file_contexts")),
        homes: policy.text("file_contexts.homedirs"),
        local: "/etc(/.*)? system_u:object_r:local_t:s0\n/opt/[a-z]+/x -d system_u:object_r:opt_t:s0\n\
                /data(/.*)? -- system_u:object_r:data_t:s0\n/etc/passwd system_u:object_r:mine_t:s0\n\
                /u01(/.*)? <<none>>\n/var/a|/var/b system_u:object_r:odd_t:s0\n"
            .into(),
        aliases: "/u02 /data\n/u03 /\n/etc/x /data\n/etc/x/y /u01\n".into(),
        policy_aliases: "/data/etc /etc\n/u04 /u02\n".into(),
    };
    for (name, text) in [
        ("", &sources.policy),
        (".homedirs", &sources.homes),
        (".local", &sources.local),
        (".subs", &sources.aliases),
        (".subs_dist", &sources.policy_aliases),
    ] {
        fs::write(dir.path().join(format!("file_contexts{name}")), text).unwrap();
    }
    compare(&policy, dir.path(), &sources);
    let contexts = FileContexts::parse(&sources).unwrap();
    let more = [
        "/u02/x",
        "/u02",
        "/u022",
        "/u03/etc/passwd",
        "/u03",
        "/etc/x/y/z",
        "/etc/x/yy",
        "/data/etc/passwd",
        "/u02/etc/passwd",
        "/u04/a",
        "/var/a",
        "/var/b",
        "/var/a/x",
        "/x/var/b",
        "/etc/passwd",
    ];
    let paths: Vec<String> = more.map(str::to_owned).to_vec();
    let theirs = matchpathcon(
        &policy,
        &dir.path().join("file_contexts"),
        "file",
        &paths.iter().collect::<Vec<_>>(),
    );
    for (path, theirs) in paths.iter().zip(theirs) {
        let ours = contexts.find_label(path, &kind('-')).unwrap_or("<<none>>");
        assert_eq!(ours, theirs, "{path}");
    }
}

#[test]
fn what_install_puts_on_a_node_has_the_labels_that_setfiles_gives() {
    let Some(policy) = Policy::here() else { return };
    let Some(node) = policy.root() else { return };
    node.root.run(&["install"]).ok();
    assert_eq!(node.wrong(), BTreeMap::new());
    let program = "usr/local/bin/mco-rescue";
    assert_eq!(node.type_at(program).as_deref(), Some("bin_t"));
    // By hand, as a copy from a home has it: systemd may not run that.
    node.chcon(program, "user_home_t");
    let inode =
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(node.root.path(program)).unwrap());
    let run = node.root.run(&["install", "--output", "json"]).ok().json();
    assert_eq!(run["items"][0]["done"], "relabelled", "{run}");
    let items = run["items"].as_array().unwrap();
    assert!(
        items[1..].iter().all(|item| item["done"] == "kept"),
        "{run}"
    );
    assert_eq!(node.type_at(program).as_deref(), Some("bin_t"));
    let after =
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(node.root.path(program)).unwrap());
    assert_eq!(after, inode);
}

#[test]
fn where_usr_local_is_a_link_the_program_has_the_label_with_which_its_unit_may_run_it() {
    let Some(policy) = Policy::here() else { return };
    let Some(node) = policy.root() else { return };
    node.root.link("usr/local", "../var/usrlocal");
    node.root.run(&["install"]).ok();
    let landed = "var/usrlocal/bin/mco-rescue";
    assert_eq!(node.type_at(landed).as_deref(), Some("bin_t"));
    assert_eq!(node.type_at("var/usrlocal/bin").as_deref(), Some("bin_t"));
    let said = node.root.run(&["install"]).ok().out();
    assert!(said.contains("nothing was written"), "{said}");
}
