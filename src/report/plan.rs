//! The plan as text and as JSON (`mco-rescue/plan/v1`).

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::daemon::described;
use super::digests::ShownDigests;
use super::{after, fingerprint, is_secret_step, line_width, wrap_text};
use crate::base::invocation::shell_words;
use crate::base::notice::Notice;
use crate::base::object::{Object, ObjectKind};
use crate::base::secrets::{has_hidden, reason_of_text, shown_arguments};
use crate::base::text::{count_noun, make_inline, one_line};
use crate::base::time::format_utc;
use crate::change::capsule::opened::CapsuleFacts;
use crate::change::plan::{
    Force, Held, OsPlan, OsStep, PackageChange, PackageRepository, Payload, Plan, PlannedStep,
    Section, Step,
};
use crate::change::source::Candidate;
use crate::config::render::NameHash;
use crate::host::root::RootPath;
use crate::judge::daemon::forecast::Forecast;
use crate::node::engine::Engine;

/// The header of a plan: machine and config.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Heading {
    /// Host name of the machine.
    pub node: String,
    /// Name and version of its system.
    pub system: String,
    /// A short name of the system, for a single line.
    #[serde(skip)]
    pub short_system: String,
    /// Name of the config.
    pub config: String,
    /// The check of the hash in the name; `None` if the name has no hash.
    #[serde(serialize_with = "hash_word")]
    pub name_hash: Option<NameHash>,
    /// SHA-256 of the object as received.
    pub digest: String,
    /// The source of the config.
    pub origin: String,
    /// Who signed it; `None` if it was read without a capsule.
    pub signed: Option<CapsuleFacts>,
    /// The reason for the choice.
    pub chosen: String,
    /// Path of the root.
    pub root: String,
    /// Name of the recorded config, or the reason why there is none.
    pub recorded: String,
    /// The sentences about the operating system of a root that does not run; empty for the running one.
    #[serde(skip)]
    pub of_disk: String,
    /// Other available configs that were not chosen.
    pub others: Vec<Candidate>,
}

#[derive(Serialize)]
struct PlanDocument<'a> {
    schema: &'static str,
    #[serde(flatten)]
    heading: &'a Heading,
    blockers: &'a [Notice],
    notices: &'a [Notice],
    os: &'a OsPlan,
    steps: Vec<StepEntry<'a>>,
    held: &'a [Held],
    force_file: Force,
    #[serde(serialize_with = "described")]
    daemon: &'a Option<Forecast>,
    /// Actions after the files; `null` if no running system is affected.
    after: Option<Value>,
}

#[derive(Serialize)]
struct StepEntry<'a> {
    section: Section,
    why: &'a str,
    secret: bool,
    /// Without digests of secret contents, because short secrets could be guessed from them.
    #[serde(flatten)]
    step: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<&'a str>,
}

fn hash_word<S: Serializer>(hash: &Option<NameHash>, out: S) -> Result<S::Ok, S::Error> {
    hash.as_ref().map(NameHash::short_name).serialize(out)
}

/// Returns the result of the hash check as text.
fn hash_words(hash: &NameHash) -> String {
    match hash {
        NameHash::Right => "right: the contents are those of the name".to_owned(),
        NameHash::Wrong => {
            "WRONG: the contents were changed since the config got its name".to_owned()
        }
        NameHash::Missing => "none in the name, so the contents cannot be checked".to_owned(),
        NameHash::Unknown(why) => format!("not checked: {why}"),
    }
}

/// Diffs by path, prepared by the caller, who may read files.
pub type Diffs = BTreeMap<RootPath, String>;

/// Returns the plan as JSON. `daemon`: its behavior after the plan.
pub fn to_json(
    heading: &Heading,
    plan: &Plan,
    diffs: &Diffs,
    daemon: &Option<Forecast>,
) -> serde_json::Result<String> {
    let entry = |planned: &'_ PlannedStep| (planned.section, is_secret_step(planned));
    let steps = plan.steps.iter().map(|planned| {
        let (section, secret) = entry(planned);
        let diff = diffs.get(planned.step.path()).map(String::as_str);
        // Removed files are not inspected, so they may contain a secret whatever their mode is.
        let is_removed = matches!(planned.step, Step::Remove { .. });
        let has_secret =
            secret || is_removed || diff.is_some_and(has_hidden) || brings_secret(planned);
        let step = shown_step(&planned.step, has_secret)?;
        Ok(StepEntry {
            section,
            why: &planned.why,
            secret,
            step,
            label: planned.label.as_deref(),
            diff,
        })
    });
    let document = PlanDocument {
        schema: "mco-rescue/plan/v1",
        heading,
        blockers: &plan.blockers,
        notices: &plan.notices_before(),
        os: &plan.os,
        steps: steps.collect::<serde_json::Result<_>>()?,
        held: &plan.held,
        force_file: plan.force,
        daemon,
        after: plan.after.as_ref().map(after::to_json),
    };
    super::pretty(&document)
}

fn shown_step(step: &Step, is_secret: bool) -> serde_json::Result<Value> {
    let mut shown = serde_json::to_value(step)?;
    for side in ["new", "old"].into_iter().filter(|_| is_secret) {
        if let Some(digest) = shown.get_mut(side).and_then(|side| side.get_mut("sha256")) {
            *digest = Value::Null;
        }
    }
    Ok(shown)
}

/// Returns true if the content that a step writes contains a secret.
fn brings_secret(planned: &PlannedStep) -> bool {
    let has_secret = |bytes: &[u8]| reason_of_text(&String::from_utf8_lossy(bytes)).is_some();
    match &planned.payload {
        Payload::Bytes(bytes) => has_secret(bytes),
        Payload::Contents(contents) => contents.bytes().is_ok_and(|bytes| has_secret(&bytes)),
        _ => false,
    }
}

/// Returns the operating system part, staged by `pivot`, as JSON.
pub fn os_json(plan: &OsPlan) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct PivotDocument<'a> {
        schema: &'static str,
        #[serde(flatten)]
        plan: &'a OsPlan,
    }
    let document = PivotDocument {
        schema: "mco-rescue/pivot/v1",
        plan,
    };
    super::pretty(&document)
}

/// The level of detail of a plan's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Sections and counts.
    Counts,
    /// Every change, with its diff.
    Changes,
    /// Also lists directories and backup copies one by one.
    All,
}

/// Returns the plan as text.
pub fn to_text(heading: &Heading, plan: &Plan, diffs: &Diffs, detail: Detail) -> String {
    let mut out = machine_line(heading);
    out.push_str(&format!(
        "{:<10}{}\n",
        "Config",
        make_inline(&heading.config)
    ));
    if let Some(hash) = &heading.name_hash {
        out.push_str(&format!("{:<10}", "Hash"));
        out.push_str(wrap_text(&hash_words(hash), 10).trim_start());
    }
    let signed = heading.signed.as_ref().map(ToString::to_string);
    if let Some(signed) = signed {
        out.push_str(&format!("{:<10}", "Signed by"));
        out.push_str(wrap_text(&signed, 10).trim_start());
    }
    for (label, value) in [
        ("From", &heading.origin),
        ("Reason", &heading.chosen),
        ("Recorded", &heading.recorded),
    ] {
        out.push_str(&format!("{label:<10}{}\n", one_line(value)));
    }
    out.push_str(&others_text(heading));
    out.push('\n');
    out.push_str(&notices_text("Blockers", &plan.blockers));
    out.push_str(&operating_system(&plan.os));
    let mut shown = ShownDigests::default();
    let mut out = shown.shorten(&out);
    // Diffs stay as they are.
    if plan.steps.is_empty() {
        out.push_str(&no_changes(heading, plan));
    } else if detail == Detail::Counts {
        out.push_str(&counts(plan));
    } else {
        out.push_str(&changes(plan, diffs, detail == Detail::All));
        out.push_str(&held(&plan.held));
    }
    out + &shown.shorten(&what_follows(plan, detail))
}

/// Returns the actions after the files, and the notices.
fn what_follows(plan: &Plan, detail: Detail) -> String {
    let mut out = String::new();
    out.push_str(&plan.after.as_ref().map(after::to_text).unwrap_or_default());
    let notices = plan.notices_before();
    match detail {
        Detail::Counts if notices.is_empty() => {}
        Detail::Counts => {
            let said = count_noun(notices.len(), "notice");
            out.push_str(&format!("{said}, shown without --summary.\n\n"));
        }
        Detail::Changes => {
            let said = collapse_notices(&notices, " (-v lists them)");
            out.push_str(&notices_text("Notices", &said));
        }
        Detail::All => out.push_str(&notices_text("Notices", &notices)),
    }
    out
}

/// Returns the configs that were not used.
fn others_text(heading: &Heading) -> String {
    let mut out = String::new();
    for (index, other) in heading.others.iter().enumerate() {
        let label = if index == 0 { "Not used" } else { "" };
        let when = other.fetched.map(|at| format!(", {}", format_utc(at)));
        let when = when.unwrap_or_default();
        out.push_str(&format!("{label:<10}{}{when}\n", make_inline(&other.name)));
        let origin = match other.name_matches {
            Some(false) => format!(
                "from {}; its hash does NOT match the contents",
                other.origin
            ),
            _ => format!("from {}", other.origin),
        };
        out.push_str(&wrap_text(&origin, 14));
        out.push_str(&wrap_text(&other.why, 14));
    }
    out
}

/// Merges notices with the same message into one, with the number of paths; `more` says where the full list is.
pub fn collapse_notices(list: &[Notice], more: &str) -> Vec<Notice> {
    let mut all: Vec<(Notice, usize)> = Vec::new();
    for notice in list {
        match all
            .iter_mut()
            .find(|(known, _)| known.message == notice.message)
        {
            Some((_, others)) => *others += 1,
            None => all.push((notice.clone(), 0)),
        }
    }
    let said = all.into_iter().map(|(notice, others)| match others {
        0 => notice,
        others => Notice::new(
            format!("{} and {others} more", notice.subject),
            format!("{}{more}", notice.message),
        ),
    });
    said.collect()
}

/// Returns the machine that will be changed, with which every plan begins.
pub fn machine_line(heading: &Heading) -> String {
    let lines = [
        ("Node", &heading.node),
        ("System", &heading.system),
        ("Root", &heading.root),
    ];
    let line = |(label, value): (&str, &String)| format!("{label:<10}{}\n", make_inline(value));
    lines.into_iter().map(line).collect()
}

/// Returns a plan that was refused because this is the wrong machine.
pub fn refused_text(heading: &Heading, blockers: &[Notice]) -> String {
    format!(
        "{}\n{}",
        machine_line(heading),
        notices_text("Blockers", blockers)
    )
}

/// Returns the plan of a node with an interrupted run, with the paths that remain from that run.
pub fn unfinished_text(heading: &Heading, plan: &Plan, left: &[RootPath]) -> String {
    let config = format!("{:<10}{}\n\n", "Config", make_inline(&heading.config));
    let left = left.iter().map(|path| format!("  {path}\n"));
    machine_line(heading)
        + &config
        + &notices_text("Blockers", &plan.blockers)
        + &notices_text("After the interrupted run is finished", &plan.notices)
        + &left.collect::<String>()
}

/// Returns the steps for the operating system; empty if there are none.
pub fn operating_system(os: &OsPlan) -> String {
    if os.is_empty() {
        return String::new();
    }
    let mut out = if os.needs_reboot() {
        "Operating system, staged before the files, in force after a reboot:\n".to_owned()
    } else {
        "Operating system, before the files; the running one stays:\n".to_owned()
    };
    for step in &os.steps {
        let text = match step {
            OsStep::Pin { deployment, .. } => {
                let short = deployment.get(..12).unwrap_or(deployment);
                format!("pin the running deployment ({short}) for a rollback")
            }
            OsStep::DropStaged { what } => format!("drop the staged deployment: {what}"),
            OsStep::Stay { what, .. } => {
                format!(
                    "the next boot enters the running deployment again, not {what}, which is kept"
                )
            }
            OsStep::Import {
                from,
                image,
                objects,
                bytes,
                ..
            } => format!(
                "import {image} from {from}: {}, {} MB",
                count_noun(*objects, "object"),
                bytes.div_ceil(1_000_000)
            ),
            OsStep::Bring { from, image } => format!("copy {image} from {from}"),
            OsStep::Image { from, to } if from.is_empty() => format!("image {to}"),
            OsStep::Image { from, to } => format!("image {to}, instead of {from}"),
            OsStep::Kept { from, to, commit } => {
                let short = commit.get(..12).unwrap_or(commit);
                format!("image {to}, instead of {from}: it is on the node ({short}), no download")
            }
            OsStep::Arguments { changes } => {
                format!(
                    "kernel arguments {}",
                    shell_words(&shown_arguments(changes))
                )
            }
            OsStep::Repository(PackageRepository::Directory(from)) => {
                format!("packages come from {from}")
            }
            OsStep::Repository(PackageRepository::Image(image)) => {
                format!("packages come from {image}")
            }
            OsStep::Packages { what, command } => {
                let what = match what {
                    PackageChange::KernelBack => "the image's own kernel",
                    PackageChange::Kernel => "another kernel",
                    PackageChange::Extensions => "extensions",
                };
                // bootc has no such command, and the plan refuses.
                let program = match os.engine {
                    Engine::RpmOstree => "rpm-ostree ",
                    Engine::Bootc => "",
                };
                format!("{what}: {program}{}", command.join(" "))
            }
        };
        out.push_str("  - ");
        out.push_str(wrap_text(&text, 4).trim_start());
    }
    if os.waits_for_reboot {
        out.push_str("  - nothing more to stage; only the reboot is left\n");
    }
    out.push('\n');
    out
}

/// Title of the list of blockers.
const BLOCKERS: &str = "Blockers";

/// Returns a titled list; empty if the list is empty.
pub fn notices_text(title: &str, list: &[Notice]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let mut out = format!("{title} ({}):\n", list.len());
    out.extend(list.iter().map(bullet));
    out.push('\n');
    out
}

fn bullet(notice: &Notice) -> String {
    format!("  - {}", wrap_text(&notice.to_string(), 4).trim_start())
}

/// Number of lines that stay visible above the prompt of a console.
const LINES_IN_SIGHT: usize = 22;
/// Maximum number of blockers that are repeated.
const SAID_AGAIN: usize = 5;

/// Returns the refusal of a run, as the last lines of its output. The blockers are repeated unless they are still visible on a
/// console, with what `shown` has below them.
pub fn refuse_with(refusal: &str, blockers: &[Notice], shown: &str) -> String {
    let below = shown.find(BLOCKERS).map_or("", |at| &shown[at..]);
    if below.lines().count() <= LINES_IN_SIGHT {
        return format!("{refusal}: see the blockers above");
    }
    let said = blockers.iter().take(SAID_AGAIN);
    let mut out = format!("{refusal}:\n");
    out.extend(said.map(bullet));
    if let Some(more @ 1..) = blockers.len().checked_sub(SAID_AGAIN) {
        out += &format!("  and {more} more, above");
    }
    out.trim_end().to_owned()
}

fn held(all: &[Held]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut out = "Flags cleared for the renames, and set again afterwards:\n".to_owned();
    for held in all {
        let path = make_inline(&held.path.to_string());
        out.push_str(&format!("    {path}  {}\n", held.flags.words()));
    }
    out + "\n"
}

const SECTIONS: [(Section, &str); 9] = [
    (Section::Accounts, "Users and groups"),
    (Section::Users, "Users"),
    (Section::Nodes, "Directories and links"),
    (Section::Files, "Files"),
    (Section::Units, "Units"),
    (Section::Enablement, "Enablement"),
    (Section::Stale, "No longer in the config"),
    (Section::Originals, "Originals kept for the daemon"),
    (Section::Records, "Records of the daemon"),
];

/// Returns the text that replaces the list if there are no steps. The operating system is compared on the running node only.
fn no_changes(heading: &Heading, plan: &Plan) -> String {
    let said = match (plan.blockers.is_empty(), plan.os.is_empty()) {
        (false, _) => return String::new(),
        (true, false) => "No file, unit or record changes.",
        // No config is looked at.
        (true, true) if heading.digest.is_empty() => "No file, unit or record changes.",
        (true, true) if heading.root == "/" => "Nothing to do: the node matches the config.",
        (true, true) if heading.of_disk.is_empty() => {
            "Nothing to do: files, units, users, OS image and kernel arguments match the config."
        }
        (true, true) => {
            let said = "Nothing to do here: files, units and users match the config.\n";
            return said.to_owned() + &wrap_text(&heading.of_disk, 0) + "\n";
        }
    };
    format!("{said}\n\n")
}

/// Returns the number of steps by section and kind.
fn counts(plan: &Plan) -> String {
    let mut out = format!("Changes ({}):\n", plan.steps.len());
    for (section, title) in SECTIONS {
        let steps = plan.steps.iter().filter(|one| one.section == section);
        let mut kinds = [
            (0, "new"),
            (0, "changed"),
            (0, "removed"),
            (0, "directories made"),
        ];
        for planned in steps {
            let kind = match &planned.step {
                Step::Put { old: None, .. } => 0,
                Step::Put { .. } | Step::Metadata { .. } => 1,
                Step::Remove { .. } | Step::RemoveDirectory { .. } => 2,
                Step::MakeDirectory { .. } => 3,
            };
            if let Some((number, _)) = kinds.get_mut(kind) {
                *number += 1;
            }
        }
        let all = kinds.iter().filter(|(number, _)| *number > 0);
        let all: Vec<String> = all
            .map(|(number, word)| format!("{number} {word}"))
            .collect();
        if !all.is_empty() {
            out.push_str(&format!("  {title:<30}  {}\n", all.join(", ")));
        }
    }
    out + "\n"
}

fn changes(plan: &Plan, diffs: &Diffs, verbose: bool) -> String {
    let mut out = format!("Changes ({}):\n", plan.steps.len());
    for (section, title) in SECTIONS {
        let steps: Vec<_> = plan
            .steps
            .iter()
            .filter(|planned| planned.section == section)
            .collect();
        let brief = |planned: &&&PlannedStep| {
            let on_the_way = matches!(
                planned.step,
                Step::MakeDirectory { .. } | Step::RemoveDirectory { .. }
            );
            let listed = matches!(section, Section::Nodes | Section::Accounts);
            !verbose && !listed && (section == Section::Originals || on_the_way)
        };
        if steps.is_empty() {
            continue;
        }
        // A rollback restores what its run removed.
        let is_restored =
            section == Section::Stale && steps.iter().all(|planned| planned.step.sign() == '+');
        let title = if is_restored {
            "Removed by that run"
        } else {
            title
        };
        out.push_str(&format!("  {title}\n"));
        for planned in steps.iter().filter(|planned| !brief(planned)) {
            out.push_str(&step(planned));
            if let Some(diff) = diffs.get(planned.step.path()) {
                diff.lines()
                    .for_each(|line| out.push_str(&format!("        {line}\n")));
            }
        }
        let hidden: Vec<char> = steps
            .iter()
            .filter(brief)
            .map(|planned| planned.step.sign())
            .collect();
        out.push_str(&counted(section, &hidden));
    }
    out.push('\n');
    out
}

/// Returns the steps that are not listed: a line each for new, changed and removed ones.
fn counted(section: Section, signs: &[char]) -> String {
    let mut out = String::new();
    for sign in ['+', '~', '-'] {
        let number = signs.iter().filter(|one| **one == sign).count();
        let what = match (section, number) {
            (_, 0) => continue,
            (Section::Originals, _) => count_noun(number, "original"),
            (_, 1) => "1 directory".to_owned(),
            _ => format!("{number} directories"),
        };
        out.push_str(&format!("    {sign} {what} (-v lists them)\n"));
    }
    out
}

fn step(planned: &PlannedStep) -> String {
    let path = make_inline(&planned.step.path().to_string());
    let detail = match &planned.step {
        Step::MakeDirectory { mode, .. } => format!("directory, {mode:04o}"),
        Step::Put { new, .. } if is_secret_step(planned) => {
            format!("{}; {}", planned.why, fingerprint(new))
        }
        Step::Put { new, old, .. } => match old {
            Some(old) if old.mode != new.mode && !is_link(old) && !is_link(new) => {
                format!("{}; mode {:04o} -> {:04o}", planned.why, old.mode, new.mode)
            }
            _ => put_detail(planned, new),
        },
        Step::Remove { .. } | Step::RemoveDirectory { .. } => planned.why.to_string(),
        Step::Metadata { new, old, .. } => format!(
            "{}; {:04o} {}:{} -> {:04o} {}:{}",
            planned.why, old.mode, old.uid, old.gid, new.mode, new.uid, new.gid
        ),
    };
    let one_line = format!("    {} {path}  {detail}", planned.step.sign());
    if one_line.chars().count() <= line_width() {
        return one_line + "\n";
    }
    format!(
        "    {} {path}\n{}",
        planned.step.sign(),
        wrap_text(&detail, 8)
    )
}

/// Returns true if it is a symbolic link, whose mode means nothing.
fn is_link(object: &Object) -> bool {
    matches!(object.kind, ObjectKind::Symlink { .. })
}

fn put_detail(planned: &PlannedStep, new: &Object) -> String {
    match &new.kind {
        ObjectKind::Symlink { target } => {
            format!("{}; link to {}", planned.why, target)
        }
        _ => format!("{}; {:04o}, {} bytes", planned.why, new.mode, new.size()),
    }
}
