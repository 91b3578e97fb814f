//! `status --for-cluster`: how the node can rejoin the cluster, and the objects that it can contribute.

use anyhow::{Context, Result, bail};

use super::change_proof::describe_gap;
use crate::base::invocation::mco_rescue;
use crate::base::order::StableOrder;
use crate::change::session::predict::{self, ForecastMoment, GivenDaemon};
use crate::change::source::cache;
use crate::change::source::changes::{KeptChange, KeptChanges, title_of};
use crate::config::document::MachineConfig;
use crate::config::render;
use crate::host::root::Root;
use crate::judge::daemon::forecast::Forecast;
use crate::judge::daemon::handover::{
    Given, Handover, OfflineChange, handover_object, make_handover,
};
use crate::node::command::CommandRunner;
use crate::node::{Recorded, Records};

/// Returns the complete configs on the node, the best copy of a name first.
///
/// # Errors
/// The cache cannot be read.
pub fn find_configs(root: &Root, records: &Records) -> Result<Vec<MachineConfig>> {
    let cache = cache::read_cache(root).context("reading the cache")?;
    let cached = cache::whole_entries(&cache).filter_map(|entry| entry.config().ok());
    let served = match &records.mcs_content {
        Recorded::Present(served) => Some((**served).clone()),
        Recorded::Missing | Recorded::Broken(_) => None,
    };
    let recorded = records.recorded_config().cloned();
    let all = recorded.into_iter().chain(served).chain(cached);
    let mut whole: Vec<MachineConfig> = all.filter(|one| !one.emptied && !one.bare).collect();
    whole.order_by_key(|config| render::name_matches(&config.record) != Some(true));
    Ok(whole)
}

/// Returns the config of this name.
///
/// # Errors
/// The node does not have it.
pub fn find_config<'a>(kept: &'a [MachineConfig], name: &str) -> Result<&'a MachineConfig> {
    match kept.iter().find(|config| config.name == name) {
        Some(config) => Ok(config),
        None => bail!(
            "this node has no complete copy of {name}; another node of the pool may have one. Next: {}",
            mco_rescue("cache list")
        ),
    }
}

/// Returns a config as an object for `oc create`. It contains secrets.
///
/// # Errors
/// It is not an object.
pub fn to_object(config: &MachineConfig) -> Result<String> {
    if render::name_matches(&config.record) != Some(true) {
        log::warn!(
            "the hash in the name of {} is not that of its contents: it was changed, or rendered by another release",
            config.name
        );
    }
    let pool = cache::pool_of(config);
    let object = handover_object(&config.record, pool.as_deref())?;
    Ok(serde_json::to_string(&object)? + "\n")
}

/// Returns the steps after which the cluster takes the node as it is.
///
/// # Errors
/// It is not known which config the node is to have, or the node cannot be read.
pub fn plan_handover(
    root: &Root,
    runner: &dyn CommandRunner,
    daemon: GivenDaemon<'_>,
    records: &Records,
    kept: &[MachineConfig],
) -> Result<Handover> {
    let moment = ForecastMoment::Now(records, None);
    let now = predict::make_forecast(root, runner, daemon, moment)?;
    let Some(config) = target_config(&now, daemon.desired) else {
        bail!(
            "nothing here says which config the node should be in. Name it: {}",
            mco_rescue("status --for-cluster --desired NAME")
        );
    };
    let once_wanted = GivenDaemon {
        desired: Some(&config),
        ..daemon
    };
    let then = predict::make_forecast(root, runner, once_wanted, moment)?;
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
    let changes = KeptChanges::read(root).context("reading the changes")?;
    let change = changes.find_change(&config);
    let change = change.map(|change| to_offline(&with_proof(&changes, change, kept)));
    Ok(make_handover(&Given {
        node: &then.node,
        pool: pool.as_deref(),
        config: &config,
        current: then.current.as_deref(),
        prediction: &branch.prediction,
        available: &names,
        change: change.as_ref(),
    }))
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

/// Returns the change with a note on what its objects do not carry.
fn with_proof(changes: &KeptChanges, change: &KeptChange, kept: &[MachineConfig]) -> KeptChange {
    let mut change = change.clone();
    if let Some(gap) = describe_gap(changes, &change, kept) {
        log::warn!("{gap}");
        change.notes.push(gap);
    }
    change
}

/// Returns the change that made the recorded config, or the last change, with a note on what its objects do not carry.
///
/// # Errors
/// No change was made, or the changes cannot be read.
pub fn find_change(root: &Root, records: &Records, kept: &[MachineConfig]) -> Result<KeptChange> {
    let changes = KeptChanges::read(root).context("reading the changes")?;
    let recorded = records.name();
    let applied = recorded
        .as_deref()
        .and_then(|name| changes.find_change(name));
    if let Some(change) = applied {
        return Ok(with_proof(&changes, change, kept));
    }
    let Some(change) = changes.changes.last() else {
        bail!("no change was made on this node in place of the cluster's controllers");
    };
    log::warn!(
        "{} was made on this node, but is not the recorded config; these are its objects",
        change.config
    );
    Ok(with_proof(&changes, change, kept))
}

/// Returns the requested config; otherwise the one that the cluster wants, unless the node was changed to another one since;
/// otherwise the recorded one.
fn target_config(now: &Forecast, given: Option<&str>) -> Option<String> {
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
