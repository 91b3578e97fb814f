//! Options that several commands share.
use anyhow::{Result, bail};

use crate::change::install::completion::Completion;
use crate::change::plan::fit::Accepted;
use crate::change::plan::{AcceptedRisks, Allowed, PlanOptions, TrialReboot};
use crate::change::probes::{Probe, parse_probe};
use crate::change::session::RunOptions;
use crate::change::session::predict::GivenDaemon;
use crate::change::source::LATEST;
use crate::change::source::gate::{CapsuleOptions, ConfigOrigin, ConfigRequest};
use crate::change::staging::image_source::SourceOptions;
use crate::change::trial::parse_time;
use crate::host::root::Root;
use crate::judge::crossing::checks;
use crate::judge::daemon::release::Release;
use crate::run::trial::running::TrialOptions;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

// Headings of the groups of options in `--help`.
pub(super) const WHICH: &str = "Which config";
pub(super) const SYSTEM: &str = "Operating system";
pub(super) const TRIAL: &str = "Trial";
pub(super) const AFTER: &str = "After the files";
pub(super) const FORECAST: &str = "Forecast of the daemon";
pub(super) const OVERRIDES: &str = "Overrides, each for one refusal";

/// Which config.
#[derive(Debug, Default, Args)]
pub struct ConfigArgs {
    /// A file, `-`, or `cached:NAME` [default: the node's own choice]
    ///
    /// A rendered MachineConfig, JSON or YAML as `oc get mc NAME -o yaml` prints it,
    /// or an Ignition config; what that refers to is fetched; `-` for standard input;
    /// `cached:NAME` for one of the node's cache
    /// [default: the config that the cluster last wanted, if it is available and intact,
    /// else (and for verify always) the one the node is recorded to be in]
    #[arg(value_name = "CONFIG")]
    pub config: Option<String>,

    /// The same as CONFIG.
    #[command(flatten)]
    pub named: ConfigFileArgs,

    /// Take the config of the node's pool that was fetched last; its name's hash must be right
    #[arg(long, conflicts_with_all = ["config", "filename"], hide_short_help = true, help_heading = WHICH)]
    pub latest: bool,

    /// Show contents that may be secret, too [default: their sizes]
    #[arg(long, hide_short_help = true)]
    pub show_secrets: bool,

    /// The capsule that it is read through.
    #[command(flatten)]
    pub capsule: CapsuleArgs,
}

/// CONFIG as an option.
#[derive(Debug, Default, Args)]
pub struct ConfigFileArgs {
    /// The same as CONFIG, as with oc
    #[arg(short = 'f', long, value_name = "CONFIG", conflicts_with = "config", hide_short_help = true, help_heading = WHICH)]
    pub filename: Option<String>,
}

/// FILE as an option, several times.
#[derive(Debug, Default, Args)]
pub struct FilesArgs {
    /// The same as FILE, as with oc
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub filenames: Vec<String>,
}

/// A medium with one signature.
#[derive(Debug, Clone, Default, Args)]
pub struct CapsuleArgs {
    /// Read through the capsule in DIR [default: that of the input's directory, or of one
    /// above it]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub capsule: Option<PathBuf>,

    /// Read what no capsule proves, because the key is lost; only from a login at the
    /// console of the node [default: refuse where the node demands a capsule]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub accept_unsigned: bool,
}

impl CapsuleArgs {
    /// Returns what the user says about capsules.
    pub(super) fn options(&self) -> CapsuleOptions<'_> {
        CapsuleOptions {
            directory: self.capsule.as_deref(),
            accepts_unsigned: self.accept_unsigned,
            origin: ConfigOrigin::Named,
        }
    }
}

impl ConfigArgs {
    /// Returns the requested config, with what the user says about capsules.
    pub(super) fn request(&self) -> ConfigRequest<'_> {
        ConfigRequest {
            named: self.choice(),
            capsule: self.capsule.options(),
        }
    }

    /// Returns the requested config.
    pub(super) fn choice(&self) -> Option<&str> {
        if self.latest {
            Some(LATEST)
        } else {
            self.config.as_deref().or(self.named.filename.as_deref())
        }
    }
}

/// Which config, and what is allowed.
#[derive(Debug, Default, Args)]
pub struct PlanArgs {
    /// Which config.
    #[command(flatten)]
    pub config: ConfigArgs,

    /// Show sections and counts only, without paths, diffs and notices; blockers stay
    #[arg(long, hide_short_help = true)]
    pub summary: bool,

    /// Skip sections that are never applied on a running node (disks, raid,
    /// filesystems, luks, groups) instead of refusing, and accept steps that the daemon
    /// refuses although they are harmless (changed directories and links)
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub ignore_unsupported: bool,

    /// Leave the OS image and kernel arguments as they are
    ///
    /// Applies files, units and users although the OS image, kernel arguments, extensions
    /// or kernel type of the config differ; the daemon reports those until they are done
    #[arg(long, help_heading = SYSTEM)]
    pub files_only: bool,

    /// Allow a config that leaves core without any key or password [default: refuse it]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub allow_lockout: bool,

    /// Allow a config that has /etc/passwd, /etc/group, /etc/shadow or /etc/gshadow as a
    /// whole file; accounts that the file does not list are removed [default: refuse it]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub allow_account_files: bool,

    /// Leave the rest to the daemon: the record stays as it is, and once the files are in
    /// place /run/machine-config-daemon-force is created. When the daemon starts in this
    /// boot, it compares nothing, writes all files and units of the desired config again,
    /// drains, and reboots
    #[arg(long, requires = "files_only", hide_short_help = true, help_heading = AFTER)]
    pub request_mcd_force: bool,

    /// Boot the next system in memory first, as rehearse does
    ///
    /// plan rehearses the boot with the config; apply, the next boot once the config is in
    /// place. An inhibitor ends apply (exit code 5) before it reboots, and reverts a trial
    #[arg(long, hide_short_help = true, help_heading = AFTER)]
    pub rehearse: bool,

    /// The MachineConfiguration object named cluster, JSON or YAML: the node disruption
    /// policies in it decide what is reloaded and restarted after the files, and
    /// irreconcilableValidationOverrides which changed storage sections pass
    /// [default: what fetch has kept, else the operator's own policies]
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = AFTER)]
    pub policy: Option<String>,

    /// Where the image comes from.
    #[command(flatten)]
    pub bits: BitsArgs,

    /// What may be accepted in another image.
    #[command(flatten)]
    pub risks: RiskArgs,

    /// What may be accepted on the node.
    #[command(flatten)]
    pub guards: GuardArgs,

    /// What may be accepted in the config.
    #[command(flatten)]
    pub doubts: DoubtArgs,

    /// A change that is reverted unless it is confirmed.
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
    #[arg(long, value_name = "NAME", hide_short_help = true, help_heading = FORECAST)]
    pub desired: Option<String>,

    /// The daemon's release, such as 4.19, 4.19.3 or 5.0, or the day of its source, such as
    /// 2025-07-22 [default: that of the node, else the newest]
    #[arg(long, value_name = "VERSION", hide_short_help = true, help_heading = FORECAST)]
    pub daemon_version: Option<Release>,
}

impl DaemonArgs {
    /// Returns what the user knows about the daemon.
    pub(super) fn given(&self) -> GivenDaemon<'_> {
        GivenDaemon {
            desired: self.desired.as_deref(),
            release: self.daemon_version,
        }
    }
}

/// A change that is reverted unless it is confirmed.
#[derive(Debug, Clone, Args)]
pub struct TryArgs {
    /// Revert it unless `mco-rescue confirm` is run in TIME
    ///
    /// Reverts everything unless `mco-rescue confirm` is run from a new login within TIME,
    /// such as 90s, 10m or 1h; survives a lost login, hangs and power cuts
    /// [without =TIME: 10m]
    #[arg(long = "try", value_name = "TIME", num_args = 0..=1, require_equals = true,
        default_missing_value = "10m", value_parser = parse_time, help_heading = TRIAL)]
    pub window: Option<Duration>,

    /// With --try: confirm it without a login, once this probe succeeds twice: default-route,
    /// name-servers, api, kubelet, sshd, or a command; may be given several times, and all
    /// have to succeed, with those in /etc/mco-rescue/probes.d
    #[arg(long, value_name = "PROBE", requires = "window", value_parser = parse_probe, hide_short_help = true, help_heading = TRIAL)]
    pub probe: Vec<Probe>,

    /// With --try: end as soon as the change is in place, and do not wait for the confirmation
    #[arg(long, requires = "window", hide_short_help = true, help_heading = TRIAL)]
    pub detach: bool,

    /// With --try and a reboot: the boot has to finish within TIME; firmware is not
    /// counted
    #[arg(long, value_name = "TIME", requires = "window", default_value = "15m",
        value_parser = parse_time, hide_short_help = true, help_heading = TRIAL)]
    pub boot_limit: Duration,
}

impl TryArgs {
    /// Returns the options of the trial.
    pub(super) fn options(&self) -> TrialOptions {
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

/// Where the image comes from.
#[derive(Debug, Clone, Default, Args)]
pub struct BitsArgs {
    /// Take the OS image from a directory or archive
    ///
    /// An OCI directory or archive, or a directory of `skopeo copy dir:`, whose digest is that
    /// of the wanted name; it is brought into containers-storage first. Or from another node:
    /// an export of `mco-rescue image export`, its stream (-), or that node's mounted disk
    #[arg(long, value_name = "PATH", help_heading = SYSTEM)]
    pub os_from: Option<PathBuf>,

    /// Compare the content of another node's image with this document of a third one
    ///
    /// The output of `mco-rescue image list --output json` there, or of `mco-rescue status
    /// --output json` if it runs the image. Two nodes have to agree
    #[arg(long, value_name = "FILE", requires = "os_from", help_heading = SYSTEM, hide_short_help = true)]
    pub os_proof: Vec<PathBuf>,

    /// Stage another node's image although no two nodes vouch for its content
    /// [default: refuse]
    #[arg(long, requires = "os_from", help_heading = SYSTEM, hide_short_help = true)]
    pub unproven_image: bool,

    /// Take the OS image from containers-storage, where it is stored under its exact name
    /// [default: its registry, or a mirror in registries.conf]
    #[arg(long, conflicts_with = "os_from", hide_short_help = true, help_heading = SYSTEM)]
    pub from_storage: bool,

    /// Take the packages of extensions and kernels from a directory: a repository, or the
    /// unpacked image of extensions [default: the image of extensions that CONFIG names]
    #[arg(long, value_name = "DIR", hide_short_help = true, help_heading = SYSTEM)]
    pub extensions_from: Option<PathBuf>,
}

impl BitsArgs {
    /// Returns the options that choose the source of the image.
    pub fn options<'a>(&'a self, capsule: &'a CapsuleArgs) -> SourceOptions<'a> {
        SourceOptions {
            capsule: capsule.options(),
            os_from: self.os_from.as_deref(),
            os_proofs: &self.os_proof,
            from_storage: self.from_storage,
            extensions_from: self.extensions_from.as_deref(),
        }
    }
}

/// What on the node may be accepted.
#[derive(Debug, Clone, Default, Args)]
pub struct GuardArgs {
    /// Clear the flags immutable and append-only (chattr +i, +a) where they stand in the
    /// way, right before the renames, and set them again afterwards
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub clear_immutable: bool,

    /// Force the run while an update of this node seems to be under way, and drop a deployment
    /// that another program staged where it is in the way [default: refuse]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub takeover: bool,

    /// Go on although a reboot of this control-plane node would leave etcd without quorum
    /// [default: refuse]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub ignore_quorum: bool,

    /// Stage an operating system although no unit of mco-rescue would complete the run at the
    /// next boot; mco-rescue complete has to be run there by hand [default: refuse]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub complete_by_hand: bool,

    /// Go on although every boot of this system recreates /etc or the root (transient), so
    /// that the changes are gone after the next reboot [default: refuse]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub until_reboot: bool,

    /// Go on although this machine is not a node of a cluster: no CoreOS, not booted by
    /// OSTree, and without any record of the daemon [default: refuse]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub not_a_node: bool,

    /// The work of the first-boot service is done here instead.
    #[arg(skip)]
    pub first_boot: bool,
}

/// Refuses an option that only the running node can carry out, if it is given for another root.
pub(super) fn expect_running_node(root: &Root, option: &str, is_given: bool) -> Result<()> {
    if is_given && !root.is_live() {
        bail!("{option} works only on the running node; leave it out for another root");
    }
    Ok(())
}

/// Refuses places of images and packages for another root: nothing is staged there.
pub(super) fn expect_local_bits(root: &Root, bits: &BitsArgs) -> Result<()> {
    expect_running_node(root, "--os-from", bits.os_from.is_some())?;
    expect_running_node(root, "--extensions-from", bits.extensions_from.is_some())?;
    expect_running_node(root, "--from-storage", bits.from_storage)
}

/// Doubts about the config that may be accepted, each by itself.
#[derive(Debug, Clone, Default, Args)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "one option each, independent of the others"
)]
pub struct DoubtArgs {
    /// Apply a MachineConfig that is not a rendered one: what it does not name is removed
    /// [default: refuse; render merges all of a pool]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub not_rendered: bool,

    /// Allow a plan that removes more than a tenth of the recorded config, or a part of
    /// kubelet, CRI-O, network or sshd [default: refuse]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub allow_removals: bool,

    /// Apply the config of another pool than the node's [default: refuse]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub other_pool: bool,

    /// Apply the config of another cluster than the node's [default: refuse]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub other_cluster: bool,

    /// Stage an image for another architecture than this machine's [default: refuse]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub other_architecture: bool,

    /// Apply a config whose contents do not match the hash in its name [default: refuse]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub edited_config: bool,
}

/// What may be accepted in another image.
#[derive(Debug, Clone, Default, Args)]
pub struct RiskArgs {
    /// Stage the image although this check of preflight found an inhibitor, such as
    /// interface-names; may be given several times [default: refuse]
    #[arg(long, value_name = "CHECK", hide_short_help = true, help_heading = OVERRIDES)]
    pub accept_risk: Vec<String>,
}

impl RiskArgs {
    pub(super) fn accepted(&self) -> anyhow::Result<AcceptedRisks> {
        let mut accepted = AcceptedRisks::default();
        for check in &self.accept_risk {
            accepted = accepted.with_check(check).ok_or_else(|| {
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
    pub(super) fn accepted(&self) -> Accepted {
        Accepted {
            not_rendered: self.not_rendered,
            removals: self.allow_removals,
            other_pool: self.other_pool,
            other_cluster: self.other_cluster,
            other_architecture: self.other_architecture,
            edited_config: self.edited_config,
            unproven_image: false,
        }
    }
}

impl GuardArgs {
    pub(super) fn completion(&self) -> Completion {
        Completion::new(self.complete_by_hand)
    }

    pub(super) fn allowed(&self) -> Allowed {
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
    pub(super) fn run_options(&self) -> anyhow::Result<RunOptions<'_>> {
        Ok(RunOptions {
            policy: self.policy.as_deref(),
            options: self.options(),
            allowed: self.guards.allowed(),
            accepted: Accepted {
                unproven_image: self.bits.unproven_image,
                ..self.doubts.accepted()
            },
            risks: self.risks.accepted()?,
            ignores_quorum: self.guards.ignore_quorum,
            source: self.bits.options(&self.config.capsule),
            completion: self.guards.completion(),
            reboots: false,
            stops_workloads: false,
            // The reboot is an option of `apply`; it is assumed if the plan needs one.
            trial: self.trial.options().plan_trial(TrialReboot::IfStaged, true),
        })
    }

    pub(super) fn options(&self) -> PlanOptions {
        PlanOptions {
            ignore_unsupported: self.ignore_unsupported,
            files_only: self.files_only,
            allow_lockout: self.allow_lockout,
            allow_account_files: self.allow_account_files,
            request_force: self.request_mcd_force,
        }
    }
}
