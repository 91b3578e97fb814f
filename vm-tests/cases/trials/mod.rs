//! Many changes are tried, and the bad ones take themselves back (story: the administrator who cuts the node off).
//!
//! Prepared: nodes in boxes, each reached by a real ssh over a network from a namespace of the administrator. sshd, PAM, sudo,
//! NetworkManager, nftables, systemd and OSTree are real; kubelet and CRI-O are stand-ins that refuse a bad file. A campaign
//! is drawn from a seed: bad changes, good ones, and what happens meanwhile. One trial follows the other on each node. True
//! afterwards, for each:
//!
//! - A bad change cuts the node off as long as the trial runs. Then a login is possible again; files with modes and owners,
//!   boot entries, deployments, services, rules and addresses are as before; `status` and motd say that it went back.
//! - A good change that is confirmed by a new login stays beyond the deadline, and nothing else changes.
//!
//! Besides: without a trial the bad changes do cut the node off, as the observer says.

mod changes;
mod judge;
mod lane;
mod plan;
mod playbook;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use changes::{Effect, Part, Site};
use lane::{Held, Lane};
use plan::Trial;

use crate::lab::Case;
use crate::support::say;

/// Seconds that a confirmation has.
const WINDOW: u64 = 8;
/// Of the sample.
const SEED: u64 = 24;

#[test]
fn bad_changes_take_themselves_back_and_confirmed_ones_stay() {
    campaign("trials", 6, 6, SEED, 3);
}

/// `MCO_RESCUE_TRIALS`: so many bad and so many good ones; `VM_SEED`: which; `MCO_RESCUE_LANES`: on so many nodes at once;
/// `MCO_RESCUE_TRIAL_KIND`: only kinds with this text in their name.
#[test]
#[ignore = "takes many minutes: make vm-test runs it"]
fn a_campaign_of_bad_changes_goes_back_and_one_of_good_ones_stays() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let count = number("MCO_RESCUE_TRIALS").unwrap_or(60) as usize;
    let seed = number("VM_SEED").unwrap_or(SEED);
    let lanes = number("MCO_RESCUE_LANES").unwrap_or(4) as usize;
    campaign("trials, all", count, count, seed, lanes);
}

#[test]
#[ignore = "takes minutes: make vm-test runs it"]
fn without_a_trial_the_bad_changes_do_cut_the_node_off() {
    let Some(case) = Case::begin_in_box("trials: what is bad without one") else {
        return;
    };
    let mut lane = Lane::new(&case, WINDOW);
    let all = std::env::var_os("MCO_RESCUE_TRIALS").is_some();
    let mut wrong = Vec::new();
    for part in Part::ALL {
        let cutting = Site::bad(part)
            .iter()
            .filter(|(_, effect)| *effect == Effect::CutsOff);
        // One of each part, or all.
        for (name, _) in cutting.take(if all { usize::MAX } else { 1 }) {
            match lane::cuts_off_without_a_trial(&mut lane, part, name) {
                Ok(()) => case.tell(&format!("{}: {name}: cut off", part.name())),
                Err(error) => wrong.push(format!("{}: {name}: {error}", part.name())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs a campaign on some nodes at once, and prints what came of it.
fn campaign(name: &str, bad: usize, good: usize, seed: u64, lanes: usize) {
    let mut trials = plan::draw(bad, good, seed);
    if let Ok(kind) = std::env::var("MCO_RESCUE_TRIAL_KIND") {
        trials.retain(|trial| trial.kind().contains(&kind));
    }
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(&Trial, Result<Held, String>)>> = Mutex::new(Vec::new());
    let skipped = thread::scope(|scope| {
        let lanes: Vec<_> = (1..=lanes)
            .map(|lane| {
                let (trials, next, results) = (&trials, &next, &results);
                scope.spawn(move || work(&format!("{name} {lane}"), seed, trials, next, results))
            })
            .collect();
        let ran: Vec<bool> = lanes.into_iter().map(|lane| lane.join().unwrap()).collect();
        !ran.contains(&true)
    });
    if skipped {
        return;
    }
    let results = results.into_inner().unwrap();
    say(&table(&results, seed));
    let failed = results.iter().filter_map(|(trial, result)| {
        let error = result.as_ref().err()?;
        Some(format!("VM_SEED={seed}, trial {trial:?}: {error}"))
    });
    let failed: Vec<String> = failed.collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!(results.len(), trials.len());
}

/// One node's share of a campaign. A node on which a trial failed is left, and a fresh one goes on.
fn work<'t>(
    name: &str,
    seed: u64,
    trials: &'t [Trial],
    next: &AtomicUsize,
    results: &Mutex<Vec<(&'t Trial, Result<Held, String>)>>,
) -> bool {
    let Some(case) = Case::begin_in_box(name) else {
        return false;
    };
    let mut lane = fresh(&case);
    case.prepared();
    while let Some(trial) = trials.get(next.fetch_add(1, Ordering::SeqCst)) {
        let result = catch_unwind(AssertUnwindSafe(|| lane.run(trial)));
        let result = result.unwrap_or_else(|panic| Err(words_of(panic.as_ref())));
        if let Err(error) = &result {
            let journal = keep(&format!("{seed}-{}.journal", trial.number), &lane.journal());
            case.tell(&format!(
                "{}: FAILED: {error}; {}",
                trial.number,
                journal.display()
            ));
            drop(lane);
            lane = fresh(&case);
        }
        results.lock().unwrap().push((trial, result));
    }
    true
}

/// A fresh node. Other tests take loop devices at the same time, and a mount may lose that race.
fn fresh(case: &Case) -> Lane<'_> {
    let again = || catch_unwind(AssertUnwindSafe(|| Lane::new(case, WINDOW))).ok();
    again()
        .or_else(again)
        .unwrap_or_else(|| Lane::new(case, WINDOW))
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.unwrap_or_else(|| "it panicked".to_owned())
}

fn keep(name: &str, text: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trials");
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// Kinds with their counts, reasons and times.
fn table(results: &[(&Trial, Result<Held, String>)], seed: u64) -> String {
    let mut rows: BTreeMap<(bool, &str), Vec<&Result<Held, String>>> = BTreeMap::new();
    for (trial, result) in results {
        rows.entry((trial.good, trial.kind()))
            .or_default()
            .push(result);
    }
    let mut text = format!(
        "trials, VM_SEED={seed}\n{:<5} {:<32} {:>5} {:>6} {:>5} {:>20}  {}\n",
        "", "kind", "count", "failed", "bit", "s after the deadline", "ended by"
    );
    let mut sums = [(0, 0), (0, 0)];
    for ((good, kind), all) in rows {
        let held: Vec<&Held> = all
            .iter()
            .filter_map(|result| result.as_ref().ok())
            .collect();
        let failed = all.len() - held.len();
        let sum = &mut sums[usize::from(good)];
        *sum = (sum.0 + all.len(), sum.1 + failed);
        let mut seconds: Vec<f64> = held.iter().filter_map(|held| held.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let times = match seconds.as_slice() {
            [] => String::new(),
            [min, .., max] | [min @ max] => {
                format!("{min:.1}/{:.1}/{max:.1}", seconds[seconds.len() / 2])
            }
        };
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for held in &held {
            let end = held
                .reason
                .find([':', ';', '\n'])
                .unwrap_or(held.reason.len());
            *reasons.entry(&held.reason[..end]).or_default() += 1;
        }
        let reasons: Vec<String> = reasons
            .iter()
            .map(|(reason, count)| format!("{reason} ({count})"))
            .collect();
        text += &format!(
            "{:<5} {kind:<32} {:>5} {failed:>6} {:>5} {times:>20}  {}\n",
            if good { "good" } else { "bad" },
            all.len(),
            held.iter().filter(|held| held.bit).count(),
            reasons.join("; ")
        );
    }
    for (name, (count, failed)) in ["bad", "good"].into_iter().zip(sums) {
        text += &format!("{name}: {count}, failed: {failed}\n");
    }
    text
}
