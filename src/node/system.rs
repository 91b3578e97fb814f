//! The operating system of a live OSTree node, from rpm-ostree and the boot partition; where rpm-ostree is missing, from
//! bootc.

use crate::command::bootc::{self, BootcStatus, OstreeEntry};
use crate::command::origin::Origin;
use crate::command::ostree::{StagedFile, in_order, list_deployments, names_in_order};
use crate::command::rpm_ostree::arguments::{self, Version};
use crate::command::rpm_ostree::cause::RpmOstreeError;
use crate::command::{CommandError, CommandLine, CommandRunner};
use crate::kargs::Kargs;
use crate::node::requests::Asked;
use crate::paths;
use crate::root::{Root, RootError, RootPath};
use crate::state_file;

use std::collections::BTreeMap;

use super::booted;
use super::bootloader::{self, BootEntry};
use super::host::Host;
use super::os_release::{Class, OsRelease};
use super::ostree_repository::{imported_images, is_flushed};
use super::requests;
use super::space::{KernelRoom, Space, kernel_room};
use super::zipl::{self, UnusedZipl};
use crate::command::rpm_ostree::status::{Deployments, StatusText};

/// Kernel arguments that belong to a deployment, not to the node.
pub const OF_DEPLOYMENTS: [&str; 2] = ["ostree", "BOOT_IMAGE"];

/// The state of the operating system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum System {
    /// rpm-ostree was not queried, as the root is not that of a running OSTree system.
    #[default]
    NotAsked,
    /// bootc's composefs backend runs this system, which is no OSTree system.
    Composefs(ComposefsSystem),
    /// rpm-ostree was queried without an answer: the reason, and the next step.
    Silent(String),
    /// The answers of rpm-ostree.
    Known(Box<Facts>),
}

/// A system of bootc's composefs backend.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComposefsSystem {
    /// The traces that it was told by.
    pub traces: String,
    /// Its image, where bootc tells it.
    pub image: Option<String>,
}

/// The program that stages an operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// rpm-ostree, the engine of the daemon.
    #[default]
    RpmOstree,
    /// bootc, where rpm-ostree is missing: images alone, without packages and kernel arguments.
    Bootc,
}

impl Engine {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::RpmOstree => "rpm-ostree",
            Self::Bootc => "bootc",
        }
    }
}

/// The answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The program that answered, and that stages.
    pub engine: Engine,
    /// A soft reboot into another deployment is prepared: `systemctl reboot` enters it without the kernel's start.
    pub soft_reboot: bool,
    /// The deployments.
    pub deployments: Deployments,
    /// The kernel arguments of the next boot.
    pub arguments: Kargs,
    /// The kernel arguments of this boot.
    pub booted_arguments: Kargs,
    /// Package requests of the configs of deployments, if a run has replaced their record.
    pub asked: Asked,
    /// The commits of the images in the node's repository, by name, with or without a deployment; or why they are unknown.
    pub imported: Result<BTreeMap<String, String>, String>,
    /// Version of rpm-ostree.
    pub version: Version,
    /// The class of the system.
    pub class: Class,
    /// The error with which the last shutdown failed to write the staged deployment.
    pub finalize_error: Option<String>,
    /// Free space on `/boot`, and the need of another kernel.
    pub boot: Option<(Space, KernelRoom)>,
    /// Free space on the file system of the repository.
    pub sysroot: Option<Space>,
    /// The repository flushes what it writes; or why that is unknown.
    pub flushed: Result<bool, String>,
    /// A setup in which zipl is not run for new boot entries; or why that is unknown.
    pub unused_zipl: Result<Option<UnusedZipl>, String>,
}

impl System {
    /// Queries rpm-ostree, if the root runs.
    pub fn observe(
        root: &Root,
        host: &Host,
        runner: &dyn CommandRunner,
    ) -> Result<Self, RootError> {
        if let Some(traces) = booted::composefs_traces(root, host)? {
            let image = host.live.then(|| composefs_image(runner)).flatten();
            return Ok(Self::Composefs(ComposefsSystem { traces, image }));
        }
        if !host.live || (host.deployment.is_none() && !booted::by_ostree()) {
            return Ok(Self::NotAsked);
        }
        let answers = match answers(root, runner) {
            Ok(answers) => answers,
            Err(cause) => return Ok(Self::Silent(cause.to_line())),
        };
        let booted = super::host::kernel_command_line().unwrap_or_default();
        let facts = Facts {
            engine: answers.engine,
            soft_reboot: root.exists(&RootPath::fixed(paths::NEXT_ROOT_BOOTED))?,
            boot: room_on_boot(root, &answers.deployments)?,
            sysroot: Space::of(root, &RootPath::fixed(paths::SYSROOT))?,
            unused_zipl: zipl::find_unused(root),
            deployments: answers.deployments,
            booted_arguments: Kargs::parse(booted.trim())
                .without(&OF_DEPLOYMENTS)
                .written_as(&answers.arguments),
            arguments: answers.arguments,
            asked: asked(root)?,
            imported: imported_images(root).map_err(|error| error.to_string()),
            flushed: is_flushed(root).map_err(|error| error.to_string()),
            version: answers.version,
            class: OsRelease::read(root)?.class(),
            finalize_error: answers.finalize_error,
        };
        Ok(Self::Known(Box::new(facts)))
    }

    /// Returns the answers, if there are any.
    pub fn facts(&self) -> Option<&Facts> {
        match self {
            Self::Known(facts) => Some(facts),
            Self::NotAsked | Self::Silent(_) | Self::Composefs(_) => None,
        }
    }
}

fn composefs_image(runner: &dyn CommandRunner) -> Option<String> {
    let answer = ask(runner, &bootc::status_json()).ok()?;
    let status = BootcStatus::read(&answer).ok()?;
    Some(status.booted?.image?.image.image)
}

/// Reads the package requests of the configs of deployments.
///
/// # Errors
/// A path that cannot be read.
pub fn asked(root: &Root) -> Result<Asked, RootError> {
    let version = |kept: &Asked| kept.version;
    let kept = state_file::remembered(root, paths::ASKED, requests::VERSION, version)?;
    Ok(kept.unwrap_or_default())
}

struct Answers {
    engine: Engine,
    deployments: Deployments,
    arguments: Kargs,
    version: Version,
    finalize_error: Option<String>,
}

fn answers(root: &Root, runner: &dyn CommandRunner) -> Result<Answers, RpmOstreeError> {
    let (engine, deployments) = read_deployments(root, runner)?;
    let (text, version) = match engine {
        Engine::RpmOstree => (
            ask(runner, &arguments::status_text())?,
            ask(runner, &arguments::show_version())?,
        ),
        Engine::Bootc => Default::default(),
    };
    Ok(Answers {
        engine,
        arguments: next_arguments(root, runner, engine, &deployments)?,
        deployments,
        version: Version::parse_answer(&version),
        finalize_error: StatusText::read(&text).finalize_error,
    })
}

/// Returns the deployments as they are now, and the program that told them: rpm-ostree; where it is missing, bootc.
///
/// # Errors
/// Neither of them gives an answer that can be used.
pub fn read_deployments(
    root: &Root,
    runner: &dyn CommandRunner,
) -> Result<(Engine, Deployments), RpmOstreeError> {
    let (engine, mut all) = match ask(runner, &arguments::status_json()) {
        Ok(answer) => {
            let all = Deployments::read(&answer);
            let all = all.map_err(|error| RpmOstreeError::Unknown(error.to_string()))?;
            (Engine::RpmOstree, all)
        }
        Err(RpmOstreeError::NotInstalled(program)) => match ask_bootc(root, runner)? {
            Some(all) => (Engine::Bootc, all),
            None => return Err(RpmOstreeError::NotInstalled(program)),
        },
        Err(cause) => return Err(cause),
    };
    // Some versions of rpm-ostree do not tell the lock, and none tells that of the older way.
    let staged = staged_file(root).map_err(|error| RpmOstreeError::Unknown(error.to_string()))?;
    if let (Some(file), Some(one)) = (staged, all.all.iter_mut().find(|one| one.staged))
        && file.name == one.name()
    {
        one.finalization_locked |= file.locked;
    }
    Ok((engine, all))
}

/// Returns the deployments that bootc tells; `None` where it is missing, too.
fn ask_bootc(
    root: &Root,
    runner: &dyn CommandRunner,
) -> Result<Option<Deployments>, RpmOstreeError> {
    let unknown = |error: String| RpmOstreeError::Unknown(error);
    let answer = match ask(runner, &bootc::status_json()) {
        Ok(answer) => answer,
        Err(RpmOstreeError::NotInstalled(_)) => return Ok(None),
        Err(cause) => return Err(cause),
    };
    let status = BootcStatus::read(&answer).map_err(|error| unknown(error.to_string()))?;
    let origin = |entry: &OstreeEntry| origin_of(root, entry);
    let mut all = status.deployments(&origin);
    // bootc does not say at which place the deployments of other stateroots stand, and ostree takes places.
    match runner.run(&list_deployments()) {
        Ok(answer) if answer.status == Some(0) => {
            in_order(&mut all, &names_in_order(&answer.stdout))
        }
        Ok(_) | Err(CommandError::Missing(_)) => {}
        Err(error) => log::info!("asking ostree: {error}"),
    }
    Ok(Some(all))
}

/// Returns the origin file of a deployment; one that cannot be read is as good as missing.
fn origin_of(root: &Root, entry: &OstreeEntry) -> Option<Origin> {
    let file = format!(
        "/{}/{}/deploy/{}.{}.origin",
        paths::STATEROOTS,
        entry.stateroot,
        entry.checksum,
        entry.deploy_serial
    );
    let bytes = root.read(&RootPath::parse(&file).ok()?).ok()??;
    Some(Origin::parse(&String::from_utf8_lossy(&bytes)))
}

/// Reads the file of the staged deployment, with both ways of its lock.
///
/// # Errors
/// A file that cannot be read.
pub fn staged_file(root: &Root) -> Result<Option<StagedFile>, RootError> {
    let Some(bytes) = root.read(&RootPath::fixed(paths::STAGED_DEPLOYMENT))? else {
        return Ok(None);
    };
    let lock = root.exists(&RootPath::fixed(paths::STAGED_LOCK))?;
    Ok(StagedFile::parse(&bytes).map(|file| StagedFile {
        locked: file.locked || lock,
        ..file
    }))
}

/// Returns the kernel arguments of the next boot, without those that belong to a deployment.
///
/// # Errors
/// rpm-ostree gives no answer, or a file cannot be read.
pub fn next_arguments(
    root: &Root,
    runner: &dyn CommandRunner,
    engine: Engine,
    all: &Deployments,
) -> Result<Kargs, RpmOstreeError> {
    let line = match engine {
        Engine::RpmOstree => ask(runner, &arguments::show_kargs())?,
        Engine::Bootc => line_of_next(root, all)
            .map_err(|error| RpmOstreeError::Unknown(error.to_string()))?
            .unwrap_or_default(),
    };
    Ok(Kargs::parse(line.trim()).without(&OF_DEPLOYMENTS))
}

/// Returns the kernel command line of the next boot from files: bootc does not tell it.
fn line_of_next(root: &Root, all: &Deployments) -> Result<Option<String>, RootError> {
    match all.next_boot() {
        Some(next) if next.staged => {
            let file = staged_file(root)?.filter(|file| file.name == next.name());
            Ok(file.and_then(|file| file.arguments))
        }
        Some(next) if !next.booted => {
            let first = bootloader::read(root)?.into_iter().next();
            Ok(first.map(|entry| entry.options.to_string()))
        }
        _ => Ok(super::host::kernel_command_line()),
    }
}

/// Returns the output of a program, or the cause of its failure. A daemon that ended meanwhile is asked once more: the
/// bus starts it again.
///
/// # Errors
/// The program gives no answer, or fails.
pub fn ask(runner: &dyn CommandRunner, line: &CommandLine) -> Result<String, RpmOstreeError> {
    match ask_once(runner, line) {
        Err(RpmOstreeError::DaemonDied) => ask_once(runner, line),
        other => other,
    }
}

fn ask_once(runner: &dyn CommandRunner, line: &CommandLine) -> Result<String, RpmOstreeError> {
    let answer = runner
        .run(line)
        .map_err(|error| RpmOstreeError::of_error(&error))?;
    match RpmOstreeError::of_command(&answer) {
        Some(cause) => Err(cause),
        None => Ok(answer.stdout),
    }
}

/// Returns the space on `/boot`. Kernels of the booted deployment and of pinned ones stay.
fn room_on_boot(
    root: &Root,
    deployments: &Deployments,
) -> Result<Option<(Space, KernelRoom)>, RootError> {
    let Some(space) = Space::of(root, &RootPath::fixed(paths::BOOT))? else {
        return Ok(None);
    };
    let entries = bootloader::read(root)?;
    let kernels = bootloader::kernels(root)?;
    // Entries and deployments are in the same order; the staged one has no entry yet.
    let written: Vec<_> = deployments.all.iter().filter(|one| !one.staged).collect();
    let keeps: Vec<&str> = entries
        .iter()
        .zip(&written)
        .filter(|(_, one)| one.booted || one.pinned)
        .map(|(entry, _)| entry.file.as_str())
        .collect();
    let stays = |entry: &BootEntry| keeps.contains(&entry.file.as_str());
    let room = kernel_room(&kernels, &entries, None, None, stays);
    Ok(Some((space, room)))
}
