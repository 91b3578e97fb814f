//! `recover` in the model, by the rules of docs/develop/transaction.md.

use super::plan::{
    HELD, HISTORY, INTENT, INTENT_NEW, JOURNAL, JOURNAL_NEW, Kind, MARK, MARK_NEW, MARKER,
    MARKER_NEW, MARKER_TEXT, MODE, Object, Path, Plan, STAGE, STATUS_NEW, STEPS, Step, away_name,
    is_staged, new_name, old_name,
};
use super::run::Fault;
use super::world::{MOUNTS, NOTHING, Name, Node, World, as_whole};

/// The way that a recovery went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Nothing,
    Swept,
    Forward,
    Back,
    Tidied,
}

/// A state that no rule leads out of.
pub type Stuck = &'static str;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Before,
    Between,
    Absent,
    After,
    Foreign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outlook {
    There,
    Open,
    Gone,
    Lost,
}

/// Finishes or undoes what was interrupted. `plans` are all runs that there ever were.
pub fn recover(world: &mut World, plans: &[Plan], fault: Fault) -> Result<Way, Stuck> {
    let state_path = plans[0].state;
    let state = state_path.at(world);
    if state == NOTHING || world.names(state).all(|name| name == MARKER_NEW) {
        return Ok(Way::Nothing);
    }
    let journal = world.find(state, JOURNAL);
    let marker = world.find(state, MARKER);
    let is_whole = marker != NOTHING && world.content(marker) == MARKER_TEXT;
    if !is_whole && (marker == NOTHING || journal != NOTHING) {
        return Err("the state directory has no marker");
    }
    resolve_prepared(world, plans, state, fault);
    for name in [MARKER_NEW, INTENT_NEW, JOURNAL_NEW, MARK_NEW, STATUS_NEW] {
        world.unlink(state, name);
    }
    let way = recover_run(world, plans, state, fault)?;
    // Of stale staging directories those are found that lie where all runs make them.
    let pending = [JOURNAL, INTENT].map(|name| world.find(state, name));
    for plan in plans {
        let is_pending = pending.iter().any(|node| {
            *node != NOTHING && [plan.journal, plan.intent].contains(&world.content(*node))
        });
        if !is_pending {
            sweep_trees(world, plan);
            for stage in plan.stages.iter().filter(|stage| stage.searched) {
                empty_dir(world, stage.path);
            }
            remove_if_empty(world, state_path.join(STAGE));
        }
    }
    Ok(way)
}

/// Gives a prepared journal its name if its run has changed names, and removes it if not: durably, before what it names
/// is touched.
fn resolve_prepared(world: &mut World, plans: &[Plan], state: Node, fault: Fault) {
    let prepared = world.find(state, JOURNAL_NEW);
    if prepared == NOTHING {
        return;
    }
    let plan = by_content(world, plans, prepared, fault);
    let counts = plan.is_some_and(|plan| fault.adopts_all() || has_begun(world, plan, fault));
    let is_free = world.find(state, JOURNAL) == NOTHING;
    if counts && is_free && fault != Fault::NoPreparedJournalCounts {
        world.rename((state, JOURNAL_NEW), (state, JOURNAL));
    } else {
        world.unlink(state, JOURNAL_NEW);
    }
    if fault != Fault::ResolvedWithoutFlush {
        world.flush_node(state);
    }
}

/// The run whose journal this is; nothing for one that is not whole.
fn by_content<'a>(world: &World, plans: &'a [Plan], node: Node, fault: Fault) -> Option<&'a Plan> {
    if node == NOTHING {
        return None;
    }
    let content = world.content(node);
    let content = if fault.takes_torn_journals() {
        as_whole(content)
    } else {
        content
    };
    plans.iter().find(|plan| plan.journal == content)
}

fn has_begun(world: &World, plan: &Plan, fault: Fault) -> bool {
    let cleared = plan.held.iter().any(|path| {
        let node = path.at(world);
        node != NOTHING && world.attr(node) & HELD == 0
    });
    let mut stages = plan.stages.iter();
    // Its file system may be not mounted.
    if stages.any(|stage| stage.path.at(world) == NOTHING) {
        return true;
    }
    let mut steps = plan.steps.iter().enumerate();
    (cleared && fault != Fault::FlagsDoNotCount)
        || steps.any(|(index, step)| is_taken(world, plan, index, step, fault))
}

/// The target is the new object, and what was staged for it has left the stage.
fn is_taken(world: &World, plan: &Plan, index: usize, step: &Step, fault: Fault) -> bool {
    let progress = progress(world, step);
    let staged = |name| Object::of(world, find_staged(world, plan, step, name));
    let is_staged = || {
        let place = find_new(world, plan, index);
        place.is_some_and(|(dir, name)| world.find(dir, name) != NOTHING)
    };
    match step.kind {
        Kind::Attr | Kind::RemoveDir => {
            fault != Fault::OnlyStagedNamesCount
                && matches!(progress, Progress::After | Progress::Between)
        }
        Kind::Put | Kind::MakeDir => progress == Progress::After && !is_staged(),
        Kind::Exchange => progress == Progress::After && staged(new_name(index)) == step.old,
        Kind::Remove => staged(away_name(index)).there,
    }
}

fn find_staged(world: &World, plan: &Plan, step: &Step, name: Name) -> Node {
    let stage = plan.stages[step.stage].path.at(world);
    if stage == NOTHING {
        return NOTHING;
    }
    world.find(stage, name)
}

/// Directory and name of what is staged for a step: in the staged directory above it, or by itself.
fn find_new(world: &World, plan: &Plan, index: usize) -> Option<(Node, Name)> {
    let stage = plan.stages[plan.steps[index].stage].path.at(world);
    if stage == NOTHING {
        return None;
    }
    let nested = plan.staged_path(index).place(world);
    let nested = nested.filter(|(dir, name)| world.find(*dir, *name) != NOTHING);
    Some(nested.unwrap_or((stage, new_name(index))))
}

fn recover_run(world: &mut World, plans: &[Plan], state: Node, fault: Fault) -> Result<Way, Stuck> {
    let journal = world.find(state, JOURNAL);
    let of_journal = by_content(world, plans, journal, fault);
    if journal != NOTHING && of_journal.is_none() {
        return Err("the journal is damaged");
    }
    let intent = world.find(state, INTENT);
    let content = world.content(intent);
    let of_intent = plans
        .iter()
        .find(|plan| intent != NOTHING && plan.intent == content);
    let mark = world.find(state, MARK);
    let run = of_journal.or(of_intent);
    let is_marked = mark != NOTHING
        && run.is_some_and(|plan| {
            let content = world.content(mark);
            let torn_counts = fault == Fault::TornMarkCounts;
            plan.mark == content || (torn_counts && plan.mark == as_whole(content))
        });
    if mark != NOTHING && !is_marked {
        world.unlink(state, MARK);
        world.flush_node(state);
    }
    match (of_journal, is_marked, of_intent) {
        (Some(plan), true, _) => {
            // Of a run that was killed before its last flush.
            world.flush_fs(world.fs_of(state));
            tidy_up(world, plan, state, fault);
            Ok(Way::Tidied)
        }
        (Some(plan), false, _) => resolve(world, plan, state, fault),
        (None, true, Some(plan)) => {
            world.flush_fs(world.fs_of(state));
            close(world, plan, state, fault);
            Ok(Way::Tidied)
        }
        (None, false, Some(plan)) => {
            discard(world, plan, state);
            Ok(Way::Swept)
        }
        (None, _, None) if intent != NOTHING => {
            for plan in plans {
                let history = plan.history.at(world);
                if history != NOTHING && world.find(history, JOURNAL) == NOTHING {
                    remove_history(world, plan);
                }
            }
            world.unlink(state, INTENT);
            world.flush_node(state);
            Ok(Way::Swept)
        }
        (None, _, None) => Ok(Way::Nothing),
    }
}

fn progress(world: &World, step: &Step) -> Progress {
    let found = Object::at(world, &step.path);
    match step.kind {
        Kind::MakeDir if !found.there => Progress::Before,
        Kind::MakeDir if found.is_dir => Progress::After,
        Kind::RemoveDir if !found.there => Progress::After,
        Kind::RemoveDir if found.is_dir => Progress::Before,
        Kind::MakeDir | Kind::RemoveDir => Progress::Foreign,
        _ if found == step.new => Progress::After,
        _ if found == step.old => Progress::Before,
        Kind::Attr if found.there => {
            let is_of_one = |mask: u32| {
                [step.old.attr & mask, step.new.attr & mask].contains(&(found.attr & mask))
            };
            if is_of_one(MODE) && is_of_one(!MODE) {
                Progress::Between
            } else {
                Progress::Foreign
            }
        }
        Kind::Put | Kind::Exchange | Kind::Attr if !found.there => Progress::Absent,
        _ => Progress::Foreign,
    }
}

/// The new object as it has to be in the stage, and its name there.
fn needed_forward(index: usize, step: &Step) -> Option<(Name, Object)> {
    match step.kind {
        Kind::Put | Kind::Exchange | Kind::MakeDir => Some((new_name(index), step.new)),
        Kind::Remove | Kind::RemoveDir | Kind::Attr => None,
    }
}

fn needed_back(index: usize, step: &Step) -> Option<(Name, Object)> {
    match step.kind {
        Kind::Exchange => Some((new_name(index), step.old)),
        Kind::Put if step.old.there => Some((old_name(index), step.old)),
        Kind::Remove => Some((away_name(index), step.old)),
        Kind::RemoveDir => Some((new_name(index), step.old)),
        _ => None,
    }
}

fn judge(
    world: &World,
    plan: &Plan,
    index: usize,
    progress: Progress,
    forward: bool,
    made: &[Path],
    fault: Fault,
) -> Outlook {
    let step = &plan.steps[index];
    let goal = if forward {
        Progress::After
    } else {
        Progress::Before
    };
    if progress == goal {
        return Outlook::There;
    }
    let is_nothing = match step.kind {
        Kind::MakeDir => progress == Progress::Before,
        Kind::Put if !step.old.there => progress == Progress::Before,
        Kind::Remove | Kind::RemoveDir => progress == Progress::After,
        _ => progress == Progress::Absent,
    };
    let needs_no_stage = match step.kind {
        Kind::Attr if is_nothing => return Outlook::Gone,
        Kind::Attr => true,
        Kind::RemoveDir => forward,
        Kind::MakeDir => !forward,
        Kind::Put => !forward && !step.old.there,
        _ => false,
    };
    if needs_no_stage {
        return Outlook::Open;
    }
    let lost = if is_nothing {
        Outlook::Gone
    } else {
        Outlook::Lost
    };
    if plan.stages[step.stage].path.at(world) == NOTHING {
        return lost;
    }
    if step.path.place(world).is_none() && !made.contains(&step.path.parent()) {
        return lost;
    }
    let needed = if forward {
        needed_forward(index, step)
    } else {
        needed_back(index, step)
    };
    let Some((name, object)) = needed else {
        return Outlook::Open;
    };
    let node = match find_new(world, plan, index) {
        Some((dir, own)) if forward => world.find(dir, own),
        _ => find_staged(world, plan, step, name),
    };
    let found = Object::of(world, node);
    if found == object || (fault.trusts_staged() && found.there) {
        Outlook::Open
    } else if progress == Progress::Absent || (is_nothing && forward) {
        Outlook::Gone
    } else {
        Outlook::Lost
    }
}

fn outlooks(
    world: &World,
    plan: &Plan,
    all: &[Progress],
    forward: bool,
    fault: Fault,
    into: &mut [Outlook; STEPS],
) {
    let mut made: Vec<Path> = Vec::new();
    let count = plan.steps.len();
    for at in 0..count {
        let index = if forward { at } else { count - 1 - at };
        let step = &plan.steps[index];
        into[index] = judge(world, plan, index, all[index], forward, &made, fault);
        let makes = match step.kind {
            Kind::MakeDir => forward,
            Kind::RemoveDir => !forward,
            Kind::Put | Kind::Exchange if forward => step.new.is_dir,
            Kind::Put | Kind::Exchange => step.old.is_dir,
            _ => false,
        };
        if makes && into[index] == Outlook::Open {
            made.push(step.path);
        }
    }
}

fn resolve(world: &mut World, plan: &Plan, state: Node, fault: Fault) -> Result<Way, Stuck> {
    let count = plan.steps.len();
    let mut all = [Progress::Before; STEPS];
    for (step, found) in plan.steps.iter().zip(&mut all) {
        *found = progress(world, step);
        if *found == Progress::Foreign {
            return Err("a target is neither old nor new");
        }
    }
    let mut forward = [Outlook::There; STEPS];
    outlooks(world, plan, &all, true, fault, &mut forward);
    let forward = &forward[..count];
    if forward
        .iter()
        .all(|way| matches!(way, Outlook::There | Outlook::Open))
    {
        return finish(world, plan, state, forward, fault);
    }
    let mut back = [Outlook::There; STEPS];
    outlooks(world, plan, &all, false, fault, &mut back);
    let back = &back[..count];
    if back
        .iter()
        .all(|way| matches!(way, Outlook::There | Outlook::Open))
    {
        let steps: Vec<usize> = (0..count)
            .filter(|index| back[*index] == Outlook::Open)
            .collect();
        undo(world, plan, state, &steps, fault)?;
        return Ok(Way::Back);
    }
    if !forward.contains(&Outlook::Lost) {
        return finish(world, plan, state, forward, fault);
    }
    Err("staged objects are missing in both directions")
}

fn finish(
    world: &mut World,
    plan: &Plan,
    state: Node,
    forward: &[Outlook],
    fault: Fault,
) -> Result<Way, Stuck> {
    set_flags(world, plan, false);
    for (index, step) in plan.steps.iter().enumerate() {
        if forward[index] == Outlook::Open && !take_step(world, plan, index, step) {
            return Err("a step could not be finished");
        }
    }
    set_flags(world, plan, true);
    if fault != Fault::RecoveryMarksBeforeFlush {
        flush_stages(world, plan);
    }
    let mark = world.create(state, MARK_NEW, 0);
    world.write(mark, plan.mark);
    world.flush_node(mark);
    world.rename((state, MARK_NEW), (state, MARK));
    world.flush_node(state);
    tidy_up(world, plan, state, fault);
    Ok(Way::Forward)
}

/// Clears the flags that are in the way, or sets them again.
pub fn set_flags(world: &mut World, plan: &Plan, set: bool) {
    for path in &plan.held {
        let node = path.at(world);
        if node == NOTHING {
            continue;
        }
        let attr = world.attr(node);
        let wanted = if set { attr | HELD } else { attr & !HELD };
        if wanted != attr {
            world.set_attr(node, wanted);
        }
    }
}

fn flush_stages(world: &mut World, plan: &Plan) {
    let mut done = [false; MOUNTS];
    for stage in &plan.stages {
        let node = stage.path.at(world);
        if node != NOTHING && !std::mem::replace(&mut done[world.fs_of(node)], true) {
            world.flush_fs(world.fs_of(node));
        }
    }
}

/// Takes a step; false where the kernel would report an error.
pub fn take_step(world: &mut World, plan: &Plan, index: usize, step: &Step) -> bool {
    let Some(place) = step.path.place(world) else {
        return false;
    };
    // It came with its directory.
    if step.within.is_some() && progress(world, step) == Progress::After {
        return true;
    }
    let stage = plan.stages[step.stage].path.at(world);
    let new = find_new(world, plan, index).unwrap_or((stage, new_name(index)));
    match step.kind {
        Kind::MakeDir | Kind::Put => stage != NOTHING && world.rename(new, place),
        Kind::Exchange if world.find(place.0, place.1) == NOTHING => {
            stage != NOTHING && world.rename(new, place)
        }
        Kind::Exchange => stage != NOTHING && world.exchange(new, place),
        Kind::Remove => stage != NOTHING && world.rename(place, (stage, away_name(index))),
        Kind::RemoveDir => {
            let node = world.find(place.0, place.1);
            !world.is_dir(node) || !world.is_empty(node) || world.unlink(place.0, place.1)
        }
        Kind::Attr => {
            set_attr(world, place, step.new.attr);
            true
        }
    }
}

/// The owner, then the mode; a flag stays.
fn set_attr(world: &mut World, place: (Node, Name), wanted: u32) {
    let node = world.find(place.0, place.1);
    if node == NOTHING {
        return;
    }
    let attr = world.attr(node);
    let owner = (wanted & !MODE) | (attr & (HELD | MODE));
    if owner != attr {
        world.set_attr(node, owner);
    }
    let all = wanted | (attr & HELD);
    if all != owner {
        world.set_attr(node, all);
    }
}

fn undo_step(world: &mut World, plan: &Plan, index: usize, step: &Step) -> bool {
    let progress = progress(world, step);
    let is_absent = match progress {
        Progress::Before => return true,
        Progress::Foreign => return false,
        Progress::Absent => true,
        Progress::After | Progress::Between => false,
    };
    let Some(place) = step.path.place(world) else {
        return false;
    };
    let stage = plan.stages[step.stage].path.at(world);
    let staged = |name| (stage, name);
    if stage == NOTHING && !matches!(step.kind, Kind::Attr | Kind::MakeDir) {
        return false;
    }
    match step.kind {
        Kind::Attr if is_absent => true,
        Kind::Attr => {
            set_attr(world, place, step.old.attr);
            true
        }
        Kind::Exchange if is_absent => world.rename(staged(new_name(index)), place),
        Kind::Exchange => world.exchange(staged(new_name(index)), place),
        Kind::MakeDir => {
            let node = world.find(place.0, place.1);
            !world.is_empty(node) || world.unlink(place.0, place.1)
        }
        Kind::Put if step.old.there => world.rename(staged(old_name(index)), place),
        Kind::Put => world.rename(place, staged(new_name(index))),
        Kind::Remove => world.rename(staged(away_name(index)), place),
        Kind::RemoveDir => world.rename(staged(new_name(index)), place),
    }
}

/// Undoes these steps, last first, then removes the journal and what was staged.
pub fn undo(
    world: &mut World,
    plan: &Plan,
    state: Node,
    steps: &[usize],
    fault: Fault,
) -> Result<(), Stuck> {
    if fault != Fault::UndoneWithMark {
        world.unlink(state, MARK);
        if fault != Fault::MarkUndoneWithoutFlush {
            world.flush_node(state);
        }
    }
    if !steps.is_empty() {
        set_flags(world, plan, false);
    }
    for index in steps.iter().rev() {
        if !undo_step(world, plan, *index, &plan.steps[*index]) {
            return Err("a step could not be undone");
        }
    }
    set_flags(world, plan, true);
    if fault != Fault::UndoneWithoutFlush {
        flush_stages(world, plan);
    }
    world.unlink(state, JOURNAL);
    world.flush_node(state);
    if fault == Fault::UndoneWithMark {
        world.unlink(state, MARK);
    }
    discard(world, plan, state);
    Ok(())
}

/// After the mark: what gave way goes to the history, what was staged goes.
pub fn tidy_up(world: &mut World, plan: &Plan, state: Node, fault: Fault) {
    let history = plan.history.at(world);
    for (index, step) in plan.steps.iter().enumerate() {
        let stage = plan.stages[step.stage].path.at(world);
        if step.kind != Kind::Exchange || stage == NOTHING {
            continue;
        }
        let (new, away) = (new_name(index), away_name(index));
        if history != NOTHING && world.rename((stage, new), (history, old_name(index))) {
            continue;
        }
        if world.find(stage, new) != NOTHING {
            world.rename((stage, new), (stage, away));
        }
        remove_tree(world, stage, away);
        world.flush_fs(world.fs_of(stage));
    }
    close(world, plan, state, fault);
}

fn close(world: &mut World, plan: &Plan, state: Node, fault: Fault) {
    if fault == Fault::MarkGoesFirst {
        world.unlink(state, MARK);
    }
    if fault == Fault::IntentGoesFirst {
        world.unlink(state, INTENT);
    }
    if fault != Fault::JournalGoesBeforeStages {
        sweep(world, plan);
    }
    let history = plan.history.at(world);
    if history == NOTHING {
        world.unlink(state, JOURNAL);
    } else {
        world.rename((state, JOURNAL), (history, JOURNAL));
    }
    world.unlink(state, INTENT);
    if fault == Fault::JournalGoesBeforeStages {
        world.flush_node(state);
        sweep(world, plan);
    }
    world.unlink(state, MARK);
}

/// Removes what was staged and kept of a run that changes no name.
pub fn discard(world: &mut World, plan: &Plan, state: Node) {
    sweep(world, plan);
    remove_history(world, plan);
    flush_others(world, plan, state);
    for name in [MARKER_NEW, INTENT_NEW, JOURNAL_NEW, MARK_NEW, STATUS_NEW] {
        world.unlink(state, name);
    }
    world.unlink(state, INTENT);
    world.flush_node(state);
}

fn sweep(world: &mut World, plan: &Plan) {
    sweep_trees(world, plan);
    for stage in &plan.stages {
        empty_dir(world, stage.path);
    }
    remove_if_empty(world, plan.state.join(STAGE));
    // As before the mark: what no place leads to is flushed before the intent goes.
    if plan.stages.iter().any(|stage| !stage.searched) {
        let state = plan.state.at(world);
        flush_others(world, plan, state);
    }
}

fn flush_others(world: &mut World, plan: &Plan, state: Node) {
    let own = world.fs_of(state);
    let mut done = [false; MOUNTS];
    done[own] = true;
    for stage in &plan.stages {
        let above = stage.path.parent().at(world);
        if above != NOTHING && !std::mem::replace(&mut done[world.fs_of(above)], true) {
            world.flush_fs(world.fs_of(above));
        }
    }
}

/// Removes the staged directories with what is in them; on disk they have names of their own.
fn sweep_trees(world: &mut World, plan: &Plan) {
    for (index, step) in plan.steps.iter().enumerate() {
        let stage = plan.stages[step.stage].path.at(world);
        if step.kind == Kind::MakeDir && step.within.is_none() && stage != NOTHING {
            remove_tree(world, stage, new_name(index));
        }
    }
}

/// Removes our names in a directory, and the directory if nothing else is in it.
fn empty_dir(world: &mut World, path: Path) {
    let dir = path.at(world);
    if !world.is_dir(dir) {
        return;
    }
    let names: Vec<Name> = world.names(dir).filter(|name| is_staged(*name)).collect();
    for name in names {
        let node = world.find(dir, name);
        if !world.is_dir(node) || world.is_empty(node) {
            world.unlink(dir, name);
        }
    }
    remove_if_empty(world, path);
}

fn remove_if_empty(world: &mut World, path: Path) {
    let dir = path.at(world);
    if world.is_dir(dir)
        && world.is_empty(dir)
        && let Some(place) = path.place(world)
    {
        world.unlink(place.0, place.1);
    }
}

fn remove_history(world: &mut World, plan: &Plan) {
    if let Some(place) = plan.history.place(world) {
        remove_tree(world, place.0, place.1);
    }
    remove_if_empty(world, plan.state.join(HISTORY));
}

fn remove_tree(world: &mut World, dir: Node, name: Name) {
    let node = world.find(dir, name);
    if world.is_dir(node) {
        let names: Vec<Name> = world.names(node).collect();
        for name in names {
            remove_tree(world, node, name);
        }
    }
    world.unlink(dir, name);
}
