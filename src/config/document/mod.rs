//! Documents: bytes in, values out. No I/O, and no defaults that depend on a node.
//!
//! The modules form a pipeline. Each uses only those above it in this list; a directory counts as one module:
//!
//! - values: `finding`, `modes`, `list`, `text`, `url`, `nullable`, `contents` (data URLs, gzip), [`ignition`] (the model of
//!   spec 3), `schema` (its fields), [`merge`], `layer`, `written` (of spec 2), `machine_config`
//! - decoding, from text to values: `encoding`, `json`, [`yaml`], `fields` (keys of other versions), [`spec2`] (translated to
//!   spec 3), `decode` (an Ignition config of any version), `served` (the MachineConfig inside of one)
//! - rules: `check`
//! - `record`: the daemon's record, parsed like the daemon does
//! - `parse`: a whole document, decoded and checked
//! - queries on a parsed config: `first_boot`, `provenance`, `reconcile`, `unsupported`, `lines`, `desired`, `pointer`

mod check;
mod contents;
mod decode;
mod desired;
mod encoding;
mod fields;
mod finding;
mod first_boot;
pub mod ignition;
mod json;
mod layer;
mod lines;
mod list;
mod machine_config;
pub mod merge;
pub mod modes;
mod nullable;
mod parse;
pub mod pointer;
mod provenance;
mod reconcile;
mod record;
mod schema;
mod served;
pub mod spec2;
mod text;
mod unsupported;
mod url;
mod written;
pub mod yaml;

pub use contents::{Contents, ContentsError, data_url, gunzip_within, has_hash};
pub use decode::require_object;
pub use desired::{
    BareFile, Desired, DesiredDirectory, DesiredFile, DesiredLink, Owner, Undecodable, WrittenPath,
    undecodable_message,
};
pub use encoding::not_text;
pub use finding::{CUT_SHORT, DocumentError, Finding, Severity};
pub use first_boot::{serve_config, with_first_boot_files};
pub use ignition::Ignition;
pub use layer::ConfigLayer;
pub use machine_config::{KernelType, MachineConfig};
pub use parse::{MAX_JSON, parse_and_share, parse_document, parse_layer};
pub use provenance::{brings_kubelet, pool_in};
pub use reconcile::{
    FORCE_FILE, TransitionRefusal, find_refusals, override_of, unconditional_refusals,
};
pub use record::{RecordReading, read_record};
pub use text::Text;

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "the test reads the source files of this room"
)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    /// Returns the modules in the list of the documentation above, in its order.
    fn order() -> BTreeMap<&'static str, usize> {
        let documentation = include_str!("mod.rs").lines();
        let documentation = documentation.take_while(|line| line.starts_with("//!"));
        let list =
            documentation.filter(|line| line.starts_with("//! - ") || line.starts_with("//!   "));
        let names = list.flat_map(|line| line.split('`').skip(1).step_by(2));
        names
            .enumerate()
            .map(|(index, name)| (name, index))
            .collect()
    }

    #[test]
    fn each_file_uses_only_those_above_it() {
        let order = order();
        let room = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/document");
        let mut files = vec![room.clone()];
        let mut seen = 0;
        while let Some(path) = files.pop() {
            if path.is_dir() {
                let entries = std::fs::read_dir(&path).unwrap();
                files.extend(entries.map(|entry| entry.unwrap().path()));
                continue;
            }
            let own = path.strip_prefix(&room).unwrap().with_extension("");
            let own = own.iter().next().unwrap().to_str().unwrap();
            if own == "mod" {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap();
            let outside = path.parent() == Some(&room);
            let prefix = if outside {
                "super::"
            } else {
                "crate::config::document::"
            };
            for part in text.split(prefix).skip(1) {
                let several = part
                    .strip_prefix('{')
                    .map(|part| part.split('}').next().unwrap());
                for name in several.map_or(vec![part], |list| list.split(", ").collect()) {
                    let end = name.find(|c: char| c != '_' && !c.is_alphanumeric());
                    let used = &name[..end.unwrap_or(name.len())];
                    assert!(order[used] < order[own] || used == own, "{own} uses {used}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 50, "{seen}");
    }
}
