//! The OSTree repository: the objects of the relevant commits, read and hashed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::sys::stat::FileStat;

use super::images::object_store::{MAX_METADATA, MAX_OBJECTS, ObjectStore, StoreError, mode_in};
use super::images::ostree_objects::{
    Checksum, Commit, DirTree, FileAttributes, OstreeObjectKind as ObjectKind, parse_checksum,
};
use crate::host::root::{
    Place, Root, RootError, RootPath, all_attributes, digest_reader, sha256_hex, to_hex,
};
use crate::host::sys::parallel;

/// Path of the repository, as a deployment sees it.
pub const REPOSITORY: &str = "sysroot/ostree/repo";
/// Its configuration.
pub const CONFIG: &str = "sysroot/ostree/repo/config";
/// Number of files that one thread hashes at a time.
const PART: usize = 64;

/// The findings about the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OstreeRepository {
    /// Commits that were checked.
    pub commits: Vec<String>,
    /// Damaged objects.
    pub damaged: Vec<DamagedObject>,
    /// Parts that could not be checked, with the reason.
    pub unseen: Vec<String>,
    /// Number of hashed objects; `None` if only the first ones of each commit were read.
    pub hashed: Option<usize>,
}

/// An object whose content does not match its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedObject {
    /// Path of the object.
    pub path: String,
    /// Its checksum.
    pub checksum: String,
    /// The fault.
    pub fault: ObjectFault,
    /// The commit that it belongs to, or the first of several.
    pub commit: String,
}

/// The fault of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectFault {
    /// It does not exist.
    Missing,
    /// It is empty, but its kind of object cannot be.
    Empty,
    /// Its content has this checksum instead.
    Other(String),
}

/// Returns the commit of each image that was imported into the repository, by image name. Images without a digest in the name,
/// or whose pull is incomplete, are skipped.
///
/// # Errors
/// The repository cannot be read.
pub fn imported_images(root: &Root) -> Result<BTreeMap<String, String>, StoreError> {
    let Some(store) = ObjectStore::of_node(root)? else {
        return Ok(BTreeMap::new());
    };
    Ok(store.image_commits()?)
}

/// Reads the objects of commits: the first ones of each, or all with `deep`. Returns `None` if there is no repository.
///
/// # Errors
/// The repository cannot be read.
pub fn read_ostree_repository(
    root: &Root,
    commits: &BTreeSet<String>,
    deep: bool,
) -> Result<Option<OstreeRepository>, RootError> {
    let Some(config) = root.read_small(&RootPath::fixed(CONFIG))? else {
        return Ok(None);
    };
    let mut walk = Walk {
        root,
        seen: BTreeMap::new(),
        report: OstreeRepository::default(),
    };
    for commit in commits {
        walk.walk_commit(commit, deep)?;
    }
    let mut report = walk.report;
    let files: Vec<(Checksum, String)> = walk
        .seen
        .into_iter()
        .filter(|((_, kind), _)| *kind == ObjectKind::File)
        .map(|((checksum, _), commit)| (checksum, commit))
        .collect();
    if deep {
        let mode = mode_in(&String::from_utf8_lossy(&config));
        report.hashed = Some(files.len());
        match mode.as_str() {
            "bare" => {
                let judge = |part: &[(Checksum, String)]| judge_files(root, part);
                for part in parallel::in_parts(&files, PART, judge) {
                    report.damaged.extend(part?);
                }
            }
            other => report.unseen.push(format!(
                "content of objects: the repository has the mode {other:?}"
            )),
        }
    }
    Ok(Some(report))
}

/// Returns false if the repository does not sync what it writes, according to the last `fsync` in its configuration. At first
/// boot the daemon mounts a copy of the configuration that turns it off.
///
/// # Errors
/// The configuration cannot be read.
pub fn is_flushed(root: &Root) -> Result<bool, RootError> {
    let config = root.read_small(&RootPath::fixed(CONFIG))?;
    let config = config.unwrap_or_default();
    let text = String::from_utf8_lossy(&config);
    let mut section = "";
    let mut flushed = true;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        }
        let value = line
            .split_once('=')
            .filter(|(key, _)| key.trim() == "fsync");
        if let Some((_, value)) = value.filter(|_| section == "core") {
            flushed = !matches!(value.trim(), "false" | "0");
        }
    }
    Ok(flushed)
}

struct Walk<'a> {
    root: &'a Root,
    /// Objects that were read, each with its commit.
    seen: BTreeMap<(Checksum, ObjectKind), String>,
    report: OstreeRepository,
}

impl Walk<'_> {
    /// Records why a commit is not known completely.
    fn leave_out(&mut self, commit: &str, why: &str) {
        let why = format!("commit {}: {why}", short_commit(commit));
        self.report.unseen.push(why);
    }

    fn walk_commit(&mut self, name: &str, deep: bool) -> Result<(), RootError> {
        let Some(checksum) = parse_checksum(name) else {
            return Ok(());
        };
        if self.is_partial(name)? {
            self.leave_out(name, "its pull is not complete");
            return Ok(());
        }
        self.report.commits.push(name.to_owned());
        let Some(bytes) = self.read_metadata(checksum, ObjectKind::Commit, name)? else {
            return Ok(());
        };
        let Some(commit) = Commit::parse(&bytes) else {
            self.leave_out(name, "its form is not known here");
            return Ok(());
        };
        self.read_metadata(commit.attributes, ObjectKind::DirMeta, name)?;
        let mut waiting = vec![commit.tree];
        while let Some(tree) = waiting.pop() {
            let Some(bytes) = self.read_metadata(tree, ObjectKind::DirTree, name)? else {
                continue;
            };
            if !deep {
                return Ok(());
            }
            let Some(tree) = DirTree::parse(&bytes) else {
                self.leave_out(name, "a directory has an unknown form");
                continue;
            };
            if self.seen.len() > MAX_OBJECTS {
                self.leave_out(name, &format!("more than {MAX_OBJECTS} objects"));
                return Ok(());
            }
            for (_, file) in tree.files {
                let at = (file, ObjectKind::File);
                self.seen.entry(at).or_insert_with(|| name.to_owned());
            }
            for directory in tree.directories {
                self.read_metadata(directory.attributes, ObjectKind::DirMeta, name)?;
                waiting.push(directory.tree);
            }
        }
        Ok(())
    }

    /// Returns true if the pull of a commit is not complete.
    fn is_partial(&self, name: &str) -> Result<bool, RootError> {
        let partial = format!("/{REPOSITORY}/state/{name}.commitpartial");
        let Ok(partial) = RootPath::parse(&partial) else {
            return Ok(false);
        };
        let text = self.root.read_small(&partial)?;
        // `ostree fsck` also marks a commit with damaged or missing objects this way, with this text.
        Ok(text.is_some_and(|text| text != b"f"))
    }

    /// Returns the bytes of an object if it is intact and has not been read before.
    fn read_metadata(
        &mut self,
        checksum: Checksum,
        kind: ObjectKind,
        commit: &str,
    ) -> Result<Option<Vec<u8>>, RootError> {
        if self.seen.contains_key(&(checksum, kind)) {
            return Ok(None);
        }
        self.seen.insert((checksum, kind), commit.to_owned());
        let (path, name) = object_path(&checksum, kind);
        let Ok(path) = RootPath::parse(&path) else {
            return Ok(None);
        };
        let bytes = self.root.read_within(&path, MAX_METADATA)?;
        let fault = match &bytes {
            None => Some(ObjectFault::Missing),
            Some(bytes) if bytes.is_empty() => Some(ObjectFault::Empty),
            Some(bytes) => Some(sha256_hex(bytes))
                .filter(|is| *is != name)
                .map(ObjectFault::Other),
        };
        let Some(fault) = fault else {
            return Ok(bytes);
        };
        self.report.damaged.push(DamagedObject {
            path: path.to_string(),
            checksum: name,
            fault,
            commit: commit.to_owned(),
        });
        Ok(None)
    }
}

fn short_commit(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

/// Returns the path of an object and its checksum in hex.
fn object_path(checksum: &Checksum, kind: ObjectKind) -> (String, String) {
    let name = to_hex(checksum);
    let (first, rest) = name.split_at(2);
    let ending = kind.extension();
    (
        format!("/{REPOSITORY}/objects/{first}/{rest}.{ending}"),
        name,
    )
}

fn judge_files(root: &Root, files: &[(Checksum, String)]) -> Result<Vec<DamagedObject>, RootError> {
    let mut damaged = Vec::new();
    for (checksum, commit) in files {
        let (path, name) = object_path(checksum, ObjectKind::File);
        let Ok(at) = RootPath::parse(&path) else {
            continue;
        };
        let failed = |errno: Errno| RootError::at(path.clone(), errno);
        let fault = match root.open_place(&at)? {
            None => Some(ObjectFault::Missing),
            Some(place) => judge_file(&place, &name).map_err(failed)?,
        };
        damaged.extend(fault.map(|fault| DamagedObject {
            path: path.clone(),
            checksum: name.clone(),
            fault,
            commit: commit.clone(),
        }));
    }
    Ok(damaged)
}

/// Hashes a file or link together with its header, in the format of a `bare` repository.
fn judge_file(place: &Place, name: &str) -> Result<Option<ObjectFault>, Errno> {
    let Some(stat) = place.stat()? else {
        return Ok(Some(ObjectFault::Missing));
    };
    let attributes = all_attributes(place)?;
    let header = |stat: &FileStat, target: &[u8]| {
        let file = FileAttributes {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode,
            target,
            extended: &attributes,
        };
        file.hashed_header()
    };
    let is = match stat.st_mode & libc::S_IFMT {
        libc::S_IFLNK => {
            let target = place.read_target()?;
            sha256_hex(&header(&stat, target.as_bytes()))
        }
        _ => {
            let file = place.open_file()?;
            let errno =
                |error: std::io::Error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            digest_reader(header(&stat, b"").as_slice().chain(file))
                .map_err(errno)?
                .1
        }
    };
    Ok(match stat.st_size {
        _ if is == name => None,
        0 => Some(ObjectFault::Empty),
        _ => Some(ObjectFault::Other(is)),
    })
}
