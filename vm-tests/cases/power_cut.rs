//! The power of a node fails while `apply --root /mnt` changes its disk; whoever switches it on again runs `recover`.
//!
//! Prepared: a node's tree at config A, on ext4 and on xfs. A tiny guest mounts it and applies B, and is killed at a
//! random instant; what its disk had in its own volatile cache is lost with it, each unflushed write with one chance
//! in two. The next guest boots from what is left. True afterwards: every managed path is as in A, or every one as
//! in B, once `recover` has run; it is B where `apply` had said that it was done; `apply` ends it, `verify` finds
//! nothing, nothing of ours lies about. And the same cuts on a disk whose flushes do nothing are found out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::configs;
use crate::lab::blklog::Log;
use crate::lab::qemu::{Guest, Machine, PATIENCE};
use crate::lab::{Case, disk, images};
use crate::support::{self, TestRoot};

const SCRIPT: &str = include_str!("../guest/power-cut.sh");
const CUTS: usize = 20;

#[test]
fn a_power_cut_leaves_the_old_or_the_new_node_on_ext4() {
    let Some(case) = Case::begin("7 power cut, ext4") else {
        return;
    };
    let mkfs = ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0"];
    Bench::new(&case, "ext4", 64, &mkfs).cuts(CUTS);
}

#[test]
fn a_power_cut_leaves_the_old_or_the_new_node_on_xfs() {
    let Some(case) = Case::begin("7 power cut, xfs") else {
        return;
    };
    Bench::new(&case, "xfs", 300, &["mkfs.xfs", "-q"]).cuts(CUTS);
}

/// A boot that ended with a cut.
struct Cut {
    guest: Guest,
    /// Whether `apply` had said that it was done, and the disk had got all that was flushed until then.
    done: bool,
    /// How many writes its cache took with it.
    lost: usize,
}

/// A disk with a node, both of its states, and how long it takes from one to the other.
struct Bench<'a> {
    case: &'a Case,
    fs: &'a str,
    machine: Machine,
    before: String,
    after: String,
    apply: Duration,
    renames: usize,
    random: Random,
}

impl<'a> Bench<'a> {
    fn new(case: &'a Case, fs: &'a str, mebibytes: u64, mkfs: &[&str]) -> Self {
        let (a, b) = configs::before_and_after();
        let machine = Machine::tiny(&images::tiny())
            .archive(&tree(case))
            .file("a.json", a.to_string().as_bytes())
            .file("b.json", b.to_string().as_bytes());
        let mut bench = Self {
            case,
            fs,
            machine,
            before: String::new(),
            after: String::new(),
            apply: Duration::ZERO,
            renames: 0,
            random: Random::seeded(case),
        };
        disk::formatted(&case.path("disk"), mebibytes, mkfs);
        bench.prepare();
        bench
    }

    fn step(&self, step: &str) -> Machine {
        let script = format!("FS={} STEP={step}\n{SCRIPT}", self.fs);
        self.machine.clone().file("case.sh", script.as_bytes())
    }

    /// Both states, from runs that nothing disturbed.
    fn prepare(&mut self) {
        let machine = self.step("prepare").disk(&self.case.path("disk"));
        let mut guest = machine.start(&self.case.path(""), "prepare");
        guest.wait_for("APPLY begin");
        let begun = Instant::now();
        guest.wait_for("APPLY done");
        self.apply = begun.elapsed();
        self.renames = renamed(&guest.console());
        assert!(self.renames > 20, "{}", guest.tail());
        guest.powers_off();
        assert_eq!(guest.values("BROKEN"), [""; 0], "{}", guest.tail());
        let old = guest.values("TREE a ");
        assert_eq!(old[0], old[1], "{}", guest.tail());
        self.before = old[0].clone();
        self.after = guest.value("TREE b ");
        assert_ne!(self.before, self.after);
        let known = format!("{}\n{}\n", self.before, self.after);
        self.machine = self.machine.clone().file("known", known.as_bytes());
    }

    /// Cuts one run after another, each on the disk that the one before left.
    fn cuts(mut self, count: usize) {
        let mut phases = BTreeMap::new();
        let mut done = None;
        let mut lost = 0;
        for round in 0..count {
            let cut = self.cut(round);
            if let Some(done) = done {
                *phases.entry(self.judge(&cut.guest, done)).or_insert(0) += 1;
            }
            done = Some(cut.done);
            lost += cut.lost;
        }
        let machine = self.step("last").disk(&self.case.path("disk"));
        let mut guest = machine.start(&self.case.path(""), "last");
        guest.powers_off();
        *phases.entry(self.judge(&guest, done.unwrap())).or_insert(0) += 1;
        let seconds = self.apply.as_secs_f64();
        self.case.tell(&format!(
            "{count} cuts of an apply of {seconds:.2} s, {lost} writes lost: {phases:?}"
        ));
    }

    /// One boot, which first puts right what the cut before has left; then its own cut.
    fn cut(&mut self, round: usize) -> Cut {
        let path = |name: &str| self.case.path(name);
        let (disk, base, log) = (path("disk"), path("base"), path("log"));
        disk::copy(&disk, &base);
        let fresh: &[&str] = if round == 0 { &["fresh"] } else { &[] };
        let machine = fresh
            .iter()
            .fold(self.step("cut"), |machine, name| machine.file(name, b""));
        let machine = machine.recorded_disk(&disk, &log);
        let mut guest = machine.start(&path(""), &format!("cut-{round}"));
        guest.wait_for("APPLY begin");
        let flushed = Log::read(&log).counts().0;
        self.fail_the_power(&mut guest, round);
        let done = guest.console().contains("APPLY done");
        let log = Log::read(&log);
        let all = log.counts().0;
        let (keep, done) = if round % 3 == 2 {
            (flushed + self.random.below(all - flushed), false)
        } else {
            (all, done)
        };
        let random = &mut self.random;
        let lost = log.replay(keep, &base, || random.fraction() < 0.5);
        std::fs::rename(&base, &disk).unwrap();
        Cut { guest, done, lost }
    }

    /// In turn at an instant of the clock, after one of the renames, and at the end (then the disk fails at a request).
    fn fail_the_power(&mut self, guest: &mut Guest, round: usize) {
        let fraction = self.random.fraction();
        // Nothing is waited for in this sleep: its end is the instant of the cut.
        let instant = |longest: Duration| std::thread::sleep(longest.mul_f64(fraction));
        match round % 3 {
            0 => instant(self.apply.mul_f64(1.1)),
            1 => {
                let renames = self.random.below(self.renames);
                guest.wait_until("renames", |console| renamed(console) >= renames);
                instant(Duration::from_millis(20));
            }
            _ => guest.wait_for("APPLY done"),
        }
        guest.cut();
    }

    /// In which phase the cut before this boot had come, by what was found.
    fn judge(&self, guest: &Guest, done: bool) -> &'static str {
        let found = guest.value("TREE found ");
        let recovered = guest.value("RECOVER ");
        let between = || {
            panic!(
                "neither A nor B: {}\n{recovered}",
                guest.values("BETWEEN ").join("\n")
            )
        };
        assert_eq!(guest.values("BROKEN"), [""; 0], "{}", guest.tail());
        assert_eq!(guest.value("TREE ended "), self.after);
        assert_eq!(guest.value("TREE again "), self.before);
        let (code, said) = recovered.split_once(' ').unwrap();
        assert_eq!(code, "0", "{said}");
        let said: Value = serde_json::from_str(said).unwrap();
        assert!(
            !done || found == self.after,
            "apply was done, and is undone: {said}"
        );
        match (said["result"].as_str().unwrap(), &found) {
            ("nothing", tree) if *tree == self.before => "A, untouched",
            ("nothing", tree) if *tree == self.after => "B, all done",
            ("swept", tree) if *tree == self.before => "A, swept by recover",
            ("undone", tree) if *tree == self.before => "A, undone by recover",
            ("finished", tree) if *tree == self.after => "B, finished by recover",
            _ => between(),
        }
    }
}

/// How many names the run that is shown on the console has changed: one line for each.
fn renamed(console: &str) -> usize {
    let shown = console.split("APPLY begin").nth(1).unwrap_or_default();
    shown.matches("debug: ").count()
}

/// A node's tree before any config, as an archive with `tree` at its top.
fn tree(case: &Case) -> PathBuf {
    let root = TestRoot::new();
    for path in ["usr/etc/of-the-os.conf", "etc/of-the-os.conf"] {
        root.write(path, "of the OS\n");
    }
    root.write(
        "usr/lib/systemd/system-preset/99-default.preset",
        "disable *\n",
    );
    let dir = tempfile::tempdir().unwrap();
    crate::lab::run(
        std::process::Command::new("cp")
            .arg("-a")
            .arg(root.dir())
            .arg(dir.path().join("tree")),
    );
    let path = case.path("tree.cpio");
    std::fs::write(&path, images::packed(dir.path(), "cat")).unwrap();
    path
}

/// Numbers that can be had again (splitmix64).
struct Random(u64);

impl Random {
    /// `VM_SEED`, or another one each time; said, so that a failure can be repeated.
    fn seeded(case: &Case) -> Self {
        let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let given = std::env::var("VM_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(now);
        case.tell(&format!("VM_SEED={seed}"));
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to this, without it.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }

    /// From 0 to 1.
    fn fraction(&mut self) -> f64 {
        self.next() as f64 / u64::MAX as f64
    }
}
