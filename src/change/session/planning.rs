//! The plan of a session: the changes, and all current obstacles.

use std::sync::Arc;

use anyhow::Result;

use super::Session;
use super::crossing::{judge_image, judge_staged};
use super::evidence::NodeEvidence;
use crate::base::paths;
use crate::change::install::completion::{Beforehand, Completion};
use crate::change::plan::fit::Accepted;
use crate::change::plan::{
    self, AcceptedRisks, Allowed, Plan, PlanOptions, PlanRequest, PlanScope, PlannedTrial, Task,
};
use crate::change::staging::deployments;
use crate::change::staging::image_source::SourceOptions;
use crate::host::root::RootPath;
use crate::judge::crossing::Cure;
use crate::judge::drift::enablement::UnchangedUnits;
use crate::node::command::rpm_ostree::status::Deployment;
use crate::node::platform::NextConfig;

/// The options of `plan` and `apply`.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunOptions<'a> {
    /// A file with the cluster's MachineConfiguration.
    pub policy: Option<&'a str>,
    /// The scope of the plan.
    pub options: PlanOptions,
    /// Guards of the node to override.
    pub allowed: Allowed,
    /// Doubts about the config to override.
    pub accepted: Accepted,
    /// Findings about another image to accept.
    pub risks: AcceptedRisks,
    /// True if the quorum of etcd is ignored.
    pub ignores_quorum: bool,
    /// The source of the image.
    pub source: SourceOptions<'a>,
    /// The check of the unit that completes the run.
    pub completion: Completion,
    /// The node reboots at the end if something needs that.
    pub reboots: bool,
    /// The kubelet and its pods are stopped before the files change.
    pub stops_workloads: bool,
    /// The trial that the run is part of.
    pub trial: Option<PlannedTrial>,
}

impl Session<'_> {
    /// Returns the missing units that would complete a run at the next boot; `None` if they are all installed.
    pub fn missing_beforehand(&self) -> Option<Beforehand> {
        Beforehand::find_missing(&self.root, &self.desired, self.old.as_deref())
    }

    /// Returns the plan of a run that stages nothing.
    ///
    /// # Errors
    /// The evidence cannot be gathered.
    pub fn plan_files(&self, request: &PlanRequest) -> Result<Plan> {
        let evidence = NodeEvidence {
            session: Some(self),
            ..NodeEvidence::of_node(&self.root, &self.node, self.runner)
        };
        plan::plan_whole(&Task::Config(self.plan_inputs()), request, &evidence)
    }

    /// Returns the plan of `plan` and `apply`: the changes, and all current obstacles.
    ///
    /// # Errors
    /// The evidence cannot be gathered, or the file with policies cannot be used.
    pub fn plan_run(
        &mut self,
        options: &RunOptions<'_>,
        beforehand: Option<&Beforehand>,
    ) -> Result<Plan> {
        self.cluster_settings(options.policy)?;
        let mut allowed = options.allowed;
        // The plan says that the staged deployment is discarded, or continues from it.
        allowed.ours = deployments::is_staged_by_us(&self.root, self.runner)?;
        allowed.staged = !options.options.files_only && allowed.ours;
        allowed.leaves_staged = options.options.files_only && !allowed.ours;
        allowed.has_files_only = true;
        if !options.options.files_only {
            self.judge_crossing(&options.source)?;
        }
        let directories = beforehand.map_or(&[][..], Beforehand::directories);
        self.node.foresee_directories(directories);
        // The lock of a run creates the directories above its own before the run is planned.
        let state = RootPath::fixed(paths::STATE);
        let mut above: Vec<RootPath> = state.ancestors().skip(1).collect();
        above.reverse();
        self.node.foresee_directories(&above);
        let request = PlanRequest {
            risks: options.risks,
            options: options.options,
            allowed,
            accepted: options.accepted,
            scope: PlanScope::Run,
            reboots: options.reboots,
            stops_workloads: options.stops_workloads,
            ignores_quorum: options.ignores_quorum,
            trial: options.trial,
        };
        let evidence = NodeEvidence {
            session: Some(self),
            policy: options.policy,
            source: options.source,
            beforehand,
            completion: options.completion,
            ..NodeEvidence::of_node(&self.root, &self.node, self.runner)
        };
        let plan = || plan::plan_whole(&Task::Config(self.plan_inputs()), &request, &evidence);
        // The plan of the recorded config is probably empty, and the differences are needed.
        let is_recorded = self
            .old
            .as_ref()
            .is_some_and(|old| Arc::ptr_eq(old, &self.desired));
        if is_recorded {
            self.plan_beside_differences(plan)
        } else {
            plan()
        }
    }

    /// Judges the image of the config, if another one is running.
    fn judge_crossing(&mut self, source: &SourceOptions<'_>) -> Result<()> {
        let Some(facts) = self.node.system.facts() else {
            return Ok(());
        };
        let booted = facts.deployments.booted().map(Deployment::image);
        let layered = self.records.current_image.as_deref().unwrap_or_default();
        let wanted = match layered {
            "" => self.chosen.config.os_image_url.clone(),
            layered => layered.to_owned(),
        };
        if wanted.is_empty() || booted.as_deref() == Some(wanted.as_str()) {
            return Ok(());
        }
        // An image is read only once, even if the run is planned several times.
        let findings = match self.crossing.take() {
            Some(findings) => findings,
            None => {
                let next = NextConfig {
                    config: &self.chosen.config,
                    desired: &self.desired,
                    old: self.old.as_deref(),
                };
                judge_image(&self.root, &wanted, source, Some(next))?
            }
        };
        // The plan needs the objects at the paths that the cures write.
        let cures = findings.iter().flat_map(|finding| &finding.cures);
        let paths = cures.filter_map(|cure| match cure {
            Cure::PutFile { path, .. } => Some(path.clone()),
            _ => None,
        });
        self.node.observe_more(&self.root, paths.collect())?;
        self.unchanged = UnchangedUnits::default();
        self.crossing = Some(findings);
        Ok(())
    }

    /// Judges the staged image, if it was not available before. Returns true if there are findings against the reboot into it.
    ///
    /// # Errors
    /// The image cannot be judged.
    pub fn judge_staged(&self, plan: &Plan, risks: AcceptedRisks) -> Result<bool> {
        let (Some(before), Some(image)) = (&self.crossing, &plan.os.image) else {
            return Ok(false);
        };
        let next = NextConfig {
            config: &self.chosen.config,
            desired: &self.desired,
            old: None,
        };
        judge_staged(&self.root, image, before, Some(next), risks)
    }
}
