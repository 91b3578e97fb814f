//! The archive of `doctor --bundle`: its files, without secrets, and a page made from them.

mod gather;

pub use gather::gather_pieces;

use std::io;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use super::html::node::{NodeDocuments, to_html};
use crate::base::secrets::{self, redacted_url, redacted_words};
use crate::base::text::{make_printable, spelled_out};
use crate::node::Machine;

/// One file of the archive.
#[derive(Debug)]
pub struct BundlePiece {
    name: &'static str,
    what: &'static str,
    text: String,
}

impl BundlePiece {
    /// Returns a piece. If its text is not available, it contains the reason.
    pub fn new(name: &'static str, what: &'static str, text: Result<String>) -> Self {
        let text = text.unwrap_or_else(|error| format!("(unavailable: {error:#})\n"));
        Self { name, what, text }
    }
}

/// The archive, and its list of contents.
#[derive(Debug)]
pub struct Bundle {
    /// The list, for people.
    pub list: String,
    /// The archive.
    pub archive: Vec<u8>,
}

/// The directory of all files in the archive.
const FOLDER: &str = "mco-rescue-bundle";

/// Packs the pieces without secrets, with a page and a list in front of them.
///
/// # Errors
/// The archive cannot be made.
pub fn pack_bundle(
    mut pieces: Vec<BundlePiece>,
    machine: Option<&Machine>,
    now: u64,
) -> io::Result<Bundle> {
    for piece in &mut pieces {
        piece.text = redacted_piece(&piece.text);
    }
    let page = page(machine, &pieces, now);
    let page = BundlePiece::new("report.html", "all of it as a page for a browser", Ok(page));
    pieces.insert(0, page);
    let list = list(&pieces);
    pieces.insert(0, BundlePiece::new("LIST", "this list", Ok(list.clone())));
    let archive = pack(&pieces, now)?;
    Ok(Bundle { list, archive })
}

/// Returns the page made from the other pieces; a piece that is not a document is missing on it.
fn page(machine: Option<&Machine>, pieces: &[BundlePiece], now: u64) -> String {
    let document = |name: &str| -> Option<Value> {
        let piece = pieces.iter().find(|piece| piece.name == name)?;
        serde_json::from_str(&piece.text).ok()
    };
    let (doctor, status) = (document("doctor.json"), document("status.json"));
    let (history, diff) = (document("history.json"), document("diff.json"));
    to_html(&NodeDocuments {
        name: machine.and_then(|machine| machine.name.as_deref()),
        system: machine.map(|machine| machine.system.as_str()),
        now,
        doctor: doctor.as_ref(),
        status: status.as_ref(),
        history: history.as_ref(),
        diff: diff.as_ref(),
    })
}

/// Returns a piece that may leave the node: without secrets, and without characters that hide or forge text.
fn redacted_piece(text: &str) -> String {
    match redacted_document(text) {
        Some(document) => spelled_out(&document),
        None => make_printable(&redacted_words(text)),
    }
}

/// Returns a document without secrets, and without logins and queries in URLs.
fn redacted_document(text: &str) -> Option<String> {
    fn redact(value: &mut Value) {
        match value {
            Value::String(text) => *text = redacted_text(text),
            Value::Array(all) => all.iter_mut().for_each(redact),
            Value::Object(all) => all.values_mut().for_each(redact),
            _ => {}
        }
    }
    let mut value: Value = serde_json::from_str(text).ok()?;
    redact(&mut value);
    Some(serde_json::to_string_pretty(&value).ok()? + "\n")
}

fn redacted_text(text: &str) -> String {
    let words = redacted_words(text);
    let words = words.split_inclusive(char::is_whitespace);
    words.map(redacted_word).collect()
}

/// Returns a word without login and query if it is a URL; trailing white space is preserved.
fn redacted_word(word: &str) -> String {
    let address = word.trim_end();
    if address.contains("://") {
        redacted_url(address) + word.strip_prefix(address).unwrap_or_default()
    } else {
        word.to_owned()
    }
}

/// Returns a text from a file or a program, line by line, without secrets.
pub fn foreign_text(text: &str) -> String {
    let text = secrets::redact_secrets(text);
    text.split_inclusive('\n').map(redacted_text).collect()
}

fn list(pieces: &[BundlePiece]) -> String {
    let line = |piece: &BundlePiece| {
        format!(
            "{:<26}{:>9}  {}\n",
            piece.name,
            piece.text.len(),
            piece.what
        )
    };
    pieces.iter().map(line).collect()
}

/// Returns the archive.
fn pack(pieces: &[BundlePiece], now: u64) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for piece in pieces {
        let mut header = tar::Header::new_gnu();
        header.set_size(piece.text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now);
        let name = format!("{FOLDER}/{}", piece.name);
        archive.append_data(&mut header, name, piece.text.as_bytes())?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;

    #[test]
    fn a_bundle_has_a_list_a_page_and_no_secret() {
        let pieces = vec![
            BundlePiece::new(
                "said.txt",
                "what a program said",
                Ok("from https://me:word@host/x?token=1\n".to_owned()),
            ),
            BundlePiece::new("lost.txt", "nothing", Err(anyhow::anyhow!("it is gone"))),
        ];
        let bundle = pack_bundle(pieces, None, 7).unwrap();
        assert_eq!(bundle.list.lines().count(), 3);
        let mut texts = Vec::new();
        let mut archive = tar::Archive::new(GzDecoder::new(bundle.archive.as_slice()));
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            texts.push((name, text));
        }
        let names: Vec<&str> = texts.iter().map(|(name, _)| name.as_str()).collect();
        let wanted = ["LIST", "report.html", "said.txt", "lost.txt"];
        assert_eq!(names, wanted.map(|name| format!("{FOLDER}/{name}")));
        assert_eq!(texts[0].1, bundle.list);
        assert!(!texts[2].1.contains("word") && !texts[2].1.contains("token=1"));
        assert_eq!(texts[3].1, "(unavailable: it is gone)\n");
    }
}
