//! Every fault at every call: a run meets a kill or an error at each single system call that makes, changes,
//! removes or flushes something, and comes out with the old tree or the new one; so does `recover`.
//!
//! `MCO_RESCUE_FAULTS=all` (`make faults`) tries all of them, else a fixed sample is tried in which every call meets
//! every kind of fault.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Instant;

use crate::support::faults::{
    self, Call, JOURNAL, READING, Scene, Traced, demand, duplicate, left_over, on_threads, traced,
};
use crate::support::scenes::{
    WATCHED, bare, can_disturb, everything_is_asked_for, taking_back, update,
};
use crate::support::{STATE, TestRoot, say};

/// Calls that a run must make, or the scenes are too poor.
const EXPECTED: [&str; 16] = [
    "openat",
    "write",
    "fchmod",
    "fchown",
    "fchownat",
    "lsetxattr",
    "utimensat",
    "linkat",
    "unlinkat",
    "renameat",
    "renameat2",
    "mkdirat",
    "symlinkat",
    "syncfs",
    "flock",
    "fcntl",
];

/// Calls that a signal may interrupt before they did anything, and that are then made again.
const RETRIED: [&str; 8] = [
    "openat",
    "write",
    "fsync",
    "fdatasync",
    "syncfs",
    "ftruncate",
    "flock",
    "fcntl",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Kill,
    Enospc,
    Eio,
    Erofs,
    Edquot,
    Eintr,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Kill,
        Self::Enospc,
        Self::Eio,
        Self::Erofs,
        Self::Edquot,
        Self::Eintr,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL",
            Self::Enospc => "ENOSPC",
            Self::Eio => "EIO",
            Self::Erofs => "EROFS",
            Self::Edquot => "EDQUOT",
            Self::Eintr => "EINTR",
        }
    }

    /// How a message for people gives the reason.
    fn reason(self) -> &'static str {
        match self {
            Self::Kill => "",
            Self::Enospc => "no space left on device",
            Self::Eio => "i/o error",
            Self::Erofs => "read-only file system",
            Self::Edquot => "quota exceeded",
            Self::Eintr => "interrupted",
        }
    }

    fn fits(self, call: &str) -> bool {
        self != Self::Eintr || RETRIED.contains(&call)
    }
}

/// One fault at one call of one run.
#[derive(Clone)]
struct Fault {
    /// Which of several runs.
    run: usize,
    kind: Kind,
    call: String,
    /// Counted from one, among the calls of this name.
    nth: usize,
    /// Where in the undisturbed run.
    position: usize,
    line: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, call, nth) = (self.kind.name(), &self.call, self.nth);
        write!(f, "{kind} at {call} number {nth} ({})", self.line)
    }
}

impl Fault {
    /// As strace takes it.
    fn injection(&self) -> String {
        let (call, nth) = (&self.call, self.nth);
        match self.kind {
            Kind::Kill => format!("{call}:signal=KILL:when={nth}"),
            error => format!("{call}:error={}:when={nth}", error.name()),
        }
    }

    /// The run met this fault, at the very call that was meant.
    fn was_met(&self, run: &Traced) -> Result<(), String> {
        if self.kind == Kind::Kill {
            let met = run.signal == Some(9);
            return met.then_some(()).ok_or_else(|| "not reached".to_owned());
        }
        let mut same = run.calls.iter().filter(|call| call.name == self.call);
        match same.nth(self.nth - 1) {
            Some(call) if call.line.contains("(INJECTED)") && shape(&call.line) == self.line => {
                Ok(())
            }
            Some(call) => Err(format!("another call met it: {}", call.line)),
            None => Err("not reached".to_owned()),
        }
    }

    /// Runs the program with this fault, each time on a new root, until the call that was meant meets it. Only a run in
    /// which the kernel asked for a call again is repeated: there the number is that of another call.
    fn aim<R>(&self, run: impl Fn() -> (R, Traced)) -> Result<(R, Traced), String> {
        let mut missed = String::new();
        for _ in 0..ATTEMPTS {
            let (root, traced) = run();
            match self.was_met(&traced) {
                Ok(()) => return Ok((root, traced)),
                Err(problem) if !traced.calls.iter().any(is_asked_again) => return Err(problem),
                Err(problem) => missed = problem,
            }
        }
        Err(missed)
    }
}

/// Runs of one fault whose number the kernel may shift.
const ATTEMPTS: usize = 5;

/// The kernel asks for `openat2` again where a link leads through `..`, such as that of `etc/os-release`, and anything on
/// the machine is renamed meanwhile.
fn is_asked_again(call: &Call) -> bool {
    call.name == "openat2" && call.line.contains(" = -1 EAGAIN ")
}

/// What is the same in two runs: no descriptors, process ids, dates, digests or scratch files, and of a call that only looks
/// not what it saw.
fn shape(line: &str) -> String {
    let call = line.split(" = ").next().unwrap().trim_end();
    let name = call.split('(').next().unwrap();
    let arguments = match name {
        "read" | "getdents64" | "lgetxattr" => 0,
        // What is said names scratch files.
        "write" if call.starts_with("write(1,") || call.starts_with("write(2,") => 1,
        "newfstatat" | "statx" | "openat2" | "readlinkat" => 2,
        _ => usize::MAX,
    };
    let call: Vec<&str> = call.split(',').take(arguments).collect();
    let call = call.join(",");
    let call = call.split("checksum").next().unwrap();
    let call = call.split("/.tmp").next().unwrap();
    let fixed = call.chars().filter(|c| !c.is_ascii_digit());
    fixed.take(48).collect()
}

/// Whether a call can make, change, remove or flush something, or takes a lock.
fn is_mutating(call: &Call) -> bool {
    match call.name.as_str() {
        "openat" => ["O_CREAT", "O_TRUNC", "O_WRONLY", "O_RDWR"]
            .iter()
            .any(|flag| call.line.contains(flag)),
        "fcntl" => call.line.contains("F_SETLK"),
        "linkat" => !call.line.contains("(INJECTED)"),
        _ => true,
    }
}

/// Every fault that a run can meet.
fn every_fault(run: usize, clean: &[Call]) -> Vec<Fault> {
    faults_at(run, clean, is_mutating)
}

fn faults_at(run: usize, clean: &[Call], fits: fn(&Call) -> bool) -> Vec<Fault> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = Vec::new();
    for (position, call) in clean.iter().enumerate() {
        if is_asked_again(call) {
            continue;
        }
        let nth = seen.entry(&call.name).or_default();
        *nth += 1;
        if !fits(call) {
            continue;
        }
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.fits(&call.name));
        all.extend(kinds.map(|kind| Fault {
            run,
            kind,
            call: call.name.clone(),
            nth: *nth,
            position,
            line: shape(&call.line),
        }));
    }
    all
}

/// All, or of every group so many, spread so that different kinds meet different calls.
fn chosen<K: Ord>(all: Vec<Fault>, each: usize, group: impl Fn(&Fault) -> K) -> Vec<Fault> {
    if everything_is_asked_for() {
        return all;
    }
    let mut groups: BTreeMap<K, Vec<Fault>> = BTreeMap::new();
    for fault in all {
        groups.entry(group(&fault)).or_default().push(fault);
    }
    let pick = |(number, group): (usize, Vec<Fault>)| {
        let step = group.len().div_ceil(each).max(1);
        let first = number * 7919 % step;
        group.into_iter().skip(first).step_by(step).take(each)
    };
    groups.into_values().enumerate().flat_map(pick).collect()
}

/// How runs ended, counted.
#[derive(Default)]
struct Tally(Mutex<BTreeMap<(Kind, &'static str), usize>>);

impl Tally {
    fn add(&self, kind: Kind, ended: &'static str) {
        *self.0.lock().unwrap().entry((kind, ended)).or_default() += 1;
    }
}

/// Says how many faults of which kind met which call, and how the runs ended.
fn report(what: &str, faults: &[Fault], tally: &Tally, failures: usize, started: Instant) {
    let mut by_call: BTreeMap<&str, BTreeMap<Kind, usize>> = BTreeMap::new();
    for fault in faults {
        let kinds = by_call.entry(&fault.call).or_default();
        *kinds.entry(fault.kind).or_default() += 1;
    }
    let mut text = format!("{what}\n  {:<10}", "");
    text += &Kind::ALL.map(|kind| format!("{:>9}", kind.name())).concat();
    for (call, kinds) in &by_call {
        let number = |kind| kinds.get(&kind).map_or(String::new(), usize::to_string);
        let row = Kind::ALL.map(|kind| format!("{:>9}", number(kind)));
        text += &format!("\n  {call:<10}{}", row.concat());
    }
    for ((kind, ended), count) in tally.0.lock().unwrap().iter() {
        text += &format!("\n  {}: {ended}: {count}", kind.name());
    }
    let (total, seconds) = (faults.len(), started.elapsed().as_secs());
    say(&format!(
        "{text}\n  {total} faults injected, {failures} failures, {seconds} s"
    ));
}

/// Works on all faults and panics with what is wrong.
fn meet(what: &str, faults: &[Fault], one: impl Fn(&Fault, &Tally) -> Vec<String> + Sync) {
    let (tally, started) = (Tally::default(), Instant::now());
    let problems = on_threads(faults, |fault| {
        let complain = |problem| format!("{what}: {fault}: {problem}");
        one(fault, &tally).into_iter().map(complain).collect()
    });
    report(what, faults, &tally, problems.len(), started);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What is said where only the status could not be written.
const STATUS_LOST: &str = "warn: writing the status: ";

/// A run that met an error: what it said fits what it did.
fn after_error(scene: &Scene, fault: &Fault, root: &TestRoot, run: &Traced) -> Vec<String> {
    let all: Vec<&str> = run.err.lines().collect();
    let (errors, others): (Vec<&str>, Vec<&str>) = all
        .into_iter()
        .partition(|line| line.starts_with("error: "));
    let why = |line: &str| line.to_lowercase().contains(fault.kind.reason());
    let mut problems = Vec::new();
    if !others.iter().all(|line| line.starts_with("warn: ")) {
        problems.push("more is said than warnings".to_owned());
    }
    match (run.code, errors.as_slice()) {
        (Some(0), []) => {
            problems.extend(scene.unlike_new(root));
            if fault.kind == Kind::Eintr && !others.is_empty() {
                problems.push("an interruption is visible".to_owned());
            }
            let (mark, retried) = (mark(scene), fault.kind == Kind::Eintr);
            // The status is written just before the end, and no run fails because of it.
            let told = others.iter().any(|line| line.starts_with(STATUS_LOST));
            if fault.position <= mark + 2 && !retried && !told {
                problems.push("an error before the end was passed over".to_owned());
            }
        }
        (Some(_), _) if fault.kind == Kind::Eintr => {
            problems.push("an interruption ended the run".to_owned());
        }
        (Some(1), [line]) if why(line) => {
            problems.extend(scene.unlike_old(root));
            problems.extend(left_over(root));
        }
        (Some(4), [line]) if why(line) && line.contains("everything was restored") => {
            problems.extend(scene.unlike_old(root));
            problems.extend(left_over(root));
        }
        (Some(5), [line]) if why(line) && line.contains("mco-rescue recover") => {
            problems.extend(scene.torn(root));
            problems.extend(demand(root, &["recover"], 0));
            problems.extend(scene.between(root));
        }
        (code, _) => problems.push(format!("ended with {code:?} and does not say what and why")),
    }
    if !problems.is_empty() {
        problems.insert(0, format!("exit code {:?}, said: {}", run.code, run.err));
    }
    problems
}

/// Where in the clean run the mark gets its name; then the status gets its own, and both are flushed.
fn mark(scene: &Scene) -> usize {
    scene.position(".committed.new")
}

fn killed(scene: &Scene, root: &TestRoot) -> Vec<String> {
    let mut problems = scene.torn(root);
    problems.extend(demand(root, &["recover"], 0));
    problems.extend(scene.between(root));
    problems
}

fn ended(code: Option<i32>) -> &'static str {
    match code {
        None => "killed, then recovered",
        Some(0) => "came through (exit code 0)",
        Some(1) => "nothing was changed (exit code 1)",
        Some(4) => "everything was restored (exit code 4)",
        Some(5) => "recover mended it (exit code 5)",
        Some(_) => "something else",
    }
}

/// The run of a scene with one fault, and the root in which it ran.
fn disturb(scene: &Scene, fault: &Fault) -> Result<(TestRoot, Traced), String> {
    fault.aim(|| {
        let root = scene.root();
        let run = scene.disturbed(&root, &fault.call, &fault.injection());
        (root, run)
    })
}

fn meets(scene: &Scene, fault: &Fault, tally: &Tally) -> Vec<String> {
    let (root, run) = match disturb(scene, fault) {
        Ok(disturbed) => disturbed,
        Err(problem) => return vec![problem],
    };
    tally.add(fault.kind, ended(run.code));
    let mut problems = match fault.kind {
        Kind::Kill => killed(scene, &root),
        _ => after_error(scene, fault, &root, &run),
    };
    problems.extend(scene.applied_afterwards(&root));
    problems
}

#[test]
fn a_run_that_meets_any_fault_at_any_call_does_all_of_it_or_nothing() {
    if !can_disturb() {
        return;
    }
    // Without hard links old objects are copied: other calls, with times and owners to be kept.
    let scenes = [update(&[]), bare(), update(&["linkat:error=EPERM"])];
    let runs = scenes.iter().enumerate();
    let all: Vec<Fault> = runs
        .flat_map(|(run, scene)| every_fault(run, &scene.clean))
        .collect();
    for call in EXPECTED {
        assert!(all.iter().any(|f| f.call == call), "no run makes {call}");
    }
    let faults = chosen(all, 3, |fault| (fault.call.clone(), fault.kind));
    meet("apply", &faults, |fault, tally| {
        meets(&scenes[fault.run], fault, tally)
    });
}

/// What a run that was killed has left, and which way it is recovered.
struct Wreck {
    name: &'static str,
    root: TestRoot,
    args: &'static [&'static str],
    is_new: bool,
    clean: Vec<Call>,
}

impl Wreck {
    fn of(
        scene: &Scene,
        name: &'static str,
        position: usize,
        args: &'static [&'static str],
    ) -> Self {
        let call = &scene.clean[position].name;
        let nth = faults::count(&scene.clean[..=position], call);
        let root = scene.killed_at(call, nth);
        let clean = duplicate(root.dir());
        let run = traced(&clean, &WATCHED.join(","), &[], args);
        assert_eq!(run.code, Some(0), "{name}: {}", run.err);
        let is_new = scene.unlike_new(&clean).is_empty();
        assert!(is_new || scene.unlike_old(&clean).is_empty(), "{name}");
        let calls = run.calls;
        Self {
            name,
            root,
            args,
            is_new,
            clean: calls,
        }
    }

    fn has(&self, file: &str) -> bool {
        self.root.exists(&format!("{STATE}/{file}"))
    }

    fn unlike(&self, scene: &Scene, root: &TestRoot) -> Vec<String> {
        if self.is_new {
            scene.unlike_new(root)
        } else {
            scene.unlike_old(root)
        }
    }
}

const FORWARD: &[&str] = &["recover"];
const BACK: &[&str] = &["recover", "--back"];

/// One wreck for each distinct state of intent, journal and mark.
fn wrecks(scene: &Scene) -> Vec<Wreck> {
    let clean = &scene.clean;
    let find = |from: usize, name: &str, text: &str| {
        let mut rest = clean.iter().enumerate().skip(from);
        let found = rest.find(|(_, call)| call.name.starts_with(name) && call.line.contains(text));
        found.unwrap().0
    };
    let intent = find(0, "renameat", ".intent.json.new");
    let begun = find(0, "openat", ".journal.json.new");
    let journal = find(0, "renameat", ".journal.json.new");
    let first = find(journal + 1, "renameat", "new-");
    let last = find(first, "openat", ".committed.new");
    let mark = mark(scene);
    let half_swept = find(mark, "unlinkat", "old-") + 3;
    let moved = find(mark, "unlinkat", "\"intent.json\"");
    let forgotten = find(moved, "unlinkat", "\"committed\"");
    let half = (first..last).filter(|&at| {
        clean[at].name.starts_with("rename") || clean[at].name.starts_with("fchownat")
    });
    let half: Vec<usize> = half.collect();
    let half = half[half.len() / 2];
    let all = vec![
        Wreck::of(scene, "no intent", intent, FORWARD),
        Wreck::of(scene, "intent only", begun, FORWARD),
        Wreck::of(scene, "journal half written", journal, FORWARD),
        Wreck::of(scene, "nothing renamed", first, FORWARD),
        Wreck::of(scene, "nothing renamed, back", first, BACK),
        Wreck::of(scene, "half renamed", half, FORWARD),
        Wreck::of(scene, "half renamed, back", half, BACK),
        Wreck::of(scene, "all renamed", last, FORWARD),
        Wreck::of(scene, "all renamed, back", last, BACK),
        Wreck::of(scene, "committed", mark + 3, FORWARD),
        Wreck::of(scene, "half swept", half_swept, FORWARD),
        Wreck::of(scene, "journal moved away", moved, FORWARD),
        Wreck::of(scene, "mark alone", forgotten, FORWARD),
    ];
    // Otherwise they would not be what their names say.
    let states = all.iter().map(|w| {
        (
            w.has("intent.json"),
            w.root.exists(JOURNAL),
            w.has("committed"),
        )
    });
    let (none, intent, journal, committed) = (
        (false, false, false),
        (true, false, false),
        (true, true, false),
        (true, true, true),
    );
    let expected = [
        none,
        intent,
        intent,
        journal,
        journal,
        journal,
        journal,
        journal,
        journal,
        committed,
        committed,
        (true, false, true),
        (false, false, true),
    ];
    assert_eq!(states.collect::<Vec<_>>(), expected);
    all
}

/// `recover` after one fault in `recover`.
fn recovers(scene: &Scene, wreck: &Wreck, fault: &Fault, tally: &Tally) -> Vec<String> {
    let disturbed = || {
        let root = duplicate(wreck.root.dir());
        let before = root.everything();
        let run = traced(&root, &fault.call, &[fault.injection()], wreck.args);
        ((root, before), run)
    };
    let ((root, before), run) = match fault.aim(disturbed) {
        Ok(aimed) => aimed,
        Err(problem) => return vec![format!("{}: {problem}", wreck.name)],
    };
    tally.add(fault.kind, ended(run.code));
    let mut problems = scene.torn(&root);
    let said = run.err.lines().filter(|line| line.starts_with("error: "));
    let said: Vec<&str> = said.collect();
    let why = |line: &str| line.to_lowercase().contains(fault.kind.reason());
    match (run.code, said.as_slice()) {
        (None, _) => {}
        (Some(0), []) => {
            // What could not be removed is a second name until the next run.
            let untidy = run.err.contains("tidying up: ");
            let unlike = wreck.unlike(scene, &root).into_iter();
            problems.extend(unlike.filter(|what| !(untidy && what.ends_with(" names"))));
        }
        (Some(_), _) if fault.kind == Kind::Eintr => {
            problems.push("an interruption ended the run".to_owned());
        }
        (Some(1), [line]) if why(line) => {
            if root.everything() != before {
                problems.push("exit code 1, but something was changed".to_owned());
            }
        }
        (Some(5), [line]) if why(line) || line.contains("left-overs") => {}
        _ => problems.push("does not say what and why".to_owned()),
    }
    problems.extend(demand(&root, wreck.args, 0));
    problems.extend(wreck.unlike(scene, &root));
    problems.extend(left_over(&root));
    problems.extend(scene.applied_afterwards(&root));
    if !problems.is_empty() {
        let (name, code, err) = (wreck.name, run.code, &run.err);
        problems.insert(0, format!("{name}: exit code {code:?}, said: {err}"));
    }
    problems
}

#[test]
fn a_recovery_that_meets_any_fault_at_any_call_is_finished_by_the_next_one() {
    if !can_disturb() {
        return;
    }
    for (what, scene) in [
        ("recover after an update", update(&[])),
        ("recover after overwriting", bare()),
    ] {
        let wrecks = wrecks(&scene);
        let runs = wrecks.iter().enumerate();
        let all: Vec<Fault> = runs
            .flat_map(|(run, wreck)| every_fault(run, &wreck.clean))
            .collect();
        let faults = chosen(all, 1, |fault| (fault.run, fault.kind));
        meet(what, &faults, |fault, tally| {
            recovers(&scene, &wrecks[fault.run], fault, tally)
        });
    }
}

/// EIO at a call that only looks: what was done and what is said still fit each other.
fn cannot_look(scene: &Scene, watched: &[Call], fault: &Fault, tally: &Tally) -> Vec<String> {
    let (root, run) = match disturb(scene, fault) {
        Ok(disturbed) => disturbed,
        Err(problem) => return vec![problem],
    };
    tally.add(fault.kind, ended(run.code));
    let said: Vec<&str> = run
        .err
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    let mut problems = match (run.code, said.as_slice()) {
        (Some(0), []) => scene.unlike_new(&root),
        (Some(1 | 4), [_]) => [scene.unlike_old(&root), left_over(&root)].concat(),
        (Some(5), [_]) => killed(scene, &root),
        _ => vec!["does not say what and why".to_owned()],
    };
    problems.extend(scene.applied_afterwards(&root));
    if !problems.is_empty() {
        let marked = watched
            .iter()
            .position(|call| call.line.contains(".committed.new"));
        let done = marked.is_some_and(|mark| fault.position > mark);
        problems.insert(
            0,
            format!("exit code {:?}, marked {done}, said: {}", run.code, run.err),
        );
    }
    problems
}

#[test]
fn a_run_that_cannot_look_at_something_does_all_of_it_or_nothing_too() {
    if !can_disturb() {
        return;
    }
    for (what, scene) in [
        ("update, reading", update(&[])),
        ("overwriting, reading", bare()),
    ] {
        let root = scene.root();
        let config = root.config(scene.new.as_ref().unwrap());
        let watched = traced(
            &root,
            &READING.join(","),
            &[],
            &["apply", "--yes", config.path()],
        );
        assert_eq!(watched.code, Some(0), "{}", watched.err);
        let looking = faults_at(0, &watched.calls, |_| true);
        let all = looking.into_iter().filter(|fault| fault.kind == Kind::Eio);
        let faults = chosen(all.collect(), 12, |fault| fault.call.clone());
        meet(what, &faults, |fault, tally| {
            cannot_look(&scene, &watched.calls, fault, tally)
        });
    }
}

/// EIO at every call of these runs that only looks, or at a sample.
fn reading(run: &Traced) -> Vec<Fault> {
    let looking = faults_at(0, &run.calls, |_| true);
    let all = looking.into_iter().filter(|fault| fault.kind == Kind::Eio);
    chosen(all.collect(), 20, |fault| fault.call.clone())
}

/// With the calls that a rollback watches, the mark shows among those that only look.
fn looks_and_mark() -> String {
    let all = [&READING[..], &["renameat"]].concat();
    all.join(",")
}

#[test]
fn a_rollback_that_cannot_look_says_what_it_did() {
    if !can_disturb() {
        return;
    }
    let scene = taking_back();
    let args = ["rollback", "--yes"];
    let clean = traced(&scene.root(), &looks_and_mark(), &[], &args);
    assert_eq!(clean.code, Some(0), "{}", clean.err);
    let mut calls = clean.calls.iter();
    // The file of the mark is made before, and counts once it has its name.
    let is_mark = |call: &Call| call.name == "renameat" && call.line.contains(".committed.new");
    let mark = calls.position(is_mark).unwrap();
    let mut after = 0;
    let faults: Vec<Fault> = reading(&clean)
        .into_iter()
        .filter(|fault| fault.call != "renameat")
        .collect();
    for fault in &faults {
        after += usize::from(fault.position > mark);
    }
    assert!(after > 5, "{after}");
    meet("rollback, reading", &faults, |fault, tally| {
        let disturbed = || {
            let root = scene.root();
            let run = traced(&root, &fault.call, &[fault.injection()], &args);
            (root, run)
        };
        let (root, run) = match fault.aim(disturbed) {
            Ok(aimed) => aimed,
            Err(problem) => return vec![problem],
        };
        tally.add(fault.kind, ended(run.code));
        let mut problems = match run.code {
            Some(0) => {
                let untidy = run.err.contains("tidying up: ") || run.err.contains("removing ");
                let unlike = scene.unlike_new(&root).into_iter();
                unlike
                    .filter(|what| !(untidy && what.ends_with(" names")))
                    .collect()
            }
            Some(1 | 4) if fault.position < mark => {
                [scene.unlike_old(&root), left_over(&root)].concat()
            }
            Some(5) if fault.position < mark => killed(&scene, &root),
            code => vec![format!("ended with {code:?}")],
        };
        problems.extend(demand(&root, &["recover"], 0));
        problems.extend(left_over(&root));
        if !problems.is_empty() {
            let (code, done) = (run.code, fault.position > mark);
            problems.insert(
                0,
                format!("exit code {code:?}, marked {done}, said: {}", run.err),
            );
        }
        problems
    });
}

#[test]
fn a_recovery_that_cannot_look_takes_nothing_for_lost() {
    if !can_disturb() {
        return;
    }
    let scene = update(&[]);
    for wreck in wrecks(&scene) {
        let clean = traced(
            &duplicate(wreck.root.dir()),
            &looks_and_mark(),
            &[],
            wreck.args,
        );
        assert_eq!(clean.code, Some(0), "{}: {}", wreck.name, clean.err);
        let mut calls = clean.calls.iter();
        let mark = calls.position(|call| call.line.contains(".committed.new"));
        let faults = reading(&clean).into_iter();
        let faults: Vec<Fault> = faults.filter(|fault| fault.call != "renameat").collect();
        let each = if everything_is_asked_for() { 1 } else { 5 };
        let faults: Vec<Fault> = faults.into_iter().step_by(each).collect();
        meet(
            &format!("recover, {}, reading", wreck.name),
            &faults,
            |fault, tally| {
                let disturbed = || {
                    let root = duplicate(wreck.root.dir());
                    let run = traced(&root, &fault.call, &[fault.injection()], wreck.args);
                    (root, run)
                };
                let (root, run) = match fault.aim(disturbed) {
                    Ok(aimed) => aimed,
                    Err(problem) => return vec![problem],
                };
                tally.add(fault.kind, ended(run.code));
                let mut problems = scene.torn(&root);
                let done = mark.is_some_and(|mark| fault.position > mark);
                match run.code {
                    Some(0) => {}
                    Some(1 | 5) if !done && run.err.contains("I/O error") => {}
                    code => problems.push(format!("ended with {code:?}")),
                }
                if run.err.contains("damaged or missing") || run.err.contains("is damaged") {
                    problems.push("an error is taken for a loss".to_owned());
                }
                problems.extend(demand(&root, wreck.args, 0));
                problems.extend(wreck.unlike(&scene, &root));
                problems.extend(left_over(&root));
                if !problems.is_empty() {
                    problems.insert(
                        0,
                        format!("exit code {:?}, marked {done}, said: {}", run.code, run.err),
                    );
                }
                problems
            },
        );
    }
}
