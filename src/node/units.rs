//! The unit files, presets and enablement links of a root, as a [`UnitTree`].

use std::collections::{BTreeMap, BTreeSet};

use super::{Interest, NodeState, Observer};
use crate::object::Kind;
use crate::root::{Root, RootError, RootPath};
use crate::systemd::unit_name::template_of;
use crate::systemd::{
    CONFIG_DIR, LINK_DIRS, LinkChange, PRESET_PATH, Support, UNIT_SEARCH_PATH, UnitEntry, UnitTree,
    closure_needed, unit_text,
};

/// Files that lead on to others (Also=, links, templates) are read in rounds; more rounds than this is a loop.
const MAX_ROUNDS: usize = 64;

/// Reads what decides the enablement of the units in `interest`; links in directories where links change go to `observer` too.
pub fn observe(
    root: &Root,
    interest: &Interest,
    node: &mut NodeState,
    observer: &mut Observer<'_>,
) -> Result<(), RootError> {
    let mut tree = UnitTree::new();
    for dir in UNIT_SEARCH_PATH {
        let Ok(path) = RootPath::parse(dir) else {
            continue;
        };
        let entries = entries(root, &path, LINK_DIRS.contains(&dir), observer)?;
        if let Some(unit_dir) = tree.dirs.iter_mut().find(|d| d.path == dir) {
            unit_dir.entries = entries;
        }
    }
    for (index, dir) in PRESET_PATH.iter().enumerate() {
        if let (Ok(path), Some(presets)) = (RootPath::parse(dir), tree.presets.get_mut(index)) {
            presets.files = preset_files(root, &path)?;
        }
    }
    read_named(root, &mut tree, &interest.units, observer)?;
    let units: Vec<&str> = interest.units.iter().map(String::as_str).collect();
    let support = node.systemd;
    complete(root, &mut tree, &units, &support, observer)?;
    for (mut other, changed) in [overlaid(&tree, interest), uncovered(&tree, interest)]
        .into_iter()
        .flatten()
    {
        // What is found about units on the node is of use whatever is written there.
        let found = complete(root, &mut other, &units, &support, observer)?;
        for (path, entry) in found
            .into_iter()
            .filter(|(path, _)| !changed.contains(path))
        {
            tree.observe(&path, entry);
        }
    }
    node.units = tree;
    Ok(())
}

/// Reads every file of the units themselves, hidden ones too: what masks them now may go.
fn read_named(
    root: &Root,
    tree: &mut UnitTree,
    units: &BTreeSet<String>,
    observer: &mut Observer<'_>,
) -> Result<(), RootError> {
    let templates = units.iter().filter_map(|unit| template_of(unit));
    let names: BTreeSet<String> = units.iter().cloned().chain(templates).collect();
    let mut unread = Vec::new();
    for dir in &tree.dirs {
        for name in &names {
            let base = format!("{}/{name}", dir.path);
            if matches!(dir.entries.get(name), Some(UnitEntry::File(None))) {
                unread.push(base.clone());
            }
            if let Some(UnitEntry::Directory(dropins)) = dir.entries.get(&format!("{name}.d")) {
                let files = dropins
                    .iter()
                    .filter(|(_, entry)| matches!(entry, UnitEntry::File(None)));
                unread.extend(files.map(|(dropin, _)| format!("{base}.d/{dropin}")));
            }
        }
    }
    for path in unread {
        let entry = entry(root, observer, &path)?;
        tree.observe(&path, entry);
    }
    Ok(())
}

/// Looks at whatever has to be known about units, and returns it.
fn complete(
    root: &Root,
    tree: &mut UnitTree,
    units: &[&str],
    support: &Support,
    observer: &mut Observer<'_>,
) -> Result<Vec<(String, UnitEntry)>, RootError> {
    let mut found = Vec::new();
    let mut units = units.to_vec();
    for _ in 0..MAX_ROUNDS {
        let needed = closure_needed(tree, &units, support);
        if needed.paths.is_empty() {
            break;
        }
        for path in needed.paths {
            let entry = entry(root, observer, &path)?;
            tree.observe(&path, entry.clone());
            found.push((path, entry));
        }
        units = needed.units;
    }
    Ok(found)
}

/// A tree as it could become, and the paths at which it differs from what is on the node.
type Possible = (UnitTree, BTreeSet<String>);

/// The tree with the files that are about to be written: they may lead to units that nothing else names. `None` where
/// they are there already.
fn overlaid(tree: &UnitTree, interest: &Interest) -> Option<Possible> {
    let preset = |path: &str| PRESET_PATH.iter().any(|dir| path.starts_with(dir));
    let overlay = interest.overlay.iter().filter(|(path, _)| !preset(path));
    let new = |(path, entry): &&(String, UnitEntry)| tree.get(path) != Some(entry);
    let new: Vec<_> = overlay.filter(new).collect();
    let mut overlaid = (!new.is_empty()).then(|| tree.clone())?;
    for (path, entry) in new {
        overlaid.observe(path, entry.clone());
    }
    let written = interest.overlay.iter().map(|(path, _)| path.clone());
    Some((overlaid, written.collect()))
}

/// The tree without the units' files, links and masks among the configuration: what they hide counts once they go.
/// `None` where they hide nothing.
fn uncovered(tree: &UnitTree, interest: &Interest) -> Option<Possible> {
    let path = |unit: &String| format!("{CONFIG_DIR}/{unit}");
    let elsewhere = |unit: &str| {
        let mut others = tree.dirs.iter().filter(|dir| dir.path != CONFIG_DIR);
        others.any(|dir| dir.entries.contains_key(unit))
    };
    let hides = |unit: &&String| {
        let template = || template_of(unit).is_some_and(|template| elsewhere(&template));
        tree.get(&path(unit)).is_some() && (elsewhere(unit) || template())
    };
    let gone: BTreeSet<String> = interest.units.iter().filter(hides).map(path).collect();
    let mut uncovered = (!gone.is_empty()).then(|| tree.clone())?;
    for path in &gone {
        uncovered.apply(&LinkChange::Remove { path: path.clone() });
    }
    Some((uncovered, gone))
}

/// What the root's systemd can do, by the version in the name of its shared library; EL9's when unknown.
pub fn support(root: &Root) -> Result<Support, RootError> {
    let names = root.list(&RootPath::fixed("usr/lib/systemd"))?;
    let version = names.iter().find_map(|name| {
        let rest = name.strip_prefix("libsystemd-shared-")?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    Ok(Support::of_version(version.unwrap_or(252)))
}

fn entries(
    root: &Root,
    dir: &RootPath,
    config: bool,
    observer: &mut Observer<'_>,
) -> Result<BTreeMap<String, UnitEntry>, RootError> {
    let mut found = BTreeMap::new();
    if config {
        observer.directory(dir, None)?;
    }
    for name in root.list(dir)? {
        let Ok(path) = dir.join(&name) else { continue };
        let Some(kind) = kind_of(observer, &path)? else {
            continue;
        };
        let entry = match kind {
            // An empty unit file is a mask, so that much has to be known of every one.
            EntryKind::File { empty } => UnitEntry::File(empty.then(String::new)),
            EntryKind::Link(target) => {
                if config {
                    observer.object(&path)?;
                }
                UnitEntry::Link(target)
            }
            EntryKind::Directory => UnitEntry::Directory(entries(root, &path, config, observer)?),
            EntryKind::Other => UnitEntry::Other,
        };
        found.insert(name, entry);
    }
    Ok(found)
}

enum EntryKind {
    File { empty: bool },
    Link(String),
    Directory,
    Other,
}

fn kind_of(observer: &mut Observer<'_>, path: &RootPath) -> Result<Option<EntryKind>, RootError> {
    let Some(place) = observer.place(path)? else {
        return Ok(None);
    };
    let kind = place.shallow_kind().map_err(|errno| RootError {
        path: path.to_string(),
        cause: errno.into(),
    })?;
    Ok(kind.map(|kind| match kind {
        Kind::File { size, .. } => EntryKind::File { empty: size == 0 },
        Kind::Symlink { target } => EntryKind::Link(target),
        Kind::Directory => EntryKind::Directory,
        Kind::Special { .. } => EntryKind::Other,
    }))
}

/// One path that the closure asked for, with its contents.
fn entry(root: &Root, observer: &mut Observer<'_>, path: &str) -> Result<UnitEntry, RootError> {
    let Ok(path) = RootPath::parse(path) else {
        return Ok(UnitEntry::Missing);
    };
    let kind = match kind_of(observer, &path) {
        // Nothing that systemd could use is there either.
        Err(error) if error.cause.is_obstacle() => return Ok(UnitEntry::Missing),
        kind => kind?,
    };
    match kind {
        None => Ok(UnitEntry::Missing),
        Some(EntryKind::Link(target)) => Ok(UnitEntry::Link(target)),
        Some(EntryKind::File { .. }) => {
            let bytes = root.read(&path)?.unwrap_or_default();
            Ok(UnitEntry::File(Some(unit_text(&bytes))))
        }
        Some(EntryKind::Directory) => Ok(UnitEntry::Directory(BTreeMap::new())),
        Some(EntryKind::Other) => Ok(UnitEntry::Other),
    }
}

fn preset_files(root: &Root, dir: &RootPath) -> Result<BTreeMap<String, String>, RootError> {
    let mut files = BTreeMap::new();
    for name in root
        .list(dir)?
        .into_iter()
        .filter(|name| name.ends_with(".preset"))
    {
        let Ok(path) = dir.join(&name) else { continue };
        // A link to /dev/null masks a preset file of that name; so does one that leads nowhere.
        let bytes = root.read(&path).ok().flatten().unwrap_or_default();
        files.insert(name, String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(files)
}
