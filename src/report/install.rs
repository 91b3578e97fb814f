//! The results of `install`, as text and as JSON (`mco-rescue/install/v1`).

use serde::Serialize;
use serde_json::json;

use super::wrap_text;
use crate::base::invocation::{ON_THE_NODE, mco_rescue, with_commands_apart};
use crate::base::reason::Reason;
use crate::base::text::{count_noun, make_inline};
use crate::change::install::units::{UnitCheck, describe_unlabelled};
use crate::change::install::{Content, FoundItem, ItemStanding, RECOVER};
use crate::host::root::RootPath;
use crate::node::command::systemctl::StartResult;

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
    let (check, said) = installed.check.describe_check();
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

/// Returns what an installation would do, as text.
pub fn foreseen_text(found: &[FoundItem]) -> String {
    if !found.iter().any(FoundItem::is_due) {
        return "Everything is in place already.\n".to_owned();
    }
    let lines: String = found
        .iter()
        .filter(|one| one.is_due())
        .map(|one| format!("  {}\n", one.item.path))
        .collect();
    format!("Files to write:\n{lines}")
}

/// Returns the result as text.
pub fn to_text(installed: &Installed<'_>) -> String {
    let mut out = format!("Root      {}\n\n", make_inline(&installed.root));
    if !installed.found.iter().any(FoundItem::is_due) {
        out.push_str("Everything is in place already; nothing was written.\n");
    }
    for found in installed.found {
        out.push_str(&line(found));
    }
    out.push('\n');
    if !installed.unlabelled.is_empty() {
        out.push_str(&wrap_text(&describe_unlabelled(installed.unlabelled), 0));
    }
    out.push_str(&wrap_text(&installed.check.describe_check().1, 0));
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
        UnitCheck::Started(
            StartResult::NotStarted | StartResult::OutOfMemory(_) | StartResult::Failed(_),
        ) => {
            format!("journalctl -b -u {RECOVER}")
        }
        UnitCheck::Unknown(_) => format!("systemctl daemon-reload, then {}", mco_rescue("install")),
    }
}

/// Returns the list before a removal.
pub fn about_to_remove(paths: &Removed) -> String {
    let mut out = format!("Root      {}\n\n", make_inline(&paths.root));
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
        "{gone}\nNothing else needs to be done. To install it again, run `{}` from any copy of the program.\n",
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
        make_inline(&archive.file),
        archive.size,
        archive.sha256.get(..12).unwrap_or_default(),
    );
    for config in &archive.configs {
        out.push_str(&format!("Config    {config}\n"));
    }
    out + "\nLoad it after the distribution's initramfs: a second file on the `initrd`\n\
           line of GRUB, a second `initrd` command of iPXE, or both in one file by `cat`.\n"
}
