//! What `install` put where, as text and as JSON (`mco-rescue/install/v1`).

use serde::Serialize;
use serde_json::json;

use super::wrap;
use crate::command::systemctl::StartResult;
use crate::install::{Content, Found, RECOVER, Standing};
use crate::invocation::mco_rescue;
use crate::plan::restorecon;
use crate::reason::Reason;
use crate::root::RootPath;
use crate::text::{count, inline};

/// Whether the units can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// The root is not that of the running system.
    OtherRoot,
    /// No systemd runs here.
    NoSystemd,
    /// An unfinished run would be recovered by it.
    Pending,
    /// The unit is masked, or a config is in charge of it.
    NotOurs,
    /// It was started, and ended so.
    Started(StartResult),
    /// systemd could not be asked; why.
    Unknown(String),
}

impl Check {
    /// Whether systemd runs here, and will not recover an interrupted run although it should.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Started(result) => !matches!(result, StartResult::Ran | StartResult::Masked),
            Self::Unknown(_) => true,
            Self::OtherRoot | Self::NoSystemd | Self::Pending | Self::NotOurs => false,
        }
    }
}

/// What came of an installation.
#[derive(Debug)]
pub struct Installed<'a> {
    /// The root.
    pub root: String,
    /// Every item, as it stood before.
    pub found: &'a [Found],
    /// What could not be labelled.
    pub unlabelled: &'a [(RootPath, Reason)],
    /// Whether the units can start.
    pub check: Check,
}

/// What came of a removal.
#[derive(Debug)]
pub struct Removed {
    /// The root.
    pub root: String,
    /// What is gone.
    pub removed: Vec<RootPath>,
    /// What is still there, and why.
    pub left: Vec<(RootPath, &'static str)>,
}

/// An archive that was written.
#[derive(Debug, Serialize)]
pub struct Archive {
    /// Where.
    pub file: String,
    /// Bytes.
    pub size: usize,
    /// Lower-case hex.
    pub sha256: String,
    /// The configs in it.
    pub configs: Vec<String>,
}

const SCHEMA: &str = "mco-rescue/install/v1";

/// The word for what was done about an item.
fn done(standing: Standing) -> &'static str {
    match standing {
        Standing::Right => "kept",
        Standing::Missing => "placed",
        Standing::Different => "replaced",
        Standing::Mislabelled => "relabelled",
        Standing::Masked => "masked",
        Standing::Managed => "managed",
    }
}

/// For programs.
pub fn json(installed: &Installed<'_>) -> serde_json::Result<String> {
    let item = |found: &Found| json!({"path": found.item.path, "done": done(found.standing)});
    let items: Vec<_> = installed.found.iter().map(item).collect();
    let unlabelled = installed.unlabelled.iter();
    let unlabelled: Vec<_> = unlabelled.map(|(path, _)| path).collect();
    let (check, said) = check_words(&installed.check);
    pretty(&json!({
        "schema": SCHEMA,
        "action": "install",
        "root": installed.root,
        "items": items,
        "unlabelled": unlabelled,
        "check": check,
        "check_said": said,
    }))
}

fn pretty(value: &serde_json::Value) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(|text| text + "\n")
}

/// For people.
pub fn text(installed: &Installed<'_>) -> String {
    let mut out = format!("Root      {}\n\n", inline(&installed.root));
    if !installed.found.iter().any(Found::is_due) {
        out.push_str("Everything is there already; nothing was written.\n");
    }
    for found in installed.found {
        out.push_str(&line(found));
    }
    out.push('\n');
    if !installed.unlabelled.is_empty() {
        out.push_str(&wrap(&unlabelled(installed.unlabelled), 0));
    }
    out.push_str(&wrap(&check_words(&installed.check).1, 0));
    out.push_str(&format!("Next: {}\n", next(installed)));
    out
}

fn line(found: &Found) -> String {
    let path = &found.item.path;
    let what = match (found.item.content, found.standing) {
        (_, Standing::Masked) => "masked by somebody, left alone",
        (_, Standing::Managed) => "the node's config is in charge of it, left alone",
        (Content::Link(_), _) => "enables it",
        (Content::Program, _) => "this program",
        (Content::Text(_), _) => "",
    };
    let line = format!("  {:<10} {path}  {what}", done(found.standing));
    line.trim_end().to_owned() + "\n"
}

/// One word for programs, and a sentence for people.
fn check_words(check: &Check) -> (&'static str, String) {
    let (word, said) = match check {
        Check::OtherRoot => (
            "other-root",
            "Whether the units can start could not be checked here: the root is not that of the running system.",
        ),
        Check::NoSystemd => (
            "no-systemd",
            "Whether the units can start could not be checked here: systemd does not run.",
        ),
        Check::Pending => (
            "pending",
            "Whether the units can start was not checked: an earlier run is unfinished.",
        ),
        Check::NotOurs => (
            "not-ours",
            "Nothing recovers an interrupted run at boot: the unit for that was left alone.",
        ),
        Check::Started(StartResult::Ran) => (
            "started",
            "systemd has read the units, and can start the one that recovers.",
        ),
        Check::Started(StartResult::NotStarted) => (
            "not-started",
            "systemd has read the units, but did not start the one that recovers.",
        ),
        Check::Started(StartResult::Masked) => (
            "masked",
            "Nothing recovers an interrupted run at boot: the unit for that is masked.",
        ),
        Check::Started(StartResult::CannotRun) => (
            "cannot-run",
            "systemd may not run the program (203/EXEC): its SELinux label is wrong, or its file system is mounted \
             noexec.",
        ),
        Check::Started(StartResult::Failed(how)) => {
            return ("failed", format!("The unit that recovers fails: {how}."));
        }
        Check::Unknown(why) => {
            return ("unknown", format!("systemd could not be asked: {why}."));
        }
    };
    (word, said.to_owned())
}

fn next(installed: &Installed<'_>) -> String {
    match &installed.check {
        Check::OtherRoot => {
            "boot it, then mco-rescue install there, which checks the units".to_owned()
        }
        Check::NoSystemd => mco_rescue("status"),
        Check::Pending => format!("{}, then {}", mco_rescue("recover"), mco_rescue("install")),
        Check::NotOurs | Check::Started(StartResult::Masked) => {
            format!(
                "systemctl unmask {RECOVER}, then {}; or recover by hand after a power cut",
                mco_rescue("install")
            )
        }
        Check::Started(StartResult::Ran) => {
            format!(
                "{}, once; the timer goes on from there",
                mco_rescue("fetch --pool POOL --server HOST --ca FILE")
            )
        }
        Check::Started(StartResult::CannotRun) => {
            format!(
                "restorecon -Fv /usr/local/bin/mco-rescue, or findmnt -T /usr/local/bin; then {}",
                mco_rescue("install")
            )
        }
        Check::Started(StartResult::NotStarted | StartResult::Failed(_)) => {
            format!("journalctl -b -u {RECOVER}")
        }
        Check::Unknown(_) => format!("systemctl daemon-reload, then {}", mco_rescue("install")),
    }
}

fn unlabelled(unlabelled: &[(RootPath, Reason)]) -> String {
    let paths: Vec<RootPath> = unlabelled.iter().map(|(path, _)| path.clone()).collect();
    let why = unlabelled.first().map(|(_, why)| why.to_string());
    format!(
        "{} could not get the SELinux label of the policy ({}). Run {} on the node.",
        count(paths.len(), "file"),
        why.unwrap_or_default(),
        restorecon(&paths),
    )
}

/// What a plan says of what `apply` puts in place before its first step.
pub fn beforehand(found: &[Found]) -> String {
    let due = found.iter().filter(|found| found.is_due());
    let paths: Vec<String> = due.map(|found| found.item.path.to_string()).collect();
    format!(
        "what finishes or undoes this run at boot after a power cut is installed first; missing or different is: {}. \
         `{}` takes that away again",
        paths.join(", "),
        mco_rescue("install --remove"),
    )
}

/// After that.
pub fn now_at_boot() -> String {
    format!(
        "installed /usr/local/bin/mco-rescue with {RECOVER}, which finishes or undoes this run at boot if it is cut off"
    )
}

/// What keeps an interrupted run from being recovered at boot.
pub fn problem(check: &Check, not_labelled: &[(RootPath, Reason)]) -> Option<String> {
    match check {
        Check::Started(StartResult::Ran) if not_labelled.is_empty() => None,
        Check::Started(StartResult::Ran) => Some(unlabelled(not_labelled)),
        Check::Started(StartResult::CannotRun) => Some(format!(
            "{} Run {}",
            check_words(check).1,
            "`restorecon -Fv /usr/local/bin/mco-rescue`"
        )),
        other => Some(check_words(other).1),
    }
}

/// The way past a refusal to stage without the unit.
pub const NOT_COMPLETED: &str = "Or pass it over with --complete-by-hand, and run mco-rescue complete right after \
the reboot, before the kubelet starts";

/// The work that a person then has to do.
pub const BY_HAND: &str = "Passed over as asked (--complete-by-hand): run mco-rescue complete right after the reboot, \
before the kubelet starts; keep that from starting until then: systemctl disable kubelet";

/// The consequence.
pub fn without_recovery(why: &str) -> String {
    let why = why.trim_end_matches('.');
    format!(
        "no unit will recover this run at boot: {why}. After a power cut run `{}` by hand",
        mco_rescue("recover")
    )
}

/// What a removal is about to do.
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

/// For programs.
pub fn removed_json(removed: &Removed) -> serde_json::Result<String> {
    let left = removed.left.iter();
    let left: Vec<_> = left
        .map(|(path, why)| json!({"path": path, "why": why}))
        .collect();
    pretty(&json!({
        "schema": SCHEMA,
        "action": "remove",
        "root": removed.root,
        "removed": removed.removed,
        "left": left,
    }))
}

/// For people.
pub fn removed_text(removed: &Removed) -> String {
    let gone = match removed.removed.len() {
        0 => "Nothing was there to be removed.".to_owned(),
        number => format!("Removed: {}.", count(number, "path")),
    };
    format!(
        "{gone}\nNext: nothing. To have it back, run `{}` from any copy of the program.\n",
        mco_rescue("install")
    )
}

/// For programs.
pub fn archive_json(archive: &Archive) -> serde_json::Result<String> {
    let mut value = serde_json::to_value(archive)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("schema".to_owned(), SCHEMA.into());
        object.insert("action".to_owned(), "initramfs".into());
    }
    pretty(&value)
}

/// For people.
pub fn archive_text(archive: &Archive) -> String {
    let mut out = format!(
        "Written   {}\n          {} bytes, sha256 {}\n",
        inline(&archive.file),
        archive.size,
        archive.sha256.get(..12).unwrap_or_default(),
    );
    for config in &archive.configs {
        out.push_str(&format!("Config    {config}\n"));
    }
    out + "\nNext: load it after the distribution's initramfs: a second file on the `initrd`\n\
           line of GRUB, a second `initrd` command of iPXE, or both in one file by `cat`.\n"
}
