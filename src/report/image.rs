//! The images of an OSTree repository, as text and as JSON (`mco-rescue/images/v1`), and the end of an export.

use serde::Serialize;

use super::wrap_text;
use crate::base::invocation::shell_word;
use crate::base::text::{count_noun, make_inline};

/// An image in a repository.
#[derive(Debug, Clone, Serialize)]
pub struct ImageEntry {
    /// Name with the digest.
    pub image: String,
    /// Checksum of its merge commit, which differs between nodes.
    pub commit: String,
    /// Checksum of its tree, which is the same on every node; `null` if the image cannot be used.
    pub content_checksum: Option<String>,
    /// Checksum of its layers, which is the same on every node; `null` if the image cannot be used.
    pub layers_checksum: Option<String>,
    /// Architecture in Go's names; `null` if unknown.
    pub architecture: Option<String>,
    /// The reason why the image cannot be used; `null` if it can.
    pub problem: Option<String>,
}

/// The images of a repository.
#[derive(Debug, Clone, Serialize)]
pub struct ImagesDocument {
    /// `mco-rescue/images/v1`.
    pub schema: &'static str,
    /// Name of the node; `null` for a medium.
    pub node: Option<String>,
    /// URL of the API server of its cluster; `null` for a medium, and if unknown.
    pub api_server: Option<String>,
    /// Where the repository is.
    pub repository: String,
    /// By name.
    pub images: Vec<ImageEntry>,
}

/// Returns the images as JSON.
pub fn to_json(document: &ImagesDocument) -> serde_json::Result<String> {
    super::pretty(document)
}

/// Returns the images as text.
pub fn to_text(document: &ImagesDocument) -> String {
    let mut out = format!("Repository  {}\n", make_inline(&document.repository));
    if document.images.is_empty() {
        return out + "\nNo image was imported into it from a container registry.\n";
    }
    for image in &document.images {
        out.push('\n');
        out += &wrap_text(&image.image, 0);
        out += &format!("  commit        {}\n", image.commit);
        if let Some(content) = &image.content_checksum {
            out += &format!("  content       {content}\n");
        }
        if let Some(architecture) = &image.architecture {
            out += &format!("  architecture  {}\n", make_inline(architecture));
        }
        if let Some(problem) = &image.problem {
            out += &wrap_text(problem, 2);
        }
    }
    out
}

/// The end of an export.
#[derive(Debug, Clone, Serialize)]
pub struct ExportDone<'a> {
    /// `mco-rescue/exported/v1`.
    pub schema: &'static str,
    /// Name of the image.
    pub image: &'a str,
    /// Checksum of its tree.
    #[serde(rename = "content_checksum")]
    pub content: &'a str,
    /// Where it was written.
    #[serde(rename = "destination")]
    pub target: &'a str,
    /// Number of objects in the export.
    pub objects: usize,
    /// Number of objects that were left out.
    pub left_out: usize,
    /// Bytes of the objects.
    pub bytes: u64,
}

/// Returns the end of an export as JSON.
pub fn export_json(done: &ExportDone<'_>) -> serde_json::Result<String> {
    super::pretty(done)
}

/// Returns the report about an export.
pub fn export_text(done: &ExportDone<'_>) -> String {
    let mut out = wrap_text(&format!("Exported {}", done.image), 0);
    out += &format!("Content   {}\n", done.content);
    let left_out = match done.left_out {
        0 => String::new(),
        count => format!(", without {count} that the receiver has"),
    };
    let objects = format!(
        "{}, {} MB{left_out}",
        count_noun(done.objects, "object"),
        done.bytes.div_ceil(1_000_000)
    );
    out += &format!("Objects   {objects}\n");
    // It is typed on another node, so it has no root.
    out + &format!(
        "Next, on the node that needs it (the medium may have another path there):\n  mco-rescue pivot --os-from {} \\\n    {}\n",
        shell_word(done.target),
        done.image
    )
}
