//! `firstboot`: the command that the units of the initramfs run. Decides if there is work, does it, and never prevents a boot.

mod at_hand;
mod beside_ignition;
pub(super) mod in_place;
mod shell;

use crate::cli::ui::Ui;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::base::error::ExitCode;
use crate::base::paths;
use crate::change::plan::fit::Accepted;
use crate::change::plan::{PlanRequest, PlanScope};
use crate::change::session::Session;
use crate::change::transaction::{self, Pending};
use crate::cli::args::BitsArgs;
use crate::cli::args::DoubtArgs;
use crate::cli::args::GuardArgs;
use crate::diagnose::first_boot::FirstBootResult;
use crate::diagnose::first_boot::{self, BootFacts, BootWork, Mode, Parameters, WorkReason};
use crate::host::root::{Root, RootPath};
use crate::host::sys::privileges::Capability;
use crate::host::sys::runtime;
use crate::node::Host;
use crate::node::kernel::kernel_command_line;
use crate::node::mounts::{self, BootRoot, RootAccess};
use crate::report::console;
use crate::report::firstboot as told;
use crate::run::node_change::NodeChange;
use crate::run::opening::{Needs, Opening};
use clap::Args;

/// How a boot is looked at.
#[derive(Debug, Args)]
pub struct FirstbootArgs {
    /// Kernel arguments instead of those of the running kernel
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub kernel_arguments: Option<String>,

    /// Wait beside Ignition, and give it a config if its server is silent
    ///
    /// The config is one that is available here, on the kernel command line or a medium
    #[arg(long)]
    pub beside_ignition: bool,

    /// On the booted node: do the work of the first-boot service
    ///
    /// Applies image and kernel arguments from what is available here, and removes the trigger
    /// of the service; like apply without CONFIG
    #[arg(long, conflicts_with_all = ["beside_ignition", "after_shell"])]
    pub complete: bool,

    /// With --complete: show the plan, and change nothing
    #[arg(short = 'n', long, requires = "complete")]
    pub dry_run: bool,

    /// How an image is had.
    #[command(flatten)]
    pub bits: BitsArgs,

    /// What may be passed over on the node.
    #[command(flatten)]
    pub guards: GuardArgs,

    /// What may be passed over in the config.
    #[command(flatten)]
    pub doubts: DoubtArgs,

    /// Reboot at the end, if something is staged for the next boot
    #[arg(long, requires = "complete")]
    pub reboot: bool,

    /// After the shell: give the root back as it was found
    #[arg(long, conflicts_with = "beside_ignition", hide_short_help = true)]
    pub after_shell: bool,
}

/// The mount point of the root in every initramfs.
const SYSROOT: &str = "/sysroot";

/// Runs `firstboot`.
pub(super) fn run(ui: &Ui<'_>, args: &FirstbootArgs) -> Result<ExitCode> {
    if args.complete {
        return in_place::run(ui, args);
    }
    let started = Instant::now();
    let given = args.kernel_arguments.clone();
    let line = given.or_else(kernel_command_line).unwrap_or_default();
    let parameters = Parameters::parse(&line);
    for problem in &parameters.problems {
        log::warn!("{problem}");
    }
    let path = root_of(ui);
    if args.after_shell {
        return shell::leave(&path);
    }
    if args.beside_ignition {
        return beside_ignition::run(&parameters, ui.runner);
    }
    if parameters.mode == Mode::Shell {
        return shell::enter(&path);
    }
    let mut attempt = Attempt {
        phase: "looking at the root",
        why: String::new(),
        not_a_node: args.guards.not_a_node,
        ui,
    };
    let result = attempt.run(&path, &parameters);
    tell(&attempt, result, started, &path)
}

/// Returns the root. `/` is the initramfs itself.
fn root_of(ui: &Ui<'_>) -> PathBuf {
    if ui.root == Path::new("/") {
        PathBuf::from(SYSROOT)
    } else {
        ui.root.clone()
    }
}

/// Prints the result on every console, and stores it for the real root.
fn tell(
    attempt: &Attempt<'_>,
    result: Result<FirstBootResult>,
    started: Instant,
    path: &Path,
) -> Result<ExitCode> {
    let mut ended = match &result {
        Ok(ended) => ended.clone(),
        Err(error) => FirstBootResult::failed(&attempt.why, attempt.phase, format!("{error:#}")),
    };
    ended.took = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    if let Err(error) = runtime::write_json(runtime::FIRSTBOOT, &ended) {
        log::warn!(
            "writing {}: {error}",
            runtime::runtime_path(runtime::FIRSTBOOT).display()
        );
    }
    match result {
        Ok(_) if ended.outcome == "nothing" => {
            log::info!("nothing to do: {}; {} ms", ended.why, ended.took);
        }
        Ok(_) => {
            let name = ended.config.as_deref().unwrap_or_default();
            console::tell(&told::success_text(
                &format!("{} {name}", ended.outcome),
                &ended.why,
            ));
        }
        Err(error) => {
            let unfinished = is_unfinished(path);
            console::tell(&told::failure_text(
                attempt.phase,
                &format!("{error:#}"),
                unfinished,
            ));
            return Err(error.context(attempt.phase));
        }
    }
    Ok(ExitCode::Done)
}

/// Returns true if a run is unfinished; `None` if this is unknown.
fn is_unfinished(path: &Path) -> Option<bool> {
    let pending = transaction::find_pending(&Root::open(path).ok()?).ok()?;
    Some(!matches!(pending, Pending::Nothing))
}

/// The progress of the command.
struct Attempt<'a> {
    ui: &'a Ui<'a>,
    phase: &'static str,
    why: String,
    /// The user insists on a machine that is not a node.
    not_a_node: bool,
}

impl Attempt<'_> {
    fn run(&mut self, path: &Path, parameters: &Parameters) -> Result<FirstBootResult> {
        if parameters.mode == Mode::Off {
            return Ok(FirstBootResult::ended("nothing", "mco_rescue=off", None));
        }
        // The mounts are private to this process, and end with it.
        mounts::unshare_mounts().context("making mounts of our own")?;
        let looking = BootRoot::prepare(path, RootAccess::Read)?;
        let root = Root::open(path).context("opening the root")?;
        let facts = facts(&root)?;
        match first_boot::work(parameters.mode, facts) {
            BootWork::None(why) => {
                looking.give_back();
                Ok(FirstBootResult::ended("nothing", why, None))
            }
            BootWork::Recover => self.recover(path, root),
            BootWork::Apply(reason) => self.apply(path, root, parameters, reason, facts),
            // This was handled before anything is mounted.
            BootWork::Shell => bail!("the shell has a unit of its own"),
        }
    }

    fn recover(&mut self, path: &Path, root: Root) -> Result<FirstBootResult> {
        self.phase = "recovering an interrupted run";
        self.why = "a run was cut off".to_owned();
        let opened = BootRoot::prepare(path, RootAccess::Write)?;
        drop(Opening::of(self.ui, root, &Needs::FIRST_BOOT_RECOVERY)?.begin()?);
        opened.give_back();
        Ok(FirstBootResult::ended("recovered", &self.why, None))
    }

    fn apply(
        &mut self,
        path: &Path,
        root: Root,
        parameters: &Parameters,
        reason: WorkReason,
        facts: BootFacts,
    ) -> Result<FirstBootResult> {
        self.why = match reason {
            WorkReason::Asked => "the kernel command line asks for it",
            WorkReason::FirstBoot => "a first boot that got no config",
            WorkReason::Given => "Ignition was given a config that was at hand",
        }
        .to_owned();
        self.phase = "choosing a config";
        let deadline = parameters.timeout;
        // The medium must stay mounted while its config is read.
        let (argument, _medium) = match reason {
            WorkReason::Given => (
                Some(runtime::runtime_path(runtime::GIVEN).display().to_string()),
                None,
            ),
            _ => at_hand::choose(&root, self.ui.runner, parameters, facts.recorded)?,
        };
        if argument.is_none() && reason == WorkReason::FirstBoot {
            let why = "a first boot without a config, and none is at hand";
            return Ok(FirstBootResult::ended("nothing", why, None));
        }
        let needs = Needs::FIRST_BOOT.meant(self.not_a_node);
        needs.expect_root(&root)?;
        let opened = BootRoot::prepare(path, RootAccess::Write)?;
        let change = Opening::of(self.ui, root, &needs)?.begin()?;
        self.phase = "reading the config and the root";
        let first = facts.never_booted && !facts.recorded;
        let asked = (argument.as_deref(), deadline, parameters.allow);
        let name = self.transact(&change, asked, first)?;
        drop(change);
        opened.give_back();
        if reason == WorkReason::Given {
            // The file contains secrets, and the node has it now.
            runtime::remove_runtime(runtime::GIVEN).context("removing what Ignition was given")?;
        }
        Ok(FirstBootResult::ended("applied", &self.why, Some(name)))
    }

    /// Carries out the same transaction as `apply`, without a question.
    fn transact(
        &mut self,
        change: &NodeChange<'_>,
        (argument, timeout, accepted): (Option<&str>, Duration, Accepted),
        first: bool,
    ) -> Result<String> {
        let root = change.root.again()?;
        let mut session = Session::in_boot(root, change.runner(), argument, timeout, first)?;
        let name = session.chosen.config.name.clone();
        self.phase = "planning";
        let plan = session.plan_files(&PlanRequest {
            accepted,
            scope: PlanScope::Fit,
            ..PlanRequest::default()
        })?;
        for notice in &plan.notices {
            log::info!("{}: {}", notice.subject, notice.message);
        }
        let all = plan.blockers.iter();
        let blockers: Vec<String> = all
            .map(|b| format!("{}: {}", b.subject, b.message))
            .collect();
        if !blockers.is_empty() {
            bail!(
                "{name} cannot be applied: {} (at boot an option --NAME is mco_rescue.allow=NAME)",
                blockers.join("; ")
            );
        }
        self.phase = "applying";
        change.lock().keep_parents();
        if !plan.is_empty() {
            let work = crate::run::work::RunWork {
                change,
                node: &session.node,
                plan: &plan,
                config: session.config_ref(),
                undoes: None,
                // Releasing the mounts afterwards needs this.
                more: &[Capability::CAP_SYS_ADMIN],
                jobs: &[],
            };
            work.transact()?;
            self.phase = "verifying";
            session.observe_again()?;
        }
        let (_, left) = session.compare();
        if let Some(first) = left.first() {
            log::warn!(
                "{name} is applied, but verify still finds {} differences, the first at {}",
                left.len(),
                first.subject
            );
        }
        Ok(name)
    }
}

fn facts(root: &Root) -> Result<BootFacts> {
    let host = Host::observe(root).context("looking at the root")?;
    let pending = transaction::find_pending(root).context("looking for an interrupted run")?;
    Ok(BootFacts {
        unfinished: pending != Pending::Nothing,
        never_booted: host.never_booted,
        // Most boots end here, so the config itself is not read.
        recorded: root.exists(&RootPath::fixed(paths::CURRENT_CONFIG))?,
        provisioned: provisioned(root)?,
        given: runtime::has_runtime(runtime::GIVEN),
    })
}

/// Returns true if Ignition had a config from the user; without one it leaves the same file (docs/develop/ignition.md: First boot).
fn provisioned(root: &Root) -> Result<bool> {
    let bytes = root.read(&RootPath::fixed(paths::IGNITION_RESULT))?;
    let Some(bytes) = bytes else { return Ok(false) };
    let report: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    // An unreadable report was still written by Ignition.
    Ok(report["userConfigProvided"].as_bool().unwrap_or(true))
}
