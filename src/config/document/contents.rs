//! Contents of files: `data:` URLs and gzip.
//!
//! The accepted syntax is RFC 2397 as Ignition checks it, character by character (docs/develop/ignition.md: Fetching). The hash of a
//! resource covers its decompressed bytes.

use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::{fmt, slice};

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::read::DecoderReader;
use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256, Sha512};

use super::text::Text;
use crate::base::object::HexDigest;
use crate::host::root::{digest_ahead, to_hex};
use crate::host::sys::memory::make_room;

/// Maximum size of a decompressed file (1 GiB); a rendered config itself is limited to 1.5 MiB.
const MAX_UNPACKED: u64 = 1 << 30;

/// The source of a file's bytes. `Debug` shows no content, which may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Contents {
    source: ContentsSource,
    gzip: bool,
}

#[derive(Clone, PartialEq, Eq)]
enum ContentsSource {
    Url(Text),
    /// Fetched, unpacked and verified already.
    Fetched(Arc<[u8]>),
}

/// The reason why contents could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentsError {
    /// Not a `data:` URL.
    #[error(
        "the source is a remote URL ({0}), which is not fetched; inline the contents as a data URL"
    )]
    Remote(String),
    /// A malformed `data:` URL.
    #[error("malformed data URL: {0}")]
    DataUrl(&'static str),
    /// A broken gzip stream.
    #[error("the contents are not valid gzip data: {0}")]
    Gzip(String),
    /// It is larger than this many MiB.
    #[error("the contents unpack to more than {0} MiB")]
    TooLarge(u64),
    /// Some other compression.
    #[error("unsupported compression type {0:?}; only gzip is known")]
    Compression(String),
}

impl Contents {
    /// Creates contents from `source` and `compression` in a document; missing or empty means an empty file.
    pub fn new(source: Option<Text>, compression: Option<&str>) -> Result<Self, ContentsError> {
        let gzip = match compression {
            None | Some("") => false,
            Some("gzip") => true,
            Some(other) => return Err(ContentsError::Compression(other.to_owned())),
        };
        let source = source.unwrap_or_default();
        Ok(Self {
            gzip: gzip && !source.is_empty(),
            source: ContentsSource::Url(source),
        })
    }

    /// Creates contents that were already fetched, decompressed and verified.
    pub fn from_fetched(bytes: &Arc<[u8]>) -> Self {
        Self {
            source: ContentsSource::Fetched(Arc::clone(bytes)),
            gzip: false,
        }
    }

    /// Returns the bytes as a stream, so that a large file is never completely in memory, unless it is percent-encoded.
    ///
    /// # Errors
    /// The header is invalid. A later defect is reported as an error of the stream.
    pub fn open_reader(&self) -> Result<Box<dyn Read + Send + '_>, ContentsError> {
        let packed: Box<dyn Read + Send + '_> = match &self.source {
            ContentsSource::Fetched(bytes) => return Ok(Box::new(&**bytes)),
            ContentsSource::Url(source) if source.is_empty() => return Ok(Box::new(io::empty())),
            ContentsSource::Url(source) => match base64_payload(source)? {
                Some(payload) => Box::new(DecoderReader::new(payload.as_bytes(), &BASE64)),
                None => Box::new(io::Cursor::new(data_url(source)?)),
            },
        };
        Ok(if self.gzip {
            Box::new(MultiGzDecoder::new(packed))
        } else {
            packed
        })
    }

    /// Returns an estimate of the number of bytes, or less: compressed ones may be many more.
    fn packed_size(&self) -> u64 {
        let size = match &self.source {
            ContentsSource::Url(source) => source.len() / 4 * 3,
            ContentsSource::Fetched(bytes) => bytes.len(),
        };
        size as u64
    }

    /// Returns length and digest of the bytes.
    pub fn measure_bytes(&self) -> Result<Measured, ContentsError> {
        let bounded = self.open_reader()?.take(MAX_UNPACKED + 1);
        match digest_ahead(bounded, self.packed_size()) {
            Ok((size, _)) if size > MAX_UNPACKED => {
                Err(ContentsError::TooLarge(MAX_UNPACKED >> 20))
            }
            Ok((size, sha256)) => Ok(Measured {
                size,
                sha256: sha256.into(),
            }),
            // Reading the contents completely gives the exact cause.
            Err(error) => Err(self
                .bytes()
                .err()
                .unwrap_or_else(|| ContentsError::Gzip(error.to_string()))),
        }
    }

    /// Returns the bytes to be written.
    pub fn bytes(&self) -> Result<Vec<u8>, ContentsError> {
        let source = match &self.source {
            ContentsSource::Fetched(bytes) => return Ok(bytes.to_vec()),
            ContentsSource::Url(source) if source.is_empty() => return Ok(Vec::new()),
            ContentsSource::Url(source) => source,
        };
        let packed = data_url(source)?;
        if self.gzip {
            decompress_gzip(&packed)
        } else {
            Ok(packed)
        }
    }
}

/// The size and digest of contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// Number of bytes.
    pub size: u64,
    /// Lower-case hex SHA-256 of the bytes.
    pub sha256: HexDigest,
}

/// The size and digest of a resource's contents, computed once and shared by all clones of the resource.
#[derive(Debug, Clone, Default)]
pub(super) struct Memo(Arc<OnceLock<Result<Measured, ContentsError>>>);

impl Memo {
    /// Returns the first measurement, or computes it.
    pub(super) fn get_or_measure(
        &self,
        contents: impl FnOnce() -> Result<Contents, ContentsError>,
    ) -> Result<Measured, ContentsError> {
        let measure = || contents().and_then(|contents| contents.measure_bytes());
        self.0.get_or_init(measure).clone()
    }
}

/// A measurement depends only on the other fields of its resource.
impl PartialEq for Memo {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, length) = match &self.source {
            ContentsSource::Url(url) => ("source", url.len()),
            ContentsSource::Fetched(bytes) => ("fetched", bytes.len()),
        };
        write!(f, "Contents({length} bytes {what}, gzip {})", self.gzip)
    }
}

/// Returns true if bytes have a document's hash, `sha512-HEX` or `sha256-HEX`; the case of the digits does not matter. An
/// unknown function matches nothing.
pub fn has_hash(bytes: &[u8], hash: &str) -> bool {
    let found = match hash.split_once('-') {
        Some(("sha512", _)) => to_hex(&Sha512::digest(bytes)),
        Some(("sha256", _)) => to_hex(&Sha256::digest(bytes)),
        _ => return false,
    };
    hash.split_once('-')
        .is_some_and(|(_, wanted)| found.eq_ignore_ascii_case(wanted))
}

/// Decompresses a gzip stream of one or more members, within bounded memory.
pub(super) fn decompress_gzip(packed: &[u8]) -> Result<Vec<u8>, ContentsError> {
    gunzip_within(packed, MAX_UNPACKED)
}

/// Decompresses a gzip stream of one or more members, up to `limit` bytes.
///
/// # Errors
/// The stream is broken or truncated, or decompresses to more.
pub fn gunzip_within(packed: &[u8], limit: u64) -> Result<Vec<u8>, ContentsError> {
    let bytes = read_bounded(
        MultiGzDecoder::new(packed),
        packed.len(),
        limit.saturating_add(1),
    )
    .map_err(|e| ContentsError::Gzip(e.to_string()))?;
    if bytes.len() as u64 > limit {
        Err(ContentsError::TooLarge(limit >> 20))
    } else {
        Ok(bytes)
    }
}

/// Reads up to `most` bytes into a buffer with an initial capacity of `first`. The capacity doubles as in any vector, but never
/// exceeds `most`.
fn read_bounded(mut reader: impl Read, first: usize, most: u64) -> std::io::Result<Vec<u8>> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    loop {
        let left = most - bytes.len();
        make_room(&mut bytes, first.min(left).max(1), most as u64);
        let room = left.min(bytes.capacity() - bytes.len());
        let read = reader.by_ref().take(room as u64).read_to_end(&mut bytes)?;
        if read < room || bytes.len() == most {
            return Ok(bytes);
        }
    }
}

/// Non-zero trailing bits are accepted, missing padding is not (docs/develop/ignition.md: Fetching).
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Returns true if a text is base64 of gzip data, the form in which some tools store whole configs.
pub(super) fn is_packed(text: &str) -> bool {
    let begin: String = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .take(4)
        .collect();
    let begin = BASE64.decode(begin).unwrap_or_default();
    begin.starts_with(&GZIP)
}

/// The first bytes of gzip data.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Decodes a `data:` URL.
pub fn data_url(url: &str) -> Result<Vec<u8>, ContentsError> {
    let (base64, payload) = split_data_url(url)?;
    if base64 {
        return BASE64.decode(payload).map_err(|_| {
            ContentsError::DataUrl("the base64 data is broken (alphabet or padding)")
        });
    }
    percent_decoded(payload.as_bytes())
}

/// Returns the payload of a base64 `data:` URL.
fn base64_payload(url: &str) -> Result<Option<&str>, ContentsError> {
    split_data_url(url).map(|(base64, payload)| base64.then_some(payload))
}

/// Splits a `data:` URL. Returns whether it is base64, and the text after its header.
fn split_data_url(url: &str) -> Result<(bool, &str), ContentsError> {
    let Some(header) = url.strip_prefix("data:") else {
        return Err(remote_error(url));
    };
    if !header.contains(',') {
        return Err(ContentsError::DataUrl("there is no comma before the data"));
    }
    let mut rest = after_media_type(header)?;
    let mut base64 = false;
    loop {
        if let Some(payload) = rest.strip_prefix(',') {
            return Ok((base64, payload));
        }
        let parameter = rest.strip_prefix(';').filter(|_| !base64);
        (base64, rest) = parameter.and_then(after_parameter).ok_or(ATTRIBUTES)?;
    }
}

fn remote_error(url: &str) -> ContentsError {
    match url.split_once(':') {
        Some((scheme, _)) if !scheme.is_empty() => {
            ContentsError::Remote(scheme.chars().take(12).collect())
        }
        _ => ContentsError::DataUrl("it does not begin with `data:`"),
    }
}

const MEDIA_TYPES: [&str; 9] = [
    "text",
    "image",
    "audio",
    "video",
    "application",
    "message",
    "multipart",
    "x-",
    "X-",
];

const ATTRIBUTES: ContentsError = ContentsError::DataUrl(
    "the attributes before the data are malformed (no blanks; `;base64` must be lower case and last)",
);

/// Returns the text after the optional `type/subtype`.
fn after_media_type(header: &str) -> Result<&str, ContentsError> {
    if header.starts_with([';', ',']) {
        return Ok(header);
    }
    let (media, rest) = split_token(header);
    let known = MEDIA_TYPES.iter().any(|prefix| media.starts_with(prefix));
    let subtype = rest.strip_prefix('/').filter(|_| known);
    let subtype = subtype.ok_or(ContentsError::DataUrl(
        "the media type is not one of text/, image/, application/ and the like",
    ))?;
    Ok(split_token(subtype).1)
}

/// Parses a parameter: returns whether it means base64, and the text after it. Returns `None` if it is malformed.
fn after_parameter(parameter: &str) -> Option<(bool, &str)> {
    let (name, rest) = split_token(parameter);
    if name.is_empty() || rest.starts_with(',') {
        return (name == "base64").then_some((true, rest));
    }
    let value = rest.strip_prefix('=')?;
    if let Some(quoted) = value.strip_prefix('"') {
        return Some((false, after_quoted(quoted)?));
    }
    let (value, rest) = split_token(value);
    (!value.is_empty() && has_whole_escapes(value)).then_some((false, rest))
}

/// Splits a text after the characters of a MIME token.
fn split_token(text: &str) -> (&str, &str) {
    let special = |c: char| "()<>@,;:\\\"/[]?=".contains(c);
    let end = text.find(|c: char| !c.is_ascii_graphic() || special(c));
    text.split_at(end.unwrap_or(text.len()))
}

/// Returns the text after a quoted value, which may contain every ASCII character that is allowed unescaped in a Go string.
fn after_quoted(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| matches!(c, '"' | '\\' | '\n') || !c.is_ascii())?;
        let (c, after) = rest.split_at(end).1.split_at_checked(1)?;
        match c {
            "\"" => return Some(after),
            "\\" => rest = after_escape(after)?,
            _ => return None,
        }
    }
}

/// Returns the text after an escape of a Go string; the input starts after the backslash.
fn after_escape(text: &str) -> Option<&str> {
    let octal = || {
        let (digits, rest) = text.split_at_checked(3)?;
        let all = digits.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
        let value = u32::from_str_radix(digits, 8).ok().filter(|_| all)?;
        (value < 256).then_some(rest)
    };
    let (first, rest) = text.split_at_checked(1)?;
    let hexadecimal = |length: usize| {
        let digits = rest.get(..length)?;
        let all = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let value = u32::from_str_radix(digits, 16).ok().filter(|_| all)?;
        Some((value, rest.get(length..)?))
    };
    match first {
        "a" | "b" | "f" | "n" | "r" | "t" | "v" | "\\" | "\"" => Some(rest),
        "x" => hexadecimal(2).map(|(_, rest)| rest),
        "u" => hexadecimal(4).and_then(|(value, rest)| char::from_u32(value).map(|_| rest)),
        "U" => hexadecimal(8).and_then(|(value, rest)| char::from_u32(value).map(|_| rest)),
        _ => octal(),
    }
}

/// Returns true if two hexadecimal digits follow every `%`.
fn has_whole_escapes(value: &str) -> bool {
    value.split('%').skip(1).all(|rest| {
        let digits = rest.get(..2).unwrap_or_default();
        digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// True for bytes that represent themselves in percent-encoded text.
const IS_PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = b'!';
    while byte < 0x7f {
        table[byte as usize] = !matches!(
            byte,
            b'%' | b'<'
                | b'>'
                | b'#'
                | b'"'
                | b'{'
                | b'}'
                | b'['
                | b']'
                | b'|'
                | b'\\'
                | b'^'
                | b'`'
        );
        byte += 1;
    }
    table
};

/// The value of each hex digit, by its byte; [`NO_DIGIT`] for all others.
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value as usize] as usize] = value;
        digits[b"0123456789ABCDEF"[value as usize] as usize] = value;
        value += 1;
    }
    digits
};

const NO_DIGIT: u8 = 16;

/// Decodes and validates percent-encoding in one pass: much of a config is encoded like this, with an escape for about every
/// fifth byte.
fn percent_decoded(payload: &[u8]) -> Result<Vec<u8>, ContentsError> {
    let mut decoded = vec![0; payload.len()];
    let mut rest = payload.iter();
    let mut count = 0;
    for place in &mut decoded {
        let Some(&byte) = rest.next() else { break };
        *place = if IS_PLAIN[usize::from(byte)] {
            byte
        } else {
            escaped_byte(byte, &mut rest)?
        };
        count += 1;
    }
    decoded.truncate(count);
    Ok(decoded)
}

/// Returns the byte of an escape that begins with `first`; its two digits are taken from `rest`.
fn escaped_byte(first: u8, rest: &mut slice::Iter<'_, u8>) -> Result<u8, ContentsError> {
    if first != b'%' {
        return Err(ContentsError::DataUrl(
            "it holds a character that must be percent-encoded",
        ));
    }
    let mut digit = || {
        rest.next()
            .map_or(NO_DIGIT, |byte| DIGITS[usize::from(*byte)])
    };
    let (high, low) = (digit(), digit());
    if high == NO_DIGIT || low == NO_DIGIT {
        return Err(ContentsError::DataUrl(
            "`%` is not followed by two hex digits",
        ));
    }
    Ok(high << 4 | low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepted_forms_give_their_bytes() {
        let table: [(&str, &[u8]); 14] = [
            ("data:,", b""),
            ("data:text/plain,", b""),
            ("data:;base64,", b""),
            ("data:,a%20b", b"a b"),
            ("data:,a+b", b"a+b"),
            ("data:,%00%ff", b"\x00\xff"),
            ("data:,a?b,;:@&=$!*'()~/", b"a?b,;:@&=$!*'()~/"),
            ("data:;base64,YQ==", b"a"),
            ("data:;base64,YR==", b"a"),
            ("data:;charset=utf-8,x", b"x"),
            ("data:text/plain;charset=\"utf,8\";base64,eA==", b"x"),
            ("data:text/plain;charset=utf-8;base64,eA==", b"x"),
            ("data:text/,x", b"x"),
            (
                "data:X-a/b{c};k=%41;l=\"a \\\" b\\x41\\u00e9\\101\";m=\"\",x",
                b"x",
            ),
        ];
        for (url, wanted) in table {
            assert_eq!(data_url(url).unwrap(), wanted, "{url}");
        }
    }

    #[test]
    fn malformed_forms_are_refused() {
        for bad in [
            "data:",
            "data:,a b",
            "data:,é",
            "data:,%4",
            "data:,%zz",
            "data:,a#b",
            "data:;base64,YQ",
            "data:;base64,Y-_=",
            "data:;base64,YQ%3D%3D",
            "data:;BASE64,YQ==",
            "data:;base64;charset=x,YQ==",
            "data:base64,YQ==",
            "data:;,x",
            "data:font/woff,x",
            "data:inode/x,x",
            "data:charset=utf-8,x",
            "DATA:,x",
            " data:,x",
            "data:;base64,Y Q=",
            "data:text/plain; charset=utf-8,x",
            "data:text/plain ;charset=utf-8,x",
            "data:text /plain,x",
            "data:text/pl ain,x",
            "data:text/pl\u{e9}in,x",
            "data:text/a/b,x",
            "data:text/plain;charset=utf 8,x",
            "data:text/plain;charset =utf-8,x",
            "data:text/plain;charset=,x",
            "data:text/plain;charset=%4,x",
            "data:text/plain;charset=\"utf-8,x",
            "data:text/plain;charset=\"utf-8\"8,x",
            "data:text/plain;charset=\"\\q\",x",
            "data:text/plain;charset=\"\\ud800\",x",
            "data:text/plain;charset=\"\u{e9}\",x",
            "data:text/plain;=utf-8,x",
            "data:text/plain;;base64,eA==",
            "data:text/plain;base64;base64,eA==",
        ] {
            assert!(data_url(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn packed_texts_are_told_from_others() {
        let packed = base64::engine::general_purpose::STANDARD.encode(pack(b"{}"));
        assert!(is_packed(&packed) && is_packed(&format!("\n {packed}\n")));
        assert!(!is_packed("{}") && !is_packed("") && !is_packed("aGVsbG8="));
    }

    #[test]
    fn remote_sources_are_named_by_scheme_only() {
        let error = data_url("https://user:secret@host.example/x").unwrap_err();
        assert!(error.to_string().contains("https") && !error.to_string().contains("secret"));
    }

    #[test]
    fn gzip_members_are_joined_and_truncation_is_an_error() {
        let packed = [pack(b"one "), pack(b"two")].concat();
        assert_eq!(decompress_gzip(&packed).unwrap(), b"one two");
        assert!(matches!(
            decompress_gzip(&packed[..packed.len() - 4]),
            Err(ContentsError::Gzip(_))
        ));
        assert!(decompress_gzip(b"").is_err());
    }

    #[test]
    fn no_stream_unpacks_to_more_than_it_may() {
        let packed = pack(&[0; 1000]);
        assert_eq!(
            gunzip_within(&packed, 1000).map(|bytes| bytes.len()),
            Ok(1000)
        );
        assert_eq!(gunzip_within(&packed, 999), Err(ContentsError::TooLarge(0)));
    }

    #[test]
    fn unpacking_takes_no_more_room_than_the_limit() {
        for size in [0, 1, 31, 32, 33, 1000, 65_536, 100_000] {
            let content: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let packed = pack(&content);
            let limit = size.max(packed.len());
            let unpacked = gunzip_within(&packed, limit as u64).unwrap();
            assert_eq!(unpacked, content);
            assert!(unpacked.capacity() <= limit + 1, "{size}");
        }
    }

    fn pack(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    }

    proptest! {
        #[test]
        fn arbitrary_urls_never_panic(tail in "\\PC{0,40}") {
            let _ = data_url(&tail);
            let _ = data_url(&format!("data:{tail}"));
        }

        #[test]
        fn percent_encoded_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let text: String = bytes.iter().map(|b| format!("%{b:02X}")).collect();
            let url = format!("data:,{text}");
            let decoded = data_url(&url).unwrap();
            prop_assert_eq!(decoded, bytes);
        }

        #[test]
        fn escapes_among_plain_bytes_come_back(bytes in proptest::collection::vec(any::<(u8, bool)>(), 0..60)) {
            let written = bytes.iter().map(|(byte, lower)| match IS_PLAIN[usize::from(*byte)] {
                true => char::from(*byte).to_string(),
                false if *lower => format!("%{byte:02x}"),
                false => format!("%{byte:02X}"),
            });
            let payload: String = written.collect();
            let decoded = data_url(&format!("data:,{payload}")).unwrap();
            prop_assert_eq!(&decoded, &percent_encoding::percent_decode_str(&payload).collect::<Vec<u8>>());
            prop_assert_eq!(decoded, bytes.iter().map(|(byte, _)| *byte).collect::<Vec<u8>>());
        }
    }
}
