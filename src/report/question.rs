//! The prompt before a change: the node, the number of changes, and the reboot.

use super::plan::Heading;
use crate::base::text::{count_noun, make_inline};
use crate::change::plan::{OsStep, Plan, Section, Step};

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
    let gone = gone.count();
    if gone > 0 {
        all.push(format!("{gone} removed"));
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
