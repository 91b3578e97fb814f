//! The power of a node fails while `apply --root /mnt` changes its disk; whoever switches it on again runs `recover`.
//!
//! Prepared: a node's tree at config A, on ext4 and on xfs. A tiny guest mounts it and applies B, and is killed at a
//! random instant; what its disk had in its own volatile cache is lost with it, each unflushed write with one chance
//! in two. The next guest boots from what is left. True afterwards: `doctor` has said whether a run is half-way
//! (FP-10; on ext4), before anything was put right; every managed path is as in A, or every one as in B, once
//! `recover` has run; it is B where `apply` had said that it was done; `apply` ends it, `verify` finds nothing, nothing
//! of ours lies about. And the same cuts on a disk whose flushes do nothing are found out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::configs;
use crate::lab::blklog::Log;
use crate::lab::qemu::{Guest, Machine};
use crate::lab::random::Random;
use crate::lab::{Case, disk, images, run};
use crate::support::TestRoot;

const SCRIPT: &str = include_str!("../guest/power-cut.sh");
/// Cuts on each file system, unless `VM_CUTS` says how many.
const CUTS: usize = 7;

const EXT4: [&str; 5] = ["mke2fs", "-q", "-F", "-t", "ext4"];

#[test]
fn a_power_cut_leaves_the_old_or_the_new_node_on_ext4() {
    let Some(case) = Case::begin("7 power cut, ext4") else {
        return;
    };
    let mut bench = Bench::new(&case, "ext4", 64, &EXT4);
    bench.doctor = true;
    bench.cuts();
}

#[test]
fn a_power_cut_leaves_the_old_or_the_new_node_on_xfs() {
    let Some(case) = Case::begin("7 power cut, xfs") else {
        return;
    };
    Bench::new(&case, "xfs", 300, &["mkfs.xfs", "-q"]).cuts();
}

/// What shows that the two tests above can fail.
#[test]
fn a_power_cut_is_noticed_on_a_disk_whose_flushes_do_nothing() {
    let Some(case) = Case::begin("7 power cut without flushes") else {
        return;
    };
    let mut bench = Bench::new(&case, "ext4", 64, &EXT4);
    bench.flushes = false;
    std::fs::rename(case.path("disk"), case.path("old")).unwrap();
    for attempt in 0..3 {
        disk::copy(&case.path("old"), &case.path("disk"));
        let cut = bench.cut(attempt, Instant::AtTheEnd);
        assert!(cut.done, "{}", cut.guest.tail());
        let guest = bench.last();
        if let Err(fault) = bench.outcome(&guest, true) {
            let first = fault.lines().next().unwrap_or_default();
            return case.tell(&format!("{} writes lost: {first}", cut.lost));
        }
    }
    panic!("three disks lost what they were told to keep, and nothing was noticed");
}

/// At which instant the power fails.
#[derive(Clone, Copy)]
enum Instant {
    /// After this part of the time that the run takes.
    Fraction(f64),
    /// This much after so many of its renames.
    Renames(usize, Duration),
    /// The run goes on to its end, but the disk does nothing more after this part of its requests.
    Request(f64),
    /// When it has said that it is done.
    AtTheEnd,
}

impl Instant {
    /// Each kind in turn: most of a run's time goes by before its first change, and few cuts would meet one.
    fn random(round: usize, renames: usize, random: &mut Random) -> Self {
        match round % 3 {
            0 => Self::Renames(
                random.below(renames),
                Duration::from_millis(random.below(20) as u64),
            ),
            1 => Self::Request(random.fraction()),
            _ => Self::Fraction(random.fraction() * 1.1),
        }
    }
}

/// A boot that ended with a cut.
struct Cut {
    guest: Guest,
    /// Whether `apply` had said that it was done, and the disk had got all that was flushed until then.
    done: bool,
    /// How many writes the disk's cache took with it.
    lost: usize,
}

/// A disk with a node, both of its states, and how long it takes from one to the other.
struct Bench<'a> {
    case: &'a Case,
    /// The file system.
    fs: String,
    /// Whether `doctor` looks at what each cut has left; it takes seconds of every boot.
    doctor: bool,
    machine: Machine,
    before: String,
    after: String,
    apply: Duration,
    renames: usize,
    /// Whether the disk keeps what it is told to flush while the run is under way.
    flushes: bool,
    random: Random,
}

impl<'a> Bench<'a> {
    fn new(case: &'a Case, fs: &str, mebibytes: u64, mkfs: &[&str]) -> Self {
        let (a, b) = configs::before_and_after();
        let machine = Machine::tiny(&images::tiny())
            .archive(&tree(case))
            .file("a.json", a.to_string().as_bytes())
            .file("b.json", b.to_string().as_bytes());
        let mut bench = Self {
            case,
            fs: fs.to_owned(),
            doctor: false,
            machine,
            before: String::new(),
            after: String::new(),
            apply: Duration::ZERO,
            renames: 0,
            flushes: true,
            random: Random::seeded(case),
        };
        disk::formatted(&case.path("disk"), mebibytes, mkfs);
        bench.prepare();
        bench
    }

    fn step(&self, step: &str) -> Machine {
        let doctor = if self.doctor { "yes" } else { "" };
        let script = format!("FS={} DOCTOR={doctor} STEP={step}\n{SCRIPT}", self.fs);
        self.machine.clone().file("case.sh", script.as_bytes())
    }

    /// Both states, from runs that nothing disturbed.
    fn prepare(&mut self) {
        let machine = self.step("prepare").disk(&self.case.path("disk"));
        let mut guest = machine.start(self.case.dir(), "prepare");
        guest.wait_for("APPLY begin");
        let begun = guest.seconds();
        guest.wait_for("APPLY done");
        self.apply = Duration::from_secs_f64(guest.seconds() - begun);
        self.renames = renamed(&guest.console());
        guest.powers_off();
        assert!(self.renames > 20, "{}", guest.tail());
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
    fn cuts(mut self) {
        let wanted = std::env::var("VM_CUTS").ok();
        let count = wanted.map_or(CUTS, |count| count.parse().expect("VM_CUTS is no number"));
        let mut phases: BTreeMap<&str, usize> = BTreeMap::new();
        let mut before: Option<Cut> = None;
        let mut lost = 0;
        for round in 0..count {
            let instant = Instant::random(round, self.renames, &mut self.random);
            let cut = self.cut(round, instant);
            if let Some(before) = before {
                *phases
                    .entry(self.judge(&cut.guest, before.done))
                    .or_default() += 1;
            }
            lost += cut.lost;
            before = Some(cut);
        }
        let done = before.is_some_and(|cut| cut.done);
        *phases.entry(self.judge(&self.last(), done)).or_default() += 1;
        let seconds = self.apply.as_secs_f64();
        self.case.tell(&format!(
            "{count} cuts of an apply of {seconds:.2} s, {lost} writes lost: {phases:?}"
        ));
    }

    /// One boot, which first puts right what the cut before has left; then its own cut.
    fn cut(&mut self, round: usize, instant: Instant) -> Cut {
        let path = |name: &str| self.case.path(name);
        let (disk, base, log) = (path("disk"), path("base"), path("log"));
        disk::copy(&disk, &base);
        let step = if round == 0 { "first-cut" } else { "cut" };
        let machine = self.step(step).recorded_disk(&disk, &log);
        let mut guest = machine.start(self.case.dir(), &format!("cut-{round}"));
        guest.wait_for("APPLY begin");
        let flushed = Log::read(&log).len();
        self.fail_the_power(&mut guest, instant);
        let log = Log::read(&log);
        let kept = match instant {
            Instant::Request(part) => flushed + ((log.len() - flushed) as f64 * part) as usize,
            _ => log.len(),
        };
        let volatile = if self.flushes {
            log.flushed(kept)
        } else {
            flushed
        };
        let random = &mut self.random;
        let lost = log.replay(kept, volatile, &base, || random.fraction() < 0.5);
        std::fs::rename(&base, &disk).unwrap();
        let done = kept == log.len() && guest.console().contains("APPLY done");
        Cut { guest, done, lost }
    }

    fn fail_the_power(&self, guest: &mut Guest, instant: Instant) {
        // Nothing is waited for in these sleeps: their end is the instant of the cut.
        match instant {
            Instant::Fraction(part) => std::thread::sleep(self.apply.mul_f64(part)),
            Instant::Renames(count, more) => {
                guest.wait_until("renames", |console| renamed(console) >= count);
                std::thread::sleep(more);
            }
            Instant::Request(_) | Instant::AtTheEnd => guest.wait_for("APPLY done"),
        }
        guest.cut();
    }

    /// The boot after the last cut.
    fn last(&self) -> Guest {
        let machine = self.step("last").disk(&self.case.path("disk"));
        let mut guest = machine.start(self.case.dir(), "last");
        guest.ended();
        guest
    }

    /// In which phase the cut before this boot had come.
    fn judge(&self, guest: &Guest, done: bool) -> &'static str {
        let outcome = self.outcome(guest, done);
        outcome.unwrap_or_else(|fault| panic!("{fault}\n{}", guest.tail()))
    }

    /// The same, or what is wrong.
    fn outcome(&self, guest: &Guest, done: bool) -> Result<&'static str, String> {
        let values = |prefix: &str| guest.values(prefix).join("; ");
        let broken = values("BROKEN ");
        if !broken.is_empty() {
            return Err(broken);
        }
        let (found, recovered) = (values("TREE found "), values("RECOVER "));
        let (ended, again) = (values("TREE ended "), values("TREE again "));
        if (&ended, &again) != (&self.after, &self.before) {
            return Err(format!("apply does not end it: {recovered}"));
        }
        if done && found != self.after {
            return Err(format!("apply was done, and is undone: {recovered}"));
        }
        // Warnings stand before the document.
        let said = recovered.strip_prefix("0 ").unwrap_or_default();
        let said = said
            .find('{')
            .and_then(|at| said.get(at..))
            .unwrap_or_default();
        let said: Value = serde_json::from_str(said).unwrap_or_default();
        let (result, doctor) = (said["result"].as_str(), values("DOCTOR "));
        if self.doctor && !foretells(&doctor, result.unwrap_or_default()) {
            return Err(format!("doctor said {doctor:?}, and recover {result:?}"));
        }
        match (result, found == self.before, found == self.after) {
            (Some("nothing"), true, _) => Ok("A, untouched"),
            (Some("nothing"), _, true) => Ok("B, all done"),
            (Some("swept"), true, _) => Ok("A, swept by recover"),
            (Some("undone"), true, _) => Ok("A, undone by recover"),
            (Some("finished"), _, true) => Ok("B, finished by recover"),
            _ => Err(format!(
                "{recovered}\nneither A nor B:\n{}",
                values("BETWEEN ")
            )),
        }
    }
}

/// What `doctor` said of the disk as the cut had left it, beside what `recover` then had to do.
fn foretells(doctor: &str, result: &str) -> bool {
    let words: &[&str] = match result {
        "nothing" => return doctor.is_empty(),
        "swept" => &["a run was interrupted before it changed anything"],
        "undone" => &["a run of mco-rescue is unfinished"],
        _ => &[
            "a run of mco-rescue is unfinished",
            "a finished run was not cleaned up",
        ],
    };
    words
        .iter()
        .any(|words| doctor == format!("FP-10: {words}"))
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
    run(Command::new("cp")
        .arg("-a")
        .arg(root.dir())
        .arg(dir.path().join("tree")));
    let path = case.path("tree.cpio");
    std::fs::write(&path, images::packed(dir.path(), "cat")).unwrap();
    path
}
