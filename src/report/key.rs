//! The result of `apply --key`, as text and as JSON (`mco-rescue/key/v1`).

use serde::Serialize;

use super::wrap_text;
use crate::base::invocation::{is_other_root, mco_rescue, reboot_command};
use crate::base::ssh_key::PublicKey;
use crate::base::text::make_inline;

#[derive(Serialize)]
struct KeyDocument<'a> {
    schema: &'static str,
    /// Its type, such as `ssh-ed25519`.
    kind: &'a str,
    /// The fingerprint, as `ssh-keygen -lf` prints it.
    fingerprint: &'a str,
    comment: &'a str,
    /// Path of the file that contains it.
    path: &'a str,
    /// Number of steps; 0 if the key was already present.
    steps: usize,
}

/// Returns the result as JSON.
pub fn to_json(key: &PublicKey, path: &str, steps: usize) -> serde_json::Result<String> {
    let document = KeyDocument {
        schema: "mco-rescue/key/v1",
        kind: &key.kind,
        fingerprint: &key.fingerprint,
        comment: &key.comment,
        path,
        steps,
    };
    super::pretty(&document)
}

/// Returns the result as text.
pub fn to_text(key: &PublicKey, path: &str, steps: usize) -> String {
    let key = make_inline(&key.to_string());
    if steps == 0 {
        return format!(
            "core has this key already:\n  {key}\n  {}\n",
            make_inline(path)
        );
    }
    let then = format!(
        "verify reports it as a difference from the config; {} removes it.",
        mco_rescue("rollback")
    );
    let login = if is_other_root() {
        format!("Next: {}\nthen: ssh core@NODE\n", reboot_command())
    } else {
        "Next: ssh core@NODE\n".to_owned()
    };
    format!(
        "Added for core:\n  {key}\n  {}\n{}{login}",
        make_inline(path),
        wrap_text(&then, 0)
    )
}
