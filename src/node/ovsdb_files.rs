//! The databases of Open vSwitch and OVN on a node.

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};

use anyhow::Result;

use crate::formats::ovsdb::{self, OvsdbLog};
use crate::host::root::{Root, RootPath};

/// The database of Open vSwitch.
pub const OPEN_VSWITCH: &str = "etc/openvswitch/conf.db";
/// Databases of OVN: the current paths, where each node has its own, and the older ones.
const OVN: [&str; 4] = [
    "var/lib/ovn-ic/etc/ovnnb_db.db",
    "var/lib/ovn-ic/etc/ovnsb_db.db",
    "var/lib/ovn/etc/ovnnb_db.db",
    "var/lib/ovn/etc/ovnsb_db.db",
];
/// Total size of the files that are read completely, in bytes.
const SMALL: u64 = 16 << 20;
/// Number of times a file is read before a fault at its end is reported: a server may be writing the record.
const TRIES: u8 = 3;

/// The databases of a node.
#[derive(Debug, Clone, Default)]
pub struct OvsdbFiles {
    /// The existing databases, each with its path and log.
    pub all: Vec<(&'static str, OvsdbLog)>,
    /// Files that could not be read, with the reason.
    pub unread: Vec<String>,
    /// Files of which only the first record was read.
    pub skipped: Vec<&'static str>,
}

/// Reads the databases; large ones completely only if `deep` is set.
pub fn read_ovsdb_files(root: &Root, deep: bool) -> OvsdbFiles {
    let mut files = OvsdbFiles::default();
    let mut room = if deep { u64::MAX } else { SMALL };
    for path in [OPEN_VSWITCH].into_iter().chain(OVN) {
        match look_at_database(root, path, &mut room) {
            Ok(None) => {}
            Ok(Some((log, whole))) => {
                files.all.push((path, log));
                files.skipped.extend((!whole).then_some(path));
            }
            Err(error) => files.unread.push(format!("/{path}: {error:#}")),
        }
    }
    files
}

/// Returns the log, and whether it was read completely.
fn look_at_database(
    root: &Root,
    path: &'static str,
    room: &mut u64,
) -> Result<Option<(OvsdbLog, bool)>> {
    let Some(file) = root.open_followed(&RootPath::fixed(path))? else {
        return Ok(None);
    };
    let length = file.metadata()?.len();
    let whole = length <= *room;
    if whole {
        *room -= length;
    }
    let mut log = OvsdbLog::default();
    for _ in 0..TRIES {
        log = read_from_start(&file, whole)?;
        if log.fault.is_none() {
            break;
        }
    }
    Ok(Some((log, whole)))
}

fn read_from_start(file: &File, whole: bool) -> Result<OvsdbLog> {
    let mut file = file.try_clone()?;
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = BufReader::with_capacity(1 << 16, file);
    Ok(ovsdb::read_ovsdb(&mut bytes, !whole)?)
}
