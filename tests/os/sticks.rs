//! An image on a real medium, vfat and ext4: written, cut off at any call, damaged, full, and imported from there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::capsules::{KNOWN, demand, make};
use super::siblings::{
    From, bring, export, objects, pivot, pivot_input, pivot_words, proofs, sibling,
};
use crate::support::faults::{CHANGING, Call, calls, can_trace, copy_tree, traced};
use crate::support::images::{ImageRepository, NEW_REF, REPOSITORY, content_of, ostree, receiver};
use crate::support::mounts::{Disk, mount, unmount, with_mounts};
use crate::support::ostree_node::{AWAITED, IMAGE, NEXT, OstreeNode, Turn};
use crate::support::scenes::everything_is_asked_for;
use crate::support::{Run, TestRoot, flat, flat_run, say};
use mco_rescue::change::image::medium::MediumRoom;

/// The media that people have.
const FORMATS: [&[&str]; 2] = [&["mkfs.vfat"], &["mkfs.ext4", "-q"]];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The object of a file that only the second image has.
fn large_object(export: &Path) -> PathBuf {
    let is_it = |path: &String| {
        let size = fs::metadata(path).unwrap().len();
        path.ends_with(".filez") && (200_000..300_000).contains(&size)
    };
    objects(export).into_iter().find(is_it).unwrap().into()
}

#[test]
fn a_stick_carries_an_image_and_a_damaged_one_is_found_and_mended() {
    let Some((sibling, repository)) = sibling() else {
        return;
    };
    for format in FORMATS {
        with_mounts(|| {
            let Some(disk) = Disk::new(64, format) else {
                return;
            };
            let node = receiver(false);
            let there = node.root.path(REPOSITORY);
            let [one, two] = proofs(&node, &sibling);
            let trusted = ["--os-proof", &one, "--os-proof", &two];
            let stick = node.root.path("media");
            fs::create_dir_all(&stick).unwrap();
            disk.mount(&stick, "");
            let room = MediumRoom::of_path(&stick).unwrap();
            let is_fat = format[0] == "mkfs.vfat";
            assert_eq!(room.largest_file, is_fat.then_some(u64::from(u32::MAX)));
            let target = stick.join("os");
            export(&sibling, &[text(&target)]).ok();
            // Pulled out, and put in elsewhere.
            unmount(&stick);
            disk.mount(&stick, "");
            ostree(&target, &["fsck"]);

            // A bit has changed, and the size has not: the import finds it, and the next export mends it.
            let object = large_object(&target);
            let whole = fs::read(&object).unwrap();
            let mut damaged = whole.clone();
            damaged[100_000] ^= 1;
            fs::write(&object, damaged).unwrap();
            let run = pivot(&node, From::Directory, &trusted).exits(1);
            let said = flat_run(&run) + &flat(&run.err());
            assert!(said.contains("image export DIRECTORY"), "{said}");
            ostree(&there, &["fsck"]);
            assert!(!node.root.exists("stub/staged"));
            export(&sibling, &[text(&target)]).ok();
            assert_eq!(fs::read(&object).unwrap(), whole);
            ostree(&target, &["fsck"]);

            // Only what the receiver lacks, over the whole export's place.
            fs::remove_dir_all(&target).unwrap();
            let since = ["--since", text(&there), text(&target)];
            let said = flat_run(&export(&sibling, &since).ok());
            assert!(said.contains("that the receiver has"), "{said}");
            pivot(&node, From::Directory, &trusted).ok();
            ostree(&there, &["fsck"]);
            let content = content_of(&repository.path, NEW_REF);
            assert_eq!(content_of(&there, NEW_REF), content);
            assert!(node.root.read("stub/staged").contains(NEXT));
            unmount(&stick);
        });
    }
}

#[test]
fn a_medium_with_any_room_takes_all_of_an_export_or_nothing() {
    let Some((sibling, _)) = sibling() else {
        return;
    };
    let formats: [&[&str]; 3] = [
        &["mkfs.ext4", "-q", "-b", "1024"],
        &["mkfs.ext4", "-q", "-b", "4096"],
        &["mkfs.vfat", "-s", "64"],
    ];
    with_mounts(|| {
        for format in formats {
            let Some(disk) = Disk::new(16, format) else {
                continue;
            };
            let stick = tempfile::tempdir().unwrap();
            disk.mount(stick.path(), "");
            let free = MediumRoom::of_path(stick.path()).unwrap().free;
            let (target, filler) = (stick.path().join("os"), stick.path().join("filler"));
            let mut refused = 0;
            // More and more room.
            for left in (1_000_000..4_000_000).step_by(100_000) {
                let filled = usize::try_from(free).unwrap() - left;
                fs::write(&filler, vec![1; filled]).unwrap();
                let run = export(&sibling, &[text(&target)]);
                if run.code() == 0 {
                    break;
                }
                let said = flat(&run.err());
                let is_refused = said.contains("more bytes are needed than are free there");
                assert!(is_refused, "{format:?}, {left} bytes: {said}");
                assert!(!target.join("objects").exists(), "{format:?}, {left} bytes");
                refused += 1;
            }
            assert!(refused > 2 && target.join("objects").exists(), "{format:?}");
            ostree(&target, &["fsck"]);
            unmount(stick.path());
        }
    });
}

#[test]
fn a_read_only_stick_is_read_and_not_written() {
    let Some((sibling, repository)) = sibling() else {
        return;
    };
    with_mounts(|| {
        let node = receiver(false);
        let Some(disk) = Disk::new(16, &["mkfs.ext4", "-q"]) else {
            return;
        };
        let stick = node.root.path("media");
        fs::create_dir_all(&stick).unwrap();
        disk.mount(&stick, "");
        for name in ["os", "os.tar"] {
            export(&sibling, &[text(&stick.join(name))]).ok();
        }
        let filler = stick.join("filler");
        let free = MediumRoom::of_path(&stick).unwrap().free;
        fs::write(&filler, vec![1; usize::try_from(free).unwrap() - 60_000]).unwrap();
        unmount(&stick);
        disk.mount(&stick, ",ro");
        let target = stick.join("os");
        for name in ["other", "other.tar"] {
            let said = flat(&export(&sibling, &[text(&stick.join(name))]).exits(1).err());
            assert!(said.contains("read-only"), "{name}: {said}");
        }
        // All of it is there, so nothing is written.
        let said = flat_run(&export(&sibling, &[text(&target)]).ok());
        assert!(said.contains(&format!("Exported {NEXT}")), "{said}");
        // Other objects are wanted there: what the stick has is whole, and nothing is said about it.
        let since = ["--since", IMAGE, text(&target)];
        let said = flat(&export(&sibling, &since).exits(1).err());
        assert!(
            said.contains("was not completed") && said.contains("read-only"),
            "{said}"
        );
        for from in [From::Directory, From::Archive] {
            pivot(&node, from, &["--unproven-image"]).ok();
            let there = node.root.path(REPOSITORY);
            let content = content_of(&repository.path, NEW_REF);
            assert_eq!(content_of(&there, NEW_REF), content, "{from:?}");
            node.run(&["rollback", "--yes"]).ok();
            ostree(&there, &["refs", "--delete", NEW_REF]);
        }
        unmount(&stick);
    });
}

#[test]
fn a_medium_with_too_little_room_is_refused_before_anything_is_written() {
    let Some((sibling, _)) = sibling() else {
        return;
    };
    with_mounts(|| {
        let format = ["mkfs.ext4", "-q"];
        let Some(disk) = Disk::new(1, &format) else {
            return;
        };
        let stick = tempfile::tempdir().unwrap();
        disk.mount(stick.path(), "");
        for name in ["os", "os.tar"] {
            let target = stick.path().join(name);
            let run = export(&sibling, &[text(&target)]).exits(1);
            let said = flat(&run.err());
            assert!(
                said.contains("more bytes are needed than are free there"),
                "{said}"
            );
            assert!(!target.join("objects").exists() && !target.is_file());
        }
        // What was there already needs no room.
        unmount(stick.path());
        let disk = Disk::new(8, &format).unwrap();
        disk.mount(stick.path(), "");
        let target = stick.path().join("os");
        export(&sibling, &[text(&target)]).ok();
        let filler = stick.path().join("filler");
        let free = MediumRoom::of_path(stick.path()).unwrap().free;
        fs::write(filler, vec![1; usize::try_from(free).unwrap() - 600_000]).unwrap();
        export(&sibling, &[text(&target)]).ok();
        ostree(&target, &["fsck"]);
        unmount(stick.path());
    });
    // Full on the way: what is there of an archive is removed, so that the same command can make it.
    if can_trace() {
        let scratch = tempfile::tempdir().unwrap();
        let archive = scratch.path().join("os.tar");
        let args = ["image", "export", "--image", NEXT, text(&archive)];
        let ended = traced(
            &sibling,
            "fsync",
            &["fsync:error=EIO:when=1".to_owned()],
            &args,
        );
        assert!(ended.code == Some(1) && !archive.exists(), "{}", ended.err);
        assert_eq!(sibling.run(&args).code(), 0);
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = sibling.command(&["image", "export", "--image", NEXT, "-"]);
    let output = command.stdout(Stdio::from(full)).output().unwrap();
    let said = flat(&Run::of(output).exits(1).err());
    assert!(
        said.contains("no space left") && said.contains("was not completed"),
        "{said}"
    );
}

/// What a cut at a call of an export left on a stick: no image, or a whole one; and the same command completes it.
fn after_a_cut(sibling: &TestRoot, disk: &Disk, call: &str, nth: usize) -> Vec<String> {
    let there = tempfile::tempdir().unwrap();
    let target = there.path().join("os");
    disk.mount(there.path(), "");
    let mut problems = Vec::new();
    let listed = sibling.run(&["image", "list", text(&target), "-o", "json"]);
    if listed.code() == 0 && listed.out().contains(NEXT) {
        let mut fsck = Command::new("ostree");
        fsck.arg(format!("--repo={}", target.display())).arg("fsck");
        if !fsck.output().unwrap().status.success() {
            problems.push(format!("{call} {nth}: an image with damaged objects"));
        }
    }
    let again = export(sibling, &[text(&target)]);
    if again.code() != 0 {
        problems.push(format!("{call} {nth}: {}", again.err()));
    } else {
        ostree(&target, &["fsck"]);
    }
    unmount(there.path());
    problems
}

#[test]
fn an_export_that_is_cut_off_at_any_call_leaves_no_half_image_and_is_completed() {
    let Some((sibling, _)) = sibling() else {
        return;
    };
    if !can_trace() {
        return;
    }
    with_mounts(|| {
        for format in FORMATS {
            let Some(blank) = Disk::new(16, format) else {
                continue;
            };
            let stick = tempfile::tempdir().unwrap();
            let target = stick.path().join("os");
            let args = ["image", "export", "--image", NEXT, text(&target)];
            let run = |fault: &[String], at: &str| {
                let disk = blank.copy();
                disk.mount(stick.path(), "");
                let trace = [&CHANGING[..], &["rename", "mkdir"]].concat().join(",");
                let ended = traced(
                    &sibling,
                    if at.is_empty() { &trace } else { at },
                    fault,
                    &args,
                );
                // The power fails at this moment.
                let left = disk.copy();
                unmount(stick.path());
                (ended, left)
            };
            let (clean, _) = run(&[], "");
            assert_eq!(clean.code, Some(0), "{}", clean.err);
            let names: std::collections::BTreeMap<&str, usize> =
                clean
                    .calls
                    .iter()
                    .fold(Default::default(), |mut all, call| {
                        *all.entry(call.name.as_str()).or_default() += 1;
                        all
                    });
            let mut points: Vec<(&str, usize)> = Vec::new();
            for (name, count) in &names {
                // First, last, and some between.
                let step = (count / 6).max(1);
                points.extend((1..=*count).step_by(step).map(|nth| (*name, nth)));
                points.push((name, *count));
            }
            let mut problems = Vec::new();
            for (name, nth) in &points {
                let fault = format!("{name}:signal=KILL:when={nth}");
                let (ended, left) = run(&[fault], name);
                ended.was_killed(name, *nth);
                problems.extend(after_a_cut(&sibling, &left, name, *nth));
                // Full, or pulled out.
                for errno in ["ENOSPC", "EIO"] {
                    let fault = format!("{name}:error={errno}:when={nth}");
                    let (ended, left) = run(&[fault], name);
                    if ended.code == Some(0) {
                        problems.push(format!("{errno} of {name} {nth} is success"));
                    }
                    problems.extend(after_a_cut(&sibling, &left, name, *nth));
                }
            }
            say(&format!("{}: an export cut off at {points:?}", format[0]));
            assert!(problems.is_empty(), "{}", problems.join("\n"));
        }
    });
}

/// What an import changes, and what the stubs keep.
const KEPT: [&str; 6] = ["etc", "var", "run", "stub", "home", "sysroot"];

/// A way in which an image comes to a node.
#[derive(Debug, Clone, Copy)]
struct Way {
    bootc: bool,
    from: From,
    /// Through a capsule, which is demanded.
    is_signed: bool,
}

impl Way {
    const fn new(bootc: bool, from: From, is_signed: bool) -> Self {
        Self {
            bootc,
            from,
            is_signed,
        }
    }

    /// What is said besides: nobody vouches for the image, and a stream names its capsule.
    fn options(self) -> &'static [&'static str] {
        match (self.from, self.is_signed) {
            (From::Stream, true) => &["--unproven-image", "--capsule", "/media"],
            _ => &["--unproven-image"],
        }
    }

    /// A node that lacks the image, and what it takes it from; `None` if that cannot be signed.
    fn receiver(self, sibling: &TestRoot, keys: &Path) -> Option<OstreeNode> {
        let node = receiver(self.bootc);
        bring(&node, sibling, self.from);
        if self.is_signed {
            let key = demand(&node, keys)?;
            make(&node, &key, &["--sequence", "7"]);
        }
        Some(node)
    }
}

const WAYS: [Way; 6] = [
    Way::new(false, From::Archive, false),
    Way::new(true, From::Directory, false),
    Way::new(false, From::Directory, true),
    Way::new(false, From::Disk, false),
    Way::new(true, From::Stream, false),
    Way::new(false, From::Stream, true),
];

/// A run of `pivot` under strace, killed at a call.
fn killed_pivot(node: &OstreeNode, way: Way, kill: Option<(&str, usize)>) -> (bool, Vec<Call>) {
    let _turn = Turn::take();
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("taskset");
    command.args(["-c", "0", "strace", "-qq", "-s", "128", "-o"]);
    command.arg(log.path());
    let trace = [&CHANGING[..], &["rename", "mkdir", "wait4", "waitid"]].concat();
    command.args(["-e", &format!("trace={}", trace.join(","))]);
    if let Some((call, nth)) = kill {
        command.args(["-e", &format!("inject={call}:signal=KILL:when={nth}")]);
    }
    command.arg("chroot").arg(node.root.dir());
    command.arg("/usr/mco-rescue");
    command.args(pivot_words(way.from, way.options()));
    let ended = command.stdin(pivot_input(node, way.from)).output().unwrap();
    let log: Vec<String> = fs::read_to_string(log.path())
        .unwrap()
        .lines()
        .map(|line| format!("1 {line}"))
        .collect();
    (ended.status.success(), calls(&log.join("\n")))
}

/// A node, and a copy of all that an import changes on it.
struct Killed<'a> {
    node: &'a OstreeNode,
    way: Way,
    template: tempfile::TempDir,
    problems: Vec<String>,
}

impl<'a> Killed<'a> {
    fn new(node: &'a OstreeNode, way: Way) -> Self {
        let template = tempfile::tempdir_in("/dev/shm").unwrap();
        for dir in KEPT {
            fs::create_dir_all(node.root.path(dir)).unwrap();
            fs::create_dir_all(template.path().join(dir)).unwrap();
            copy_tree(&node.root.path(dir), &template.path().join(dir));
        }
        Self {
            node,
            way,
            template,
            problems: Vec::new(),
        }
    }

    fn reset(&self) {
        for dir in KEPT {
            let to = self.node.root.path(dir);
            fs::remove_dir_all(&to).unwrap();
            fs::create_dir_all(&to).unwrap();
            copy_tree(&self.template.path().join(dir), &to);
        }
    }

    /// The calls of a run that nobody stops: all, or some of them.
    fn points(&self) -> Vec<(String, usize)> {
        let (done, all) = killed_pivot(self.node, self.way, None);
        assert!(done, "{:?}", self.way);
        let mut points = Vec::new();
        for (at, call) in all.iter().enumerate() {
            let nth = all[..=at].iter().filter(|one| one.name == call.name);
            points.push((call.name.clone(), nth.count()));
        }
        let step = if everything_is_asked_for() {
            1
        } else {
            (points.len() / 16).max(1)
        };
        points.into_iter().step_by(step).collect()
    }

    fn has_staged(&self) -> bool {
        let paths = ["stub/staged", "stub/bootc-staged"];
        paths
            .map(|path| self.node.root.exists(path))
            .contains(&true)
    }

    /// Kills a run at a call, and does what leads out.
    fn kill_at(&mut self, (name, nth): &(String, usize)) {
        let (node, way) = (self.node, self.way);
        let there = node.root.path(REPOSITORY);
        self.reset();
        killed_pivot(node, way, Some((name, *nth)));
        let point = format!("{way:?} {name} {nth}");
        ostree(&there, &["fsck"]);
        if node.root.exists(KNOWN) && !self.has_staged() {
            let problem = format!("{point}: the number is ahead of the image");
            self.problems.push(problem);
        }
        for args in [&["recover"][..], &["rollback", "--yes"]] {
            let run = node.run(args);
            // Killed before there was a run to revert.
            if run.code() != 0 && !run.err().contains("no finished run is in the history") {
                let problem = format!("{point}: {args:?}: {}{}", run.out(), run.err());
                self.problems.push(problem);
            }
        }
        for path in ["stub/staged", "stub/bootc-staged", AWAITED] {
            if node.root.exists(path) {
                self.problems.push(format!("{point}: {path} is there"));
            }
        }
        let again = pivot(node, way.from, way.options());
        if again.code() != 0 || node.root.exists(KNOWN) != way.is_signed {
            let problem = format!("{point}: {}{}", again.out(), again.err());
            self.problems.push(problem);
        }
        ostree(&there, &["fsck"]);
        let scratch = "var/lib/mco-rescue/image-import";
        if node.root.exists(scratch) {
            self.problems.push(format!("{point}: {scratch} is there"));
        }
    }

    /// ostree itself dies within an object.
    fn kill_ostree(&self) {
        let (node, there) = (self.node, self.node.root.path(REPOSITORY));
        self.reset();
        let stub = node.root.read("usr/sbin/ostree");
        let dies = stub.replace(
            "exec /usr/bin/ostree",
            "ulimit -f 150; exec /usr/bin/ostree",
        );
        assert_ne!(dies, stub);
        let (_, script) = dies.split_once('\n').unwrap();
        node.program("ostree", script);
        let run = pivot(node, self.way.from, self.way.options()).exits(1);
        let said = flat_run(&run) + &flat(&run.err());
        ostree(&there, &["fsck"]);
        assert!(!self.has_staged(), "{said}");
        let (_, script) = stub.split_once('\n').unwrap();
        node.program("ostree", script);
        pivot(node, self.way.from, self.way.options()).ok();
        ostree(&there, &["fsck"]);
    }
}

#[test]
fn an_import_that_is_killed_leaves_a_sound_repository_and_can_be_repeated() {
    let Some((sibling, _)) = sibling() else {
        return;
    };
    if !can_trace() {
        return;
    }
    for way in WAYS {
        with_mounts(|| {
            let keys = tempfile::tempdir().unwrap();
            let Some(node) = way.receiver(&sibling, keys.path()) else {
                return;
            };
            let mut killed = Killed::new(&node, way);
            let points = killed.points();
            for point in &points {
                killed.kill_at(point);
            }
            say(&format!("{way:?}: killed at {points:?}"));
            let problems = &killed.problems;
            assert!(problems.is_empty(), "{}", problems.join("\n"));
            killed.kill_ostree();
        });
    }
}

#[test]
fn the_rules_of_a_crossing_hold_for_an_image_from_a_stick() {
    let sibling = TestRoot::new();
    let Some(repository) = ImageRepository::new(&sibling.path(REPOSITORY)) else {
        return;
    };
    repository.import_release(
        "2026-02-02T00:00:00Z",
        "ID=\"rhel\"\nVARIANT_ID=coreos\nVERSION_ID=\"10.0\"\nRHEL_VERSION=10.0\n",
    );
    with_mounts(|| {
        for from in [From::Directory, From::Disk] {
            let node = receiver(false);
            node.root.write(
                "etc/sysconfig/network-scripts/ifcfg-ens2",
                "DEVICE=ens2\nBOOTPROTO=dhcp\nONBOOT=yes\n",
            );
            let path = bring(&node, &sibling, from);
            let preflight = node.run(&["preflight", NEXT, "--os-from", path]);
            for run in [preflight, pivot(&node, from, &["--unproven-image"])] {
                let said = flat_run(&run.exits(1));
                assert!(
                    said.contains("EL 10 reads no ifcfg files"),
                    "{from:?}: {said}"
                );
            }
            assert!(!node.root.exists("stub/staged"));
        }
        // The files of an archive lie behind its head: they are looked at when they are in the repository.
        for from in [From::Archive, From::Stream] {
            let node = receiver(false);
            node.root.write(
                "etc/sysconfig/network-scripts/ifcfg-ens2",
                "DEVICE=ens2\nBOOTPROTO=dhcp\nONBOOT=yes\n",
            );
            let path = bring(&node, &sibling, from);
            if from == From::Archive {
                let run = node.run(&["preflight", NEXT, "--os-from", path]).exits(1);
                let said = flat(&run.err());
                assert!(said.contains("export it to a directory"), "{said}");
            }
            let run = pivot(&node, from, &["--unproven-image"]);
            let said = flat(&run.err());
            assert!(
                said.contains("[legacy-connections]") && said.contains("do not reboot yet"),
                "{from:?}: {said}{}",
                run.out()
            );
            node.run(&["rollback", "--yes"]).ok();
            assert!(!node.root.exists("stub/staged"));
        }
    });
}

#[test]
fn an_archive_is_refused_where_var_has_no_room_to_unpack_it() {
    let Some((sibling, _)) = sibling() else {
        return;
    };
    with_mounts(|| {
        let node = receiver(false);
        bring(&node, &sibling, From::Archive);
        bring(&node, &sibling, From::Directory);
        let var = node.root.path("var");
        mount(&["-t", "tmpfs", "-o", "size=160k", "tmpfs", text(&var)]);
        let run = pivot(&node, From::Archive, &["--unproven-image"]).exits(1);
        let said = flat_run(&run);
        assert!(said.contains("bytes are missing in /var"), "{said}");
        pivot(&node, From::Directory, &["--unproven-image"]).ok();
        unmount(&var);
    });
}
