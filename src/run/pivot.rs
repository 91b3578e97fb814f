//! `pivot`: changes only the OS image.
//!
//! [`PivotRun::plan_pivot`] makes the plan, [`PivotRun::carry_out`] stages the image, and [`Pivoted::finish_run`] ends the run.

use std::cell::RefCell;

use anyhow::{Context, Result, bail};

use super::capsule::remember_capsule;
use super::ending::Ending;
use super::front::RunNews;
use super::node_change::NodeChange;
use super::trial::running::{self, RunningTrial, TrialOptions, TrialRequest};
use super::work::expect_no_blockers;
use crate::base::error::ExitCode;
use crate::base::invocation::mco_rescue;
use crate::change::install::completion::{Beforehand, Completion};
use crate::change::plan::fit::Accepted;
use crate::change::plan::{
    self, AcceptedRisks, Allowed, Plan, PlanRequest, PlanScope, Task, TrialReboot,
};
use crate::change::session::crossing::{judge_image, judge_staged};
use crate::change::session::evidence::NodeEvidence;
use crate::change::staging::awaited::PIVOT;
use crate::change::staging::image_source::SourceOptions;
use crate::change::staging::stage::{Over, Staging};
use crate::change::staging::target::find_target;
use crate::change::staging::{deployments, state};
use crate::change::transaction::journal::ConfigRef;
use crate::host::root::Root;
use crate::judge::crossing::CrossingFinding;
use crate::node::command::rpm_ostree::status::Deployment;
use crate::node::system::{System, SystemFacts};
use crate::node::{self, Interest, NodeState, Records};

/// The options of `pivot`.
#[derive(Debug, Clone)]
pub struct PivotOptions<'a> {
    /// The image; `None` for that of the recorded config.
    pub image: Option<&'a str>,
    /// The source of the image.
    pub source: SourceOptions<'a>,
    /// Findings about the image to accept.
    pub risks: AcceptedRisks,
    /// The node reboots at the end if an image is staged.
    pub reboots: bool,
    /// Properties of the image to accept.
    pub accepted: Accepted,
    /// The options of a trial.
    pub trial: TrialOptions,
    /// Guards of the node to override.
    pub allowed: Allowed,
    /// True if the quorum of etcd is ignored.
    pub ignores_quorum: bool,
    /// The check of the unit that completes the run.
    pub completion: Completion,
}

/// One run of `pivot`, planned.
#[allow(
    missing_debug_implementations,
    reason = "the bytes of a program have nothing to show"
)]
pub struct PivotRun<'a> {
    options: &'a PivotOptions<'a>,
    records: Records,
    /// The name of the image.
    pub image: String,
    node: NodeState,
    /// The units to install before anything is staged.
    beforehand: Option<Beforehand>,
    /// The findings about the image.
    crossing: Vec<CrossingFinding>,
    /// The plan.
    pub plan: Plan,
}

impl<'a> PivotRun<'a> {
    /// Observes the node and the image, and makes the plan.
    ///
    /// # Errors
    /// No image is known, or the node or the image cannot be read.
    pub fn plan_pivot(change: &NodeChange<'_>, options: &'a PivotOptions<'a>) -> Result<Self> {
        let (root, runner) = (&change.root, change.runner());
        let records = Records::read(root)?;
        let image = wanted_image(options.image, &records)?;
        let interest = Interest {
            system: true,
            ..Interest::default()
        };
        let node = node::observe_node(root, interest, runner)?;
        let facts = facts_of(&node)?;
        let beforehand = Beforehand::of_recorded(root, &records);
        let evidence = NodeEvidence {
            source: options.source,
            beforehand: beforehand.as_ref(),
            completion: options.completion,
            ..NodeEvidence::of_node(root, &node, runner)
        };
        let runs = facts.deployments.booted().map(Deployment::image);
        let crossing = if runs.as_deref() == Some(image.as_str()) {
            expect_on_medium(root, &image, &options.source)?;
            Vec::new()
        } else {
            judge_image(root, &image, &options.source, None)?
        };
        let task = Task::Image {
            node: &node,
            facts,
            image: &image,
            crossing: &crossing,
        };
        let plan = plan::plan_whole(&task, &plan_request(change, options)?, &evidence)?;
        Ok(Self {
            options,
            records,
            image,
            node,
            beforehand,
            crossing,
            plan,
        })
    }

    /// Returns the operating system of the node.
    ///
    /// # Errors
    /// It was not booted by OSTree.
    pub fn facts(&self) -> Result<&SystemFacts> {
        facts_of(&self.node)
    }

    /// Returns true if the node will reboot at the end.
    pub fn will_reboot(&self) -> bool {
        self.options.reboots && self.plan.os.needs_reboot()
    }

    /// Stages the image, if a step is needed, and judges what is staged. A trial that fails is reverted.
    ///
    /// # Errors
    /// The plan has blockers, or something failed; the message says what was changed.
    pub fn carry_out<'u>(self, change: NodeChange<'u>) -> Result<Pivoted<'a, 'u>> {
        expect_no_blockers(&self.plan, &format!("stage {}", self.image))?;
        let mut tried = None;
        if !self.plan.os.steps.is_empty() {
            let (trial, staged) = self.stage_image(&change)?;
            if let Err(error) = staged {
                return Err(running::fail_change(trial, change, error));
            }
            tried = trial;
        } else if self.plan.os.waits_for_reboot {
            self.remember_image(&change)?;
        }
        match self.judge_staged(&change.root) {
            Ok(is_inhibited) => Ok(Pivoted {
                run: self,
                is_inhibited,
                change,
                tried,
            }),
            Err(error) => Err(running::refuse_change(tried, change, error)),
        }
    }

    /// Stages the image. Returns the trial, and the result of staging.
    fn stage_image<'u>(
        &self,
        change: &NodeChange<'u>,
    ) -> Result<(Option<RunningTrial<'u>>, Result<()>)> {
        if let Some(beforehand) = &self.beforehand {
            change.install_completion(&self.options.completion, &self.plan, beforehand)?;
        }
        let print = |line: &str| change.front.tell(RunNews::Staging(line));
        let staging = self.prepare_staging(change, &print)?;
        let (options, os) = (&self.options.trial, &self.plan.os);
        let request = TrialRequest::of_plan(options, &self.image, &self.plan, self.will_reboot());
        let tried = RunningTrial::begin_trial(change, request)?;
        let staged = staging.stage_all(self.facts()?);
        let staged = staged.and_then(|()| self.remember_image(change));
        if staged.is_ok() && !os.needs_reboot() {
            deployments::settle_awaited(&change.root, change.runner());
        }
        Ok((tried, staged))
    }

    /// Remembers the capsule of an image that is staged for the next boot, also if an interrupted run staged it.
    fn remember_image(&self, change: &NodeChange<'_>) -> Result<()> {
        match self.plan.os.taken() {
            Some(taken) => remember_capsule(&change.root, &taken),
            None => Ok(()),
        }
    }

    fn prepare_staging<'b>(
        &'b self,
        change: &'b NodeChange<'_>,
        print: &'b dyn Fn(&str),
    ) -> Result<Staging<'b>> {
        let (root, runner) = (&change.root, change.runner());
        let digest = self
            .records
            .recorded_config()
            .map(|config| config.digest.clone());
        Ok(Staging {
            runner,
            print,
            root,
            lock: change.lock(),
            plan: &self.plan.os,
            config: ConfigRef {
                name: self.records.name().unwrap_or_default(),
                digest: digest.unwrap_or_default(),
                origin: PIVOT.to_owned(),
            },
            source: self.options.source.source_of(&self.plan.os),
            files: None,
            over: Over::read_over(root, &state::read_booted(root, runner)?)?,
            expected: RefCell::default(),
            staged: RefCell::default(),
        })
    }

    /// Returns true if preflight finds an inhibitor in the staged image.
    fn judge_staged(&self, root: &Root) -> Result<bool> {
        if self.plan.os.changes_image() {
            judge_staged(root, &self.image, &self.crossing, None, self.options.risks)
        } else {
            Ok(false)
        }
    }
}

/// An image that is staged, before its run ends.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct Pivoted<'a, 'u> {
    /// The run.
    pub run: PivotRun<'a>,
    is_inhibited: bool,
    change: NodeChange<'u>,
    tried: Option<RunningTrial<'u>>,
}

impl Pivoted<'_, '_> {
    /// Returns true if nothing but the reboot is left: there is no trial, and no inhibitor in the staged image.
    pub fn is_done(&self) -> bool {
        self.tried.is_none() && !self.is_inhibited
    }

    /// Ends the run: its trial or the reboot begins.
    ///
    /// # Errors
    /// The run cannot be ended.
    pub fn finish_run(self) -> Result<ExitCode> {
        let reboots = self.run.will_reboot();
        self.change.finish_change(Ending {
            tried: self.tried,
            is_inhibited: self.is_inhibited,
            reboot: reboots.then_some(self.run.options.ignores_quorum),
            code: ExitCode::Done,
        })
    }
}

/// Returns the operating system of the node, if it was booted by OSTree.
fn facts_of(node: &NodeState) -> Result<&SystemFacts> {
    match &node.system {
        System::Known(facts) => Ok(facts),
        System::Silent(why) => bail!("{why}"),
        System::NotAsked | System::Composefs(_) => {
            bail!("this system was not booted by OSTree, so there is no image to change")
        }
    }
}

fn plan_request(change: &NodeChange<'_>, options: &PivotOptions<'_>) -> Result<PlanRequest> {
    let ours = deployments::is_staged_by_us(&change.root, change.runner())?;
    Ok(PlanRequest {
        allowed: Allowed {
            ours,
            staged: ours,
            ..options.allowed
        },
        accepted: options.accepted,
        scope: PlanScope::Run,
        risks: options.risks,
        reboots: true,
        ignores_quorum: options.ignores_quorum,
        trial: options
            .trial
            .plan_trial(TrialReboot::if_needed(options.reboots), false),
        ..PlanRequest::default()
    })
}

/// Refuses a named medium that contains another image, as nothing would be read from it.
fn expect_on_medium(root: &Root, image: &str, source: &SourceOptions<'_>) -> Result<()> {
    let Some(medium) = source.os_from else {
        return Ok(());
    };
    let found = find_target(root, Some(image), source);
    found.map(drop).with_context(|| {
        let medium = medium.display();
        let other = format!("pivot NAME@sha256:DIGEST --os-from {medium}");
        format!(
            "{image} runs already, and {medium} does not hold it. Name the image that is there: {}",
            mco_rescue(&other)
        )
    })
}

/// Returns the name of the given image, else of that in the recorded config.
///
/// # Errors
/// There is none.
pub fn wanted_image(given: Option<&str>, records: &Records) -> Result<String> {
    let recorded = records
        .recorded_config()
        .map(|config| config.os_image_url.clone());
    let image = given.map(str::to_owned).or(recorded);
    match image.filter(|image| !image.is_empty()) {
        Some(image) => Ok(image),
        None => bail!(
            "no image was given, and no recorded config names one. Give it: {}",
            mco_rescue("pivot NAME@sha256:DIGEST")
        ),
    }
}
