//! The command line: clap types, and one function per command that reads like the pipeline.

mod apply;
mod butane;
mod cache;
mod change;
mod cluster;
mod complete;
mod confirm;
mod deferred;
mod diffs;
mod doctor;
mod events;
mod examples;
mod fetch;
mod firstboot;
mod fleet;
mod handover;
mod install;
mod keep;
mod kept;
mod keys;
mod names;
mod objects;
mod pages;
mod pivot;
mod plan;
mod preflight;
mod recorder;
mod recover;
mod render;
mod rollback;
mod show;
mod status;
mod tips;
mod trial;
mod ui;
mod verify;
mod version;

use crate::change::session::predict::GivenDaemon;
use crate::change::session::{RunOptions, access};
use crate::diagnose::doctor::gather::LookOptions;
use crate::run::rollback::RollbackOptions;
use crate::run::trial::running::TrialOptions;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use self::deferred::Deferred;
pub use self::tips::parse;
use crate::base::error::ExitCode;
use crate::base::invocation;
use crate::change::install::completion::Completion;
use crate::change::plan::fit::Accepted;
use crate::change::plan::{AcceptedRisks, Allowed, PlanOptions};
use crate::change::probes::{Probe, parse_probe};
use crate::change::source::LATEST;
use crate::change::staging::image_source::SourceOptions;
use crate::change::trial::parse_time;
use crate::host::sys::privileges;
use crate::judge::crossing::checks;
use crate::judge::daemon::release::Release;
use crate::node::command::HostRunner;
use ui::Ui;

/// The heading of the global options, so that the options of a command are listed together.
const EVERYWHERE: &str = "Options of every command";

/// Makes a node be what its rendered MachineConfig says, without the cluster network.
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
    4  the run failed and everything was put back\n  \
    5  it ended half-way: the message names the command that goes on\n  \
    6  doctor or report found something critical\n\n\
    First steps on a broken node:\n  \
    mco-rescue doctor\n  \
    mco-rescue status\n  \
    mco-rescue verify\n  \
    mco-rescue plan && mco-rescue apply"
)]
pub struct Cli {
    /// Directory that is treated as `/`: a mounted disk, or `/sysroot` in an initramfs. Of an
    /// OSTree system's disk, the deployment that it would boot
    #[arg(long, global = true, value_name = "DIR", default_value = "/", help_heading = EVERYWHERE)]
    pub root: PathBuf,

    /// text for people, or json for programs: one document with a versioned schema
    #[arg(short, long, global = true, value_enum, value_name = "FORM", default_value_t = Output::Text,
        hide_possible_values = true, help_heading = EVERYWHERE)]
    pub output: Output,

    /// Say more on standard error; given twice, every step. Of the version: commit, target and
    /// compiler
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = EVERYWHERE)]
    pub verbose: u8,

    /// Show no progress on standard error; with fetch, say nothing when the cache had it
    /// already, as timers want it; with doctor, print no report, as its exit code says all.
    /// Other results, warnings and errors stay
    #[arg(short, long, global = true, help_heading = EVERYWHERE)]
    pub quiet: bool,

    /// Do not ask before changing the node [default: ask, and change nothing where
    /// there is no terminal]
    #[arg(short = 'y', long, global = true, help_heading = EVERYWHERE)]
    pub yes: bool,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Lines for people.
    Text,
    /// One JSON document.
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make the node be CONFIG; all of it or nothing
    ///
    /// Shows the plan, asks, then stages every file, flushes, and renames them into
    /// place. A power cut at any moment leaves the node as it was or as it should be;
    /// the next run finishes or undoes. The daemon's record is written last.
    ///
    /// After the files, services that have to hear of them are reloaded or restarted, by
    /// the cluster's node disruption policies; if that fails, everything is put back. On a
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
    /// the recorded config. What runs is pinned first. The node changes at its next
    /// boot; nothing reboots without --reboot.
    #[command(after_long_help = examples::PIVOT)]
    Pivot(Deferred<PivotArgs>),

    /// Say if this node can run another OS image, before it is staged
    ///
    /// Changes nothing. Reads the image unbooted, and this node: processor, network interfaces, boot loader, drivers,
    /// disks, kernel arguments, container runtime. Each finding has its evidence, the words of the failure that it
    /// prevents, and the cure. Ends with exit code 1 when something stands against the image.
    #[command(after_long_help = examples::PREFLIGHT)]
    Preflight(Deferred<PreflightArgs>),

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
    /// Changes nothing. What differs from the recorded config becomes a MachineConfig that gives this node again
    /// when it is merged over that config; this is tried before it is printed. With PATH, only that file or directory,
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

    /// Take the last finished run back: every file, unit, user and record as it was
    ///
    /// Through the same transaction as apply. Shows the plan and asks. The runs before
    /// it can be taken back one after the other, as far as the history goes (three
    /// runs). A path that was changed since is reported and stops it.
    #[command(after_long_help = examples::ROLLBACK)]
    Rollback(Deferred<RollbackArgs>),

    /// Keep a change that was made with --try
    ///
    /// To be run from a new ssh login, which proves that the node can still be reached. Without it
    /// in time, everything goes back.
    #[command(after_long_help = examples::CONFIRM)]
    Confirm(Deferred<ConfirmArgs>),

    /// Finish or undo an interrupted run
    ///
    /// Goes forward when every staged object is whole, else back. Stops without
    /// touching anything when a path is neither as before nor as after; --leave
    /// leaves it. Objects on a file system that is missing are reported, and stop nothing.
    #[command(after_long_help = examples::RECOVER)]
    Recover(Deferred<RecoverArgs>),

    /// Put this program and its units on a node, take them off, or into an initramfs
    ///
    /// The program goes to /usr/local/bin, with the units that recover an interrupted
    /// run at boot and complete one after a reboot, and the timer that keeps the cache
    /// fresh. Each file is put whole and
    /// durably; after an interruption, run it again. Where systemd runs, it reads the
    /// units and is asked to start them.
    #[command(after_long_help = examples::INSTALL)]
    Install(Deferred<InstallArgs>),

    /// After a reboot that a run waits for: prove that what was staged runs
    ///
    /// If the deployment from before came up instead, its files and record are restored, so that the node is
    /// whole, and the reason is reported. Run at boot by mco-rescue-complete.service.
    Complete,

    /// Decide in the initramfs whether there is work before the real root is entered
    ///
    /// Recovers an interrupted run, completes a first boot that got no config, or applies what the kernel command
    /// line asks for (mco_rescue=auto|apply|off|shell, mco_rescue.config=, mco_rescue.server=,
    /// mco_rescue.timeout=). Else it leaves the boot alone. The root is /sysroot.
    Firstboot(Deferred<FirstbootArgs>),

    /// Print what makes a shell complete this command line
    ///
    /// `make install` puts it where the shells look.
    #[command(hide = true)]
    Completions(Deferred<CompletionsArgs>),

    /// Print what completions offer that only the program or the node knows, a name a line
    #[command(hide = true)]
    Names(Deferred<NamesArgs>),

    /// Print the man page mco-rescue(8), or write all pages to DIR
    #[command(hide = true)]
    Man(Deferred<ManArgs>),

    /// Parts of a trial that units and tests run
    #[command(hide = true, subcommand)]
    Trial(Deferred<TrialCommand>),
}

/// A part of a trial.
#[derive(Debug, Clone, Subcommand)]
pub enum TrialCommand {
    /// Print the login of this process as JSON
    Session,
    /// Take the change back at the end of the time
    Guard {
        /// Look once: the second guard
        #[arg(long)]
        once: bool,
    },
    /// Let GRUB count the next start, or look at its counter
    #[command(subcommand)]
    BootCounter(BootCounterCommand),
}

/// An operation on the counter of GRUB.
#[derive(Debug, Clone, Subcommand)]
pub enum BootCounterCommand {
    /// Print if GRUB can count here, its state, and the boot entries in its order
    Show,
    /// Print the id of the boot entry of a deployment
    Find {
        /// The deployment
        #[arg(value_name = "CHECKSUM.SERIAL")]
        deployment: String,
    },
    /// Let the start after the next one take this boot entry
    Arm {
        /// Name of its file in /boot/loader/entries, without .conf
        entry: String,
    },
    /// Take that back
    Disarm,
}

/// The shells that completions are for.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// For which shell.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Names that completions offer.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum NamesOf {
    /// The checks of doctor
    Checks,
    /// The configs in the cache, as CONFIG
    Configs,
    /// The configs in the cache, by their names
    Cached,
    /// Pools
    Pools,
}

/// Which names.
#[derive(Debug, Args)]
pub struct NamesArgs {
    /// Of what
    #[arg(value_enum, value_name = "OF")]
    pub of: NamesOf,
}

/// Where the pages go.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// A directory, where each command gets a page of its own
    /// [default: the first page, to standard output]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// Which config.
#[derive(Debug, Default, Args)]
pub struct ConfigArgs {
    /// A rendered MachineConfig, JSON or YAML as `oc get mc NAME -o yaml` prints it,
    /// or an Ignition config; what that refers to is fetched; `-` for standard input;
    /// `cached:NAME` for one of the node's cache
    /// [default: the config that the cluster last wanted, if it is at hand intact,
    /// else (and for verify always) the one the node is recorded to be in]
    #[arg(value_name = "CONFIG")]
    pub config: Option<String>,

    /// Take the config of the node's pool that was fetched last; its name's hash must be right
    #[arg(long, conflicts_with = "config")]
    pub latest: bool,

    /// Show contents that may be secret, too [default: their sizes]
    #[arg(long)]
    pub show_secrets: bool,
}

impl ConfigArgs {
    /// Returns the requested config.
    fn choice(&self) -> Option<&str> {
        if self.latest {
            Some(LATEST)
        } else {
            self.config.as_deref()
        }
    }
}

/// Which image is looked at before a crossing.
#[derive(Debug, Default, Args)]
pub struct PreflightArgs {
    /// A config, as for apply, or the name of an image: HOST/PATH@sha256:DIGEST
    /// [default: the image at --os-from, else that of the config which the cluster last wanted]
    #[arg(value_name = "CONFIG|IMAGE")]
    pub target: Option<String>,

    /// Read the image here: an OCI directory or archive, or a directory that holds its files
    /// [default: a deployment of this node, or containers-storage]
    #[arg(long, value_name = "PATH")]
    pub os_from: Option<PathBuf>,

    /// Read the image in containers-storage, under this very name
    #[arg(long, conflicts_with = "os_from")]
    pub from_storage: bool,
}

/// Which config, and what is allowed.
#[derive(Debug, Default, Args)]
pub struct PlanArgs {
    /// Which config.
    #[command(flatten)]
    pub config: ConfigArgs,

    /// Show sections and counts only, without paths, diffs and notices; blockers stay
    #[arg(long)]
    pub summary: bool,

    /// Pass over sections that are never applied on a running node (disks, raid,
    /// filesystems, luks, groups) instead of refusing, and take steps that the daemon
    /// refuses although they are harmless (changed directories and links)
    #[arg(long)]
    pub ignore_unsupported: bool,

    /// Apply files, units and users although the OS image, kernel arguments, extensions
    /// or kernel type of the config differ; the daemon reports those until they are done
    #[arg(long)]
    pub files_only: bool,

    /// Allow a config that leaves core without any key or password [default: refuse it]
    #[arg(long)]
    pub allow_lockout: bool,

    /// Allow a config that brings /etc/passwd, /etc/group, /etc/shadow or /etc/gshadow as a
    /// whole file; accounts that the file does not list are removed [default: refuse it]
    #[arg(long)]
    pub allow_account_files: bool,

    /// Leave the rest to the daemon: the record stays as it is, and once the files are in
    /// place /run/machine-config-daemon-force is made. When the daemon starts in this
    /// boot, it compares nothing, writes all files and units of the desired config anew,
    /// drains, and reboots
    #[arg(long, requires = "files_only")]
    pub request_mcd_force: bool,

    /// The MachineConfiguration object named cluster, JSON or YAML: the node disruption
    /// policies in it decide what is reloaded and restarted after the files, and
    /// irreconcilableValidationOverrides which changed storage sections pass
    /// [default: what fetch has kept, else the operator's own policies]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<String>,

    /// How an image is had.
    #[command(flatten)]
    pub bits: BitsArgs,

    /// What may be passed over in another image.
    #[command(flatten)]
    pub risks: RiskArgs,

    /// What may be passed over on the node.
    #[command(flatten)]
    pub guards: GuardArgs,

    /// What may be passed over in the config.
    #[command(flatten)]
    pub doubts: DoubtArgs,

    /// A change that goes back by itself.
    #[command(flatten)]
    pub trial: TryArgs,

    /// The daemon that starts afterwards.
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// What is known of the daemon that starts next.
#[derive(Debug, Default, Args)]
pub struct DaemonArgs {
    /// What the cluster wants the node to be in (annotation desiredConfig), for the
    /// forecast of the daemon [default: the last value of the API, or of the daemon's log]
    #[arg(long, value_name = "NAME")]
    pub desired: Option<String>,

    /// The daemon's release, such as 4.19, 4.19.3 or 5.0, or the day of its source, such as
    /// 2025-07-22 [default: that of the node, else the newest]
    #[arg(long, value_name = "VERSION")]
    pub daemon_version: Option<Release>,
}

impl DaemonArgs {
    /// Returns what the user knows about the daemon.
    fn given(&self) -> GivenDaemon<'_> {
        GivenDaemon {
            desired: self.desired.as_deref(),
            release: self.daemon_version,
        }
    }
}

/// What to look for.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Explain this check, such as FP-03, instead of looking at the node
    #[arg(value_name = "ID")]
    pub id: Option<String>,

    /// List all checks with their titles, instead of looking at the node
    #[arg(long, conflicts_with_all = ["id", "bundle", "deep", "until", "fix"])]
    pub list: bool,

    /// Write the checked evidence into an archive (.tar.gz) for support, and list its
    /// parts: no content of any file that a config brings, only digests. FILE must
    /// not be there yet
    #[arg(long, value_name = "FILE", conflicts_with = "id")]
    pub bundle: Option<PathBuf>,

    /// Encrypt the bundle to this public key: ssh-ed25519, ssh-rsa or age1..., or a file
    /// with such keys, one a line; may be given several times. `age -d -i KEYFILE FILE`
    /// opens it with the secret key
    #[arg(long, value_name = "KEY", requires = "bundle", conflicts_with = "id")]
    pub recipient: Vec<String>,

    /// Also run the slow checks: hashes objects and whole databases. Takes minutes on a
    /// slow disk
    #[arg(long, conflicts_with = "id")]
    pub deep: bool,

    /// Instead of checks: suppose that the node is off from now until DATE, such as
    /// 2026-01-31 or 2026-01-31T12:00:00Z, and show if it comes back by itself, and
    /// which certificate stops it on which day
    #[arg(long, value_name = "DATE", value_parser = crate::base::time::parse_day_or_time,
          conflicts_with_all = ["id", "bundle", "deep", "fix"])]
    pub until: Option<u64>,

    /// The cure of a finding.
    #[command(flatten)]
    pub cure: FixArgs,

    /// The daemon that starts next.
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

impl DoctorArgs {
    /// Returns the options for gathering evidence.
    fn gather_options(&self) -> LookOptions<'_> {
        LookOptions {
            deep: self.deep,
            daemon: self.daemon.given(),
        }
    }
}

/// Which finding is cured, and what may be passed over.
#[derive(Debug, Args)]
pub struct FixArgs {
    /// Cure the finding of this check where files alone are the cure: show the changes as
    /// a plan, ask, and make them in one transaction, which rollback takes back
    #[arg(long, value_name = "ID", conflicts_with_all = ["id", "bundle"])]
    pub fix: Option<String>,

    /// With --fix: which finding of the check, where it has several
    #[arg(long, value_name = "N", requires = "fix")]
    pub finding: Option<usize>,

    /// With --fix: clear the flags immutable and append-only (chattr +i, +a) where they
    /// stand in the way, right before the renames, and set them again afterwards
    #[arg(long, requires = "fix")]
    pub clear_immutable: bool,

    /// With --fix: go on while an update of this node seems to be under way
    /// [default: refuse]
    #[arg(long, requires = "fix")]
    pub takeover: bool,

    /// With --fix: go on although every boot of this system makes /etc or the root anew
    /// [default: refuse]
    #[arg(long, requires = "fix")]
    pub until_reboot: bool,

    /// With --fix: go on although this machine is not a node of a cluster [default: refuse]
    #[arg(long, requires = "fix")]
    pub not_a_node: bool,

    /// A change that goes back by itself.
    #[command(flatten)]
    pub trial: TryArgs,
}

/// What to show of the node.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Print what an admin does with oc when the API is back: the annotations of this
    /// node and the objects that the daemon needs, as commands, with what to check
    /// before each
    #[arg(long)]
    pub for_cluster: bool,

    /// Print this MachineConfig of the node as an object for `oc create -f -`; it holds
    /// secrets, so it goes to a file or a pipe only
    #[arg(long, value_name = "NAME", requires = "for_cluster")]
    pub object: Option<String>,

    /// Print the objects of the change that was made on this node, as YAML for `oc apply -f -`
    #[arg(long, requires = "for_cluster", conflicts_with = "object")]
    pub changes: bool,

    /// Write the state as metrics for Prometheus instead, for the textfile collector of
    /// node_exporter: whole, in one rename, readable by all. Only a file of this option is
    /// replaced
    #[arg(long, value_name = "FILE", conflicts_with = "for_cluster")]
    pub metrics: Option<PathBuf>,

    /// The daemon that starts next.
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// Which config, what is allowed, and what comes after.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Which config, and what is allowed.
    #[command(flatten)]
    pub plan: PlanArgs,

    /// Change nothing, and show what plan shows
    #[arg(
        long,
        visible_short_alias = 'n',
        alias = "check",
        conflicts_with = "key"
    )]
    pub dry_run: bool,

    /// Reboot at the end, where something is staged for the next boot, or a policy asks
    /// for it [default: name the reboot]
    #[arg(long)]
    pub reboot: bool,

    /// Reload and restart nothing after the files; the jobs that remain are listed
    #[arg(long)]
    pub no_actions: bool,

    /// Where the daemon would have drained the node: stop the kubelet and every pod before
    /// the files change. Pods are not moved elsewhere first. Needs crictl
    #[arg(long)]
    pub stop_workloads: bool,

    /// Change nothing else: add the one public SSH key in FILE for core, such as
    /// ~/.ssh/id_ed25519.pub, when no login works; `-` for standard input. verify
    /// reports it as a difference, the next apply takes it away, and so does rollback
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "latest", "reboot", "stop_workloads", "window"])]
    pub key: Option<String>,
}

impl ApplyArgs {
    /// Returns the arguments to apply the config that the node chooses itself, in place of the first-boot service.
    fn of_first_boot(args: &FirstbootArgs) -> Self {
        let plan = PlanArgs {
            bits: args.bits.clone(),
            guards: GuardArgs {
                first_boot: true,
                ..args.guards.clone()
            },
            doubts: args.doubts.clone(),
            ..PlanArgs::default()
        };
        Self {
            plan,
            dry_run: false,
            reboot: args.reboot,
            no_actions: false,
            stop_workloads: false,
            key: None,
        }
    }
}

/// A change that goes back by itself.
#[derive(Debug, Clone, Args)]
pub struct TryArgs {
    /// Take everything back unless `mco-rescue confirm` is run from a new login within TIME,
    /// such as 90s, 10m or 1h; survives a lost login, hangs and power cuts
    /// [without =TIME: 10m]
    #[arg(long = "try", value_name = "TIME", num_args = 0..=1, require_equals = true,
        default_missing_value = "10m", value_parser = parse_time)]
    pub window: Option<Duration>,

    /// With --try: confirm it without a login, once this probe succeeds twice: default-route,
    /// name-servers, api, kubelet, sshd, or a command; may be given several times, and all
    /// have to succeed, with those in /etc/mco-rescue/probes.d
    #[arg(long, value_name = "PROBE", requires = "window", value_parser = parse_probe)]
    pub probe: Vec<Probe>,

    /// With --try: end as soon as the change is in place, and do not wait for the confirmation
    #[arg(long, requires = "window")]
    pub detach: bool,

    /// With --try and a reboot: the boot has to reach its end within TIME; firmware is not
    /// counted
    #[arg(long, value_name = "TIME", requires = "window", default_value = "15m",
        value_parser = parse_time)]
    pub boot_limit: Duration,
}

impl TryArgs {
    /// Returns the options of the trial.
    fn options(&self) -> TrialOptions {
        TrialOptions {
            window: self.window,
            probe: self.probe.clone(),
            detach: self.detach,
            boot_limit: self.boot_limit,
        }
    }
}

impl Default for TryArgs {
    fn default() -> Self {
        Self {
            window: None,
            probe: Vec::new(),
            detach: false,
            boot_limit: Duration::from_secs(15 * 60),
        }
    }
}

/// How a trial is confirmed.
#[derive(Debug, Args)]
pub struct ConfirmArgs {
    /// Confirm although this is not a new ssh login: from a console, a BMC or a debug pod. That
    /// proves nothing about network and sshd
    #[arg(long)]
    pub from_console: bool,
}

/// How an image is had.
#[derive(Debug, Clone, Default, Args)]
pub struct BitsArgs {
    /// Take the OS image from a medium: an OCI directory or archive, or a directory of
    /// `skopeo copy dir:`, whose digest is that of the wanted name; it is brought into
    /// containers-storage first
    #[arg(long, value_name = "PATH")]
    pub os_from: Option<PathBuf>,

    /// Take the OS image from containers-storage, where it is under its very name
    /// [default: its registry, or a mirror in registries.conf]
    #[arg(long, conflicts_with = "os_from")]
    pub from_storage: bool,

    /// Take the packages of extensions and kernels from a directory: a repository, or the
    /// unpacked image of extensions [default: the image of extensions that CONFIG names]
    #[arg(long, value_name = "DIR")]
    pub extensions_from: Option<PathBuf>,
}

impl BitsArgs {
    /// Returns the options that choose the source of the image.
    pub fn options(&self) -> SourceOptions<'_> {
        SourceOptions {
            os_from: self.os_from.as_deref(),
            from_storage: self.from_storage,
            extensions_from: self.extensions_from.as_deref(),
        }
    }
}

/// Which image.
#[derive(Debug, Args)]
pub struct PivotArgs {
    /// NAME@sha256:DIGEST, as `osImageURL` has it [default: that of the recorded config]
    #[arg(value_name = "IMAGE")]
    pub image: Option<String>,

    /// How it is had.
    #[command(flatten)]
    pub bits: BitsArgs,

    /// What may be passed over in the image.
    #[command(flatten)]
    pub risks: RiskArgs,

    /// Reboot at the end, where the image is staged for the next boot
    #[arg(long)]
    pub reboot: bool,

    /// Stage an image for another architecture than this machine's [default: refuse]
    #[arg(long)]
    pub other_architecture: bool,

    /// A change that goes back by itself.
    #[command(flatten)]
    pub trial: TryArgs,

    /// What may be passed over on the node.
    #[command(flatten)]
    pub guards: GuardArgs,
}

/// What on the node may be passed over.
#[derive(Debug, Clone, Default, Args)]
pub struct GuardArgs {
    /// Clear the flags immutable and append-only (chattr +i, +a) where they stand in the
    /// way, right before the renames, and set them again afterwards
    #[arg(long)]
    pub clear_immutable: bool,

    /// Force the run while an update of this node seems to be under way, and drop a deployment
    /// that another program staged where it is in the way [default: refuse]
    #[arg(long)]
    pub takeover: bool,

    /// Go on although a reboot of this control-plane node would leave etcd without quorum
    /// [default: refuse]
    #[arg(long)]
    pub ignore_quorum: bool,

    /// Stage an operating system although no unit of ours would complete the run at the
    /// next boot; mco-rescue complete has to be run there by hand [default: refuse]
    #[arg(long)]
    pub complete_by_hand: bool,

    /// Go on although every boot of this system makes /etc or the root anew (transient), so
    /// that the changes are gone after the next reboot [default: refuse]
    #[arg(long)]
    pub until_reboot: bool,

    /// Go on although this machine is not a node of a cluster: no CoreOS, not booted by
    /// OSTree, and without any record of the daemon [default: refuse]
    #[arg(long)]
    pub not_a_node: bool,

    /// The work of the first-boot service is done in its place.
    #[arg(skip)]
    pub first_boot: bool,
}

/// Doubts about the config that may be passed over, each by itself.
#[derive(Debug, Clone, Default, Args)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "one option each, independent of the others"
)]
pub struct DoubtArgs {
    /// Apply a MachineConfig that is not a rendered one: what it does not name is removed
    /// [default: refuse; render merges all of a pool]
    #[arg(long)]
    pub not_rendered: bool,

    /// Allow a plan that takes away more than a tenth of the recorded config, or a part of
    /// kubelet, CRI-O, network or sshd [default: refuse]
    #[arg(long)]
    pub allow_removals: bool,

    /// Apply the config of another pool than the node's [default: refuse]
    #[arg(long)]
    pub other_pool: bool,

    /// Apply the config of another cluster than the node's [default: refuse]
    #[arg(long)]
    pub other_cluster: bool,

    /// Stage an image for another architecture than this machine's [default: refuse]
    #[arg(long)]
    pub other_architecture: bool,

    /// Apply a config whose contents do not match the hash in its name [default: refuse]
    #[arg(long)]
    pub edited_config: bool,
}

/// What may be passed over in another image.
#[derive(Debug, Clone, Default, Args)]
pub struct RiskArgs {
    /// Stage the image although this check of preflight found an inhibitor, such as
    /// interface-names; may be given several times [default: refuse]
    #[arg(long, value_name = "CHECK")]
    pub accept_risk: Vec<String>,
}

impl RiskArgs {
    fn accepted(&self) -> anyhow::Result<AcceptedRisks> {
        let mut accepted = AcceptedRisks::default();
        for check in &self.accept_risk {
            accepted = accepted.with(check).ok_or_else(|| {
                let of_image = checks::ALL.iter().filter(|one| one.is_of_image);
                let known = of_image.map(|one| one.id);
                let known = known.collect::<Vec<_>>().join(", ");
                anyhow::anyhow!("--accept-risk {check}: there is no such check. These are: {known}")
            })?;
        }
        Ok(accepted)
    }
}

impl DoubtArgs {
    fn accepted(&self) -> Accepted {
        Accepted {
            not_rendered: self.not_rendered,
            removals: self.allow_removals,
            other_pool: self.other_pool,
            other_cluster: self.other_cluster,
            other_architecture: self.other_architecture,
            edited_config: self.edited_config,
        }
    }
}

impl GuardArgs {
    fn completion(&self) -> Completion {
        Completion::new(self.complete_by_hand)
    }

    fn allowed(&self) -> Allowed {
        Allowed {
            clear_immutable: self.clear_immutable,
            takeover: self.takeover,
            until_reboot: self.until_reboot,
            first_boot: self.first_boot,
            ..Allowed::default()
        }
    }
}

impl PlanArgs {
    /// Returns the options for the plan of a session.
    ///
    /// # Errors
    /// A check named by `--accept-risk` does not exist.
    fn run_options(&self) -> anyhow::Result<RunOptions<'_>> {
        Ok(RunOptions {
            policy: self.policy.as_deref(),
            options: self.options(),
            allowed: self.guards.allowed(),
            accepted: self.doubts.accepted(),
            risks: self.risks.accepted()?,
            ignores_quorum: self.guards.ignore_quorum,
            source: self.bits.options(),
            completion: self.guards.completion(),
            reboots: false,
            stops_workloads: false,
        })
    }

    fn options(&self) -> PlanOptions {
        PlanOptions {
            ignore_unsupported: self.ignore_unsupported,
            files_only: self.files_only,
            allow_lockout: self.allow_lockout,
            allow_account_files: self.allow_account_files,
            request_force: self.request_mcd_force,
        }
    }
}

/// What to show.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A rendered MachineConfig; `-` for standard input
    /// [default: the config the node is recorded to be in]
    #[arg(value_name = "CONFIG")]
    pub config: Option<String>,

    /// A file's absolute path, or a unit's name: its decoded contents go to standard output
    #[arg(value_name = "PATH")]
    pub path: Option<String>,
}

/// Which documents become a page.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The directory with the documents, a path of this machine
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// The page; an older page of this program is replaced, any other file is not
    /// [default: DIR/fleet.html]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// What to translate.
#[derive(Debug, Args)]
pub struct ButaneArgs {
    /// The Butane config, a path of this machine; `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: String,

    /// The directory with the files that the config names: `local`, `contents_local`,
    /// `ssh_authorized_keys_local` and `trees`; nothing outside of it is read
    #[arg(short = 'd', long, value_name = "DIR")]
    pub files_dir: Option<PathBuf>,

    /// Print the Ignition config alone, as JSON
    #[arg(long)]
    pub raw: bool,

    /// Refuse a config with warnings
    #[arg(long)]
    pub strict: bool,
}

/// What to render.
#[derive(Debug, Args)]
pub struct RenderArgs {
    /// Name of the pool, such as worker
    #[arg(value_name = "POOL")]
    pub pool: String,

    /// Every MachineConfig of the pool, JSON or YAML, single or as lists, in any order; and
    /// objects that become MachineConfigs, such as a KubeletConfig; `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "parts")]
    pub files: Vec<String>,

    /// File or directory with the MachineConfigs of the cluster, and the objects that made
    /// them: a must-gather, or `oc get -o yaml`; of other pools' nothing is taken
    #[arg(long, value_name = "PATH")]
    pub parts: Vec<String>,

    /// Rendered config of the node, where its parts are not at hand: FILE goes on top of it
    #[arg(long, value_name = "CONFIG", conflicts_with = "parts")]
    pub base: Option<String>,

    /// Image of the release that runs, for blocked and allowed registries, where no
    /// ClusterVersion is among the objects
    #[arg(long, value_name = "IMAGE")]
    pub release_image: Option<String>,

    /// Print the MachineConfigs that the objects become, in place of the rendered one
    #[arg(long)]
    pub generated: bool,

    /// OS image of the release, which a MachineConfig may override; without either, the
    /// name is not the cluster's
    #[arg(long, value_name = "URL")]
    pub os_image: Option<String>,

    /// Image with the extensions of the release, which a MachineConfig may override;
    /// without either, the name is not the cluster's
    #[arg(long, value_name = "URL")]
    pub extensions_image: Option<String>,

    /// Version of the operator, for the annotation generated-by-controller-version
    /// [default: that of the MachineConfigs which a controller made]
    #[arg(long, value_name = "VERSION")]
    pub controller_version: Option<String>,
}

/// What to change.
#[derive(Debug, Subcommand)]
pub enum ChangeCommand {
    /// Pull the images of SOURCE from MIRROR
    Mirror(MirrorArgs),

    /// Set fields of the kubelet's configuration, such as maxPods=300
    Kubelet(SettingArgs),

    /// Set fields of the container runtime, such as pidsLimit=4096
    Runtime(SettingArgs),

    /// Take objects from files: MachineConfigs, and what the controllers read
    With(WithArgs),
}

/// A mirror.
#[derive(Debug, Args)]
pub struct MirrorArgs {
    /// Registry or repository that images name, such as quay.io/team or *.example.com
    #[arg(value_name = "SOURCE")]
    pub source: String,

    /// Where to pull them from, in order
    #[arg(value_name = "MIRROR", required = true)]
    pub mirrors: Vec<String>,

    /// For images that are named by tag; without it, for those named by digest
    #[arg(long)]
    pub tags: bool,

    /// Never pull from SOURCE itself
    #[arg(long)]
    pub never_contact_source: bool,

    /// Remove these mirrors of SOURCE
    #[arg(long, conflicts_with = "never_contact_source")]
    pub remove: bool,

    /// What it is made from.
    #[command(flatten)]
    pub from: ChangeArgs,
}

/// Fields and values.
#[derive(Debug, Args)]
pub struct SettingArgs {
    /// Name of a field, and its value
    #[arg(value_name = "FIELD=VALUE", required = true)]
    pub settings: Vec<String>,

    /// What it is made from.
    #[command(flatten)]
    pub from: ChangeArgs,
}

/// Files with objects.
#[derive(Debug, Args)]
pub struct WithArgs {
    /// Objects, YAML or JSON; `-` for standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<String>,

    /// What it is made from.
    #[command(flatten)]
    pub from: ChangeArgs,
}

/// The config that a change is made from.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// A rendered MachineConfig [default: the config the node is recorded to be in]
    #[arg(long, value_name = "CONFIG")]
    pub from: Option<String>,

    /// File or directory with the MachineConfigs of the cluster, and the objects that made
    /// them, such as a must-gather: then the name is that of the cluster
    #[arg(long, value_name = "PATH")]
    pub parts: Vec<String>,

    /// Image of the release that runs, for blocked and allowed registries
    #[arg(long, value_name = "IMAGE")]
    pub release_image: Option<String>,

    /// Show the change and its objects, and keep nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// What is kept, and where it is written.
#[derive(Debug, Args)]
pub struct KeepArgs {
    /// Files and directories of the node [default: everything that verify finds]
    #[arg(value_name = "PATH")]
    pub paths: Vec<String>,

    /// Name of the MachineConfig; of two with one path the later name wins
    /// [default: 99-POOL-zz-kept]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Write it to this new file, which only its owner can read [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,

    /// Keep a kernel argument that the node has, too; may be given more than once
    #[arg(long, value_name = "ARGUMENT")]
    pub argument: Vec<String>,

    /// Take contents that may be secret, too: who may read MachineConfigs can read them then
    #[arg(long)]
    pub with_secrets: bool,
}

/// How to recover.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// Undo the interrupted run even if it could be finished
    #[arg(long)]
    pub back: bool,

    /// Leave PATH, and what is below it, as it is where it can be brought neither
    /// forward nor back; may be given more than once
    #[arg(long, value_name = "PATH")]
    pub leave: Vec<String>,

    /// Forget an interrupted run whose journal is damaged or of another version: every
    /// file stays as it is, and the exit code is 3
    #[arg(long, conflicts_with_all = ["back", "leave", "at_boot"])]
    pub give_up: bool,

    /// Run by a unit: no user watches, and systemd has read the unit files already
    #[arg(long, hide = true, conflicts_with = "back")]
    pub at_boot: bool,
}

/// What to install where.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// Remove it all again: units, program, and the state directory with cache and
    /// history; asks first
    #[arg(long)]
    pub remove: bool,

    /// Install although this machine is not a node of a cluster [default: refuse]
    #[arg(long, conflicts_with_all = ["remove", "initramfs"])]
    pub not_a_node: bool,

    /// Change nothing on the node: write an archive with the program and the units of
    /// the dracut module, to be loaded after the distribution's initramfs
    #[arg(long, value_name = "FILE", conflicts_with = "remove")]
    pub initramfs: Option<PathBuf>,

    /// A config that goes into the archive; more than one may be given
    #[arg(long = "config", value_name = "FILE", requires = "initramfs")]
    pub configs: Vec<String>,
}

/// How a boot is looked at.
#[derive(Debug, Args)]
pub struct FirstbootArgs {
    /// Kernel arguments instead of those of the running kernel
    #[arg(long, value_name = "TEXT")]
    pub kernel_arguments: Option<String>,

    /// Wait beside Ignition, and give it a config that is at hand when its server stays silent
    #[arg(long)]
    pub beside_ignition: bool,

    /// On the booted node: do the first-boot service's work, image and kernel arguments
    /// from what is at hand here, and put its trigger away; like apply without CONFIG
    #[arg(long, conflicts_with_all = ["beside_ignition", "after_shell"])]
    pub complete: bool,

    /// How an image is had.
    #[command(flatten)]
    pub bits: BitsArgs,

    /// What may be passed over on the node.
    #[command(flatten)]
    pub guards: GuardArgs,

    /// What may be passed over in the config.
    #[command(flatten)]
    pub doubts: DoubtArgs,

    /// Reboot at the end, where something is staged for the next boot
    #[arg(long, requires = "complete")]
    pub reboot: bool,

    /// After the shell: give the root back as it was found
    #[arg(long, conflicts_with = "beside_ignition")]
    pub after_shell: bool,
}

/// Arguments of `fetch`.
#[derive(Debug, Default, Args)]
pub struct FetchArgs {
    /// A file, a directory that holds some, `-` for standard input, or a URL
    /// [default: /config/POOL of the Machine Config Server]
    #[arg(value_name = "SOURCE")]
    pub source: Option<String>,

    /// Take every config from the medium labelled MCO-RESCUE, which is mounted
    /// read-only for as long as that takes
    #[arg(long, conflicts_with = "source")]
    pub from_media: bool,

    /// The pool [default: that of the recorded config, else of the last fetch]
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,

    /// The Machine Config Server: a URL, or a host with or without port
    /// [default: that of the last fetch, else the API's host, port 22623]
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,

    /// PEM file with the authority that signed the server's certificate, or a kubeconfig
    /// or pointer config that holds it
    /// [default: that of the last fetch, and those that the system trusts]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<String>,

    /// The address of a host name, for nodes whose name resolution is broken; may be
    /// repeated
    #[arg(long, value_name = "HOST:ADDR", value_parser = resolution)]
    pub resolve: Vec<(String, std::net::IpAddr)>,

    /// Keep this file too: the MachineConfiguration object named cluster, JSON or YAML, for
    /// its node disruption policies and irreconcilableValidationOverrides
    #[arg(long, value_name = "FILE")]
    pub policy: Option<String>,

    /// The SHA-256 of the document; then also http will do
    #[arg(long, value_name = "HEX", value_parser = |text: &str| digest(text, 64))]
    pub sha256: Option<String>,

    /// The SHA-512 of the document; then also http will do
    #[arg(long, value_name = "HEX", value_parser = |text: &str| digest(text, 128), conflicts_with = "sha256")]
    pub sha512: Option<String>,

    /// Give up after so many seconds, all attempts together
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
}

impl FetchArgs {
    /// Returns the given digest in Ignition's notation.
    fn digest(&self) -> Option<String> {
        let sha256 = self.sha256.as_ref().map(|hex| format!("sha256-{hex}"));
        sha256.or(self.sha512.as_ref().map(|hex| format!("sha512-{hex}")))
    }
}

fn resolution(text: &str) -> Result<(String, std::net::IpAddr), String> {
    let form = "is not of the form HOST:ADDR, such as api-int.example:10.0.0.5";
    let (host, address) = text.split_once(':').ok_or(form)?;
    let address = address.trim_matches(['[', ']']).parse();
    match address {
        Ok(address) if !host.is_empty() => Ok((host.to_owned(), address)),
        _ => Err(form.to_owned()),
    }
}

fn digest(text: &str, length: usize) -> Result<String, String> {
    if text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(text.to_owned())
    } else {
        Err(format!("is not {length} hexadecimal digits"))
    }
}

/// What to do with the cache.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// List the configs, the newest first; changes nothing
    List,
    /// Print the document of a config as it came; changes nothing
    Export {
        /// Name of the config, or a beginning of it that fits no other
        name: String,
    },
    /// Remove a config from the cache; nothing else on the node is changed
    Forget {
        /// Name of the config, or of the damaged file
        name: String,
    },
}

/// How to record.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Run by a unit at the end of a boot: its result is recorded too
    #[arg(long, hide = true)]
    pub at_boot: bool,
}

/// Which history.
#[derive(Debug, Default, Args)]
pub struct HistoryArgs {
    /// Read the snapshots here: the directory mco-rescue on the file system of a node's
    /// /boot, or that file system [default: those of the root]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

/// The two sides of the comparison.
#[derive(Debug, Default, Args)]
pub struct DiffArgs {
    /// Number of a snapshot, as history lists it, or `good`: that of the last good boot
    /// [default: good]
    #[arg(value_name = "A")]
    pub from: Option<String>,

    /// The same, or `now` [default: now; without a node, the newest snapshot]
    #[arg(value_name = "B")]
    pub to: Option<String>,

    /// Read the snapshots here: the directory mco-rescue on the file system of a node's
    /// /boot, or that file system [default: those of the root]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

/// What rollback may pass over.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// Take nothing back; unpin the deployments that were pinned as the way back: the next
    /// clean-up removes them. The service that fetches does this once the daemon is done
    #[arg(long, conflicts_with_all = ["leave_changed", "files_only", "reboot"])]
    pub forget: bool,

    /// With --forget: only if the API has said since the node booted that the daemon is done
    /// with the recorded config, and its image runs
    #[arg(long, requires = "forget")]
    pub if_done: bool,

    /// List the runs that can be taken back, and change nothing
    #[arg(long, conflicts_with_all = ["forget", "to", "leave_changed", "files_only", "no_actions", "reboot"])]
    pub list: bool,

    /// Go back to before this run of --list, and take all later ones back too; the name of
    /// the config that was recorded then will do [default: the last run alone]
    #[arg(long, value_name = "ID", conflicts_with = "forget")]
    pub to: Option<String>,

    /// Leave paths that were changed since as they are, instead of refusing
    #[arg(long)]
    pub leave_changed: bool,

    /// Leave the operating system as it is, where the run changed that too
    #[arg(long)]
    pub files_only: bool,

    /// Reload and restart nothing of what the run did, after the files
    #[arg(long)]
    pub no_actions: bool,

    /// Reboot at the end, where the deployment from before is entered at the next boot
    #[arg(long)]
    pub reboot: bool,

    /// A change that goes back by itself.
    #[command(flatten)]
    pub trial: TryArgs,

    /// What may be passed over on the node.
    #[command(flatten)]
    pub guards: GuardArgs,
}

impl RollbackArgs {
    /// Returns the options of the rollback.
    fn options(&self) -> RollbackOptions<'_> {
        RollbackOptions {
            to: self.to.as_deref(),
            leave_changed: self.leave_changed,
            files_only: self.files_only,
            no_actions: self.no_actions,
            complete_by_hand: self.guards.complete_by_hand,
            allowed: self.guards.allowed(),
            trial: self.trial.options(),
        }
    }
}

/// Runs the command.
pub fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    // This comes before any document is read.
    privileges::keep_possible();
    invocation::remember_root(&cli.root);
    invocation::remember_arguments(std::env::args_os().skip(1));
    events::remember_command(&cli.command);
    let ui = Ui {
        root: cli.root.clone(),
        output: cli.output,
        verbose: cli.verbose,
        quiet: cli.quiet,
        yes: cli.yes,
        runner: &HostRunner,
    };
    let result = run_command(&ui, &cli.command).map_err(access::explain);
    events::update_logins(cli);
    result
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
        Command::Verify(args) => verify::run(ui, args),
        Command::Show(args) => show::run(ui, args),
        Command::Doctor(args) => doctor::run(ui, args),
        Command::Record(args) => recorder::run(ui, args),
        Command::History(args) => recorder::history::run(ui, args),
        Command::Diff(args) => recorder::compared::run(ui, args),
        Command::Status(args) => status::run(ui, args),
        Command::Fetch(args) => fetch::run(ui, args),
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
