//! Objects of the cluster's API from files and directories, for `render` and `change`.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::base::order::StableOrder;
use crate::change::source::read_named;
use crate::config::butane::{self, OutputOptions};
use crate::config::controllers::cluster::role_of;
use crate::config::controllers::objects::KINDS;
use crate::config::controllers::{ApiObject, read_objects};
use crate::config::document::DocumentError;
use crate::config::render::{self, Input};
use crate::formats::etcd_data::bolt::{Database, is_database};
use crate::formats::etcd_data::keys::read_keys;
use crate::host::caller;
use crate::host::root::{EntryType, Root, RootPath};

/// Maximum size of a file; a list of all MachineConfigs of a cluster is below 20 MB.
const MAX_FILE: u64 = 64 << 20;
/// Maximum number of files; a must-gather has about 10,000.
const MAX_FILES: usize = 100_000;
/// Maximum depth of directories; a must-gather has ten levels.
const MAX_DEPTH: usize = 16;

/// Pools that do not include MachineConfigs with the role worker.
pub const HAS_NO_WORKERS: [&str; 2] = ["master", "arbiter"];

/// Reads the objects of a named file. Every object must be of a supported kind.
pub fn read_given(bytes: &[u8], file: &str) -> Result<Vec<ApiObject>> {
    if let Some(text) = butane_text(bytes) {
        return translate_butane(text, file);
    }
    let all = read_objects(bytes, file)?;
    if let Some(other) = all
        .iter()
        .find(|one| !one.is_read() && !one.is_machine_config())
    {
        let message = format!(
            "{:?} of {} is not a kind that makes a MachineConfig; those are MachineConfig, {}",
            other.kind,
            other.api_version,
            KINDS.join(", ")
        );
        return Err(other.refuse("kind", message).into());
    }
    Ok(all)
}

/// Returns the text of a Butane config; `None` for any other document.
pub fn butane_text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    butane::is_butane(text).then_some(text)
}

/// Returns the MachineConfig of a Butane config that needs no other files.
fn translate_butane(text: &str, file: &str) -> Result<Vec<ApiObject>> {
    let translation = butane::translate_butane(text, None, OutputOptions::default());
    for entry in &translation.report {
        log::warn!("{file}: {entry}");
    }
    let Some(config) = &translation.machine_config else {
        let message = translation.error.as_deref().unwrap_or("nothing was made");
        bail!(
            "{file}: {message}; `mco-rescue butane {file}` shows the whole report, and takes a directory of files with -d"
        );
    };
    Ok(read_objects(config.to_string().as_bytes(), file)?)
}

/// Reads a rendered config as the base for changes, with its name for messages.
pub fn read_base(file: &str) -> Result<(String, Value)> {
    let all = read_objects(&read_named(file)?, file)?;
    let [object] = all.as_slice() else {
        bail!(
            "{file} has {} objects; a base is one rendered MachineConfig",
            all.len()
        );
    };
    if !object.is_machine_config() || !object.name.starts_with("rendered-") {
        let message = "is not a rendered MachineConfig; the node's is printed by `mco-rescue cache export NAME`";
        return Err(object.refuse("metadata.name", message).into());
    }
    Ok((file.to_owned(), object.value.clone()))
}

/// Returns true if the role of a MachineConfig belongs to the pool.
pub fn has_role_of(object: &ApiObject, pool: &str) -> bool {
    let role = role_of(&object.value);
    role == Some(pool) || role == Some("worker") && !HAS_NO_WORKERS.contains(&pool)
}

/// Reads the objects of a file, of every YAML and JSON file below a directory, such as a must-gather, or of a snapshot of etcd.
/// Other files and objects are skipped, and so are rendered configs.
pub fn read_parts(name: &str) -> Result<Vec<ApiObject>> {
    let mut objects = if let Some(database) = open_database(name)? {
        read_database(name, &database)?
    } else if caller::is_directory(name) {
        let root = Root::open(Path::new(name))?;
        let mut walk = Walk {
            name,
            files: 0,
            objects: Vec::new(),
        };
        walk.read_directory(&root, &RootPath::fixed("."), &[])?;
        walk.objects
    } else {
        read_objects(&read_named(name)?, name)?
    };
    objects.retain(|object| {
        object.is_read() || object.is_machine_config() && !object.name.starts_with("rendered-")
    });
    if objects.is_empty() {
        bail!(
            "{name} has no object that makes a MachineConfig; give a must-gather, or a directory with \
             `oc get machineconfigs -o yaml`"
        );
    }
    Ok(objects)
}

/// Groups and kinds of the objects in the database of the cluster, after the prefix of the API server.
const STORED: [(&str, &str); 3] = [
    (
        "config.openshift.io",
        "apiservers clusterimagepolicies clusterversions criocredentialproviderconfigs featuregates \
        imagedigestmirrorsets imagepolicies images imagetagmirrorsets nodes",
    ),
    (
        "machineconfiguration.openshift.io",
        "containerruntimeconfigs kubeletconfigs machineconfigpools machineconfigs osimagestreams",
    ),
    ("operator.openshift.io", "imagecontentsourcepolicies"),
];

/// Opens a snapshot or database of etcd; returns `None` for any other file, or if there is none.
fn open_database(name: &str) -> Result<Option<Database<File>>> {
    let path = Path::new(name);
    let (Some(file), false) = (path.file_name().and_then(|file| file.to_str()), name == "-") else {
        return Ok(None);
    };
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let Ok(root) = Root::open(parent.unwrap_or(Path::new("."))) else {
        return Ok(None);
    };
    let Ok(inside) = RootPath::parse(&format!("/{file}")) else {
        return Ok(None);
    };
    let Some(file) = root.open_followed(&inside).ok().flatten() else {
        return Ok(None);
    };
    let length = file
        .metadata()
        .with_context(|| format!("reading {name}"))?
        .len();
    if !is_database(&file) {
        return Ok(None);
    }
    let database = Database::open(file, length);
    Ok(Some(database.with_context(|| {
        format!("reading {name} as a database of etcd")
    })?))
}

/// Reads the objects of an etcd database. The API server stores objects of these kinds as JSON, and by default never encrypts them.
fn read_database(name: &str, database: &Database<File>) -> Result<Vec<ApiObject>> {
    let is_wanted = |key: &str| {
        let mut parts = key.trim_start_matches('/').splitn(4, '/').skip(1);
        let (group, kind) = (parts.next(), parts.next().unwrap_or_default());
        let kinds = STORED.iter().find(|(stored, _)| Some(*stored) == group);
        kinds.is_some_and(|(_, kinds)| kinds.split_whitespace().any(|one| one == kind))
    };
    let values = read_keys(database, &is_wanted);
    let values = values.with_context(|| format!("reading {name} as a database of etcd"))?;
    let mut objects = Vec::new();
    for (key, value) in values {
        let origin = format!("{name}:{key}");
        if value.starts_with(b"k8s:enc:") {
            bail!(
                "{origin} is encrypted; give a must-gather, or the objects from `oc get -o yaml`"
            );
        }
        objects.extend(read_objects(&value, &origin)?);
    }
    Ok(objects)
}

struct Walk<'a> {
    name: &'a str,
    files: usize,
    objects: Vec<ApiObject>,
}

impl Walk<'_> {
    fn read_directory(&mut self, root: &Root, path: &RootPath, names: &[String]) -> Result<()> {
        let mut entries = root.list_types(path)?;
        entries.order_by(|a, b| a.0.cmp(&b.0));
        for (name, kind) in entries {
            let names: Vec<String> = names.iter().cloned().chain([name.clone()]).collect();
            let below = format!("/{}", names.join("/"));
            let Ok(path) = RootPath::parse(&below) else {
                continue;
            };
            if kind == EntryType::Directory {
                if names.len() >= MAX_DEPTH {
                    bail!(
                        "{}{below} is too deep; give a directory nearer to the objects",
                        self.name
                    );
                }
                self.read_directory(root, &path, &names)?;
            } else if [".yaml", ".yml", ".json"]
                .iter()
                .any(|end| name.ends_with(end))
            {
                self.files += 1;
                if self.files > MAX_FILES {
                    bail!(
                        "{} has more than {MAX_FILES} files; give a directory nearer to the objects",
                        self.name
                    );
                }
                self.read_file(root, &path, &below)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, root: &Root, path: &RootPath, below: &str) -> Result<()> {
        let shown = format!("{}{below}", self.name.trim_end_matches('/'));
        let bytes = root
            .read_within(path, MAX_FILE)
            .with_context(|| format!("reading {shown}"))?;
        let Some(bytes) = bytes.filter(|bytes| may_have_objects(bytes)) else {
            return Ok(());
        };
        match read_objects(&bytes, &shown) {
            Ok(objects) => self.objects.extend(objects),
            // Skipping a faulty object would leave the result incomplete.
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Returns true if the text names a supported kind; the other files of a must-gather are not parsed.
fn may_have_objects(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let mut words = text.split("kind").skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix('"').unwrap_or(rest).trim_start();
        let value = rest
            .strip_prefix(':')?
            .trim_start()
            .trim_start_matches(['"', '\'']);
        value.split(|c: char| !c.is_ascii_alphanumeric()).next()
    });
    words.any(|word| word == "MachineConfig" || KINDS.contains(&word))
}

/// Reads a MachineConfig for the merge; errors name the position in the object's file.
pub fn read_config(object: &ApiObject) -> Result<Input, DocumentError> {
    let text = object.value.to_string();
    let inputs = render::read_inputs(text.as_bytes(), &object.origin);
    let located = |error: DocumentError| DocumentError {
        origin: error.origin,
        findings: error
            .findings
            .into_iter()
            .map(|one| object.locate(one))
            .collect(),
    };
    let mut inputs = inputs.map_err(located)?;
    inputs
        .pop()
        .ok_or_else(|| object.refuse("", "is not a MachineConfig"))
}
