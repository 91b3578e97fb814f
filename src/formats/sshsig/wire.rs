//! ssh's wire format, and the reasons why a signature is not accepted.

use crate::base::ssh_key::KeyError;

/// The only version.
pub(super) const VERSION: u32 = 1;

/// The reason why a signature is not accepted; its text is the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is no signature.
    #[error("is missing")]
    Missing,
    /// The file has another form.
    #[error("is not an SSH signature: {0}")]
    Form(&'static str),
    /// It has another version.
    #[error("has version {0} of the format; this program knows version {VERSION}")]
    Version(u32),
    /// The key in it cannot sign.
    #[error("is by a key that cannot be used: it {0}")]
    Key(#[from] KeyError),
    /// It is by a certificate.
    #[error("is by a certificate ({0}), which is not accepted. Sign with the key itself")]
    Certificate(String),
    /// The signature algorithm does not belong to the key, or is not accepted.
    #[error("has the algorithm {found}, which is not accepted from a key {key}")]
    Algorithm {
        /// The key's type.
        key: String,
        /// The algorithm.
        found: String,
    },
    /// The key's type or size cannot be verified.
    #[error("is by a key that this program cannot verify ({0}). Sign with an ed25519 key")]
    Unsupported(&'static str),
    /// The hash algorithm is not accepted.
    #[error("has the hash algorithm {0:?}, which is not accepted")]
    Hash(String),
    /// It is for another purpose.
    #[error("is for the namespace {found:?}, not for {wanted:?}")]
    Namespace {
        /// The namespace in the signature.
        found: String,
        /// The wanted one.
        wanted: String,
    },
    /// A token signed without being touched.
    #[error("is by a token that was not touched (user presence is missing)")]
    NotTouched,
    /// It does not match the message.
    #[error("does not match: what was signed is not what is here, or it is by another key")]
    Mismatch,
}

/// Fields of ssh's wire format that are left to read.
pub(super) struct WireFields<'a>(pub(super) &'a [u8]);

impl<'a> WireFields<'a> {
    const SHORT: SignatureError = SignatureError::Form("it ends too early");

    pub(super) fn read_byte(&mut self) -> Result<u8, SignatureError> {
        let (byte, rest) = self.0.split_first().ok_or(Self::SHORT)?;
        self.0 = rest;
        Ok(*byte)
    }

    pub(super) fn read_number(&mut self) -> Result<u32, SignatureError> {
        let (number, rest) = self.0.split_first_chunk::<4>().ok_or(Self::SHORT)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*number))
    }

    pub(super) fn read_string(&mut self) -> Result<&'a [u8], SignatureError> {
        let length = usize::try_from(self.read_number()?).map_err(|_| Self::SHORT)?;
        let (string, rest) = self.0.split_at_checked(length).ok_or(Self::SHORT)?;
        self.0 = rest;
        Ok(string)
    }

    pub(super) fn read_text(&mut self) -> Result<String, SignatureError> {
        let text = std::str::from_utf8(self.read_string()?);
        let text = text.map_err(|_| SignatureError::Form("a name in it is not text"))?;
        if text.chars().any(char::is_control) {
            Err(SignatureError::Form("a name in it has control characters"))
        } else {
            Ok(text.to_owned())
        }
    }

    pub(super) fn expect_end(&self) -> Result<(), SignatureError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(SignatureError::Form("something follows its last field"))
        }
    }
}
