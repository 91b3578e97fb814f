//! Contents as a `data:` URL, in the shortest of three forms.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::deflate;

/// Contents that became a URL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DataUrl {
    /// The URL.
    pub(super) url: String,
    /// True if the contents were compressed here.
    pub(super) packed: bool,
}

/// Creates the URL. With `may_pack`, contents are compressed if that makes the URL shorter, including the word `gzip`.
pub(super) fn make_data_url(contents: &[u8], may_pack: bool) -> DataUrl {
    let mut best = format!(",{}", percent_escape(contents));
    let in_base64 = format!(";base64,{}", STANDARD.encode(contents));
    if in_base64.len() < best.len() {
        best = in_base64;
    }
    let mut packed = false;
    if may_pack {
        let gzip = format!(
            ";base64,{}",
            STANDARD.encode(deflate::compress_gzip(contents))
        );
        if gzip.len() + "gzip".len() < best.len() {
            best = gzip;
            packed = true;
        }
    }
    DataUrl {
        url: format!("data:{best}"),
        packed,
    }
}

fn percent_escape(contents: &[u8]) -> String {
    let mut text = String::with_capacity(contents.len());
    for byte in contents {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => text.push(char::from(*byte)),
            b'-' | b'_' | b'.' | b'!' | b'~' | b'*' | b'\'' | b'(' | b')' => {
                text.push(char::from(*byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_form_is_taken() {
        let url = |contents: &[u8], may_pack| make_data_url(contents, may_pack).url;
        assert_eq!(url(b"", true), "data:,");
        assert_eq!(url(b"a b\n'(~!*)'", true), "data:,a%20b%0A'(~!*)'");
        assert_eq!(url(&[0xff, 0, 1], true), "data:,%FF%00%01");
        assert_eq!(url(&[0xff, 0, 1, 2, 3, 4], true), "data:;base64,/wABAgME");
        let long = "setting = value\n".repeat(40);
        let packed = make_data_url(long.as_bytes(), true);
        assert!(packed.packed && packed.url.starts_with("data:;base64,H4sI"));
        let plain = make_data_url(long.as_bytes(), false);
        assert!(!plain.packed && plain.url.len() > packed.url.len());
    }
}
