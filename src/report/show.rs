//! The contents of a config as text and as JSON (`mco-rescue/show/v1`), and one file of it (`mco-rescue/show-file/v1`).

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;

use super::wrap_text;
use crate::base::secrets::{self, redacted_arguments, shown_arguments};
use crate::base::ssh_key::describe_key;
use crate::base::text::make_inline;
use crate::config::document::ignition::Unit;
use crate::config::document::{Desired, DesiredFile, MachineConfig, Owner};
use crate::diagnose::recorder::digest::DigestKey;

#[derive(Serialize)]
struct ShowDocument<'a> {
    schema: &'static str,
    name: &'a str,
    pool: Option<&'a str>,
    origin: &'a str,
    digest: &'a str,
    ignition_version: &'a str,
    os_image_url: &'a str,
    extensions_image: &'a str,
    kernel_arguments: Vec<Cow<'a, str>>,
    kernel_type: &'static str,
    extensions: &'a [String],
    fips: bool,
    files: Vec<FileEntry<'a>>,
    units: Vec<ShownUnit<'a>>,
    users: Vec<ShownUser<'a>>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct FileEntry<'a> {
    path: String,
    mode: String,
    user: String,
    group: String,
    size: u64,
    /// `null` for a file that is or contains a secret: a short secret could be guessed from its digest.
    sha256: Option<&'a str>,
    /// For such a file: a digest with the node's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    keyed_digest: Option<String>,
    origin: String,
}

#[derive(Serialize)]
struct ShownUnit<'a> {
    name: &'a str,
    state: &'static str,
    contents: bool,
    dropins: Vec<&'a str>,
}

#[derive(Serialize)]
struct ShownUser<'a> {
    name: &'a str,
    ssh_keys: usize,
    keys: Vec<String>,
    password: bool,
}

/// A file of a config, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownFile {
    /// Absolute path on the node.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Contents.
    pub bytes: Vec<u8>,
}

#[derive(Serialize)]
struct ShowFileDocument<'a> {
    schema: &'static str,
    config: &'a str,
    path: &'a str,
    mode: String,
    size: usize,
    encoding: &'static str,
    contents: Cow<'a, str>,
}

/// Returns a file as JSON (`mco-rescue/show-file/v1`): its contents as text, or in base64 if they are not text.
///
/// # Errors
/// The serializer's error.
pub fn file_to_json(config: &str, file: &ShownFile) -> serde_json::Result<String> {
    let (encoding, contents) = match std::str::from_utf8(&file.bytes) {
        Ok(text) => ("utf-8", Cow::Borrowed(text)),
        Err(_) => ("base64", Cow::Owned(BASE64.encode(&file.bytes))),
    };
    super::pretty(&ShowFileDocument {
        schema: "mco-rescue/show-file/v1",
        config,
        path: &file.path,
        mode: format!("{:04o}", file.mode),
        size: file.bytes.len(),
        encoding,
        contents,
    })
}

/// Returns the config as JSON. With a `key`, secret files have a digest made with it.
pub fn to_json(
    config: &MachineConfig,
    desired: &Desired,
    key: Option<&DigestKey>,
) -> serde_json::Result<String> {
    let file = |file: &'_ DesiredFile| (owner(&file.user), owner(&file.group));
    let files = desired.files.iter().map(|entry| {
        let (user, group) = file(entry);
        let secret = secret_contents(entry);
        let keyed = secret
            .as_ref()
            .zip(key)
            .and_then(|(bytes, key)| Some(key.digest(bytes.as_deref()?)));
        FileEntry {
            path: entry.path.to_string(),
            mode: format!("{:04o}", entry.mode),
            user,
            group,
            size: entry.size,
            sha256: secret.is_none().then_some(&*entry.sha256),
            keyed_digest: keyed,
            origin: entry.place(config),
        }
    });
    let units = desired.units.iter().map(|unit| ShownUnit {
        name: &unit.name,
        state: state(unit),
        contents: unit.text().is_some(),
        dropins: unit
            .dropins
            .iter()
            .map(|dropin| dropin.name.as_str())
            .collect(),
    });
    let users = config.ignition.passwd.users.iter().map(|user| ShownUser {
        name: &user.name,
        ssh_keys: user.ssh_authorized_keys.len(),
        keys: user
            .ssh_authorized_keys
            .iter()
            .map(|key| describe_key(key))
            .collect(),
        password: user
            .password_hash
            .as_deref()
            .is_some_and(|hash| !hash.is_empty()),
    });
    let document = ShowDocument {
        schema: "mco-rescue/show/v1",
        name: &config.name,
        pool: config.pool.as_deref(),
        origin: &config.origin,
        digest: &config.digest,
        ignition_version: &config.ignition.ignition.version,
        os_image_url: &config.os_image_url,
        extensions_image: &config.extensions_image,
        kernel_arguments: shown_arguments(&config.kernel_arguments),
        kernel_type: config.kernel_type.as_str(),
        extensions: &config.extensions,
        fips: config.fips,
        files: files.collect(),
        units: units.collect(),
        users: users.collect(),
        warnings: config.warnings.iter().map(ToString::to_string).collect(),
    };
    super::pretty(&document)
}

/// Returns the bytes of a file that is or contains a secret: `Some(None)` if they cannot be decoded.
fn secret_contents(file: &DesiredFile) -> Option<Option<Vec<u8>>> {
    let bytes = file.contents.bytes().ok();
    let by_path = secrets::reason_of_file(file.path.relative(), Some(file.mode));
    let reason = || match &bytes {
        Some(bytes) => secrets::reason_of_text(&String::from_utf8_lossy(bytes)),
        None => Some("it cannot be decoded"),
    };
    by_path.or_else(reason).map(|_| bytes)
}

fn owner(owner: &Owner) -> String {
    match owner {
        Owner::Id(id) => id.to_string(),
        Owner::Name(name) => name.clone(),
    }
}

fn state(unit: &Unit) -> &'static str {
    match (unit.mask, unit.enabled) {
        (Some(true), _) => "masked",
        (_, Some(true)) => "enabled",
        (_, Some(false)) => "disabled",
        (_, None) => "preset",
    }
}

/// Returns the config as text.
pub fn to_text(config: &MachineConfig, desired: &Desired) -> String {
    let mut out = String::new();
    let or_none = |text: &str| match text {
        "" => "(none)".to_owned(),
        text => text.to_owned(),
    };
    let list = |items: &[String]| or_none(&items.join(" "));
    for (label, value) in [
        ("Name", config.name.clone()),
        (
            "Pool",
            config.pool.clone().unwrap_or_else(|| "(unknown)".into()),
        ),
        ("Ignition", or_none(&config.ignition.ignition.version)),
        ("OS image", or_none(&config.os_image_url)),
        (
            "Kernel",
            format!(
                "{}, arguments: {}",
                config.kernel_type.as_str(),
                redacted_arguments(&list(&config.kernel_arguments))
            ),
        ),
        ("Extensions", list(&config.extensions)),
        ("FIPS", if config.fips { "on" } else { "off" }.to_owned()),
    ] {
        out.push_str(&format!("{label:<12}{}\n", make_inline(&value)));
    }
    out.push_str(&files(config, desired));
    out.push_str(&units(desired));
    out.push_str(&users(config));
    for warning in &config.warnings {
        out.push_str(&wrap_text(&format!("warning: {warning}"), 0));
    }
    out
}

fn files(config: &MachineConfig, desired: &Desired) -> String {
    let mut out = format!(
        "\nFiles ({}; # is the index in spec.config.storage.files):\n    #  mode  owner      size  path\n",
        desired.files.len()
    );
    for file in &desired.files {
        let place = file.place(config);
        let index = place
            .rsplit('[')
            .next()
            .unwrap_or_default()
            .trim_end_matches(']');
        let owner = make_inline(&format!("{}:{}", owner(&file.user), owner(&file.group)));
        out.push_str(&format!(
            "  {index:>3}  {:04o}  {owner:<8}{:>7}  {}\n",
            file.mode,
            file.size,
            make_inline(&file.path.to_string())
        ));
    }
    out
}

fn units(desired: &Desired) -> String {
    let mut out = format!("\nUnits ({}):\n", desired.units.len());
    for unit in &desired.units {
        let contents = if unit.text().is_some() {
            ""
        } else {
            "  (no contents)"
        };
        out.push_str(&format!(
            "  {:<9} {}{contents}\n",
            state(unit),
            make_inline(&unit.name)
        ));
        for dropin in &unit.dropins {
            let empty = if dropin.text().is_some() {
                ""
            } else {
                "  (empty)"
            };
            out.push_str(&format!(
                "            + {}{empty}\n",
                make_inline(&dropin.name)
            ));
        }
    }
    out
}

fn users(config: &MachineConfig) -> String {
    let users = &config.ignition.passwd.users;
    let mut out = format!("\nUsers ({}):\n", users.len());
    for user in users {
        let password = if user.password_hash.as_deref().unwrap_or_default().is_empty() {
            "no"
        } else {
            "a"
        };
        let keys = user.ssh_authorized_keys.len();
        let noun = if keys == 1 { "key" } else { "keys" };
        out.push_str(&format!(
            "  {}: {keys} SSH {noun}, {password} password hash\n",
            make_inline(&user.name)
        ));
        for line in user.ssh_authorized_keys.iter().flat_map(|key| key.lines()) {
            out.push_str(&wrap_text(&describe_key(line), 4));
        }
    }
    out
}
