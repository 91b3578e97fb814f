//! `apply --key`: what became of the key, as text and as JSON (`mco-rescue/key/v1`).

use serde::Serialize;

use super::wrap;
use crate::invocation::mco_rescue;
use crate::ssh_key::PublicKey;
use crate::text::inline;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    /// Its type, such as `ssh-ed25519`.
    kind: &'a str,
    /// As `ssh-keygen -lf` prints it.
    fingerprint: &'a str,
    comment: &'a str,
    /// The file that it is in.
    path: &'a str,
    /// Steps that were taken; none where the key was there already.
    steps: usize,
}

/// For programs.
pub fn json(key: &PublicKey, path: &str, steps: usize) -> serde_json::Result<String> {
    let document = Document {
        schema: "mco-rescue/key/v1",
        kind: &key.kind,
        fingerprint: &key.fingerprint,
        comment: &key.comment,
        path,
        steps,
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

/// For people.
pub fn text(key: &PublicKey, path: &str, steps: usize) -> String {
    let key = inline(&key.to_string());
    if steps == 0 {
        return format!("core has this key already:\n  {key}\n  {}\n", inline(path));
    }
    let then = format!(
        "verify reports it as a difference from the config; {} takes it back.",
        mco_rescue("rollback")
    );
    format!(
        "Added for core:\n  {key}\n  {}\n{}Next: ssh core@NODE\n",
        inline(path),
        wrap(&then, 0)
    )
}
