//! OpenSSH public keys: identifies a line of `authorized_keys` without showing the key, and checks whether sshd would accept
//! it.
//!
//! A key is identified by its type, its fingerprint as `ssh-keygen -lf` prints it, and its comment.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest, Sha256};

/// A public key; the key material itself is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// Such as `ssh-ed25519`.
    pub kind: String,
    /// `SHA256:` and 43 letters.
    pub fingerprint: String,
    /// The comment after the key; may be empty.
    pub comment: String,
    /// True if options such as `from="..."` precede it.
    pub has_options: bool,
}

/// The reason why sshd does not accept a line as a key; its text is the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No word is a key type.
    #[error(
        "is not a public key: it begins neither with ssh-ed25519, ssh-rsa nor ecdsa-sha2-nistp256. Give a file such as \
         ~/.ssh/id_ed25519.pub"
    )]
    NoType,
    /// The second word is not base64.
    #[error("is not a complete key: what follows {0} is not base64. Copy it again, on one line")]
    NotBase64(String),
    /// The encoded parts are incomplete.
    #[error(
        "is not a complete key: the {0} key ends too early or goes on too long. Copy it again, on one line"
    )]
    NotWhole(String),
    /// The encoded key has another type.
    #[error("says {0}, but the key inside has another type. Copy it again")]
    Contradicts(String),
    /// sshd has no such type, or no longer accepts it.
    #[error("is a {0} key, which sshd does not accept. Give one made by ssh-keygen -t ed25519")]
    NotTaken(String),
    /// RSA with few bits.
    #[error("is an RSA key of {0} bits; sshd requires at least 2048. Give another one")]
    Weak(usize),
}

impl PublicKey {
    /// Parses a line of `authorized_keys`; `None` if it is not a key. Does not check that the key is complete.
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let plain = Self::without_options(line);
        plain.or_else(|| {
            let key = Self::without_options(after_options(line)?)?;
            Some(Self {
                has_options: true,
                ..key
            })
        })
    }

    fn without_options(line: &str) -> Option<Self> {
        let (kind, key, comment) = split_key(line);
        let blob = decode_key(key)?;
        let (inside, _) = first_field(&blob)?;
        (inside == kind.as_bytes()).then(|| Self {
            kind: kind.to_owned(),
            fingerprint: format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(&blob))),
            comment: comment.to_owned(),
            has_options: false,
        })
    }

    /// Parses one key without options, and checks that it is complete and of a type that sshd accepts.
    ///
    /// # Errors
    /// The reason.
    pub fn check(line: &str) -> Result<Self, KeyError> {
        let (kind, key, _) = split_key(line.trim());
        let of = |kind: &str| kind.to_owned();
        if !is_type(kind) {
            return Err(KeyError::NoType);
        }
        if !TAKEN.contains(&kind) {
            return Err(KeyError::NotTaken(of(kind)));
        }
        let blob = decode_key(key).ok_or_else(|| KeyError::NotBase64(of(kind)))?;
        let (inside, _) = first_field(&blob).ok_or_else(|| KeyError::NotWhole(of(kind)))?;
        if inside != kind.as_bytes() {
            return Err(KeyError::Contradicts(of(kind)));
        }
        let fields = whole_fields(kind, &blob).ok_or_else(|| KeyError::NotWhole(of(kind)))?;
        match (kind, fields.get(2)) {
            ("ssh-rsa", Some(modulus)) if bit_length(modulus) < 2048 => {
                Err(KeyError::Weak(bit_length(modulus)))
            }
            _ => Self::without_options(line.trim()).ok_or(KeyError::NoType),
        }
    }
}

/// Returns the fields of a key, the type first; `None` if one is missing or has the wrong length for the type.
fn whole_fields<'a>(kind: &str, blob: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let fields = wire_fields(blob)?;
    let lengths: Vec<usize> = fields.iter().skip(1).map(|field| field.len()).collect();
    let is_whole = match (kind, lengths.as_slice()) {
        ("ssh-ed25519", [32]) | ("sk-ssh-ed25519@openssh.com", [32, _]) => true,
        ("ssh-rsa", [exponent, modulus]) => *exponent > 0 && *modulus > 0,
        ("ssh-dss", [_, _, _, _])
        | ("ecdsa-sha2-nistp256", [8, 65])
        | ("sk-ecdsa-sha2-nistp256@openssh.com", [8, 65, _])
        | ("ecdsa-sha2-nistp384", [8, 97])
        | ("ecdsa-sha2-nistp521", [8, 133]) => true,
        _ => false,
    };
    is_whole.then_some(fields)
}

/// Returns true if sshd can read the key on a line of `authorized_keys`, with or without options: the encoded key is complete.
/// Whether sshd then accepts its type and length is another question. Certificates do not count.
pub fn is_readable_key(line: &str) -> bool {
    let is_whole = |line: &str| {
        let (kind, key, _) = split_key(line);
        let blob = decode_key(key).unwrap_or_default();
        first_field(&blob).is_some_and(|(inside, _)| inside == kind.as_bytes())
            && whole_fields(kind, &blob).is_some()
    };
    let line = line.trim();
    is_whole(line) || after_options(line).is_some_and(is_whole)
}

/// The encoded parts of a public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireKey {
    /// The whole key, decoded from base64.
    pub blob: Vec<u8>,
    /// The fields after the type.
    pub fields: Vec<Vec<u8>>,
}

/// Parses a key that [`PublicKey::check`] accepts, with or without options, for computations.
///
/// # Errors
/// The reason, as the end of a sentence.
pub fn read_wire(line: &str) -> Result<(PublicKey, WireKey), KeyError> {
    let line = line.trim();
    let plain = if is_type(split_key(line).0) {
        line
    } else {
        after_options(line)
            .filter(|rest| is_type(split_key(rest).0))
            .ok_or(KeyError::NoType)?
    };
    let key = PublicKey::check(plain)?;
    let whole = || KeyError::NotWhole(key.kind.clone());
    let blob = decode_key(split_key(plain).1).ok_or_else(whole)?;
    let fields = wire_fields(&blob).ok_or_else(whole)?;
    let fields = fields.into_iter().skip(1).map(<[u8]>::to_vec).collect();
    Ok((key, WireKey { blob, fields }))
}

/// Returns the length in bits of the RSA key on a line, also after options; `None` for any other line.
pub fn rsa_bits(line: &str) -> Option<usize> {
    let line = line.trim();
    let plain = if is_type(split_key(line).0) {
        line
    } else {
        after_options(line)?
    };
    let (kind, key, _) = split_key(plain);
    let blob = decode_key(key).filter(|_| kind == "ssh-rsa")?;
    wire_fields(&blob)?
        .get(2)
        .map(|modulus| bit_length(modulus))
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.fingerprint)?;
        if !self.comment.is_empty() {
            write!(f, " {}", self.comment)?;
        }
        if self.has_options {
            f.write_str(" (with options)")
        } else {
            Ok(())
        }
    }
}

/// The types that sshd currently accepts.
const TAKEN: [&str; 7] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

fn is_type(word: &str) -> bool {
    let beginnings = ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-", "rsa-sha2-"];
    beginnings.iter().any(|begins| word.starts_with(begins))
}

/// Describes a line of a key file without showing the key: what it is, or its length.
pub fn describe_key(line: &str) -> String {
    match PublicKey::parse(line) {
        Some(key) => key.to_string(),
        None => format!("(no key that sshd reads: a line of {} bytes)", line.len()),
    }
}

/// Returns the changes of a key file, one line per key: `+` is added, `-` is removed, a blank is unchanged. Omits comments.
pub fn describe_key_change(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (key_lines(old).collect(), key_lines(new).collect());
    let gone = old.iter().filter(|line| !new.contains(line));
    let gone = gone.map(|line| fold_line('-', line));
    let here = new.iter().map(|line| {
        let sign = if old.contains(line) { ' ' } else { '+' };
        fold_line(sign, line)
    });
    gone.chain(here).collect()
}

/// Width of a line in [`describe_key_change`], which is indented by eight columns.
const WIDTH: usize = 72;

/// Returns a line of [`describe_key_change`], folded if it is too long.
fn fold_line(sign: char, line: &str) -> String {
    let mut out = sign.to_string();
    let mut width = 1;
    for (index, word) in describe_key(line).split_whitespace().enumerate() {
        let long = word.chars().count();
        match (index, width + 1 + long > WIDTH) {
            (0, _) => width += long,
            (_, true) => {
                out.push_str("\n     ");
                width = 5 + long;
            }
            (_, false) => {
                out.push(' ');
                width += 1 + long;
            }
        }
        out.push_str(word);
    }
    out.push('\n');
    out
}

/// Returns the lines of a key file that are neither empty nor comments.
pub fn key_lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Returns type, key and comment.
fn split_key(line: &str) -> (&str, &str, &str) {
    let (kind, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let rest = rest.trim_start();
    let (key, comment) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    (kind, key, comment.trim())
}

/// Returns the text after the options, which end at the first unquoted blank.
fn after_options(line: &str) -> Option<&str> {
    let (mut quoted, mut escaped) = (false, false);
    let end = line.find(|c: char| {
        let ends = !quoted && (c == ' ' || c == '\t');
        if c == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = c == '\\' && !escaped;
        ends
    })?;
    Some(line.get(end..)?.trim_start())
}

fn decode_key(key: &str) -> Option<Vec<u8>> {
    STANDARD.decode(key).ok().filter(|blob| !blob.is_empty())
}

/// Returns the first field of the wire format, and the rest.
fn first_field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    rest.split_at_checked(length)
}

/// Returns all fields; `None` if the last one is incomplete.
fn wire_fields(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (one, rest) = first_field(bytes)?;
        all.push(one);
        bytes = rest;
    }
    Some(all)
}

/// Returns the bit length of a positive number.
fn bit_length(number: &[u8]) -> usize {
    let mut bytes = number.iter().skip_while(|byte| **byte == 0);
    let Some(first) = bytes.next() else { return 0 };
    bytes.count() * 8 + 8 - first.leading_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO me@there";

    #[test]
    fn options_are_passed_over_up_to_the_key() {
        let plain = PublicKey::parse(KEY).unwrap();
        let line = format!("from=\"a b,\\\"c\\\"\",no-pty {KEY}");
        let with = PublicKey::parse(&line).unwrap();
        assert_eq!(with.fingerprint, plain.fingerprint);
        assert!(with.has_options && !plain.has_options);
        assert_eq!(PublicKey::check(&line), Err(KeyError::NoType));
    }

    #[test]
    fn every_beginning_of_a_key_is_not_a_whole_one() {
        let whole = KEY.len() - " me@there".len();
        for end in 0..whole {
            assert!(PublicKey::check(&KEY[..end]).is_err(), "{end}");
        }
        assert!(PublicKey::check(&KEY[..whole]).is_ok());
    }

    #[test]
    fn lines_of_keys_fit_a_screen() {
        let long = format!("{KEY} {}", "of the desk in the cellar ".repeat(4));
        let said = describe_key_change("", &long);
        assert!(said.lines().count() > 1, "{said}");
        assert!(said.lines().all(|line| line.len() <= WIDTH), "{said}");
        assert!(said.lines().skip(1).all(|line| line.starts_with("     ")));
    }

    #[test]
    fn a_change_tells_what_comes_goes_and_stays() {
        let other = KEY.replace("me@there", "you");
        let said = describe_key_change(
            &format!("{KEY}\n# x\n"),
            &format!("{KEY}\nrubbish\n\n{other}"),
        );
        let fingerprint = PublicKey::parse(KEY).unwrap().fingerprint;
        assert_eq!(
            said,
            format!(
                " ssh-ed25519 {fingerprint} me@there\n+(no key that sshd reads: a line of 7 bytes)\n\
                 +ssh-ed25519 {fingerprint} you\n"
            )
        );
        assert!(!describe_key_change("", KEY).contains("AAAA"));
    }
}
