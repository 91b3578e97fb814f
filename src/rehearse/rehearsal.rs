//! A whole rehearsal: what runs now, then the next boot, and the difference.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::boot::{MEMORY, boot_scene};
use super::facts::RehearsedBoot;
use super::judge::judge_boot;
use super::scene::{EtcChanges, RehearsalScene, SceneInterface};
use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::change::session::{Unnamed, choose_config};
use crate::config::document::MachineConfig;
use crate::host::root::Root;
use crate::host::running;
use crate::host::sys::runtime::{self, REHEARSAL};
use crate::judge::crossing::CrossingFinding;
use crate::node::Records;
use crate::node::command::ostree::StagedFile;
use crate::node::command::rehearsal_unit::{UNIT, is_rehearsing};
use crate::node::command::{CommandLine, CommandRunner, ip};
use crate::node::kernel::kernel_command_line;
use crate::node::mounts::stage::StageLayers;
use crate::node::staged::{read_staged_origin, staged_file};
use crate::node::sysroot::{self, Deployed};

/// Parts of a root that may come from elsewhere.
const PARTS: [&str; 3] = ["usr", "etc", "var"];
/// Memory that stays free for the node: 256 MiB.
const RESERVE: u64 = 256 << 20;
/// Network interfaces that are made at most.
const INTERFACES: usize = 32;

/// What to rehearse.
#[derive(Debug, Clone)]
pub struct RehearsalOptions<'a> {
    /// The config; `None` for what is staged, or for the one that the node should have.
    pub config: Option<&'a str>,
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
    /// The boot of what runs now.
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
    expect_possible(runner)?;
    let scenes = prepare_scenes(root, disk, runner, options)?;
    let baseline = boot_scene(runner, &scenes.baseline, options.limit);
    let baseline = baseline.context("rehearsing what runs now")?;
    if let Some(config) = &scenes.config {
        let path = Path::new(REHEARSAL).join("config.json");
        runtime::write_private(&path, config.record.as_bytes()).context("writing the config")?;
    }
    let next =
        boot_scene(runner, &scenes.next, options.limit).context("rehearsing the next boot")?;
    Ok(Rehearsal {
        subject: scenes.subject,
        not_rehearsed: scenes.not_rehearsed,
        findings: judge_boot(&baseline, &next),
        baseline,
        next,
    })
}

/// Returns an error with the way out if this machine cannot rehearse.
fn expect_possible(runner: &dyn CommandRunner) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("a rehearsal makes namespaces, for which it needs root. Run it with sudo");
    }
    if !running::exists("/run/systemd/system") {
        bail!(
            "systemd does not run on this machine, and a rehearsal is a unit of it. Run it on a booted node or from a live system"
        );
    }
    if !running::exists("/sys/fs/cgroup/cgroup.controllers") {
        bail!(
            "this machine has cgroups of version 1, in which no systemd of today boots. Boot it with systemd.unified_cgroup_hierarchy=1"
        );
    }
    let file_systems =
        running::read_text("/proc/filesystems").context("reading /proc/filesystems")?;
    if !file_systems.lines().any(|line| line.ends_with("\toverlay")) {
        bail!("the kernel has no overlays yet. Next: modprobe overlay");
    }
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
    if is_rehearsing(runner)? {
        bail!(
            "another rehearsal is running, or was interrupted; it ends by itself. Next: systemctl stop {UNIT}"
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
    next: RehearsalScene,
    config: Option<MachineConfig>,
    subject: String,
    not_rehearsed: Option<String>,
}

fn prepare_scenes(
    root: &Root,
    disk: &Path,
    runner: &dyn CommandRunner,
    options: &RehearsalOptions<'_>,
) -> Result<Scenes> {
    let now = scene_of_root(root, disk, runner)?;
    let records = Records::read(root)?;
    let staged = if root.is_live() {
        staged_file(root).context("reading what is staged")?
    } else {
        None
    };
    let origin = staged
        .as_ref()
        .map(|staged| read_staged_origin(root, staged));
    let origin = origin
        .transpose()
        .context("reading the origin of what is staged")?
        .flatten();
    let config = match (&staged, options.config) {
        (Some(_), None) => None,
        (_, config) => Some(read_config(root, &records, config)?),
    };
    let is_wanted = |_: &&StagedFile| match (&config, &origin) {
        (None, _) => true,
        (Some(config), Some(origin)) => is_image(&origin.image_name(), &config.os_image_url),
        (Some(_), None) => false,
    };
    let chosen = staged.as_ref().filter(is_wanted);
    let mut next = match chosen {
        Some(staged) => scene_of_staged(&now, staged, runner)?,
        None => now.clone(),
    };
    next.config = config
        .as_ref()
        .map(|_| Path::new(REHEARSAL).join("config.json"));
    let on = match chosen {
        Some(staged) => format!("the staged deployment {}", staged.name),
        None if root.is_live() => "the running system".to_owned(),
        None => "the system on this disk".to_owned(),
    };
    let subject = match &config {
        Some(config) => format!("{} on {on}", config.name),
        None => on,
    };
    Ok(Scenes {
        not_rehearsed: config
            .as_ref()
            .filter(|_| chosen.is_none())
            .and_then(|config| other_image(&records, config)),
        baseline: now,
        next,
        config,
        subject,
    })
}

fn read_config(root: &Root, records: &Records, config: Option<&str>) -> Result<MachineConfig> {
    let chosen = choose_config(root, config, Unnamed::Wanted, records)?.config;
    if chosen.bare {
        bail!(
            "{} is an Ignition config; a rehearsal takes a rendered MachineConfig. Next: {}",
            chosen.origin,
            mco_rescue("butane --help")
        );
    }
    Ok(chosen)
}

/// Returns true if an origin names this image.
fn is_image(origin: &str, image: &str) -> bool {
    !image.is_empty() && origin.ends_with(image)
}

/// Returns a sentence if the config asks for an operating system other than the recorded one, which is not rehearsed with it.
fn other_image(records: &Records, config: &MachineConfig) -> Option<String> {
    let old = records.baseline().config()?;
    let differs = !config.os_image_url.is_empty() && config.os_image_url != old.os_image_url;
    differs.then(|| {
        format!(
            "The config also asks for the image {}, which is not staged: only its files are rehearsed. Stage it first: {}",
            config.os_image_url,
            mco_rescue("pivot IMAGE")
        )
    })
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
        size: MEMORY / 2,
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
        size: MEMORY / 2,
    })
}

/// Returns the scene of what is staged: its tree, with the `/etc` that its finalization would give it.
fn scene_of_staged(
    now: &RehearsalScene,
    staged: &StagedFile,
    runner: &dyn CommandRunner,
) -> Result<RehearsalScene> {
    let (stateroot, name) = (&staged.stateroot, &staged.name);
    let tree = Path::new("/").join(format!("{}/{stateroot}/deploy/{name}", paths::STATEROOTS));
    let line = CommandLine {
        program: "ostree".to_owned(),
        args: ["admin", "config-diff"].map(str::to_owned).to_vec(),
        timeout: Duration::from_secs(60),
        capabilities: &[],
    };
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
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:  100 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(available_memory(text), Some(2 << 20));
        assert_eq!(available_memory("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn an_image_is_known_by_its_whole_name() {
        let origin = "ostree-unverified-registry:quay.example/os@sha256:aa";
        assert!(is_image(origin, "quay.example/os@sha256:aa"));
        assert!(!is_image(origin, ""));
        assert!(!is_image(origin, "quay.example/os@sha256:bb"));
    }
}
