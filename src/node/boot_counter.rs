//! GRUB's part in a trial: whether GRUB can count boot attempts on this node, and the state of its counter
//! (docs/develop/boot-counter.md).
//!
//! GRUB writes one variable before it starts a kernel. If it cannot, the reason is reported in words, because a trial with a
//! reboot is then not protected against a kernel that fails to start.

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use super::boot_kernels;
use super::bootloader::{self, BootEntry};
use super::platform::{MountedFileSystem, layers_below, read_mounts};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::formats::grub::config::{self, GrubConfig, ScriptFile};
use crate::formats::grub::environment::{Environment, SIZE};
use crate::formats::grub::{CounterState, ENTRIES_MARK, order, script};
use crate::host::root::{Place, Root, RootError, RootPath};

/// Name of the environment block.
pub const ENVIRONMENT_FILE: &str = "grubenv";
/// Largest script or configuration that is read.
const MAX_TEXT: u64 = 1 << 20;
/// File systems on which GRUB can overwrite a block.
const FILE_SYSTEMS: [&str; 5] = ["ext2", "ext3", "ext4", "xfs", "vfat"];

/// What GRUB on a node can do to count boot attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootCounter {
    /// Tells whether it can count.
    pub counting: Counting,
    /// The state of its counter; missing if it cannot be read.
    pub state: CounterState,
    /// The boot entries are unchanged since the counter was armed. Otherwise GRUB boots the first entry, whatever the state is.
    pub has_mark: bool,
    /// Ids of the boot entries as GRUB shows them; the first is the default.
    pub order: Vec<String>,
    /// What the kernel can do to a cgroup and everything below it.
    pub variables: Vec<(String, String)>,
}

/// Tells whether GRUB can count boot attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counting {
    /// It can.
    Possible {
        /// Directory of its files.
        directory: RootPath,
        /// The file from which it runs our lines.
        script: ScriptFile,
    },
    /// It cannot.
    Impossible {
        /// The cause, as the end of a sentence.
        reason: Reason,
    },
}

/// Reads the state of a node's boot loader.
///
/// # Errors
/// A file cannot be read.
pub fn observe_boot_counter(root: &Root) -> Result<BootCounter, RootError> {
    let environment = match read_environment(root) {
        Ok(found) => Ok(found),
        Err(GrubError::Root(error)) => return Err(error),
        Err(GrubError::Unusable(reason)) => Err(reason),
    };
    let entries = bootloader::read_boot_entries(root)?;
    let shown = entries.into_iter().filter(|entry| !entry.linux.is_empty());
    let known = environment.as_ref().ok().and_then(Option::as_ref);
    Ok(BootCounter {
        state: known.map_or(CounterState::Missing, CounterState::from_environment),
        has_mark: root
            .list(&RootPath::fixed(paths::BOOT_LOADER))?
            .iter()
            .any(|name| name == ENTRIES_MARK),
        order: order::menu_order(shown.map(|entry| entry.file).collect()),
        variables: known.map(Environment::variables).unwrap_or_default(),
        counting: match find_script(root, environment) {
            Ok((directory, script)) => Counting::Possible { directory, script },
            Err(GrubError::Unusable(reason)) => Counting::Impossible { reason },
            Err(GrubError::Root(error)) => return Err(error),
        },
    })
}

/// Reads the state of the counter.
///
/// # Errors
/// The environment block cannot be read or is damaged.
pub fn read_counter_state(root: &Root) -> Result<CounterState, GrubError> {
    let environment = read_environment(root)?;
    Ok(environment
        .as_ref()
        .map_or(CounterState::Missing, CounterState::from_environment))
}

/// A reason why GRUB's files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GrubError {
    /// A file cannot be read.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The cause in words.
    #[error("{0}")]
    Unusable(Reason),
}

fn unusable_error(reason: impl Into<Reason>) -> GrubError {
    GrubError::Unusable(reason.into())
}

/// Returns the directory of GRUB's files: Fedora's if there is one, else Debian's; `None` without GRUB.
///
/// # Errors
/// A path cannot be resolved.
pub fn find_directory(root: &Root) -> Result<Option<RootPath>, RootError> {
    for directory in paths::GRUB.map(RootPath::fixed) {
        let names = root.list(&directory)?;
        if names
            .iter()
            .any(|name| name == "grub.cfg" || name == ENVIRONMENT_FILE)
        {
            return Ok(Some(directory));
        }
    }
    Ok(None)
}

/// Reads the environment block; `None` without GRUB or without a block.
///
/// # Errors
/// The block cannot be read, is not a file of 1024 bytes on the disk, or is damaged.
pub fn read_environment(root: &Root) -> Result<Option<Environment>, GrubError> {
    let Some(directory) = find_directory(root)? else {
        return Ok(None);
    };
    let path = path_below(&directory, ENVIRONMENT_FILE)?;
    let Some(place) = plain_file(root, &path)? else {
        return Ok(None);
    };
    let failed = |errno: Errno| RootError::at(&path, errno);
    let file = place.open_file().map_err(failed)?;
    let damaged = |why: String| unusable_error(format!("{path} cannot be used: {why}"));
    let bytes = root.read_within(&path, SIZE as u64);
    let bytes = match bytes {
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(error) if error.cause == Errno::EFBIG.into() => {
            return Err(damaged(format!("it has more than {SIZE} bytes")));
        }
        Err(error) => return Err(error.into()),
    };
    let environment = Environment::parse(&bytes).map_err(|error| damaged(error.to_string()))?;
    // GRUB writes to blocks of the disk, and a hole has none. A file system without SEEK_HOLE reports no holes.
    match lseek(&file, 0, Whence::SeekHole) {
        Ok(hole) if hole < SIZE as i64 => Err(damaged(
            "it has a hole, which GRUB cannot write to".to_owned(),
        )),
        _ => Ok(Some(environment)),
    }
}

/// Reads a script; `None` if it is missing.
///
/// # Errors
/// It cannot be read or is not a regular file.
pub fn read_script(
    root: &Root,
    directory: &RootPath,
    file: ScriptFile,
) -> Result<Option<Vec<u8>>, GrubError> {
    let path = path_below(directory, file.name())?;
    match plain_file(root, &path)? {
        None => Ok(None),
        Some(_) => Ok(root.read_within(&path, MAX_TEXT)?),
    }
}

/// Returns the place of a regular file; `None` if it is missing. Links are refused: writing would replace them with a file.
fn plain_file(root: &Root, path: &RootPath) -> Result<Option<Place>, GrubError> {
    let Some(place) = root.open_place(path)? else {
        return Ok(None);
    };
    let stat = place.stat().map_err(|errno| RootError::at(path, errno))?;
    match stat.map(|stat| stat.st_mode & libc::S_IFMT) {
        None => Ok(None),
        Some(libc::S_IFREG) => Ok(Some(place)),
        Some(libc::S_IFLNK) => Err(unusable_error(format!("{path} is a symbolic link"))),
        Some(_) => Err(unusable_error(format!("{path} is not a file"))),
    }
}

fn path_below(directory: &RootPath, name: &str) -> Result<RootPath, GrubError> {
    directory
        .join(name)
        .map_err(|error| unusable_error(error.to_string()))
}

/// Returns the file from which GRUB runs our lines, according to the node's `grub.cfg`.
///
/// # Errors
/// There is no such file, or it cannot be read.
pub fn find_script_file(root: &Root) -> Result<(RootPath, ScriptFile, GrubConfig), GrubError> {
    let Some(directory) = find_directory(root)? else {
        return Err(unusable_error(name_other_loader(root)?));
    };
    let path = path_below(&directory, "grub.cfg")?;
    let link = root.read_link(&path)?;
    let Some(bytes) = root.read_within(&path, MAX_TEXT)? else {
        return Err(unusable_error(format!("{path} is missing")));
    };
    let config = config::judge_config(link.as_deref(), &String::from_utf8_lossy(&bytes));
    if config.is_dynamic {
        return Err(unusable_error(format!(
            "{path} is a link to the file that ostree rewrites for each deployment"
        )));
    }
    if !config.loads_environment {
        return Err(unusable_error(format!(
            "{path} does not load the variables of {directory}/{ENVIRONMENT_FILE}"
        )));
    }
    match config.runs {
        Some(script) => Ok((directory, script, config)),
        None => Err(unusable_error(format!(
            "{path} runs neither custom.cfg nor user.cfg: it predates the releases that do"
        ))),
    }
}

/// Returns the file from which GRUB runs our lines, if the node has everything that a counter needs.
fn find_script(
    root: &Root,
    environment: Result<Option<Environment>, Reason>,
) -> Result<(RootPath, ScriptFile), GrubError> {
    let (directory, file, config) = find_script_file(root)?;
    if root.exists(&RootPath::fixed(paths::OPAL))? {
        return Err(unusable_error(
            "petitboot starts the kernels of this machine, and it writes no variables",
        ));
    }
    check_environment(&directory, &config, environment)?;
    if config.sets_default_later {
        let name = file.name();
        return Err(unusable_error(format!(
            "{directory}/grub.cfg sets the default entry after it has run {name}"
        )));
    }
    let old = read_script(root, &directory, file)?;
    let place = || format!("{directory}/{}", file.name());
    script::insert_script(old.as_deref())
        .map_err(|error| unusable_error(format!("{} cannot be used: {error}", place())))?;
    if root.exists(&RootPath::fixed(paths::FIRST_BOOT_STAMP))? {
        return Err(unusable_error(format!(
            "/{} still exists: the first boot of this node has not finished",
            paths::FIRST_BOOT_STAMP
        )));
    }
    if root
        .open_directory(&RootPath::fixed(paths::BOOT_LOADER))?
        .is_none()
    {
        return Err(unusable_error(format!(
            "/{} is missing",
            paths::BOOT_LOADER
        )));
    }
    check_mount(root)?;
    Ok((directory, file))
}

fn check_environment(
    directory: &RootPath,
    config: &GrubConfig,
    environment: Result<Option<Environment>, Reason>,
) -> Result<(), GrubError> {
    let path = format!("{directory}/{ENVIRONMENT_FILE}");
    let environment = environment.map_err(GrubError::Unusable)?;
    let Some(environment) = environment else {
        return Err(unusable_error(format!("{path} is missing")));
    };
    let always = ["default", "blsdir"].into_iter();
    let saved = ["saved_entry", "next_entry"]
        .into_iter()
        .filter(|_| config.uses_saved_entry);
    for name in always.chain(saved) {
        if environment.get(name).is_some_and(|value| !value.is_empty()) {
            return Err(unusable_error(format!(
                "{path} sets the variable {name}, which decides the default entry"
            )));
        }
    }
    let mut filled = environment;
    crate::formats::grub::arm_counter(&mut filled, &"x".repeat(MAX_EXPECTED_ID))
        .map_err(|error| unusable_error(format!("{path} has no room: {error}")))
}

/// Length of the longest id for which space is reserved: `ostree-NN-STATEROOT`.
const MAX_EXPECTED_ID: usize = 40;

fn check_mount(root: &Root) -> Result<(), GrubError> {
    let mounts = read_mounts(root)
        .map_err(|reason| unusable_error(format!("the disk of /boot is unknown: {reason}")))?;
    let boot = mounts.iter().rev().find(|mount| mount.point == "/boot");
    let Some(boot) = boot else {
        return Err(unusable_error(
            "/boot is not a separate file system: GRUB may not see what is only in the journal of the root file system",
        ));
    };
    check_device(root, boot)
}

fn check_device(root: &Root, boot: &MountedFileSystem) -> Result<(), GrubError> {
    let MountedFileSystem { kind, number, .. } = boot;
    if !FILE_SYSTEMS.contains(&kind.as_str()) {
        return Err(unusable_error(format!(
            "/boot is {kind}, to which GRUB does not write"
        )));
    }
    let layers = layers_below(root, number);
    let layers = layers
        .map_err(|reason| unusable_error(format!("the disk of /boot is unknown: {reason}")))?;
    match layers.first() {
        Some(layer) => Err(unusable_error(format!(
            "/boot is on {layer}, through which GRUB does not write"
        ))),
        None => Ok(()),
    }
}

/// Describes the boot loader of a node without GRUB.
fn name_other_loader(root: &Root) -> Result<String, RootError> {
    let has = |paths: &[&'static str]| {
        let mut found = paths.iter().map(|path| root.exists(&RootPath::fixed(path)));
        found.try_fold(false, |any, one| Ok::<_, RootError>(any | one?))
    };
    if has(&paths::ZIPL)? || cfg!(target_arch = "s390x") {
        return Ok(
            "zipl starts the kernels of this machine, and it makes no decisions at boot".to_owned(),
        );
    }
    if has(&paths::SYSTEMD_BOOT)? {
        return Ok("systemd-boot starts the kernels of this machine, not GRUB".to_owned());
    }
    Ok(format!(
        "there is no GRUB: /{} is missing",
        paths::GRUB.join("/grub.cfg and /") + "/grub.cfg"
    ))
}

/// Returns the id of the boot entry that boots a deployment (`CHECKSUM.SERIAL`); `None` if there is no such entry or GRUB gives
/// it no unique id.
///
/// # Errors
/// A path cannot be read.
pub fn find_entry_id(root: &Root, deployment: &str) -> Result<Option<String>, RootError> {
    let entries = bootloader::read_boot_entries(root)?;
    for entry in &entries {
        if boot_kernels::deployment_of(root, entry)?.as_deref() != Some(deployment) {
            continue;
        }
        let id = &entry.file;
        let is_like = |other: &&BootEntry| order::compare_names(&other.file, id).is_eq();
        let is_shown = !entry.linux.is_empty() && entries.iter().filter(is_like).count() == 1;
        return Ok((is_shown && crate::formats::grub::is_usable_id(id)).then(|| id.clone()));
    }
    Ok(None)
}
