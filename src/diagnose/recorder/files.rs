//! AreaFacts about every file below a directory: type, mode, owner, size, and a digest of the contents.

use std::io::Read;

use nix::sys::stat::FileStat;

use crate::diagnose::recorder::AreaFacts;
use crate::diagnose::recorder::differences::UNREADABLE;
use crate::diagnose::recorder::facts::Observer;
use crate::diagnose::recorder::known::FileStamp;
use crate::host::root::{Place, Root, RootError, RootPath};

/// Larger files are not read; their size and time stand for them.
const MAX_FILE: i64 = 32 << 20;
/// Bytes that are read for one snapshot.
const MAX_READ: u64 = 256 << 20;
/// Entries of one tree.
const MAX_ENTRIES: usize = 20_000;

impl Observer<'_> {
    /// Returns the facts about everything below a directory, on its own file system; `None` if it is missing.
    pub(super) fn tree_facts(&mut self, top: &RootPath) -> Result<Option<AreaFacts>, RootError> {
        let Some(device) = device_of(self.root, top)? else {
            return Ok(None);
        };
        let (mut facts, mut open) = (AreaFacts::new(), vec![top.clone()]);
        while let Some(folder) = open.pop() {
            let names = self.root.list(&folder);
            let directory = self.root.open_directory(&folder);
            let (Ok(names), Ok(Some(directory))) = (names, directory) else {
                facts.insert(folder.to_string(), format!("directory{UNREADABLE}"));
                continue;
            };
            let directory = std::sync::Arc::new(directory);
            for name in names {
                let Ok(path) = folder.join(&name) else {
                    continue;
                };
                if facts.len() >= MAX_ENTRIES {
                    let words =
                        format!("more than {MAX_ENTRIES} entries; the others are not recorded");
                    facts.insert(top.to_string(), words);
                    return Ok(Some(facts));
                }
                let place = Place {
                    dir: std::sync::Arc::clone(&directory),
                    name,
                };
                let stat = place.stat();
                if stat.is_err() {
                    facts.insert(path.to_string(), format!("object{UNREADABLE}"));
                }
                let Ok(Some(stat)) = stat else {
                    // A listed name holds replacement characters in place of bytes that are not text.
                    if place.name.contains(char::REPLACEMENT_CHARACTER) {
                        let words = "a name that is not UTF-8; the contents are not compared";
                        facts.insert(path.to_string(), words.to_owned());
                    }
                    continue;
                };
                let is_directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
                if is_directory && stat.st_dev == device {
                    open.push(path.clone());
                }
                let fact = self.object_fact(&path, &place, &stat);
                facts.insert(path.to_string(), fact);
            }
        }
        Ok(Some(facts))
    }

    /// Returns the fact about one file, link or directory; `None` if it is missing. Links on the way are followed.
    pub(super) fn file_fact(&mut self, path: &RootPath) -> Option<String> {
        let place = match self.root.open_place(path) {
            Ok(place) => place?,
            Err(_) => return Some(format!("object{UNREADABLE}")),
        };
        match place.stat() {
            Ok(stat) => Some(self.object_fact(path, &place, &stat?)),
            Err(_) => Some(format!("object{UNREADABLE}")),
        }
    }

    fn object_fact(&mut self, path: &RootPath, place: &Place, stat: &FileStat) -> String {
        let mode = stat.st_mode & 0o7777;
        let owner = match (stat.st_uid, stat.st_gid) {
            (0, 0) => String::new(),
            (user, group) => format!(" {user}:{group}"),
        };
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => {
                let contents = self.contents_fact(path, place, stat);
                format!("{mode:04o}{owner} {} bytes{contents}", stat.st_size)
            }
            libc::S_IFLNK => match self.root.read_link(path) {
                Ok(Some(target)) => format!("link to {target}{owner}"),
                _ => format!("link{UNREADABLE}"),
            },
            libc::S_IFDIR => format!("directory {mode:04o}{owner}"),
            _ => format!("special file {mode:04o}{owner}"),
        }
    }

    fn contents_fact(&mut self, path: &RootPath, place: &Place, stat: &FileStat) -> String {
        if stat.st_size == 0 {
            return String::new();
        }
        let (path, stamp) = (path.to_string(), FileStamp::from(stat));
        let known = self.known.find_digest(&path, stamp).map(str::to_owned);
        let digest = known.or_else(|| self.read_digest(place, stat));
        match digest {
            Some(digest) => {
                self.fresh.add_digest(&path, stamp, &digest, self.now);
                format!(" #{digest}")
            }
            None if stat.st_size > MAX_FILE => format!(", not read, changed at {}", stat.st_mtime),
            None => UNREADABLE.to_owned(),
        }
    }

    fn read_digest(&mut self, place: &Place, stat: &FileStat) -> Option<String> {
        if stat.st_size > MAX_FILE || self.bytes_read > MAX_READ {
            return None;
        }
        let (mut file, mut hasher) = (place.open_file().ok()?, self.key.hasher());
        let mut left = u64::try_from(MAX_FILE).unwrap_or_default();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = file.read(&mut buffer).ok()?;
            if count == 0 || left == 0 {
                break;
            }
            hasher.update(buffer.get(..count)?);
            self.bytes_read += count as u64;
            left = left.saturating_sub(count as u64);
        }
        self.files_read += 1;
        Some(hasher.finish())
    }
}

fn device_of(root: &Root, path: &RootPath) -> Result<Option<u64>, RootError> {
    let Some(directory) = root.open_directory(path)? else {
        return Ok(None);
    };
    let place = Place {
        dir: directory.into(),
        name: ".".to_owned(),
    };
    Ok(place.stat().ok().flatten().map(|stat| stat.st_dev))
}
