//! Encryption to public keys in the age v1 format (age-encryption.org/v1), which `age -d` decrypts.
//!
//! Only the container is implemented here: the lines of the header, and the RSA padding. The curves come from curve25519-dalek;
//! hashes, keys and ciphers from ring. Bytes in, bytes out, except for the kernel's random numbers. There is no decryption
//! here, and therefore never a secret key.

mod recipient;

pub use recipient::{Recipient, RecipientError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// The first line of every file.
const VERSION: &str = "age-encryption.org/v1";
/// Length of the key that encrypts the file.
const FILE_KEY: usize = 16;
/// Bytes of each encrypted chunk except the last.
const CHUNK: usize = 64 << 10;
/// Characters in each line of a header's body except the last.
const COLUMNS: usize = 64;

/// The reason why an encryption failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AgeError {
    /// No key was given.
    #[error("there is no key to encrypt to")]
    NoRecipient,
    /// The kernel provides no random numbers.
    #[error("the kernel gives no random numbers")]
    NoRandom,
    /// A computation with a key failed.
    #[error("the key cannot be computed with")]
    Refused,
}

/// One part of the header: the file key for one recipient.
struct Stanza {
    arguments: Vec<String>,
    body: Vec<u8>,
}

/// Encrypts the bytes so that the owner of any of these keys can decrypt them.
///
/// # Errors
/// No recipient, or no random numbers.
pub fn encrypt_to(plain: &[u8], recipients: &[Recipient]) -> Result<Vec<u8>, AgeError> {
    if recipients.is_empty() {
        return Err(AgeError::NoRecipient);
    }
    let file_key = random_bytes::<FILE_KEY>()?;
    let mut header = format!("{VERSION}\n");
    for recipient in recipients {
        header.push_str(&write_stanza(&recipient.wrap_key(&file_key)?));
    }
    header.push_str("---");
    let mac_key = hmac::Key::new(hmac::HMAC_SHA256, &derive_key(&file_key, b"", b"header")?);
    let mac = hmac::sign(&mac_key, header.as_bytes());
    header.push_str(&format!(" {}\n", STANDARD_NO_PAD.encode(mac)));
    let nonce = random_bytes::<16>()?;
    let mut out = header.into_bytes();
    out.extend(nonce);
    encrypt_stream(&derive_key(&file_key, &nonce, b"payload")?, plain, &mut out)?;
    Ok(out)
}

/// Returns the lines of a stanza. The last line of the body is always shorter than a full one, and empty if necessary.
fn write_stanza(stanza: &Stanza) -> String {
    let mut out = format!("-> {}\n", stanza.arguments.join(" "));
    let body = STANDARD_NO_PAD.encode(&stanza.body);
    for (index, letter) in body.chars().enumerate() {
        if index > 0 && index % COLUMNS == 0 {
            out.push('\n');
        }
        out.push(letter);
    }
    if !body.is_empty() && body.len().is_multiple_of(COLUMNS) {
        out.push('\n');
    }
    out.push('\n');
    out
}

/// Encrypts the content in chunks, each with its number; the last one is marked.
fn encrypt_stream(key: &[u8; 32], plain: &[u8], out: &mut Vec<u8>) -> Result<(), AgeError> {
    let mut chunks = plain.chunks(CHUNK).peekable();
    let mut number = 0_u64;
    let mut chunk = chunks.next().unwrap_or_default();
    loop {
        let next = chunks.next();
        let mut nonce = [0; 12];
        let (before, last) = nonce.split_at_mut(11);
        if let Some(counter) = before.last_chunk_mut::<8>() {
            *counter = number.to_be_bytes();
        }
        last.fill(u8::from(next.is_none()));
        out.extend(seal_bytes(key, nonce, chunk)?);
        number += 1;
        match next {
            Some(next) => chunk = next,
            None => return Ok(()),
        }
    }
}

/// Encrypts a few bytes with a key that is not used for anything else with this nonce.
fn seal_bytes(key: &[u8; 32], nonce: [u8; 12], plain: &[u8]) -> Result<Vec<u8>, AgeError> {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key).map_err(|_| AgeError::Refused)?;
    let mut sealed = plain.to_vec();
    LessSafeKey::new(key)
        .seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::empty(),
            &mut sealed,
        )
        .map_err(|_| AgeError::Refused)?;
    Ok(sealed)
}

/// Derives a key by HKDF with SHA-256.
fn derive_key(secret: &[u8], salt: &[u8], label: &[u8]) -> Result<[u8; 32], AgeError> {
    let mut key = [0; 32];
    Salt::new(HKDF_SHA256, salt)
        .extract(secret)
        .expand(&[label], HKDF_SHA256)
        .and_then(|derived| derived.fill(&mut key))
        .map_err(|_| AgeError::Refused)?;
    Ok(key)
}

fn random_bytes<const N: usize>() -> Result<[u8; N], AgeError> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| AgeError::NoRandom)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_body_is_never_a_whole_one() {
        let of = |length| {
            write_stanza(&Stanza {
                arguments: vec!["x".to_owned()],
                body: vec![7; length],
            })
        };
        assert_eq!(of(0), "-> x\n\n");
        assert_eq!(of(32).lines().count(), 2);
        // 48 bytes are 64 characters: a full line, and an empty one.
        assert_eq!(of(48).lines().nth(1).map(str::len), Some(64));
        assert!(of(48).ends_with("\n\n"), "{:?}", of(48));
        assert!(of(256).lines().skip(1).all(|line| line.len() <= 64));
        assert_eq!(of(256).lines().count(), 1 + 6);
    }

    #[test]
    fn the_same_text_is_never_encrypted_to_the_same_bytes() {
        let line = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
        let key = Recipient::parse(line).unwrap();
        let both = [1, 2].map(|_| encrypt_to(b"secret", std::slice::from_ref(&key)).unwrap());
        assert_ne!(both[0], both[1]);
        let text = String::from_utf8_lossy(&both[0]);
        assert!(text.starts_with("age-encryption.org/v1\n-> X25519 "));
        assert!(!text.contains("secret"));
        assert_eq!(encrypt_to(b"x", &[]), Err(AgeError::NoRecipient));
    }
}
