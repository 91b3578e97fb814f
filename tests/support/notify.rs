//! What an inotify watcher sees of some directories.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

/// Everything that changes something; opening and reading does not.
pub fn changes() -> AddWatchFlags {
    AddWatchFlags::IN_MODIFY
        | AddWatchFlags::IN_ATTRIB
        | AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE
        | AddWatchFlags::IN_MOVE_SELF
}

/// Opening, reading and changing. Closing is left out: a program that another thread of the test is just starting
/// may close what we had open a moment ago.
pub fn uses() -> AddWatchFlags {
    changes() | AddWatchFlags::IN_OPEN | AddWatchFlags::IN_ACCESS
}

/// Whatever can be seen at all.
pub fn anything() -> AddWatchFlags {
    AddWatchFlags::IN_ALL_EVENTS
}

/// Directories that are watched from now on.
pub struct Watcher {
    inotify: Inotify,
    names: HashMap<WatchDescriptor, PathBuf>,
}

impl Watcher {
    pub fn new(mask: AddWatchFlags, directories: &[&Path]) -> Self {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
        let mut names = HashMap::new();
        for directory in directories {
            let flags = mask | AddWatchFlags::IN_DONT_FOLLOW;
            let watch = inotify.add_watch(*directory, flags).unwrap();
            names.insert(watch, directory.to_path_buf());
        }
        Self { inotify, names }
    }

    /// Watches a directory and every one below it.
    pub fn of_tree(mask: AddWatchFlags, top: &Path) -> Self {
        let mut all = vec![top.to_owned()];
        let mut next = 0;
        while let Some(directory) = all.get(next).cloned() {
            next += 1;
            for entry in fs::read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    all.push(entry.path());
                }
            }
        }
        let all: Vec<&Path> = all.iter().map(PathBuf::as_path).collect();
        Self::new(mask, &all)
    }

    /// What was seen since the last time: `IN_MOVED_TO /some/path`.
    pub fn seen(&self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            match self.inotify.read_events() {
                Err(Errno::EAGAIN) => return all,
                Err(errno) => panic!("{errno}"),
                Ok(events) => {
                    for event in events {
                        let overflow = AddWatchFlags::IN_Q_OVERFLOW;
                        assert!(!event.mask.contains(overflow), "too many events");
                        let place = self.names.get(&event.wd).cloned().unwrap_or_default();
                        let path = event.name.map_or(place.clone(), |name| place.join(name));
                        let kind = event.mask.difference(AddWatchFlags::IN_ISDIR);
                        let names: Vec<_> = kind.iter_names().map(|(name, _)| name).collect();
                        all.push(format!("{} {}", names.join("|"), path.display()));
                    }
                }
            }
        }
    }
}
