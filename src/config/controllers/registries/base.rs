//! The template's files, which the controller extends.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::conf::Conf;
use super::policy_json::{Policy, TEMPLATE};
use super::{NAME_END, NAMESPACE_POLICIES, POLICY_JSON, REGISTRIES_CONF, SEARCH_DROP_IN, SIGSTORE};
use crate::config::controllers::cluster::file_of;
use crate::config::controllers::{Base, GeneratedFile, Note};

/// The template's files of a pool.
#[derive(Debug)]
pub(super) struct Template {
    /// registries.conf.
    pub(super) conf: Conf,
    /// policy.json.
    pub(super) policy: Policy,
    /// The bytes of policy.json.
    pub(super) policy_bytes: Vec<u8>,
}

impl Template {
    /// Reads the files of the template; for a rendered config, reconstructs what the template must have had.
    pub(super) fn read_template(base: &Base, pool: &str, notes: &mut Vec<Note>) -> Self {
        let conf = match base {
            Base::Parts(_) => conf_of_parts(base, pool),
            Base::Rendered(_) => conf_of_rendered(base, pool, notes),
        };
        let policy_bytes = match base {
            Base::Parts(_) => base.find_file(pool, POLICY_JSON),
            Base::Rendered(_) => None,
        };
        let policy_bytes = policy_bytes.unwrap_or_else(|| TEMPLATE.as_bytes().to_vec());
        let policy = Policy::parse(&policy_bytes).unwrap_or_else(Policy::template);
        Self {
            conf,
            policy,
            policy_bytes,
        }
    }
}

fn conf_of_parts(base: &Base, pool: &str) -> Conf {
    let text = base.find_file(pool, REGISTRIES_CONF).map(String::from_utf8);
    let conf = text.and_then(|text| Conf::parse(&text.ok()?).ok());
    conf.map_or_else(Conf::template, |conf| {
        Conf::new(conf.unqualified_search_registries)
    })
}

/// Reconstructs the file from a rendered config. The list of registries for short names is the template's, unless another
/// MachineConfig has the file.
fn conf_of_rendered(base: &Base, pool: &str, notes: &mut Vec<Note>) -> Conf {
    let mut note = |text: &str| {
        let note = Note::inexact(
            String::new(),
            format!("{text} The files of the cluster may differ from these."),
        );
        if !notes.contains(&note) {
            notes.push(note);
        }
    };
    let Some(bytes) = base.find_file(pool, REGISTRIES_CONF) else {
        note("The rendered config has no registries.conf; that of the template is taken.");
        return Conf::template();
    };
    let text = String::from_utf8(bytes).unwrap_or_default();
    let Ok(conf) = Conf::parse(&text) else {
        note(
            "The registries.conf of the rendered config cannot be read; that of the template is taken.",
        );
        return Conf::template();
    };
    let template = template_of(&conf, &text);
    if conf.text() != text && template_text(&conf) != text {
        note(
            "The registries.conf of the rendered config is not in the form of the controller: another MachineConfig has \
             the file, and that file stays in force in the cluster.",
        );
    }
    if template.unqualified_search_registries != Conf::template().unqualified_search_registries {
        note(
            "The list unqualified-search-registries of the rendered config is not the usual one; it is taken for the \
             template's.",
        );
    }
    template
}

/// Returns the file to which the controller added its entries. A file of an older operator keeps its form.
pub(super) fn template_of(conf: &Conf, text: &str) -> Conf {
    if conf.text() == text && template_text(conf) != text {
        return conf.header();
    }
    Conf::new(conf.unqualified_search_registries.clone())
}

/// Returns the text of the template with the search list of a file.
pub(super) fn template_text(conf: &Conf) -> String {
    let list = conf.unqualified_search_registries.iter().flatten();
    let names: Vec<String> = list.map(|name| format!("'{name}'")).collect();
    format!("unqualified-search-registries = [{}]\n", names.join(", "))
}

/// Returns the files of a rendered config at the paths of the controller's files, whatever their origin.
pub fn files_in_force(rendered: &Value) -> BTreeMap<String, Vec<u8>> {
    let files = rendered.pointer("/spec/config/storage/files");
    let files = files.and_then(Value::as_array).into_iter().flatten();
    let paths = files.filter_map(|file| file.get("path")?.as_str());
    let files = paths.filter(|path| is_own_path(path)).filter_map(|path| {
        let bytes = file_of(rendered, path)?;
        Some((path.to_owned(), bytes))
    });
    files.collect()
}

fn is_own_path(path: &str) -> bool {
    let is_namespace = path.starts_with(NAMESPACE_POLICIES) && path.ends_with(".json");
    [REGISTRIES_CONF, POLICY_JSON, SIGSTORE, SEARCH_DROP_IN].contains(&path) || is_namespace
}

/// A file in a rendered config that the generated part owns.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnedFile {
    /// Its path.
    pub path: String,
    /// The template's entry in `storage.files`; `None` if the file is removed with the generated part.
    pub template: Option<Value>,
}

/// Returns the files of a rendered config that `99-POOL-generated-registries` owns. A file that the controller no longer writes
/// gets the template's entry back, or is removed. The template's own files, and files in another form, are left out.
pub fn owned_files(rendered: &Value) -> Vec<OwnedFile> {
    let owned = files_in_force(rendered)
        .into_iter()
        .filter_map(|(path, bytes)| {
            let text = String::from_utf8(bytes).ok();
            let template = match path.as_str() {
                REGISTRIES_CONF => {
                    let text = text?;
                    let conf = Conf::parse(&text).ok()?;
                    let template = template_text(&conf);
                    let is_written = conf.text() == text && template != text;
                    Some(template_entry(&path, is_written.then_some(&template)?))
                }
                POLICY_JSON => {
                    let is_written = text != Some(TEMPLATE.to_owned());
                    Policy::parse_written(text.as_deref().filter(|_| is_written)?)?;
                    Some(template_entry(&path, TEMPLATE))
                }
                _ => None,
            };
            Some(OwnedFile { path, template })
        });
    owned.collect()
}

/// Returns an entry of `storage.files` in the templates' form: percent-encoded, without the key `compression`.
fn template_entry(path: &str, text: &str) -> Value {
    let mut source = "data:,".to_owned();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            source.push(char::from(byte));
        } else {
            source.push_str(&format!("%{byte:02X}"));
        }
    }
    json!({
        "overwrite": true,
        "path": path,
        "contents": { "source": source },
        "mode": 420,
    })
}

/// Adds notes about current entries that the new files lack, usually because an object was not given.
pub(super) fn note_losses(base: &Base, pool: &str, files: &[GeneratedFile], notes: &mut Vec<Note>) {
    let old = |path: &str| match base {
        Base::Rendered(config) => file_of(config, path),
        Base::Parts(_) => file_of(base.find_part(&format!("99-{pool}{NAME_END}"))?, path),
    };
    let new = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.map(|file| file.contents.clone())
    };
    let mut lost = Vec::new();
    for (path, read) in [
        (REGISTRIES_CONF, mirrors_of as fn(&[u8]) -> BTreeSet<String>),
        (POLICY_JSON, policies_of),
    ] {
        let of_new = new(path).map(|bytes| read(&bytes)).unwrap_or_default();
        let of_old = old(path).map(|bytes| read(&bytes)).unwrap_or_default();
        lost.extend(of_old.difference(&of_new).cloned());
    }
    if lost.is_empty() {
        return;
    }
    const SHOWN: usize = 8;
    let more = lost.len().saturating_sub(SHOWN);
    lost.truncate(SHOWN);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let note = Note::inexact(
        String::new(),
        format!(
            "In force now, and made by none of the given objects: {}{more}. If an object of the cluster makes them, give \
             it too",
            lost.join(", ")
        ),
    );
    if !notes.contains(&note) {
        notes.push(note);
    }
}

/// Returns the entries of a registries.conf, in words.
fn mirrors_of(bytes: &[u8]) -> BTreeSet<String> {
    let conf = std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| Conf::parse(text).ok());
    let mut words = BTreeSet::new();
    for entry in conf.into_iter().flat_map(|conf| conf.registry) {
        let scope = entry.scope();
        for mirror in &entry.mirror {
            words.insert(format!("mirror {} of {scope}", mirror.location));
        }
        if entry.blocked {
            words.insert(format!("blocked {scope}"));
        }
        if entry.insecure {
            words.insert(format!("insecure {scope}"));
        }
    }
    words
}

/// Returns the scopes of a policy.json, in words.
fn policies_of(bytes: &[u8]) -> BTreeSet<String> {
    let policy = Policy::parse(bytes).unwrap_or_else(Policy::template);
    let scopes = policy.transports.get("docker").into_iter().flatten();
    let scopes = scopes.map(|(scope, _)| format!("policy for {scope}"));
    scopes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::controllers::registries::conf::SEARCH;

    #[test]
    fn the_template_has_the_usual_list() {
        let text = template_text(&Conf::template());
        let [first, second] = SEARCH;
        assert_eq!(
            text,
            format!("unqualified-search-registries = ['{first}', '{second}']\n")
        );
        let list = Conf::parse(&text).unwrap().unqualified_search_registries;
        assert_eq!(Conf::new(list), Conf::template());
    }
}
