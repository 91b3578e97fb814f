//! A run in the model: the order of docs/develop/transaction.md, with one mistake planted if asked for.

use super::plan::{
    INTENT, INTENT_NEW, JOURNAL, JOURNAL_NEW, Kind, MARK, MARK_NEW, MARKER, MARKER_NEW,
    MARKER_TEXT, Object, Plan, STATUS, STATUS_NEW, STATUS_TEXT, Step, old_name,
};
use super::recover::{discard, set_flags, take_step, tidy_up, undo};
use super::world::{MOUNTS, NOTHING, Name, Node, World};

/// One mistake in the order of a run or in the rules of its recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Nothing,
    // In the run.
    NoFirstBarrier,
    FirstBarrierOnlyOfState,
    NoSecondBarrier,
    NoFlushOfOthers,
    MarkBeforeNames,
    MarkBeforeNamesOfOthers,
    JournalNamedBeforeBarrier,
    JournalWrittenBeforeFlushOfOthers,
    NoJournal,
    // In both.
    UndoneWithoutFlush,
    MarkUndoneWithoutFlush,
    UndoneWithMark,
    MarkGoesFirst,
    IntentGoesFirst,
    JournalGoesBeforeStages,
    // In the recovery.
    TornJournalCounts,
    TornMarkCounts,
    StagedBytesNotLookedAt,
    /// Of a run that has changed nothing, whatever is staged.
    EveryPreparedJournalCounts,
    EveryPreparedJournalCountsUnread,
    NoPreparedJournalCounts,
    ResolvedWithoutFlush,
    OnlyStagedNamesCount,
    FlagsDoNotCount,
    RecoveryMarksBeforeFlush,
}

impl Fault {
    pub fn takes_torn_journals(self) -> bool {
        matches!(
            self,
            Self::TornJournalCounts | Self::EveryPreparedJournalCountsUnread
        )
    }

    pub fn adopts_all(self) -> bool {
        matches!(
            self,
            Self::EveryPreparedJournalCounts | Self::EveryPreparedJournalCountsUnread
        )
    }

    pub fn trusts_staged(self) -> bool {
        matches!(
            self,
            Self::StagedBytesNotLookedAt | Self::EveryPreparedJournalCountsUnread
        )
    }
}

/// Where a run fails by an error of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    None,
    /// After barrier 1: it abandons what it has staged.
    Staging,
    /// At a step: it undoes those before.
    Step(usize),
    /// At barrier 2: it undoes everything, the mark too.
    Barrier,
}

/// A run that has come to its end.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// When it gave its exit code.
    pub at: usize,
    /// It gave 0.
    pub good: bool,
}

/// Writes a file of ours beside its name, and gives it its name.
fn write_own(world: &mut World, state: Node, temporary: Name, name: Name, content: u32) {
    prepare(world, state, temporary, content);
    world.rename((state, temporary), (state, name));
}

fn prepare(world: &mut World, state: Node, temporary: Name, content: u32) {
    world.unlink(state, temporary);
    let node = world.create(state, temporary, 0);
    world.write(node, content);
}

/// Opens a directory of ours; makes it and those above it if they are missing.
fn make_path(world: &mut World, path: super::plan::Path) -> Node {
    let node = path.at(world);
    if node != NOTHING {
        return node;
    }
    let above = make_path(world, path.parent());
    world.make_dir(above, path.name(), 0)
}

fn stage_step(world: &mut World, plan: &Plan, index: usize, step: &Step, history: Node) {
    let stage = plan.stages[step.stage].path.at(world);
    let place = plan.staged_path(index).place(world);
    let make = |world: &mut World, object: &Object| {
        let (dir, new) = place.unwrap();
        if object.is_dir {
            world.make_dir(dir, new, object.attr);
        } else {
            let node = world.create(dir, new, 0);
            world.write(node, object.content);
            world.set_attr(node, object.attr);
        }
    };
    let old = step.path.at(world);
    match step.kind {
        Kind::MakeDir => make(world, &step.new),
        // For taking it back.
        Kind::RemoveDir => make(world, &step.old),
        Kind::Put | Kind::Exchange => {
            make(world, &step.new);
            if step.old.is_dir {
                if world.fs_of(history) != world.fs_of(stage) {
                    copy_tree(world, old, history, old_name(index));
                }
            } else if step.old.there {
                // An exchanged file stays in the stage by itself.
                if step.kind == Kind::Put {
                    keep(world, old, stage, old_name(index));
                }
                keep(world, old, history, old_name(index));
            }
        }
        Kind::Remove => keep(world, old, history, old_name(index)),
        Kind::Attr => {}
    }
}

/// A second name, or a copy on another file system.
fn keep(world: &mut World, node: Node, dir: Node, name: Name) {
    if world.fs_of(node) == world.fs_of(dir) {
        world.link(node, dir, name);
    } else {
        let copy = world.create(dir, name, 0);
        let (content, attr) = (world.content(node), world.attr(node));
        world.write(copy, content);
        world.set_attr(copy, attr);
    }
}

fn copy_tree(world: &mut World, node: Node, dir: Node, name: Name) {
    if !world.is_dir(node) {
        return keep(world, node, dir, name);
    }
    let attr = world.attr(node);
    let made = world.make_dir(dir, name, attr);
    let names: Vec<Name> = world.names(node).collect();
    for child in names {
        copy_tree(world, world.find(node, child), made, child);
    }
}

/// Runs a plan on a world where nothing is pending.
pub fn run(world: &mut World, plan: &Plan, failure: Failure, fault: Fault) -> Ended {
    let is_new = plan.state.at(world) == NOTHING;
    let state = make_path(world, plan.state);
    let is_whole = {
        let marker = world.find(state, MARKER);
        marker != NOTHING && world.content(marker) == MARKER_TEXT
    };
    if is_new || !is_whole {
        write_own(world, state, MARKER_NEW, MARKER, MARKER_TEXT);
    }
    write_own(world, state, INTENT_NEW, INTENT, plan.intent);
    let history = make_path(world, plan.history);
    if plan.stages.iter().any(|stage| !stage.searched) {
        // After a power cut only the intent leads to it.
        world.flush_node(world.find(state, INTENT));
        world.flush_node(state);
    }
    for stage in &plan.stages {
        make_path(world, stage.path);
    }
    for (index, step) in plan.steps.iter().enumerate() {
        stage_step(world, plan, index, step, history);
    }
    // Barrier 1.
    let own = world.fs_of(state);
    if fault == Fault::JournalWrittenBeforeFlushOfOthers {
        prepare(world, state, JOURNAL_NEW, plan.journal);
    }
    if !matches!(
        fault,
        Fault::NoFirstBarrier | Fault::FirstBarrierOnlyOfState
    ) {
        flush_others(world, plan, own);
    }
    if fault != Fault::JournalWrittenBeforeFlushOfOthers {
        prepare(world, state, JOURNAL_NEW, plan.journal);
    }
    if fault == Fault::JournalNamedBeforeBarrier {
        world.rename((state, JOURNAL_NEW), (state, JOURNAL));
    }
    if fault != Fault::NoFirstBarrier {
        world.flush_fs(own);
    }
    if failure == Failure::Staging {
        world.unlink(state, JOURNAL_NEW);
        world.unlink(state, JOURNAL);
        world.flush_node(state);
        discard(world, plan, state);
        return ended(world, false);
    }
    if fault == Fault::NoJournal {
        world.unlink(state, JOURNAL_NEW);
    } else if fault != Fault::JournalNamedBeforeBarrier {
        world.rename((state, JOURNAL_NEW), (state, JOURNAL));
    }
    if fault == Fault::MarkBeforeNames {
        write_own(world, state, MARK_NEW, MARK, plan.mark);
    }
    set_flags(world, plan, false);
    for (index, step) in plan.steps.iter().enumerate() {
        if failure == Failure::Step(index) {
            return taken_back(world, plan, state, index, fault);
        }
        // Else it came with its directory.
        if step.within.is_none() {
            assert!(take_step(world, plan, index, step), "{step:?}");
        }
    }
    set_flags(world, plan, true);
    if fault == Fault::MarkBeforeNamesOfOthers {
        write_own(world, state, MARK_NEW, MARK, plan.mark);
        world.flush_fs(own);
    }
    if fault != Fault::NoFlushOfOthers {
        flush_others(world, plan, own);
    }
    if !matches!(
        fault,
        Fault::MarkBeforeNames | Fault::MarkBeforeNamesOfOthers
    ) {
        write_own(world, state, MARK_NEW, MARK, plan.mark);
    }
    write_own(world, state, STATUS_NEW, STATUS, STATUS_TEXT);
    // Barrier 2.
    if fault != Fault::NoSecondBarrier {
        world.flush_fs(own);
    }
    if failure == Failure::Barrier {
        return taken_back(world, plan, state, plan.steps.len(), fault);
    }
    let ended = ended(world, true);
    tidy_up(world, plan, state, fault);
    ended
}

fn ended(world: &World, good: bool) -> Ended {
    Ended {
        at: world.moment(),
        good,
    }
}

fn taken_back(world: &mut World, plan: &Plan, state: Node, count: usize, fault: Fault) -> Ended {
    let is_taken = |index: &usize| plan.placed_by(*index) < count;
    let steps: Vec<usize> = (0..plan.steps.len()).filter(is_taken).collect();
    let undone = undo(world, plan, state, &steps, fault);
    assert_eq!(undone, Ok(()));
    ended(world, false)
}

fn flush_others(world: &mut World, plan: &Plan, own: usize) {
    let mut done = [false; MOUNTS];
    done[own] = true;
    for stage in &plan.stages {
        let node = stage.path.at(world);
        if !std::mem::replace(&mut done[world.fs_of(node)], true) {
            world.flush_fs(world.fs_of(node));
        }
    }
}
