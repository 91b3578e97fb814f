//! The files in which staging stores its state: the pending boot, the runs that changed the operating system, and the requests
//! of the configs of deployments.

use anyhow::{Context, Result, bail};

use super::awaited::{Awaited, Booted, OsRun, OsRuns, Ran, VERSION};
use crate::base::invocation::mco_rescue;
use crate::base::kargs::Kargs;
use crate::base::paths;
use crate::change::plan::FinishedRun;
use crate::change::transaction::{self, open_store, store_value};
use crate::host::root::{Root, RootPath};
use crate::host::state_file;
use crate::node::boot::BootIdentity;
use crate::node::command::CommandRunner;
use crate::node::requests::AskedFor;
use crate::node::system::{OF_DEPLOYMENTS, read_asked};
use crate::node::{Host, NodeState, Os, Records, bootloader};

/// Returns the pending boot, if any.
pub fn read_awaited(root: &Root) -> Result<Option<Awaited>> {
    let known = |kept: &Awaited| kept.version;
    state_file::read_remembered(root, paths::AWAITED, VERSION, known)
        .context("reading what is awaited")
}

/// Stores the pending boot.
pub fn store_awaited(root: &Root, awaited: &Awaited) -> Result<()> {
    Ok(store_value(root, paths::AWAITED, awaited)?)
}

/// Removes the pending boot.
pub fn forget_awaited(root: &Root) -> Result<()> {
    let store = open_store(root, paths::STATE)?;
    Ok(store.remove_file(RootPath::fixed(paths::AWAITED).name())?)
}

/// Removes a failure that was reported.
pub fn forget_failure(root: &Root) -> Result<()> {
    match read_awaited(root)? {
        Some(awaited) if awaited.failed.is_some() => forget_awaited(root),
        _ => Ok(()),
    }
}

/// Returns which deployment the node came from in a run, if that changed the operating system.
pub fn find_os_run(root: &Root, run: &str) -> Result<Option<OsRun>> {
    let all = os_runs(root)?;
    let is_unknown = all.is_empty() && root.exists(&RootPath::fixed(paths::OS_RUNS))?;
    if let Some(kept) = all.into_iter().find(|one| one.run == run) {
        return Ok(Some(kept));
    }
    // The run was interrupted before that was stored.
    let awaited = read_awaited(root)?.filter(|one| one.files_after.is_some());
    let own = awaited.filter(|one| one.run.as_deref() == Some(run));
    if own.is_none() && is_unknown {
        bail!(
            "/{file} cannot be used, so it is not known if run {run} changed the operating system. Next: mv /{file} \
             /{file}.damaged (the operating system of earlier runs is not reverted then)",
            file = paths::OS_RUNS
        );
    }
    Ok(own.map(|one| one.os_run(run.to_owned())))
}

/// Records that the files of the pending boot are in place, if the history shows it, because later runs push their run out of
/// the history.
///
/// The run is over by then: an error is only logged, and the next command tries again.
pub fn settle_files(root: &Root) {
    if let Err(error) = try_settle_files(root) {
        log::warn!(
            "everything is in place, but it could not be recorded for a rollback: {error:#}. Next: {}",
            mco_rescue("status")
        );
    }
}

fn try_settle_files(root: &Root) -> Result<()> {
    let Some(awaited) = read_awaited(root)?.filter(|one| one.files_after.is_some()) else {
        return Ok(());
    };
    let history = summarise_runs(&transaction::read_history(root)?);
    let Some(own) = awaited.own_run(&history) else {
        return Ok(());
    };
    store_os_run(root, awaited.os_run(own.id.clone()))?;
    let settled = Awaited {
        run: Some(own.id.clone()),
        files_after: None,
        ..awaited
    };
    store_awaited(root, &settled)
}

fn os_runs(root: &Root) -> Result<Vec<OsRun>> {
    let known = |kept: &OsRuns| kept.version;
    let kept = state_file::read_remembered(root, paths::OS_RUNS, VERSION, known)?;
    Ok(kept.map(|kept| kept.runs).unwrap_or_default())
}

/// Stores which deployment the node came from, for as long as the history has the run.
pub fn store_os_run(root: &Root, run: OsRun) -> Result<()> {
    let history = transaction::read_history(root)?;
    let mut runs = os_runs(root)?;
    runs.retain(|one| one.run != run.run && history.iter().any(|known| known.id == one.run));
    runs.push(run);
    let version = VERSION;
    Ok(store_value(
        root,
        paths::OS_RUNS,
        &OsRuns { version, runs },
    )?)
}

/// Stores the requests of a deployment's config, before its record is replaced.
pub fn store_requests(root: &Root, one: AskedFor) -> Result<()> {
    let mut all = read_asked(root)?;
    if all.deployments.last() == Some(&one) {
        return Ok(());
    }
    all.remember_requests(one);
    Ok(store_value(root, paths::ASKED, &all)?)
}

/// Stores the requests of the config whose kernel arguments the node has, before a run replaces its record: they stay in effect
/// unless that run stages an operating system.
pub fn keep_requests(root: &Root, node: &NodeState) -> Result<()> {
    let Some(deployment) = &node.host.deployment else {
        return Ok(());
    };
    let records = Records::read(root).context("reading the daemon's records")?;
    let (Some(config), Some(line)) = (records.baseline().config(), line_of(root, node)?) else {
        return Ok(());
    };
    if read_asked(root)?.find_requests(deployment, &line).is_some() {
        return Ok(());
    }
    store_requests(
        root,
        AskedFor {
            deployment: deployment.clone(),
            command_line: line.tokens().to_vec(),
            arguments: Kargs::from_entries(&config.kernel_arguments)
                .tokens()
                .to_vec(),
            extensions: config.extensions.clone(),
        },
    )
}

/// Returns the kernel arguments of the root's deployment: those of the running kernel, or else of the default boot entry.
fn line_of(root: &Root, node: &NodeState) -> Result<Option<Kargs>> {
    let line = match &node.os.kernel_arguments {
        Some(line) => Some(line.clone()),
        None => bootloader::read_boot_entries(root)?
            .into_iter()
            .next()
            .map(|entry| entry.options),
    };
    Ok(line.map(|line| line.without(&OF_DEPLOYMENTS)))
}

/// Returns the runs in a history, newest first.
pub fn summarise_runs(history: &[FinishedRun]) -> Vec<Ran> {
    let ran = |run: &FinishedRun| Ran {
        id: run.id.clone(),
        config: run.config.clone(),
    };
    history.iter().map(ran).collect()
}

/// Returns what is running.
pub fn read_booted(root: &Root, runner: &dyn CommandRunner) -> Result<Booted> {
    let host = Host::observe(root).context("looking at the node")?;
    if !host.live {
        bail!("only the node itself can tell what booted; run this on it");
    }
    let os = Os::observe(root, &host).context("looking at the operating system")?;
    Ok(Booted {
        boot: BootIdentity::observe(root, host.deployment.clone(), runner)
            .context("the kernel reports no boot ID")?,
        deployment: host.deployment,
        image: os.image,
        kernel_arguments: os
            .kernel_arguments
            .context("the kernel command line cannot be read")?
            .tokens()
            .to_vec(),
    })
}
