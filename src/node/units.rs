//! The unit files, presets and enablement links of a root, as a [`UnitTree`].

use std::collections::BTreeMap;

use super::{Interest, NodeState, ObjectObserver};
use crate::base::object::ObjectKind;
use crate::base::paths;
use crate::formats::systemd::{
    LINK_DIRS, Support, UnitEntry, UnitTree, read_units, unit_name, unit_text,
};
use crate::host::root::{EntryType, Place, Root, RootError, RootPath, sha256_hex, skip_obstacle};
use crate::host::sys::parallel;

/// Lists the unit directories, without the contents of their files, and reads the presets. Links in directories where links
/// change are also passed to `observer`.
pub(super) fn list_units(
    root: &Root,
    observer: &mut ObjectObserver<'_>,
) -> Result<UnitTree, RootError> {
    let mut tree = UnitTree::new();
    for dir in &mut tree.dirs {
        if let Ok(path) = RootPath::parse(&dir.path) {
            let has_links = LINK_DIRS.contains(&dir.path.as_str());
            dir.entries = list_entries(root, &path, has_links, observer)?;
        }
    }
    for presets in &mut tree.presets {
        if let Ok(path) = RootPath::parse(&presets.path) {
            presets.files = preset_files(root, &path)?;
        }
    }
    for path in SOURCES.map(RootPath::fixed) {
        let names = skip_obstacle(root.list(&path))?;
        tree.has_sources |= names.iter().any(|name| is_source(name));
    }
    tree.has_fixed_root = has_fixed_root(root)?;
    Ok(tree)
}

/// Directories with files from which generators create units.
const SOURCES: [&str; 5] = [
    "etc/containers/systemd",
    "usr/share/containers/systemd",
    "run/containers/systemd",
    "etc/init.d",
    "etc/rc.d/init.d",
];

/// Returns true for the name of such a file.
fn is_source(name: &str) -> bool {
    !matches!(name, "README" | "functions" | "users")
}

/// Returns true for a path from which a generator may create a unit.
pub fn is_source_path(path: &RootPath) -> bool {
    SOURCES.into_iter().any(|directory| path.is_in(directory))
}

/// Returns true for the root of an OSTree deployment that is not recreated at each boot.
fn has_fixed_root(root: &Root) -> Result<bool, RootError> {
    let is_deployment = root.exists(&RootPath::fixed("usr/etc"))?
        || root.is_live() && root.exists(&RootPath::fixed(paths::OSTREE_BOOTED))?;
    let settings = RootPath::fixed("usr/lib/ostree/prepare-root.conf");
    let settings = skip_obstacle(root.read_small(&settings))?.unwrap_or_default();
    let settings = String::from_utf8_lossy(&settings).into_owned();
    let mut lines = settings.lines().map(|line| line.replace([' ', '\t'], ""));
    Ok(is_deployment
        && !lines.any(|line| line.starts_with("transient") && !line.ends_with("=false")))
}

/// Reads the contents that determine the enablement of the units in `interest` into the listed units of `node`.
pub(super) fn read_contents(
    interest: &Interest,
    node: &mut NodeState,
    observer: &mut ObjectObserver<'_>,
) -> Result<(), RootError> {
    let mut tree = std::mem::take(&mut node.units);
    add_unchanged(&mut tree, interest, node);
    let units: Vec<&str> = interest.units.iter().map(String::as_str).collect();
    let mut read = |path: &str| read_entry(observer, path);
    read_units(
        &mut tree,
        &units,
        &interest.overlay,
        &node.systemd,
        &mut read,
    )?;
    observe_linked(&tree, observer)?;
    node.units = tree;
    Ok(())
}

/// Observes the names of units outside of the search path, because links for enabled units may be created there.
fn observe_linked(tree: &UnitTree, observer: &mut ObjectObserver<'_>) -> Result<(), RootError> {
    for path in tree.outside.keys() {
        let name = path.rsplit('/').next().unwrap_or_default();
        if let (true, Ok(path)) = (unit_name::is_valid(name), RootPath::parse(path)) {
            observer.read_object(&path)?;
        }
    }
    Ok(())
}

/// Adds the texts of files that already have the desired content: they were read for their digests.
fn add_unchanged(tree: &mut UnitTree, interest: &Interest, node: &NodeState) {
    for (path, entry) in &interest.overlay {
        let listed = matches!(tree.get_entry(path), Some(UnitEntry::File(None)));
        if let (true, UnitEntry::File(Some(text)), Ok(at)) = (listed, entry, RootPath::parse(path))
            && node
                .object(&at)
                .is_some_and(|found| found.kind == file_kind(text))
        {
            tree.set_entry(path, entry.clone());
        }
    }
}

fn file_kind(text: &str) -> ObjectKind {
    ObjectKind::File {
        size: text.len() as u64,
        sha256: sha256_hex(text.as_bytes()).into(),
    }
}

/// Returns the features of the root's systemd, by the version in the name of its shared library; EL9's if unknown.
pub(super) fn systemd_support(root: &Root) -> Result<Support, RootError> {
    let names = root.list(&RootPath::fixed("usr/lib/systemd"))?;
    let version = names.iter().find_map(|name| {
        let rest = name.strip_prefix("libsystemd-shared-")?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    Ok(Support::of_version(version.unwrap_or(252)))
}

/// Minimum number of directories for each thread.
const PART: usize = 64;

/// Lists a directory and its subdirectories, without the contents of files. Links that may change are observed.
fn list_entries(
    root: &Root,
    dir: &RootPath,
    has_links: bool,
    observer: &mut ObjectObserver<'_>,
) -> Result<BTreeMap<String, UnitEntry>, RootError> {
    let listed = skip_obstacle(root.list_types(dir))?;
    entries_below(root, dir, listed, has_links, observer)
}

/// Does the same for a directory that is already listed. Most units have a directory for drop-ins.
fn entries_below(
    root: &Root,
    dir: &RootPath,
    listed: Vec<(String, EntryType)>,
    has_links: bool,
    observer: &mut ObjectObserver<'_>,
) -> Result<BTreeMap<String, UnitEntry>, RootError> {
    let mut found = BTreeMap::new();
    if has_links {
        observer.read_directory(dir, None)?;
    }
    let directories = listed
        .iter()
        .filter(|(_, kind)| *kind == EntryType::Directory);
    let directories: Vec<RootPath> = directories
        .filter_map(|(name, _)| dir.join(name).ok())
        .collect();
    let list_all =
        |part: &[RootPath]| -> Vec<_> { part.iter().map(|path| root.list_types(path)).collect() };
    let lists = parallel::in_parts(&directories, PART, list_all);
    let mut lists = lists.into_iter().flatten();
    for (name, entry_type) in listed {
        let Ok(path) = dir.join(&name) else { continue };
        let entry = match entry_type {
            EntryType::File => UnitEntry::File(None),
            EntryType::Directory => {
                let listed = lists.next().transpose()?.unwrap_or_default();
                UnitEntry::Directory(entries_below(root, &path, listed, has_links, observer)?)
            }
            EntryType::Link => match link_target(observer, &path, has_links)? {
                Some(target) => UnitEntry::Link(target),
                None => continue,
            },
            EntryType::Other => UnitEntry::Other,
        };
        found.insert(name, entry);
    }
    Ok(found)
}

/// Returns the target of a link; `None` if it was replaced in the meantime.
fn link_target(
    observer: &mut ObjectObserver<'_>,
    path: &RootPath,
    is_observed: bool,
) -> Result<Option<String>, RootError> {
    if is_observed {
        observer.read_object(path)?;
        return Ok(observer.last_target(path).map(str::to_owned));
    }
    match kind_of(observer, path)? {
        Some((_, ObjectKind::Symlink { target })) => Ok(Some(target)),
        _ => Ok(None),
    }
}

fn kind_of(
    observer: &mut ObjectObserver<'_>,
    path: &RootPath,
) -> Result<Option<(Place, ObjectKind)>, RootError> {
    let Some(place) = observer.open_place(path)? else {
        return Ok(None);
    };
    let kind = place
        .shallow_kind()
        .map_err(|errno| RootError::at(path, errno))?;
    Ok(kind.map(|kind| (place, kind)))
}

/// Reads the object at a path, with the content of a file or the names in a directory.
pub(super) fn read_entry(
    observer: &mut ObjectObserver<'_>,
    path: &str,
) -> Result<UnitEntry, RootError> {
    let Ok(path) = RootPath::parse(path) else {
        return Ok(UnitEntry::Missing);
    };
    let found = match kind_of(observer, &path) {
        // systemd could not use it either.
        Err(error) if error.cause.is_obstacle() => None,
        found => found?,
    };
    Ok(match found {
        None => UnitEntry::Missing,
        Some((_, ObjectKind::Symlink { target })) => UnitEntry::Link(target),
        Some((place, ObjectKind::File { .. })) => {
            match place.read_file().map_err(|e| RootError::at(&path, e))? {
                Some(bytes) => UnitEntry::File(Some(unit_text(&bytes))),
                None => UnitEntry::Missing,
            }
        }
        Some((_, ObjectKind::Directory)) => {
            let names = skip_obstacle(observer.root().list(&path))?.into_iter();
            UnitEntry::Directory(names.map(|name| (name, UnitEntry::Other)).collect())
        }
        Some((_, ObjectKind::Special { .. })) => UnitEntry::Other,
    })
}

fn preset_files(root: &Root, dir: &RootPath) -> Result<BTreeMap<String, String>, RootError> {
    let mut files = BTreeMap::new();
    for name in skip_obstacle(root.list(dir))?
        .into_iter()
        .filter(|name| name.ends_with(".preset"))
    {
        let Ok(path) = dir.join(&name) else { continue };
        // A link to /dev/null masks the preset file of that name, and so does a broken link.
        let bytes = skip_obstacle(root.read(&path))?.unwrap_or_default();
        files.insert(name, String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(files)
}
