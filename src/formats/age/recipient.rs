//! Public keys that a file is encrypted to: age keys, and SSH keys that age accepts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bech32::Bech32;
use bech32::primitives::decode::CheckedHrpstring;
use curve25519_dalek::edwards::CompressedEdwardsY;
use curve25519_dalek::montgomery::MontgomeryPoint;
use num_bigint::BigUint;
use sha2::{Digest, Sha256};

use super::{AgeError, FILE_KEY, Stanza, derive_key, random_bytes, seal_bytes};
use crate::base::ssh_key::{self, KeyError, PublicKey};

const X25519: &str = "age-encryption.org/v1/X25519";
const SSH_ED25519: &str = "age-encryption.org/v1/ssh-ed25519";
const SSH_RSA: &str = "age-encryption.org/v1/ssh-rsa";

/// Maximum number of bits of an RSA key.
const MAX_RSA: u64 = 16 << 10;

/// A public key, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    key: EncryptionKey,
    shown: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum EncryptionKey {
    X25519(MontgomeryPoint),
    SshEd25519 {
        blob: Vec<u8>,
        point: MontgomeryPoint,
    },
    SshRsa {
        blob: Vec<u8>,
        exponent: BigUint,
        modulus: BigUint,
    },
}

/// The reason why a line is not a public key for age; the text is the end of a sentence and contains no part of the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecipientError {
    /// The line does not begin like a key.
    #[error("is not a public key: it begins neither with age1, ssh-ed25519 nor ssh-rsa")]
    NoKey,
    /// The line is a secret key.
    #[error(
        "is a secret key. Give the public one that belongs to it: age-keygen -y FILE, or ssh-keygen -yf FILE"
    )]
    Secret,
    /// The key's characters are damaged.
    #[error("is not a complete age key: a letter is wrong, missing or added. Copy it again")]
    Damaged,
    /// An age key that needs another program.
    #[error(
        "is a key of an age plugin or of another kind of age key. Give an age1... key as age-keygen prints it, or one of ssh"
    )]
    Plugin,
    /// An SSH key that age cannot encrypt to.
    #[error(
        "is a key of type {0}, which age cannot encrypt to. Give an ssh-ed25519, ssh-rsa or age1... key"
    )]
    NotForAge(String),
    /// The key's numbers are unusable.
    #[error("is not a usable key: its numbers protect nothing. Give another one")]
    Weak,
    /// An incomplete SSH key.
    #[error("{0}")]
    Ssh(KeyError),
}

impl Recipient {
    /// Reads one key: `age1...`, or a line of `authorized_keys` or of a `.pub` file.
    ///
    /// # Errors
    /// The reason.
    pub fn parse(line: &str) -> Result<Self, RecipientError> {
        let line = line.trim();
        let small = line.to_ascii_lowercase();
        if small.starts_with("age-secret-key-") || small.starts_with("-----begin ") {
            return Err(RecipientError::Secret);
        }
        if small.starts_with("age1") {
            return Self::parse_age(line);
        }
        Self::parse_ssh(line)
    }

    fn parse_age(line: &str) -> Result<Self, RecipientError> {
        let checked = match CheckedHrpstring::new::<Bech32>(line) {
            Ok(checked) => checked,
            // Longer ones belong to plugins, or are post-quantum keys.
            Err(_)
                if line
                    .rsplit_once('1')
                    .is_some_and(|(hrp, _)| hrp.contains('1')) =>
            {
                return Err(RecipientError::Plugin);
            }
            Err(_) => return Err(RecipientError::Damaged),
        };
        if !checked.hrp().as_str().eq_ignore_ascii_case("age") {
            return Err(RecipientError::Plugin);
        }
        let bytes: Vec<u8> = checked.byte_iter().collect();
        let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| RecipientError::Damaged)?;
        Ok(Self {
            key: EncryptionKey::X25519(require_usable(MontgomeryPoint(bytes))?),
            shown: line.to_ascii_lowercase(),
        })
    }

    fn parse_ssh(line: &str) -> Result<Self, RecipientError> {
        let (key, wire) = ssh_key::read_wire(line).map_err(|error| match error {
            KeyError::NoType => RecipientError::NoKey,
            error => RecipientError::Ssh(error),
        })?;
        let shown = PublicKey {
            has_options: false,
            ..key.clone()
        };
        let key = match (key.kind.as_str(), wire.fields.as_slice()) {
            ("ssh-ed25519", [point]) => {
                let point = CompressedEdwardsY::from_slice(point).ok();
                let point = point.and_then(|point| point.decompress());
                let point = point.ok_or(RecipientError::Weak)?;
                EncryptionKey::SshEd25519 {
                    blob: wire.blob,
                    point: require_usable(point.to_montgomery())?,
                }
            }
            ("ssh-rsa", [exponent, modulus]) => {
                let (exponent, modulus) = (
                    BigUint::from_bytes_be(exponent),
                    BigUint::from_bytes_be(modulus),
                );
                let (one, two) = (BigUint::from(1_u8), BigUint::from(2_u8));
                let odd = |number: &BigUint| number.bit(0);
                // A real exponent is 65537 or smaller.
                let is_usable =
                    odd(&exponent) && odd(&modulus) && exponent > two && exponent.bits() <= 32;
                if !is_usable || modulus.bits() > MAX_RSA || modulus == one {
                    return Err(RecipientError::Weak);
                }
                EncryptionKey::SshRsa {
                    blob: wire.blob,
                    exponent,
                    modulus,
                }
            }
            (kind, _) => return Err(RecipientError::NotForAge(kind.to_owned())),
        };
        Ok(Self {
            key,
            shown: shown.to_string(),
        })
    }

    /// Returns the key for display: type, fingerprint and comment of an SSH key.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Encrypts the file key to this key.
    pub(super) fn wrap_key(&self, file_key: &[u8; FILE_KEY]) -> Result<Stanza, AgeError> {
        match &self.key {
            EncryptionKey::X25519(theirs) => {
                let (ours, shared) = agree_secret(theirs)?;
                let mut arguments = vec!["X25519".to_owned()];
                arguments.push(STANDARD_NO_PAD.encode(ours));
                let body = wrap_shared(&shared, &ours, theirs, X25519, file_key)?;
                Ok(Stanza { arguments, body })
            }
            EncryptionKey::SshEd25519 { blob, point } => {
                let (ours, shared) = agree_secret(point)?;
                // A signing key gets a separate number for this use.
                let tweak = derive_key(b"", blob, SSH_ED25519.as_bytes())?;
                let shared = MontgomeryPoint(shared).mul_clamped(tweak).to_bytes();
                let arguments = vec![
                    "ssh-ed25519".to_owned(),
                    fingerprint(blob),
                    STANDARD_NO_PAD.encode(ours),
                ];
                let body = wrap_shared(&shared, &ours, point, SSH_ED25519, file_key)?;
                Ok(Stanza { arguments, body })
            }
            EncryptionKey::SshRsa {
                blob,
                exponent,
                modulus,
            } => {
                let length = usize::try_from(modulus.bits().div_ceil(8)).unwrap_or_default();
                let seed = random_bytes::<32>()?;
                let padded = pad_oaep(file_key, SSH_RSA, length, seed).ok_or(AgeError::Refused)?;
                let number = BigUint::from_bytes_be(&padded).modpow(exponent, modulus);
                let bytes = number.to_bytes_be();
                let mut body = vec![0; length.saturating_sub(bytes.len())];
                body.extend(bytes);
                Ok(Stanza {
                    arguments: vec!["ssh-rsa".to_owned(), fingerprint(blob)],
                    body,
                })
            }
        }
    }
}

/// Refuses the few points with which every key agrees on the same secret.
fn require_usable(point: MontgomeryPoint) -> Result<MontgomeryPoint, RecipientError> {
    if point.mul_clamped([0x55; 32]).to_bytes() == [0; 32] {
        Err(RecipientError::Weak)
    } else {
        Ok(point)
    }
}

/// Returns the public half of a new key, and the secret shared with theirs.
fn agree_secret(theirs: &MontgomeryPoint) -> Result<([u8; 32], [u8; 32]), AgeError> {
    let secret = random_bytes::<32>()?;
    let ours = MontgomeryPoint::mul_base_clamped(secret).to_bytes();
    let shared = theirs.mul_clamped(secret).to_bytes();
    Ok((ours, shared))
}

/// Encrypts the file key with the shared secret. That is used only once, so the nonce is zero.
fn wrap_shared(
    shared: &[u8; 32],
    ours: &[u8; 32],
    theirs: &MontgomeryPoint,
    label: &str,
    file_key: &[u8; FILE_KEY],
) -> Result<Vec<u8>, AgeError> {
    let salt = [ours.as_slice(), theirs.as_bytes()].concat();
    let key = derive_key(shared, &salt, label.as_bytes())?;
    seal_bytes(&key, [0; 12], file_key)
}

/// Returns the tag by which the owner of a key recognizes the stanza.
fn fingerprint(blob: &[u8]) -> String {
    let digest = Sha256::digest(blob);
    STANDARD_NO_PAD.encode(digest.get(..4).unwrap_or_default())
}

/// Pads a message for RSA: OAEP of RFC 8017 with SHA-256. Returns `None` if the key is too short for the message.
fn pad_oaep(message: &[u8], label: &str, length: usize, seed: [u8; 32]) -> Option<Vec<u8>> {
    let zeros = length.checked_sub(message.len() + 2 * seed.len() + 2)?;
    let mut data = Sha256::digest(label.as_bytes()).to_vec();
    data.resize(data.len() + zeros, 0);
    data.push(1);
    data.extend(message);
    mask_bytes(&mut data, &seed);
    let mut seed = seed;
    mask_bytes(&mut seed, &data);
    let mut out = vec![0];
    out.extend(seed);
    out.extend(data);
    Some(out)
}

/// Applies MGF1 with SHA-256 to the bytes.
fn mask_bytes(bytes: &mut [u8], seed: &[u8]) {
    for (number, chunk) in (0_u32..).zip(bytes.chunks_mut(32)) {
        let mut hasher = Sha256::new();
        hasher.update(seed);
        hasher.update(number.to_be_bytes());
        let digest = hasher.finalize();
        for (byte, mask) in chunk.iter_mut().zip(digest.iter()) {
            *byte ^= mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

    #[test]
    fn no_damaged_key_is_taken_and_none_is_repeated() {
        let key = Recipient::parse(AGE).unwrap();
        assert_eq!(key.shown(), AGE);
        for at in 4..AGE.len() {
            let other = if AGE.as_bytes()[at] == b'q' { 'p' } else { 'q' };
            let mut damaged = AGE.to_owned();
            damaged.replace_range(at..=at, &other.to_string());
            assert!(Recipient::parse(&damaged).is_err(), "{damaged}");
            assert!(Recipient::parse(&AGE[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn each_refusal_names_its_reason() {
        let cases = [
            ("", RecipientError::NoKey),
            ("worker", RecipientError::NoKey),
            ("AGE-SECRET-KEY-1ABC", RecipientError::Secret),
            (
                "-----BEGIN OPENSSH PRIVATE KEY-----",
                RecipientError::Secret,
            ),
            ("age1yubikey1qqqqqq", RecipientError::Plugin),
            ("age1", RecipientError::Damaged),
        ];
        for (line, error) in cases {
            assert_eq!(Recipient::parse(line), Err(error), "{line}");
        }
        // All zeros: every secret agrees with it on zero.
        let hrp = bech32::Hrp::parse("age").unwrap();
        let zero = bech32::encode::<Bech32>(hrp, &[0; 32]).unwrap();
        assert_eq!(Recipient::parse(&zero), Err(RecipientError::Weak));
    }

    #[test]
    fn a_key_that_is_too_short_for_the_padding_is_not_a_reason_to_panic() {
        assert_eq!(pad_oaep(&[1; 16], "x", 60, [2; 32]), None);
        assert_eq!(
            pad_oaep(&[1; 16], "x", 256, [2; 32]).map(|all| all.len()),
            Some(256)
        );
    }
}
