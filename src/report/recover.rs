//! The results of a recovery, as text and as JSON (`mco-rescue/recover/v1`).

use serde::Serialize;

use super::wrap_text;
use crate::base::invocation::mco_rescue;
use crate::change::transaction::journal::ConfigRef;
use crate::change::transaction::{Direction, LeftPath, Pending, Recovered, RecoveryOutlook};
use crate::formats::systemd::changed::is_read_by_manager;
use crate::host::root::RootPath;
use crate::run::interrupted::{StartedUnits, describe_recovery as recovered_sentence};

#[derive(Serialize)]
struct Stays<'a> {
    path: &'a RootPath,
    why: &'a str,
}

#[derive(Serialize)]
struct RecoverDocument<'a> {
    schema: &'static str,
    /// `nothing`, `swept`, `finished`, `undone` or `given-up`.
    result: &'static str,
    config: Option<&'a ConfigRef>,
    /// Paths that changed.
    changed: &'a [RootPath],
    /// Paths that were left unchanged, each with the reason.
    left: Vec<Stays<'a>>,
    /// At boot: the units running from the old files; `null` if unknown.
    started_before: Option<&'a [String]>,
    /// At boot: the units now enabled, but too late for this boot; `null` if unknown.
    not_started: Option<&'a [String]>,
}

/// Returns the result as JSON. `units`: the units of a boot that continues.
pub fn to_json(recovered: &Recovered, units: Option<&StartedUnits>) -> serde_json::Result<String> {
    let (result, config) = match recovered {
        Recovered::Nothing => ("nothing", None),
        Recovered::Swept(config) => ("swept", Some(config)),
        Recovered::Finished(config, _) => ("finished", Some(config)),
        Recovered::Undone(config, _) => ("undone", Some(config)),
        Recovered::GivenUp(config, _) => ("given-up", Some(config)),
    };
    let known: Option<(&[String], &[String])> = match units {
        Some(StartedUnits::Unconcerned) => Some((&[], &[])),
        Some(StartedUnits::Read {
            before, too_late, ..
        }) => Some((before, too_late)),
        Some(StartedUnits::Unknown(_)) | None => None,
    };
    let document = RecoverDocument {
        schema: "mco-rescue/recover/v1",
        result,
        config,
        changed: recovered.changed_paths(),
        left: recovered.left_paths().iter().map(stays).collect(),
        started_before: known.map(|(before, _)| before),
        not_started: known.map(|(_, too_late)| too_late),
    };
    super::pretty(&document)
}

fn stays(left: &LeftPath) -> Stays<'_> {
    Stays {
        path: &left.path,
        why: left.why,
    }
}

/// Returns what a recovery would do, as text.
pub fn foreseen_text(pending: &Pending, outlook: Option<&RecoveryOutlook>) -> String {
    let (_, Some(config)) = pending.state() else {
        return "Nothing to recover.\n".to_owned();
    };
    let Some(outlook) = outlook else {
        let said = format!(
            "recover would only remove temporary files of the run to {}. Nothing was changed. Next: {}",
            config.name,
            mco_rescue("recover")
        );
        return wrap_text(&said, 0);
    };
    let verb = match outlook.direction {
        Direction::Forward => "finish",
        Direction::Back => "undo",
    };
    let mut out = wrap_text(
        &format!("recover would {verb} the run to {}:", config.name),
        0,
    );
    for path in &outlook.left {
        out += &format!("  {path}\n");
    }
    out + &wrap_text(
        &format!("Nothing was changed. Next: {}", mco_rescue("recover")),
        0,
    )
}

/// Returns the result as text. `started`: the units of a boot that continues; without a record, `verify` has nothing to compare.
pub fn to_text(recovered: &Recovered, started: Option<&StartedUnits>, has_record: bool) -> String {
    let said = match recovered {
        Recovered::Nothing => return "Nothing to recover.\n".to_owned(),
        Recovered::GivenUp(config, kept) => return given_up(config, kept.as_ref()),
        other => recovered_sentence(other),
    };
    let changed = recovered.changed_paths();
    let next = match started {
        Some(StartedUnits::Unconcerned) => String::new(),
        Some(started) => wrap_text(&started.describe_units(), 0),
        None if changed.iter().any(is_read_by_manager) => {
            "Unit files have changed. A running node reads them with `systemctl daemon-reload`.\n"
                .to_owned()
        }
        None => String::new(),
    };
    let left = recovered.left_paths().iter();
    let left =
        left.map(|left| wrap_text(&format!("{} stays as it is: {}.", left.path, left.why), 0));
    wrap_text(&said, 0)
        + &left.collect::<String>()
        + &next
        + &format!(
            "Next: {}\n",
            mco_rescue(if has_record { "verify" } else { "status" })
        )
}

fn given_up(config: &ConfigRef, kept: Option<&RootPath>) -> String {
    let sentence = recovered_sentence(&Recovered::GivenUp(config.clone(), None));
    let mut said = wrap_text(
        &format!(
            "{sentence} No file was changed: some are from before, and some from that run. Apply its config again to \
             complete the node."
        ),
        0,
    );
    if let Some(kept) = kept {
        said.push_str(&format!("Its backup copies are in {kept}.\n"));
    }
    if !config.origin.is_empty() {
        said.push_str(&wrap_text(&format!("It came from {}.", config.origin), 0));
    }
    said + &format!("Next: {}\n", mco_rescue("apply CONFIG"))
}
