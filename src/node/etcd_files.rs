//! The files of etcd on a control-plane node: the data of its member, backups, and the settings of its pod.
//!
//! File names, the first records of the log, snapshots, meta pages and the values that etcd looks up in its database are always
//! read. The whole log and all pages of the database are read if they are small, if a problem was found already, or on request.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};

use super::etcd;
use crate::base::order::StableOrder;
use crate::formats::etcd_data::bolt::{BoltContents, BoltError, BoltFault, Database};
use crate::formats::etcd_data::snap::{self, SnapError};
use crate::formats::etcd_data::start::{self, DatabaseState, MemberFiles, SnapFile, Start};
use crate::formats::etcd_data::wal::{self, WalFault, WalLog, WalName, WalReader};
use crate::host::root::{self, Root, RootPath};
use crate::host::sys::locks;

/// Directory of the member.
pub const MEMBER: &str = "var/lib/etcd/member";
/// The settings of etcd, as the scripts of its operator read them.
pub const SETTINGS: &str =
    "etc/kubernetes/static-pod-resources/etcd-certs/configmaps/etcd-scripts/etcd.env";
/// Possible paths of the script that restores a backup.
const SCRIPTS: [&str; 2] = [
    "usr/local/bin/cluster-restore.sh",
    "etc/kubernetes/static-pod-resources/etcd-certs/configmaps/etcd-scripts/cluster-restore.sh",
];
/// Directories with backups.
const BACKUPS: [&str; 3] = [
    "home/core/assets/backup",
    "home/core/backup",
    "var/lib/etcd-auto-backup",
];

/// Size in bytes below which everything is read.
const SMALL: u64 = 16 << 20;
/// Largest snapshot file that is read: snapshots contain little except the members.
const LARGEST_SNAPSHOT: u64 = 256 << 20;
/// The data that a restore moved aside.
const MOVED: &str = "var/lib/etcd-backup/member";
/// Maximum number of backups that are read.
const MOST_BACKUPS: usize = 64;

/// The files of etcd.
#[derive(Debug, Clone, Default)]
pub struct EtcdFiles {
    /// The node has an etcd pod.
    pub expected: bool,
    /// The data of the member, if there is any.
    pub member: Option<EtcdMemberFiles>,
    /// Backups, the oldest first.
    pub backups: Vec<Backup>,
    /// The settings of etcd.
    pub settings: EtcdSettings,
    /// The script that restores a backup.
    pub restore_script: Option<&'static str>,
    /// The time when a restore moved older data aside, in seconds since 1970.
    pub moved_aside: Option<u64>,
    /// Parts that could not be read, with the reason.
    pub unread: Vec<String>,
    /// Parts that were skipped because reading them is slow.
    pub skipped: Vec<&'static str>,
}

/// The settings of etcd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdSettings {
    /// Number of members according to the settings; 0 if unknown.
    pub members: usize,
    /// Largest size of the database.
    pub quota: Option<u64>,
}

/// The data of a member.
#[derive(Debug, Clone, Default)]
pub struct EtcdMemberFiles {
    /// A process has its database open.
    pub running: bool,
    /// What etcd will do when it starts, if that was computed.
    pub start: Option<Start>,
    /// The log, as far as it was read.
    pub log: WalLog,
    /// Files of the log whose first records are invalid.
    pub heads: Vec<(String, WalFault)>,
    /// Snapshots that are wrong.
    pub snapshots: Vec<(String, SnapError)>,
    /// The database.
    pub database: DatabaseFile,
}

/// The database of a member, or a backup.
#[derive(Debug, Clone, Default)]
pub enum DatabaseFile {
    /// It does not exist, or was not read.
    #[default]
    Missing,
    /// It has no bytes.
    Empty,
    /// It is damaged.
    Damaged(BoltFault),
    /// It has no errors in the part that was read.
    Sound(SoundDatabase),
}

/// A database without errors in the part that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SoundDatabase {
    /// Bytes of the file.
    pub length: u64,
    /// Minimum size in bytes that its meta page requires.
    pub needs: u64,
    /// The invalid meta page, if one is.
    pub bad_meta: Option<u8>,
    /// The values that etcd looks up.
    pub contents: BoltContents,
}

/// A backup of the database.
#[derive(Debug, Clone)]
pub struct Backup {
    /// Its path.
    pub path: String,
    /// Time of its last change, in seconds since 1970.
    pub written: u64,
    /// Its state.
    pub state: BackupState,
}

/// The state of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupState {
    /// Its SHA-256 matches.
    Sound,
    /// It has no SHA-256, like a database that was just copied; its meta pages are valid.
    WithoutHash,
    /// Its SHA-256 was not computed, because that is slow.
    NotHashed,
    /// Its SHA-256 does not match.
    WrongHash,
    /// It is truncated, or not a database.
    Damaged(String),
}

impl Backup {
    /// Returns true if no error is known.
    pub fn is_usable(&self) -> bool {
        !matches!(self.state, BackupState::WrongHash | BackupState::Damaged(_))
    }
}

/// Reads the files of etcd, completely if `deep` is set.
///
/// # Errors
/// The directory of the member cannot be read.
pub fn read_etcd_files(root: &Root, deep: bool) -> Result<EtcdFiles> {
    let mut files = EtcdFiles {
        expected: etcd::is_here(root)?,
        ..EtcdFiles::default()
    };
    match root.read_small(&RootPath::fixed(SETTINGS)) {
        Ok(text) => {
            let text = text.unwrap_or_default();
            files.settings = parse_settings(&String::from_utf8_lossy(&text));
        }
        Err(error) => files.unread.push(error.to_string()),
    }
    files.moved_aside = find_moved_data(root)?;
    for path in SCRIPTS {
        if files.restore_script.is_none() && root.exists(&RootPath::fixed(path))? {
            files.restore_script = Some(path);
        }
    }
    files.member = read_members(root, deep, &mut files)?;
    if files.expected || files.member.is_some() {
        find_backups(root, deep, &mut files);
    }
    Ok(files)
}

/// Returns the time when a restore moved the data of the member; `None` if there is no such data.
fn find_moved_data(root: &Root) -> Result<Option<u64>> {
    let Some(place) = root.open_place(&RootPath::fixed(MOVED))? else {
        return Ok(None);
    };
    // A rename changes the inode's ctime, but not the mtime.
    Ok(place.stat()?.map(|stat| stat.st_ctime.unsigned_abs()))
}

/// Reads the member. If etcd's locks are invisible, as from a container, files that change during the read show that it is
/// running: the result is then discarded, and the files are read again as those of a running etcd.
fn read_members(root: &Root, deep: bool, files: &mut EtcdFiles) -> Result<Option<EtcdMemberFiles>> {
    let before = read_stamps(root)?;
    let (mut unread, mut skipped) = (Vec::new(), Vec::new());
    let mut member = read_member(root, deep, false, &mut unread, &mut skipped)?;
    if member.as_ref().is_some_and(|member| !member.running) && read_stamps(root)? != before {
        unread.clear();
        skipped.clear();
        member = read_member(root, deep, true, &mut unread, &mut skipped)?;
    }
    files.unread.extend(unread);
    files.skipped.extend(skipped);
    Ok(member)
}

/// Returns the times and sizes of the files that a running etcd changes.
fn read_stamps(root: &Root) -> Result<Vec<(String, i64, i64, u64)>> {
    let directory = RootPath::fixed(MEMBER);
    let mut paths = vec![directory.join("snap/db")?];
    for name in root.list(&directory.join("wal")?)? {
        paths.push(directory.join("wal")?.join(&name)?);
    }
    let mut all = Vec::new();
    for path in paths {
        let stat = root.open_followed(&path)?.map(|file| file.metadata());
        if let Some(stat) = stat.transpose()? {
            all.push((
                path.to_string(),
                stat.mtime(),
                stat.mtime_nsec(),
                stat.size(),
            ));
        }
    }
    Ok(all)
}

fn read_member(
    root: &Root,
    deep: bool,
    running: bool,
    unread: &mut Vec<String>,
    skipped: &mut Vec<&'static str>,
) -> Result<Option<EtcdMemberFiles>> {
    let directory = RootPath::fixed(MEMBER);
    if root.open_directory(&directory)?.is_none() {
        return Ok(None);
    }
    let (wal, snap) = (directory.join("wal")?, directory.join("snap")?);
    let names = root.list(&wal)?;
    let names = WalName::parse_names(names.iter().map(String::as_str));
    let in_snap = root.list(&snap)?;
    let path = snap.join("db")?;
    let locked = root.open_followed(&path)?;
    let locked = match locked {
        Some(file) => locks::is_locked(file.metadata()?.ino())?,
        None => false,
    };
    let mut member = EtcdMemberFiles {
        running: running || locked,
        ..EtcdMemberFiles::default()
    };
    let mut note =
        |what: &str, error: &dyn std::fmt::Display| unread.push(format!("/{what}: {error}"));

    let snapshots = read_snapshots(root, &snap, &in_snap, member.running)?;
    let bad = |file: &SnapFile| Some((file.name.clone(), file.read.clone().err()?));
    member.snapshots = snapshots.iter().filter_map(bad).collect();
    member.heads = read_heads(root, &wal, &names)?;
    let light = read_database(root, &path, Depth::Light, member.running);
    member.database = light.unwrap_or_else(|error| {
        note(path.relative(), &error);
        DatabaseFile::Missing
    });

    let suspicious = !member.heads.is_empty() || is_suspicious(&member.database, &snapshots);
    if !(deep || suspicious || is_small(root, &wal, &names, &member.database)?) {
        skipped.push("the sums of etcd's log and the pages of its database");
        return Ok(Some(member));
    }
    // The last file of the log may be changing while it is read.
    let read = if member.running {
        names.split_last().map_or(&[][..], |(_, all)| all)
    } else {
        &names
    };
    match read_log(root, &wal, read, member.running) {
        Ok(log) => member.log = log,
        Err(error) => {
            note(wal.relative(), &format!("{error:#}"));
            return Ok(Some(member));
        }
    }
    if member.running {
        return Ok(Some(member));
    }
    match read_database(root, &path, Depth::Walk, false) {
        Ok(database) => member.database = database,
        Err(error) => {
            note(path.relative(), &error);
            return Ok(Some(member));
        }
    }
    let files = MemberFiles {
        log: member.log.clone(),
        snapshots,
        sent: read_sent(root, &snap, &in_snap)?,
        database: match &member.database {
            DatabaseFile::Missing | DatabaseFile::Empty => DatabaseState::Missing,
            DatabaseFile::Damaged(fault) => DatabaseState::Damaged(fault.clone()),
            DatabaseFile::Sound(sound) => DatabaseState::Sound(sound.contents.consistent_index),
        },
    };
    member.start = Some(start::predict_start(&files));
    Ok(Some(member))
}

/// Returns true for a state that is only seen in a member that does not start.
fn is_suspicious(database: &DatabaseFile, snapshots: &[SnapFile]) -> bool {
    let newest = snapshots
        .iter()
        .rev()
        .find_map(|snap| snap.read.as_ref().ok());
    match database {
        DatabaseFile::Missing | DatabaseFile::Empty | DatabaseFile::Damaged(_) => true,
        DatabaseFile::Sound(sound) => {
            sound.length < sound.needs
                || newest.is_some_and(|newest| newest.index > sound.contents.consistent_index)
        }
    }
}

/// Returns true if everything is small enough to read. Only the last file of the log has unused space.
fn is_small(
    root: &Root,
    wal: &RootPath,
    names: &[WalName],
    database: &DatabaseFile,
) -> Result<bool> {
    let mut bytes = match database {
        DatabaseFile::Sound(sound) => sound.length,
        _ => 0,
    };
    for name in names.iter().rev().skip(1) {
        bytes += root
            .open_followed(&wal.join(&name.name)?)?
            .map_or(Ok(0), |file| file_length(&file))?;
    }
    Ok(bytes < SMALL)
}

fn file_length(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.len())
}

fn read_snapshots(
    root: &Root,
    snap: &RootPath,
    names: &[String],
    running: bool,
) -> Result<Vec<SnapFile>> {
    let mut all = Vec::new();
    for name in names.iter().filter(|name| name.ends_with(".snap")) {
        let path = snap.join(name)?;
        let read = || root.read_within(&path, LARGEST_SNAPSHOT);
        let mut parsed = None;
        // A running etcd may be writing or removing the file.
        for _ in 0..if running { TRIES } else { 1 } {
            parsed = read()?.map(|bytes| snap::read_snapshot(&bytes));
            if !matches!(parsed, Some(Err(_))) {
                break;
            }
        }
        all.extend(parsed.map(|read| SnapFile {
            name: name.clone(),
            read,
        }));
    }
    Ok(all)
}

/// Number of times that a file of a running etcd is read before it is reported as damaged.
const TRIES: u8 = 3;

fn read_heads(root: &Root, wal: &RootPath, names: &[WalName]) -> Result<Vec<(String, WalFault)>> {
    let mut all = Vec::new();
    // The last file may be new.
    for name in names.iter().rev().skip(1).rev() {
        let Some(file) = root.open_followed(&wal.join(&name.name)?)? else {
            continue;
        };
        let mut head = Vec::new();
        file.take(wal::HEAD).read_to_end(&mut head)?;
        all.extend(wal::check_head(&head).map(|fault| (name.name.clone(), fault)));
    }
    Ok(all)
}

fn read_log(root: &Root, wal: &RootPath, names: &[WalName], running: bool) -> Result<WalLog> {
    let mut reader = WalReader::default();
    for (place, name) in names.iter().enumerate() {
        let path = wal.join(&name.name)?;
        let Some(file) = root.open_followed(&path)? else {
            continue;
        };
        let last = place + 1 == names.len() && !running;
        let length = file_length(&file)?;
        let bytes = BufReader::with_capacity(1 << 18, file);
        let next = reader.read(name, length, last, bytes);
        if !next.with_context(|| name.name.clone())? {
            break;
        }
    }
    Ok(reader.finish())
}

fn read_sent(
    root: &Root,
    snap: &RootPath,
    names: &[String],
) -> Result<Vec<(u64, Option<BoltFault>)>> {
    let mut all = Vec::new();
    for name in names {
        let index = name.strip_suffix(".snap.db");
        let index = index.filter(|index| index.len() == 16);
        let Some(index) = index.and_then(|index| u64::from_str_radix(index, 16).ok()) else {
            continue;
        };
        let fault = match read_database(root, &snap.join(name)?, Depth::Walk, false)? {
            DatabaseFile::Damaged(fault) => Some(fault),
            _ => None,
        };
        all.push((index, fault));
    }
    Ok(all)
}

/// How far a database is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Light,
    Walk,
}

fn read_database(
    root: &Root,
    path: &RootPath,
    depth: Depth,
    running: bool,
) -> Result<DatabaseFile> {
    let Some(file) = root.open_followed(path)? else {
        return Ok(DatabaseFile::Missing);
    };
    let length = file_length(&file)?;
    if length == 0 {
        return Ok(DatabaseFile::Empty);
    }
    let mut tries = if running { TRIES } else { 1 };
    loop {
        tries -= 1;
        match read_sound(&file, length, depth) {
            Err(BoltError::Damaged(_)) if tries > 0 => {}
            Ok(sound) => return Ok(DatabaseFile::Sound(sound)),
            // Pages change while they are read; the next start of etcd may still find them intact.
            Err(BoltError::Damaged(BoltFault::Page { .. } | BoltFault::Value { .. }))
                if running =>
            {
                return Ok(DatabaseFile::Missing);
            }
            Err(BoltError::Damaged(fault)) => return Ok(DatabaseFile::Damaged(fault)),
            Err(BoltError::Read(error)) => return Err(error.into()),
        }
    }
}

fn read_sound(file: &File, length: u64, depth: Depth) -> Result<SoundDatabase, BoltError> {
    let database = Database::open(file.try_clone()?, length)?;
    if depth == Depth::Walk {
        database.walk_pages()?;
    }
    let meta = database.meta();
    Ok(SoundDatabase {
        length,
        needs: meta.pages.saturating_mul(meta.page_size),
        bad_meta: database.bad_meta,
        contents: database.read_contents()?,
    })
}

/// Size of the hash at the end of a backup, in bytes.
const HASH: u64 = 32;

fn find_backups(root: &Root, deep: bool, files: &mut EtcdFiles) {
    let mut room = if deep { u64::MAX } else { SMALL };
    for directory in BACKUPS.map(RootPath::fixed) {
        for path in backups_below(root, &directory, &mut files.unread) {
            if files.backups.len() == MOST_BACKUPS {
                return;
            }
            match read_backup(root, &path, &mut room) {
                Ok(found) => files.backups.extend(found),
                Err(error) => files.unread.push(format!("{path}: {error:#}")),
            }
        }
    }
    let left = files.backups.iter();
    if left.clone().any(|one| one.state == BackupState::NotHashed) {
        files.skipped.push("hashes of etcd's backups");
    }
    files.backups.order_by_key(|one| one.written);
}

/// Returns the backups in a directory and in its subdirectories: each automatic backup has its own. Directories that cannot be
/// read are added to `unread`.
fn backups_below(root: &Root, directory: &RootPath, unread: &mut Vec<String>) -> Vec<RootPath> {
    let mut list = |path: &RootPath| {
        root.list(path).unwrap_or_else(|error| {
            unread.push(error.to_string());
            Vec::new()
        })
    };
    let mut all = Vec::new();
    for name in list(directory) {
        let Ok(path) = directory.join(&name) else {
            continue;
        };
        if is_backup(&name) {
            all.push(path);
        } else {
            let below = list(&path).into_iter().filter(|name| is_backup(name));
            all.extend(below.filter_map(|name| path.join(&name).ok()));
        }
    }
    all
}

fn is_backup(name: &str) -> bool {
    name.starts_with("snapshot_") && name.ends_with(".db")
}

fn read_backup(root: &Root, path: &RootPath, room: &mut u64) -> Result<Option<Backup>> {
    let Some(file) = root.open_followed(path)? else {
        return Ok(None);
    };
    let metadata = file.metadata()?;
    let written = metadata.modified().ok();
    let written = written.and_then(|time| Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs()));
    Ok(Some(Backup {
        path: path.to_string(),
        written: written.unwrap_or_default(),
        state: read_state(&file, metadata.len(), room)?,
    }))
}

fn read_state(file: &File, length: u64, room: &mut u64) -> Result<BackupState> {
    let hashed = length % 512 == HASH;
    let bytes = length - if hashed { HASH } else { 0 };
    if bytes == 0 {
        return Ok(BackupState::Damaged("it is empty".to_owned()));
    }
    match Database::open(file.try_clone()?, bytes) {
        Err(BoltError::Damaged(fault)) => return Ok(BackupState::Damaged(fault.to_string())),
        Err(BoltError::Read(error)) => return Err(error.into()),
        Ok(database) if database.is_short() => {
            return Ok(BackupState::Damaged("it is cut off".to_owned()));
        }
        Ok(_) => {}
    }
    if !hashed {
        return Ok(BackupState::WithoutHash);
    }
    if bytes > *room {
        return Ok(BackupState::NotHashed);
    }
    *room -= bytes;
    let mut reader = BufReader::with_capacity(1 << 18, file.try_clone()?);
    let (_, sum) = root::digest_reader(reader.by_ref().take(bytes))?;
    let mut stated = Vec::new();
    reader.read_to_end(&mut stated)?;
    Ok(if root::to_hex(&stated) == sum {
        BackupState::Sound
    } else {
        BackupState::WrongHash
    })
}

/// Parses the settings: a shell script with lines `export NAME="value"`. It is not executed.
fn parse_settings(text: &str) -> EtcdSettings {
    let mut settings = EtcdSettings::default();
    for line in text.lines() {
        let Some((name, value)) = line.trim().trim_start_matches("export ").split_once('=') else {
            continue;
        };
        let value = value.trim_matches('"');
        if name.starts_with("NODE_") && name.ends_with("_ETCD_NAME") {
            settings.members += 1;
        }
        if name == "ETCD_QUOTA_BACKEND_BYTES" {
            settings.quota = value.parse().ok().filter(|quota| *quota > 0);
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_not_run() {
        let text = "export ETCD_QUOTA_BACKEND_BYTES=\"8589934592\"\nexport NODE_a_ETCD_NAME=\"a\"\nexport NODE_a_IP=\"1\"\n$(reboot)\n";
        let expected = EtcdSettings {
            members: 1,
            quota: Some(8 << 30),
        };
        assert_eq!(parse_settings(text), expected);
        assert_eq!(parse_settings(""), EtcdSettings::default());
    }
}
