//! What recovery did, as text and as JSON (`mco-rescue/recover/v1`).

use serde::Serialize;

use super::wrap;
use crate::root::RootPath;
use crate::systemd::changed::is_read_by_manager;
use crate::transaction::Recovered;
use crate::transaction::journal::ConfigRef;

/// Units that a boot had started before the recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// No unit file has changed.
    Unconcerned,
    /// These run from the files as they were before.
    Before(Vec<String>),
    /// The manager could not be asked; why.
    Unknown(String),
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    /// `nothing`, `swept`, `finished` or `undone`.
    result: &'static str,
    config: Option<&'a ConfigRef>,
    /// Paths that changed.
    changed: &'a [RootPath],
    /// At boot: the units that run from the files as they were before; null where that is not known.
    started_before: Option<&'a [String]>,
}

/// For programs. `units`: what is known of a boot that goes on.
pub fn json(recovered: &Recovered, units: Option<&Started>) -> serde_json::Result<String> {
    let (result, config) = match recovered {
        Recovered::Nothing => ("nothing", None),
        Recovered::Swept(config) => ("swept", Some(config)),
        Recovered::Finished(config, _) => ("finished", Some(config)),
        Recovered::Undone(config, _) => ("undone", Some(config)),
    };
    let document = Document {
        schema: "mco-rescue/recover/v1",
        result,
        config,
        changed: recovered.changed(),
        started_before: match units {
            Some(Started::Unconcerned) => Some(&[]),
            Some(Started::Before(units)) => Some(units),
            Some(Started::Unknown(_)) | None => None,
        },
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

/// For people. `started`: what is known of a boot that goes on.
pub fn text(recovered: &Recovered, started: Option<&Started>) -> String {
    let said = match recovered {
        Recovered::Nothing => return "Nothing to recover.\n".to_owned(),
        other => sentence(other),
    };
    let changed = recovered.changed();
    let next = match started {
        Some(Started::Unconcerned) => String::new(),
        Some(started) => wrap(&units(started), 0),
        None if changed.iter().any(is_read_by_manager) => {
            "Unit files have changed. On a running node: systemctl daemon-reload\n".to_owned()
        }
        None => String::new(),
    };
    wrap(&said, 0) + &next + "Next: mco-rescue verify\n"
}

/// What became of the units of a boot that goes on.
pub fn units(started: &Started) -> String {
    match started {
        Started::Unconcerned => "no unit file has changed".to_owned(),
        Started::Before(units) if units.is_empty() => {
            "systemd has read the changed unit files; none of their units had been started before"
                .to_owned()
        }
        Started::Before(units) => format!(
            "systemd has read the changed unit files; started before that, from the old ones: {}. \
             Next: systemctl restart {}",
            units.join(", "),
            units.join(" "),
        ),
        Started::Unknown(why) => format!(
            "unit files have changed, and systemd could not be asked which it had started from the old ones \
             ({why}). Next: systemctl daemon-reload, or reboot"
        ),
    }
}

/// What was done, in one sentence.
pub fn sentence(recovered: &Recovered) -> String {
    match recovered {
        Recovered::Nothing => "Nothing was pending.".to_owned(),
        Recovered::Swept(config) => {
            format!(
                "Left-overs of an interrupted run were removed; it had changed nothing ({}).",
                config.name
            )
        }
        Recovered::Finished(config, _) => format!(
            "An interrupted run was brought to its end ({}).",
            config.name
        ),
        Recovered::Undone(config, _) => format!("An interrupted run was undone ({}).", config.name),
    }
}
