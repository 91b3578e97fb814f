//! The state directory: making it, proving that it is the real one, reading and writing its files.

use std::fs::File;
use std::os::fd::AsFd;

use nix::errno::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::disk;
use super::journal::{MARKER_TEXT, VERSION};
use crate::invocation::mco_rescue;
use crate::node::Labels;
use crate::object::Kind;
use crate::paths;
use crate::reason::Reason;
use crate::root::{Place, Root, RootPath};
use crate::sealed;

/// The state directory of a root, open.
#[derive(Debug)]
pub struct State {
    dir: File,
}

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// There is a directory, but it is not ours.
    #[error(
        "/{} exists but has no marker file: this may not be the node's real /var. Mount it, or remove the directory",
        paths::STATE
    )]
    NoMarker,
    /// An empty `var` is one that the real mount will hide.
    #[error(
        "/var of the root is empty here: the real one is not mounted yet. Mount it below the root first"
    )]
    NotMounted,
    /// One of our files is damaged or from another version.
    #[error("/{dir}/{0}: {1}. It is left as it is. {next}", dir = paths::STATE, next = way_out(.0))]
    Damaged(String, String),
    /// The kernel said no.
    #[error("{0}: {1}")]
    System(String, Reason),
}

impl State {
    /// Opens the state directory; `None` where there is none.
    ///
    /// # Errors
    /// [`StateError::NoMarker`] for a directory that is not ours.
    pub fn open(root: &Root) -> Result<Option<Self>, StateError> {
        let path = RootPath::fixed(paths::STATE);
        let Some(dir) = root.directory(&path).map_err(|e| system(&path, e))? else {
            return Ok(None);
        };
        let dir = disk::open_directory(dir.as_fd(), ".").map_err(|e| system(&path, e))?;
        let names = root.list(&path).map_err(|e| system(&path, e))?;
        let begun = disk::temporary_name(RootPath::fixed(paths::MARKER).name());
        if names.iter().all(|name| *name == begun) {
            // A run that was cut off between making the directory and its marker.
            return Ok(None);
        }
        let file = RootPath::fixed(paths::MARKER);
        let marker = root.read(&file).map_err(|e| system(&path, e))?;
        // A link could lead to the marker of another `var`.
        let linked = root.read_link(&file).map_err(|e| system(&path, e))?;
        if linked.is_some() || marker.as_deref() != Some(MARKER_TEXT.as_bytes()) {
            return Err(StateError::NoMarker);
        }
        Ok(Some(Self { dir }))
    }

    /// Opens the state directory, making it first where it is missing.
    pub fn make(root: &Root, separate_var: bool, labels: &Labels) -> Result<Self, StateError> {
        let path = RootPath::fixed(paths::STATE);
        if let Some(state) = Self::open(root)? {
            return Ok(state);
        }
        if separate_var && is_empty_var(root) {
            return Err(StateError::NotMounted);
        }
        let dir = make_path(root, &path, labels)?;
        let name = RootPath::fixed(paths::MARKER);
        // Its bytes and the way to it in one flush; the name is durable no later than any that is made after it.
        let made = disk::write_beside(&dir, name.name(), MARKER_TEXT.as_bytes(), false)
            .and_then(|()| Ok(disk::sync_file_system(&dir)?))
            .and_then(|()| disk::name_it(&dir, name.name()));
        if let Err(error) = made {
            // The first error is the one that matters.
            let _ = disk::remove_file(dir.as_fd(), &disk::temporary_name(name.name()));
            return Err(system(&name, error));
        }
        Ok(Self { dir })
    }

    /// The directory itself.
    pub fn dir(&self) -> &File {
        &self.dir
    }

    /// Reads one of our JSON files; `None` when there is none.
    pub fn read<T: DeserializeOwned>(
        &self,
        root: &Root,
        file: &'static str,
    ) -> Result<Option<T>, StateError> {
        let path = RootPath::fixed(file);
        let Some(bytes) = root.read(&path).map_err(|e| system(&path, e))? else {
            return Ok(None);
        };
        let damaged = |why| StateError::Damaged(path.name().to_owned(), why);
        parse(&bytes).map(Some).map_err(damaged)
    }

    /// Writes one of our JSON files, durably.
    pub fn write(&self, file: &'static str, value: &impl Serialize) -> Result<(), StateError> {
        self.prepare(file, value, true)?;
        self.put(file)?;
        self.sync()
    }

    /// Writes one of our JSON files beside its place. Without `sync` the whole file system is to be flushed before
    /// [`State::put`].
    pub fn prepare(
        &self,
        file: &'static str,
        value: &impl Serialize,
        sync: bool,
    ) -> Result<(), StateError> {
        let path = RootPath::fixed(file);
        let bytes = match file {
            // People read them.
            paths::STATUS | paths::INSTALL => serde_json::to_vec_pretty(value),
            _ => serde_json::to_vec(value),
        };
        let bytes = sealed::seal(&bytes.map_err(|e| system(&path, e))?);
        disk::write_beside(&self.dir, path.name(), &bytes, sync).map_err(|e| system(&path, e))
    }

    /// Puts a file that was prepared in its place, which is durable with the next flush.
    pub fn put(&self, file: &'static str) -> Result<(), StateError> {
        let path = RootPath::fixed(file);
        disk::name_it(&self.dir, path.name()).map_err(|e| system(&path, e))
    }

    /// Flushes the names of the directory.
    pub fn sync(&self) -> Result<(), StateError> {
        let path = RootPath::fixed(paths::STATE);
        disk::sync_directory(&self.dir).map_err(|e| system(&path, e))
    }

    /// Removes what an interrupted write of our own files left.
    pub fn sweep(&self, root: &Root) {
        let ours = [
            paths::MARKER,
            paths::INTENT,
            paths::JOURNAL,
            paths::COMMITTED,
            paths::STATUS,
        ]
        .map(|file| disk::temporary_name(RootPath::fixed(file).name()));
        let names = root
            .list(&RootPath::fixed(paths::STATE))
            .unwrap_or_default();
        for name in names.iter().filter(|name| ours.contains(name)) {
            if let Err(errno) = disk::remove_file(self.dir.as_fd(), name) {
                log::warn!("removing /{}/{name}: {}", paths::STATE, Reason::from(errno));
            }
        }
    }

    /// Puts one of our files beside its place, for a person to look at; durable with the next flush.
    pub fn set_aside(&self, file: &'static str) -> Result<(), StateError> {
        let path = RootPath::fixed(file);
        let (dir, aside) = (self.dir.as_fd(), format!("{}.damaged", path.name()));
        disk::rename(dir, path.name(), dir, &aside).map_err(|e| system(&path, e))
    }

    /// Removes one of our files, durably.
    pub fn remove(&self, file: &'static str) -> Result<(), StateError> {
        self.forget(file)?;
        self.sync()
    }

    /// Removes one of our files, which is durable with the next flush.
    pub fn forget(&self, file: &'static str) -> Result<(), StateError> {
        let path = RootPath::fixed(file);
        disk::remove_file(self.dir.as_fd(), path.name()).map_err(|e| system(&path, e))
    }
}

/// What one of our JSON files says, if it is as it was written.
///
/// # Errors
/// What is wrong with it.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let unreadable = |e: serde_json::Error| format!("cannot be read: {e}");
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(unreadable)?;
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    if let Some(version) = version.filter(|version| *version != u64::from(VERSION)) {
        return Err(format!(
            "is of version {version}, this program knows {VERSION}"
        ));
    }
    sealed::check(bytes).map_err(|broken| broken.to_string())?;
    serde_json::from_value(value).map_err(unreadable)
}

/// What leads on from a file that cannot be used.
fn way_out(file: &str) -> String {
    let named = |path| RootPath::fixed(path).name() == file;
    if [paths::JOURNAL, paths::INTENT].into_iter().any(named) {
        return format!(
            "Without it the interrupted run can be neither finished nor undone. Next: {}",
            mco_rescue("recover --give-up")
        );
    }
    if named(paths::STATUS) {
        return "The next run replaces it".to_owned();
    }
    if file.starts_with("history/") {
        return format!(
            "Without it that run cannot be taken back. Next: rm -r /{}/{file}; the runs before it can be taken back then",
            paths::STATE
        );
    }
    format!("Next: rm /{}/{file}", paths::STATE)
}

fn is_empty_var(root: &Root) -> bool {
    let names = root.list(&RootPath::fixed("var"));
    names.is_ok_and(|names| names.is_empty())
}

/// Makes a directory of ours durably.
pub fn make_path_durably(
    root: &Root,
    path: &RootPath,
    labels: &Labels,
) -> Result<File, StateError> {
    let there = root.directory(path).map_err(|e| system(path, e))?.is_some();
    let dir = make_path(root, path, labels)?;
    if !there {
        disk::sync_file_system(&dir).map_err(|e| system(path, e))?;
    }
    Ok(dir)
}

/// Makes a directory of ours with everything above it (0755), itself 0700, and opens it.
pub fn make_path(root: &Root, path: &RootPath, labels: &Labels) -> Result<File, StateError> {
    make_path_noting(root, path, labels, &mut Vec::new())
}

/// The same; adds every directory that did not exist to `made`, from the top.
pub fn make_path_noting(
    root: &Root,
    path: &RootPath,
    labels: &Labels,
    made: &mut Vec<Place>,
) -> Result<File, StateError> {
    let mut all: Vec<RootPath> = path.ancestors().collect();
    all.reverse();
    for directory in &all {
        let place = root.place(directory).map_err(|e| system(directory, e))?;
        let place = place.ok_or_else(|| system(directory, Errno::ENOENT))?;
        let mode = if directory == path { 0o700 } else { 0o755 };
        if root
            .directory(directory)
            .map_err(|e| system(directory, e))?
            .is_none()
        {
            let (dir, name) = (place.dir.clone(), place.name.clone());
            let is_new = disk::make_directory(dir.as_fd(), &name, mode, own_ids());
            // Made and then not given away is made as well.
            if !matches!(is_new, Ok(false)) {
                made.push(Place { dir, name });
            }
            is_new.map_err(|e| system(directory, e))?;
            label(&place, directory, labels).map_err(|e| system(directory, e))?;
        }
    }
    let dir = root.directory(path).map_err(|e| system(path, e))?;
    let dir = dir.ok_or_else(|| system(path, Errno::ENOENT))?;
    disk::open_directory(dir.as_fd(), ".").map_err(|e| system(path, e))
}

/// Labels a new directory of ours; where that is impossible the kernel's choice stands.
fn label(place: &Place, path: &RootPath, labels: &Labels) -> Result<(), Errno> {
    let Some(label) = labels.wanted(path, &Kind::Directory) else {
        return Ok(());
    };
    match disk::set_label(place.dir.as_fd(), &place.name, &label) {
        Err(errno) if disk::is_refusal(errno) => Ok(()),
        other => other,
    }
}

/// Our own files belong to us.
fn own_ids() -> (u32, u32) {
    (
        nix::unistd::geteuid().as_raw(),
        nix::unistd::getegid().as_raw(),
    )
}

fn system(path: &RootPath, error: impl Into<Reason>) -> StateError {
    StateError::System(path.to_string(), error.into())
}
