//! The results of `install`, as text and as JSON (`mco-rescue/install/v1`).

use serde::Serialize;
use serde_json::json;

use super::wrap;
use crate::base::invocation::{ON_THE_NODE, mco_rescue, with_commands_apart};
use crate::base::reason::Reason;
use crate::base::text::{count_noun, inline};
use crate::change::install::{Content, FoundItem, ItemStanding, RECOVER};
use crate::change::plan::restorecon_command;
use crate::host::root::RootPath;
use crate::node::command::systemctl::StartResult;

/// The check that the units can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitCheck {
    /// The root is not that of the running system.
    OtherRoot,
    /// systemd is not running here.
    NoSystemd,
    /// An unfinished run is pending, and the unit would recover it.
    Pending,
    /// The unit is masked, or a config manages it.
    NotOurs,
    /// The unit was started, with this result.
    Started(StartResult),
    /// systemd could not be queried; the reason.
    Unknown(String),
}

impl UnitCheck {
    /// Returns true if systemd runs here, but will not recover an interrupted run.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Started(result) => !matches!(result, StartResult::Ran | StartResult::Masked),
            Self::Unknown(_) => true,
            Self::OtherRoot | Self::NoSystemd | Self::Pending | Self::NotOurs => false,
        }
    }
}

/// The result of an installation.
#[derive(Debug)]
pub struct Installed<'a> {
    /// Path of the root.
    pub root: String,
    /// Every item, with its previous state.
    pub found: &'a [FoundItem],
    /// Files that could not be labelled, with the reason.
    pub unlabelled: &'a [(RootPath, Reason)],
    /// The check that the units can start.
    pub check: UnitCheck,
}

/// The result of a removal.
#[derive(Debug)]
pub struct Removed {
    /// Path of the root.
    pub root: String,
    /// Removed paths.
    pub removed: Vec<RootPath>,
    /// Paths that remain, with the reason.
    pub left: Vec<(RootPath, &'static str)>,
}

/// A written archive.
#[derive(Debug, Serialize)]
pub struct ArchiveReport {
    /// Path of the archive.
    pub file: String,
    /// Size in bytes.
    pub size: usize,
    /// SHA-256 in lower-case hex.
    pub sha256: String,
    /// Names of the configs in it.
    pub configs: Vec<String>,
}

const SCHEMA: &str = "mco-rescue/install/v1";

/// Returns the word for the action on an item.
fn done(standing: ItemStanding) -> &'static str {
    match standing {
        ItemStanding::Right => "kept",
        ItemStanding::Missing => "placed",
        ItemStanding::Different => "replaced",
        ItemStanding::Mislabelled => "relabelled",
        ItemStanding::Masked => "masked",
        ItemStanding::Managed => "managed",
    }
}

/// Returns the result as JSON.
pub fn to_json(installed: &Installed<'_>) -> serde_json::Result<String> {
    let item = |found: &FoundItem| json!({"path": found.item.path, "done": done(found.standing)});
    let items: Vec<_> = installed.found.iter().map(item).collect();
    let unlabelled = installed.unlabelled.iter();
    let unlabelled: Vec<_> = unlabelled.map(|(path, _)| path).collect();
    let (check, said) = check_words(&installed.check);
    super::pretty(&json!({
        "schema": SCHEMA,
        "action": "install",
        "root": installed.root,
        "items": items,
        "unlabelled": unlabelled,
        "check": check,
        "check_said": said,
    }))
}

/// Returns the result as text.
pub fn to_text(installed: &Installed<'_>) -> String {
    let mut out = format!("Root      {}\n\n", inline(&installed.root));
    if !installed.found.iter().any(FoundItem::is_due) {
        out.push_str("Everything is in place already; nothing was written.\n");
    }
    for found in installed.found {
        out.push_str(&line(found));
    }
    out.push('\n');
    if !installed.unlabelled.is_empty() {
        out.push_str(&wrap(&unlabelled(installed.unlabelled), 0));
    }
    out.push_str(&wrap(&check_words(&installed.check).1, 0));
    out.push_str(&with_commands_apart(&format!(
        "Next: {}\n",
        next(installed)
    )));
    out
}

fn line(found: &FoundItem) -> String {
    let path = &found.item.path;
    let what = match (found.item.content, found.standing) {
        (_, ItemStanding::Masked) => "masked by hand, left alone",
        (_, ItemStanding::Managed) => "managed by the node's config, left alone",
        (Content::Link(_), _) => "enables it",
        (Content::Program, _) => "this program",
        (Content::Text(_), _) => "",
    };
    let line = format!("  {:<10} {path}  {what}", done(found.standing));
    line.trim_end().to_owned() + "\n"
}

/// Returns one word for JSON, and a sentence for the text.
fn check_words(check: &UnitCheck) -> (&'static str, String) {
    let (word, said) = match check {
        UnitCheck::OtherRoot => (
            "other-root",
            "The units' start could not be checked here: the root is not that of the running system.",
        ),
        UnitCheck::NoSystemd => (
            "no-systemd",
            "The units' start could not be checked here: systemd does not run.",
        ),
        UnitCheck::Pending => (
            "pending",
            "The units' start was not checked: an earlier run is unfinished.",
        ),
        UnitCheck::NotOurs => (
            "not-ours",
            "No unit recovers an interrupted run at boot: it was left alone.",
        ),
        UnitCheck::Started(StartResult::Ran) => (
            "started",
            "systemd has read the units, and can start the recovery unit.",
        ),
        UnitCheck::Started(StartResult::NotStarted) => (
            "not-started",
            "systemd has read the units, but did not start the recovery unit.",
        ),
        UnitCheck::Started(StartResult::Masked) => (
            "masked",
            "No unit recovers an interrupted run at boot: it is masked.",
        ),
        UnitCheck::Started(StartResult::CannotRun) => (
            "cannot-run",
            "systemd may not run the program (203/EXEC): its SELinux label is wrong, or its file system is mounted \
             noexec.",
        ),
        UnitCheck::Started(StartResult::Failed(how)) => {
            return ("failed", format!("The recovery unit fails: {how}."));
        }
        UnitCheck::Unknown(why) => {
            return ("unknown", format!("systemd could not be queried: {why}."));
        }
    };
    (word, said.to_owned())
}

fn next(installed: &Installed<'_>) -> String {
    match &installed.check {
        // Run here, it would install into the machine that examines that root.
        UnitCheck::OtherRoot => format!("{ON_THE_NODE}mco-rescue install # it checks the units"),
        UnitCheck::NoSystemd => mco_rescue("status"),
        UnitCheck::Pending => format!("{}, then {}", mco_rescue("recover"), mco_rescue("install")),
        UnitCheck::NotOurs | UnitCheck::Started(StartResult::Masked) => {
            format!(
                "systemctl unmask {RECOVER}, then {} # or recover by hand after a power cut",
                mco_rescue("install")
            )
        }
        UnitCheck::Started(StartResult::Ran) => {
            format!(
                "{} # once; then the timer repeats it",
                mco_rescue("fetch --pool POOL --server HOST --ca FILE")
            )
        }
        UnitCheck::Started(StartResult::CannotRun) => {
            format!(
                "restorecon -Fv /usr/local/bin/mco-rescue, or findmnt -T /usr/local/bin, then {}",
                mco_rescue("install")
            )
        }
        UnitCheck::Started(StartResult::NotStarted | StartResult::Failed(_)) => {
            format!("journalctl -b -u {RECOVER}")
        }
        UnitCheck::Unknown(_) => format!("systemctl daemon-reload, then {}", mco_rescue("install")),
    }
}

fn unlabelled(unlabelled: &[(RootPath, Reason)]) -> String {
    let paths: Vec<RootPath> = unlabelled.iter().map(|(path, _)| path.clone()).collect();
    let why = unlabelled.first().map(|(_, why)| why.to_string());
    format!(
        "{} could not get the SELinux label of the policy ({}). Run {} on the node.",
        count_noun(paths.len(), "file"),
        why.unwrap_or_default(),
        restorecon_command(&paths),
    )
}

/// Returns the notice in a plan about the recovery unit, which `apply` installs before its first step.
pub fn beforehand_text(found: &[FoundItem]) -> String {
    let due = found.iter().filter(|found| found.is_due());
    let paths: Vec<String> = due.map(|found| found.item.path.to_string()).collect();
    format!(
        "the unit that finishes or undoes this run after a power cut is installed first; missing or different: {}. \
         `{}` removes it again",
        paths.join(", "),
        mco_rescue("install --remove"),
    )
}

/// Returns the message after that installation.
pub fn now_at_boot() -> String {
    format!(
        "installed /usr/local/bin/mco-rescue with {RECOVER}, which finishes or undoes this run at boot if it is interrupted"
    )
}

/// Returns what keeps an interrupted run from being recovered at boot.
pub fn problem_text(check: &UnitCheck, not_labelled: &[(RootPath, Reason)]) -> Option<String> {
    match check {
        UnitCheck::Started(StartResult::Ran) if not_labelled.is_empty() => None,
        UnitCheck::Started(StartResult::Ran) => Some(unlabelled(not_labelled)),
        UnitCheck::Started(StartResult::CannotRun) => Some(format!(
            "{} Run {}",
            check_words(check).1,
            "`restorecon -Fv /usr/local/bin/mco-rescue`"
        )),
        other => Some(check_words(other).1),
    }
}

/// The next step after a refusal to stage without the unit.
pub const NOT_COMPLETED: &str = "Or override it with --complete-by-hand, and run mco-rescue complete right after \
the reboot, before the kubelet starts";

/// The step that a person has to take.
pub const BY_HAND: &str = "Overridden as asked (--complete-by-hand): run mco-rescue complete right after the reboot, \
before the kubelet starts; keep the kubelet from starting until then: systemctl disable kubelet";

/// Returns the consequence of a missing recovery unit.
pub fn without_recovery(why: &str) -> String {
    let why = why.trim_end_matches('.');
    format!(
        "no unit will recover this run at boot: {why}. After a power cut run `{}` by hand",
        mco_rescue("recover")
    )
}

/// Returns the list before a removal.
pub fn about_to_remove(paths: &Removed) -> String {
    let mut out = format!("Root      {}\n\n", inline(&paths.root));
    if paths.removed.is_empty() {
        out.push_str("Nothing of mco-rescue is installed.\n");
    } else {
        out.push_str("To be removed, the last with cache and history:\n");
    }
    for path in &paths.removed {
        out.push_str(&format!("  {path}\n"));
    }
    out + &staying(&paths.left) + "\n"
}

fn staying(left: &[(RootPath, &'static str)]) -> String {
    let line = |(path, why): &(RootPath, &str)| format!("  left      {path}  {why}\n");
    left.iter().map(line).collect()
}

/// Returns the result of a removal as JSON.
pub fn removed_json(removed: &Removed) -> serde_json::Result<String> {
    let left = removed.left.iter();
    let left: Vec<_> = left
        .map(|(path, why)| json!({"path": path, "why": why}))
        .collect();
    super::pretty(&json!({
        "schema": SCHEMA,
        "action": "remove",
        "root": removed.root,
        "removed": removed.removed,
        "left": left,
    }))
}

/// Returns the result of a removal as text.
pub fn removed_text(removed: &Removed) -> String {
    let gone = match removed.removed.len() {
        0 => "Nothing to remove.".to_owned(),
        number => format!("Removed: {}.", count_noun(number, "path")),
    };
    format!(
        "{gone}\nNothing else is to be done. To install it again, run `{}` from any copy of the program.\n",
        mco_rescue("install")
    )
}

/// Returns a written archive as JSON.
pub fn archive_json(archive: &ArchiveReport) -> serde_json::Result<String> {
    let mut value = serde_json::to_value(archive)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("schema".to_owned(), SCHEMA.into());
        object.insert("action".to_owned(), "initramfs".into());
    }
    super::pretty(&value)
}

/// Returns a written archive as text.
pub fn archive_text(archive: &ArchiveReport) -> String {
    let mut out = format!(
        "Written   {}\n          {} bytes, sha256 {}\n",
        inline(&archive.file),
        archive.size,
        archive.sha256.get(..12).unwrap_or_default(),
    );
    for config in &archive.configs {
        out.push_str(&format!("Config    {config}\n"));
    }
    out + "\nLoad it after the distribution's initramfs: a second file on the `initrd`\n\
           line of GRUB, a second `initrd` command of iPXE, or both in one file by `cat`.\n"
}
