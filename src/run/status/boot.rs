//! What the next boot enters, and whether the operating system and the files belong together.

use anyhow::Result;

use super::{ClusterReport, NextBootReport, OsMismatch};
use crate::base::invocation::{self, mco_rescue};
use crate::change::plan::staged::enter_command;
use crate::change::source::cache;
use crate::change::staging::awaited::{Awaited, Scene, Verdict, Way};
use crate::change::staging::next_boot::{NextBoot, observe_next_boot};
use crate::change::staging::state;
use crate::change::transaction;
use crate::host::root::Root;
use crate::judge::drift;
use crate::node::command::CommandRunner;
use crate::node::system::SystemFacts;
use crate::node::{Records, System};

/// The awaited boot of a node, the verdict on it, and what the next boot enters.
pub(super) struct BootStatus {
    /// The record of a boot that a run left to be completed.
    pub(super) awaited: Option<Awaited>,
    /// What the next boot enters; `None` without an operating system.
    pub(super) next_boot: Option<NextBoot>,
    /// True while the next boot restores the previous files.
    pub(super) reverts: bool,
    verdict: Option<Verdict>,
    mismatch: Option<OsMismatch>,
}

impl BootStatus {
    /// Reads the awaited boot and judges it.
    pub(super) fn observe(
        root: &Root,
        runner: &dyn CommandRunner,
        records: &Records,
        system: &System,
        seen: &ClusterReport,
    ) -> Result<Self> {
        let awaited = state::read_awaited(root)?;
        let next_boot = match system.facts() {
            Some(facts) => observe_next_boot(root, runner, facts, awaited.as_ref())?,
            None => None,
        };
        let verdict = awaited
            .as_ref()
            .map(|one| boot_verdict(root, runner, one, system, next_boot.as_ref()))
            .transpose()?;
        let mismatched = match &verdict {
            None | Some(Verdict::Failed) => system.facts(),
            Some(_) => None,
        };
        let is_back = awaited.as_ref().is_some_and(|one| one.way == Way::Back);
        Ok(Self {
            reverts: is_back && verdict == Some(Verdict::Waits),
            mismatch: mismatched.and_then(|facts| find_mismatch(root, records, facts, seen)),
            awaited,
            next_boot,
            verdict,
        })
    }

    /// Returns what the next boot enters, in the words of a report.
    pub(super) fn next_boot_report(&self) -> Option<NextBootReport> {
        let next = self.next_boot.as_ref()?;
        Some(NextBootReport::from_answer(next, self.verdict.as_ref()))
    }

    /// Returns true if the failed boot is what is reported, and not the mismatch that it left: one that the next boot resolves is
    /// reported as that mismatch.
    fn reports_failure(&self) -> bool {
        is_mismatch_only(self.awaited.as_ref())
            && !self.mismatch.as_ref().is_some_and(|one| one.reboot)
    }

    /// Returns the verdict on the awaited boot, unless the mismatch already says it.
    pub(super) fn verdict_to_report(&self) -> Option<Verdict> {
        let is_told = self.mismatch.is_some()
            && !self.reports_failure()
            && is_mismatch_only(self.awaited.as_ref());
        self.verdict.clone().filter(|_| !is_told)
    }

    /// Returns the mismatch of operating system and records, unless the verdict already says it.
    pub(super) fn mismatch_to_report(&self) -> Option<OsMismatch> {
        self.mismatch.clone().filter(|_| !self.reports_failure())
    }
}

/// Returns the mismatch if the running operating system is not the recorded one: either the files are old, or the operating system
/// is.
fn find_mismatch(
    root: &Root,
    records: &Records,
    facts: &SystemFacts,
    seen: &ClusterReport,
) -> Option<OsMismatch> {
    let mut words = drift::os_mismatch(records, facts)?;
    let reboot = drift::is_next(records, facts);
    let runs = running_config(root, records, facts, seen);
    if let Some(name) = &runs {
        words += &format!(
            ". The running image is that of {name}: the node was booted into it before its files were written"
        );
    }
    let locked = facts.deployments.staged().filter(|one| {
        one.finalization_locked
            && records
                .recorded_config()
                .is_some_and(|config| config.os_image_url == one.image())
    });
    let next = match (&runs, locked) {
        _ if reboot => invocation::reboot_command().to_owned(),
        (_, Some(_)) => format!(
            "{}; or {}",
            enter_command(true, Some(facts)),
            mco_rescue("apply --takeover")
        ),
        (Some(name), None) => format!(
            "{}, or {}",
            mco_rescue(&format!("apply cached:{name}")),
            mco_rescue("pivot")
        ),
        (None, None) => mco_rescue("apply"),
    };
    Some(OsMismatch {
        words,
        reboot,
        runs,
        next,
    })
}

/// Returns the cached config whose image is running and that is not recorded: the one that the cluster wants, otherwise the only
/// one.
fn running_config(
    root: &Root,
    records: &Records,
    facts: &SystemFacts,
    seen: &ClusterReport,
) -> Option<String> {
    let runs = facts.deployments.booted()?.image();
    let recorded = records.recorded_config()?;
    if runs.is_empty() || recorded.os_image_url == runs {
        return None;
    }
    let cached = cache::read_cache(root).unwrap_or_else(|error| {
        log::warn!("the cache cannot be searched for the config of the running image: {error}");
        Vec::new()
    });
    let configs = cache::whole_entries(&cached).filter_map(|entry| entry.config().ok());
    let its: Vec<String> = configs
        .filter(|config| config.os_image_url == runs && config.name != recorded.name)
        .map(|config| config.name)
        .collect();
    let desired = seen
        .annotations
        .as_ref()
        .and_then(|one| one.desired.clone());
    match desired.filter(|desired| its.contains(desired)) {
        Some(desired) => Some(desired),
        None if its.len() == 1 => its.into_iter().next(),
        None => None,
    }
}

/// Returns true if the only fact about the awaited boot is that operating system and files belong to different configs.
fn is_mismatch_only(awaited: Option<&Awaited>) -> bool {
    awaited.is_some_and(|awaited| awaited.half)
}

/// Returns the verdict on the awaited boot.
fn boot_verdict(
    root: &Root,
    runner: &dyn CommandRunner,
    awaited: &Awaited,
    system: &System,
    next: Option<&NextBoot>,
) -> Result<Verdict> {
    let facts = system.facts();
    let history = state::summarise_runs(&transaction::read_history(root)?);
    let transaction = facts.is_some_and(|facts| facts.deployments.transaction.is_some());
    let at_work = transaction || transaction::is_held(root);
    if !root.is_live() {
        // A root that is not running has no boot to be judged.
        return Ok(match awaited.lacks_files(&history) {
            true => Verdict::CutOff,
            false if awaited.failed.is_some() => Verdict::Failed,
            false => Verdict::Waits,
        });
    }
    let scene = Scene {
        booted: &state::read_booted(root, runner)?,
        next: next.map(|next| &next.enters),
        history: &history,
        at_work: at_work && awaited.failed.is_none(),
    };
    Ok(awaited.judge_scene(&scene))
}
