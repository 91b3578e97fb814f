//! The order of a run on model file systems that forget what was not flushed: of names everything from some moment on,
//! of contents any part. A million power cuts take a minute, so that they hit runs that fail, second runs, recoveries
//! that are cut off themselves, and file systems that forget different things.
//!
//! `world` is the model of file systems; `real` compares it with real ones. `run` and `recover` are the order and the
//! rules of docs/develop/transaction.md; `random` makes plans for them, and `traced` takes both from the real program.
//! `MCO_RESCUE_FAULTS=all` tries many more; `MCO_RESCUE_SEED` tries one case again.

mod plan;
mod random;
mod real;
mod recover;
mod run;
mod traced;
mod world;

use std::time::Instant;

use crate::support::faults::{Scene, copy_tree};
use crate::support::mounts::{mount, unmount, with_mounts};
use crate::support::scenes::{bare, can_disturb, everything_is_asked_for, update};
use crate::support::{STATE, TestRoot, say};
use random::{Allowed, Story};
use recover::recover;
use run::Fault;
use traced::Accident;
use world::{Dice, World};

/// Accidents of one story.
const ACCIDENTS: usize = 250;

/// A power cut that the rules do not lead out of.
#[derive(Debug)]
struct Broken {
    /// Power cuts until then.
    cuts: usize,
    /// The seed, and what is wrong.
    what: String,
}

/// The seed that is asked for.
fn asked_seed() -> Option<u64> {
    let asked = std::env::var("MCO_RESCUE_SEED").ok();
    asked.map(|seed| seed.parse().unwrap())
}

/// The seed that is asked for, or another one each time.
fn seed() -> u64 {
    let other = || {
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_secs() % 10_000_000 * 1_000_000
    };
    asked_seed().unwrap_or_else(other)
}

/// Cuts the power in random stories until there were so many cuts, or one of them breaks the promise.
fn cut_random_runs(seed: u64, count: usize, fault: Fault) -> Result<usize, Broken> {
    let mut cuts = 0;
    for seed in seed.. {
        let mut dice = Dice::new(seed);
        let story = Story::new(&mut dice, fault);
        let done = cut_story(&story, &mut dice, ACCIDENTS, fault, &mut cuts);
        if let Err(what) = done {
            let what = format!("MCO_RESCUE_SEED={seed}: {what}");
            return Err(Broken { cuts, what });
        }
        if cuts >= count {
            break;
        }
    }
    Ok(cuts)
}

fn cut_story(
    story: &Story,
    dice: &mut Dice,
    accidents: usize,
    fault: Fault,
    cuts: &mut usize,
) -> Result<(), String> {
    let mut worlds = [World::default(), World::default()];
    for _ in 0..accidents {
        one_accident(story, dice, fault, &mut worlds, cuts)?;
    }
    Ok(())
}

/// A power cut in a story, and perhaps more of them while it is recovered or run again.
fn one_accident(
    story: &Story,
    dice: &mut Dice,
    fault: Fault,
    [world, other]: &mut [World; 2],
    cuts: &mut usize,
) -> Result<(), String> {
    let moment = dice.below(story.world.moment() + 1);
    story.world.cut(moment, dice, world);
    let mut allowed = story.allowed(moment);
    // The moments of the cuts, for the message.
    let mut told = [Some(moment), None, None, None];
    for depth in 1..=told.len() {
        *cuts += 1;
        let way = recover(world, &story.plans, fault);
        let found = way.and_then(|_| story.judge(world, allowed));
        let found = found.map_err(|what| {
            let told: Vec<usize> = told.iter().flatten().copied().collect();
            let differences = story.differences(world, allowed);
            let (run, recovery) = (story.world.tell(), world.tell());
            format!("{what} ({way:?}) after cuts at {told:?}\n{differences}the run:\n{run}the recovery:\n{recovery}")
        })?;
        let end = world.moment();
        let mut after = Allowed {
            from: found,
            to: found,
        };
        if depth == told.len() {
            break;
        }
        let moment = if found == 0 && story.can_repeat() && dice.one_in(6) {
            let said = story.repeat(world, fault);
            let moment = end + dice.below(world.moment() + 1 - end);
            after.to = 1;
            after.from = usize::from(moment >= said);
            moment
        } else if dice.one_in(2) {
            let moment = dice.below(end + 1);
            if moment < end {
                after = allowed;
            }
            moment
        } else {
            break;
        };
        told[depth] = Some(moment);
        world.cut(moment, dice, other);
        allowed = after;
        std::mem::swap(world, other);
    }
    Ok(())
}

#[test]
fn a_power_cut_in_the_model_leaves_the_old_tree_or_the_new_one() {
    let seed = seed();
    let started = Instant::now();
    let count = match (asked_seed(), everything_is_asked_for()) {
        // That one story.
        (Some(_), _) => 1,
        (None, true) => 4_000_000,
        (None, false) => 100_000,
    };
    let done = cut_random_runs(seed, count, Fault::Nothing);
    let seconds = started.elapsed().as_secs_f32();
    let cuts = done
        .as_ref()
        .map_or_else(|broken| broken.cuts, |cuts| *cuts);
    say(&format!(
        "the model: {cuts} power cuts in random runs (seed {seed}), {} failures, {seconds:.0} s",
        u8::from(done.is_err())
    ));
    if let Err(broken) = done {
        panic!("{}", broken.what);
    }
}

/// Mistakes that break the promise, each alone, and the story with which the search for it begins: what needs several
/// file systems and two power cuts is rare.
const MISTAKES: [(Fault, u64); 21] = [
    (Fault::NoFirstBarrier, 1),
    (Fault::FirstBarrierOnlyOfState, 1),
    (Fault::NoSecondBarrier, 1),
    (Fault::NoFlushOfOthers, 1),
    (Fault::MarkBeforeNames, 1),
    (Fault::MarkBeforeNamesOfOthers, 1),
    (Fault::JournalNamedBeforeBarrier, 1),
    (Fault::JournalWrittenBeforeFlushOfOthers, 100),
    (Fault::NoJournal, 1),
    (Fault::UndoneWithoutFlush, 20),
    (Fault::MarkUndoneWithoutFlush, 20),
    (Fault::UndoneWithMark, 20),
    (Fault::MarkGoesFirst, 1),
    (Fault::JournalGoesBeforeStages, 1),
    (Fault::EveryPreparedJournalCounts, 1),
    (Fault::EveryPreparedJournalCountsUnread, 1),
    (Fault::NoPreparedJournalCounts, 1),
    (Fault::ResolvedWithoutFlush, 810),
    (Fault::OnlyStagedNamesCount, 1),
    (Fault::FlagsDoNotCount, 20),
    (Fault::RecoveryMarksBeforeFlush, 1),
];

#[test]
fn a_mistake_in_the_order_breaks_the_promise_in_the_model() {
    for (fault, seed) in MISTAKES {
        match cut_random_runs(seed, 1_000_000, fault) {
            Err(Broken { cuts, what }) => {
                let what = what.lines().next().unwrap_or_default();
                say(&format!("{fault:?}: found by power cut {cuts}: {what}"));
            }
            Ok(cuts) => panic!("{fault:?} was not found by {cuts} power cuts"),
        }
    }
}

/// Checks that guard against damaged disks, not against power cuts: the order alone sees to those.
const GUARDS: [Fault; 4] = [
    Fault::TornJournalCounts,
    Fault::TornMarkCounts,
    Fault::StagedBytesNotLookedAt,
    Fault::IntentGoesFirst,
];

#[test]
fn a_power_cut_alone_leaves_nothing_that_only_a_checksum_would_tell() {
    let count = if everything_is_asked_for() {
        1_000_000
    } else {
        20_000
    };
    for fault in GUARDS {
        if let Err(broken) = cut_random_runs(seed(), count, fault) {
            panic!("{fault:?}: {}", broken.what);
        }
    }
}

/// Directories that are file systems of their own.
const LAYOUTS: [&[&str]; 5] = [
    &[],
    &["etc"],
    &["var", "home"],
    &["var/lib/mco-rescue"],
    &["var/lib/mco-rescue/stage", "etc"],
];

/// Records a run of the real program, with the directories of a layout on file systems of their own.
fn record(scene: &Scene, layout: &[&str], accident: Option<&Accident>) -> Option<Story> {
    let root = TestRoot::empty();
    for path in layout {
        let at = root.path(path);
        std::fs::create_dir_all(&at).unwrap();
        let at = at.to_str().unwrap();
        mount(&["-t", "tmpfs", "-o", "mode=755", "tmpfs", at]);
    }
    copy_tree(scene.template(), root.dir());
    let story = traced::record(&root, scene, accident);
    let mounts = layout.iter().rev();
    mounts.for_each(|path| unmount(&root.path(path)));
    story
}

/// The real program's order, on every layout.
fn with_recordings(act: impl Fn(&str, &Story) + Sync) {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        for (what, scene) in [("an update", update(&[])), ("overwriting", bare())] {
            // A state directory that holds a mount and no marker is not taken for one.
            let has_state = scene.template().join(STATE).exists();
            let below = |layout: &&&[&str]| {
                let state = format!("{STATE}/");
                layout.iter().any(|path| path.starts_with(&state))
            };
            for layout in LAYOUTS.iter().filter(|layout| has_state || !below(layout)) {
                let story = record(&scene, layout, None).unwrap();
                act(&format!("{what}, mounts {layout:?}"), &story);
            }
        }
    });
}

#[test]
fn a_power_cut_in_the_order_of_the_program_leaves_the_old_tree_or_the_new_one() {
    let seed = seed();
    let accidents = if everything_is_asked_for() {
        100_000
    } else {
        4_000
    };
    with_recordings(|what, story| {
        let mut cuts = 0;
        let started = Instant::now();
        let done = cut_story(
            story,
            &mut Dice::new(seed),
            accidents,
            Fault::Nothing,
            &mut cuts,
        );
        say(&format!(
            "the model of {what}: {} flushes, {cuts} power cuts (seed {seed}), {:.0} s",
            story.world.flushes().len(),
            started.elapsed().as_secs_f32()
        ));
        if let Err(broken) = done {
            panic!("{what}: MCO_RESCUE_SEED={seed}: {broken}");
        }
    });
}

/// A run that is killed, and recovered to either side; a run that meets an error, and undoes itself.
const ACCIDENTS_OF_RUNS: [(&str, Option<&[&str]>); 3] = [
    ("signal=KILL", Some(&["recover"])),
    ("error=EIO", None),
    ("signal=KILL", Some(&["recover", "--back"])),
];

#[test]
fn a_power_cut_after_a_kill_or_an_error_leaves_the_old_tree_or_the_new_one() {
    if !can_disturb() {
        return;
    }
    let seed = seed();
    let (each, cuts_of_each) = if everything_is_asked_for() {
        (1, 20_000)
    } else {
        (5, 2_000)
    };
    with_mounts(|| {
        let (mut stories, mut cuts) = (0, 0);
        for scene in [update(&[]), bare()] {
            let from = scene.nth("renameat", |line| line.contains(".journal.json.new"));
            let calls = (from..=scene.count("renameat")).map(|nth| ("renameat", nth));
            let others = (1..=scene.count("renameat2")).map(|nth| ("renameat2", nth));
            let flushes = (1..=scene.count("syncfs")).map(|nth| ("syncfs", nth));
            let points: Vec<_> = calls.chain(others).chain(flushes).collect();
            for (number, (call, nth)) in points.into_iter().enumerate().step_by(each) {
                let turn = number / each;
                let (fault, recover) = ACCIDENTS_OF_RUNS[turn % ACCIDENTS_OF_RUNS.len()];
                let accident = Accident {
                    call,
                    nth,
                    fault,
                    recover,
                };
                let layout = LAYOUTS[turn % 3];
                let Some(story) = record(&scene, layout, Some(&accident)) else {
                    continue;
                };
                stories += 1;
                let mut dice = Dice::new(seed);
                let done = cut_story(&story, &mut dice, cuts_of_each, Fault::Nothing, &mut cuts);
                if let Err(broken) = done {
                    panic!("{accident:?}, mounts {layout:?}: MCO_RESCUE_SEED={seed}: {broken}");
                }
            }
        }
        say(&format!(
            "the model of {stories} disturbed runs and their recoveries: {cuts} power cuts (seed {seed})"
        ));
    });
}

#[test]
fn no_flush_of_the_program_can_be_left_out() {
    // Elsewhere some are only for a staging directory without anything in it.
    let everywhere = [
        "an update, mounts []",
        "an update, mounts [\"etc\"]",
        "overwriting, mounts []",
    ];
    with_recordings(|what, story| {
        let flushes = story.world.flushes();
        for flush in flushes.iter().filter(|_| everywhere.contains(&what)) {
            let mut without = story.clone();
            without.world.leave_out(*flush);
            let mut cuts = 0;
            let done = cut_story(
                &without,
                &mut Dice::new(1),
                20_000,
                Fault::Nothing,
                &mut cuts,
            );
            let broken = done.expect_err(&format!("{what}: without flush {flush} all is well"));
            let broken = broken.lines().next().unwrap_or_default();
            say(&format!(
                "{what}, without flush {flush}: found by power cut {cuts}: {broken}"
            ));
        }
    });
}
