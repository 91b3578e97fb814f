//! The prompt before a change: the node, the number of changes, and the reboot.

use super::plan::Heading;
use crate::base::text::{count_noun, make_inline};
use crate::change::plan::{OsStep, Plan, PlannedStep, Section, Step};

/// How the operating system was compared with the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemAnswer {
    /// Compared using rpm-ostree's answer.
    Compared,
    /// Not compared: this root is not running, or was not booted by OSTree.
    NotCompared,
    /// Skipped on request: only files, units and users.
    LeftAlone,
}

/// The reboot at the end of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebootAnswer {
    /// None is needed.
    None,
    /// A reboot is needed, and left to the user.
    Later,
    /// A reboot is needed, and happens at the end.
    Now,
    /// The daemon reboots.
    ByTheDaemon,
    /// The root does not run.
    Elsewhere,
}

/// Returns the node and its system: `worker-0 (RHCOS 9.6)`.
pub fn ask_for_node(heading: &Heading) -> String {
    match heading.short_system.as_str() {
        "" => make_inline(&heading.node),
        system => format!("{} ({})", make_inline(&heading.node), make_inline(system)),
    }
}

/// Returns the number of files, units and so on that are changed or removed.
pub fn ask_for_changes(plan: &Plan) -> String {
    let mut all = Vec::new();
    let noun = |section| match section {
        Section::Accounts => Some("account change"),
        Section::Users => Some("change of core"),
        Section::Nodes => Some("directory or link"),
        Section::Files => Some("file"),
        Section::Units => Some("unit"),
        Section::Enablement => Some("enablement link"),
        Section::Stale | Section::Originals | Section::Records => None,
    };
    for section in [
        Section::Accounts,
        Section::Users,
        Section::Nodes,
        Section::Files,
        Section::Units,
        Section::Enablement,
    ] {
        let steps = plan.steps.iter().filter(|one| one.section == section);
        let number = steps.filter(|one| changes_here(&one.step, section)).count();
        if let (1.., Some(noun)) = (number, noun(section)) {
            all.push(many(number, noun));
        }
    }
    let kept = |section| {
        !matches!(
            section,
            Section::Enablement | Section::Originals | Section::Records
        )
    };
    let listed = || plan.steps.iter().filter(|one| kept(one.section));
    let gone = listed()
        .filter(|one| matches!(one.step, Step::Remove { .. } | Step::RemoveDirectory { .. }));
    let gone: Vec<&PlannedStep> = gone.collect();
    if !gone.is_empty() {
        all.push(describe_removed(&gone));
    }
    let back = listed().filter(|one| one.section == Section::Stale);
    let back = back.filter(|one| matches!(one.step, Step::Put { .. } | Step::Metadata { .. }));
    match back.count() {
        0 => {}
        back => all.push(format!("{back} restored")),
    }
    match all.is_empty() {
        true if plan.steps.is_empty() => "no file".to_owned(),
        true => "records only".to_owned(),
        false => all.join(", "),
    }
}

/// Returns the number of removed objects by kind, and those without which the node or its login does not work.
fn describe_removed(gone: &[&PlannedStep]) -> String {
    let kinds = [
        (Section::Accounts, "account file"),
        (Section::Users, "file of core"),
        (Section::Nodes, "directory or link"),
        (Section::Files, "file"),
        (Section::Units, "unit file"),
        (Section::Stale, "path"),
    ];
    let number = |section| gone.iter().filter(|one| one.section == section).count();
    let kinds = kinds
        .into_iter()
        .map(|(section, noun)| (number(section), noun));
    let kinds: Vec<String> = kinds
        .filter(|(number, _)| *number > 0)
        .map(|(number, noun)| many(number, noun))
        .collect();
    let loses = |what: &str| {
        let mut paths = gone.iter().map(|one| one.step.path().to_string());
        paths.any(|path| path.contains(what))
    };
    let lost = [
        ("/kubelet.service", "the kubelet's units"),
        ("/.ssh/authorized_keys", "keys of core"),
    ];
    let lost = lost.into_iter().filter(|(what, _)| loses(what));
    let lost: Vec<&str> = lost.map(|(_, name)| name).collect();
    let number = gone.len();
    match (kinds.len(), lost.is_empty()) {
        (0 | 1, true) => format!("{number} removed"),
        (_, true) => format!("{number} removed ({})", kinds.join(", ")),
        (_, false) => format!(
            "{number} removed ({}, with {})",
            kinds.join(", "),
            lost.join(" and ")
        ),
    }
}

/// Returns true for a change that a person counts; a directory on the way to a file is none.
fn changes_here(step: &Step, section: Section) -> bool {
    match step {
        Step::Put { .. } | Step::Metadata { .. } => true,
        Step::MakeDirectory { .. } => section == Section::Nodes,
        Step::Remove { .. } => section == Section::Enablement,
        Step::RemoveDirectory { .. } => false,
    }
}

fn many(number: usize, noun: &str) -> String {
    match (number, noun) {
        (1, _) => format!("1 {noun}"),
        (_, "change of core") => format!("{number} changes of core"),
        (_, "file of core") => format!("{number} files of core"),
        (_, "directory or link") => format!("{number} directories or links"),
        _ => count_noun(number, noun),
    }
}

/// Returns the changes of image, kernel arguments and packages, and the reboot.
pub fn ask_for_system(plan: &Plan, system: SystemAnswer, boot: RebootAnswer) -> String {
    let has = |is: fn(&OsStep) -> bool| plan.os.steps.iter().any(is);
    let arguments = has(|step| matches!(step, OsStep::Arguments { .. }));
    let packages = has(|step| matches!(step, OsStep::Packages { .. }));
    let words = match (system, plan.os.changes_image(), arguments) {
        (SystemAnswer::LeftAlone, ..) => "image and arguments left alone",
        (SystemAnswer::NotCompared, ..) => "image and arguments not compared",
        (SystemAnswer::Compared, false, false) => "image and arguments unchanged",
        (SystemAnswer::Compared, true, false) => "another image, arguments unchanged",
        (SystemAnswer::Compared, false, true) => "image unchanged, other arguments",
        (SystemAnswer::Compared, true, true) => "another image and other arguments",
    };
    let packages = if packages { ", other packages" } else { "" };
    let boot = match boot {
        RebootAnswer::None => "; no reboot",
        RebootAnswer::Later => "; needs a reboot afterwards",
        RebootAnswer::Now => "; reboots at the end",
        RebootAnswer::ByTheDaemon => "; the daemon drains and reboots",
        RebootAnswer::Elsewhere => "",
    };
    format!("{words}{packages}{boot}")
}
