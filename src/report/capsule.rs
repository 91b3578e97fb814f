//! Capsules, as text and as JSON (`mco-rescue/capsule/v1`, `capsule-made/v1`, `capsule-check/v1`).

use serde::Serialize;

use super::wrap_text;
use crate::base::text::{count_noun, make_inline};
use crate::change::capsule::document::CapsuleDocument;
use crate::change::capsule::opened::CapsuleFacts;

/// A capsule that was just made.
#[derive(Debug, Clone, Serialize)]
pub struct MadeCapsule {
    /// `mco-rescue/capsule-made/v1`.
    pub schema: &'static str,
    /// Its directory.
    pub directory: String,
    /// Fingerprint of the key that signed it; `null` if it is not signed yet.
    pub key: Option<String>,
    /// The command that signs it; `null` if it is signed.
    pub sign: Option<String>,
    /// The list.
    pub capsule: CapsuleDocument,
}

/// A capsule, not verified.
#[derive(Debug, Clone, Serialize)]
pub struct CapsuleView {
    /// `mco-rescue/capsule/v1`.
    pub schema: &'static str,
    /// Its directory.
    pub directory: String,
    /// Its signature.
    pub signature: SignatureView,
    /// The list.
    pub capsule: CapsuleDocument,
}

/// The signature of a capsule, not verified.
#[derive(Debug, Clone, Serialize)]
pub struct SignatureView {
    /// Fingerprint of the key that it names.
    pub key: Option<String>,
    /// The reason why it is not a signature.
    pub problem: Option<String>,
}

/// A capsule whose signature was verified, and its files.
#[derive(Debug, Clone, Serialize)]
pub struct CapsuleCheck {
    /// `mco-rescue/capsule-check/v1`.
    pub schema: &'static str,
    /// Its directory.
    pub directory: String,
    /// Who signed it.
    pub signed: CapsuleFacts,
    /// Number of its files.
    pub files: usize,
    /// Number of its images.
    #[serde(skip)]
    pub images: usize,
    /// Files that are missing or differ.
    pub problems: Vec<String>,
}

/// Returns a new capsule as JSON.
pub fn made_json(made: &MadeCapsule) -> serde_json::Result<String> {
    super::pretty(made)
}

/// Returns the report about a new capsule.
pub fn made_text(made: &MadeCapsule) -> String {
    let mut out = format!("Capsule   {}\n", make_inline(&made.directory));
    out += &list(&made.capsule);
    if let Some(key) = &made.key {
        out += &format!("Signed by {key}\n");
    }
    if let Some(sign) = &made.sign {
        out += "Not signed yet. On the machine with the key, beside a copy of capsule.json, then copy\n\
                capsule.json.sig back:\n";
        out += &format!("  {sign}\n");
    }
    out
}

/// Returns a capsule as JSON.
pub fn view_json(view: &CapsuleView) -> serde_json::Result<String> {
    super::pretty(view)
}

/// Returns a capsule as text.
pub fn view_text(view: &CapsuleView) -> String {
    let mut out = format!("Capsule   {}, NOT verified\n", make_inline(&view.directory));
    out += &list(&view.capsule);
    match (&view.signature.key, &view.signature.problem) {
        (Some(key), _) => out += &format!("Signature by {key}\n"),
        (None, problem) => {
            let words = problem.as_deref().unwrap_or("unknown");
            out += &wrap_text(&format!("Signature {words}"), 0);
        }
    }
    out.push('\n');
    for config in &view.capsule.configs {
        out += &format!("config  {}\n", config.name);
    }
    for image in &view.capsule.images {
        out += &wrap_text(&format!("image   {}", image.reference), 0);
        if let Some(content) = &image.content_checksum {
            out += &format!("        content {content}\n");
        }
    }
    for file in &view.capsule.files {
        out += &format!("{:>12}  {}\n", file.size, file.path);
    }
    out
}

fn list(capsule: &CapsuleDocument) -> String {
    let any = |list: &[String], what: &str| {
        if list.is_empty() {
            format!("every {what}")
        } else {
            format!("{what} {}", list.join(", "))
        }
    };
    let cluster: Vec<String> = capsule.cluster.iter().cloned().collect();
    let scope = [
        any(&cluster, "cluster"),
        any(&capsule.pools, "pool"),
        any(&capsule.nodes, "node"),
    ];
    let mut out = format!("Number    {}\n", capsule.sequence);
    out += "For       ";
    out += wrap_text(&scope.join("; "), 10).trim_start();
    let end = capsule.not_after.as_deref().unwrap_or("no end");
    out += &format!("Until     {end}\n");
    let counts = [
        count_noun(capsule.files.len(), "file"),
        count_noun(capsule.configs.len(), "config"),
        count_noun(capsule.images.len(), "image"),
    ];
    out + &format!("Holds     {}\n", counts.join(", "))
}

/// Returns the verdict on a capsule as JSON.
pub fn check_json(check: &CapsuleCheck) -> serde_json::Result<String> {
    super::pretty(check)
}

/// Returns the verdict on a capsule as text.
pub fn check_text(check: &CapsuleCheck) -> String {
    let mut out = format!("Capsule   {}\n", make_inline(&check.directory));
    out += "Signed by ";
    out += wrap_text(&check.signed.to_string(), 10).trim_start();
    let files = count_noun(check.files, "file");
    if check.images > 0 {
        let images = count_noun(check.images, "image");
        out += &format!("Images    {images}, compared when a node imports it\n");
    }
    match check.problems.len() {
        0 => out += &format!("Files     {files}, all as signed\n"),
        count => {
            out += &format!("Files     {count} of {files} not as signed\n");
            for problem in &check.problems {
                out += &wrap_text(problem, 10);
            }
        }
    }
    out
}
