//! The file that `ssh-keygen -Y sign` writes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256, Sha512};

use super::key;
use super::wire::{SignatureError, VERSION, WireFields};
use crate::base::ssh_key::{PublicKey, read_wire};

/// Maximum size of a signature file, in bytes. One by an RSA key of 16384 bits has 6 KiB.
pub const MAX_SIGNATURE: u64 = 16 << 10;
/// The first bytes of a signature, and of what is signed.
const MAGIC: &[u8] = b"SSHSIG";
const BEGIN: &str = "-----BEGIN SSH SIGNATURE-----\n";
const END: &str = "\n-----END SSH SIGNATURE-----";
/// A signature, parsed but not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshSignature {
    /// The key that it names.
    pub key: PublicKey,
    /// Encoded key.
    pub(super) blob: Vec<u8>,
    /// Fields of the key after its type.
    fields: Vec<Vec<u8>>,
    namespace: String,
    hash: MessageHash,
    algorithm: String,
    /// What the algorithm computed.
    value: Vec<u8>,
    /// Flags and counter of a token.
    token: Option<(u8, u32)>,
}

/// The hash of the message in a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageHash {
    Sha256,
    Sha512,
}

impl MessageHash {
    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    fn digest(self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(message).to_vec(),
            Self::Sha512 => Sha512::digest(message).to_vec(),
        }
    }
}

impl SshSignature {
    /// Parses the file.
    ///
    /// # Errors
    /// It has another form, or is by a key or algorithm that is not accepted.
    pub fn parse(file: &[u8]) -> Result<Self, SignatureError> {
        let blob = dearmor(file)?;
        let form = SignatureError::Form;
        let rest = blob.strip_prefix(MAGIC);
        let mut fields = WireFields(rest.ok_or(form("it does not begin with SSHSIG"))?);
        let version = fields.read_number()?;
        if version != VERSION {
            return Err(SignatureError::Version(version));
        }
        let key_blob = fields.read_string()?;
        let namespace = fields.read_text()?;
        if namespace.is_empty() {
            return Err(form("it names no namespace"));
        }
        if !fields.read_string()?.is_empty() {
            return Err(form("its reserved field is not empty"));
        }
        let hash = match fields.read_text()?.as_str() {
            "sha256" => MessageHash::Sha256,
            "sha512" => MessageHash::Sha512,
            other => return Err(SignatureError::Hash(other.to_owned())),
        };
        let mut inner = WireFields(fields.read_string()?);
        fields.expect_end()?;
        let algorithm = inner.read_text()?;
        let value = inner.read_string()?.to_vec();
        let token = if algorithm.starts_with("sk-") {
            Some((inner.read_byte()?, inner.read_number()?))
        } else {
            None
        };
        inner.expect_end()?;
        let (key, key_fields) = read_key(key_blob)?;
        if !key::is_algorithm_of(&algorithm, &key.kind) {
            return Err(SignatureError::Algorithm {
                key: key.kind,
                found: algorithm,
            });
        }
        Ok(Self {
            key,
            blob: key_blob.to_vec(),
            fields: key_fields,
            namespace,
            hash,
            algorithm,
            value,
            token,
        })
    }

    /// Verifies that this key signed this message for this purpose. Whether the key may sign is not looked at.
    ///
    /// # Errors
    /// It did not, or not for this purpose.
    pub fn verify(&self, message: &[u8], namespace: &str) -> Result<(), SignatureError> {
        if self.namespace != namespace {
            return Err(SignatureError::Namespace {
                found: self.namespace.clone(),
                wanted: namespace.to_owned(),
            });
        }
        let hash = self.hash.digest(message);
        let signed = wrapped_message(namespace, self.hash.name(), &hash);
        key::verify_signature(
            &self.algorithm,
            &self.fields,
            &signed,
            &self.value,
            self.token,
        )
    }
}

/// Returns the bytes that a key signs for a message with this hash.
fn wrapped_message(namespace: &str, hash_name: &str, hash: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for field in [namespace.as_bytes(), b"", hash_name.as_bytes(), hash] {
        let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
        out.extend(length.to_be_bytes());
        out.extend(field);
    }
    out
}

/// Decodes the lines between BEGIN and END, and requires that there is nothing else.
fn dearmor(file: &[u8]) -> Result<Vec<u8>, SignatureError> {
    let form = SignatureError::Form;
    if file.len() as u64 > MAX_SIGNATURE {
        return Err(form("it is too large"));
    }
    let text = std::str::from_utf8(file).map_err(|_| form("it is not text"))?;
    let rest = text
        .strip_prefix(BEGIN)
        .ok_or(form("its first line is not BEGIN SSH SIGNATURE"))?;
    let (body, after) = rest
        .split_once(END)
        .ok_or(form("its last line is not END SSH SIGNATURE"))?;
    if !matches!(after, "" | "\n") {
        return Err(form("something follows its last line"));
    }
    let letters: String = body.split('\n').collect();
    let decoded = STANDARD.decode(letters);
    decoded.map_err(|_| form("its lines are not base64"))
}

/// Reads the encoded key of a signature.
fn read_key(blob: &[u8]) -> Result<(PublicKey, Vec<Vec<u8>>), SignatureError> {
    let kind = WireFields(blob).read_text()?;
    if kind.contains("-cert-v0") {
        return Err(SignatureError::Certificate(kind));
    }
    if kind.contains(char::is_whitespace) {
        return Err(SignatureError::Form("its key has no type"));
    }
    let (key, wire) = read_wire(&format!("{kind} {}", STANDARD.encode(blob)))?;
    Ok((key, wire.fields))
}
