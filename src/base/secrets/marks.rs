//! Texts that only a secret looks like, anywhere: private keys, password hashes, tokens with a known prefix.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;

use super::Secret;
use crate::base::order::StableOrder;

/// The reason for a private key.
pub(super) const WHY_KEY: &str = "it has a private key";
/// The reason of a login.
pub(super) const WHY_LOGIN: &str = "it has a URL with a password";
const WHY_HASH: &str = "it has the hash of a password";
const WHY_TOKEN: &str = "it has a token";
const WHY_ENCODED: &str = "it has encoded contents with a secret";

/// Prefixes of password hashes.
const HASHES: [&str; 17] = [
    "$1$", "$2a$", "$2b$", "$2x$", "$2y$", "$5$", "$6$", "$7$", "$y$", "$gy$", "$apr1$", "$argon2",
    "$scrypt$", "$sha1$", "$md5", "$pbkdf2", "$krb5",
];
/// Prefixes of tokens and hashes that form separate words.
const WORDS: [&str; 24] = [
    "AGE-SECRET-KEY-1",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "sk_live_",
    "rk_live_",
    "hvs.",
    "hvb.",
    "sha256~",
    "grub.pbkdf2.",
    "{SSHA",
    "{SHA}",
    "{CRYPT}",
    "{SMD5}",
    "{PBKDF2",
    "pbkdf2_sha256$",
    "AIza",
];

/// Adds private keys: the lines between their first and last line, or the text between these markers on one line.
pub(super) fn find_blocks(text: &str, all: &mut Vec<Secret>) {
    const BEGIN: &str = "-----BEGIN ";
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(BEGIN)) {
        let label = from + at + BEGIN.len();
        from = label;
        let Some(rest) = text.get(label..) else {
            return;
        };
        let words = rest.get(..rest.find(['\n', '\\', '"']).unwrap_or(rest.len()));
        let words = words.and_then(|words| words.split_once("-----"));
        let Some((words, _)) = words.filter(|(words, _)| is_private(words)) else {
            continue;
        };
        let start = label + words.len() + "-----".len();
        let rest = text.get(start..).unwrap_or_default();
        let end = rest.find("-----END ").unwrap_or(rest.len());
        // A string in a document ends at its quote, even if the key is incomplete.
        let quote = rest.starts_with("\\n").then(|| rest.find('"')).flatten();
        let end = quote.map_or(end, |quote| quote.min(end));
        let body = rest.get(..end).unwrap_or_default();
        let is_break = |c: char| c.is_whitespace();
        let skipped = body.len() - body.trim_start_matches(is_break).len();
        let secret = start + skipped..start + body.trim_end_matches(is_break).len();
        if secret.start < secret.end {
            all.push(Secret {
                at: secret,
                why: WHY_KEY,
            });
        }
        from = start + end;
    }
}

fn is_private(label: &str) -> bool {
    let small = label.to_ascii_lowercase();
    ["private", "secret", "static key"]
        .iter()
        .any(|word| small.contains(word))
}

/// Adds the hashes and tokens of a line that begins at `start`.
pub(super) fn find_marks(line: &str, start: usize, all: &mut Vec<Secret>) {
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        let is_start = !before.is_ascii_alphanumeric();
        before = c;
        let found = match c {
            '$' => find_hash(line, at),
            '{' | 'A' | 'L' | 'd' | 'e' | 'g' | 'h' | 'p' | 'r' | 's' | 'x' if is_start => {
                find_word(line, at)
            }
            _ => None,
        };
        if let Some((end, why)) = found
            && all.last().is_none_or(|last| last.at.end <= start + at)
        {
            all.push(Secret {
                at: start + at..start + end,
                why,
            });
        }
    }
}

fn find_hash(line: &str, at: usize) -> Option<(usize, &'static str)> {
    let rest = line.get(at..)?;
    let begin = HASHES.iter().find(|hash| rest.starts_with(**hash))?;
    let end = rest.find(|c: char| c.is_whitespace() || ":\"'`<\\;)".contains(c));
    let end = end.unwrap_or(rest.len());
    // `price: $1$` or a bare `$5$` is not a hash.
    (end > begin.len() + 3).then_some((at + end, WHY_HASH))
}

fn find_word(line: &str, at: usize) -> Option<(usize, &'static str)> {
    let rest = line.get(at..)?;
    let word = |is: fn(char) -> bool| {
        let end = rest.find(|c: char| !is(c)).unwrap_or(rest.len());
        rest.get(..end).unwrap_or_default()
    };
    let is_token = |c: char| c.is_ascii_alphanumeric() || "_-.~+/=$".contains(c);
    if let Some(begin) = WORDS.iter().find(|begin| rest.starts_with(**begin)) {
        let body = rest.get(begin.len()..)?;
        let end = body.find(|c: char| !(is_token(c) || begin.starts_with('{') && "{}".contains(c)));
        let end = end.unwrap_or(body.len());
        return (end >= 6).then_some((at + begin.len() + end, WHY_TOKEN));
    }
    if rest.starts_with("AKIA") || rest.starts_with("ASIA") {
        let id = word(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
        return (id.len() == 20).then_some((at + 20, WHY_TOKEN));
    }
    if rest.starts_with("eyJ") {
        let token = word(|c| c.is_ascii_alphanumeric() || "_-.+/=".contains(c));
        let parts = token.split('.').filter(|part| !part.is_empty()).count();
        let is_secret = parts >= 3 || has_encoded_secret(token);
        return (is_secret && token.len() > 12).then_some((at + token.len(), WHY_TOKEN));
    }
    if rest.starts_with("LS0tLS1CRUdJTi") {
        let body = word(|c| c.is_ascii_alphanumeric() || "+/=".contains(c));
        let label = body.get(..80).unwrap_or(body);
        return is_private(&decode_base64(label)).then_some((at + body.len(), WHY_KEY));
    }
    let url = rest.strip_prefix("data:")?;
    let end = url
        .find(|c: char| c.is_whitespace() || "\"'`<>\\".contains(c))
        .unwrap_or(url.len());
    let (kind, body) = url.get(..end)?.split_once(',')?;
    let is_base64 = kind.ends_with(";base64");
    let text = if is_base64 {
        decode_base64(body)
    } else {
        percent_decode_str(body).decode_utf8_lossy().into_owned()
    };
    // One level only: a text within a text.
    let is_secret = !text.contains("data:") && super::reason_of_text(&text).is_some();
    is_secret.then_some((at + "data:".len() + end, WHY_ENCODED))
}

fn has_encoded_secret(token: &str) -> bool {
    let text = decode_base64(token);
    text.contains("\"auth")
        || text.contains("assword")
        || text.contains("oken\"")
        || text.contains("rivate")
}

/// Returns the decoded base64; empty for other words.
fn decode_base64(body: &str) -> String {
    let options = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let whole = body.len() - body.trim_end_matches('=').len();
    let body = body.get(..body.len() - whole).unwrap_or_default();
    let cut = body.len() - usize::from(body.len() % 4 == 1);
    let bytes = GeneralPurpose::new(&STANDARD, options).decode(body.get(..cut).unwrap_or_default());
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

/// Returns secrets in order, with overlapping ones merged.
pub(super) fn in_order(mut all: Vec<Secret>) -> Vec<Secret> {
    all.order_by_key(|secret| secret.at.start);
    let mut merged: Vec<Secret> = Vec::with_capacity(all.len());
    for secret in all {
        match merged.last_mut() {
            Some(last) if secret.at.start < last.at.end => {
                last.at.end = last.at.end.max(secret.at.end);
            }
            _ => merged.push(secret),
        }
    }
    merged
}
