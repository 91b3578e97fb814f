//! `install`: what it puts on a node, takes off again, and packs for an initramfs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::mounts::{mount, with_mounts};
use crate::support::trace::can_trace;
use crate::support::{
    self, Lacks, Run, Snapshot, TestRoot, file, is_root, machine_config, say, skip,
    stripped_program,
};
use mco_rescue::change::install::cpio::{self, CpioContent, CpioEntry};
use serde_json::{Value, json};

const PROGRAM: &str = "usr/local/bin/mco-rescue";
const UNITS: &str = "etc/systemd/system";
const RECOVER: &str = "etc/systemd/system/mco-rescue-recover.service";
const RECOVER_LINK: &str = "etc/systemd/system/sysinit.target.wants/mco-rescue-recover.service";
const TIMER: &str = "etc/systemd/system/mco-rescue-fetch.timer";
const TIMER_LINK: &str = "etc/systemd/system/timers.target.wants/mco-rescue-fetch.timer";
/// As long as a real one, and without a digest that could be wrong.
const NAME: &str = "rendered-worker-0123456789abcdef0123456789abcdex";

/// Calls that change names, attributes or durability, and those that write.
const CHANGING: [&str; 12] = [
    "write",
    "renameat",
    "renameat2",
    "linkat",
    "unlinkat",
    "mkdirat",
    "symlinkat",
    "fsync",
    "syncfs",
    "fchmod",
    "fchown",
    "fchmodat",
];

fn command(root: &TestRoot, args: &[&str]) -> Command {
    let mut command = Command::new(stripped_program());
    command.arg("--root").arg(root.dir()).args(args);
    command.stdin(Stdio::null());
    command
}

fn run(root: &TestRoot, args: &[&str]) -> Run {
    Run::of(command(root, args).output().unwrap())
}

fn install(root: &TestRoot) -> Run {
    run(root, &["install"]).ok()
}

/// What was done, by path.
fn done(run: &Run) -> BTreeMap<String, String> {
    let items = run.json()["items"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    items
        .iter()
        .map(|item| (text(&item["path"]), text(&item["done"])))
        .collect()
}

/// The paths that are ours by their name.
fn ours(all: &Snapshot) -> Vec<&String> {
    let ours = all.keys().filter(|path| path.contains("mco-rescue"));
    ours.collect()
}

/// A snapshot without the bytes of the program, so that a failure can be read.
fn tree(root: &TestRoot) -> Snapshot {
    let mut all = root.everything();
    if let Some(entry) = all.get_mut(PROGRAM) {
        assert_eq!(entry.content, fs::read(stripped_program()).unwrap());
        entry.content = b"the program".to_vec();
    }
    all
}

#[test]
fn a_node_gets_the_program_the_units_and_the_links_that_enable_them() {
    let root = TestRoot::new();
    let said = install(&root).out();
    assert_eq!(
        fs::read(root.path(PROGRAM)).unwrap(),
        fs::read(stripped_program()).unwrap()
    );
    assert_eq!(root.mode(PROGRAM), 0o755);
    for unit in [
        "mco-rescue-recover.service",
        "mco-rescue-complete.service",
        "mco-rescue-trial.service",
        "mco-rescue-record.service",
        "mco-rescue-fetch.service",
        "mco-rescue-fetch.timer",
    ] {
        let path = format!("{UNITS}/{unit}");
        let text = fs::read_to_string(format!("systemd/{unit}")).unwrap();
        assert_eq!(root.read(&path), text);
        assert_eq!(root.mode(&path), 0o644);
    }
    let (uid, gid) = (
        nix::unistd::geteuid().as_raw(),
        nix::unistd::getegid().as_raw(),
    );
    for (path, entry) in root.everything() {
        assert!(
            !path.contains("mco-rescue") || entry.owner == (uid, gid),
            "{path}"
        );
        assert!(!path.ends_with(".new"), "{path}");
    }
    assert_eq!(
        root.target(RECOVER_LINK).as_deref(),
        Some("/etc/systemd/system/mco-rescue-recover.service")
    );
    assert_eq!(
        root.target(TIMER_LINK).as_deref(),
        Some("/etc/systemd/system/mco-rescue-fetch.timer")
    );
    assert!(said.contains("could not be checked"), "{said}");
    assert!(said.lines().last().unwrap().starts_with("Next: "), "{said}");
    assert!(said.lines().all(|line| line.len() <= 120), "{said}");
}

/// What the config is in charge of is then not known, which is not the same as nothing.
#[test]
fn a_damaged_record_is_named_before_files_are_written_and_removed() {
    let root = TestRoot::new();
    root.write("etc/machine-config-daemon/currentconfig", "{\"spec\"");
    for args in [&["install"][..], &["install", "--remove", "--yes"]] {
        let said = run(&root, args).ok().err();
        let words = "it is unknown which files the node's MachineConfig manages";
        assert!(said.contains(words), "{args:?}: {said}");
        assert!(said.contains("currentconfig"), "{args:?}: {said}");
    }
}

#[test]
fn the_real_systemctl_takes_the_units_for_enabled() {
    let root = TestRoot::new();
    install(&root);
    for (unit, state) in [
        ("mco-rescue-recover.service", "enabled"),
        ("mco-rescue-complete.service", "enabled"),
        ("mco-rescue-trial.service", "enabled"),
        ("mco-rescue-record.service", "enabled"),
        ("mco-rescue-fetch.timer", "enabled"),
        ("mco-rescue-fetch.service", "static"),
    ] {
        let mut systemctl = Command::new("systemctl");
        systemctl.arg("--root").arg(root.dir());
        let Ok(output) = systemctl.args(["is-enabled", unit]).output() else {
            return skip(Lacks::Setup, "systemctl is not installed");
        };
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said.trim(), state, "{unit}");
    }
}

#[test]
fn a_first_boot_leaves_the_units_enabled() {
    let root = TestRoot::new();
    root.remove("etc/machine-id");
    root.write(
        "usr/lib/systemd/system-preset/99-default.preset",
        "disable *\n",
    );
    install(&root);
    let mut systemctl = Command::new("systemctl");
    systemctl.arg("--root").arg(root.dir()).arg("preset-all");
    let Ok(output) = systemctl.output() else {
        return skip(Lacks::Setup, "systemctl is not installed");
    };
    assert!(output.status.success(), "{output:?}");
    let complete = "etc/systemd/system/multi-user.target.wants/mco-rescue-complete.service";
    let trial = "etc/systemd/system/sysinit.target.wants/mco-rescue-trial.service";
    assert!(root.exists(RECOVER_LINK) && root.exists(TIMER_LINK));
    assert!(root.exists(complete) && root.exists(trial));
    let preset = "etc/systemd/system-preset/30-mco-rescue.preset";
    assert!(root.exists(preset));
    run(&root, &["install", "--remove", "--yes"]).ok();
    assert!(!root.exists(preset));
}

#[test]
fn a_second_run_says_that_everything_is_there_and_writes_nothing() {
    let root = TestRoot::new();
    let first = run(&root, &["install", "--output", "json"]).ok();
    assert_eq!(first.json()["schema"], "mco-rescue/install/v1");
    assert!(done(&first).values().all(|done| done == "placed"));
    let second = run(&root, &["install", "--output", "json"]).ok();
    assert!(done(&second).values().all(|done| done == "kept"));
    let said = install(&root).out();
    assert!(said.contains("nothing was written"), "{said}");
    if can_trace() {
        let calls = trace(&root, &["install"], "");
        let changing = calls.iter().filter(|call| {
            // Words to standard output and between threads are not a change.
            !call.starts_with("write(")
        });
        assert_eq!(changing.collect::<Vec<_>>(), Vec::<&String>::new());
    }
}

#[test]
fn what_was_changed_is_put_right_and_the_rest_is_left() {
    let root = TestRoot::new();
    install(&root);
    let before = tree(&root);
    let inode = fs::metadata(root.path(TIMER)).unwrap().ino();
    root.write(PROGRAM, "another version");
    root.chmod(RECOVER, 0o600);
    fs::remove_file(root.path(TIMER_LINK)).unwrap();
    let run = run(&root, &["install", "--output", "json"]).ok();
    let done = done(&run);
    assert_eq!(done[&format!("/{PROGRAM}")], "replaced");
    assert_eq!(done[&format!("/{RECOVER}")], "replaced");
    assert_eq!(done[&format!("/{TIMER_LINK}")], "placed");
    assert_eq!(done[&format!("/{TIMER}")], "kept");
    assert_eq!(tree(&root), before);
    assert_eq!(fs::metadata(root.path(TIMER)).unwrap().ino(), inode);
}

#[test]
fn a_masked_unit_is_left_alone_and_said_also_when_all_else_goes() {
    let root = TestRoot::new();
    root.link(RECOVER, "/dev/null");
    let said = install(&root).out();
    assert!(said.contains("masked by hand, left alone"), "{said}");
    assert_eq!(root.target(RECOVER).as_deref(), Some("/dev/null"));
    assert!(!root.exists(RECOVER_LINK));
    assert!(root.exists(TIMER_LINK));
    let said = run(&root, &["install", "--remove", "--yes"]).ok().out();
    assert!(said.contains("the unit was masked by hand"), "{said}");
    assert_eq!(ours(&root.everything()), [RECOVER]);
}

#[test]
fn what_the_config_is_in_charge_of_is_the_configs() {
    let root = TestRoot::new();
    let unit = "[Service]\nExecStart=/bin/true\n";
    let config = machine_config(
        NAME,
        json!({
            "storage": {"files": [file("/usr/local/bin/mco-rescue", 0o755, "theirs\n")]},
            "systemd": {"units": [{"name": "mco-rescue-fetch.timer", "contents": unit, "enabled": false}]},
        }),
    );
    root.apply(&config);
    let said = install(&root).out();
    assert!(
        said.contains("managed by the node's config, left alone"),
        "{said}"
    );
    assert_eq!(root.read(PROGRAM), "theirs\n");
    assert_eq!(root.read(TIMER), unit);
    assert!(!root.exists(TIMER_LINK));
    root.run(&["verify"]).ok();
    run(&root, &["install", "--remove", "--yes"]).ok();
    root.run(&["verify"]).ok();
}

#[test]
fn what_cannot_be_a_file_of_ours_is_named_and_nothing_else_is_lost() {
    let root = TestRoot::new();
    fs::create_dir_all(root.path(RECOVER)).unwrap();
    let run = run(&root, &["install"]).exits(5);
    assert!(run.err().contains(&format!("/{RECOVER}")), "{}", run.err());
    assert!(root.exists(PROGRAM) && !root.exists(RECOVER_LINK));
    let left: Vec<String> = root.everything().into_keys().collect();
    assert!(!left.iter().any(|path| path.ends_with(".new")), "{left:?}");
}

/// A root with a cache, a history and a status: everything that a node gathers.
fn used() -> (TestRoot, Snapshot) {
    let root = TestRoot::new();
    let config = machine_config(
        NAME,
        json!({"storage": {"files": [file("/etc/plain", 0o644, "plain\n")]}}),
    );
    root.apply(&config);
    fs::remove_dir_all(root.path("var/lib/mco-rescue")).unwrap();
    let before = root.everything();
    let kept = root.config(&config);
    root.run(&["fetch", kept.path()]).ok();
    let next = machine_config(
        "rendered-worker-fedcba9876543210fedcba987654321x",
        json!({"storage": {"files": [file("/etc/plain", 0o644, "next\n")]}}),
    );
    root.apply(&next);
    root.run(&["rollback", "--yes"]).ok();
    root.apply(&next);
    install(&root);
    // As the first config left it: what later runs changed is not the installation's.
    root.apply(&config);
    (root, before)
}

#[test]
fn after_a_removal_nothing_of_it_is_left() {
    let (root, before) = used();
    assert!(ours(&root.everything()).len() > 10);
    let refused = run(&root, &["install", "--remove"]).exits(1);
    assert!(refused.err().contains("--yes"), "{}", refused.err());
    assert!(root.exists(PROGRAM));
    let removed = run(&root, &["install", "--remove", "--yes", "--output", "json"]).ok();
    assert_eq!(removed.json()["action"], "remove");
    assert_eq!(ours(&root.everything()), Vec::<&String>::new());
    let after = root.everything();
    let differ = before
        .keys()
        .chain(after.keys())
        .filter(|path| before.get(*path) != after.get(*path));
    assert_eq!(differ.collect::<Vec<_>>(), Vec::<&String>::new());
    let again = run(&root, &["install", "--remove", "--yes"]).ok().out();
    assert!(
        again.contains("Nothing of mco-rescue is installed"),
        "{again}"
    );
}

#[test]
fn directories_that_somebody_uses_since_stay() {
    let root = TestRoot::new();
    install(&root);
    root.write("usr/local/bin/theirs", "x");
    run(&root, &["install", "--remove", "--yes"]).ok();
    assert!(root.exists("usr/local/bin/theirs"));
    assert!(!root.exists("etc/systemd/system/sysinit.target.wants"));
}

#[test]
fn nothing_is_removed_while_a_run_is_unfinished() {
    if !can_trace() {
        return;
    }
    let root = TestRoot::new();
    install(&root);
    let config = machine_config(
        NAME,
        json!({"storage": {"files": [file("/etc/plain", 0o644, "plain\n")]}}),
    );
    let config = root.config(&config);
    // What is new gets its name by this call; the state files by another.
    killed(&root, &["apply", "--yes", config.path()], "renameat2", 1);
    assert!(root.exists("var/lib/mco-rescue/journal.json"));
    let before = tree(&root);
    let refused = run(&root, &["install", "--remove", "--yes"]).exits(1);
    assert!(
        refused.err().contains("Next: mco-rescue recover"),
        "{}",
        refused.err()
    );
    assert_eq!(tree(&root), before);
    // Installing disturbs it as little; what the recovery changed is told.
    install(&root);
    let recovered = run(&root, &["recover", "--output", "json"]).ok().json();
    assert_eq!(recovered["result"], "finished");
    let changed = recovered["changed"].as_array().unwrap();
    for path in ["etc/plain", "etc/machine-config-daemon/currentconfig"] {
        let told = changed.contains(&json!(format!("/{path}")));
        assert_eq!(told, !before.contains_key(path), "{path}: {recovered}");
    }
    assert!(!before.contains_key("etc/machine-config-daemon/currentconfig"));
    assert_eq!(root.read("etc/plain"), "plain\n");
    run(&root, &["install", "--remove", "--yes"]).ok();
    assert_eq!(ours(&root.everything()), Vec::<&String>::new());
}

#[test]
fn nothing_is_removed_while_a_boot_is_awaited() {
    let root = TestRoot::new();
    install(&root);
    let awaited = json!({
        "version": 1, "way": "forward", "run": null, "boot": "b", "from": "f", "image": "i",
        "config": {"name": NAME, "digest": "", "origin": ""}, "kernel_arguments": [], "since": 0, "failed": null,
    });
    root.write("var/lib/mco-rescue/awaited.json", &awaited.to_string());
    let before = tree(&root);
    let refused = run(&root, &["install", "--remove", "--yes"]).exits(1).err();
    assert!(refused.contains("waits for the next boot"), "{refused}");
    assert_eq!(tree(&root), before);
    // That boot did not bring it, and its files are back.
    let mut failed = awaited;
    failed["failed"] = json!("it did not come up");
    root.write("var/lib/mco-rescue/awaited.json", &failed.to_string());
    run(&root, &["install", "--remove", "--yes"]).ok();
    assert_eq!(ours(&root.everything()), Vec::<&String>::new());
}

#[test]
fn started_at_boot_without_need_it_ends_well_even_while_another_run_has_the_lock() {
    let root = TestRoot::new();
    fs::create_dir(root.path("var/lib/mco-rescue")).unwrap();
    let dir = fs::File::open(root.path("var/lib/mco-rescue")).unwrap();
    dir.lock().unwrap();
    let said = run(&root, &["recover"]).exits(1).err();
    assert!(said.contains("holds the lock"), "{said}");
    run(&root, &["recover", "--at-boot"]).ok();
}

#[test]
fn links_on_the_way_lead_nowhere_but_into_the_root() {
    for target in [
        "/opt/local",
        "../opt/local",
        "../../../../../../../../opt/local",
    ] {
        for there in [true, false] {
            let root = TestRoot::new();
            if there {
                fs::create_dir_all(root.path("opt/local")).unwrap();
            }
            root.link("usr/local", target);
            let before = root.everything();
            install(&root);
            assert!(root.exists("opt/local/bin/mco-rescue"), "{target}");
            assert_eq!(root.target("usr/local").as_deref(), Some(target));
            assert!(!Path::new("/opt/local").exists());
            let said = install(&root).out();
            assert!(said.contains("nothing was written"), "{said}");
            run(&root, &["install", "--remove", "--yes"]).ok();
            assert_eq!(root.everything(), before, "{target}");
        }
    }
}

#[test]
fn a_directory_in_which_another_user_can_replace_files_is_refused() {
    if !is_root() {
        return skip(Lacks::Root, "files of other users need root");
    }
    let cases: [(&str, Option<u32>, u32, &str); 5] = [
        ("usr/local/bin", Some(1000), 0o755, "chown root:root"),
        ("usr/local", Some(1000), 0o755, "chown root:root"),
        ("usr/local/bin", None, 0o777, "chmod go-w"),
        ("usr/local/bin", None, 0o2775, "chmod go-w"),
        ("etc/systemd/system", None, 0o775, "chmod go-w"),
    ];
    for (dir, owner, mode, next) in cases {
        for behind_link in [false, true] {
            let root = TestRoot::new();
            let place = if behind_link {
                format!("srv/{dir}")
            } else {
                dir.to_owned()
            };
            fs::create_dir_all(root.path(&place)).unwrap();
            if behind_link {
                fs::create_dir_all(root.path(dir).parent().unwrap()).unwrap();
                root.link(dir, &format!("/{place}"));
            }
            chown(root.path(&place), owner, owner).unwrap();
            root.chmod(&place, mode);
            let before = root.everything();
            let refused = run(&root, &["install"]).exits(1).err();
            let printed = format!("{next} {}", root.path(&place).display());
            assert!(refused.contains(&printed), "{dir} {mode:o}: {refused}");
            assert_eq!(root.everything(), before);
            // The printed command leads out of it.
            let (word, rest) = printed.split_once(' ').unwrap();
            let status = Command::new(word).args(rest.split(' ')).status();
            assert!(status.unwrap().success());
            install(&root);
        }
    }
}

#[test]
fn a_sticky_directory_is_closed_enough() {
    let root = TestRoot::new();
    fs::create_dir_all(root.path("usr/local/bin")).unwrap();
    root.chmod("usr/local/bin", 0o1777);
    install(&root);
}

#[test]
fn on_an_ostree_root_the_program_lands_below_var_and_waits_for_the_real_one() {
    let root = TestRoot::empty();
    let name = format!("{}.0", "a1".repeat(32));
    let deployment = root.path(&name);
    fs::create_dir_all(deployment.join("usr")).unwrap();
    fs::create_dir_all(deployment.join("etc")).unwrap();
    fs::create_dir_all(deployment.join("var")).unwrap();
    root.link(&format!("{name}/usr/local"), "../var/usrlocal");
    let installed = || {
        let mut command = Command::new(stripped_program());
        command.arg("--root").arg(&deployment).arg("install");
        Run::of(command.stdin(Stdio::null()).output().unwrap())
    };
    let refused = installed().exits(1);
    assert!(
        refused.err().contains("not mounted yet"),
        "{}",
        refused.err()
    );
    assert!(
        fs::read_dir(deployment.join("var"))
            .unwrap()
            .next()
            .is_none()
    );
    fs::create_dir(deployment.join("var/log")).unwrap();
    installed().ok();
    let landed = deployment.join("var/usrlocal/bin/mco-rescue");
    assert_eq!(fs::metadata(landed).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn a_link_of_a_user_leads_nobody_anywhere() {
    if !is_root() {
        return skip(Lacks::Root, "giving a link away needs root");
    }
    for there in [true, false] {
        let root = TestRoot::new();
        if there {
            fs::create_dir_all(root.path("opt/local")).unwrap();
        }
        root.link("usr/local", "/opt/local");
        std::os::unix::fs::lchown(root.path("usr/local"), Some(1000), Some(1000)).unwrap();
        let before = root.everything();
        let refused = run(&root, &["install"]).exits(1);
        assert!(refused.err().contains("/usr/local"), "{}", refused.err());
        let mut after = root.everything();
        after.retain(|path, _| !path.starts_with("var/lib/mco-rescue"));
        assert_eq!(after, before);
    }
}

#[test]
fn a_full_disk_leaves_what_was_there_and_a_second_run_ends_it() {
    with_mounts(|| {
        let root = TestRoot::new();
        install(&root);
        root.write(PROGRAM, "the old version\n");
        root.chmod(PROGRAM, 0o755);
        let place = root.path("usr/local");
        let kept = fs::read(root.path(PROGRAM)).unwrap();
        mount(&[
            "-t",
            "tmpfs",
            "-o",
            "size=1m,mode=755",
            "none",
            place.to_str().unwrap(),
        ]);
        root.write(PROGRAM, std::str::from_utf8(&kept).unwrap());
        root.chmod(PROGRAM, 0o755);
        let failed = run(&root, &["install"]).exits(1);
        assert!(
            failed.err().contains("no space left on device"),
            "{}",
            failed.err()
        );
        assert_eq!(root.read(PROGRAM), "the old version\n");
        let names: Vec<_> = fs::read_dir(root.path("usr/local/bin")).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        mount(&["-o", "remount,size=100m", place.to_str().unwrap()]);
        install(&root);
        assert_eq!(
            fs::read(root.path(PROGRAM)).unwrap(),
            fs::read(stripped_program()).unwrap()
        );
    });
}

fn strace(root: &TestRoot, args: &[&str], log: &Path, fault: &str) -> std::process::Output {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-s", "256", "-o"]).arg(log);
    command.args(["-e", &format!("trace={}", CHANGING.join(","))]);
    if !fault.is_empty() {
        command.args(["-e", &format!("inject={fault}")]);
    }
    command
        .arg(stripped_program())
        .arg("--root")
        .arg(root.dir());
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

/// The calls of a run that must end well, without the process ids.
fn trace(root: &TestRoot, args: &[&str], fault: &str) -> Vec<String> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let output = strace(root, args, log.path(), fault);
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(log.path()).unwrap();
    let calls = text.lines().filter_map(|line| line.split_once(' '));
    let calls = calls.map(|(_, call)| call.trim().to_owned());
    calls.filter(|call| call.contains('(')).collect()
}

fn killed(root: &TestRoot, args: &[&str], call: &str, nth: usize) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let fault = format!("{call}:signal=KILL:when={nth}");
    let output = strace(root, args, log.path(), &fault);
    assert_eq!(output.status.signal(), Some(9), "{call} {nth}: {output:?}");
}

/// Each call of a run by name and number; of the many writes of the program the first, the last and one between.
fn points(calls: &[String]) -> Vec<(&'static str, usize)> {
    let mut all = Vec::new();
    for name in CHANGING {
        let prefix = format!("{name}(");
        let count = calls
            .iter()
            .filter(|call| call.starts_with(&prefix))
            .count();
        match name {
            "write" => all.extend([1, count / 2, count].map(|nth| (name, nth))),
            _ => all.extend((1..=count).map(|nth| (name, nth))),
        }
    }
    all
}

fn on_both_cores(points: &[(&'static str, usize)], work: impl Fn((&'static str, usize)) + Sync) {
    std::thread::scope(|scope| {
        for half in 0..2 {
            let mine = points.iter().skip(half).step_by(2);
            let work = &work;
            scope.spawn(move || mine.for_each(|point| work(*point)));
        }
    });
}

/// Nothing of ours is torn, and nothing is enabled or started that is not there.
fn sound(root: &TestRoot, whole: &Snapshot) {
    let all = root.everything();
    for (path, entry) in &all {
        let ours = path.contains("mco-rescue") && !path.starts_with("var/lib/mco-rescue");
        if ours && !path.ends_with(".new") {
            let is_program =
                path == PROGRAM && entry.content == fs::read(stripped_program()).unwrap();
            assert!(
                is_program || Some(entry) == whole.get(path),
                "{path} is torn"
            );
        }
    }
    let needs = [
        (RECOVER, PROGRAM),
        (TIMER, PROGRAM),
        (RECOVER_LINK, RECOVER),
        (TIMER_LINK, TIMER),
    ];
    for (path, needed) in needs {
        assert!(
            !all.contains_key(path) || all.contains_key(needed),
            "{path}"
        );
    }
}

#[test]
fn an_error_after_a_part_is_reported_with_the_command_that_goes_on() {
    if !can_trace() {
        return;
    }
    for args in [&["install"][..], &["install", "--remove", "--yes"]] {
        let made = || {
            let root = TestRoot::new();
            if args.len() > 1 {
                install(&root);
            }
            root
        };
        let name = if args.len() > 1 {
            "unlinkat"
        } else {
            "renameat"
        };
        let calls = trace(&made(), args, "");
        let prefix = format!("{name}(");
        let count = calls.iter().filter(|call| call.starts_with(&prefix));
        let middle = count.count() / 2;
        let root = made();
        let before = tree(&root);
        let log = tempfile::NamedTempFile::new().unwrap();
        let fault = format!("{name}:error=EIO:when={middle}");
        let output = strace(&root, args, log.path(), &fault);
        let said = support::flat(&String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(5), "{args:?}: {said}");
        assert!(tree(&root) != before, "{args:?}");
        let next = format!("Next: mco-rescue {}", args[..args.len().min(2)].join(" "));
        assert!(said.contains(&next), "{args:?}: {said}");
        run(&root, args).ok();
    }
}

#[test]
fn cut_off_anywhere_nothing_is_torn_and_the_next_run_ends_it() {
    if !can_trace() {
        return;
    }
    let root = TestRoot::new();
    let calls = trace(&root, &["install"], "");
    let whole = tree(&root);
    let points = points(&calls);
    on_both_cores(&points, |(call, nth)| {
        let root = TestRoot::new();
        killed(&root, &["install"], call, nth);
        sound(&root, &whole);
        install(&root);
        assert_eq!(tree(&root), whole, "{call} {nth}");
    });
    say(&format!("install: cut off at {} calls", points.len()));
    assert!(points.len() > 40);
}

#[test]
fn a_removal_that_is_cut_off_anywhere_ends_with_the_next() {
    if !can_trace() {
        return;
    }
    let remove = ["install", "--remove", "--yes"];
    let root = TestRoot::new();
    let before = root.everything();
    install(&root);
    let whole = tree(&root);
    let calls = trace(&root, &remove, "");
    assert_eq!(root.everything(), before);
    let points = points(&calls);
    let points = points.into_iter().filter(|(call, _)| *call != "write");
    let points: Vec<_> = points.collect();
    on_both_cores(&points, |(call, nth)| {
        let root = TestRoot::new();
        install(&root);
        killed(&root, &remove, call, nth);
        sound(&root, &whole);
        run(&root, &remove).ok();
        assert_eq!(root.everything(), before, "{call} {nth}");
    });
    say(&format!(
        "install --remove: cut off at {} calls",
        points.len()
    ));
    assert!(points.len() > 15);
}

#[test]
fn the_units_are_what_systemd_takes() {
    let work = tempfile::tempdir().unwrap();
    let recover = fs::read_to_string("systemd/mco-rescue-recover.service").unwrap();
    let recover = recover.replace("/usr/local/bin/mco-rescue", support::PROGRAM);
    let path = work.path().join("mco-rescue-recover.service");
    fs::write(&path, &recover).unwrap();
    let analyze = |args: &[&str]| {
        Command::new("systemd-analyze")
            .args(args)
            .arg(&path)
            .output()
    };
    let Ok(verified) = analyze(&["verify", "--man=no"]) else {
        return skip(Lacks::Setup, "systemd-analyze is not installed");
    };
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(
        verified.status.success() && !said.contains("mco-rescue"),
        "{said}"
    );
    // It writes wherever a config did, so no path is closed to it; what else can be is.
    let security = analyze(&["security", "--offline=true", "--threshold=85"]).unwrap();
    let said = String::from_utf8_lossy(&security.stdout).into_owned();
    assert!(
        security.status.success(),
        "{}",
        said.lines().last().unwrap_or_default()
    );
}

/// A program that notes how it is called, and answers `show` with the node's `/answer`.
const SYSTEMCTL: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int c, char **v) {
    FILE *calls = fopen("/calls", "a");
    for (int i = 1; i < c; i++) fprintf(calls, "%s ", v[i]);
    fprintf(calls, "%s\n", access("/run/mco-rescue-check", F_OK) ? "" : "(check)");
    fclose(calls);
    if (c > 1 && !strcmp(v[1], "show")) {
        FILE *answer = fopen("/answer", "r");
        int byte;
        while (answer && (byte = fgetc(answer)) != EOF) putchar(byte);
    }
    return 0;
}
"#;

/// A root in which the program sees itself on a live node with systemd.
struct Live {
    root: TestRoot,
}

impl Live {
    fn new() -> Self {
        let root = TestRoot::new();
        for dir in ["proc", "dev", "usr/bin", "run/systemd/system"] {
            fs::create_dir_all(root.path(dir)).unwrap();
        }
        // Programs are started with this as their standard input.
        root.write("dev/null", "");
        mount(&["-t", "proc", "proc", root.path("proc").to_str().unwrap()]);
        let source = tempfile::Builder::new().suffix(".c").tempfile().unwrap();
        fs::write(source.path(), SYSTEMCTL).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-static", "-o"])
            .arg(root.path("usr/bin/systemctl"));
        assert!(cc.arg(source.path()).status().unwrap().success());
        let mut copy = Command::new("install");
        copy.arg(stripped_program()).arg(root.path("mco"));
        assert!(copy.status().unwrap().success());
        Self { root }
    }

    fn answers(&self, text: &str) {
        self.root.write("answer", text);
        let _ = fs::remove_file(self.root.path("calls"));
    }

    fn run(&self, args: &[&str]) -> Run {
        let mut command = Command::new("chroot");
        command.arg(self.root.dir()).arg("/mco").args(args);
        Run::of(command.stdin(Stdio::null()).output().unwrap())
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.root.path("calls")).unwrap_or_default();
        calls.lines().map(|line| line.trim().to_owned()).collect()
    }
}

const WELL: &str = "LoadState=loaded\nResult=success\nConditionResult=yes\nExecMainStatus=0\n";

#[test]
fn on_a_live_node_systemd_reads_the_units_and_starts_them() {
    with_mounts(|| {
        let live = Live::new();
        live.answers(WELL);
        let said = live.run(&["install"]).ok().out();
        assert!(said.contains("can start the recovery unit"), "{said}");
        let start = "start -- mco-rescue-recover.service (check)";
        let calls = live.calls();
        let position = |words: &str| calls.iter().position(|call| call == words).unwrap();
        assert!(position("daemon-reload") < position(start), "{calls:?}");
        position("start -- mco-rescue-fetch.timer");
        assert!(!live.root.exists("run/mco-rescue-check"));
        // SELinux says no.
        live.answers(
            &WELL
                .replace("success", "exit-code")
                .replace("Status=0", "Status=203"),
        );
        let said = live.run(&["install"]).exits(1).out();
        assert!(said.contains("203/EXEC"), "{said}");
        assert!(
            said.contains("Next: restorecon -Fv /usr/local/bin/mco-rescue"),
            "{said}"
        );
        live.answers(WELL);
        // What systemd and an earlier boot have left.
        live.root
            .write("var/lib/systemd/timers/stamp-mco-rescue-fetch.timer", "");
        live.root.write("run/mco-rescue/firstboot.json", "{}");
        live.run(&["install", "--remove", "--yes"]).ok();
        let calls = live.calls();
        assert!(calls[0].starts_with("stop -- "), "{calls:?}");
        assert_eq!(calls.last().unwrap(), "daemon-reload");
        let mut umount = Command::new("umount");
        let umounted = umount.arg("--lazy").arg(live.root.path("proc")).status();
        assert!(umounted.unwrap().success());
        assert_eq!(ours(&live.root.everything()), Vec::<&String>::new());
    });
}

#[test]
fn a_live_apply_first_puts_what_recovers_it_at_boot() {
    with_mounts(|| {
        let live = Live::new();
        live.answers(WELL);
        // Enabled by the config in the same directory that the installation needs.
        let unit = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=sysinit.target\n";
        let config = machine_config(
            NAME,
            json!({"systemd": {"units": [{"name": "a.service", "contents": unit, "enabled": true}]}}),
        );
        live.root.write("config", &config.to_string());
        // Daemons that other tests start are seen here too.
        let plan = live
            .run(&["plan", "--takeover", "--output", "json", "/config"])
            .ok();
        let notices = plan.json()["notices"].to_string();
        assert!(notices.contains("recovery at boot"), "{notices}");
        assert!(!live.root.exists(PROGRAM));
        // Not confirmed: nothing is put.
        live.run(&["apply", "--takeover", "/config"]).exits(1);
        assert!(!live.root.exists(PROGRAM));
        let run = live.run(&["apply", "--takeover", "--yes", "/config"]).ok();
        assert!(
            run.err().contains("installed /usr/local/bin/mco-rescue"),
            "{}",
            run.err()
        );
        // Done, and no news for `status` any more.
        let status = live.run(&["status", "--output", "json"]).ok().json();
        let notices = status["last_run"]["notices"].to_string();
        assert!(!notices.contains("recovery at boot"), "{notices}");
        assert!(live.root.exists(RECOVER_LINK) && !live.root.exists(TIMER));
        assert!(
            live.root
                .exists("etc/systemd/system/sysinit.target.wants/a.service")
        );
        // The next one has nothing to put, and says nothing of it.
        live.root.write("etc/systemd/system/a.service", "changed\n");
        let run = live.run(&["apply", "--takeover", "--yes", "/config"]).ok();
        assert!(!run.err().contains("installed"), "{}", run.err());
        assert!(!run.out().contains("recovery at boot"), "{}", run.out());
        // Where it cannot be put, the run goes on all the same, with the directory that both need.
        fs::remove_file(live.root.path(RECOVER)).unwrap();
        fs::create_dir(live.root.path(RECOVER)).unwrap();
        fs::remove_dir_all(live.root.path("etc/systemd/system/sysinit.target.wants")).unwrap();
        live.root.write("etc/systemd/system/a.service", "changed\n");
        let run = live.run(&["apply", "--takeover", "--yes", "/config"]).ok();
        assert!(
            run.err().contains("run `mco-rescue recover` by hand"),
            "{}",
            run.err()
        );
        assert_eq!(live.root.read("etc/systemd/system/a.service"), unit);
        let link = "etc/systemd/system/sysinit.target.wants/a.service";
        assert!(live.root.exists(link) && !live.root.exists(RECOVER_LINK));
    });
}

#[test]
fn a_recovery_at_boot_lets_systemd_read_what_changed_and_names_what_was_started() {
    if !can_trace() {
        return;
    }
    with_mounts(|| {
        let live = Live::new();
        live.answers(WELL);
        live.run(&["install"]).ok();
        let unit = "[Service]\nExecStart=/bin/true\n";
        let config = machine_config(
            NAME,
            json!({
                "storage": {"files": [file("/etc/plain", 0o644, "plain\n")]},
                "systemd": {"units": [{"name": "a.service", "contents": unit}]},
            }),
        );
        live.root.write("config", &config.to_string());
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat2"]);
        // The first new name is the file's; units come later.
        command.args(["-e", "inject=renameat2:signal=KILL:when=1"]);
        command.arg("chroot").arg(live.root.dir());
        command.args(["/mco", "apply", "--takeover", "--yes", "/config"]);
        command.stdin(Stdio::null()).output().unwrap();
        assert!(live.root.exists("var/lib/mco-rescue/journal.json"));
        live.answers("Id=a.service\nActiveState=active\nSubState=running\n");
        let said = live.run(&["recover", "--at-boot"]).ok().out();
        assert!(said.contains("systemctl restart a.service"), "{said}");
        let show = "show --property=Id,ActiveState,SubState -- a.service";
        // Which boot runs decides if the jobs of the run are still to be done.
        let boot = "show --property=SoftRebootsCount,UserspaceTimestampMonotonic";
        assert_eq!(live.calls(), [boot, "daemon-reload", show]);
        let status = live.run(&["status", "--output", "json"]).ok().json();
        assert_eq!(status["last_run"]["outcome"], "recovered");
        let phases = status["last_run"]["phases"].to_string();
        assert!(phases.contains("systemctl restart a.service"), "{phases}");
        assert_eq!(live.root.read("etc/systemd/system/a.service"), unit);
    });
}

#[test]
fn a_node_whose_image_has_the_unit_needs_no_other() {
    with_mounts(|| {
        let live = Live::new();
        live.answers(WELL);
        let vendor = "usr/lib/systemd/system/mco-rescue-recover.service";
        live.root.write(
            vendor,
            "[Service]\nExecStart=/usr/bin/mco-rescue recover --at-boot\n",
        );
        live.root.link(RECOVER_LINK, &format!("/{vendor}"));
        let config = machine_config(
            NAME,
            json!({"storage": {"files": [file("/etc/plain", 0o644, "plain\n")]}}),
        );
        live.root.write("config", &config.to_string());
        let run = live.run(&["apply", "--takeover", "--yes", "/config"]).ok();
        assert!(!run.out().contains("recovery at boot"), "{}", run.out());
        assert!(live.root.exists("etc/plain") && !live.root.exists(PROGRAM));
        // Switched off by somebody, it recovers nothing.
        live.root.remove(RECOVER_LINK);
        live.root.write("etc/plain", "changed\n");
        live.run(&["apply", "--takeover", "--yes", "/config"]).ok();
        assert!(live.root.exists(PROGRAM) && live.root.exists(RECOVER));
    });
}

/// Unpacks an archive with the real cpio, and gives what came of it.
fn unpacked(archive: &[u8]) -> Option<TestRoot> {
    let root = TestRoot::empty();
    let file = root.path("archive");
    fs::write(&file, archive).unwrap();
    let mut cpio = Command::new("cpio");
    cpio.args(["--extract", "--quiet", "--preserve-modification-time"]);
    cpio.arg("--no-absolute-filenames").current_dir(root.dir());
    let Ok(output) = cpio.stdin(fs::File::open(&file).unwrap()).output() else {
        skip(Lacks::Setup, "cpio is not installed");
        return None;
    };
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    fs::remove_file(file).unwrap();
    Some(root)
}

#[test]
fn the_real_cpio_unpacks_what_was_packed() {
    let entry = |name: &str, mode, content| CpioEntry {
        name: name.to_owned(),
        mode,
        content,
    };
    let mut entries = vec![entry("d", 0o750, CpioContent::Directory)];
    for size in 0..9 {
        let bytes = (0..size).collect();
        entries.push(entry(
            &format!("d/{}", "f".repeat(size.into())),
            0o640,
            CpioContent::File(bytes),
        ));
    }
    entries.remove(1);
    entries.push(entry(
        "d/link",
        0o777,
        CpioContent::Link("../else where".to_owned()),
    ));
    entries.push(entry("d/empty", 0o4755, CpioContent::File(Vec::new())));
    let Some(root) = unpacked(&cpio::write_archive(&entries).unwrap()) else {
        return;
    };
    let found = root.everything();
    assert_eq!(found.len(), entries.len());
    for entry in entries {
        let there = &found[&entry.name];
        let (kind, content) = match entry.content {
            CpioContent::Directory => ('d', Vec::new()),
            CpioContent::File(bytes) => ('f', bytes),
            CpioContent::Link(target) => ('l', target.into_bytes()),
        };
        let wanted = (kind, entry.mode, content);
        assert_eq!(
            (there.kind, there.mode, there.content.clone()),
            wanted,
            "{}",
            entry.name
        );
    }
}

fn gunzip(path: &Path) -> Vec<u8> {
    let output = Command::new("gzip")
        .args(["-dc"])
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success());
    output.stdout
}

#[test]
fn an_initramfs_archive_has_the_program_its_units_and_the_configs_of_the_caller() {
    let root = TestRoot::new();
    let before = root.everything();
    let work = tempfile::tempdir().unwrap();
    let image = work.path().join("rescue.img");
    let image = image.to_str().unwrap();
    let config = machine_config(NAME, json!({}));
    let config = root.config(&config);
    let said = run(
        &root,
        &["install", "--initramfs", image, "--config", config.path()],
    );
    let said = said.ok().out();
    assert!(
        said.contains(NAME) && said.contains("Load it after"),
        "{said}"
    );
    assert_eq!(root.everything(), before);
    assert_eq!(
        fs::metadata(image).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    let Some(unpacked) = unpacked(&gunzip(image.as_ref())) else {
        return;
    };
    let binary = "usr/bin/mco-rescue";
    assert_eq!(
        fs::read(unpacked.path(binary)).unwrap(),
        fs::read(stripped_program()).unwrap()
    );
    assert_eq!(unpacked.mode(binary), 0o755);
    let baked = format!("usr/lib/mco-rescue/configs/{NAME}.json");
    assert_eq!(
        unpacked.read(&baked),
        fs::read_to_string(config.path()).unwrap()
    );
    assert_eq!(unpacked.mode(&baked), 0o600);
    for unit in ["mco-rescue-firstboot.service", "mco-rescue-shell.service"] {
        let there = format!("usr/lib/systemd/system/initrd.target.wants/{unit}");
        let text = fs::read_to_string(format!("dracut/50mco-rescue/{unit}")).unwrap();
        // Through the link, as systemd reads it.
        assert_eq!(unpacked.read(&there), text);
    }
}

#[test]
fn the_same_archive_comes_of_the_same_program_and_may_be_read_by_all_without_configs() {
    let root = TestRoot::empty();
    root.chmod("", 0o755);
    let image = |name: &str| root.path(name).to_str().unwrap().to_owned();
    for name in ["a", "b"] {
        run(&root, &["install", "--initramfs", &image(name)]).ok();
    }
    let there: Vec<String> = root.everything().into_keys().collect();
    assert_eq!(
        (there, root.mode("")),
        (vec!["a".into(), "b".into()], 0o755)
    );
    assert_eq!(fs::read(image("a")).unwrap(), fs::read(image("b")).unwrap());
    assert_eq!(root.mode("a"), 0o644);
}

#[test]
fn what_has_the_name_of_the_archive_is_left_as_it_is() {
    let root = TestRoot::empty();
    root.write("file", "the initramfs of the node\n");
    root.link("link", "file");
    root.link("dangling", "nowhere");
    fs::create_dir(root.path("directory")).unwrap();
    nix::unistd::mkfifo(&root.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let before = root.everything();
    for name in ["file", "link", "dangling", "directory", "pipe"] {
        let image = root.path(name).to_str().unwrap().to_owned();
        let refused = run(&root, &["install", "--initramfs", &image]).exits(1);
        let said = refused.err();
        assert!(
            said.contains("exists already; give another FILE"),
            "{name}: {said}"
        );
        assert_eq!(root.everything(), before, "{name}");
    }
    if is_root() {
        nix::sys::stat::mknod(
            &root.path("disk"),
            nix::sys::stat::SFlag::S_IFBLK,
            nix::sys::stat::Mode::S_IRWXU,
            nix::sys::stat::makedev(7, 200),
        )
        .unwrap();
        let image = root.path("disk").to_str().unwrap().to_owned();
        run(&root, &["install", "--initramfs", &image]).exits(1);
        let found = fs::symlink_metadata(root.path("disk")).unwrap();
        assert!(found.file_type().is_block_device());
    }
}

#[test]
fn a_config_that_is_none_is_refused_and_no_archive_is_written() {
    let root = TestRoot::empty();
    root.write("config", "{\"kind\": \"Pod\"}");
    let (image, config) = (root.path("image"), root.path("config"));
    let args = [
        "install",
        "--initramfs",
        image.to_str().unwrap(),
        "--config",
    ];
    let refused = run(&root, &[&args[..], &[config.to_str().unwrap()]].concat()).exits(1);
    assert!(refused.err().contains("config"), "{}", refused.err());
    assert!(!root.exists("image"));
    assert_eq!(run(&root, &["install", "--config", "x"]).code(), 2);
}
