//! Trees on disk, read back as values, and the real systemctl run on them.

// Trees are made in a temporary directory, not on a node.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{Lacks, skip};
use mco_rescue::formats::systemd::{
    CONFIG_DIR, InstallError, InstallOutcome, LinkChange, PRESET_PATH, PresetDir, Problem, Support,
    UnitDir, UnitEntry, UnitFileState, UnitTree, disable_units, enable_units, preset_units,
    read_units, unit_file_state,
};
use tempfile::TempDir;

#[derive(Debug, Clone)]
pub struct Operation {
    pub verb: Verb,
    pub units: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Enable,
    Disable,
    Preset,
    IsEnabled,
}

/// What we say an operation does.
#[derive(Debug)]
pub enum Ours {
    Links(Result<InstallOutcome, InstallError>),
    State(Result<UnitFileState, Problem>),
}

/// How we and systemctl compare.
#[derive(Debug, PartialEq, Eq)]
pub enum Agreement {
    Full,
    /// systemctl kept links to a removed alias, which we remove.
    LinksToAliasKept,
    /// systemctl did not make all the links that we make.
    OnlyWeCreate,
    /// We refuse what systemctl does.
    OnlyWeRefuse,
    Different(String),
}

type Links = BTreeMap<String, String>;

impl Operation {
    pub fn parse(text: &str) -> Self {
        let mut words = text.split(' ');
        let verb = match words.next().unwrap() {
            "enable" => Verb::Enable,
            "disable" => Verb::Disable,
            "preset" => Verb::Preset,
            "is-enabled" => Verb::IsEnabled,
            other => panic!("verb {other}"),
        };
        Operation {
            verb,
            units: words.map(str::to_owned).collect(),
        }
    }
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Verb::Enable => "enable",
            Verb::Disable => "disable",
            Verb::Preset => "preset",
            Verb::IsEnabled => "is-enabled",
        }
    }
}

impl Ours {
    pub fn changes_anything(&self) -> bool {
        !self.changes().is_empty()
    }

    fn changes(&self) -> &[LinkChange] {
        match self {
            Ours::Links(Ok(outcome)) => &outcome.changes,
            Ours::Links(Err(error)) => &error.partial,
            Ours::State(_) => &[],
        }
    }

    fn has_problems(&self) -> bool {
        match self {
            Ours::Links(Ok(outcome)) => !outcome.problems.is_empty(),
            Ours::Links(Err(_)) => true,
            Ours::State(state) => state.is_err(),
        }
    }

    fn succeeds(&self) -> bool {
        matches!(self, Ours::Links(Ok(_)) | Ours::State(Ok(_)))
    }
}

/// A root directory with units in it.
pub struct Root {
    dir: TempDir,
}

impl Root {
    /// Make a tree. A node is a link if it begins with `-> `, a directory if it is
    /// `/`, and the contents of a file otherwise. `etc:a` and the like stand for
    /// paths in the unit directories.
    pub fn with<'a>(nodes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let root = Root {
            dir: TempDir::new().unwrap(),
        };
        root.make("etc/systemd/system", "/");
        for (path, node) in nodes {
            root.make(&long_path(path), node);
        }
        root
    }

    fn make(&self, path: &str, node: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match node.strip_prefix("-> ") {
            Some(target) => symlink(target, path).unwrap(),
            None if node == "/" => fs::create_dir_all(path).unwrap(),
            None => fs::write(path, node).unwrap(),
        }
    }

    pub fn predict(&self, operation: &Operation) -> Ours {
        let support = Support::of_version(VERSION.parse().unwrap());
        let units: Vec<&str> = operation.units.iter().map(String::as_str).collect();
        let tree = self.observe(&units, &support);
        match operation.verb {
            Verb::Enable => Ours::Links(enable_units(&tree, &units, &support)),
            Verb::Disable => Ours::Links(disable_units(&tree, &units, &support)),
            Verb::Preset => Ours::Links(preset_units(&tree, &units, &support)),
            Verb::IsEnabled => Ours::State(unit_file_state(&tree, units[0], &support)),
        }
    }

    /// What we say, as text: one change a line, `FAIL` last.
    pub fn summary(&self, ours: &Ours) -> String {
        let short = |path: &str| {
            path.strip_prefix(&format!("{CONFIG_DIR}/"))
                .unwrap()
                .to_owned()
        };
        let mut lines: Vec<String> = ours
            .changes()
            .iter()
            .map(|change| match change {
                LinkChange::Create { path, target } => format!("+{} -> {target}", short(path)),
                LinkChange::Remove { path } => format!("-{}", short(path)),
            })
            .collect();
        match ours {
            Ours::State(Ok(state)) => lines.push(state.to_string()),
            _ if !ours.succeeds() => lines.push("FAIL".to_owned()),
            _ => (),
        }
        lines.join("\n")
    }

    /// Read the tree without the contents of files, then those that matter.
    fn observe(&self, units: &[&str], support: &Support) -> UnitTree {
        let mut tree = UnitTree::new();
        let vendor = tree
            .dirs
            .iter()
            .position(|dir| dir.path == "/usr/lib/systemd/system")
            .unwrap();
        if Systemctl::splits_usr() {
            tree.dirs
                .insert(vendor, UnitDir::empty("/lib/systemd/system"));
        }
        for dir in &mut tree.dirs {
            dir.entries = self.read_dir(&self.host_path(&dir.path));
        }
        tree.presets = PRESET_PATH
            .iter()
            .map(|path| self.read_presets(path))
            .collect();
        let mut read = |path: &str| -> Result<UnitEntry, Infallible> {
            Ok(self.read_node(&self.host_path(path), true))
        };
        read_units(&mut tree, units, &[], support, &mut read).unwrap();
        tree
    }

    fn host_path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    fn read_dir(&self, dir: &Path) -> BTreeMap<String, UnitEntry> {
        let Ok(entries) = fs::read_dir(dir) else {
            return BTreeMap::new();
        };
        let read = |entry: fs::DirEntry| {
            (
                entry.file_name().into_string().unwrap(),
                self.read_node(&entry.path(), false),
            )
        };
        entries.map(|entry| read(entry.unwrap())).collect()
    }

    fn read_node(&self, path: &Path, contents: bool) -> UnitEntry {
        let Ok(meta) = fs::symlink_metadata(path) else {
            return UnitEntry::Missing;
        };
        if meta.is_symlink() {
            UnitEntry::Link(
                fs::read_link(path)
                    .unwrap()
                    .into_os_string()
                    .into_string()
                    .unwrap(),
            )
        } else if meta.is_dir() {
            UnitEntry::Directory(self.read_dir(path))
        } else {
            UnitEntry::File(contents.then(|| fs::read_to_string(path).unwrap()))
        }
    }

    fn read_presets(&self, path: &str) -> PresetDir {
        let mut dir = PresetDir::empty(path);
        for entry in fs::read_dir(self.host_path(path)).into_iter().flatten() {
            let entry = entry.unwrap();
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            dir.files
                .insert(entry.file_name().into_string().unwrap(), text);
        }
        dir
    }

    /// All links below the config directory.
    fn links(&self) -> Links {
        let mut links = Links::new();
        collect_links(
            &self.read_dir(&self.host_path(CONFIG_DIR)),
            CONFIG_DIR,
            &mut links,
        );
        links
    }
}

fn collect_links(entries: &BTreeMap<String, UnitEntry>, dir: &str, links: &mut Links) {
    for (name, entry) in entries {
        let path = format!("{dir}/{name}");
        match entry {
            UnitEntry::Link(target) => drop(links.insert(path, target.clone())),
            UnitEntry::Directory(entries) => collect_links(entries, &path, links),
            _ => (),
        }
    }
}

fn long_path(path: &str) -> String {
    match path.split_once(':') {
        Some(("etc", name)) => format!("etc/systemd/system/{name}"),
        Some(("run", name)) => format!("run/systemd/system/{name}"),
        Some(("loc", name)) => format!("usr/local/lib/systemd/system/{name}"),
        Some(("usr", name)) => format!("usr/lib/systemd/system/{name}"),
        Some(("preset", name)) => format!("etc/systemd/system-preset/{name}"),
        _ => path.to_owned(),
    }
}

/// The version of systemd that is compared with.
const VERSION: &str = "252";

/// The second word of `systemd 252 (252.38-1)`.
fn version_of(systemctl: &Path) -> String {
    let output = Command::new(systemctl).arg("--version").output().unwrap();
    String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

/// The real systemctl.
pub struct Systemctl {
    path: PathBuf,
}

impl Systemctl {
    /// Find one of the version that is modelled, or say loudly that nothing will be compared.
    pub fn find() -> Option<Self> {
        let search = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&search)
            .map(|dir| dir.join("systemctl"))
            .find(|path| path.is_file());
        let version = found.as_ref().map(|path| version_of(path));
        if version.as_deref() != Some(VERSION) {
            let version = version.unwrap_or_else(|| "not found".to_owned());
            let why = format!(
                "systemctl {VERSION} is not on PATH ({version}), so nothing is compared with it"
            );
            skip(Lacks::other_version("systemctl"), &why);
            return None;
        }
        found.map(|path| Systemctl { path })
    }

    /// Whether it was built for a split `/usr`, as Debian's is.
    fn splits_usr() -> bool {
        use std::sync::OnceLock;
        static SPLIT: OnceLock<bool> = OnceLock::new();
        *SPLIT.get_or_init(|| {
            let output = Command::new("systemd-analyze").arg("unit-paths").output();
            output.is_ok_and(|o| {
                String::from_utf8_lossy(&o.stdout)
                    .lines()
                    .any(|l| l == "/lib/systemd/system")
            })
        })
    }

    /// Run it on the root, and compare what it did with what we say it does.
    pub fn compare(&self, root: &Root, operation: &Operation, ours: &Ours) -> Agreement {
        let before = root.links();
        let output = self.run(root, operation);
        match ours {
            Ours::State(state) => compare_state(state, &output),
            Ours::Links(_) => compare_links(before, &root.links(), ours, &output),
        }
    }

    fn run(&self, root: &Root, operation: &Operation) -> Output {
        let mut command = Command::new(&self.path);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("SYSTEMCTL_SKIP_SYSV", "1");
        command
            .arg(format!("--root={}", root.dir.path().display()))
            .arg(operation.verb.name());
        command.args(&operation.units).output().unwrap()
    }
}

fn compare_state(ours: &Result<UnitFileState, Problem>, output: &Output) -> Agreement {
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let theirs = match printed.as_str() {
        "" if errors.contains("No such file or directory") => "not-found".to_owned(),
        "" => "error".to_owned(),
        _ => printed,
    };
    let said = ours
        .as_ref()
        .map_or("error".to_owned(), ToString::to_string);
    if said == theirs {
        Agreement::Full
    } else {
        Agreement::Different(format!("systemctl says {theirs}: {errors}"))
    }
}

fn compare_links(before: Links, theirs: &Links, ours: &Ours, output: &Output) -> Agreement {
    let mut expected = before.clone();
    for change in ours.changes() {
        match change {
            LinkChange::Create { path, target } => {
                let replaced = expected.insert(path.clone(), target.clone());
                assert_eq!(replaced, None, "{path} is created where a link is");
            }
            LinkChange::Remove { path } => {
                assert!(
                    expected.remove(path).is_some(),
                    "{path} is removed where no link is"
                );
            }
        }
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    // That a link was passed over is said too.
    let failed =
        |line: &str| line.contains("Failed to") && !line.starts_with("Failed to resolve symlink");
    if errors.lines().any(failed) && !ours.has_problems() {
        return Agreement::Different(format!("systemctl reports {errors}"));
    }
    if expected == *theirs && output.status.success() == ours.succeeds() {
        return Agreement::Full;
    }
    if output.status.success() && !ours.succeeds() {
        return Agreement::OnlyWeRefuse;
    }
    if output.status.success() == ours.succeeds()
        && only_links_to_removed(&before, &expected, theirs)
    {
        return Agreement::LinksToAliasKept;
    }
    if output.status.success() == ours.succeeds() && only_fewer_created(&before, &expected, theirs)
    {
        return Agreement::OnlyWeCreate;
    }
    Agreement::Different(format!(
        "systemctl has {theirs:#?}, we {expected:#?}, from {before:#?}; {}, {errors}",
        output.status
    ))
}

/// Whether theirs has more than ours, and that is only links to links that both removed.
fn only_links_to_removed(before: &Links, ours: &Links, theirs: &Links) -> bool {
    let kept: Vec<_> = theirs
        .iter()
        .filter(|(path, _)| !ours.contains_key(*path))
        .collect();
    let less = ours
        .iter()
        .any(|(path, target)| theirs.get(path) != Some(target));
    let to_removed = |(path, target): &(&String, &String)| {
        let dir = Path::new(path.as_str()).parent().unwrap();
        let target = normalised(&dir.join(target.as_str()));
        before.contains_key(&target) && !ours.contains_key(&target)
    };
    !kept.is_empty() && !less && kept.iter().all(to_removed)
}

/// Whether theirs is ours without some of the links that we created.
fn only_fewer_created(before: &Links, ours: &Links, theirs: &Links) -> bool {
    let missing: Vec<_> = ours
        .iter()
        .filter(|(path, _)| !theirs.contains_key(*path))
        .collect();
    let others_same = theirs
        .iter()
        .all(|(path, target)| ours.get(path) == Some(target));
    !missing.is_empty()
        && others_same
        && missing.iter().all(|(path, _)| !before.contains_key(*path))
}

fn normalised(path: &Path) -> String {
    let mut parts = Vec::new();
    for part in path
        .to_str()
        .unwrap()
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
    {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    format!("/{}", parts.join("/"))
}
