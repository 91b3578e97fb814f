//! `registries.d`: the locations of signatures (containers-registries.d(5)). Every pull reads each file, and a single invalid
//! file makes all pulls fail. The locations themselves are not used here.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::base::paths;
use crate::base::reason::Reason;
use crate::config::document::yaml;
use crate::host::root::{EntryType, Root, RootError, RootPath};

/// An invalid file, because of which the containers tools refuse every pull.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("reading {file}: {words}; correct it, nothing can be pulled until then")]
pub struct LookasideError {
    /// Path of the file.
    pub file: String,
    words: Reason,
}

/// Ending of the files that are read.
pub const LOOKASIDE_ENDING: &str = ".yaml";
/// Keys of a namespace with a text value.
const TEXTS: [&str; 4] = [
    "lookaside",
    "lookaside-staging",
    "sigstore",
    "sigstore-staging",
];
/// A key with a boolean value.
const SWITCH: &str = "use-sigstore-attachments";

/// Returns the files of a root, by path and text.
///
/// # Errors
/// A file cannot be read.
pub fn read_lookaside_files(root: &Root) -> Result<Vec<(String, String)>, RootError> {
    let folder = RootPath::fixed(paths::LOOKASIDE);
    let mut files = Vec::new();
    for (name, kind) in root.list_types(&folder)? {
        let is_read = name.ends_with(LOOKASIDE_ENDING) && kind != EntryType::Directory;
        let Some(path) = folder.join(&name).ok().filter(|_| is_read) else {
            continue;
        };
        if let Some(bytes) = root.read(&path)? {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            files.push((path.to_string(), text));
        }
    }
    Ok(files)
}

/// Checks files, given by path and text, like the containers tools.
///
/// # Errors
/// The first file that the tools refuse.
pub fn check_lookaside(files: &[(String, String)]) -> Result<(), LookasideError> {
    let mut known: BTreeMap<String, &str> = BTreeMap::new();
    for (file, text) in files {
        let refuse = |words: Reason| LookasideError {
            file: file.clone(),
            words,
        };
        if is_blank(text) {
            continue;
        }
        let value = yaml::parse_yaml(text).map_err(|error| refuse(Reason::from_error(error)))?;
        for name in check_file(&value).map_err(refuse)? {
            if let Some(first) = known.insert(name.clone(), file) {
                let words = format!("{name} is in {first} too, and may be in one file only");
                return Err(refuse(words.into()));
            }
        }
    }
    Ok(())
}

/// Returns true for a text that has only empty lines and comments.
fn is_blank(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    lines.all(|line| line.is_empty() || line.starts_with('#') || line == "---")
}

/// Returns the namespaces that a file defines.
fn check_file(value: &Value) -> Result<Vec<String>, Reason> {
    let Some(value) = value.as_object() else {
        return match value {
            Value::Null => Ok(Vec::new()),
            _ => Err(
                "it is not a map with docker: or default-docker:; TOML belongs in registries.conf.d"
                    .into(),
            ),
        };
    };
    let mut names = Vec::new();
    if let Some(default) = value
        .get("default-docker")
        .filter(|default| !default.is_null())
    {
        check_namespace("default-docker", default)?;
        names.push("default-docker".to_owned());
    }
    match value.get("docker") {
        None | Some(Value::Null) => {}
        Some(Value::Object(docker)) => {
            for (name, namespace) in docker {
                check_namespace(name, namespace)?;
                names.push(format!("docker: {name}"));
            }
        }
        Some(_) => return Err("docker: is not a map of registries".into()),
    }
    Ok(names)
}

fn check_namespace(name: &str, namespace: &Value) -> Result<(), Reason> {
    let fields = match namespace {
        Value::Null => return Ok(()),
        Value::Object(fields) => fields,
        _ => return Err(format!("{name}: is not a map of settings").into()),
    };
    for key in TEXTS {
        if fields
            .get(key)
            .is_some_and(|value| value.is_object() || value.is_array())
        {
            return Err(format!("{name}: {key} is not text").into());
        }
    }
    match fields.get(SWITCH) {
        None | Some(Value::Null | Value::Bool(_)) => Ok(()),
        Some(_) => Err(format!("{name}: {SWITCH} is neither true nor false").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(texts: &[&str]) -> String {
        let files = texts.iter().enumerate();
        let files: Vec<(String, String)> = files
            .map(|(index, text)| (format!("/{index}.yaml"), (*text).to_owned()))
            .collect();
        check_lookaside(&files)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn files_of_the_right_form_are_taken() {
        for text in [
            "",
            "# nothing\n",
            "docker:\n",
            "docker:\n  quay.example:\n",
            "default-docker:\n  lookaside: https://a.example\n",
            "docker:\n  quay.example:\n    sigstore: file:///a\n    use-sigstore-attachments: true\n    other: 1\n",
        ] {
            assert_eq!(said(&[text]), "", "{text}");
        }
    }

    #[test]
    fn files_that_the_tools_refuse_are_named() {
        for (texts, words) in [
            (
                &["unqualified-search-registries = ['a']\n"][..],
                "TOML belongs in",
            ),
            (&["docker: [a]\n"], "not a map of registries"),
            (&["docker:\n  a: b\n"], "not a map of settings"),
            (
                &["docker:\n  a:\n    use-sigstore-attachments: maybe\n"],
                "neither true nor false",
            ),
            (&["docker:\n  a:\n    lookaside: [b]\n"], "not text"),
            (&["docker: {\n"], "reading /0.yaml"),
            (
                &["docker:\n  a:\n", "docker:\n  a:\n"],
                "reading /1.yaml: docker: a is in /0.yaml too",
            ),
            (
                &["default-docker: {}\n", "default-docker: {}\n"],
                "default-docker is in /0.yaml too",
            ),
        ] {
            let error = said(texts);
            assert!(error.contains(words), "{texts:?}: {error}");
        }
    }
}
