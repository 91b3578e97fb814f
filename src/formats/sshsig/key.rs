//! Verification with one key.

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use sha2::{Digest, Sha256};

use super::wire::{SignatureError, WireFields};

/// The flag of a token that was touched.
const USER_PRESENT: u8 = 1;
/// Maximum size of an RSA key that ring verifies, in bytes.
const MAX_RSA: usize = 1024;

/// Returns true if keys of this type sign with this algorithm. The algorithm of an RSA key with SHA-1 has the key's own name.
pub(super) fn is_algorithm_of(algorithm: &str, kind: &str) -> bool {
    match kind {
        "ssh-rsa" => matches!(algorithm, "rsa-sha2-256" | "rsa-sha2-512"),
        _ => algorithm == kind,
    }
}

/// Verifies a signature. `fields` are those of the key after its type, `token` the flags and the counter of a token.
pub(super) fn verify_signature(
    algorithm: &str,
    fields: &[Vec<u8>],
    signed: &[u8],
    value: &[u8],
    token: Option<(u8, u32)>,
) -> Result<(), SignatureError> {
    let mut fields = fields.iter().map(Vec::as_slice);
    let mut next = || {
        let field = fields.next();
        field.ok_or(SignatureError::Form("its key ends too early"))
    };
    match algorithm {
        "ssh-ed25519" => check_signature(&ED25519, next()?, signed, value),
        "sk-ssh-ed25519@openssh.com" => {
            let key = next()?;
            let signed = token_message(next()?, token, signed)?;
            check_signature(&ED25519, key, &signed, value)
        }
        "ecdsa-sha2-nistp256" => {
            let key = point_of(next()?, "nistp256", next()?)?;
            let value = join_numbers(value, 32)?;
            check_signature(&ECDSA_P256_SHA256_FIXED, key, signed, &value)
        }
        "ecdsa-sha2-nistp384" => {
            let key = point_of(next()?, "nistp384", next()?)?;
            let value = join_numbers(value, 48)?;
            check_signature(&ECDSA_P384_SHA384_FIXED, key, signed, &value)
        }
        "ecdsa-sha2-nistp521" => Err(SignatureError::Unsupported("ECDSA with the curve P-521")),
        "sk-ecdsa-sha2-nistp256@openssh.com" => {
            let key = point_of(next()?, "nistp256", next()?)?;
            let signed = token_message(next()?, token, signed)?;
            let value = join_numbers(value, 32)?;
            check_signature(&ECDSA_P256_SHA256_FIXED, key, &signed, &value)
        }
        "rsa-sha2-256" | "rsa-sha2-512" => {
            let (e, n) = (positive_digits(next()?)?, positive_digits(next()?)?);
            verify_rsa(algorithm, RsaPublicKeyComponents { n, e }, signed, value)
        }
        _ => Err(SignatureError::Unsupported("an unknown algorithm")),
    }
}

fn verify_rsa(
    algorithm: &str,
    key: RsaPublicKeyComponents<&[u8]>,
    signed: &[u8],
    value: &[u8],
) -> Result<(), SignatureError> {
    if key.n.len() > MAX_RSA {
        return Err(SignatureError::Unsupported("RSA with more than 8192 bits"));
    }
    let padding = key.n.len().saturating_sub(value.len());
    // Leading zeros may be missing.
    let value = [vec![0; padding], value.to_vec()].concat();
    let algorithm = match algorithm {
        "rsa-sha2-256" => &RSA_PKCS1_2048_8192_SHA256,
        _ => &RSA_PKCS1_2048_8192_SHA512,
    };
    let verified = key.verify(algorithm, signed, &value);
    verified.map_err(|_| SignatureError::Mismatch)
}

fn check_signature(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    signed: &[u8],
    value: &[u8],
) -> Result<(), SignatureError> {
    let key = UnparsedPublicKey::new(algorithm, key);
    let verified = key.verify(signed, value);
    verified.map_err(|_| SignatureError::Mismatch)
}

/// Returns the point of a key if it is on the curve of its type. ring accepts no compressed one.
fn point_of<'a>(found: &[u8], curve: &str, point: &'a [u8]) -> Result<&'a [u8], SignatureError> {
    if found == curve.as_bytes() {
        Ok(point)
    } else {
        Err(SignatureError::Form("its key is for another curve"))
    }
}

/// Returns what a token signs: the application, what the token says of itself, and the message.
fn token_message(
    application: &[u8],
    token: Option<(u8, u32)>,
    signed: &[u8],
) -> Result<Vec<u8>, SignatureError> {
    let (flags, counter) = token.ok_or(SignatureError::Form("it has no flags of a token"))?;
    if flags & USER_PRESENT == 0 {
        return Err(SignatureError::NotTouched);
    }
    let application = Sha256::digest(application);
    let parts: [&[u8]; 4] = [
        &application,
        &[flags],
        &counter.to_be_bytes(),
        &Sha256::digest(signed),
    ];
    Ok(parts.concat())
}

/// Returns both numbers of an ECDSA signature, each with `size` bytes.
fn join_numbers(value: &[u8], size: usize) -> Result<Vec<u8>, SignatureError> {
    let mut fields = WireFields(value);
    let numbers = [
        positive_digits(fields.read_string()?)?,
        positive_digits(fields.read_string()?)?,
    ];
    fields.expect_end()?;
    let mut out = Vec::new();
    for number in numbers {
        let padding = size.checked_sub(number.len());
        let padding = padding.ok_or(SignatureError::Mismatch)?;
        out.extend(std::iter::repeat_n(0, padding));
        out.extend(number);
    }
    Ok(out)
}

/// Returns the digits of a positive number in its only form.
fn positive_digits(number: &[u8]) -> Result<&[u8], SignatureError> {
    let form = SignatureError::Form("a number in it has another form");
    match number {
        [0, rest @ ..] if rest.first().is_some_and(|first| *first >= 0x80) => Ok(rest),
        [1..=0x7f, ..] => Ok(number),
        _ => Err(form),
    }
}
