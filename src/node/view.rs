//! Files of a root as they are, or as a run would leave them: content, names, owners and modes, with links followed.

use std::collections::{BTreeMap, BTreeSet};

use nix::sys::stat::{FileStat, fstat};

use crate::host::root::{Root, RootError, RootPath};

/// Maximum length of a chain of links.
const MAX_LINKS: usize = 8;

/// Owner and mode of the object at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStatus {
    /// The type.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Type of the object at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A broken link or a loop of links.
    Link,
    /// A device, pipe or socket.
    Other,
}

/// What a run leaves at a path.
#[derive(Debug, Clone)]
pub enum Leftover {
    /// Nothing.
    Nothing,
    /// A directory.
    Directory(FileStatus),
    /// A file with these bytes.
    File(FileStatus, Vec<u8>),
    /// A file with the current content of another file in the root.
    CopyOf(FileStatus, RootPath),
    /// A link with this text.
    Link(String),
    /// A different owner and mode; the type does not change.
    Status(FileStatus),
}

/// The files of a root.
#[derive(Debug)]
pub struct NodeView<'a> {
    root: &'a Root,
    changes: BTreeMap<RootPath, Leftover>,
}

impl<'a> NodeView<'a> {
    /// Returns the files as they are.
    pub fn now(root: &'a Root) -> Self {
        Self {
            root,
            changes: BTreeMap::new(),
        }
    }

    /// Returns the files as a run with these changes would leave them; of two changes of a path the last applies.
    pub fn after(root: &'a Root, changes: impl IntoIterator<Item = (RootPath, Leftover)>) -> Self {
        let mut view = Self::now(root);
        for (path, leftover) in changes {
            let path = view.real(&path);
            view.changes.insert(path, leftover);
        }
        view
    }

    /// Returns true if there are no changes.
    pub fn is_unchanged(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the root.
    pub fn root(&self) -> &'a Root {
        self.root
    }

    /// Returns the path after following the links in its parent directories, as far as these exist.
    pub fn real(&self, path: &RootPath) -> RootPath {
        for above in path.ancestors().skip(1) {
            let Ok(Some((_, end))) = self.root.directory_and_end(&above) else {
                continue;
            };
            let below = path.relative().strip_prefix(above.relative());
            let real = end.zip(below).and_then(|(end, below)| end.join(below).ok());
            return real.unwrap_or_else(|| path.clone());
        }
        path.clone()
    }

    /// Returns the path after following all links; `None` if they form a loop or lead out of the root.
    ///
    /// # Errors
    /// The system's error.
    pub fn resolve(&self, path: &RootPath) -> Result<Option<RootPath>, RootError> {
        let mut at = self.real(path);
        for _ in 0..MAX_LINKS {
            let target = match self.changes.get(&at) {
                Some(Leftover::Link(target)) => Some(target.clone()),
                Some(Leftover::Status(_)) | None => self.root.read_link(&at)?,
                Some(_) => None,
            };
            let Some(target) = target else {
                return Ok(Some(at));
            };
            match follow_link(&at, &target) {
                Some(next) => at = self.real(&next),
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Returns true if anything exists at the path, even a broken link.
    ///
    /// # Errors
    /// The system's error.
    pub fn exists(&self, path: &RootPath) -> Result<bool, RootError> {
        match self.changes.get(&self.real(path)) {
            Some(Leftover::Nothing) => Ok(false),
            Some(Leftover::Status(_)) | None => self.root.exists(path),
            Some(_) => Ok(true),
        }
    }

    /// Returns the target of a link; `None` if the path is not a link.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_link(&self, path: &RootPath) -> Result<Option<String>, RootError> {
        match self.changes.get(&self.real(path)) {
            Some(Leftover::Link(target)) => Ok(Some(target.clone())),
            Some(Leftover::Status(_)) | None => self.root.read_link(path),
            Some(_) => Ok(None),
        }
    }

    /// Returns the bytes of a small file, following links; `None` if it is missing or too large.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(&self, path: &RootPath) -> Result<Option<Vec<u8>>, RootError> {
        if self.is_unchanged() {
            return self.root.read_small(path);
        }
        let Some(at) = self.resolve(path)? else {
            return Ok(None);
        };
        match self.changes.get(&at) {
            Some(Leftover::File(_, bytes)) => Ok(Some(bytes.clone())),
            Some(Leftover::CopyOf(_, source)) => self.root.read_small(source),
            Some(Leftover::Status(_)) | None => self.root.read_small(&at),
            Some(_) => Ok(None),
        }
    }

    /// Returns the text of a small file; bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// The system's error.
    pub fn text(&self, path: &RootPath) -> Result<Option<String>, RootError> {
        let bytes = self.read(path)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Returns the names in a directory, sorted; empty if there is none.
    ///
    /// # Errors
    /// The system's error.
    pub fn names(&self, directory: &RootPath) -> Result<Vec<String>, RootError> {
        let mut names: BTreeSet<String> = self.root.list(directory)?.into_iter().collect();
        let real = directory.join("x").map(|inside| self.real(&inside));
        let real = real.ok().and_then(|inside| inside.parent());
        for (path, leftover) in &self.changes {
            if path.parent() == real {
                match leftover {
                    Leftover::Nothing => drop(names.remove(path.name())),
                    _ => drop(names.insert(path.name().to_owned())),
                }
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Returns owner and mode of the object at a path, following links; `None` if there is none.
    ///
    /// # Errors
    /// The system's error.
    pub fn status(&self, path: &RootPath) -> Result<Option<FileStatus>, RootError> {
        let Some(at) = self.resolve(path)? else {
            let kind = FileKind::Link;
            let (mode, uid, gid) = (0o777, 0, 0);
            return Ok(Some(FileStatus {
                kind,
                mode,
                uid,
                gid,
            }));
        };
        match self.changes.get(&at) {
            Some(Leftover::Nothing | Leftover::Link(_)) => Ok(None),
            Some(
                Leftover::Directory(status)
                | Leftover::File(status, _)
                | Leftover::CopyOf(status, _),
            ) => Ok(Some(*status)),
            Some(Leftover::Status(status)) => {
                let now = self.status_now(&at)?;
                Ok(now.map(|now| FileStatus {
                    kind: now.kind,
                    ..*status
                }))
            }
            None => self.status_now(&at),
        }
    }

    fn status_now(&self, path: &RootPath) -> Result<Option<FileStatus>, RootError> {
        // For a mount point, the mounted directory is what matters.
        match self.root.open_directory(path) {
            Ok(Some(directory)) => match fstat(&directory) {
                Ok(stat) => return Ok(Some(status_of(&stat))),
                Err(errno) => return Err(RootError::at(path, errno)),
            },
            Ok(None) => {}
            Err(error) if error.cause.is_denied() => return Err(error),
            // Not a directory.
            Err(_) => {}
        }
        match self.root.open_place(path)? {
            None => Ok(None),
            Some(place) => match place.stat() {
                Ok(stat) => Ok(stat.map(|stat| status_of(&stat))),
                Err(errno) => Err(RootError::at(path, errno)),
            },
        }
    }

    /// Returns owner and mode of the root directory.
    pub fn status_of_root(&self) -> Option<FileStatus> {
        fstat(self.root.as_fd()).ok().map(|stat| status_of(&stat))
    }
}

fn status_of(stat: &FileStat) -> FileStatus {
    FileStatus {
        kind: match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => FileKind::File,
            libc::S_IFDIR => FileKind::Directory,
            libc::S_IFLNK => FileKind::Link,
            _ => FileKind::Other,
        },
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
    }
}

/// Returns the path that a link leads to; `None` if it is the root itself or not a path.
fn follow_link(path: &RootPath, target: &str) -> Option<RootPath> {
    let base = if target.starts_with('/') {
        ""
    } else {
        path.parent_text().unwrap_or_default()
    };
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    RootPath::parse(&format!("/{}", parts.join("/"))).ok()
}
