//! The desired state of the disk according to a MachineConfig: paths parsed, modes defaulted, digests computed.

use std::collections::BTreeMap;

use super::contents::{Contents, Measured};
use super::ignition::{File, NodeOwner, Unit};
use super::lines;
use super::machine_config::MachineConfig;
use super::unsupported::{Unsupported, unsupported_sections};
use super::written::Written;
use crate::base::go_quote::quote_go;
use crate::base::object::HexDigest;
use crate::base::order::StableOrder;
use crate::base::paths;
use crate::host::root::RootPath;

/// A user or group as the document names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// By number.
    Id(u32),
    /// By name, to be looked up in the root's account files.
    Name(String),
}

/// A wanted file.
#[derive(Debug, Clone)]
pub struct DesiredFile {
    /// Absolute path below the root.
    pub path: RootPath,
    /// Permission bits; 0644 if the document has none (docs/develop/agreement.md: Files).
    pub mode: u32,
    /// Owner; root if the document has none.
    pub user: Owner,
    /// Group; root if the document has none.
    pub group: Owner,
    /// The bytes, decoded on demand.
    pub contents: Contents,
    /// Number of bytes.
    pub size: u64,
    /// Lower-case hex SHA-256 of the bytes.
    pub sha256: HexDigest,
    /// The index in the document's list of files; `None` for a file that the first boot adds.
    pub index: Option<usize>,
    /// Properties that only a bare Ignition config can leave open; the daemon always writes the whole file. Boxed, because
    /// there may be many files, and those of a MachineConfig have none of these.
    pub bare: Option<Box<BareFile>>,
}

impl DesiredFile {
    /// Returns the path of the file in the document of `config` as written.
    pub fn place(&self, config: &MachineConfig) -> String {
        file_place(config, self.index, &self.path)
    }
}

/// Returns the path of a file's entry in the document as written, or else the file's own path.
fn file_place(config: &MachineConfig, index: Option<usize>, path: impl ToString) -> String {
    let prefix = if config.bare { "" } else { "spec.config." };
    index.map_or_else(
        || path.to_string(),
        |index| config.original_place(format!("{prefix}storage.files[{index}]")),
    )
}

/// Properties of a file of a bare Ignition config beyond its contents (docs/develop/ignition.md: Nodes).
#[derive(Debug, Clone)]
pub struct BareFile {
    /// An existing object may be replaced.
    pub overwrite: bool,
    /// The document has no contents, so the existing ones are kept.
    pub keep: bool,
    /// Mode, where one is given.
    pub mode: Option<u32>,
    /// Owner, where one is given.
    pub user: Option<Owner>,
    /// Group, where one is given.
    pub group: Option<Owner>,
    /// Fragments to be appended.
    pub append: Vec<Contents>,
}

impl BareFile {
    /// Returns all fragments together.
    pub fn appended_bytes(&self) -> Vec<u8> {
        self.append
            .iter()
            .flat_map(|part| part.bytes().unwrap_or_default())
            .collect()
    }
}

/// A file of a MachineConfig that the daemon can neither write nor compare, whatever is on disk (docs/develop/agreement.md: Files, Validation).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// Number of files in [`Desired::files`] that the daemon checks before this one.
    pub before: usize,
    /// Its path as written in the document.
    pub path: String,
    /// The place in the document.
    pub origin: String,
    /// It has fragments to append; otherwise its source is not a data URL.
    pub appends: bool,
}

impl Undecodable {
    /// Returns the daemon's message for comparing the file.
    pub fn when_compared(&self) -> String {
        if self.appends {
            return "found an append section when checking files. Append is not supported"
                .to_owned();
        }
        format!(
            "couldn't decode file {}: could not decode file content string: missing data prefix",
            quote_go(&self.path)
        )
    }

    /// Returns the daemon's message for writing the file.
    pub fn when_written(&self) -> String {
        if self.appends {
            return "found an append section when writing files. Append is not supported"
                .to_owned();
        }
        format!(
            "could not decode file {}: could not decode file content string: missing data prefix",
            quote_go(&self.path)
        )
    }
}

/// A path as written in a config of spec 2; the daemon opens the file by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenPath {
    /// The path.
    pub text: String,
    /// The directories that a `..` in it leaves, which have to exist.
    pub through: Vec<RootPath>,
}

fn written_paths(written: &Written) -> BTreeMap<RootPath, WrittenPath> {
    let entry = |(clean, text): (&String, &String)| {
        let (mut above, mut through) = (Vec::new(), Vec::new());
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    through.extend(RootPath::parse(&format!("/{}", above.join("/"))).ok());
                    above.pop();
                }
                part => above.push(part),
            }
        }
        let text = text.clone();
        Some((RootPath::parse(clean).ok()?, WrittenPath { text, through }))
    };
    written.cleaned.iter().filter_map(entry).collect()
}

/// A wanted directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredDirectory {
    /// Absolute path below the root.
    pub path: RootPath,
    /// Permission bits if the document has them; otherwise 0755 for a new directory, unchanged for an existing one.
    pub mode: Option<u32>,
    /// Owner if the document has one; otherwise root for a new directory, unchanged for an existing one.
    pub user: Option<Owner>,
    /// Group, likewise.
    pub group: Option<Owner>,
    /// An object of another type may be replaced.
    pub overwrite: bool,
    /// The place in the document.
    pub origin: String,
}

/// A wanted link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredLink {
    /// Absolute path below the root.
    pub path: RootPath,
    /// The target of a soft link, or the path that a hard link shares.
    pub target: String,
    /// True for a hard link.
    pub hard: bool,
    /// Owner of a soft link; root if the document has none.
    pub user: Option<Owner>,
    /// Group of a soft link.
    pub group: Option<Owner>,
    /// An existing object may be replaced.
    pub overwrite: bool,
    /// The place in the document.
    pub origin: String,
}

/// The desired state of the disk.
#[derive(Debug, Clone, Default)]
pub struct Desired {
    /// It comes from a config of spec 2, which the daemon validates by different rules.
    pub spec2: bool,
    /// It comes from a bare Ignition config, for which Ignition's rules apply instead of the daemon's.
    pub bare: bool,
    /// Files, in document order.
    pub files: Vec<DesiredFile>,
    /// Files that the daemon cannot decode. The one with an empty source is also among the files, as an empty one.
    pub undecodable: Vec<Undecodable>,
    /// Directories, the shallowest first.
    pub directories: Vec<DesiredDirectory>,
    /// Links: soft ones first, then hard ones.
    pub links: Vec<DesiredLink>,
    /// Files that the Machine Config Server adds for the first boot.
    pub additions: Vec<DesiredFile>,
    /// Units, in document order.
    pub units: Vec<Unit>,
    /// Units as the daemon compares them, if that differs from how it writes them: every entry of a config of spec 2.
    pub compared_units: Option<Vec<Unit>>,
    /// Files of a config of spec 2 whose path is not clean, by their clean path.
    pub written_paths: BTreeMap<RootPath, WrittenPath>,
    /// All public keys of all users, in document order.
    pub keys: Vec<String>,
    /// The document has users.
    pub has_users: bool,
    /// The hash in the document; a user with only keys has none.
    pub password_hash: Option<String>,
    /// Parts that are refused by name.
    pub unsupported: Vec<Unsupported>,
    /// Indexes of the files, sorted by path.
    by_path: Vec<usize>,
}

impl Desired {
    /// Derives the desired state from a checked config.
    pub fn from_config(config: &MachineConfig) -> Self {
        let prefix = if config.bare { "" } else { "spec.config." };
        let mut desired = Self {
            bare: config.bare,
            spec2: config.spec2.is_some(),
            units: config.ignition.systemd.units.to_vec(),
            compared_units: config.spec2.as_ref().map(|written| written.units.clone()),
            written_paths: config.spec2.as_ref().map(written_paths).unwrap_or_default(),
            ..Self::default()
        };
        desired.unsupported = unsupported_sections(config, prefix);
        desired
            .unsupported
            .extend(lines::refused_values(config, prefix));
        let files = &config.ignition.storage.files;
        desired.files.reserve_exact(files.len());
        for (index, file) in files.iter().enumerate() {
            if let Some(appends) = undecodable_part(file, config) {
                desired.undecodable.push(Undecodable {
                    before: desired.files.len(),
                    path: file.path.clone(),
                    origin: file_place(config, Some(index), &file.path),
                    appends,
                });
            }
            match desired_file(file, Some(index), config) {
                Ok(file) => desired.files.push(file),
                Err(unsupported) => desired.unsupported.push(unsupported),
            }
        }
        let path = |index: &usize| desired.files.get(*index).map(|file| &file.path);
        let mut by_path: Vec<usize> = (0..desired.files.len()).collect();
        by_path.order_by(|a, b| path(a).cmp(&path(b)));
        desired.by_path = by_path;
        desired.add_nodes(config, prefix);
        let added = config
            .additions
            .iter()
            .map(|file| desired_file(file, None, config));
        desired.additions = added.filter_map(Result::ok).collect();
        desired.add_users(config);
        desired
    }

    fn add_users(&mut self, config: &MachineConfig) {
        let users = &config.ignition.passwd.users;
        self.has_users = !users.is_empty();
        self.keys = users
            .iter()
            .flat_map(|user| user.ssh_authorized_keys.to_vec())
            .collect();
        let given = |hash: &Option<String>| hash.clone().filter(|hash| !hash.is_empty());
        self.password_hash = users
            .iter()
            .rev()
            .find_map(|user| given(&user.password_hash));
    }

    /// Adds directories and links. Ignition does not define an order for equal depth; here it is the document's.
    fn add_nodes(&mut self, config: &MachineConfig, prefix: &str) {
        let storage = &config.ignition.storage;
        for (index, directory) in storage.directories.iter().enumerate() {
            let origin = config.original_place(format!("{prefix}storage.directories[{index}]"));
            match RootPath::parse(&directory.path) {
                Ok(path) => self.directories.push(DesiredDirectory {
                    path,
                    mode: directory
                        .mode
                        .and_then(|mode| u32::try_from(mode).ok())
                        .map(|mode| special_bits(mode, config)),
                    user: given_owner(&directory.user),
                    group: given_owner(&directory.group),
                    overwrite: directory.overwrite == Some(true),
                    origin,
                }),
                Err(error) => self.add_refusal(origin, error.to_string()),
            }
        }
        self.directories
            .order_by_key(|directory| directory.path.ancestors().count());
        for (index, link) in storage.links.iter().enumerate() {
            let origin = config.original_place(format!("{prefix}storage.links[{index}]"));
            match RootPath::parse(&link.path) {
                Ok(path) => self.links.push(DesiredLink {
                    path,
                    target: link.target.clone().unwrap_or_default(),
                    hard: link.hard == Some(true),
                    user: given_owner(&link.user),
                    group: given_owner(&link.group),
                    overwrite: link.overwrite == Some(true),
                    origin,
                }),
                Err(error) => self.add_refusal(origin, error.to_string()),
            }
        }
        self.links.order_by_key(|link| link.hard);
    }

    fn add_refusal(&mut self, path: String, message: String) {
        self.unsupported.push(Unsupported {
            path,
            message,
            skippable: false,
        });
    }

    /// Returns the file at a path, if the config has one.
    pub fn file_at(&self, path: &RootPath) -> Option<&DesiredFile> {
        let of = |index: &usize| self.files.get(*index);
        let found = self
            .by_path
            .binary_search_by(|index| of(index).map(|file| &file.path).cmp(&Some(path)));
        self.by_path.get(found.ok()?).and_then(of)
    }
}

fn desired_file(
    file: &File,
    index: Option<usize>,
    config: &MachineConfig,
) -> Result<DesiredFile, Unsupported> {
    let refuse = |path: &str, message: String| Unsupported {
        path: file_place(config, index, &file.path) + path,
        message,
        skippable: false,
    };
    if !file.append.is_empty() && !config.bare {
        let message = format!(
            "ignition file {} includes append, which the daemon refuses; give the whole contents",
            file.path
        );
        return Err(refuse(".append", message));
    }
    let path = RootPath::parse(&file.path).map_err(|e| refuse(".path", e.to_string()))?;
    let resource = &file.contents;
    let contents = resource.contents();
    let contents = contents.map_err(|e| refuse(".contents.compression", e.to_string()))?;
    let measured = resource.measured();
    let Measured { size, sha256 } =
        measured.map_err(|e| refuse(".contents.source", e.to_string()))?;
    Ok(DesiredFile {
        path,
        mode: special_bits(
            file.mode
                .and_then(|mode| u32::try_from(mode).ok())
                .unwrap_or(0o644),
            config,
        ),
        user: owner_or_root(&file.user),
        group: owner_or_root(&file.group),
        contents,
        size,
        sha256,
        index,
        bare: if config.bare {
            Some(bare_file(file, config, &refuse)?.into())
        } else {
            None
        },
    })
}

/// Returns the daemon's message about the first file that it cannot decode when it writes a config.
pub fn undecodable_message(config: &MachineConfig) -> Option<String> {
    let mut files = config.ignition.storage.files.iter();
    let found = files.find_map(|file| Some((file, undecodable_part(file, config)?)));
    let (file, appends) = found?;
    let file = Undecodable {
        before: 0,
        path: file.path.clone(),
        origin: String::new(),
        appends,
    };
    Some(file.when_written())
}

/// Returns which part of a file the daemon cannot decode: true for fragments to append, false for the source. `None` if it
/// decodes the file.
fn undecodable_part(file: &File, config: &MachineConfig) -> Option<bool> {
    let relative = file.path.trim_start_matches('/');
    let is_exempt = config.spec2.is_none() && paths::EXEMPT.contains(&relative);
    if config.bare || is_exempt {
        return None;
    }
    let source = file.contents.source.as_deref();
    let is_foreign = source.is_some_and(|source| !source.starts_with("data:"));
    (!file.append.is_empty() || is_foreign).then_some(!file.append.is_empty())
}

fn bare_file(
    file: &File,
    config: &MachineConfig,
    refuse: &dyn Fn(&str, String) -> Unsupported,
) -> Result<BareFile, Unsupported> {
    let mut append = Vec::new();
    for (index, part) in file.append.iter().enumerate() {
        let contents = part.contents();
        let contents = contents.and_then(|contents| contents.bytes().map(|_| contents));
        append.push(contents.map_err(|e| refuse(&format!(".append[{index}]"), e.to_string()))?);
    }
    Ok(BareFile {
        overwrite: file.overwrite == Some(true),
        keep: file.contents.source.is_none(),
        mode: file
            .mode
            .and_then(|mode| u32::try_from(mode).ok())
            .map(|mode| special_bits(mode, config)),
        user: given_owner(&file.user),
        group: given_owner(&file.group),
        append,
    })
}

/// Returns the special bits of a mode, which are masked off before spec 3.6 (docs/develop/ignition.md: Validation).
fn special_bits(mode: u32, config: &MachineConfig) -> u32 {
    if config.ignition.minor_version() < 6 {
        mode & 0o777
    } else {
        mode
    }
}

fn owner_or_root(owner: &NodeOwner) -> Owner {
    given_owner(owner).unwrap_or(Owner::Id(0))
}

fn given_owner(owner: &NodeOwner) -> Option<Owner> {
    match (owner.id, owner.name.as_deref()) {
        (Some(id), _) => Some(Owner::Id(u32::try_from(id).unwrap_or_default())),
        (None, Some(name)) if !name.is_empty() => Some(Owner::Name(name.to_owned())),
        _ => None,
    }
}
