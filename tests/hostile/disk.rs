//! The disk of an OSTree node from hands that mean harm: no link on it leads the program outside of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;

use crate::support::sysroot::Sysroot;
use crate::support::{self, PROGRAM, Run, TestRoot, file, machine_config, trace};
use serde_json::json;

const SECRET: &str = "canary-that-is-outside-of-the-disk";

/// A disk as an attacker hands it over, copied from one that is fine.
struct Hostile {
    top: tempfile::TempDir,
    /// The path on the disk that leads outside.
    path: String,
    outside: String,
}

/// Where a link on the disk leads.
#[derive(Clone, Copy, Debug)]
enum Link {
    Absolute,
    Climbing,
}

impl Hostile {
    fn new(fine: &Path, path: &str, link: Link) -> Self {
        let top = tempfile::tempdir().unwrap();
        let disk = top.path().join("disk");
        copy("-aT", fine, &disk);
        let (from, to) = (disk.join(path), top.path().join("outside"));
        // The same as on the disk, so that a run that follows the link goes on as before.
        if fs::metadata(&from).is_ok_and(|about| about.is_dir()) {
            copy("-aHT", &from, &to);
        } else {
            fs::write(&to, fs::read(&from).unwrap_or_default()).unwrap();
        }
        let _ = fs::remove_file(&from).or_else(|_| fs::remove_dir_all(&from));
        mark(&to, link);
        let above = from.parent().unwrap();
        // A file may be on the way, where only a missing path was asked for.
        if fs::create_dir_all(above).is_ok() {
            let climbing = "../".repeat(40) + to.to_str().unwrap().trim_start_matches('/');
            let target = match link {
                Link::Absolute => to.clone(),
                Link::Climbing => PathBuf::from(climbing),
            };
            std::os::unix::fs::symlink(&target, &from)
                .unwrap_or_else(|e| panic!("{}: {e}", from.display()));
        }
        Self {
            path: path.to_owned(),
            outside: to.to_str().unwrap().to_owned(),
            top,
        }
    }

    /// Runs the program; says what of the outside it came by.
    fn complaints(&self, args: &[&str]) -> Vec<String> {
        let before = tree(Path::new(&self.outside));
        let (said, calls) = traced(&self.top.path().join("disk"), args);
        let mut all = Vec::new();
        if said.contains(SECRET) {
            all.push(format!("shows what is outside: {said}"));
        }
        let opened = calls.lines().find(|line| {
            let result = line.rsplit_once(" = ").map(|(_, result)| result);
            result.is_some_and(|result| result.contains(&format!("<{}", self.outside)))
        });
        all.extend(opened.map(|line| format!("opens what is outside: {line}")));
        if tree(Path::new(&self.outside)) != before {
            all.push(format!("changes what is outside: {said}"));
        }
        let complain = |what: String| format!("{}: {args:?} {what}", self.path);
        all.into_iter().map(complain).collect()
    }
}

fn copy(options: &str, from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    let status = command.arg(options).args([from, to]).status();
    assert!(status.unwrap().success());
}

/// Puts beside what is there what must not be seen. A directory keeps its files as they were: a run that follows the
/// link is to get as far as it can.
fn mark(path: &Path, link: Link) {
    if path.is_dir() {
        fs::write(path.join("secret"), SECRET).unwrap();
    } else if matches!(link, Link::Climbing) {
        let text = fs::read(path).unwrap();
        fs::write(path, [&text[..], b"\n", SECRET.as_bytes(), b"\n"].concat()).unwrap();
    }
}

/// Everything at a path and below, by name, with mode, owner, time and content.
fn tree(path: &Path) -> Vec<(PathBuf, u32, u32, i64, Vec<u8>)> {
    use std::os::unix::fs::MetadataExt;
    let about = fs::symlink_metadata(path).unwrap();
    let content = if about.is_file() {
        fs::read(path).unwrap()
    } else {
        Vec::new()
    };
    let mut all = vec![(
        path.to_owned(),
        about.mode(),
        about.uid(),
        about.mtime(),
        content,
    )];
    if about.is_dir() {
        let entries = fs::read_dir(path).unwrap();
        all.extend(entries.flat_map(|entry| tree(&entry.unwrap().path())));
    }
    all.sort();
    all
}

/// What the program says, and its calls with the paths of all descriptors.
fn traced(disk: &Path, args: &[&str]) -> (String, String) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args([
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-y",
        "-s",
        "4096",
        "-e",
        "trace=%file",
        "-o",
    ]);
    command.arg(log.path()).arg(PROGRAM).arg("--root").arg(disk);
    let run = Run::of(command.args(args).output().unwrap());
    (
        run.out() + &run.err(),
        fs::read_to_string(log.path()).unwrap(),
    )
}

/// The paths on the disk that a run names, each with those above it, relative to the disk.
fn touched(disk: &Path, calls: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let disk = format!("{}/", disk.display());
    let mut learn = |path: &str| {
        let below = path.strip_prefix(&disk).unwrap_or_default();
        for above in Path::new(below).ancestors() {
            let plain = |part| matches!(part, Component::Normal(_));
            if above != Path::new("") && above.components().all(plain) {
                let clean: PathBuf = above.components().collect();
                all.insert(clean.to_str().unwrap().to_owned());
            }
        }
    };
    for line in calls.lines() {
        // `openat2(5</disk/etc>, "name", …) = 7</disk/etc/name>`, `mount("/disk/x", …)`.
        let mut rest = line;
        while let Some(start) = rest.find(['<', '"']) {
            let (quote, from) = (rest.as_bytes()[start], &rest[start + 1..]);
            let end = if quote == b'<' { '>' } else { '"' };
            let Some((text, after)) = from.split_once(end) else {
                break;
            };
            learn(text);
            if let Some((name, _)) = after.strip_prefix(", \"").and_then(|n| n.split_once('"')) {
                learn(&format!("{text}/{name}"));
            }
            rest = after;
        }
    }
    all
}

/// A disk with all that a node has: a user, a record, a cache, boot entries.
fn furnished() -> Option<(TestRoot, String)> {
    let disk = Sysroot::new()?;
    // Only a test for the view of a deployment needs this link.
    fs::remove_file(disk.0.path("sysroot")).unwrap();
    assert!(disk.deploy(&[]));
    let fine = TestRoot::empty();
    // Nothing reads the objects; the copies are many.
    fs::remove_dir_all(disk.0.path("ostree/repo/objects")).unwrap();
    copy("-aT", disk.0.dir(), fine.dir());
    let deployment = deployment(fine.dir());
    std::os::unix::fs::symlink("var/home", deployment.join("home")).unwrap();
    std::os::unix::fs::symlink("sysroot/ostree", deployment.join("ostree")).unwrap();
    fs::create_dir_all(fine.path("ostree/deploy/os/var/home/core")).unwrap();
    let etc = deployment.join("etc");
    let passwd = "root:x:0:0::/root:/bin/sh\ncore:x:0:0::/home/core:/bin/bash\n";
    fs::write(etc.join("passwd"), passwd).unwrap();
    fs::write(etc.join("shadow"), "root:*:1::::::\ncore:*:1::::::\n").unwrap();
    let user = json!({"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA x"]}]});
    let plain = |name: &str, text: &str| {
        let files = [file("/etc/a", 0o644, text), file("/var/lib/a", 0o600, text)];
        let units = [json!({"name": "a.service", "enabled": true,
                            "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=basic.target\n"})];
        let ignition =
            json!({"storage": {"files": files}, "passwd": user, "systemd": {"units": units}});
        let mut config = machine_config(name, ignition);
        config["spec"]["osImageURL"] = json!("");
        config["spec"]["kernelArguments"] = json!([]);
        let path = fine.path(&format!(
            "../{}-{name}",
            fine.dir().file_name().unwrap().to_str().unwrap()
        ));
        fs::write(&path, config.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (one, two) = (
        plain("rendered-worker-1", "one\n"),
        plain("rendered-worker-2", "two\n"),
    );
    run(fine.dir(), &["apply", "--yes", &one]).ok();
    run(fine.dir(), &["fetch", &one]).ok();
    fs::remove_file(one).unwrap();
    Some((fine, two))
}

/// The only deployment of a disk.
fn deployment(disk: &Path) -> PathBuf {
    let all = fs::read_dir(disk.join("ostree/deploy/os/deploy")).unwrap();
    let mut all = all.map(|entry| entry.unwrap().path());
    all.find(|path| path.is_dir()).unwrap()
}

fn run(disk: &Path, args: &[&str]) -> Run {
    let mut command = Command::new(PROGRAM);
    Run::of(command.arg("--root").arg(disk).args(args).output().unwrap())
}

/// Replaces each path that a run names by a link outside, one after the other.
#[test]
fn no_path_of_a_disk_leads_outside() {
    if !trace::can_trace() {
        return;
    }
    let Some((fine, config)) = furnished() else {
        return;
    };
    let runs: [&[&str]; 2] = [&["apply", "--yes", &config], &["doctor"]];
    let spare = Hostile::new(fine.dir(), "unused", Link::Absolute);
    let disk = spare.top.path().join("disk");
    let mut cases = Vec::new();
    for args in runs {
        let paths = touched(&disk, &traced(&disk, args).1);
        assert!(paths.len() > 60, "{args:?}: {paths:?}");
        let links = [Link::Absolute, Link::Climbing].into_iter().cycle();
        let all = paths.into_iter().zip(links);
        cases.extend(all.map(|(path, link)| (path, link, args)));
    }
    support::say(&format!("{} cases", cases.len()));
    let next = std::sync::atomic::AtomicUsize::new(0);
    let try_all = || {
        let mut complaints = Vec::new();
        while let Some((path, link, args)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            complaints.extend(Hostile::new(fine.dir(), path, *link).complaints(args));
        }
        complaints
    };
    let threads = std::thread::available_parallelism().unwrap().get();
    let complaints: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(try_all)).collect();
        all.into_iter()
            .flat_map(|one| one.join().unwrap())
            .collect()
    });
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_var_that_is_a_link_is_refused_and_named() {
    let Some((fine, config)) = furnished() else {
        return;
    };
    let hostile = Hostile::new(fine.dir(), "ostree/deploy/os/var", Link::Absolute);
    let before = tree(Path::new(&hostile.outside));
    let disk = hostile.top.path().join("disk");
    for args in [
        &["apply", "--yes", &config][..],
        &["recover"],
        &["rollback", "--yes"],
    ] {
        let said = run(&disk, args).exits(1).err();
        for words in [
            "/ostree/deploy/os/var: a symbolic link is at this path",
            "look at it with ls -ld",
        ] {
            assert!(said.contains(words), "no {words:?} in {said}");
        }
        assert_eq!(said.matches("a symbolic link").count(), 1, "{said}");
        assert_eq!(tree(Path::new(&hostile.outside)), before, "{said}");
    }
}
