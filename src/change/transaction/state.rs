//! The state directory: creates it, verifies that it is the real one, reads and writes its files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::AsFd;

use nix::errno::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::disk;
use super::journal::{Journal, MARKER_TEXT, VERSION};
use crate::base::invocation::{mco_rescue, node_path};
use crate::base::object::ObjectKind;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Place, Root, RootPath};
use crate::host::sealed;
use crate::host::state_file::{other_version, version_of};
use crate::node::Labels;

/// Size of the pieces in which a file is generated.
const BUFFER: usize = 16 << 10;

/// The state directory of a root, open.
#[derive(Debug)]
pub(super) struct StateDirectory {
    dir: File,
    is_new: bool,
}

/// An error of the state directory.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The directory exists, but is not ours.
    #[error(
        "/{} exists but has no marker file: this may not be the node's real /var. Mount it, or remove the directory",
        paths::STATE
    )]
    NoMarker,
    /// `/var` is empty: the real mount is missing, and would hide whatever is written now.
    #[error(
        "/var of the root is empty here: the real one is not mounted yet. Mount it below the root first"
    )]
    NotMounted,
    /// One of our files is damaged.
    #[error("/{dir}/{0}: {1}. It is left as it is. {next}", dir = paths::STATE, next = way_out(.0))]
    Damaged(String, String),
    /// One of our files has another version. Unlike a damaged one, recovery never removes or replaces it.
    #[error(
        "/{dir}/{0} has version {1}, this program knows {VERSION}. It is left as it is, for the version of mco-rescue that \
         wrote it. {next}",
        dir = paths::STATE, next = way_out(.0)
    )]
    Version(String, u64),
    /// The kernel reported an error for a path.
    #[error("{0}: {1}")]
    System(String, Reason),
    /// A run is prepared, and it is unknown whether it has changed anything.
    #[error("it cannot be seen how far an interrupted run has come: {0}")]
    Undecided(String),
}

impl StateDirectory {
    /// Opens the state directory; `None` if it is missing.
    ///
    /// # Errors
    /// [`StateError::NoMarker`] for a directory without the marker file.
    pub(super) fn open(root: &Root) -> Result<Option<Self>, StateError> {
        let path = RootPath::fixed(paths::STATE);
        let Some(dir) = root
            .open_directory(&path)
            .map_err(|e| system_error(&path, e))?
        else {
            return Ok(None);
        };
        let dir = disk::open_directory(dir.as_fd(), ".").map_err(|e| system_error(&path, e))?;
        let names = root.list(&path).map_err(|e| system_error(&path, e))?;
        let begun = disk::temporary_name(RootPath::fixed(paths::MARKER).name());
        if names.iter().all(|name| *name == begun) {
            // A run was interrupted between creating the directory and its marker.
            return Ok(None);
        }
        let file = RootPath::fixed(paths::MARKER);
        let marker = root.read(&file).map_err(|e| system_error(&path, e))?;
        // A link could lead to the marker of another `var`.
        let linked = root.read_link(&file).map_err(|e| system_error(&path, e))?;
        let is_ours = |text: &[u8]| text == MARKER_TEXT.as_bytes() || is_unwritten(text);
        if linked.is_some() || !marker.is_some_and(|text| is_ours(&text)) {
            return Err(StateError::NoMarker);
        }
        Ok(Some(Self { dir, is_new: false }))
    }

    /// Opens the state directory, and creates it first if it is missing. A new one is durable after the next sync.
    pub(super) fn open_or_make(
        root: &Root,
        separate_var: bool,
        labels: &Labels,
    ) -> Result<Self, StateError> {
        let path = RootPath::fixed(paths::STATE);
        let marker = RootPath::fixed(paths::MARKER);
        let dir = match Self::open(root)? {
            Some(state) => {
                let text = root.read(&marker).map_err(|e| system_error(&marker, e))?;
                if !text.is_some_and(|text| is_unwritten(&text)) {
                    return Ok(state);
                }
                state.dir
            }
            None if separate_var && is_empty_var(root) => return Err(StateError::NotMounted),
            None => make_path(root, &path, labels)?,
        };
        disk::write_temporary(
            &dir,
            marker.name(),
            disk::ByteSource::Bytes(MARKER_TEXT.as_bytes()),
            false,
        )
        .and_then(|()| disk::commit_temporary(&dir, marker.name()))
        .map_err(|error| system_error(&marker, error))?;
        Ok(Self { dir, is_new: true })
    }

    /// Returns true if it was just created: it is not durable before the next sync.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns the open directory.
    pub(super) fn dir(&self) -> &File {
        &self.dir
    }

    /// Reads one of our JSON files; `None` if it is missing.
    pub(super) fn read_file<T: DeserializeOwned>(
        &self,
        root: &Root,
        file: &'static str,
    ) -> Result<Option<T>, StateError> {
        let path = RootPath::fixed(file);
        let Some(bytes) = root.read(&path).map_err(|e| system_error(&path, e))? else {
            return Ok(None);
        };
        parse_file(&bytes)
            .map(Some)
            .map_err(|error| error.of_file(path.name()))
    }

    /// Writes one of our JSON files, durably.
    pub(super) fn write_file(
        &self,
        file: &'static str,
        value: &impl Serialize,
    ) -> Result<(), StateError> {
        self.prepare_file(file, value, true)?;
        self.commit_file(file)?;
        self.sync_names()
    }

    /// Writes one of our JSON files next to its final name. Without `sync`, the whole file system has to be synced before
    /// [`StateDirectory::commit_file`].
    pub(super) fn prepare_file(
        &self,
        file: &'static str,
        value: &impl Serialize,
        sync: bool,
    ) -> Result<(), StateError> {
        let path = RootPath::fixed(file);
        // The journal of many files is larger than everything else that a run keeps in memory, so it is never there as a whole.
        let write = |out: &mut dyn Write| {
            let mut out = BufWriter::with_capacity(BUFFER, out);
            match file {
                // People read them.
                paths::STATUS | paths::INSTALL => serde_json::to_writer_pretty(&mut out, value),
                _ => serde_json::to_writer(&mut out, value),
            }?;
            out.flush()
        };
        let write_sealed = |out: &mut dyn Write| sealed::write_sealed(write, out);
        let source = disk::ByteSource::Made(&write_sealed);
        disk::write_temporary(&self.dir, path.name(), source, sync)
            .map_err(|e| system_error(&path, e))
    }

    /// Reads a prepared journal, which does not have its final name yet; `None` if it is missing or incomplete, which means
    /// that it was never synced.
    pub(super) fn read_prepared_journal(&self, root: &Root) -> Result<Option<Journal>, StateError> {
        let path = RootPath::fixed(paths::PREPARED_JOURNAL);
        let bytes = root.read(&path).map_err(|e| system_error(&path, e))?;
        if let Some(other) = bytes.as_ref().and_then(|b| other_version(b, VERSION)) {
            return Err(StateError::Version(path.name().to_owned(), other));
        }
        let whole = bytes.filter(|bytes| sealed::is_sealed(bytes));
        Ok(whole.and_then(|bytes| parse_file(&bytes).ok()))
    }

    /// Syncs a file and its name.
    pub(super) fn sync_file(&self, file: &'static str) -> Result<(), StateError> {
        let path = RootPath::fixed(file);
        disk::sync_file(&self.dir, path.name()).map_err(|e| system_error(&path, e))?;
        self.sync_names()
    }

    /// Renames a prepared file to its final name. The name is durable after the next sync.
    pub(super) fn commit_file(&self, file: &'static str) -> Result<(), StateError> {
        let path = RootPath::fixed(file);
        disk::commit_temporary(&self.dir, path.name()).map_err(|e| system_error(&path, e))
    }

    /// Syncs the names in the directory.
    pub(super) fn sync_names(&self) -> Result<(), StateError> {
        let path = RootPath::fixed(paths::STATE);
        disk::sync_directory(&self.dir).map_err(|e| system_error(&path, e))
    }

    /// Removes the temporary files of interrupted writes.
    pub(super) fn sweep_temporaries(&self, root: &Root) {
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

    /// Renames one of our files to `NAME.damaged`, for the user to inspect; durable after the next sync. A missing file is not
    /// an error.
    pub(super) fn set_aside(&self, file: &'static str) -> Result<(), StateError> {
        let path = RootPath::fixed(file);
        let (dir, aside) = (self.dir.as_fd(), format!("{}.damaged", path.name()));
        match disk::rename_across(dir, path.name(), dir, &aside) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(system_error(&path, errno)),
        }
    }

    /// Removes one of our files, durably.
    pub(super) fn remove_file(&self, file: &'static str) -> Result<(), StateError> {
        self.unlink_file(file)?;
        self.sync_names()
    }

    /// Removes the journal, and a prepared one, durably.
    pub(super) fn remove_journal(&self) -> Result<(), StateError> {
        self.unlink_file(paths::JOURNAL)?;
        self.unlink_file(paths::PREPARED_JOURNAL)?;
        self.sync_names()
    }

    /// Removes one of our files. The removal is durable after the next sync.
    pub(super) fn unlink_file(&self, file: &'static str) -> Result<(), StateError> {
        let path = RootPath::fixed(file);
        disk::remove_file(self.dir.as_fd(), path.name()).map_err(|e| system_error(&path, e))
    }
}

/// Returns true for a marker whose text was lost in a power cut: before a sync, only the name is durable.
fn is_unwritten(marker: &[u8]) -> bool {
    let end = marker.iter().rposition(|byte| *byte != 0);
    let text = marker.get(..end.map_or(0, |end| end + 1));
    text.is_some_and(|text| {
        text != MARKER_TEXT.as_bytes() && MARKER_TEXT.as_bytes().starts_with(text)
    })
}

/// The reason why one of our files cannot be used.
#[derive(Debug)]
pub(super) enum ParseError {
    /// It is damaged, in words.
    Damaged(String),
    /// It has this other version.
    Version(u64),
}

impl ParseError {
    /// Returns the error of a file of the state directory.
    pub(super) fn of_file(self, name: &str) -> StateError {
        match self {
            Self::Damaged(why) => StateError::Damaged(name.to_owned(), why),
            Self::Version(version) => StateError::Version(name.to_owned(), version),
        }
    }
}

/// Parses one of our JSON files, and checks its seal and version.
///
/// # Errors
/// It is damaged, or of another version.
pub(super) fn parse_file<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ParseError> {
    let unreadable = |e: serde_json::Error| ParseError::Damaged(format!("cannot be read: {e}"));
    let version = version_of(bytes).map_err(unreadable)?;
    // Before the seal: another version may use a different seal.
    if let Some(version) = version.filter(|version| *version != u64::from(VERSION)) {
        return Err(ParseError::Version(version));
    }
    sealed::check_seal(bytes).map_err(|broken| ParseError::Damaged(broken.to_string()))?;
    serde_json::from_slice(bytes).map_err(unreadable)
}

/// Returns the next step for a file that cannot be used.
fn way_out(file: &str) -> String {
    let named = |path| RootPath::fixed(path).name() == file;
    let of_a_run = [
        paths::JOURNAL,
        paths::PREPARED_JOURNAL,
        paths::INTENT,
        paths::COMMITTED,
    ];
    if of_a_run.into_iter().any(named) {
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
            "Without it that run cannot be reverted; the runs before it can be, once it is removed. Next: rm -r {}",
            node_path(&format!("{}/{file}", paths::STATE))
        );
    }
    format!(
        "Next: rm {}",
        node_path(&format!("{}/{file}", paths::STATE))
    )
}

fn is_empty_var(root: &Root) -> bool {
    let names = root.list(&RootPath::fixed("var"));
    names.is_ok_and(|names| names.is_empty())
}

/// Creates a directory of this program durably.
pub(super) fn make_path_durably(
    root: &Root,
    path: &RootPath,
    labels: &Labels,
) -> Result<File, StateError> {
    let there = root
        .open_directory(path)
        .map_err(|e| system_error(path, e))?
        .is_some();
    let dir = make_path(root, path, labels)?;
    if !there {
        disk::sync_file_system(&dir).map_err(|e| system_error(path, e))?;
    }
    Ok(dir)
}

/// Creates a directory of this program with mode 0700, and its parents with 0755, and opens it.
pub(super) fn make_path(root: &Root, path: &RootPath, labels: &Labels) -> Result<File, StateError> {
    make_path_noting(root, path, labels, &mut Vec::new())
}

/// Does the same, and adds every created directory to `made`, from the top.
pub(super) fn make_path_noting(
    root: &Root,
    path: &RootPath,
    labels: &Labels,
    made: &mut Vec<Place>,
) -> Result<File, StateError> {
    let mut all: Vec<RootPath> = path.ancestors().collect();
    all.reverse();
    for directory in &all {
        let place = root
            .open_place(directory)
            .map_err(|e| system_error(directory, e))?;
        let place = place.ok_or_else(|| system_error(directory, Errno::ENOENT))?;
        let mode = if directory == path { 0o700 } else { 0o755 };
        if root
            .open_directory(directory)
            .map_err(|e| system_error(directory, e))?
            .is_none()
        {
            let (dir, name) = (place.dir.clone(), place.name.clone());
            let is_new = disk::make_directory(dir.as_fd(), &name, mode, own_ids());
            // If its owner could not be set, it was created nevertheless.
            if !matches!(is_new, Ok(false)) {
                made.push(Place { dir, name });
            }
            is_new.map_err(|e| system_error(directory, e))?;
            label_directory(&place, directory, labels).map_err(|e| system_error(directory, e))?;
        }
    }
    let dir = root
        .open_directory(path)
        .map_err(|e| system_error(path, e))?;
    let dir = dir.ok_or_else(|| system_error(path, Errno::ENOENT))?;
    disk::open_directory(dir.as_fd(), ".").map_err(|e| system_error(path, e))
}

/// Labels a new directory of this program. If that is impossible, it keeps the kernel's default.
fn label_directory(place: &Place, path: &RootPath, labels: &Labels) -> Result<(), Errno> {
    let Some(label) = labels.wanted_label(path, &ObjectKind::Directory) else {
        return Ok(());
    };
    match disk::set_label(place.dir.as_fd(), &place.name, &label) {
        Err(errno) if disk::is_refusal(errno) => Ok(()),
        other => other,
    }
}

/// Returns user and group of this program's own files: those of the process.
fn own_ids() -> (u32, u32) {
    (
        nix::unistd::geteuid().as_raw(),
        nix::unistd::getegid().as_raw(),
    )
}

fn system_error(path: &RootPath, error: impl Into<Reason>) -> StateError {
    StateError::System(path.to_string(), error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prepared_journal_is_the_journal_before_it_gets_its_name() {
        let journal = RootPath::fixed(paths::JOURNAL);
        let prepared = RootPath::fixed(paths::PREPARED_JOURNAL);
        assert_eq!(disk::temporary_name(journal.name()), prepared.name());
    }

    #[test]
    fn only_a_marker_without_its_text_is_unwritten() {
        for lost in ["", "\0\0\0", "mco-rescue st", "mco-rescue st\0\0"] {
            assert!(is_unwritten(lost.as_bytes()), "{lost:?}");
        }
        for other in [
            MARKER_TEXT,
            "notes",
            "\0notes",
            "mco-rescue state directory\n\n",
        ] {
            assert!(!is_unwritten(other.as_bytes()), "{other:?}");
        }
    }
}
