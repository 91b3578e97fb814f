//! What the daemon leaves beside its files: originals of the OS, what a unit or an exempt file leaves behind, directories
//! that are made or emptied on the way.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;

use crate::support::live::{answers, run_live};
use crate::support::{
    self, Lacks, TestRoot, copy_program, file, is_root, machine_config, null_device, skip,
};
use serde_json::{Value, json};

const A: &str = "rendered-worker-1111111111111111111111111111111x";
const B: &str = "rendered-worker-2222222222222222222222222222222x";
const C: &str = "rendered-worker-3333333333333333333333333333333x";

fn files(name: &str, files: &[Value]) -> Value {
    machine_config(name, json!({"storage": {"files": files}}))
}

fn units(name: &str, units: &Value) -> Value {
    machine_config(name, json!({"systemd": {"units": units}}))
}

fn copy_of(path: &str) -> String {
    format!("etc/machine-config-daemon/orig{path}.mcdorig")
}

fn stamp_of(path: &str) -> String {
    format!("etc/machine-config-daemon/noorig{path}.mcdnoorig")
}

/// A root that is entered as that of the running system.
fn enterable() -> TestRoot {
    let root = TestRoot::new();
    copy_program(&root, "/bin/sh");
    support::install_program(&root.path("usr/mco-rescue"));
    for dir in ["proc", "dev", "usr/sbin", "usr/etc"] {
        fs::create_dir_all(root.path(dir)).unwrap();
    }
    null_device(&root);
    root.write("cmdline", "root=x\n");
    answers(&root, "systemctl", "exit 1");
    root
}

/// The paths of the node before, by who brought them: a package, two packages, or none; below a home, and before that
/// of which there is a copy already.
const OWNED: &str = "/etc/vconsole.conf";
const OWNED_AND_KEPT: &str = "/etc/locale.conf";
const OWNED_TOOL: &str = "/usr/local/bin/tool";
const FOREIGN: &str = "/etc/site.conf";
const IN_A_HOME: &str = "/home/core/site/tool.conf";
const ALL: [&str; 5] = [OWNED, OWNED_AND_KEPT, OWNED_TOOL, FOREIGN, IN_A_HOME];

/// The files with their contents before, and the home that only `core` may enter.
fn shipped(root: &TestRoot) {
    for path in ALL {
        root.write(path, &format!("{path} as shipped\n"));
    }
    root.write(&copy_of(OWNED_AND_KEPT), "kept before\n");
    root.chmod("home/core", 0o700);
    let (uid, gid) = root.core();
    for path in ["home/core/site", IN_A_HOME] {
        chown(root.path(path), Some(uid), Some(gid)).unwrap();
    }
}

fn all_files(name: &str) -> Value {
    let ours = ALL.map(|path| file(path, 0o644, "ours\n"));
    files(name, &ours)
}

/// What is beside each path afterwards: the copy, and whether there is a stamp.
fn beside(root: &TestRoot) -> BTreeMap<&'static str, (Option<String>, bool)> {
    let read = |path: &str| fs::read_to_string(root.path(&copy_of(path))).ok();
    let all = ALL.map(|path| (path, (read(path), root.exists(&stamp_of(path)))));
    all.into()
}

fn as_shipped(path: &str) -> (Option<String>, bool) {
    (Some(format!("{path} as shipped\n")), false)
}

/// The real rpm of this machine in the root, with a package that owns three of the files.
fn real_rpm(root: &TestRoot) -> bool {
    let needed = ["/usr/bin/rpm", "/usr/bin/rpmbuild", "/usr/lib/rpm"];
    if !needed.iter().all(|path| Path::new(path).exists()) {
        skip(Lacks::Setup, "rpm and rpmbuild are not installed");
        return false;
    }
    let work = tempfile::tempdir().unwrap();
    let spec = work.path().join("x.spec");
    let owned = [OWNED, OWNED_AND_KEPT, OWNED_TOOL];
    let make: String = owned
        .iter()
        .map(|path| {
            format!("mkdir -p %{{buildroot}}$(dirname {path}); echo x >%{{buildroot}}{path}\n")
        })
        .collect();
    let text = format!(
        "Name: shipped\nVersion: 1\nRelease: 1\nSummary: x\nLicense: x\nBuildArch: noarch\n%description\nx\n%install\n\
         {make}%files\n{}\n",
        owned.join("\n")
    );
    fs::write(&spec, text).unwrap();
    let top = format!("_topdir {}", work.path().display());
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
    };
    run(Command::new("rpmbuild")
        .args(["-bb", "--define", &top])
        .arg(&spec));
    let package = work.path().join("RPMS/noarch/shipped-1-1.noarch.rpm");
    copy_program(root, "/usr/bin/rpm");
    run(Command::new("cp")
        .args(["-a", "/usr/lib/rpm"])
        .arg(root.path("usr/lib/")));
    root.write("etc/rpm/macros.db", "%_dbpath /usr/share/rpm\n");
    let database = root.path("usr/share/rpm");
    fs::create_dir_all(&database).unwrap();
    let install = [
        "-i",
        "--justdb",
        "--nodeps",
        "--ignorearch",
        "--noscripts",
        "--dbpath",
    ];
    run(Command::new("rpm")
        .args(install)
        .arg(&database)
        .arg(&package));
    true
}

#[test]
fn a_home_that_only_its_user_may_enter_hides_no_original_from_the_real_rpm() {
    if !is_root() {
        return skip(Lacks::Root, "chroot needs root");
    }
    let root = enterable();
    if !real_rpm(&root) {
        return;
    }
    shipped(&root);
    root.write("config.json", &all_files(A).to_string());
    run_live(&root, &["apply", "--yes", "/config.json"]).ok();
    let seen = beside(&root);
    assert_eq!(seen[OWNED], as_shipped(OWNED));
    assert_eq!(seen[OWNED_AND_KEPT], (Some("kept before\n".into()), false));
    assert_eq!(seen[OWNED_TOOL], as_shipped(OWNED_TOOL));
    assert_eq!(seen[FOREIGN], (None, true));
    assert_eq!(seen[IN_A_HOME], (None, true));
}

/// An rpm that answers for most paths, and fails over those below the home. `PACKAGES` own each file of the OS.
const FAILING: &str = r#"ended=0
format=a-1-1.noarch
shift
while [ $# -gt 0 ]; do
  case "$1" in
  --qf) format=owned; shift;;
  /home/*) echo "error: file $1: Permission denied" >&2; ended=$((ended + 1));;
  /etc/vconsole.conf|/etc/locale.conf|/usr/local/bin/tool) for package in PACKAGES; do echo $format; done;;
  *) echo "file $1 is not owned by any package"; ended=$((ended + 1));;
  esac
  shift
done
exit $ended"#;

#[test]
fn a_path_that_rpm_fails_over_is_left_in_doubt_alone() {
    if !is_root() {
        return skip(Lacks::Root, "chroot needs root");
    }
    for (packages, kept_at_home) in [("a", true), ("a", false), ("a b", true), ("a b", false)] {
        let root = enterable();
        answers(&root, "rpm", &FAILING.replace("PACKAGES", packages));
        shipped(&root);
        if kept_at_home {
            root.write(&copy_of(IN_A_HOME), "kept before\n");
        }
        root.write("config.json", &all_files(A).to_string());
        run_live(&root, &["apply", "--yes", "/config.json"]).ok();
        let seen = beside(&root);
        let kept = || Some("kept before\n".to_owned());
        assert_eq!(seen[OWNED], as_shipped(OWNED));
        assert_eq!(seen[OWNED_AND_KEPT], (kept(), false));
        assert_eq!(seen[OWNED_TOOL], as_shipped(OWNED_TOOL));
        assert_eq!(seen[FOREIGN], (None, true));
        let wanted = kept_at_home.then(kept).flatten();
        assert_eq!(seen[IN_A_HOME], (wanted, false), "{packages}");
        // When the config drops them all, what the OS had comes back.
        root.write("config.json", &files(B, &[]).to_string());
        run_live(&root, &["apply", "--yes", "/config.json"]).ok();
        for path in [OWNED, OWNED_TOOL] {
            assert_eq!(root.read(path), format!("{path} as shipped\n"));
        }
        assert_eq!(root.read(OWNED_AND_KEPT), "kept before\n");
        assert_eq!(root.exists(IN_A_HOME), kept_at_home);
        assert!(!root.exists(FOREIGN));
        let left = |path: &&str| root.exists(&copy_of(path)) || root.exists(&stamp_of(path));
        assert_eq!(ALL.iter().find(|path| left(path)), None);
    }
}

#[test]
fn a_copy_of_an_original_outlives_every_run_that_cannot_judge_it() {
    // By what is there: a system that keeps the OS's own copies below /usr/etc or not, and the file itself or not.
    for (has_usr_etc, is_there) in [(false, false), (false, true), (true, false), (true, true)] {
        for path in ["/etc/a.conf", "/usr/local/bin/a"] {
            let root = TestRoot::new();
            if has_usr_etc {
                root.write("usr/etc/other.conf", "x\n");
            }
            if is_there {
                root.write(path, "shipped\n");
            }
            root.write(&copy_of(path), "kept before\n");
            let case = format!("{path}, usr/etc {has_usr_etc}, there {is_there}");
            root.apply(&files(A, &[file(path, 0o644, "ours\n")]));
            assert_eq!(root.read(&copy_of(path)), "kept before\n", "{case}");
            assert!(!root.exists(&stamp_of(path)), "{case}");
            root.apply(&files(B, &[]));
            assert_eq!(root.read(path), "kept before\n", "{case}");
            assert!(!root.exists(&copy_of(path)), "{case}");
        }
    }
}

#[test]
fn a_unit_that_lost_its_contents_takes_its_file_along_when_it_goes() {
    let unit = json!({"name": "a.service", "enabled": true,
        "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"});
    for without in [
        json!({"name": "a.service"}),
        json!({"name": "a.service", "contents": ""}),
        json!({"name": "a.service", "dropins": [{"name": "x.conf", "contents": "[Unit]\n"}]}),
    ] {
        let root = TestRoot::new();
        root.apply(&units(A, &json!([unit])));
        root.apply(&units(B, &json!([without])));
        assert!(root.exists("etc/systemd/system/a.service"), "{without}");
        root.apply(&units(C, &json!([])));
        assert!(!root.exists("etc/systemd/system/a.service"), "{without}");
        let link = "etc/systemd/system/multi-user.target.wants/a.service";
        assert!(!root.exists(link), "{without}");
    }
}

#[test]
fn a_kubelet_that_goes_this_way_needs_leave_like_any_other() {
    let root = TestRoot::new();
    let kubelet = support::kubelet_unit();
    root.apply(&units(A, &json!([kubelet])));
    root.apply(&units(B, &json!([{"name": "kubelet.service"}])));
    let file = root.config(&units(C, &json!([])));
    let run = root.run(&["apply", "--yes", file.path()]).exits(1);
    assert!(run.out().contains("kubelet.service") || run.err().contains("kubelet.service"));
    assert!(root.exists("etc/systemd/system/kubelet.service"));
}

const CLOUD: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
const SECRET: &str = "/etc/mco/internal-registry-pull-secret.json";
const KUBELET: &str = "/etc/kubernetes/kubelet-ca.crt";

#[test]
fn files_that_the_cluster_writes_too_follow_the_config_only_where_it_changes() {
    let with = |name: &str, text: &str, more: &str| {
        let exempt = [CLOUD, SECRET, KUBELET].map(|path| file(path, 0o644, text));
        files(
            name,
            &[&exempt[..], &[file("/etc/a", 0o644, more)]].concat(),
        )
    };
    let root = TestRoot::new();
    root.apply(&with(A, "one\n", "1\n"));
    // The cluster has written newer ones since; a config that does not touch them leaves them.
    for path in [CLOUD, SECRET, KUBELET] {
        root.write(path, "of the cluster\n");
    }
    root.apply(&with(B, "one\n", "2\n"));
    for path in [CLOUD, SECRET, KUBELET] {
        assert_eq!(root.read(path), "of the cluster\n");
    }
    root.apply(&with(C, "two\n", "2\n"));
    assert_eq!(
        (root.read(CLOUD), root.read(SECRET)),
        ("two\n".into(), "two\n".into())
    );
    assert_eq!(root.read(KUBELET), "of the cluster\n");
    let settled = root.snapshot();
    root.apply(&with(C, "two\n", "2\n"));
    assert_eq!(root.snapshot(), settled);
    root.run(&["verify"]).ok();
    // The daemon never takes an authority away.
    root.apply(&files(A, &[file("/etc/a", 0o644, "1\n")]));
    assert!(root.exists(CLOUD) && root.exists(KUBELET));
    assert!(!root.exists(SECRET));
}

#[test]
fn directories_below_one_with_the_setgid_bit_get_its_group_and_the_bit() {
    if !is_root() {
        return skip(Lacks::Root, "other groups need root");
    }
    let root = TestRoot::new();
    fs::create_dir_all(root.path("etc/shared")).unwrap();
    chown(root.path("etc/shared"), Some(0), Some(10)).unwrap();
    root.chmod("etc/shared", 0o2775);
    root.apply(&files(
        A,
        &[
            file("/etc/shared/a/b/c", 0o644, "x\n"),
            file("/etc/plain/a", 0o644, "x\n"),
        ],
    ));
    // The kernel's own word for what a plain mkdir gets there.
    fs::create_dir(root.path("etc/shared/by-hand")).unwrap();
    let is = |path: &str| {
        let meta = fs::metadata(root.path(path)).unwrap();
        (meta.mode() & 0o7777, meta.uid(), meta.gid())
    };
    assert_eq!(is("etc/shared/by-hand"), (0o2755, 0, 10));
    assert_eq!(is("etc/shared/a"), is("etc/shared/by-hand"));
    assert_eq!(is("etc/shared/a/b"), is("etc/shared/by-hand"));
    assert_eq!(is("etc/plain"), (0o755, 0, 0));
    let (_, uid, gid) = is("etc/shared/a/b/c");
    assert_eq!((uid, gid), (0, 0));
    root.run(&["verify"]).ok();
    root.run(&["rollback", "--yes"]).ok();
    assert!(!root.exists("etc/shared/a"));
}

#[test]
fn the_last_link_takes_its_directory_along_and_rollback_brings_both_back() {
    let unit = |name: &str, target: &str, on: bool| {
        json!({"name": name, "enabled": on, "contents":
            format!("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy={target}\n")})
    };
    let wants = |target: &str| format!("etc/systemd/system/{target}.wants");
    let root = TestRoot::new();
    root.apply(&units(
        A,
        &json!([
            unit("a.service", "one.target", true),
            unit("b.service", "two.target", true),
            unit("c.service", "two.target", true),
            unit("d.service", "three.target", true)
        ]),
    ));
    // What else lies in a directory keeps it.
    root.write(&format!("{}/README", wants("three.target")), "x\n");
    root.chmod(&wants("one.target"), 0o750);
    // Empty before: systemctl has no reason to look.
    fs::create_dir(root.path(&wants("empty.target"))).unwrap();
    root.apply(&units(
        B,
        &json!([
            unit("a.service", "one.target", false),
            unit("b.service", "two.target", false),
            unit("c.service", "two.target", true),
            unit("d.service", "three.target", false)
        ]),
    ));
    let there =
        ["one", "two", "three", "empty"].map(|name| root.exists(&wants(&format!("{name}.target"))));
    assert_eq!(there, [false, true, true, true]);
    let settled = root.snapshot();
    root.run(&["verify"]).ok();
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(root.snapshot(), settled);
    root.run(&["rollback", "--yes"]).ok();
    assert!(root.exists(&format!("{}/a.service", wants("one.target"))));
    assert_eq!(root.mode(&wants("one.target")), 0o750);
}

#[test]
fn the_plan_counts_with_what_the_daemon_makes_of_its_own_record() {
    if !is_root() {
        return skip(Lacks::Root, "chroot needs root");
    }
    let keys = |name: &str, key: &str| {
        let users = json!([{"name": "core", "sshAuthorizedKeys": [key]}]);
        machine_config(
            name,
            json!({"passwd": {"users": users},
            "storage": {"files": [file("/etc/a", 0o644, "a\n")]}}),
        )
    };
    let record = "etc/machine-config-daemon/currentconfig";
    let plan = |change: &dyn Fn(&mut Value)| {
        let root = enterable();
        root.apply(&keys(A, "ssh-ed25519 AAAA one"));
        let mut value: Value = serde_json::from_str(&root.read(record)).unwrap();
        change(&mut value);
        root.write(record, &value.to_string());
        root.write("config.json", &keys(B, "ssh-ed25519 AAAA two").to_string());
        run_live(&root, &["plan", "--output", "json", "/config.json"]).json()
    };
    // Keys alone: neither.
    let whole = plan(&|_| {});
    assert_eq!(
        (&whole["after"]["reboot"], &whole["after"]["drain"]),
        (&json!(false), &Value::Null)
    );
    // Every file is new to the daemon.
    let emptied =
        plan(&|value| value["spec"]["config"] = json!({"ignition": {"version": "3.5.0"}}));
    assert_eq!(emptied["after"]["reboot"], true, "{}", emptied["after"]);
    assert!(emptied["after"]["drain"].is_string());
    // Read by the daemon, which parses the part later, and refused here.
    let refused = plan(&|value| value["spec"]["config"]["ignition"]["version"] = json!("9.9.0"));
    let notices = refused["notices"].to_string();
    assert!(notices.contains("expect a drain and a reboot"), "{notices}");
}
