//! The snapshot at the end of a boot or a run: reads the facts, and writes those that are new (docs/explanation/recorder.md).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow};
use serde::Serialize;

use super::node_change::NodeChange;
use crate::base::paths;
use crate::base::time::current_time;
use crate::change::transaction::{self, Lock, RecorderFile, RecorderWrite};
use crate::diagnose::recorder::bounds::bound_facts;
use crate::diagnose::recorder::digest::{DigestKey, KEY_BYTES};
use crate::diagnose::recorder::look::{MAX_LISTED, boot_id, is_set_up, take_facts};
use crate::diagnose::recorder::shelf::Shelf;
use crate::diagnose::recorder::{
    Area, Event, KEPT, KEPT_ON_BOOT, MAX_SNAPSHOT, Outcome, Part, Snapshot, SnapshotRecord, format,
    retention,
};
use crate::host::root::{Root, RootPath, to_hex};
use crate::node::mounts;
use crate::node::space::Space;

/// Free space to keep on `/boot` for the next kernel.
const BOOT_RESERVE: u64 = 16 << 20;
/// If this many files had to be read, the known digests are written even without a snapshot.
const MANY_READ: usize = 64;

/// The reason for a snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotRequest {
    /// What happened.
    pub event: Event,
    /// The id of the run.
    pub run: Option<String>,
    /// The config of the run.
    pub config: Option<String>,
}

/// The result of taking a snapshot.
#[derive(Debug, Clone, Serialize)]
pub struct SnapshotTaken {
    /// Path of the root.
    pub root: String,
    /// Number of the newest snapshot.
    pub snapshot: Option<u64>,
    /// True if a snapshot was recorded.
    pub is_new: bool,
    /// The reason for the snapshot.
    pub event: Event,
    /// The result; `None` if nothing was recorded.
    pub outcome: Option<Outcome>,
    /// Size of the whole snapshot in bytes.
    pub size: usize,
    /// Bytes that were written.
    pub written: usize,
    /// True if the copies below `/boot` are up to date.
    pub on_boot: bool,
    /// Number of files that were read to compute digests.
    pub files_read: usize,
    /// Duration in milliseconds.
    pub milliseconds: u64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Records the end of a run that changed the node, if the recorder is set up. A failure is only a warning: the run is complete.
pub fn record_run(change: &NodeChange<'_>, event: Event, config: &str) {
    let root = &change.root;
    match is_set_up(root) {
        Ok(true) => {}
        Ok(false) => return,
        Err(error) => {
            log::warn!("the run is done, but no snapshot of it was recorded: {error}");
            return;
        }
    }
    let run = transaction::last_run(root).unwrap_or_else(|error| {
        log::warn!("the snapshot does not name its run: {error}");
        None
    });
    let request = SnapshotRequest {
        event,
        run: run.map(|run| run.id).filter(|id| !id.is_empty()),
        config: Some(config.to_owned()),
    };
    if let Err(error) = take_snapshot(change, &request) {
        log::warn!("the run is done, but no snapshot of it was recorded: {error:#}");
    }
}

fn new_key() -> Result<(DigestKey, RecorderFile)> {
    let mut bytes = [0; KEY_BYTES];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| anyhow!("the kernel gives no random numbers for the key of the recorder"))?;
    let file = (
        format::KEY.to_owned(),
        format!("{}\n", to_hex(&bytes)).into_bytes(),
    );
    Ok((DigestKey::new(&bytes), file))
}

/// Returns the key of the digests, and its file if there was none that can be used.
fn find_key(
    shelf: Option<&Shelf>,
    notes: &mut Vec<String>,
) -> Result<(DigestKey, Option<RecorderFile>)> {
    let key = shelf.map(Shelf::read_key).transpose();
    let key = key.map_err(|why| anyhow!("reading the key of the digests: {why}"))?;
    if let Some(key) = key.flatten() {
        return Ok((key, None));
    }
    if shelf.is_some_and(Shelf::has_key_file) {
        notes.push("the key of the digests was damaged; there is a new one".to_owned());
    }
    let (key, file) = new_key()?;
    Ok((key, Some(file)))
}

/// Takes a snapshot, and writes its new parts.
pub fn take_snapshot(change: &NodeChange<'_>, request: &SnapshotRequest) -> Result<SnapshotTaken> {
    let (root, runner, lock) = (&change.root, change.runner(), change.lock());
    let shelf = Shelf::open_at(root, &RootPath::fixed(paths::RECORDER));
    let shelf = shelf.context("reading the recorder's snapshots")?;
    let mut write = RecorderWrite::default();
    let mut notes = Vec::new();
    let (key, new_key) = find_key(shelf.as_ref(), &mut notes)?;
    write.first.extend(new_key);
    let known = shelf.as_ref().map(|shelf| shelf.read_known(&key));
    let known = known.unwrap_or_default();
    let last = shelf.as_ref().and_then(|shelf| shelf.records.last());
    let (before, damaged) = match (&shelf, last) {
        (Some(shelf), Some(last)) => shelf.read_snapshot(last),
        _ => (Snapshot::default(), Vec::new()),
    };
    let mut seen = take_facts(root, runner, &key, &known, Some(&before));
    let (parts, packed, bytes) =
        pack_snapshot(&mut seen.snapshot, shelf.as_ref(), !damaged.is_empty())?;
    let is_new = last.is_none_or(|last| last.parts != parts);
    let boot = boot_id(root);
    let same_boot = last.is_some_and(|last| last.event == Event::Boot && last.boot == boot);
    let is_due = match request.event {
        Event::Boot => is_new || !same_boot,
        Event::ByHand => is_new,
        Event::Apply | Event::Rollback => true,
    };
    write.first.extend(packed);
    let records = shelf.as_ref().map_or(&[][..], |shelf| &shelf.records);
    let number = shelf.as_ref().map_or(1, |shelf| next_number(shelf.files()));
    let mut kept: Vec<SnapshotRecord> = records.to_vec();
    notes.extend(seen.refused.iter().cloned());
    let boot_is_closed = boot_obstacle(root);
    if is_due {
        notes.extend(boot_is_closed.clone());
        let fact = |area, subject| seen.snapshot.get_fact(area, subject).map(str::to_owned);
        let record = SnapshotRecord {
            version: SnapshotRecord::VERSION,
            number,
            at: current_time(),
            event: request.event,
            outcome: recorded_outcome(root, request.event, &seen.snapshot),
            boot,
            run: request.run.clone(),
            config: request.config.clone().or(fact(Area::Config, "recorded")),
            deployment: fact(Area::Deployment, "in use"),
            kernel: fact(Area::Versions, "kernel"),
            key: key.id(),
            parts,
            notes: notes.clone(),
        };
        let file = format::record_file(number);
        write.records.push((file, format::record_bytes(&record)?));
        kept.push(record);
    }
    let surplus = retention::find_surplus(&kept, KEPT);
    kept.retain(|record| !surplus.contains(&record.number));
    write.gone = shelf
        .as_ref()
        .map_or(Vec::new(), |shelf| find_unneeded(shelf, &kept));
    let is_worth = is_due && seen.files_read > 0 || seen.files_read >= MANY_READ;
    if is_worth && seen.fresh != known {
        let bytes = seen.fresh.to_bytes(&key.id());
        write.last.push((format::KNOWN.to_owned(), bytes));
    }
    let written = write.first.iter().chain(&write.records);
    let written = written.map(|(_, bytes)| bytes.len()).sum();
    transaction::write_snapshots(root, lock, &write)
        .context("writing the snapshot; earlier snapshots are unchanged")?;
    let copied = match boot_is_closed {
        Some(_) => false,
        None => match copy_to_boot(root, lock, &kept) {
            Ok(()) => true,
            Err(error) => {
                notes.push(format!("no copy below /boot: {error:#}"));
                false
            }
        },
    };
    let record = kept.last().filter(|_| is_due);
    Ok(SnapshotTaken {
        root: root.shown().display().to_string(),
        snapshot: kept.last().map(|record| record.number),
        is_new: is_due,
        event: request.event,
        outcome: record.map(|record| record.outcome),
        size: bytes,
        written,
        on_boot: copied,
        files_read: seen.files_read,
        milliseconds: 0,
        notes,
    })
}

/// Returns the next number, which is higher than that of any record, even of damaged ones.
fn next_number(files: &[String]) -> u64 {
    let numbers = files.iter().filter_map(|file| format::record_of_file(file));
    numbers.max().unwrap_or_default().saturating_add(1)
}

/// The parts of a snapshot: all names, the parts to write, and the total size.
type Parts = (BTreeMap<Part, String>, Vec<RecorderFile>, usize);

/// Packs a snapshot within the size limit: if necessary, more and more directories of `/etc` are summarised as one fact.
fn pack_snapshot(snapshot: &mut Snapshot, shelf: Option<&Shelf>, anew: bool) -> Result<Parts> {
    let mut limit = MAX_LISTED;
    loop {
        let texts = format::part_texts(snapshot)?;
        let (mut names, mut files, mut size) = (BTreeMap::new(), Vec::new(), 0);
        for (part, (name, text)) in texts {
            let there = shelf
                .filter(|_| !anew)
                .and_then(|shelf| shelf.part_size(&name));
            match there {
                Some(bytes) => size += bytes,
                None => {
                    let bytes = format::pack_text(&text)?;
                    size += bytes.len();
                    files.push((format::part_file(&name), bytes));
                }
            }
            names.insert(part, name);
        }
        if size <= MAX_SNAPSHOT || limit < 100 {
            return Ok((names, files, size));
        }
        limit = limit * 3 / 4;
        match snapshot.facts.get_mut(&Area::Etc) {
            Some(etc) if etc.len() > limit => *etc = bound_facts(std::mem::take(etc), limit),
            _ if limit < 200 => snapshot.copies.clear(),
            _ => {}
        }
    }
}

/// Returns the files that no snapshot needs any more.
fn find_unneeded(shelf: &Shelf, kept: &[SnapshotRecord]) -> Vec<String> {
    let numbers: BTreeSet<u64> = kept.iter().map(|record| record.number).collect();
    let known: BTreeSet<u64> = shelf.records.iter().map(|record| record.number).collect();
    let parts: BTreeSet<&String> = kept
        .iter()
        .flat_map(|record| record.parts.values())
        .collect();
    let is_unneeded = |file: &&String| {
        let part = format::part_of_file(file);
        let record = format::record_of_file(file);
        // An unreadable record is kept for a person to look at, until its number is old.
        let is_old =
            |number| known.contains(&number) || number + (KEPT as u64) < next_number(shelf.files());
        part.is_some_and(|part| !parts.iter().any(|kept| *kept == part))
            || record.is_some_and(|number| !numbers.contains(&number) && is_old(number))
            || format::is_leftover(file)
    };
    shelf.files().iter().filter(is_unneeded).cloned().collect()
}

/// Returns the outcome to record.
fn recorded_outcome(root: &Root, event: Event, snapshot: &Snapshot) -> Outcome {
    match event {
        Event::ByHand => Outcome::Taken,
        Event::Apply | Event::Rollback => Outcome::Done,
        Event::Boot => {
            // A boot is only called good if that is known.
            let is_wanted = KUBELET_LINKS
                .iter()
                .any(|link| root.exists(&RootPath::fixed(link)).unwrap_or(true));
            let runs = snapshot.get_fact(Area::Units, "kubelet.service") == Some("running");
            if root.is_live() && is_wanted && !runs {
                Outcome::NoKubelet
            } else {
                Outcome::Good
            }
        }
    }
}

/// Links that start the kubelet at boot.
const KUBELET_LINKS: [&str; 2] = [
    "etc/systemd/system/multi-user.target.wants/kubelet.service",
    "usr/lib/systemd/system/multi-user.target.wants/kubelet.service",
];

/// Returns the reason why no copy can be written below `/boot`.
fn boot_obstacle(root: &Root) -> Option<String> {
    let words = |why: &str| Some(format!("no copy below /boot: {why}"));
    let path = RootPath::fixed(paths::BOOT);
    let names = match root.list(&path) {
        Ok(names) => names,
        Err(error) => return words(&format!("it cannot be read: {}", error.cause)),
    };
    let is_boot = |name: &String| {
        let begins = ["loader", "grub", "ostree", "efi", "vmlinuz", "ignition"];
        begins.iter().any(|begin| name.starts_with(begin))
    };
    if names.is_empty() {
        return words("it is empty or missing, or not mounted");
    }
    if !names.iter().any(is_boot) {
        return words(
            "it has neither boot entries nor a kernel, so the file system of /boot may not be mounted",
        );
    }
    match root.open_directory(&path) {
        Ok(Some(directory)) if mounts::is_read_only(&directory) => return words("it is read-only"),
        Ok(Some(_)) => {}
        _ => return words("it cannot be opened"),
    }
    match Space::read_space(root, &path) {
        Ok(Some(space)) if space.free < BOOT_RESERVE => words("it is nearly full"),
        _ => None,
    }
}

/// Updates the copies below `/boot`: the newest snapshots that differ from each other.
fn copy_to_boot(root: &Root, lock: &Lock, kept: &[SnapshotRecord]) -> Result<()> {
    let shelf = Shelf::open_at(root, &RootPath::fixed(paths::RECORDER))?;
    let shelf = shelf.context("the snapshots are gone")?;
    let copies = Shelf::open_at(root, &RootPath::fixed(paths::BOOT_RECORDER))?;
    let mut wanted: Vec<SnapshotRecord> = kept.to_vec();
    wanted.dedup_by(|later, earlier| {
        later.parts == earlier.parts && later.outcome == earlier.outcome
    });
    let wanted = wanted.split_off(wanted.len().saturating_sub(KEPT_ON_BOOT));
    let has = |file: &String| {
        let copies = copies.as_ref();
        copies.is_some_and(|copies| copies.files().contains(file))
    };
    let mut write = RecorderWrite::default();
    for record in &wanted {
        let file = format::record_file(record.number);
        if has(&file) {
            continue;
        }
        for name in record.parts.values() {
            let file = format::part_file(name);
            let is_new = !has(&file) && write.first.iter().all(|(known, _)| *known != file);
            if is_new && let Ok(bytes) = shelf.part_bytes(name) {
                write.first.push((file, bytes));
            }
        }
        write.records.push((file, format::record_bytes(record)?));
    }
    write.gone = copies.map_or(Vec::new(), |copies| find_unneeded(&copies, &wanted));
    Ok(transaction::write_boot_copies(root, lock, &write)?)
}
