//! The operating system of a live OSTree node, from rpm-ostree and the boot partition, or from bootc if rpm-ostree is missing.

use crate::base::kargs::Kargs;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootError, RootPath};
use crate::host::state_file;
use crate::node::command::bootc::{self, BootcStatus, OstreeEntry};
use crate::node::command::origin::OriginFile;
use crate::node::command::ostree::{self, in_order, list_deployments, names_in_order, read_listed};
use crate::node::command::rpm_ostree::arguments::{self, RpmOstreeVersion};
use crate::node::command::rpm_ostree::cause::RpmOstreeError;
use crate::node::command::{CommandError, CommandLine, CommandOutput, CommandRunner};
use crate::node::requests::Asked;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::activity::{Process, deployments_changer, is_sysroot_lock_awaited};
use super::booted::{self, SoftMarker};
use super::bootloader::{self, BootEntry};
use super::composefs::composefs_traces;
use super::engine::Engine;
use super::host::Host;
use super::kernel::kernel_command_line;
use super::os_release::{Class, OsRelease};
use super::ostree_repository::{imported_images, is_flushed};
use super::space::{KernelRoom, Space, kernel_room};
use super::staged::staged_file;
use super::zipl::{self, UnusedZipl};
use super::{image_arguments, requests};
use crate::node::command::rpm_ostree::status::{Deployments, Transaction, read_finalize_error};

/// Kernel arguments that belong to a deployment rather than to the node.
pub const OF_DEPLOYMENTS: [&str; 2] = ["ostree", "BOOT_IMAGE"];

/// The state of the operating system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum System {
    /// rpm-ostree was not queried, because the root is not that of a running OSTree system.
    #[default]
    NotAsked,
    /// The system uses bootc's composefs backend, and is therefore not an OSTree system.
    Composefs(ComposefsSystem),
    /// rpm-ostree gave no answer: the reason, and the next step.
    Silent(String),
    /// The answers of rpm-ostree.
    Known(Box<SystemFacts>),
}

/// A system with bootc's composefs backend.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComposefsSystem {
    /// The traces by which it was recognised.
    pub traces: String,
    /// Its image, if bootc reports it.
    pub image: Option<String>,
}

/// The answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemFacts {
    /// The program that answered, and that stages deployments.
    pub engine: Engine,
    /// A soft reboot into another deployment is prepared: `systemctl reboot` enters it without restarting the kernel.
    pub soft_reboot: bool,
    /// The deployments.
    pub deployments: Deployments,
    /// The kernel arguments of the next boot.
    pub arguments: Kargs,
    /// The kernel arguments of this boot.
    pub booted_arguments: Kargs,
    /// Package requests of the configs of deployments, in case a run has replaced their record.
    pub asked: Asked,
    /// The commits of the images in the node's repository, by name, with or without a deployment; or why they are unknown.
    pub imported: Result<BTreeMap<String, String>, Reason>,
    /// Version of rpm-ostree.
    pub version: RpmOstreeVersion,
    /// The class of the system.
    pub class: Class,
    /// The error because of which the last shutdown failed to write the staged deployment.
    pub finalize_error: Option<String>,
    /// Free space on `/boot`, and the space that another kernel needs.
    pub boot: Option<(Space, KernelRoom)>,
    /// Free space on the file system of the repository.
    pub sysroot: Option<Space>,
    /// Whether the repository syncs what it writes; or why that is unknown.
    pub flushed: Result<bool, Reason>,
    /// A setup in which zipl is not run for new boot entries; or why that is unknown.
    pub unused_zipl: Result<Option<UnusedZipl>, Reason>,
    /// Under bootc: whether ostree can stage commits of the node with other kernel arguments; or why not.
    pub stages_commits: Result<(), Reason>,
    /// Under bootc: the kernel arguments set by the running image; or why they are unknown.
    pub image_arguments: Result<Kargs, Reason>,
}

impl System {
    /// Queries rpm-ostree if the root is that of the running system.
    pub fn observe(
        root: &Root,
        host: &Host,
        runner: &dyn CommandRunner,
    ) -> Result<Self, RootError> {
        if let Some(traces) = composefs_traces(root, host)? {
            let image = host.live.then(|| composefs_image(runner)).flatten();
            return Ok(Self::Composefs(ComposefsSystem { traces, image }));
        }
        if !host.live || (host.deployment.is_none() && !booted::by_ostree()) {
            return Ok(Self::NotAsked);
        }
        let answers = match read_answers(root, runner) {
            Ok(answers) => answers,
            Err(cause) => return Ok(Self::Silent(host.engine.spell(&cause.to_line()))),
        };
        let booted = kernel_command_line().unwrap_or_default();
        let facts = SystemFacts {
            engine: answers.engine,
            soft_reboot: booted::soft_marker(root)? == SoftMarker::Prepared,
            boot: room_on_boot(root, &answers.deployments)?,
            sysroot: Space::read_space(root, &RootPath::fixed(paths::SYSROOT))?,
            unused_zipl: zipl::find_unused(root),
            image_arguments: match answers.engine {
                Engine::RpmOstree => Ok(Kargs::default()),
                Engine::Bootc => image_arguments::read_image_arguments(root),
            },
            stages_commits: match answers.engine {
                Engine::RpmOstree => Ok(()),
                Engine::Bootc => stages_commits(runner),
            },
            deployments: answers.deployments,
            booted_arguments: Kargs::parse(booted.trim())
                .without(&OF_DEPLOYMENTS)
                .written_as(&answers.arguments),
            arguments: answers.arguments,
            asked: read_asked(root)?,
            imported: imported_images(root).map_err(Reason::from_error),
            flushed: is_flushed(root).map_err(Reason::from_error),
            version: answers.version,
            class: OsRelease::read(root)?.class(),
            finalize_error: answers.finalize_error,
        };
        Ok(Self::Known(Box::new(facts)))
    }

    /// Returns the answers, if there are any.
    pub fn facts(&self) -> Option<&SystemFacts> {
        match self {
            Self::Known(facts) => Some(facts),
            Self::NotAsked | Self::Silent(_) | Self::Composefs(_) => None,
        }
    }
}

/// Checks that ostree has the options for staging a commit; the error is why it cannot.
fn stages_commits(runner: &dyn CommandRunner) -> Result<(), Reason> {
    let help = ask_rpm_ostree(runner, &ostree::deploy_help()).map_err(|cause| match cause {
        RpmOstreeError::NotInstalled(_) => "ostree is not installed".to_owned(),
        other => format!("ostree admin deploy --help fails: {other}"),
    })?;
    match ostree::missing_options(&help).as_slice() {
        [] => Ok(()),
        missing => Err(format!(
            "this ostree is too old: its admin deploy has no {}",
            missing.join(", ")
        )
        .into()),
    }
}

fn composefs_image(runner: &dyn CommandRunner) -> Option<String> {
    let answer = ask_rpm_ostree(runner, &bootc::status_json()).ok()?;
    let status = BootcStatus::read(&answer).ok()?;
    Some(status.booted?.image?.image.image)
}

/// Reads the package requests of the configs of deployments.
///
/// # Errors
/// A path cannot be read.
pub fn read_asked(root: &Root) -> Result<Asked, RootError> {
    let version = |kept: &Asked| kept.version;
    let kept = state_file::read_remembered(root, paths::ASKED, requests::VERSION, version)?;
    Ok(kept.unwrap_or_default())
}

struct Answers {
    engine: Engine,
    deployments: Deployments,
    arguments: Kargs,
    version: RpmOstreeVersion,
    finalize_error: Option<String>,
}

fn read_answers(root: &Root, runner: &dyn CommandRunner) -> Result<Answers, RpmOstreeError> {
    let (engine, deployments) = read_deployments(root, runner)?;
    let (text, version) = match engine {
        Engine::RpmOstree => (
            ask_rpm_ostree(runner, &arguments::status_text())?,
            ask_rpm_ostree(runner, &arguments::show_version())?,
        ),
        Engine::Bootc => Default::default(),
    };
    Ok(Answers {
        engine,
        arguments: next_arguments(root, runner, engine, &deployments)?,
        deployments,
        version: RpmOstreeVersion::parse_answer(&version),
        finalize_error: read_finalize_error(&text),
    })
}

/// Returns the current deployments and the program that reported them: rpm-ostree, or bootc if that is missing.
///
/// # Errors
/// Neither gives a usable answer.
pub fn read_deployments(
    root: &Root,
    runner: &dyn CommandRunner,
) -> Result<(Engine, Deployments), RpmOstreeError> {
    let (engine, mut all) = match ask_rpm_ostree(runner, &arguments::status_json()) {
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
    // Some versions of rpm-ostree do not report the lock, and none reports the older form of it.
    let staged = staged_file(root).map_err(|error| RpmOstreeError::Unknown(error.to_string()))?;
    if let (Some(file), Some(one)) = (staged, all.all.iter_mut().find(|one| one.staged))
        && file.name == one.name()
    {
        one.finalization_locked |= file.locked;
    }
    Ok((engine, all))
}

/// Time after which bootc is not waited for while another program has the lock of the sysroot.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns the deployments that bootc tells; `None` where it is missing, too. While another program works, or where it gives no
/// answer, ostree and the origin files tell them: all but the digests.
fn ask_bootc(
    root: &Root,
    runner: &dyn CommandRunner,
) -> Result<Option<Deployments>, RpmOstreeError> {
    let unknown = |error: String| RpmOstreeError::Unknown(error);
    let working = RefCell::new(None);
    let look_again = Cell::new(Instant::now() + PATIENCE);
    let is_held = || {
        if Instant::now() < look_again.get() {
            return false;
        }
        look_again.set(Instant::now() + PATIENCE);
        let changer = deployments_changer().unwrap_or_else(|why| {
            log::info!("looking for programs that change deployments: {why}");
            None
        });
        working.replace(changer);
        working.borrow().is_some() || is_lock_awaited(root)
    };
    let answer = match runner.run_until(&bootc::status_json(), &is_held) {
        Err(CommandError::Missing(_)) => return Ok(None),
        Err(error @ (CommandError::Interrupted(_) | CommandError::TimedOut(..))) => {
            let listed = listed_by_ostree(root, runner, working.take())?;
            return listed.map_or_else(
                || Err(RpmOstreeError::of_error(&error)),
                |all| Ok(Some(all)),
            );
        }
        answer => successful_output(answer)?,
    };
    let status = BootcStatus::read(&answer).map_err(|error| unknown(error.to_string()))?;
    let failed = RefCell::new(None);
    let origin = |entry: &OstreeEntry| {
        let name = format!("{}.{}", entry.checksum, entry.deploy_serial);
        let read = read_origin(root, &entry.stateroot, &name);
        read.unwrap_or_else(|cause| {
            failed.borrow_mut().get_or_insert(cause);
            None
        })
    };
    let mut all = status.to_deployments(&origin);
    if let Some(cause) = failed.take() {
        return Err(cause);
    }
    // bootc does not report the index of deployments in other stateroots, but ostree expects indexes.
    if let Some(listed) = ask_ostree(runner) {
        in_order(&mut all, &names_in_order(&listed));
    }
    Ok(Some(all))
}

/// Returns true if a process waits for the lock. An unreadable list does not invalidate bootc's answer.
fn is_lock_awaited(root: &Root) -> bool {
    is_sysroot_lock_awaited(root).unwrap_or_else(|why| {
        log::info!("looking for the lock of the sysroot: {why}");
        false
    })
}

/// Returns the output of `ostree admin status`, which needs no lock; `None` if there is none.
fn ask_ostree(runner: &dyn CommandRunner) -> Option<String> {
    match runner.run(&list_deployments()) {
        Ok(answer) if answer.status == Some(0) => return Some(answer.stdout),
        Ok(_) | Err(CommandError::Missing(_)) => {}
        Err(error) => log::info!("asking ostree: {error}"),
    }
    None
}

/// Returns the deployments that ostree lists, with their origin files, and bootc's work as the running transaction; `None` if
/// it lists none.
fn listed_by_ostree(
    root: &Root,
    runner: &dyn CommandRunner,
    working: Option<Process>,
) -> Result<Option<Deployments>, RpmOstreeError> {
    let listed = ask_ostree(runner).map_or_else(Vec::new, |answer| read_listed(&answer));
    let mut all = Vec::new();
    for one in listed {
        let origin = read_origin(root, &one.osname, &one.name())?;
        all.push(bootc::with_origin(one, origin.unwrap_or_default(), None));
    }
    let (method, client) = match working {
        Some(process) => (process.args.join(" "), format!("process {}", process.pid)),
        None => (
            "an unknown command".to_owned(),
            "an unknown process".to_owned(),
        ),
    };
    Ok((!all.is_empty()).then(|| Deployments {
        all,
        transaction: Some(Transaction {
            method,
            client,
            path: String::new(),
        }),
        ..Deployments::default()
    }))
}

/// Returns the path of a deployment's origin file, which may be missing.
///
/// # Errors
/// The stateroot is not a valid directory name.
pub fn origin_path(stateroot: &str, name: &str) -> Result<RootPath, RpmOstreeError> {
    deployment_path(stateroot, &format!("{name}.origin"))
}

/// Returns the directory of a deployment, `CHECKSUM.SERIAL`.
///
/// # Errors
/// The stateroot has no name of a directory.
pub fn deployment_path(stateroot: &str, name: &str) -> Result<RootPath, RpmOstreeError> {
    let path = format!("/{}/{stateroot}/deploy/{name}", paths::STATEROOTS);
    RootPath::parse(&path).map_err(|error| RpmOstreeError::Unknown(error.to_string()))
}

/// Reads the origin file of a deployment; `None` if it is missing.
///
/// # Errors
/// It cannot be read.
pub fn read_origin(
    root: &Root,
    stateroot: &str,
    name: &str,
) -> Result<Option<OriginFile>, RpmOstreeError> {
    let path = origin_path(stateroot, name)?;
    match root.read(&path) {
        Ok(bytes) => Ok(bytes.map(|bytes| OriginFile::parse(&String::from_utf8_lossy(&bytes)))),
        Err(error) => Err(RpmOstreeError::OriginUnreadable {
            file: path.to_string(),
            why: error.to_string(),
        }),
    }
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
        Engine::RpmOstree => ask_rpm_ostree(runner, &arguments::show_kargs())?,
        Engine::Bootc => line_of_next(root, all)
            .map_err(|error| RpmOstreeError::Unknown(error.to_string()))?
            .unwrap_or_default(),
    };
    Ok(of_node(line.trim()))
}

/// Returns the arguments of a boot entry that belong to the node.
fn of_node(line: &str) -> Kargs {
    Kargs::parse(line)
        .without(&OF_DEPLOYMENTS)
        .without_variables()
}

/// Returns the kernel command line of the next boot from files, because bootc does not report it.
fn line_of_next(root: &Root, all: &Deployments) -> Result<Option<String>, RootError> {
    match all.next_boot() {
        Some(next) if next.staged => {
            match staged_file(root)?.filter(|file| file.name == next.name()) {
                Some(file) if file.arguments.is_none() => inherited_line(root),
                file => Ok(file.and_then(|file| file.arguments)),
            }
        }
        Some(next) if !next.booted => {
            let first = bootloader::read_boot_entries(root)?.into_iter().next();
            Ok(first.map(|entry| entry.options.to_string()))
        }
        _ => inherited_line(root),
    }
}

/// Returns the kernel arguments from which ostree derives those of another deployment, without those that belong to a
/// deployment. ostree uses the boot entry of the running deployment, so arguments typed in the boot menu are not included.
///
/// # Errors
/// The boot entries cannot be read.
pub fn inherited_arguments(root: &Root) -> Result<Kargs, RootError> {
    let line = inherited_line(root)?.unwrap_or_default();
    Ok(of_node(&line))
}

/// Returns the command line in the boot entry, or that of the running kernel if it has no entry.
fn inherited_line(root: &Root) -> Result<Option<String>, RootError> {
    let line = kernel_command_line();
    let booted = Kargs::parse(line.as_deref().unwrap_or_default().trim());
    let entries = bootloader::read_boot_entries(root)?;
    let entry = bootloader::booted_since_rewritten(&entries, &booted);
    Ok(entry.map(|entry| entry.options.to_string()).or(line))
}

/// Returns the output of a program, or the cause of its failure. If the daemon died meanwhile, the query is repeated once,
/// because the bus restarts it.
///
/// # Errors
/// The program gives no answer, or fails.
pub fn ask_rpm_ostree(
    runner: &dyn CommandRunner,
    line: &CommandLine,
) -> Result<String, RpmOstreeError> {
    match ask_once(runner, line) {
        Err(RpmOstreeError::DaemonDied) => ask_once(runner, line),
        other => other,
    }
}

fn ask_once(runner: &dyn CommandRunner, line: &CommandLine) -> Result<String, RpmOstreeError> {
    successful_output(runner.run(line))
}

fn successful_output(
    answer: Result<CommandOutput, CommandError>,
) -> Result<String, RpmOstreeError> {
    let answer = answer.map_err(|error| RpmOstreeError::of_error(&error))?;
    match RpmOstreeError::of_command(&answer) {
        Some(cause) => Err(cause),
        None => Ok(answer.stdout),
    }
}

/// Returns the space on `/boot`. Kernels of the booted and of pinned deployments are kept.
fn room_on_boot(
    root: &Root,
    deployments: &Deployments,
) -> Result<Option<(Space, KernelRoom)>, RootError> {
    let Some(space) = Space::read_space(root, &RootPath::fixed(paths::BOOT))? else {
        return Ok(None);
    };
    let entries = bootloader::read_boot_entries(root)?;
    let kernels = bootloader::list_kernel_directories(root)?;
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
