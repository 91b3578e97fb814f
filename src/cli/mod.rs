//! The command line: the arguments, and for each command one file that asks the engine in `run`, shows what it returns, and asks
//! the user.
//!
//! This module lists the commands and dispatches them: start here, then read the file with the name of the command. `args.rs` has
//! the options that several commands share, and `ui.rs` is how a command prints, asks and ends. The texts of the help beside the
//! types are in `short_help.rs`, `examples.rs` and `tips.rs`; `pages.rs` generates the man pages and the completions from all of them.
//!
//! Nothing about a node is decided here, and nothing is read of it but through `run`, `change`, `diagnose` and `rehearse`.

mod apply;
mod args;
mod butane;
mod cache;
mod capsule;
mod change;
mod complete;
mod confirm;
mod deferred;
mod diff;
mod diffs;
mod doctor;
mod events;
mod examples;
mod fetch;
mod firstboot;
mod fleet;
mod handover;
mod history;
mod image;
mod install;
mod keep;
mod kept;
mod keys;
mod names;
mod pages;
mod pivot;
mod plan;
mod preflight;
mod record;
mod recover;
mod rehearse;
mod render;
mod rollback;
mod short_help;
mod show;
mod status;
mod tips;
mod trial;
mod ui;
mod verify;
mod version;

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use self::apply::ApplyArgs;
use self::args::{ConfigArgs, PlanArgs};
use self::butane::ButaneArgs;
use self::cache::CacheCommand;
use self::capsule::CapsuleCommand;
use self::change::ChangeCommand;
use self::confirm::ConfirmArgs;
pub use self::deferred::Deferred;
use self::diff::DiffArgs;
use self::doctor::DoctorArgs;
use self::fetch::FetchArgs;
use self::firstboot::FirstbootArgs;
use self::fleet::ReportArgs;
use self::history::HistoryArgs;
use self::image::ImageCommand;
use self::install::InstallArgs;
use self::keep::KeepArgs;
use self::names::NamesArgs;
use self::pages::{CompletionsArgs, ManArgs};
use self::pivot::PivotArgs;
use self::preflight::PreflightArgs;
use self::record::RecordArgs;
use self::recover::RecoverArgs;
use self::rehearse::RehearseArgs;
use self::render::RenderArgs;
use self::rollback::RollbackArgs;
use self::show::ShowArgs;
use self::status::StatusArgs;
pub use self::tips::parse;
use self::trial::TrialCommand;
pub use self::ui::Output;
use self::ui::{DryRunEnd, Ui};
use crate::base::error::ExitCode;
use crate::base::invocation;
use crate::change::session::access;
use crate::host::root::RootError;
use crate::host::sys::privileges;
use crate::node::command::HostRunner;
use crate::node::command::rpm_ostree::cause::RpmOstreeError;
use crate::report;

/// The heading of the global options, so that the options of a command are listed together.
const EVERYWHERE: &str = "Options of every command";

/// Makes a node match its rendered MachineConfig, without the cluster network.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 80,
    arg_required_else_help = true,
    after_help = "Exit codes:\n  \
    0  done; verify: nothing differs; doctor: nothing to do\n  \
    1  an error or a refusal; nothing was changed\n  \
    2  wrong command line\n  \
    3  verify or diff found differences; doctor, report: a warning\n  \
    4  the run failed and everything was restored\n  \
    5  the run is unfinished: the message names the command that finishes it\n  \
    6  doctor or report found something critical\n\n\
    First steps on a broken node:\n  \
    mco-rescue doctor\n  \
    mco-rescue status\n  \
    mco-rescue verify\n  \
    mco-rescue plan && mco-rescue apply\n\n\
    The manual: mco-rescue man | man -l -"
)]
pub struct Cli {
    /// Treat DIR as `/`, such as a mounted disk
    ///
    /// Or `/sysroot` in an initramfs. Of an OSTree system's disk, the deployment that it would boot
    #[arg(long, global = true, value_name = "DIR", default_value = "/", help_heading = EVERYWHERE)]
    pub root: PathBuf,

    /// text for people; json or yaml for programs
    ///
    /// One document with a versioned schema
    #[arg(short, long, global = true, value_enum, value_name = "FORM", default_value_t = OutputForm::Text,
        hide_possible_values = true, help_heading = EVERYWHERE)]
    pub output: OutputForm,

    /// Say more on standard error; given twice, every step
    ///
    /// Of the version: commit, target and compiler
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = EVERYWHERE, hide_short_help = true)]
    pub verbose: u8,

    /// Show no progress on standard error
    ///
    /// With fetch, say nothing when the cache had it already, as timers want it; with doctor, print
    /// no report, as its exit code says all. Other results, warnings and errors stay
    #[arg(short, long, global = true, help_heading = EVERYWHERE, hide_short_help = true)]
    pub quiet: bool,

    /// Do not ask before changing the node
    ///
    /// [default: ask, and change nothing where there is no terminal]
    #[arg(short = 'y', long, global = true, help_heading = EVERYWHERE)]
    pub yes: bool,

    /// Colours of diffs, severities and errors: auto, always or never
    ///
    /// auto shows them at a terminal, unless the variable `NO_COLOR` is set
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ColourChoice::Auto,
        hide_possible_values = true, hide_short_help = true, help_heading = EVERYWHERE)]
    pub color: ColourChoice,

    /// Do not show long output in a pager
    ///
    /// At a terminal, what is longer than it is shown in the program of the variable `PAGER`, else in
    /// less, if the command changes nothing
    #[arg(long, global = true, hide_short_help = true, help_heading = EVERYWHERE)]
    pub no_pager: bool,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Returns true if this stream is shown in colours.
    pub fn is_coloured(&self, stream: &impl IsTerminal) -> bool {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match self.color {
            ColourChoice::Always => true,
            ColourChoice::Never => false,
            ColourChoice::Auto => {
                let terminal = terminal_kind();
                let is_simple = is_unable(&terminal) || terminal.starts_with("vt");
                !is_set("NO_COLOR") && !is_simple && stream.is_terminal()
            }
        }
    }

    /// Returns true if the progress of long operations is shown. A screen that is redrawn has no place for it.
    pub fn shows_progress(&self) -> bool {
        let redraws = matches!(&self.command, Command::Status(args) if args.watch);
        !self.quiet && !redraws
    }

    /// Returns true if long output of this command is shown in a pager.
    fn is_paged(&self) -> bool {
        !self.no_pager && !is_unable(&terminal_kind()) && is_for_reading(&self.command)
    }
}

/// Returns the kind of the terminal, as the environment names it.
fn terminal_kind() -> String {
    std::env::var("TERM").unwrap_or_default()
}

/// Returns true for a kind of terminal that can only print lines.
fn is_unable(terminal: &str) -> bool {
    matches!(terminal, "" | "dumb" | "unknown")
}

/// The form of the output, as it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    /// Lines for people.
    Text,
    /// One JSON document.
    Json,
    /// The same document as YAML.
    Yaml,
}

/// When colours are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColourChoice {
    /// At a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make the node match CONFIG; all of it or nothing
    ///
    /// Shows the plan, asks, then stages every file, flushes, and renames them into
    /// place. A power cut at any moment leaves the node as it was or as it should be;
    /// the next run finishes or undoes. The daemon's record is written last.
    ///
    /// After the files, services that use them are reloaded or restarted, following
    /// the cluster's node disruption policies; if that fails, everything is restored. On a
    /// running OSTree node image and kernel arguments are staged first. A reboot is named,
    /// and done only with --reboot.
    #[command(after_long_help = examples::APPLY)]
    Apply(Deferred<ApplyArgs>),

    /// Show what apply would do: blockers first, then every change with its diff
    ///
    /// Changes nothing. Ends with exit code 1 when apply would refuse.
    #[command(after_long_help = examples::PLAN)]
    Plan(Deferred<PlanArgs>),

    /// Compare the node with CONFIG, in the daemon's order and words
    ///
    /// Changes nothing. Finds all differences instead of the first, and those that the
    /// daemon never looks at, marked as such. Ends with exit code 3 when there are any.
    #[command(after_long_help = examples::VERIFY)]
    Verify(Deferred<ConfigArgs>),

    /// Stage the OS image alone, with the files as they are
    ///
    /// IMAGE is what the daemon will compare, byte for byte; without one it is that of
    /// the recorded config. The running deployment is pinned first. The node changes at its next
    /// boot; nothing reboots without --reboot.
    #[command(after_long_help = examples::PIVOT)]
    Pivot(Deferred<PivotArgs>),

    /// Check if this node can run another OS image, before it is staged
    ///
    /// Changes nothing. Reads the image unbooted, and this node: processor, network interfaces, boot loader, drivers,
    /// disks, kernel arguments, container runtime. Each finding has its evidence, the words of the failure that it
    /// prevents, and the cure. Ends with exit code 1 if the image has an inhibitor.
    #[command(after_long_help = examples::PREFLIGHT)]
    Preflight(Deferred<PreflightArgs>),

    /// Boot the next system in namespaces, before the node reboots into it
    ///
    /// Changes nothing. Boots what runs now, then what is staged or CONFIG, in memory and without
    /// devices and network, beside the running node. Lists what is new: units that fail or are no longer
    /// started, missing programs, refused configurations. Ends with exit code 1 when
    /// the node would be out of reach.
    #[command(after_long_help = examples::REHEARSE)]
    Rehearse(Deferred<RehearseArgs>),

    /// List what is in CONFIG, or print one decoded file
    ///
    /// Changes nothing. With one argument that is a path of the recorded config,
    /// prints that file as it should be.
    #[command(after_long_help = examples::SHOW)]
    Show(Deferred<ShowArgs>),

    /// Say what is wrong with this node, worst first, with the next command
    ///
    /// Changes nothing, except with --fix. Looks at records, image, certificates, clock, disk and network
    /// configuration, and says what it could not look at. Of the network it asks one
    /// thing, on the node itself: the server of the last fetch for the time. With ID, such
    /// as FP-03, explains that check instead. Ends with exit code 6 when something is
    /// critical, 3 when the worst is a warning, and 0 otherwise. --fix ends with 0 when the
    /// finding is gone, or the check found nothing, and 3 when it is still found, or files
    /// alone do not cure it. Given a date with --until, it ends with 6 when
    /// nothing on the node brings it back, 3 when an admin has to act, 0 when it comes
    /// back by itself.
    #[command(after_long_help = examples::DOCTOR)]
    Doctor(Deferred<DoctorArgs>),

    /// Record a snapshot of this node's facts, to compare with on a bad day
    ///
    /// Digests of all of /etc, boot entries, units, interfaces, disks, certificates' dates,
    /// versions: never a secret. Run at the end of a boot by mco-rescue-record.service.
    /// Nothing is written where nothing changed.
    #[command(after_long_help = examples::RECORD)]
    Record(Deferred<RecordArgs>),

    /// List the boots and runs of this node, the newest first
    ///
    /// Changes nothing. Time, what it was and what came of it, with the number of the
    /// snapshot for diff.
    #[command(after_long_help = examples::HISTORY)]
    History(Deferred<HistoryArgs>),

    /// Show what differs between two snapshots, or the last good boot and now
    ///
    /// Changes nothing. What keeps nodes from booting or joining most often comes first.
    /// Ends with exit code 3 when there are differences.
    #[command(after_long_help = examples::DIFF)]
    Diff(Deferred<DiffArgs>),

    /// Show the recorded config, the last run, and what the daemon will do
    ///
    /// Changes nothing. Also whether a run is unfinished.
    #[command(after_long_help = examples::STATUS)]
    Status(Deferred<StatusArgs>),

    /// Get the pool's rendered config into the node's cache, for the day without network
    ///
    /// From the Machine Config Server over https, verified by its authority; or from a
    /// file, standard input or URL. Changes nothing but the cache. Take it later with
    /// `mco-rescue plan cached:NAME`.
    #[command(after_long_help = examples::FETCH)]
    Fetch(Deferred<FetchArgs>),

    /// The OS images in this node's OSTree repository, and their export for nodes without a
    /// registry
    #[command(subcommand, after_long_help = examples::IMAGE)]
    Image(Deferred<ImageCommand>),

    /// A medium with one signature: list and sign a directory, verify it, show it
    #[command(subcommand, after_long_help = examples::CAPSULE)]
    Capsule(Deferred<CapsuleCommand>),

    /// List, export or forget the configs in the node's cache
    #[command(subcommand, after_long_help = examples::CACHE)]
    Cache(Deferred<CacheCommand>),

    /// Merge the MachineConfigs of POOL into the rendered one, as the operator does
    ///
    /// Changes nothing. Prints the rendered MachineConfig as JSON, with the name that
    /// the operator would give it, for plan and apply.
    #[command(after_long_help = examples::RENDER)]
    Render(Deferred<RenderArgs>),

    /// Translate a Butane config of variant openshift into a MachineConfig
    ///
    /// Changes nothing. Prints the MachineConfig as Butane does, byte for byte, and what it
    /// warns of on standard error. The versions are 4.8.0 to 4.22.0 and 5.0.0, and 4.23.0- and
    /// 5.1.0-experimental.
    /// Ends with exit code 1 when the config is refused.
    #[command(after_long_help = examples::BUTANE)]
    Butane(Deferred<ButaneArgs>),

    /// Make what the cluster's controllers would make of a changed object: a mirror, a
    /// kubelet limit, a runtime option
    ///
    /// Changes nothing but the cache: the new rendered config goes there, and the plan is
    /// shown. Take it with `mco-rescue apply cached:NAME`. The object for the API is
    /// printed; status --for-cluster has it until the API is back.
    #[command(subcommand, after_long_help = examples::CHANGE)]
    Change(Deferred<ChangeCommand>),

    /// Print what was changed on this node by hand, as one MachineConfig
    ///
    /// Changes nothing. What differs from the recorded config becomes a MachineConfig; merged over that config
    /// it gives the same files, which is tried before it is printed. With PATH, only that file or directory,
    /// and files that no config has, too. What no MachineConfig can hold is listed with the reason. Contents that may be
    /// secret are left out, unless the question is answered or --with-secrets is given. Ends with exit code 3 when
    /// something differs that it does not hold.
    #[command(after_long_help = examples::KEEP)]
    Keep(Deferred<KeepArgs>),

    /// Make one page about many nodes, from gathered status and doctor documents
    ///
    /// Changes no node. Reads the JSON documents in DIR and the directories below it
    /// (NODE.json, NODE.status.json, NODE.doctor.json, NODE/status.json), and bundles
    /// (NODE.tar.gz). The page has what each node is on, what it suffers from, worst
    /// first, and what differs between siblings of a pool. A file that cannot be used is
    /// listed and stops nothing. Ends with exit code 6 when a node has something
    /// critical, 3 when the worst is a warning or not all is known, and 0 otherwise.
    #[command(after_long_help = examples::REPORT)]
    Report(Deferred<ReportArgs>),

    /// Revert the last finished run: every file, unit, user and record as it was
    ///
    /// Through the same transaction as apply. Shows the plan and asks. The runs before
    /// it can be reverted one after the other, as far as the history goes (three
    /// runs). A path that was changed since is reported and stops it.
    #[command(after_long_help = examples::ROLLBACK)]
    Rollback(Deferred<RollbackArgs>),

    /// Keep a change that was made with --try
    ///
    /// To be run from a new ssh login, which proves that the node can still be reached. Without it
    /// in time, everything is reverted.
    #[command(after_long_help = examples::CONFIRM)]
    Confirm(Deferred<ConfirmArgs>),

    /// Finish or undo an interrupted run
    ///
    /// Finishes the run if every staged object is intact, otherwise undoes it. Stops without
    /// touching anything when a path is neither as it was before nor as it should be after; --leave
    /// skips it. Objects on a file system that is missing are reported, and stop nothing.
    #[command(after_long_help = examples::RECOVER)]
    Recover(Deferred<RecoverArgs>),

    /// Put this program and its units on a node, take them off, or into an initramfs
    ///
    /// The program goes to /usr/local/bin, with the units that recover an interrupted
    /// run at boot and complete one after a reboot, and the timer that keeps the cache
    /// fresh. Each file is installed completely and
    /// durably; after an interruption, run it again. Where systemd runs, it reads the
    /// units and is asked to start them.
    #[command(after_long_help = examples::INSTALL)]
    Install(Deferred<InstallArgs>),

    /// After a reboot that a run waits for: prove that what was staged runs
    ///
    /// If the previous deployment came up instead, its files and record are restored, so that the node is
    /// consistent, and the reason is reported. Run at boot by mco-rescue-complete.service.
    Complete,

    /// Decide in the initramfs whether there is work before the real root is entered
    ///
    /// Recovers an interrupted run, completes a first boot that got no config, or applies what the kernel command
    /// line asks for (mco_rescue=auto|apply|off|shell, mco_rescue.config=, mco_rescue.server=,
    /// mco_rescue.timeout=). Otherwise it leaves the boot alone. The root is /sysroot.
    Firstboot(Deferred<FirstbootArgs>),

    /// Print the version of this program, and the facts of its build
    Version,

    /// Print what makes a shell complete this command line
    ///
    /// `make install` puts it where the shells look.
    #[command(hide = true, alias = "completion")]
    Completions(Deferred<CompletionsArgs>),

    /// Print what completions offer that only the program or the node knows, a name a line
    #[command(hide = true)]
    Names(Deferred<NamesArgs>),

    /// Show the man page mco-rescue(8), or write all pages to DIR
    Man(Deferred<ManArgs>),

    /// Parts of a trial that units and tests run
    #[command(hide = true, subcommand)]
    Trial(Deferred<TrialCommand>),
}

/// Runs the command.
pub fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    // This comes before any document is read. The first process of a rehearsal boots a whole system.
    if !matches!(&cli.command, Command::Rehearse(args) if args.stage.is_some()) {
        privileges::keep_possible();
    }
    invocation::remember_root(&cli.root);
    invocation::remember_arguments(std::env::args_os().skip(1));
    events::remember_command(&cli.command);
    if cli.output == OutputForm::Yaml {
        report::print_yaml();
    }
    report::colour::set_coloured(cli.is_coloured(&std::io::stdout()));
    if cli.is_paged() {
        report::show_long_text_in_pager();
    }
    let ui = Ui {
        root: cli.root.clone(),
        output: match cli.output {
            OutputForm::Text => Output::Text,
            OutputForm::Json | OutputForm::Yaml => Output::Json,
        },
        verbose: cli.verbose,
        quiet: cli.quiet,
        yes: cli.yes,
        dry_run: is_dry_run(&cli.command),
        runner: &HostRunner,
    };
    let result = match run_command(&ui, &cli.command) {
        Err(end) if end.is::<DryRunEnd>() => {
            ui.print_progress("Dry run: nothing was changed.\n");
            Ok(ExitCode::Done)
        }
        result => result.map_err(|error| access::explain_access(name_way_out(error))),
    };
    events::update_logins(cli);
    result
}

/// Adds the command that leads out to an error over the origin file of a deployment.
fn name_way_out(error: anyhow::Error) -> anyhow::Error {
    let text = format!("{error:#}");
    let unreadable = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<RootError>());
    let is_origin = |path: &str| path.contains("/ostree/deploy/") && path.ends_with(".origin");
    match unreadable.filter(|cause| is_origin(&cause.path)) {
        Some(cause) if !text.contains("Next: ") => {
            let cause = RpmOstreeError::OriginUnreadable {
                file: cause.path.clone(),
                why: cause.cause.to_string(),
            };
            anyhow::anyhow!("{text}. Next: {}", cause.next_step())
        }
        _ => error,
    }
}

/// Returns true if the command only shows something: it asks nothing, and changes nothing.
fn is_for_reading(command: &Command) -> bool {
    match command {
        Command::Apply(args) => args.dry_run,
        Command::Doctor(args) => args.cure.fix.is_none() && args.bundle.is_none(),
        Command::Rollback(args) => args.list,
        Command::Status(args) => !args.watch,
        Command::Plan(_)
        | Command::Verify(_)
        | Command::Preflight(_)
        | Command::Show(_)
        | Command::History(_)
        | Command::Diff(_)
        | Command::Butane(_)
        | Command::Render(_) => true,
        _ => false,
    }
}

/// Returns true if the command has to end before it changes anything.
fn is_dry_run(command: &Command) -> bool {
    match command {
        Command::Pivot(args) => args.dry_run,
        Command::Rollback(args) => args.dry_run,
        Command::Doctor(args) => args.cure.dry_run,
        Command::Install(args) => args.dry_run,
        _ => false,
    }
}

fn run_command(ui: &Ui<'_>, command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Apply(args) => match &args.key {
            Some(file) => keys::apply(ui, args, file),
            None => apply::run(ui, args),
        },
        Command::Pivot(args) => pivot::run(ui, args),
        Command::Plan(args) => plan::run(ui, args),
        Command::Preflight(args) => preflight::run(ui, args),
        Command::Rehearse(args) => rehearse::run(ui, args),
        Command::Verify(args) => verify::run(ui, args),
        Command::Show(args) => show::run(ui, args),
        Command::Doctor(args) => doctor::run(ui, args),
        Command::Record(args) => record::run(ui, args),
        Command::History(args) => history::run(ui, args),
        Command::Diff(args) => diff::run(ui, args),
        Command::Status(args) => status::run(ui, args),
        Command::Fetch(args) => fetch::run(ui, args),
        Command::Image(command) => image::run(ui, command),
        Command::Capsule(command) => capsule::run(ui, command),
        Command::Cache(command) => cache::run(ui, command),
        Command::Butane(args) => butane::run(ui, args),
        Command::Render(args) => render::run(args),
        Command::Change(command) => change::run(ui, command),
        Command::Keep(args) => keep::run(ui, args),
        Command::Report(args) => fleet::run(ui, args),
        Command::Rollback(args) => rollback::run(ui, args),
        Command::Recover(args) => recover::run(ui, args),
        Command::Confirm(args) => confirm::run(ui, args),
        Command::Complete => complete::run(ui),
        Command::Firstboot(args) => firstboot::run(ui, args),
        Command::Install(args) => install::run(ui, args),
        Command::Completions(args) => pages::completions(args),
        Command::Names(args) => names::run(ui, args),
        Command::Man(args) => pages::man(args),
        Command::Version => version::run(ui),
        Command::Trial(part) => match &**part {
            TrialCommand::Guard { once } => trial::guard(ui, *once),
            TrialCommand::Session => trial::session(),
            TrialCommand::BootCounter(command) => trial::boot_counter(ui, command),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
