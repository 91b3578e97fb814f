//! Documents that are not UTF-8 text: compressed, or in another encoding.

use std::str::Utf8Error;

use super::finding::CUT_SHORT;

/// First bytes of files that are often mistaken for a document, each with the command that converts it.
const KINDS: [(&[u8], &str); 7] = [
    (b"\xff\xfe", UTF_16),
    (b"\xfe\xff", UTF_16),
    (
        b"\x1f\x8b",
        "packed with gzip; unpack it first: gunzip -c FILE > NEW",
    ),
    (
        b"\x28\xb5\x2f\xfd",
        "packed with zstd; unpack it first: zstd -dc FILE > NEW",
    ),
    (
        b"\xfd7zXZ",
        "packed with xz; unpack it first: xz -dc FILE > NEW",
    ),
    (
        b"BZh",
        "packed with bzip2; unpack it first: bunzip2 -c FILE > NEW",
    ),
    (b"PK\x03\x04", "a zip archive; unpack it first: unzip FILE"),
];
/// The output of `>` in a Windows shell.
const UTF_16: &str = "UTF-16, not UTF-8 text, as PowerShell writes with `>`; convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW";

/// Explains why a document is not UTF-8 text.
pub fn not_text(bytes: &[u8], error: Utf8Error) -> String {
    let known = KINDS.iter().find(|(start, _)| bytes.starts_with(start));
    if let Some((_, words)) = known {
        return format!("the document is {words}");
    }
    let before = bytes.iter().take(error.valid_up_to());
    let line = 1 + before.filter(|byte| **byte == b'\n').count();
    match error.error_len() {
        None => format!("line {line}: ends within a letter; {CUT_SHORT}"),
        Some(_) => format!("line {line}: not UTF-8 text; get it again: oc get mc NAME -o yaml"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_text_is_reported_with_the_way_to_make_it_one() {
        let table: [(&[u8], &str); 6] = [
            (b"a: 1\nb: \xc3", CUT_SHORT),
            (b"\xff\xfea\0:\0", "iconv -f UTF-16"),
            (b"\xfe\xff\0a", "iconv -f UTF-16"),
            (b"\x1f\x8b\x08\0", "gunzip -c FILE"),
            (b"PK\x03\x04\xff", "unzip FILE"),
            (b"a: 1\nb: \xff\n", "line 2: not UTF-8 text"),
        ];
        for (bytes, words) in table {
            let said = not_text(bytes, std::str::from_utf8(bytes).unwrap_err());
            assert!(said.contains(words), "{said}");
        }
    }
}
