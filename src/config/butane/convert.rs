//! Converts the values of the input to Ignition's, one to one except for contents.

use serde_json::Value;

use super::data_url::make_data_url;
use super::out::{Out, to_camel};
use super::report::{Path, Report};
use super::schema::{ButaneKind, CONFIG, RecordSchema};
use super::version::ButaneVersion;
use super::{FilesDir, local_path};

use crate::base::reason::Reason;

/// The state of one translation.
pub(super) struct Translator<'a> {
    /// The version of the input.
    pub(super) version: ButaneVersion,
    /// The local files that the input may use.
    pub(super) files: Option<&'a dyn FilesDir>,
    /// The findings.
    pub(super) report: Report,
    /// True if any contents were compressed.
    pub(super) packed: bool,
}

impl Translator<'_> {
    /// Converts the part of the input that is Ignition's.
    pub(super) fn convert(&mut self, input: &Value) -> Out {
        let top = Path::default();
        let mut config = self.convert_record(&CONFIG, input, &top);
        let version = Out::leaf(&Path::from_keys(&["version"]), self.version.ignition);
        let at = Path::from_keys(&["ignition"]);
        let mut ignition = config.get("ignition").cloned();
        let ignition = ignition.get_or_insert_with(|| Out::map(&at, Vec::new()));
        ignition.set("version", version);
        config.set("ignition", ignition.clone());
        config
    }

    /// Converts a mapping.
    fn convert_record(&mut self, record: &RecordSchema, value: &Value, at: &Path) -> Out {
        let mut out = Out::map(at, Vec::new());
        for field in record.fields_at(self.version.level) {
            if let Some(value) = value.get(field.name).filter(|_| field.is_output) {
                let at = at.with_key(field.name);
                if let Some(new) = self.convert_field(field.name, field.kind, value, &at) {
                    out.set(&to_camel(field.name), new);
                }
            }
        }
        match record.name {
            "Resource" => self.add_contents(&mut out, value, at),
            "PasswdUser" => self.add_local_keys(&mut out, value, at),
            "Unit" | "Dropin" => self.add_local_text(&mut out, value, at),
            _ => {}
        }
        out
    }

    fn convert_field(
        &mut self,
        name: &str,
        kind: ButaneKind,
        value: &Value,
        at: &Path,
    ) -> Option<Out> {
        match kind {
            ButaneKind::Record(record) => Some(self.convert_record(record, value, at)),
            ButaneKind::Records(record) => {
                let items = value.as_array().into_iter().flatten().enumerate();
                let items = items
                    .map(|(index, item)| self.convert_record(record, item, &at.with_index(index)));
                Some(Out::list(at, items.collect()))
            }
            ButaneKind::Texts(_) => {
                let items = value.as_array().into_iter().flatten().enumerate();
                let items =
                    items.map(|(index, item)| Out::leaf(&at.with_index(index), item.clone()));
                Some(Out::list(at, items.collect()))
            }
            // Go omits a zero in a number field that is not a pointer.
            ButaneKind::Number if name == "number" && value == 0 => None,
            _ => Some(Out::leaf(at, value.clone())),
        }
    }

    /// Reads a local file of the input.
    ///
    /// # Errors
    /// Butane's message.
    pub(super) fn read_local(&self, local: &str) -> Result<Vec<u8>, Reason> {
        let dir = self.files.ok_or(local_path::NO_FILES_DIR)?;
        let path = local_path::path_within(local).ok_or(local_path::ESCAPE)?;
        dir.read_file(&path)
    }

    /// Adds `inline` and `local` of a resource.
    fn add_contents(&mut self, out: &mut Out, value: &Value, at: &Path) {
        if let Some(local) = value.get("local").and_then(Value::as_str) {
            let at = at.with_key("local");
            match self.read_local(local) {
                Ok(contents) => self.set_contents(out, &contents, &at),
                Err(message) => return self.report.add_error(at, message.to_string()),
            }
        }
        if let Some(inline) = value.get("inline").and_then(Value::as_str) {
            self.set_contents(out, inline.as_bytes(), &at.with_key("inline"));
        }
    }

    /// Sets the source of a resource, and its compression unless the user gave one.
    pub(super) fn set_contents(&mut self, out: &mut Out, contents: &[u8], from: &Path) {
        let own = out
            .text_at("compression")
            .is_some_and(|text| !text.is_empty());
        let url = make_data_url(contents, !own && self.version.may_compress());
        self.packed |= url.packed;
        out.set("source", Out::leaf(from, url.url));
        if !own {
            let compression = if url.packed { "gzip" } else { "" };
            out.set("compression", Out::leaf(from, compression));
        }
    }

    /// Adds `ssh_authorized_keys_local` of a user: one key a line.
    fn add_local_keys(&mut self, out: &mut Out, value: &Value, at: &Path) {
        let list = value.get("ssh_authorized_keys_local");
        let list = list
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        if list.is_empty() {
            return;
        }
        let at = at.with_key("ssh_authorized_keys_local");
        if self.files.is_none() {
            return self.report.add_error(at, local_path::NO_FILES_DIR);
        }
        for (index, file) in list.iter().enumerate() {
            let at = at.with_index(index);
            let text = match self.read_local(file.as_str().unwrap_or_default()) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(message) => {
                    self.report.add_error(at, message.to_string());
                    continue;
                }
            };
            let lines = text
                .split('\n')
                .map(|line| line.strip_suffix('\r').unwrap_or(line));
            let keys = lines.filter(|line| !line.is_empty());
            let keys: Vec<Out> = keys.map(|line| Out::leaf(&at, line)).collect();
            if let Some(all) = out.list_mut("sshAuthorizedKeys", &at) {
                all.extend(keys);
            }
        }
    }

    /// Adds `contents_local` of a unit or a drop-in.
    fn add_local_text(&mut self, out: &mut Out, value: &Value, at: &Path) {
        let local = value.get("contents_local").and_then(Value::as_str);
        let Some(local) = local.filter(|local| !local.is_empty()) else {
            return;
        };
        let at = at.with_key("contents_local");
        match self.read_local(local) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                out.set("contents", Out::leaf(&at, text));
            }
            Err(message) => self.report.add_error(at, message.to_string()),
        }
    }
}
