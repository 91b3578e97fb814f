//! The operating system of a live OSTree node, from rpm-ostree and the boot partition.

use crate::command::rpm_ostree::arguments::{self, Version};
use crate::command::rpm_ostree::cause::RpmOstreeError;
use crate::command::{CommandLine, CommandRunner};
use crate::kargs::Kargs;
use crate::node::requests::Asked;
use crate::paths;
use crate::root::{Root, RootError, RootPath};
use crate::state_file;

use super::booted;
use super::bootloader::{self, BootEntry};
use super::host::Host;
use super::os_release::{Class, OsRelease};
use super::requests;
use super::space::{KernelRoom, Space, kernel_room};
use crate::command::rpm_ostree::status::{Deployments, StatusText};

/// Kernel arguments that belong to a deployment, not to the node.
pub const OF_DEPLOYMENTS: [&str; 2] = ["ostree", "BOOT_IMAGE"];

/// The state of the operating system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum System {
    /// rpm-ostree was not queried, as the root is not that of a running OSTree system.
    #[default]
    NotAsked,
    /// rpm-ostree was queried without an answer: the reason, and the next step.
    Silent(String),
    /// The answers of rpm-ostree.
    Known(Box<Facts>),
}

/// The answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The deployments.
    pub deployments: Deployments,
    /// The kernel arguments of the next boot.
    pub arguments: Kargs,
    /// The kernel arguments of this boot.
    pub booted_arguments: Kargs,
    /// Package requests of the configs of deployments, if a run has replaced their record.
    pub asked: Asked,
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
}

impl System {
    /// Queries rpm-ostree, if the root runs.
    pub fn observe(
        root: &Root,
        host: &Host,
        runner: &dyn CommandRunner,
    ) -> Result<Self, RootError> {
        if !host.live || (host.deployment.is_none() && !booted::by_ostree()) {
            return Ok(Self::NotAsked);
        }
        let answers = match answers(runner) {
            Ok(answers) => answers,
            Err(cause) => return Ok(Self::Silent(cause.to_line())),
        };
        let deployments = match Deployments::read(&answers.status) {
            Ok(deployments) => deployments,
            Err(error) => return Ok(Self::Silent(error.to_string())),
        };
        let booted = super::host::kernel_command_line().unwrap_or_default();
        let facts = Facts {
            boot: room_on_boot(root, &deployments)?,
            sysroot: Space::of(root, &RootPath::fixed(paths::SYSROOT))?,
            deployments,
            arguments: Kargs::parse(answers.arguments.trim()).without(&OF_DEPLOYMENTS),
            booted_arguments: Kargs::parse(booted.trim()).without(&OF_DEPLOYMENTS),
            asked: asked(root)?,
            version: Version::parse_answer(&answers.version),
            class: OsRelease::read(root)?.class(),
            finalize_error: StatusText::read(&answers.text).finalize_error,
        };
        Ok(Self::Known(Box::new(facts)))
    }

    /// Returns the answers, if there are any.
    pub fn facts(&self) -> Option<&Facts> {
        match self {
            Self::Known(facts) => Some(facts),
            Self::NotAsked | Self::Silent(_) => None,
        }
    }
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
    status: String,
    text: String,
    arguments: String,
    version: String,
}

fn answers(runner: &dyn CommandRunner) -> Result<Answers, RpmOstreeError> {
    let ask = |line: CommandLine| ask(runner, &line);
    Ok(Answers {
        status: ask(arguments::status_json())?,
        text: ask(arguments::status_text())?,
        arguments: ask(arguments::show_kargs())?,
        version: ask(arguments::show_version())?,
    })
}

/// Returns the output of a program, or the cause of its failure.
pub fn ask(runner: &dyn CommandRunner, line: &CommandLine) -> Result<String, RpmOstreeError> {
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
