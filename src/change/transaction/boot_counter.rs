//! Arms and disarms GRUB's part of a trial (docs/develop/boot-counter.md).
//!
//! Each file is completely replaced, synced, and made visible to a boot loader that does not replay a journal. Because of the
//! order, an interruption at any time is harmless: our lines do nothing without the variables, so they are added first and
//! removed last.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use super::boot;
use super::disk::{self, ByteSource};
use super::lock::{Lock, LockError};
use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::formats::grub::config::ScriptFile;
use crate::formats::grub::environment::Environment;
use crate::formats::grub::script::{self, Remainder};
use crate::formats::grub::{self, ARMED, ENDED, ENTRIES_MARK, FIRED, STATE_VARIABLE};
use crate::host::root::{Place, Root, RootPath};
use crate::node::boot_counter::{
    ENVIRONMENT_FILE, GrubError, find_directory, find_script_file, read_environment, read_script,
};

/// The two files that may contain our lines: GRUB's configuration may be migrated between arming and disarming.
const SCRIPTS: [ScriptFile; 2] = [ScriptFile::Custom, ScriptFile::User];

/// An error while the counter is armed or disarmed.
#[derive(Debug, thiserror::Error)]
pub enum BootCounterError {
    /// GRUB's files are not in the required state.
    #[error(transparent)]
    Grub(#[from] GrubError),
    /// Nothing can be written on this root.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// GRUB would misinterpret the id.
    #[error("GRUB finds no boot entry by the id {0:?}")]
    Entry(String),
    /// A file could not be written.
    #[error("{0}: {1}")]
    System(String, Reason),
}

/// Arms the counter: the next boot attempt uses the default boot entry, and every later one the entry with this id, until
/// [`disarm_boot_counter`]. `/boot` has to be writable. After an error nothing is armed.
///
/// # Errors
/// GRUB cannot count here, or a file could not be written.
pub fn arm_boot_counter(root: &Root, lock: &Lock, entry_id: &str) -> Result<(), BootCounterError> {
    lock.require_writable()?;
    if !grub::is_usable_id(entry_id) {
        return Err(BootCounterError::Entry(entry_id.to_owned()));
    }
    let (path, file, _) = find_script_file(root)?;
    let old_script = read_script(root, &path, file)?;
    let new_script = script::insert_script(old_script.as_deref())
        .map_err(|error| unusable_error(&path, file.name(), error.to_string()))?;
    let mut environment = read_environment(root)?
        .ok_or_else(|| unusable_error(&path, ENVIRONMENT_FILE, "it is missing".to_owned()))?;
    grub::arm_counter(&mut environment, entry_id)
        .map_err(|error| unusable_error(&path, ENVIRONMENT_FILE, error.to_string()))?;
    let directory = BootDirectory::open_grub(root, path)?;
    let entries = BootDirectory::open_directory(root, RootPath::fixed(paths::BOOT_LOADER))?;
    let armed = directory.write_changed(file.name(), old_script.as_deref(), &new_script);
    let armed =
        armed.and_then(|()| entries.write_file(ENTRIES_MARK, format!("{entry_id}\n").as_bytes()));
    let armed =
        armed.and_then(|()| directory.write_file(ENVIRONMENT_FILE, &environment.to_bytes()));
    if armed.is_err()
        && let Err(error) = disarm_counter(root)
    {
        log::warn!("what was written of the boot counter stays: {error}");
    }
    armed
}

/// Disarms the counter, and removes our lines. Returns true if it was armed or had fired.
///
/// # Errors
/// The environment block could not be changed. Lines that could not be removed are logged: without variables they do nothing.
pub fn disarm_boot_counter(root: &Root, lock: &Lock) -> Result<bool, BootCounterError> {
    lock.require_writable()?;
    disarm_counter(root)
}

fn disarm_counter(root: &Root) -> Result<bool, BootCounterError> {
    let Some(path) = find_directory(root).map_err(GrubError::from)? else {
        return Ok(false);
    };
    let directory = BootDirectory::open_grub(root, path)?;
    let had_variables = match read_environment(root)? {
        Some(environment) => directory.clear_variables(environment)?,
        None => false,
    };
    if let Err(error) = take_mark_out(root) {
        log::warn!("the mark of mco-rescue among the boot entries stays: {error}");
    }
    for file in SCRIPTS {
        if let Err(error) = directory.take_lines_out(file) {
            log::warn!(
                "lines of mco-rescue stay in {}/{}: {error}",
                directory.path,
                file.name()
            );
        }
    }
    Ok(had_variables)
}

fn take_mark_out(root: &Root) -> Result<(), BootCounterError> {
    let path = RootPath::fixed(paths::BOOT_LOADER);
    let names = root.list(&path).map_err(GrubError::from)?;
    if !names.iter().any(|name| name.contains(ENTRIES_MARK)) {
        return Ok(());
    }
    let entries = BootDirectory::open_directory(root, path)?;
    entries.sweep_file(ENTRIES_MARK);
    entries.remove_file(ENTRIES_MARK)
}

fn unusable_error(directory: &RootPath, name: &str, why: String) -> GrubError {
    GrubError::Unusable(format!("{directory}/{name} cannot be used: {why}").into())
}

/// An open directory of the boot loader.
struct BootDirectory<'a> {
    root: &'a Root,
    path: RootPath,
    dir: File,
}

impl<'a> BootDirectory<'a> {
    fn open_directory(root: &'a Root, path: RootPath) -> Result<Self, BootCounterError> {
        let failed = |reason: Reason| BootCounterError::System(path.to_string(), reason);
        let dir = root.open_directory(&path).map_err(GrubError::from)?;
        let dir = dir.ok_or_else(|| failed("it is missing".to_owned().into()))?;
        let dir = disk::open_directory(dir.as_fd(), ".").map_err(|errno| failed(errno.into()))?;
        Ok(Self { root, path, dir })
    }

    /// Opens GRUB's directory, and removes leftovers of an interrupted run.
    fn open_grub(root: &'a Root, path: RootPath) -> Result<Self, BootCounterError> {
        let directory = Self::open_directory(root, path)?;
        let names = SCRIPTS.map(ScriptFile::name).into_iter();
        for name in names.chain([ENVIRONMENT_FILE]) {
            directory.sweep_file(name);
        }
        Ok(directory)
    }

    /// Removes what an interrupted run left of a file.
    fn sweep_file(&self, name: &str) {
        let temporary = disk::temporary_name(name);
        if let Err(errno) = disk::remove_file(self.dir.as_fd(), &temporary) {
            log::info!(
                "removing {}/{temporary}: {}",
                self.path,
                Reason::from(errno)
            );
        }
    }

    /// Removes the variables from the environment block. On a full disk, the state is overwritten in place.
    fn clear_variables(&self, environment: Environment) -> Result<bool, BootCounterError> {
        let mut cleared = environment.clone();
        let was = grub::CounterState::from_environment(&environment);
        if !grub::disarm_counter(&mut cleared) {
            return Ok(false);
        }
        let written = self.replace_file(ENVIRONMENT_FILE, &cleared.to_bytes());
        let written = written.or_else(|error| {
            if is_full(&error) && self.end_in_place()? {
                Ok(())
            } else {
                Err(error)
            }
        });
        written.map_err(|error| self.counter_error(ENVIRONMENT_FILE, error.into()))?;
        self.flush_filesystem()?;
        Ok(was != grub::CounterState::Missing)
    }

    /// Overwrites the state in the block that is on the disk now. Returns false if there is none.
    fn end_in_place(&self) -> io::Result<bool> {
        let now =
            read_environment(self.root).map_err(|error| io::Error::other(error.to_string()))?;
        let place = now.and_then(|now| {
            let mut states = [ARMED, FIRED].into_iter();
            states.find_map(|state| now.offset_of(STATE_VARIABLE, state))
        });
        let Some(offset) = place else {
            return Ok(false);
        };
        disk::overwrite_durably(&self.dir, ENVIRONMENT_FILE, offset, ENDED.as_bytes())?;
        Ok(true)
    }

    fn take_lines_out(&self, file: ScriptFile) -> Result<(), BootCounterError> {
        let Some(text) = read_script(self.root, &self.path, file)? else {
            return Ok(());
        };
        let rest = script::remove_script(&text)
            .map_err(|error| unusable_error(&self.path, file.name(), error.to_string()))?;
        match rest {
            Remainder::Unchanged => Ok(()),
            Remainder::Bytes(bytes) => self.write_file(file.name(), &bytes),
            Remainder::Nothing => self.remove_file(file.name()),
        }
    }

    fn remove_file(&self, name: &str) -> Result<(), BootCounterError> {
        let failed = |errno: nix::errno::Errno| self.counter_error(name, errno.into());
        disk::remove_file(self.dir.as_fd(), name).map_err(failed)?;
        disk::sync_directory(&self.dir).map_err(failed)?;
        self.flush_filesystem()
    }

    fn write_changed(
        &self,
        name: &str,
        old: Option<&[u8]>,
        new: &[u8],
    ) -> Result<(), BootCounterError> {
        if old == Some(new) {
            Ok(())
        } else {
            self.write_file(name, new)
        }
    }

    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<(), BootCounterError> {
        let replaced = self.replace_file(name, bytes);
        replaced.map_err(|error| self.counter_error(name, error.into()))?;
        self.flush_filesystem()
    }

    /// Replaces a file completely and durably. Mode, owner, label and attributes are those of the old file; a new one is like
    /// its directory, but only accessible to root.
    fn replace_file(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let place = Place {
            dir: self.dir.as_fd().try_clone_to_owned()?.into(),
            name: name.to_owned(),
        };
        let temporary = disk::temporary_name(name);
        let result = self.write_beside(&place, &temporary, bytes);
        let result =
            result.and_then(|()| Ok(disk::rename_over(self.dir.as_fd(), &temporary, &place)?));
        if let Err(error) = result {
            // The first error is the one that matters; the next run sweeps leftovers.
            let _ = disk::remove_file(self.dir.as_fd(), &temporary);
            return Err(error);
        }
        Ok(disk::sync_directory(&self.dir)?)
    }

    fn write_beside(&self, place: &Place, temporary: &str, bytes: &[u8]) -> io::Result<()> {
        let dir = self.dir.as_fd();
        let old = place.stat()?;
        let own = nix::sys::stat::fstat(&self.dir)?;
        let wanted = Object::new(
            ObjectKind::Directory,
            old.map_or(0o600, |stat| stat.st_mode & 0o7777),
            (
                old.map_or(own.st_uid, |stat| stat.st_uid),
                old.map_or(own.st_gid, |stat| stat.st_gid),
            ),
        );
        disk::write_file(dir, temporary, ByteSource::Bytes(bytes), &wanted, true)?;
        if old.is_some() {
            disk::copy_label(place, dir, temporary)?;
            disk::copy_extended(&place.open_file()?, dir, temporary)?;
            return Ok(());
        }
        let like = Place {
            dir: place.dir.clone(),
            name: ".".to_owned(),
        };
        Ok(disk::copy_label(&like, dir, temporary)?)
    }

    /// Flushes the file system, as GRUB replays no journal.
    fn flush_filesystem(&self) -> Result<(), BootCounterError> {
        let settled = boot::empty_journal(self.root, &self.dir);
        settled.map_err(|reason| {
            BootCounterError::System(format!("freezing and thawing {}", self.path), reason)
        })
    }

    fn counter_error(&self, name: &str, reason: Reason) -> BootCounterError {
        BootCounterError::System(format!("{}/{name}", self.path), reason)
    }
}

/// Returns true if the disk has no space for another file.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}
