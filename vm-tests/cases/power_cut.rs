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

/// A disk with a node, both of its states, and how long it takes from one to the other.
struct Bench<'a> {
    case: &'a Case,
    fs: &'a str,
    machine: Machine,
    before: String,
    after: String,
    apply: Duration,
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
        let mut promised = None;
        for round in 0..count {
            let (guest, loss) = self.cut(round);
            if let Some(done) = promised {
                *phases.entry(self.judge(&guest, done)).or_insert(0) += 1;
            }
            promised = Some(guest.console().contains("APPLY done"));
            self.case.path(&format!("cut-{round}.console"));
            *phases.entry("(writes lost)").or_insert(0) += loss;
        }
        let machine = self.step("last").disk(&self.case.path("disk"));
        let mut guest = machine.start(&self.case.path(""), "last");
        guest.powers_off();
        *phases
            .entry(self.judge(&guest, promised.unwrap()))
            .or_insert(0) += 1;
        self.case.tell(&format!(
            "{count} cuts within {:.2} s: {phases:?}",
            self.apply.as_secs_f64()
        ));
    }

    /// One boot, which first puts right what the cut before has left; then its own cut. Gives how many writes were lost.
    fn cut(&mut self, round: usize) -> (Guest, usize) {
        let (disk, base, log) = (
            self.case.path("disk"),
            self.case.path("base"),
            self.case.path("log"),
        );
        disk::copy(&disk, &base);
        let fresh = if round == 0 {
            self.step("cut").file("fresh", b"")
        } else {
            self.step("cut")
        };
        let mut guest = fresh
            .recorded_disk(&disk, &log)
            .start(&self.case.path(""), &format!("cut-{round}"));
        guest.wait_for("APPLY begin");
        let delay = self.apply.mul_f64(self.random.fraction() * 1.1);
        // Not for something to happen: this is the instant of the cut.
        std::thread::sleep(delay);
        guest.cut();
        let losses = self.lose(&base, &log);
        std::fs::rename(&base, &disk).unwrap();
        (guest, losses)
    }

    /// Makes of the disk before a boot what the boot and the cut left of it.
    fn lose(&mut self, base: &Path, log: &Path) -> usize {
        let random = &mut self.random;
        Log::read(log).replay(usize::MAX, base, || random.fraction() < 0.5)
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

    /// From 0 to 1.
    fn fraction(&mut self) -> f64 {
        self.next() as f64 / u64::MAX as f64
    }
}
