//! `status --for-cluster`: how the node can rejoin the cluster, and the objects that it can contribute.

use crate::base::order::StableOrder;
use crate::change::session::predict::GivenDaemon;
use crate::cli::ui::Ui;
use std::io::IsTerminal;

use anyhow::{Context, Result, bail};

use super::Output;
use crate::base::error::ExitCode;
use crate::base::invocation::mco_rescue;
use crate::change::session::predict;
use crate::change::session::predict::ForecastMoment;
use crate::change::source::cache;
use crate::change::source::changes::{KeptChange, KeptChanges, title_of};
use crate::config::document::MachineConfig;
use crate::config::render;
use crate::host::root::Root;
use crate::judge::daemon::forecast::Forecast;
use crate::judge::daemon::handover::{Given, OfflineChange, handover_object, make_handover};
use crate::node::{Recorded, Records};
use crate::report;

/// What `status --for-cluster` is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandoverRequest<'a> {
    /// The MachineConfig to print as an object.
    pub object: Option<&'a str>,
    /// The objects of the change that was made on the node are printed.
    pub changes: bool,
    /// What the user knows about the daemon.
    pub daemon: GivenDaemon<'a>,
}

/// Runs `status --for-cluster`.
pub(super) fn run(ui: &Ui<'_>, request: HandoverRequest<'_>, root: &Root) -> Result<ExitCode> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let kept = kept(root, &records)?;
    let text = match request.object {
        Some(name) => one(&kept, name)?,
        None if request.changes => changed_objects(root, &records)?,
        None => all(ui, request.daemon, root, &records, &kept)?,
    };
    report::print_whole(text.as_bytes())?;
    Ok(ExitCode::Done)
}

/// Returns the complete configs on the node, the best copy of a name first.
fn kept(root: &Root, records: &Records) -> Result<Vec<MachineConfig>> {
    let cache = cache::read_cache(root).context("reading the cache")?;
    let cached = cache::whole_entries(&cache).filter_map(|entry| entry.config().ok());
    let served = match &records.mcs_content {
        Recorded::Present(served) => Some((**served).clone()),
        Recorded::Missing | Recorded::Broken(_) => None,
    };
    let recorded = records.recorded().cloned();
    let all = recorded.into_iter().chain(served).chain(cached);
    let mut whole: Vec<MachineConfig> = all.filter(|one| !one.emptied && !one.bare).collect();
    whole.order_by_key(|config| render::name_matches(&config.record) != Some(true));
    Ok(whole)
}

/// Returns one object for `oc create`. It contains secrets, so it is not printed on a terminal.
fn one(kept: &[MachineConfig], name: &str) -> Result<String> {
    let Some(config) = kept.iter().find(|config| config.name == name) else {
        bail!(
            "this node has no whole {name}; another node of the pool may have it. Next: {}",
            mco_rescue("cache list")
        );
    };
    if std::io::stdout().is_terminal() {
        bail!(
            "{name} holds secrets, and standard output is a terminal. Write it to a file: ... > {name}.json"
        );
    }
    if render::name_matches(&config.record) != Some(true) {
        log::warn!(
            "the hash in the name of {name} is not that of its contents: it was changed, or rendered by another release"
        );
    }
    let pool = cache::pool_of(config);
    let object = handover_object(&config.record, pool.as_deref())?;
    Ok(serde_json::to_string(&object)? + "\n")
}

fn all(
    ui: &Ui<'_>,
    daemon: GivenDaemon<'_>,
    root: &Root,
    records: &Records,
    kept: &[MachineConfig],
) -> Result<String> {
    let moment = ForecastMoment::Now(records, None);
    let now = predict::forecast(root, ui.runner, daemon, moment)?;
    let Some(config) = target(&now, daemon.desired) else {
        bail!(
            "nothing here tells which config the node is to be in. Name it: {}",
            mco_rescue("status --for-cluster --desired NAME")
        );
    };
    let once_wanted = GivenDaemon {
        desired: Some(&config),
        ..daemon
    };
    let then = predict::forecast(root, ui.runner, once_wanted, moment)?;
    let branch = then
        .branches
        .first()
        .context("the daemon's behaviour cannot be predicted")?;
    let names: Vec<String> = kept.iter().map(|config| config.name.clone()).collect();
    let pool = kept
        .iter()
        .find(|kept| kept.name == config)
        .and_then(cache::pool_of);
    let pool = pool.or_else(|| pool_in(&config));
    let change = KeptChanges::read(root).context("reading the changes")?;
    let change = change.of(&config).map(to_offline);
    let handover = make_handover(&Given {
        node: &then.node,
        pool: pool.as_deref(),
        config: &config,
        current: then.current.as_deref(),
        prediction: &branch.prediction,
        at_hand: &names,
        change: change.as_ref(),
    });
    Ok(match ui.output {
        Output::Json => report::handover::to_json(&handover)?,
        Output::Text => report::handover::to_text(&handover),
    })
}

fn to_offline(change: &KeptChange) -> OfflineChange {
    OfflineChange {
        what: change.what.clone(),
        exact: change.exact,
        reasons: change.reasons.clone(),
        notes: change.notes.clone(),
        objects: change.objects.iter().map(title_of).collect(),
        export: mco_rescue("status --for-cluster --changes"),
    }
}

/// Returns the objects of the change that made the recorded config, or of the last change, as YAML for `oc apply`.
fn changed_objects(root: &Root, records: &Records) -> Result<String> {
    let changes = KeptChanges::read(root).context("reading the changes")?;
    let recorded = records.name();
    let applied = recorded.as_deref().and_then(|name| changes.of(name));
    let Some(change) = applied.or(changes.changes.last()) else {
        bail!("no change was made on this node in place of the cluster's controllers");
    };
    if applied.is_none() {
        log::warn!(
            "{} was made on this node and not applied; these are its objects",
            change.config
        );
    }
    Ok(report::change::objects_text(change))
}

/// Returns the requested config; otherwise the one that the cluster wants, unless the node was changed to another one since;
/// otherwise the recorded one.
fn target(now: &Forecast, given: Option<&str>) -> Option<String> {
    let known = now.branches.first().filter(|first| first.known);
    let wanted = known.and_then(|first| first.desired.clone());
    let settled = now.branches.len() == 1;
    given
        .map(str::to_owned)
        .or(wanted.clone().filter(|_| settled))
        .or_else(|| now.record.clone())
        .or(wanted)
}

/// Returns the pool in the name of a rendered config.
fn pool_in(name: &str) -> Option<String> {
    let (pool, _) = name.strip_prefix("rendered-")?.rsplit_once('-')?;
    Some(pool.to_owned())
}
