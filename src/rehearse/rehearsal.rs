//! A whole rehearsal: what runs now, then the next boot, and the difference.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::boot::{CONFIG, MEMORY, boot_scene};
use super::facts::{RehearsedBoot, UnitFacts};
use super::judge::{VITAL, judge_boot, rehearsal_finding};
use super::scene::{EtcChanges, RehearsalScene, SceneInterface, WRITABLE};
use crate::base::invocation::mco_rescue;
use crate::base::kargs::Kargs;
use crate::base::paths;
use crate::base::time::current_time;
use crate::change::plan::FinishedRun;
use crate::change::session::{Unnamed, choose_config};
use crate::change::staging::reboots;
use crate::change::transaction;
use crate::change::trial::store::read_trial;
use crate::config::document::MachineConfig;
use crate::host::root::{Root, RootPath};
use crate::host::running;
use crate::host::sys::runtime::REHEARSAL;
use crate::judge::crossing::{CrossingFinding, CrossingSeverity};
use crate::node::boot::BootIdentity;
use crate::node::command::ostree::StagedFile;
use crate::node::command::rehearsal_unit::{UNIT, is_rehearsing};
use crate::node::command::systemctl::{UnitActivity, query_activity};
use crate::node::command::{CommandLine, CommandRunner, ip};
use crate::node::images::ImageName;
use crate::node::kernel::{kernel_command_line, read_uptime};
use crate::node::mounts::stage::StageLayers;
use crate::node::staged::{read_staged_origin, staged_file};
use crate::node::sysroot::{self, Deployed};
use crate::node::system::System;
use crate::node::{Baseline, Host, Records};

/// Parts of a root that may come from elsewhere.
const PARTS: [&str; 3] = ["usr", "etc", "var"];
/// Memory that stays free for the node: 256 MiB.
const RESERVE: u64 = 256 << 20;
/// Space below `/run` for the scene, the config and the unit: 16 MiB.
const RUN_SPACE: u64 = 16 << 20;
/// Network interfaces that are made at most.
const INTERFACES: usize = 32;

/// What to rehearse.
#[derive(Debug, Clone, Copy)]
pub enum RehearsalSubject<'a> {
    /// What the next boot enters as the node is now.
    NextBoot,
    /// What the next boot enters if that is not what this one entered; otherwise the config that the node should have.
    NextBootOrWanted,
    /// This config, as the user names it.
    Config(&'a str),
    /// This config, which was read already.
    Chosen(&'a MachineConfig),
}

/// What to rehearse, and for how long.
#[derive(Debug, Clone)]
pub struct RehearsalOptions<'a> {
    /// The next boot or a config.
    pub subject: RehearsalSubject<'a>,
    /// Time for each of the two boots.
    pub limit: Duration,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rehearsal {
    /// What was rehearsed, in words.
    pub subject: String,
    /// A part of the subject that could not be rehearsed.
    pub not_rehearsed: Option<String>,
    /// Runs since the node booted, oldest first, that were reverted in the baseline.
    pub reverted: Vec<String>,
    /// The boot of what the node last booted.
    pub baseline: RehearsedBoot,
    /// The next boot.
    pub next: RehearsedBoot,
    /// What is new in it, worst first.
    pub findings: Vec<CrossingFinding>,
}

/// Rehearses the next boot of a root. `disk` is the path that was given as the root.
///
/// # Errors
/// This machine cannot rehearse, the config cannot be read, or a boot cannot be started. Nothing is changed.
pub fn rehearse_boot(
    root: &Root,
    disk: &Path,
    runner: &dyn CommandRunner,
    options: &RehearsalOptions<'_>,
) -> Result<Rehearsal> {
    expect_possible_rehearsal(runner)?;
    let scenes = prepare_scenes(root, disk, runner, options)?;
    let (baseline, unreverted) = boot_baseline(runner, &scenes, options.limit)?;
    let config = scenes.config.as_ref().map(|config| &*config.record);
    let next = boot_scene(runner, &scenes.next, config, options.limit);
    let next = next.context("rehearsing the next boot")?;
    let mut findings = judge_boot(&baseline, &next);
    let reverted = match &unreverted {
        Some(_) => Vec::new(),
        None => scenes.since_boot,
    };
    findings.extend(unreverted);
    Ok(Rehearsal {
        subject: scenes.subject,
        not_rehearsed: scenes.not_rehearsed,
        reverted,
        findings,
        baseline,
        next,
    })
}

/// Boots what the node last booted: its present system without the runs since then. If these cannot be reverted in the rehearsal, the
/// baseline has them too, and a finding says so.
fn boot_baseline(
    runner: &dyn CommandRunner,
    scenes: &Scenes,
    limit: Duration,
) -> Result<(RehearsedBoot, Option<CrossingFinding>)> {
    let scene = &scenes.baseline;
    let doing = "rehearsing what runs now";
    let Some(run) = scenes.since_boot.first() else {
        return Ok((boot_scene(runner, scene, None, limit).context(doing)?, None));
    };
    let before = RehearsalScene {
        rollbacks: plan_rollbacks(&scenes.since_boot, scenes.is_tried),
        ..scene.clone()
    };
    let failed = match boot_scene(runner, &before, None, limit) {
        Ok(mut boot) => {
            add_running_units(runner, &mut boot)?;
            return Ok((boot, None));
        }
        Err(error) => format!("{error:#}"),
    };
    let baseline = boot_scene(runner, scene, None, limit).context(doing)?;
    let what = "its run came after the last boot and could not be reverted for the comparison: what fails because of it is not shown as new";
    let finding = rehearsal_finding("baseline", CrossingSeverity::Unknown, run, what)
        .with_evidence("rollback", failed)
        .next(mco_rescue("rollback --list"));
    Ok((baseline, Some(finding)))
}

/// Checks if this machine can rehearse at all.
///
/// # Errors
/// The machine lacks what a rehearsal needs; the message says what to do.
pub fn expect_possible_rehearsal(runner: &dyn CommandRunner) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("a rehearsal makes namespaces, for which it needs root. Run it with sudo");
    }
    if !running::exists("/run/systemd/system") {
        bail!(
            "systemd is not running on this machine, and a rehearsal is a systemd unit. Run it on a booted node or from a live system"
        );
    }
    if !running::exists("/sys/fs/cgroup/cgroup.controllers") {
        bail!(
            "this machine has cgroups of version 1, in which current versions of systemd do not boot. Boot it with systemd.unified_cgroup_hierarchy=1"
        );
    }
    let file_systems =
        running::read_text("/proc/filesystems").context("reading /proc/filesystems")?;
    if !file_systems.lines().any(|line| line.ends_with("\toverlay")) {
        bail!("the kernel has no overlays yet. Next: modprobe overlay");
    }
    expect_free_memory()?;
    if is_rehearsing(runner)? {
        bail!(
            "another rehearsal is running, or was interrupted; it ends by itself. Next: systemctl stop {UNIT}"
        );
    }
    Ok(())
}

/// Checks if there is memory for a boot, and space for the files that begin it.
fn expect_free_memory() -> Result<()> {
    let memory = running::read_text("/proc/meminfo").context("reading /proc/meminfo")?;
    if let Some(free) = available_memory(&memory)
        && free < MEMORY + RESERVE
    {
        bail!(
            "a rehearsal needs {} MiB of free memory, and {} MiB are free",
            (MEMORY + RESERVE) >> 20,
            free >> 20
        );
    }
    let free = running::free_bytes("/run").context("asking for the space below /run")?;
    if free < RUN_SPACE {
        bail!(
            "a rehearsal needs {} MiB below /run for its config, and {} KiB are free. Next: du -x -d 1 /run",
            RUN_SPACE >> 20,
            free >> 10
        );
    }
    Ok(())
}

/// Returns the bytes of memory that processes can get, from the text of `/proc/meminfo`.
fn available_memory(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The two boots.
struct Scenes {
    baseline: RehearsalScene,
    /// Runs since the node booted, oldest first.
    since_boot: Vec<String>,
    /// The newest run is a trial.
    is_tried: bool,
    next: RehearsalScene,
    config: Option<MachineConfig>,
    subject: String,
    not_rehearsed: Option<String>,
}

/// What a clean reboot enters.
enum NextSystem {
    /// What runs.
    Same,
    /// What is staged.
    Staged(StagedFile),
    /// A deployment whose boot entry is already the first: the path of its tree, and its name.
    Queued(PathBuf, String),
}

impl NextSystem {
    fn find_staged(root: &Root) -> Result<Option<Self>> {
        if !root.is_live() {
            return Ok(None);
        }
        let staged = staged_file(root).context("reading what is staged")?;
        if staged.is_none() && root.exists(&RootPath::fixed(paths::STAGED_DEPLOYMENT))? {
            bail!(
                "/{} has a form that this program does not know: it is unknown what the next boot enters",
                paths::STAGED_DEPLOYMENT
            );
        }
        Ok(staged.map(Self::Staged))
    }

    fn find_queued(root: &Root, runner: &dyn CommandRunner) -> Result<Option<Self>> {
        if !root.is_live() {
            return Ok(None);
        }
        let host = Host::observe(root).context("looking at the node")?;
        let system = System::observe(root, &host, runner);
        let facts = match system.context("looking at the operating system")? {
            System::Known(facts) => facts,
            System::Silent(why) => bail!("it is unknown what the next boot enters: {why}"),
            System::NotAsked | System::Composefs(_) => return Ok(None),
        };
        let entered = facts.deployments.entered_next();
        let queued = entered.filter(|one| !one.booted && !one.staged);
        Ok(queued.map(|one| Self::Queued(deployment_tree(&one.osname, &one.name()), one.name())))
    }

    /// Returns true if this is a staged deployment of the image.
    fn is_staged_image(&self, root: &Root, image: &str) -> Result<bool> {
        let Self::Staged(staged) = self else {
            return Ok(false);
        };
        let origin = read_staged_origin(root, staged);
        let origin = origin.context("reading the origin of what is staged")?;
        Ok(origin.is_some_and(|origin| is_image(&origin.image_name(), image)))
    }

    fn scene(&self, now: &RehearsalScene, runner: &dyn CommandRunner) -> Result<RehearsalScene> {
        match self {
            Self::Same => Ok(now.clone()),
            Self::Staged(staged) => scene_of_staged(now, staged, runner),
            Self::Queued(tree, _) => Ok(RehearsalScene {
                layers: StageLayers {
                    tree: tree.clone(),
                    within: vec![("var".to_owned(), PathBuf::from("/var"))],
                    size: now.layers.size,
                },
                ..now.clone()
            }),
        }
    }

    fn describe(&self, root: &Root) -> String {
        match self {
            Self::Staged(staged) => format!("the staged deployment {}", staged.name),
            Self::Queued(_, name) => format!("the deployment {name}, which the next boot enters"),
            Self::Same if root.is_live() => "the running system".to_owned(),
            Self::Same => "the system on this disk".to_owned(),
        }
    }
}

/// Adds the needed units that run, and that only the runs since the last boot brought: the next boot has to start them.
fn add_running_units(runner: &dyn CommandRunner, baseline: &mut RehearsedBoot) -> Result<()> {
    let all = query_activity(runner, &VITAL).context("asking for the units that run")?;
    let is_new = |unit: &UnitActivity| {
        let known = baseline.units.get(&unit.name);
        unit.is_running() && known.is_none_or(|known| known.load != "loaded")
    };
    let new: Vec<_> = all.into_iter().filter(is_new).collect();
    baseline.units.extend(new.into_iter().map(|unit| {
        let facts = UnitFacts {
            load: "loaded".to_owned(),
            active: "active".to_owned(),
            sub: unit.sub,
            ..UnitFacts::default()
        };
        (unit.name, facts)
    }));
    Ok(())
}

/// Returns the arguments of the rollbacks that revert these runs, oldest first. A trial of the newest comes first and alone.
fn plan_rollbacks(runs: &[String], is_tried: bool) -> Vec<Vec<String>> {
    let mut rollbacks = Vec::new();
    let mut left = runs;
    if is_tried && let [older @ .., _] = runs {
        rollbacks.push(Vec::new());
        left = older;
    }
    if let Some(oldest) = left.first() {
        let options = ["--files-only", "--leave-changed", "--to", oldest];
        rollbacks.push(options.map(str::to_owned).to_vec());
    }
    rollbacks
}

fn prepare_scenes(
    root: &Root,
    disk: &Path,
    runner: &dyn CommandRunner,
    options: &RehearsalOptions<'_>,
) -> Result<Scenes> {
    let baseline = scene_of_root(root, disk, runner)?;
    let records = Records::read(root)?;
    let since_boot = find_runs_since_boot(root, runner)?;
    let mut system = NextSystem::find_staged(root)?;
    let mut config = match options.subject {
        RehearsalSubject::NextBoot | RehearsalSubject::NextBootOrWanted => None,
        RehearsalSubject::Config(image) if is_image_name(image) => {
            let staged = system.as_ref();
            let is_staged = staged.map(|system| system.is_staged_image(root, image));
            if !is_staged.transpose()?.unwrap_or(false) {
                bail!("{}", refuse_image(image));
            }
            None
        }
        RehearsalSubject::Config(config) => Some(read_config(root, &records, Some(config))?),
        RehearsalSubject::Chosen(config) => Some(expect_rendered(config.clone())?),
    };
    // A config is laid over what is staged or runs, whatever the boot entries are.
    if system.is_none() && config.is_none() {
        system = NextSystem::find_queued(root, runner)?;
        let is_unchanged = system.is_none() && since_boot.is_empty();
        if is_unchanged && matches!(options.subject, RehearsalSubject::NextBootOrWanted) {
            config = Some(read_config(root, &records, None)?);
        }
    }
    let mut system = system.unwrap_or(NextSystem::Same);
    let mut not_rehearsed = None;
    if let Some(config) = &config
        && !system.is_staged_image(root, &config.os_image_url)?
    {
        system = NextSystem::Same;
        not_rehearsed = describe_other_image(&records, config);
    }
    let mut next = system.scene(&baseline, runner)?;
    if let Some(config) = &config {
        next.config = Some(Path::new(REHEARSAL).join(CONFIG));
        next.arguments = change_arguments(&next.arguments, &records, config);
    }
    let on = system.describe(root);
    Ok(Scenes {
        subject: match &config {
            Some(config) => format!("{} on {on}", config.name),
            None => on,
        },
        baseline,
        since_boot,
        is_tried: read_trial(root)?.is_some(),
        next,
        config,
        not_rehearsed,
    })
}

/// Returns the runs since the node booted, oldest first: by the node's clock, or because they wait for a reboot of this boot.
fn find_runs_since_boot(root: &Root, runner: &dyn CommandRunner) -> Result<Vec<String>> {
    if !root.is_live() {
        return Ok(Vec::new());
    }
    let boot = BootIdentity::observe(root, None, runner);
    let boot = boot.context("the kernel's boot id cannot be read")?;
    let uptime = read_uptime().context("reading /proc/uptime")?;
    let began = boot.start_time(current_time().saturating_sub(uptime));
    let needs = reboots::read_needs(root, runner)?;
    let mut history = transaction::read_history(root)?;
    history.reverse();
    let is_since = |run: &FinishedRun| {
        run.start_time() >= began || needs.iter().any(|need| need.is_of_run(&run.id))
    };
    let first = history.iter().position(is_since).unwrap_or(history.len());
    Ok(history
        .split_off(first)
        .into_iter()
        .map(|run| run.id)
        .collect())
}

fn read_config(root: &Root, records: &Records, config: Option<&str>) -> Result<MachineConfig> {
    expect_rendered(choose_config(root, config, Unnamed::Wanted, records)?.config)
}

fn expect_rendered(config: MachineConfig) -> Result<MachineConfig> {
    if config.bare {
        bail!(
            "{} is an Ignition config; a rehearsal takes a rendered MachineConfig. Next: {}",
            config.origin,
            mco_rescue("butane --help")
        );
    }
    Ok(config)
}

/// Returns true if an origin names this image.
fn is_image(origin: &str, image: &str) -> bool {
    !image.is_empty() && origin.ends_with(image)
}

/// Returns true for the name of an image with its digest; no config is named so.
fn is_image_name(text: &str) -> bool {
    text.contains('@') && ImageName::parse(text).is_ok()
}

/// Returns why an image is not rehearsed, with the command that leads on.
fn refuse_image(image: &str) -> String {
    format!(
        "nothing was rehearsed: {image} is not staged, and only what is staged has a tree and a merged /etc. Next: {}, then {}",
        mco_rescue(&format!("pivot {image}")),
        mco_rescue("rehearse")
    )
}

/// Returns a sentence if the config asks for an operating system that is not rehearsed with it, or may not be.
fn describe_other_image(records: &Records, config: &MachineConfig) -> Option<String> {
    let image = &config.os_image_url;
    let is_missing = match records.baseline() {
        _ if image.is_empty() => return None,
        Baseline::Known(old) if old.os_image_url == *image => return None,
        Baseline::Known(_) => "is not staged".to_owned(),
        Baseline::Unknown(why) => format!("may not be the one that runs: {why}"),
    };
    Some(format!(
        "Not rehearsed: the image {image}, for which the config asks. It {is_missing}. Only the files of the config were tried, on the \
         running system. Next: {}, then the same rehearsal again.",
        mco_rescue(&format!("pivot {image}"))
    ))
}

/// Returns the scene of a root as it is.
fn scene_of_root(root: &Root, disk: &Path, runner: &dyn CommandRunner) -> Result<RehearsalScene> {
    let layers = if root.is_live() {
        live_layers()?
    } else {
        disk_layers(disk)?
    };
    let interfaces = if root.is_live() {
        ip::query_addresses(runner).context("reading the network interfaces")?
    } else {
        Vec::new()
    };
    let is_real = |name: &str| name != "lo" && !name.starts_with("veth") && !name.contains('@');
    let interfaces = interfaces.into_iter().filter(|one| is_real(&one.name));
    let interfaces = interfaces.take(INTERFACES).map(|one| SceneInterface {
        name: one.name,
        addresses: one
            .addresses
            .iter()
            .map(|one| (one.local, one.prefix))
            .collect(),
    });
    let program = running::read_link("/proc/self/exe").context("finding this program")?;
    let host_name = root.is_live().then(sysinfo::System::host_name);
    Ok(RehearsalScene {
        layers,
        rollbacks: Vec::new(),
        etc: None,
        config: None,
        program,
        console: PathBuf::new(),
        host_name: host_name
            .and_then(Result::ok)
            .unwrap_or_else(|| "localhost".to_owned()),
        arguments: if root.is_live() {
            boot_arguments(&kernel_command_line().unwrap_or_default())
        } else {
            Vec::new()
        },
        interfaces: interfaces.collect(),
    })
}

/// Returns the layers of the running system: `/`, and what is mounted on its parts.
fn live_layers() -> Result<StageLayers> {
    let mounts = running::read_text("/proc/self/mountinfo").context("reading the mounts")?;
    let is_mounted = |part: &&&str| {
        let path = format!("/{part}");
        mounts
            .lines()
            .any(|line| line.split(' ').nth(4) == Some(path.as_str()))
    };
    let parts = PARTS.iter().filter(is_mounted);
    Ok(StageLayers {
        tree: PathBuf::from("/"),
        within: parts
            .map(|part| ((*part).to_owned(), Path::new("/").join(part)))
            .collect(),
        size: WRITABLE,
    })
}

/// Returns the layers of a mounted disk: those of its default deployment if it is an OSTree system's.
fn disk_layers(disk: &Path) -> Result<StageLayers> {
    let given = Root::open(disk).context("opening the root")?;
    let (tree, within) = if sysroot::is_physical(&given)? {
        let Deployed { path, var } = sysroot::default_deployment(&given)?;
        let var = disk.join(var.relative());
        (disk.join(path.relative()), vec![("var".to_owned(), var)])
    } else {
        (disk.to_owned(), Vec::new())
    };
    Ok(StageLayers {
        tree,
        within,
        size: WRITABLE,
    })
}

/// Returns the scene of what is staged: its tree, with the `/etc` that its finalization would give it.
fn scene_of_staged(
    now: &RehearsalScene,
    staged: &StagedFile,
    runner: &dyn CommandRunner,
) -> Result<RehearsalScene> {
    let (stateroot, name) = (&staged.stateroot, &staged.name);
    let tree = deployment_tree(stateroot, name);
    let line = CommandLine::new("ostree", ["admin", "config-diff"], Duration::from_secs(60));
    let output = runner.run(&line)?;
    if output.status != Some(0) {
        bail!("ostree admin config-diff: {}", output.stderr.trim());
    }
    let changes = EtcChanges::parse(PathBuf::from("/etc"), &output.stdout);
    let changes = changes.map_err(|line| {
        anyhow::anyhow!("ostree admin config-diff prints a line of another form: {line}")
    })?;
    let arguments = staged.arguments.as_deref();
    Ok(RehearsalScene {
        layers: StageLayers {
            within: vec![
                ("etc".to_owned(), tree.join("usr/etc")),
                ("var".to_owned(), PathBuf::from("/var")),
            ],
            tree,
            size: now.layers.size,
        },
        etc: Some(changes),
        arguments: arguments.map_or_else(|| now.arguments.clone(), boot_arguments),
        ..now.clone()
    })
}

/// Returns the path of a deployment of the running system.
fn deployment_tree(stateroot: &str, name: &str) -> PathBuf {
    Path::new("/").join(format!("{}/{stateroot}/deploy/{name}", paths::STATEROOTS))
}

/// Returns the kernel arguments with those of a config in place of those of the recorded one.
fn change_arguments(now: &[String], records: &Records, config: &MachineConfig) -> Vec<String> {
    let old = match records.baseline() {
        Baseline::Known(old) => Kargs::from_entries(&old.kernel_arguments),
        // No argument is removed that is not known to be an old config's.
        Baseline::Unknown(_) => Kargs::default(),
    };
    let new = Kargs::from_entries(&config.kernel_arguments);
    let changed = Kargs::from_entries(now).after_change(&old, &new);
    boot_arguments(&changed.tokens().join(" "))
}

/// Returns the kernel arguments that mean something to systemd in a rehearsal.
fn boot_arguments(line: &str) -> Vec<String> {
    let is_kept = |word: &&str| {
        !word.starts_with('-')
            && !["rd.", "init=", "console=", "systemd.log"]
                .iter()
                .any(|name| word.starts_with(name))
    };
    line.split_whitespace()
        .filter(is_kept)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_reverted_to_the_oldest_and_a_trial_first() {
        let runs = ["1-1", "2-1"].map(str::to_owned);
        let ends = |rollbacks: Vec<Vec<String>>| -> Vec<Option<String>> {
            rollbacks.into_iter().map(|mut one| one.pop()).collect()
        };
        let oldest = || Some("1-1".to_owned());
        assert_eq!(ends(plan_rollbacks(&runs, false)), [oldest()]);
        assert_eq!(ends(plan_rollbacks(&runs, true)), [None, oldest()]);
        assert_eq!(ends(plan_rollbacks(&runs[1..], true)), [None]);
        assert!(plan_rollbacks(&[], false).is_empty());
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:  100 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(available_memory(text), Some(2 << 20));
        assert_eq!(available_memory("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn an_image_is_named_with_its_digest_and_a_file_is_not() {
        let image = format!("quay.example/os@sha256:{}", "a".repeat(64));
        assert!(is_image_name(&image));
        assert!(refuse_image(&image).contains(&format!("pivot {image}")));
        for file in ["./worker.yaml", "worker.yaml", "cached:rendered-a", "a@b"] {
            assert!(!is_image_name(file), "{file}");
        }
    }

    #[test]
    fn an_image_is_known_by_its_whole_name() {
        let origin = "ostree-unverified-registry:quay.example/os@sha256:aa";
        assert!(is_image(origin, "quay.example/os@sha256:aa"));
        assert!(!is_image(origin, ""));
        assert!(!is_image(origin, "quay.example/os@sha256:bb"));
    }
}
