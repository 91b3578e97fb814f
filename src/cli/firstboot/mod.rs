//! `firstboot`: the command that the units of the initramfs run. Decides if there is work, does it, and never prevents a boot.

mod in_place;
mod shell;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use clap::Args;

use crate::base::error::ExitCode;
use crate::base::wrap::wrap_text;
use crate::cli::args::{BitsArgs, CapsuleArgs, DoubtArgs, GuardArgs};
use crate::cli::ui::Ui;
use crate::diagnose::first_boot::{FirstBootOutcome, FirstBootResult, Mode, Parameters};
use crate::host::sys::runtime;
use crate::node::kernel::kernel_command_line;
use crate::report::{console, firstboot as told};
use crate::run::first_boot::beside_ignition::wait_beside_ignition;
use crate::run::first_boot::{FirstBootAttempt, is_unfinished};

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

    /// The capsule that a config or an image is read through.
    #[command(flatten)]
    pub capsule: CapsuleArgs,

    /// Where the image comes from.
    #[command(flatten)]
    pub bits: BitsArgs,

    /// What may be accepted on the node.
    #[command(flatten)]
    pub guards: GuardArgs,

    /// What may be accepted in the config.
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
        wait_beside_ignition(&parameters, ui);
        return Ok(ExitCode::Done);
    }
    if parameters.mode == Mode::Shell {
        return shell::enter(&path);
    }
    let mut attempt = FirstBootAttempt::new(ui, args.guards.not_a_node, args.capsule.options());
    let result = attempt.run_attempt(&path, &parameters);
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
    attempt: &FirstBootAttempt<'_>,
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
        Ok(_) if ended.outcome == FirstBootOutcome::Nothing => {
            log::info!("nothing to do: {}; {} ms", ended.why, ended.took);
            console::tell_caller(&wrap_text(&format!("Nothing to do: {}.", ended.why), 0));
        }
        Ok(_) => {
            let name = ended.config.as_deref().unwrap_or_default();
            console::tell(&told::success_text(
                &format!("{} {name}", ended.outcome.word()),
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
