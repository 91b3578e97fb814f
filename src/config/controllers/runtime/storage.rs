//! `storage.conf`, decoded and re-encoded like the controller does: comments and unknown keys are lost.

use toml::{Table, Value};

use crate::base::reason::Reason;
use crate::config::controllers::toml_text::quote_toml;

/// A key of `[storage.options]`, in the controller's order.
#[derive(Clone, Copy)]
enum Key {
    /// A list of texts, left out if it is empty.
    List(&'static str),
    /// A text, left out if it is empty.
    Text(&'static str),
    /// A number, which is always written.
    Number(&'static str),
    /// A boolean, left out if it is false.
    Flag(&'static str),
}

const STORAGE: [&str; 3] = ["driver", "runroot", "graphroot"];
const OPTIONS: [Key; 14] = [
    Key::List("additionalimagestores"),
    Key::Text("imagestore"),
    Key::List("additionallayerstores"),
    Key::Text("size"),
    Key::Text("remap-uids"),
    Key::Text("remap-gids"),
    Key::Text("ignore_chown_errors"),
    Key::Number("force_mask"),
    Key::Text("remap-user"),
    Key::Text("remap-group"),
    Key::Text("root-auto-userns-user"),
    Key::Number("auto-userns-min-size"),
    Key::Number("auto-userns-max-size"),
    Key::Flag("disable-volatile"),
];
const OVERLAY: [&str; 8] = [
    "ignore_chown_errors",
    "mountopt",
    "mount_program",
    "size",
    "inodes",
    "skip_mount_home",
    "force_mask",
    "use_composefs",
];

/// The values that an object sets.
#[derive(Debug)]
pub(super) struct StorageChanges<'a> {
    pub(super) size: Option<String>,
    pub(super) layer_stores: &'a [String],
    pub(super) image_stores: &'a [String],
}

impl StorageChanges<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.size.is_none() && self.layer_stores.is_empty() && self.image_stores.is_empty()
    }
}

/// The file's new text.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) text: String,
    /// The file was previously written by the controller.
    pub(super) was_generated: bool,
    /// Keys that the controller does not know, with their tables.
    pub(super) lost: Vec<String>,
}

/// Re-encodes the file with the values of the object.
pub(super) fn rewrite_storage(
    base: &[u8],
    changes: &StorageChanges<'_>,
) -> Result<Rewritten, Reason> {
    let wrong = |error: &dyn std::fmt::Display| format!("error decoding crio config: {error}");
    let text = std::str::from_utf8(base).map_err(|error| wrong(&error))?;
    let root: Table = text
        .parse()
        .map_err(|error: toml::de::Error| wrong(&error.message()))?;
    let storage = subtable(&root, "storage")?;
    let mut options = subtable(&storage, "options")?;
    let overlay = subtable(&options, "overlay")?;
    let was_generated = !text.lines().any(|line| line.trim_start().starts_with('#'));
    if was_generated {
        for key in ["size", "additionalimagestores", "additionallayerstores"] {
            options.remove(key);
        }
    }
    if let Some(size) = &changes.size {
        options.insert("size".to_owned(), size.as_str().into());
    }
    if !changes.image_stores.is_empty() {
        options.insert(
            "additionalimagestores".to_owned(),
            changes.image_stores.to_vec().into(),
        );
    }
    if !changes.layer_stores.is_empty() {
        let with_ref = changes.layer_stores.iter().map(|path| {
            if path.ends_with(":ref") {
                path.clone()
            } else {
                format!("{path}:ref")
            }
        });
        let stores: Vec<String> = with_ref.collect();
        options.insert("additionallayerstores".to_owned(), stores.into());
    }
    Ok(Rewritten {
        text: write_config(&storage, &options, &overlay)?,
        was_generated,
        lost: lost_keys(&storage, &options, &overlay),
    })
}

fn write_config(storage: &Table, options: &Table, overlay: &Table) -> Result<String, Reason> {
    let mut out = String::from("[storage]\n");
    for key in STORAGE {
        let value = text_of(storage, key)?;
        out.push_str(&format!("  {key} = {}\n", quote_toml(value)));
    }
    out.push_str("  [storage.options]\n");
    for key in OPTIONS {
        write_option(&mut out, options, key)?;
    }
    write_texts(
        &mut out,
        "overlay",
        overlay
            .iter()
            .filter(|(key, value)| OVERLAY.contains(&key.as_str()) && value.as_str() != Some("")),
    )?;
    if options.contains_key("pull_options") {
        let pull = subtable(options, "pull_options")?;
        out.push_str("    [storage.options.pull_options]\n");
        let mut keys: Vec<&String> = pull.keys().collect();
        keys.sort();
        for key in keys {
            let value = text_of(&pull, key)?;
            out.push_str(&format!(
                "      {} = {}\n",
                bare_or_quoted(key),
                quote_toml(value)
            ));
        }
    }
    Ok(out)
}

fn write_texts<'a>(
    out: &mut String,
    name: &str,
    entries: impl Iterator<Item = (&'a String, &'a Value)>,
) -> Result<(), Reason> {
    let entries: Table = entries
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if entries.is_empty() {
        return Ok(());
    }
    out.push_str(&format!("    [storage.options.{name}]\n"));
    for key in OVERLAY.iter().filter(|key| entries.contains_key(**key)) {
        out.push_str(&format!(
            "      {key} = {}\n",
            quote_toml(text_of(&entries, key)?)
        ));
    }
    Ok(())
}

fn write_option(out: &mut String, options: &Table, key: Key) -> Result<(), Reason> {
    match key {
        Key::List(name) => {
            let items = match options.get(name) {
                None => return Ok(()),
                Some(Value::Array(items)) => items,
                Some(_) => return Err(wrong_type(name)),
            };
            let items: Option<Vec<String>> = items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect();
            let items = items.ok_or_else(|| wrong_type(name))?;
            if !items.is_empty() {
                out.push_str(&format!("    {name} = {}\n", toml_list(&items)));
            }
        }
        Key::Text(name) => {
            let value = text_of(options, name)?;
            if !value.is_empty() {
                out.push_str(&format!("    {name} = {}\n", quote_toml(value)));
            }
        }
        Key::Number(name) => {
            let value = match options.get(name) {
                None => 0,
                Some(value) => value.as_integer().ok_or_else(|| wrong_type(name))?,
            };
            out.push_str(&format!("    {name} = {value}\n"));
        }
        Key::Flag(name) => match options.get(name) {
            None | Some(Value::Boolean(false)) => {}
            Some(Value::Boolean(true)) => out.push_str(&format!("    {name} = true\n")),
            Some(_) => return Err(wrong_type(name)),
        },
    }
    Ok(())
}

fn lost_keys(storage: &Table, options: &Table, overlay: &Table) -> Vec<String> {
    let known = |key: &str| {
        ["overlay", "pull_options"].contains(&key)
            || OPTIONS.iter().any(|option| match option {
                Key::List(name) | Key::Text(name) | Key::Number(name) | Key::Flag(name) => {
                    *name == key
                }
            })
    };
    let of_storage = storage
        .keys()
        .filter(|key| !STORAGE.contains(&key.as_str()) && *key != "options");
    let of_options = options.keys().filter(|key| !known(key));
    let of_overlay = overlay
        .keys()
        .filter(|key| !OVERLAY.contains(&key.as_str()));
    let mut lost: Vec<String> = of_storage.map(|key| format!("storage.{key}")).collect();
    lost.extend(of_options.map(|key| format!("storage.options.{key}")));
    lost.extend(of_overlay.map(|key| format!("storage.options.overlay.{key}")));
    lost
}

fn wrong_type(key: &str) -> Reason {
    format!("error decoding crio config: {key} has a value of the wrong type").into()
}

/// Returns the table with a name; empty if it is missing.
fn subtable(parent: &Table, key: &str) -> Result<Table, Reason> {
    match parent.get(key) {
        None => Ok(Table::new()),
        Some(Value::Table(table)) => Ok(table.clone()),
        Some(_) => Err(wrong_type(key)),
    }
}

fn text_of<'a>(table: &'a Table, key: &str) -> Result<&'a str, Reason> {
    match table.get(key) {
        None => Ok(""),
        Some(value) => value.as_str().ok_or_else(|| wrong_type(key)),
    }
}

/// Returns a list of texts.
pub(super) fn toml_list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| quote_toml(item)).collect();
    format!("[{}]", items.join(", "))
}

fn bare_or_quoted(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_bare) {
        return key.to_owned();
    }
    quote_toml(key)
}
