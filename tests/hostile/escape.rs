//! A hostile root leads no run out of it: links are followed inside the root or not at all, and
//! nothing but a file is read as one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, lchown};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{self, Lacks, PROGRAM, TestRoot, file, is_root, machine_config, skip, trace};
use serde_json::{Value, json};
use tempfile::TempDir;

const SECRET: &str = "canary-that-nobody-may-read";
const KEYS: &str = "home/core/.ssh/authorized_keys.d/ignition";

/// Every path below a directory, with what can be told without opening anything but files.
type Tree = BTreeMap<String, (u32, (u32, u32), Vec<u8>)>;

fn tree(dir: &Path) -> Tree {
    let mut all = Tree::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else if meta.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            all.insert(name, (meta.mode(), (meta.uid(), meta.gid()), content));
            if meta.is_dir() {
                todo.push(path);
            }
        }
    }
    all
}

/// Panics with the paths that differ.
fn unchanged(before: &Tree, after: &Tree, said: &str) {
    let paths = before.keys().chain(after.keys());
    let differ: Vec<_> = paths
        .filter(|path| before.get(*path) != after.get(*path))
        .collect();
    assert!(differ.is_empty(), "changed: {differ:?} after {said}");
}

/// A root, and a directory outside of it that must stay as it is and unread.
struct Scene {
    root: TestRoot,
    outside: TempDir,
    canary: Tree,
}

/// How a run ended.
struct End {
    code: i32,
    said: String,
}

impl Scene {
    fn new() -> Self {
        let outside = tempfile::tempdir().unwrap();
        for name in ["secret", "x.conf", "ignition", "currentconfig"] {
            fs::write(outside.path().join(name), format!("{SECRET}\n")).unwrap();
        }
        let canary = tree(outside.path());
        Self {
            root: TestRoot::new(),
            outside,
            canary,
        }
    }

    /// A path outside, as an absolute link would name it.
    fn outside(&self, name: &str) -> String {
        self.outside.path().join(name).to_str().unwrap().to_owned()
    }

    /// The tree without our own state.
    fn tree(&self) -> Tree {
        let mut all = tree(self.root.dir());
        all.retain(|path, _| !path.starts_with("var/lib/mco-rescue"));
        all
    }

    /// Runs every command that looks, then `apply`. Whatever comes of it, nothing outside was read or changed,
    /// and a run that fails leaves the tree alone.
    fn apply(&self, config: &Value) -> End {
        let config = self.root.config(config);
        let before = tree(self.root.dir());
        for command in ["plan", "verify"] {
            let args = [command, "--show-secrets", config.path()];
            self.check(&bounded(&self.root, &args));
        }
        assert_eq!(tree(self.root.dir()), before, "looking changed something");
        let before = self.tree();
        let end = bounded(&self.root, &["apply", "--yes", config.path()]);
        self.check(&end);
        if end.code != 0 {
            unchanged(&before, &self.tree(), &end.said);
        }
        end
    }

    fn check(&self, end: &End) {
        assert!(!end.said.contains(SECRET), "{}", end.said);
        assert_eq!(tree(self.outside.path()), self.canary, "{}", end.said);
    }

    /// `apply` refuses before it changes anything, and names this.
    fn is_refused(&self, config: &Value, named: &str) {
        let end = self.apply(config);
        assert_eq!(end.code, 1, "{}", end.said);
        assert!(end.said.contains(named), "no {named:?} in {}", end.said);
    }

    /// `apply` works, `verify` agrees, and these bytes are at this path of the root itself.
    fn lands(&self, config: &Value, path: &str, text: &str) {
        let end = self.apply(config);
        assert_eq!(end.code, 0, "{}", end.said);
        let found = fs::symlink_metadata(self.root.path(path)).unwrap();
        assert!(found.is_file(), "{path} is not a file");
        assert_eq!(self.root.read(path), text);
        let config = self.root.config(config);
        self.root.run(&["verify", config.path()]).ok();
    }
}

/// Runs the program so that it can neither hang for ever nor fill the disk.
fn bounded(root: &TestRoot, args: &[&str]) -> End {
    let log = tempfile::NamedTempFile::new().unwrap();
    // Where the scratch directory is mounted nodev, devices are made to work as on a node.
    let script = "ulimit -f 65536; \
        if [ \"$1\" = dev ]; then mount --bind \"$2\" \"$2\" && mount -o remount,bind,dev \"$2\" || exit 77; fi; \
        shift 2; exec \"$@\"";
    let mut command = Command::new(if is_root() { "unshare" } else { "env" });
    if is_root() {
        command.arg("--mount");
    }
    command.args(["sh", "-c", script, "sh"]);
    command.arg(if is_root() { "dev" } else { "-" });
    command
        .arg(root.dir())
        .arg(PROGRAM)
        .arg("--root")
        .arg(root.dir());
    let output = || {
        fs::OpenOptions::new()
            .append(true)
            .open(log.path())
            .unwrap()
    };
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(output())
        .stderr(output());
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            return End {
                code: -1,
                said: format!("{args:?} hangs"),
            };
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let said = String::from_utf8_lossy(&fs::read(log.path()).unwrap()).into_owned();
    End {
        code: status.code().unwrap_or(-1),
        said: format!("{said}({args:?}: {status})"),
    }
}

fn one_file(path: &str) -> Value {
    machine_config(
        "rendered-worker-a",
        json!({"storage": {"files": [file(path, 0o644, "of the config\n")]}}),
    )
}

fn keys() -> Value {
    machine_config(
        "rendered-worker-a",
        json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA one"]}]}}),
    )
}

fn password() -> Value {
    machine_config(
        "rendered-worker-a",
        json!({"passwd": {"users": [
            {"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA one"], "passwordHash": "$6$a$b"},
        ]}}),
    )
}

fn unit() -> Value {
    machine_config(
        "rendered-worker-a",
        json!({"systemd": {"units": [
            {"name": "a.service", "enabled": true,
             "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"},
        ]}}),
    )
}

const CLIMB: &str = "../../../../../../../../../..";

#[test]
fn a_parent_that_leads_out_of_the_root_is_refused_by_name() {
    for climbing in [false, true] {
        let scene = Scene::new();
        let away = scene.outside("");
        let target = if climbing {
            format!("{CLIMB}{away}")
        } else {
            away
        };
        scene.root.link("etc/evil", &target);
        scene.is_refused(&one_file("/etc/evil/x.conf"), "/etc/evil");
        scene.is_refused(&one_file("/etc/evil/deeper/x.conf"), "/etc/evil");
    }
}

#[test]
fn chained_links_that_lead_out_of_the_root_are_refused_by_name() {
    let scene = Scene::new();
    scene.root.link("etc/evil", "hop");
    scene.root.link("etc/hop", "/opt/hop");
    scene
        .root
        .link("opt/hop", &format!("{CLIMB}{}", scene.outside("")));
    scene.is_refused(&one_file("/etc/evil/x.conf"), "/etc/evil");
}

#[test]
fn a_link_that_leads_nowhere_is_refused_before_anything_changes() {
    let scene = Scene::new();
    scene.root.link("etc/dangling", "/nowhere");
    scene.is_refused(&one_file("/etc/dangling/x.conf"), "/etc/dangling");
}

#[test]
fn an_absolute_link_means_the_root_itself() {
    let scene = Scene::new();
    let inside = scene.outside("").trim_start_matches('/').to_owned();
    fs::create_dir_all(scene.root.path(&inside)).unwrap();
    scene.root.link("etc/evil", &format!("/{inside}"));
    let path = format!("{inside}x.conf");
    scene.lands(&one_file("/etc/evil/x.conf"), &path, "of the config\n");
}

#[test]
fn a_climbing_link_stops_at_the_root() {
    let scene = Scene::new();
    fs::create_dir_all(scene.root.path("opt/inside")).unwrap();
    scene.root.link("etc/evil", &format!("{CLIMB}/opt/inside"));
    let config = one_file("/etc/evil/x.conf");
    scene.lands(&config, "opt/inside/x.conf", "of the config\n");
}

#[test]
fn a_link_as_last_name_is_replaced_and_not_followed() {
    for (path, config) in [
        ("etc/x.conf", one_file("/etc/x.conf")),
        ("etc/systemd/system/a.service", unit()),
        ("etc/machine-config-daemon/currentconfig", unit()),
        ("etc/machine-config-daemon/currentimage", unit()),
        (KEYS, keys()),
    ] {
        for climbing in [false, true] {
            let scene = Scene::new();
            let target = scene.outside("secret");
            let prefix = if climbing { CLIMB } else { "" };
            scene.root.link(path, &format!("{prefix}{target}"));
            let end = scene.apply(&config);
            // An image record that is a link to nothing is as good as none.
            assert_eq!(end.code, 0, "{path}: {}", end.said);
            let found = fs::symlink_metadata(scene.root.path(path)).unwrap();
            assert!(found.is_file(), "{path} is still a link");
        }
    }
}

#[test]
fn a_kubeconfig_that_is_a_link_keeps_its_target_untouched() {
    let scene = Scene::new();
    scene.root.remove("etc/kubernetes/kubeconfig");
    scene
        .root
        .link("etc/kubernetes/kubeconfig", &scene.outside("secret"));
    scene.apply(&one_file("/etc/x.conf"));
    let scene = Scene::new();
    scene.root.remove("etc/kubernetes/kubeconfig");
    scene.root.write("opt/inside", "kind: Config\n");
    scene.root.link("etc/kubernetes/kubeconfig", "/opt/inside");
    scene.apply(&one_file("/etc/x.conf"));
    assert_eq!(scene.root.mode("opt/inside"), 0o644);
}

#[test]
fn a_shadow_file_that_is_a_link_never_becomes_readable_to_all() {
    let scene = Scene::new();
    fs::rename(scene.root.path("etc/shadow"), scene.root.path("etc/real")).unwrap();
    scene.root.link("etc/shadow", "real");
    let end = scene.apply(&password());
    for path in ["etc/shadow", "etc/real"] {
        let meta = fs::metadata(scene.root.path(path)).unwrap();
        assert_eq!(meta.mode() & 0o077, 0, "{path} after {}", end.said);
    }
}

#[test]
fn a_shadow_file_outside_is_not_read() {
    let scene = Scene::new();
    scene.root.remove("etc/shadow");
    scene.root.link("etc/shadow", &scene.outside("secret"));
    scene.apply(&password());
}

#[test]
fn magic_links_of_a_mounted_proc_are_not_followed() {
    let scene = Scene::new();
    fs::create_dir(scene.root.path("proc")).unwrap();
    let target = format!("/proc/self/root{}", scene.outside(""));
    scene.root.link("etc/evil", &target);
    scene.root.link("etc/cwd", "/proc/self/cwd");
    scene
        .root
        .link("etc/secret.conf", &format!("{target}secret"));
    for path in ["/etc/evil/x.conf", "/etc/cwd/x.conf", "/etc/secret.conf"] {
        let config = scene.root.config(&one_file(path));
        let before = scene.tree();
        let script =
            "mount -t proc proc \"$1/proc\" || exit 77; cd \"$2\" || exit 77; shift 2; exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh"]);
        command.arg(scene.root.dir()).arg(scene.outside.path());
        command.arg(PROGRAM).arg("--root").arg(scene.root.dir());
        command.args(["apply", "--yes", config.path()]);
        let output = command.output();
        let Some(output) = output
            .ok()
            .filter(|o| !matches!(o.status.code(), Some(77 | 1) if !is_root()))
        else {
            skip(Lacks::Root, "mounting proc needs root");
            return;
        };
        assert_ne!(output.status.code(), Some(77), "{output:?}");
        let said = format!("{output:?}");
        let code = output.status.code().unwrap();
        scene.check(&End {
            code,
            said: said.clone(),
        });
        if path.ends_with("secret.conf") {
            assert_eq!(code, 0, "{said}");
            assert_eq!(scene.root.read("etc/secret.conf"), "of the config\n");
        } else {
            assert_ne!(code, 0, "{said}");
            unchanged(&before, &scene.tree(), &said);
        }
    }
}

#[test]
fn below_the_home_of_core_no_link_is_followed() {
    for (link, target) in [
        ("home/core/.ssh", "/etc"),
        ("home/core/.ssh", "elsewhere"),
        ("home/core/.ssh/authorized_keys.d", "/etc"),
        ("home/core/.ssh/authorized_keys.d", "../elsewhere"),
    ] {
        for by_core in [false, true] {
            if by_core && !is_root() {
                skip(Lacks::Root, "giving a link to core needs root");
                continue;
            }
            let scene = Scene::new();
            let (uid, gid) = scene.root.core();
            fs::create_dir(scene.root.path("home/core/elsewhere")).unwrap();
            chown(scene.root.path("home/core/elsewhere"), Some(uid), Some(gid)).unwrap();
            scene.root.link(link, target);
            if by_core {
                lchown(scene.root.path(link), Some(uid), Some(gid)).unwrap();
            }
            scene.is_refused(&keys(), "/home/core/.ssh");
        }
    }
    let scene = Scene::new();
    scene.root.link("home/core/.ssh", &scene.outside(""));
    scene.is_refused(&keys(), "/home/core/.ssh");
}

#[test]
fn the_home_directory_itself_may_be_behind_a_link_as_on_ostree() {
    let scene = Scene::new();
    fs::rename(scene.root.path("home"), scene.root.path("var/home")).unwrap();
    scene.root.link("home", "var/home");
    let keys_file = format!("var/{KEYS}");
    scene.lands(&keys(), &keys_file, "ssh-ed25519 AAAA one\n");
}

#[test]
fn a_link_of_an_ordinary_user_leads_only_to_what_is_his() {
    if !is_root() {
        skip(Lacks::Root, "giving a link to somebody else needs root");
        return;
    }
    for (target, owner, through) in [
        ("/usr/lib", 0, false),
        ("/opt/of-another", 1001, false),
        ("/opt/his", 1000, true),
    ] {
        let scene = Scene::new();
        fs::create_dir_all(scene.root.path("opt/his")).unwrap();
        fs::create_dir_all(scene.root.path("opt/of-another")).unwrap();
        chown(scene.root.path(target), Some(owner), Some(owner)).unwrap();
        scene.root.link("etc/evil", target);
        lchown(scene.root.path("etc/evil"), Some(1000), Some(1000)).unwrap();
        let config = one_file("/etc/evil/x.conf");
        if through {
            scene.lands(&config, "opt/his/x.conf", "of the config\n");
        } else {
            scene.is_refused(&config, "link owned by uid 1000");
        }
    }
}

#[test]
fn a_link_of_an_ordinary_user_is_not_laundered_by_one_of_root() {
    if !is_root() {
        skip(Lacks::Root, "giving a link to somebody else needs root");
        return;
    }
    let scene = Scene::new();
    scene.root.link("etc/evil", "/opt/hop");
    scene.root.link("opt/hop", "/usr/lib");
    lchown(scene.root.path("opt/hop"), Some(1000), Some(1000)).unwrap();
    scene.is_refused(&one_file("/etc/evil/x.conf"), "link owned by uid 1000");
}

#[test]
fn circular_links_are_refused_by_name() {
    let scene = Scene::new();
    scene.root.link("etc/self", "self");
    scene.root.link("etc/one", "two");
    scene.root.link("etc/two", "/etc/one");
    for path in ["/etc/self/x.conf", "/etc/one/x.conf"] {
        scene.is_refused(&one_file(path), path);
    }
}

#[test]
fn circular_links_where_records_should_be_do_not_hang() {
    for path in [
        "etc/machine-config-daemon/currentconfig",
        "etc/machine-id",
        "etc/passwd",
        "etc/shadow",
        "etc/kubernetes/kubeconfig",
        "etc/systemd/system/a.service",
        "etc/systemd/system/multi-user.target.wants",
    ] {
        let scene = Scene::new();
        fs::remove_file(scene.root.path(path)).ok();
        scene.root.link(path, path.rsplit('/').next().unwrap());
        scene.apply(&unit());
    }
}

/// Puts something that is neither file nor directory at a path.
fn make_special(root: &TestRoot, kind: &str, path: &str) {
    let at = root.path(path);
    fs::remove_file(&at).ok();
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    if kind == "socket" {
        // The name stays when the listener goes.
        drop(UnixListener::bind(&at).unwrap());
        return;
    }
    let mut command = Command::new("mknod");
    command.arg(&at);
    match kind {
        "fifo" => command.arg("p"),
        // Endless zeroes.
        _ => command.args(["c", "1", "5"]),
    };
    assert!(command.status().unwrap().success());
}

fn special_kinds() -> Vec<&'static str> {
    if is_root() {
        return vec!["fifo", "socket", "device"];
    }
    skip(Lacks::Root, "making a device needs root");
    vec!["fifo", "socket"]
}

#[test]
fn what_is_not_a_file_is_replaced_or_refused_but_never_read() {
    for kind in special_kinds() {
        for (path, config) in [
            ("etc/x.conf", one_file("/etc/x.conf")),
            ("etc/systemd/system/a.service", unit()),
            (KEYS, keys()),
        ] {
            let scene = Scene::new();
            make_special(&scene.root, kind, path);
            let end = scene.apply(&config);
            let is_file = fs::symlink_metadata(scene.root.path(path))
                .unwrap()
                .is_file();
            assert!(
                end.code == 1 || end.code == 0 && is_file,
                "{kind} at {path}: {}",
                end.said
            );
        }
    }
}

/// A file of 2 TiB that takes no room; anybody can make one where he may write.
fn make_huge(root: &TestRoot, path: &str) {
    let path = root.path(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let made = fs::File::create(&path).and_then(|file| file.set_len(HUGE));
    made.unwrap();
    let (uid, gid) = root.core();
    chown(&path, Some(uid), Some(gid)).unwrap();
}

const HUGE: u64 = 2 << 40;

/// A config with a file and keys in the home of core, and the node on which both are huge files.
fn with_huge_files() -> (TestRoot, support::Config) {
    let root = TestRoot::new();
    make_huge(&root, "home/core/x.conf");
    make_huge(&root, KEYS);
    make_huge(&root, "home/core/.ssh/authorized_keys.d/other");
    make_huge(&root, "home/core/.ssh/authorized_keys");
    let mut config = keys();
    config["spec"]["config"]["storage"] =
        json!({"files": [file("/home/core/x.conf", 0o644, "of the config\n")]});
    let config = root.config(&config);
    (root, config)
}

#[test]
fn a_huge_file_holds_no_command_up() {
    let (root, config) = with_huge_files();
    let size = |path: &str| fs::metadata(root.path(path)).unwrap().len();
    for (args, code) in [
        (vec!["verify", config.path()], Some(3)),
        (vec!["plan", config.path()], Some(0)),
        (vec!["doctor"], None),
        (vec!["apply", "--yes", config.path()], Some(0)),
        (vec!["verify"], Some(0)),
        (vec!["rollback", "--yes"], Some(0)),
        (vec!["verify", config.path()], Some(3)),
        (vec!["recover"], Some(0)),
    ] {
        let end = bounded(&root, &args);
        assert!(
            end.code >= 0 && code.is_none_or(|code| end.code == code),
            "{}",
            end.said
        );
        if args[0] == "apply" {
            assert_eq!(root.read("home/core/x.conf"), "of the config\n");
            assert!(root.read(KEYS).contains("ssh-"));
        }
    }
    // The rollback brought back what was there.
    assert_eq!((size("home/core/x.conf"), size(KEYS)), (HUGE, HUGE));
}

#[test]
fn a_huge_file_does_not_hold_up_the_recovery_of_a_run_that_was_cut_off() {
    if !trace::can_trace() {
        return;
    }
    let renames = ["renameat", "renameat2"];
    let (root, config) = with_huge_files();
    let run = trace::traced(
        &root,
        &renames.join(","),
        &[],
        &["apply", "--yes", config.path()],
    );
    let mut cuts = 0;
    for name in renames {
        let calls = run.calls.iter().filter(|call| call.name == name).count();
        for number in 1..=calls {
            let (root, config) = with_huge_files();
            let cut = [format!("{name}:signal=KILL:when={number}")];
            trace::traced(&root, name, &cut, &["apply", "--yes", config.path()]);
            // What was there is huge; and somebody puts such files where the run has put its own.
            let foreign = number % 3 == 0;
            if foreign {
                make_huge(&root, "home/core/x.conf");
            }
            let end = bounded(&root, &["recover"]);
            assert!(
                end.code == 0 || (foreign && end.code == 5),
                "{cut:?}: {}",
                end.said
            );
            let end = bounded(&root, &["verify", config.path()]);
            assert!(end.code >= 0, "{cut:?}: {}", end.said);
            cuts += 1;
        }
    }
    assert!(cuts > 8, "only {cuts} cuts");
}

#[test]
fn a_huge_file_is_not_copied_as_an_original() {
    let root = TestRoot::new();
    // As on an OSTree node: what the OS ships is what is in /etc.
    root.write("usr/etc/other", "of the OS\n");
    make_huge(&root, "usr/etc/x.conf");
    make_huge(&root, "etc/x.conf");
    let config = root.config(&one_file("/etc/x.conf"));
    let end = bounded(&root, &["apply", "--yes", config.path()]);
    assert_eq!(end.code, 1, "{}", end.said);
    assert!(end.said.contains("/etc/x.conf"), "{}", end.said);
    assert!(end.said.contains("Move it away"), "{}", end.said);
    assert_eq!(fs::metadata(root.path("etc/x.conf")).unwrap().len(), HUGE);
}

/// Runs the program under a limit of the shell.
fn limited(root: &TestRoot, limit: &str, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit {limit} && exec \"$@\"");
    command.args(["-c", &script, "sh", PROGRAM, "--root"]);
    command.arg(root.dir()).args(args).stdin(Stdio::null());
    command
}

#[test]
fn a_limit_that_is_too_low_is_an_error_with_its_cause() {
    let mut limits: Vec<String> = (3..24).map(|files| format!("-n {files}")).collect();
    limits.extend((0..12).map(|blocks| format!("-f {blocks}")));
    limits.extend((0..40).map(|step| format!("-v {}", 4_000 + 1_500 * step)));
    let mut refused = 0;
    for limit in limits {
        let root = TestRoot::new();
        root.write("etc/a.conf", "of the OS\n");
        let mut config = one_file("/etc/a.conf");
        let large = "word ".repeat(40_000);
        config["spec"]["config"]["storage"]["files"]
            .as_array_mut()
            .unwrap()
            .push(file("/etc/large.conf", 0o644, &large));
        let config = root.config(&config);
        // What the kernel cannot even start says nothing about us.
        let starts = limited(&root, &limit, &["--version"]).output().unwrap();
        if !starts.status.success() {
            continue;
        }
        let before = root.snapshot();
        let output = limited(&root, &limit, &["apply", "--yes", config.path()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => assert_eq!(root.read("etc/a.conf"), "of the config\n", "{limit}"),
            Some(code @ (1 | 4)) => {
                refused += 1;
                assert!(said.contains("error: "), "{limit}: {said}");
                assert_eq!(root.snapshot(), before, "{limit}: exit {code}: {said}");
            }
            other => panic!("ulimit {limit}: {other:?} ({}): {said}", output.status),
        }
        // Without the limit the next run does all of it.
        root.run(&["apply", "--yes", config.path()]).ok();
    }
    assert!(refused > 20, "only {refused} limits were too low");
}

#[test]
fn a_limit_that_is_too_low_for_going_back_leaves_a_way_back() {
    let mut limits: Vec<String> = [0, 1, 2, 4, 8].map(|blocks| format!("-f {blocks}")).into();
    limits.extend((0..8).map(|step| format!("-v {}", 6_000 + 4_000 * step)));
    limits.extend([4, 8, 16, 40].map(|files| format!("-n {files}")));
    for limit in limits {
        let root = TestRoot::new();
        root.write("etc/x.conf", "of the OS\n");
        let starts = limited(&root, &limit, &["--version"]).output().unwrap();
        if !starts.status.success() {
            continue;
        }
        let config = root.config(&one_file("/etc/x.conf"));
        let before = root.snapshot();
        root.run(&["apply", "--yes", config.path()]).ok();
        let after = root.snapshot();
        let end = |args: &[&str]| {
            let output = limited(&root, &limit, args).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let Some(code) = output.status.code() else {
                panic!("ulimit {limit}: {args:?}: {}: {said}", output.status);
            };
            assert!(
                code == 0 || said.contains("error: "),
                "{limit}: {code}: {said}"
            );
            (code, said)
        };
        let (code, said) = end(&["rollback", "--yes"]);
        let wanted = match code {
            0 => &before,
            1 | 4 => &after,
            _ => panic!("ulimit {limit}: {code}: {said}"),
        };
        assert_eq!(&root.snapshot(), wanted, "{limit}: {code}: {said}");
        let (code, said) = end(&["recover"]);
        assert!(code == 0 || code == 1, "{limit}: {code}: {said}");
        root.run(&["recover"]).ok();
        root.run(&["apply", "--yes", config.path()]).ok();
        assert_eq!(root.snapshot(), after, "{limit}");
    }
}

#[test]
fn what_is_not_a_file_is_never_taken_for_an_original() {
    let mut problems = Vec::new();
    for kind in special_kinds() {
        for (special, plain) in [
            ("etc/x.conf", "usr/etc/x.conf"),
            ("usr/etc/x.conf", "etc/x.conf"),
        ] {
            let scene = Scene::new();
            scene.root.write(plain, "of the OS\n");
            make_special(&scene.root, kind, special);
            let end = scene.apply(&one_file("/etc/x.conf"));
            if !matches!(end.code, 0 | 1) {
                problems.push(format!("{kind} at {special}: {}", end.said));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn what_is_not_a_file_among_the_records_does_not_hang() {
    let mut problems = Vec::new();
    for kind in special_kinds() {
        for path in [
            "etc/machine-config-daemon/currentconfig",
            "etc/machine-config-daemon/currentimage",
            "etc/mcs-machine-config-content.json",
            "etc/machine-id",
            "etc/passwd",
            "etc/shadow",
            "etc/kubernetes/kubeconfig",
            "etc/systemd/system-preset/10-a.preset",
            "usr/lib/systemd/system/a.service",
            "home/core/.ssh/authorized_keys",
            "etc/.pwd.lock",
        ] {
            let scene = Scene::new();
            make_special(&scene.root, kind, path);
            for config in [unit(), password()] {
                let end = scene.apply(&config);
                if !matches!(end.code, 0 | 1) {
                    problems.push(format!("{kind} at {path}: {}", end.said));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_directory_where_a_file_should_be_is_refused_by_name() {
    for (path, config) in [
        ("etc/x.conf", one_file("/etc/x.conf")),
        ("etc/systemd/system/a.service", unit()),
        (
            "etc/systemd/system/multi-user.target.wants/a.service",
            unit(),
        ),
        ("etc/machine-config-daemon/currentconfig", unit()),
        (KEYS, keys()),
    ] {
        let scene = Scene::new();
        fs::create_dir_all(scene.root.path(path)).unwrap();
        scene.root.write(&format!("{path}/of-somebody"), "kept\n");
        scene.is_refused(&config, &format!("/{path}"));
        assert_eq!(scene.root.read(&format!("{path}/of-somebody")), "kept\n");
    }
}

#[test]
fn a_file_where_a_directory_should_be_is_refused_by_name() {
    for (path, config) in [
        ("etc/x", one_file("/etc/x/y/x.conf")),
        ("etc/systemd/system/multi-user.target.wants", unit()),
        ("home/core/.ssh", keys()),
    ] {
        let scene = Scene::new();
        scene.root.write(path, "in the way\n");
        scene.is_refused(&config, &format!("/{path}"));
    }
}

#[test]
fn our_own_directories_do_not_lead_out_either() {
    for path in ["var/lib/mco-rescue", "var/lib", "var"] {
        for climbing in [false, true] {
            let scene = Scene::new();
            let at = scene.root.path(path);
            if at.exists() {
                fs::remove_dir_all(&at).unwrap();
            }
            let prefix = if climbing { CLIMB } else { "" };
            scene
                .root
                .link(path, &format!("{prefix}{}", scene.outside("")));
            scene.is_refused(&one_file("/etc/x.conf"), "/var");
        }
    }
}

#[test]
fn a_config_cannot_name_a_path_outside() {
    let scene = Scene::new();
    for path in [
        format!("/etc/{CLIMB}{}", scene.outside("x.conf")),
        "/..".to_owned(),
        "etc/x.conf".to_owned(),
    ] {
        let end = scene.apply(&one_file(&path));
        assert_eq!(end.code, 1, "{path}: {}", end.said);
    }
    let climbing = format!("{CLIMB}{}/x.service", scene.outside(""));
    let config = machine_config(
        "rendered-worker-a",
        json!({"systemd": {"units": [{"name": climbing, "contents": "[Unit]\n"}]}}),
    );
    assert_eq!(scene.apply(&config).code, 1);
}
