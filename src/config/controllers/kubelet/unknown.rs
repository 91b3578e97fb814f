//! Keys in `spec.kubeletConfig` that are not fields: the operator drops them silently.

use serde_json::Value;

use super::fields::{KUBELET, KubeletKind, Struct};
use crate::config::controllers::nearest::hint_nearest;

/// Maximum number of unknown keys that are listed.
const MOST: usize = 10;

/// Returns one sentence for each unknown key.
pub(super) fn note_unknown_fields(config: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    look_at(config, &KUBELET, "spec.kubeletConfig", &mut notes);
    notes.truncate(MOST);
    notes
}

fn look_at(value: &Value, of: &'static Struct, path: &str, notes: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        let Some(field) = of.find_field(key) else {
            let hint = hint_nearest(key, of.fields.iter().map(|field| field.name));
            notes.push(format!(
                "{path} is not a field of the kubelet's configuration: the operator drops it{hint}"
            ));
            continue;
        };
        match (&field.kind, value) {
            (KubeletKind::Struct(of), _) => look_at(value, of, &path, notes),
            (KubeletKind::List(KubeletKind::Struct(of), _), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    look_at(item, of, &format!("{path}[{index}]"), notes);
                }
            }
            _ => {}
        }
    }
}
