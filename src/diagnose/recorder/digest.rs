//! Digests of contents, made with the node's own key (HMAC-SHA-256, RFC 2104), and shortened.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// Number of bytes of a digest that are kept: two different contents collide once in 2^48 times.
const KEPT: usize = 6;
/// Block of SHA-256.
const BLOCK: usize = 64;
/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// A key, ready for use.
#[derive(Clone)]
pub struct DigestKey {
    inner: Sha256,
    outer: Sha256,
}

/// The key itself is never printed.
impl std::fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.id())
    }
}

impl DigestKey {
    /// Creates a key from random bytes.
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        let padded = |pad: u8| {
            let mut block = [pad; BLOCK];
            for (block, byte) in block.iter_mut().zip(bytes) {
                *block ^= byte;
            }
            let mut hash = Sha256::new();
            hash.update(block);
            hash
        };
        Self {
            inner: padded(0x36),
            outer: padded(0x5c),
        }
    }

    /// Parses a key file: 64 hexadecimal digits.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim_end();
        let mut bytes = [0; KEY_BYTES];
        let valid = text.len() == 2 * KEY_BYTES && text.bytes().all(|b| b.is_ascii_hexdigit());
        for (index, byte) in bytes.iter_mut().enumerate() {
            let digits = text.get(2 * index..2 * index + 2).filter(|_| valid)?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(Self::new(&bytes))
    }

    /// Returns the digest of some bytes.
    pub fn digest(&self, bytes: &[u8]) -> String {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Returns a hasher for a digest in several steps.
    pub fn hasher(&self) -> Hasher {
        Hasher {
            inner: self.inner.clone(),
            outer: self.outer.clone(),
        }
    }

    /// Returns the id of the key, which reveals nothing about it.
    pub fn id(&self) -> String {
        self.digest(b"mco-rescue recorder key")
    }
}

/// A digest in progress.
#[derive(Debug)]
pub struct Hasher {
    inner: Sha256,
    outer: Sha256,
}

impl Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.inner.update(bytes);
    }

    /// Returns the digest.
    pub fn finish(mut self) -> String {
        self.outer.update(self.inner.finalize());
        let whole = self.outer.finalize();
        URL_SAFE_NO_PAD.encode(whole.get(..KEPT).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_beginning_of_a_real_hmac() {
        // printf abc | openssl dgst -sha256 -mac HMAC -macopt hexkey:0707…
        let key = DigestKey::new(&[7; KEY_BYTES]);
        let whole: [u8; 6] = [0x12, 0x7d, 0xa4, 0xce, 0xd6, 0xa8];
        assert_eq!(key.digest(b"abc"), URL_SAFE_NO_PAD.encode(whole));
        assert_ne!(
            key.digest(b"abc"),
            DigestKey::new(&[8; KEY_BYTES]).digest(b"abc")
        );
    }

    #[test]
    fn only_a_whole_key_is_one() {
        let text = "07".repeat(KEY_BYTES);
        let key = DigestKey::parse(format!("{text}\n").as_bytes()).unwrap();
        assert_eq!(key.id(), DigestKey::new(&[7; KEY_BYTES]).id());
        for bad in [
            "",
            "07",
            &"0g".repeat(KEY_BYTES),
            &"\u{e9}".repeat(KEY_BYTES),
        ] {
            assert!(DigestKey::parse(bad.as_bytes()).is_none(), "{bad:?}");
        }
        assert!(!format!("{key:?}").contains("0707"));
    }
}
