//! Trust: certificate bundles, the TLS client, and the meaning of a refused certificate.
//!
//! The cryptography is ring's, selected only here. Verification cannot be disabled.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, InconsistentKeys,
    InvalidMessage, RootCertStore, SignatureScheme,
};

use super::anchors::Anchors;
use super::chain::Presented;
use super::error::TlsProblem;

/// An error in a bundle of certificates or keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// A line outside of any block.
    #[error("line {0} is after the last certificate and not part of one; remove it")]
    Stray(usize),
    /// A block without an end.
    #[error("the block that begins in line {0} has no end; give the whole file")]
    Open(usize),
    /// A block of another kind, or a damaged one.
    #[error("the block that begins in line {0} is not a usable certificate; remove it")]
    NotACertificate(usize),
    /// No private key.
    #[error("there is no private key in it; give a PEM file with -----BEGIN PRIVATE KEY-----")]
    NoKey,
    /// It is empty.
    #[error("there is no certificate in it; give a PEM file with -----BEGIN CERTIFICATE-----")]
    Empty,
}

/// Returns the certificates of a PEM bundle, in order (docs/develop/ignition.md: Fetching).
///
/// Every block must be a certificate. Text before a block is skipped, as in Ignition; after the last one only blank lines are
/// allowed, which Ignition refuses.
pub fn parse_bundle(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BundleError> {
    let (blocks, problem) = split_blocks(pem);
    let found: Vec<_> = blocks
        .iter()
        .map(|block| parse_block(block).ok_or(BundleError::NotACertificate(block.line)))
        .collect::<Result<_, _>>()?;
    match problem {
        Some(problem) => Err(problem),
        None if found.is_empty() => Err(BundleError::Empty),
        None => Ok(found),
    }
}

/// Returns the certificates of the operating system's bundle (see [`crate::base::paths::CA_BUNDLES`]). Skips blocks that cannot
/// be used.
pub fn system_certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    split_blocks(pem).0.iter().filter_map(parse_block).collect()
}

struct Block {
    /// Counted from 1.
    line: usize,
    text: String,
}

/// Returns the complete blocks, and the first error after them.
fn split_blocks(pem: &[u8]) -> (Vec<Block>, Option<BundleError>) {
    let mut done = Vec::new();
    let mut open: Option<Block> = None;
    let mut stray = None;
    for (index, line) in String::from_utf8_lossy(pem).lines().enumerate() {
        let number = index + 1;
        match open.take() {
            Some(mut block) => {
                block.text.push_str(line);
                block.text.push('\n');
                if line.starts_with("-----END ") {
                    done.push(block);
                } else {
                    open = Some(block);
                }
            }
            None if line.starts_with("-----BEGIN ") => {
                let text = format!("{line}\n");
                open = Some(Block { line: number, text });
                stray = None;
            }
            None if !line.trim().is_empty() => stray = stray.or(Some(number)),
            None => {}
        }
    }
    let unended = open.map(|block| BundleError::Open(block.line));
    (done, unended.or(stray.map(BundleError::Stray)))
}

fn parse_block(block: &Block) -> Option<CertificateDer<'static>> {
    let der = CertificateDer::from_pem_slice(block.text.as_bytes()).ok()?;
    RootCertStore::empty().add(der.clone()).ok()?;
    Some(der)
}

/// The client's certificate chain and its key. `Debug` prints neither.
#[derive(Clone)]
pub struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
}

impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({} certificates)", self.chain.len())
    }
}

impl ClientIdentity {
    /// Parses PEM texts, which may be the same text.
    pub fn parse(chain: &[u8], key: &[u8]) -> Result<Self, BundleError> {
        // In a file with both, only the wanted blocks are used.
        let chain = system_certificates(chain);
        if chain.is_empty() {
            return Err(BundleError::Empty);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| BundleError::NoKey)?;
        Ok(Self {
            chain,
            key: Arc::new(key),
        })
    }
}

/// Returns true if a private key belongs to the first certificate of a chain; `None` if the kind of one is unknown or
/// cannot be read.
pub fn key_matches(chain: &[u8], key: &[u8]) -> Option<bool> {
    let identity = ClientIdentity::parse(chain, key).ok()?;
    let key = rustls::crypto::ring::sign::any_supported_type(&identity.key).ok()?;
    match CertifiedKey::new(identity.chain, key).keys_match() {
        Ok(()) => Some(true),
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Some(false),
        Err(_) => None,
    }
}

/// The trusted certificates and the client's own.
pub(super) struct Trust {
    identity: Option<ClientIdentity>,
    certificates: Arc<[CertificateDer<'static>]>,
    provider: Arc<CryptoProvider>,
    refused: Refused,
}

/// The last chain that was refused for a missing authority.
type Refused = Arc<Mutex<Option<Presented>>>;

impl Trust {
    pub(super) fn new(
        certificates: &[CertificateDer<'static>],
        identity: Option<ClientIdentity>,
    ) -> Self {
        Self {
            identity,
            certificates: certificates.into(),
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            refused: Refused::default(),
        }
    }

    pub(super) fn client_config(&self) -> Result<Arc<ClientConfig>, TlsProblem> {
        let builder = self.config_builder(None)?;
        let config = match &self.identity {
            None => Ok(builder.with_no_client_auth()),
            Some(identity) => {
                builder.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            }
        };
        config
            .map(Arc::new)
            .map_err(|e| TlsProblem::Other(error_words(&e)))
    }

    /// Returns a client that verifies everything, but as of another time. Only for asking a server for its time, never for
    /// contents.
    pub(super) fn client_at(&self, time: SystemTime) -> Option<Arc<ClientConfig>> {
        let time = UnixTime::since_unix_epoch(time.duration_since(UNIX_EPOCH).ok()?);
        let builder = self.config_builder(Some(time)).ok()?;
        Some(Arc::new(builder.with_no_client_auth()))
    }

    fn config_builder(
        &self,
        time: Option<UnixTime>,
    ) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsProblem> {
        let provider = Arc::clone(&self.provider);
        let verifier = Verifier {
            anchors: Anchors::new(Arc::clone(&self.certificates), Arc::clone(&provider)),
            provider: Arc::clone(&provider),
            time,
            refused: Arc::clone(&self.refused),
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| TlsProblem::Other(error_words(&e)))?;
        Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier)))
    }

    /// Takes the last chain that was refused for a missing authority.
    pub(super) fn take_refused(&self) -> Option<Presented> {
        self.refused.lock().ok()?.take()
    }
}

/// The usual verifier. It remembers a chain that it refuses for a missing authority, and may use another time.
#[derive(Debug)]
struct Verifier {
    anchors: Anchors,
    provider: Arc<CryptoProvider>,
    time: Option<UnixTime>,
    refused: Refused,
}

impl Verifier {
    fn keep_refused(&self, presented: Presented) {
        if let Ok(mut refused) = self.refused.lock() {
            *refused = Some(presented);
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let time = self.time.unwrap_or(now);
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let verified = self
            .anchors
            .verify_server(end_entity, intermediates, name, time);
        // An authority that was recreated under its old name has another key: its signature looks wrong.
        let same_name = matches!(
            verified,
            Err(Error::InvalidCertificate(CertificateError::BadSignature))
        );
        match verified {
            Err(error) if same_name || error == unknown => {
                let mut presented = Presented::new(end_entity, intermediates, name, time);
                presented.same_name = same_name;
                self.keep_refused(presented);
                Err(unknown)
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// Returns the TLS problem inside an I/O error, if there is one.
pub(super) fn problem_of(error: &io::Error) -> Option<TlsProblem> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(problem) => of_certificate(problem),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => TlsProblem::NotTls,
        other => TlsProblem::Other(error_words(other)),
    })
}

/// Returns an error of the TLS library in plain words, without type names.
pub(super) fn error_words(error: &Error) -> String {
    match error {
        Error::AlertReceived(alert) => {
            format!("the server refused the connection: {}", spaced_name(alert))
        }
        Error::PeerIncompatible(why) => format!(
            "the server and this program have no TLS version, cipher or signature in common ({})",
            spaced_name(why)
        ),
        Error::PeerMisbehaved(why) => {
            format!("the server broke the protocol: {}", spaced_name(why))
        }
        Error::InvalidMessage(why) => {
            format!("the server sent a damaged message: {}", spaced_name(why))
        }
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            "the server sent a message out of order".to_owned()
        }
        Error::NoCertificatesPresented => "the server showed no certificate".to_owned(),
        Error::DecryptError => "a message of the server cannot be decrypted".to_owned(),
        Error::InconsistentKeys(_) => "the key does not belong to the certificate".to_owned(),
        Error::InvalidCertificate(problem) => certificate_words(problem),
        Error::General(text) => text.clone(),
        other => format!("the connection failed: {}", spaced_name(other)),
    }
}

fn certificate_words(problem: &CertificateError) -> String {
    let fixed = match problem {
        CertificateError::BadEncoding => "it is damaged, or not an X.509 certificate",
        CertificateError::Revoked => "it is revoked",
        CertificateError::UnhandledCriticalExtension => {
            "it has a critical extension that is not known here"
        }
        CertificateError::BadSignature => "its signature is wrong",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its extended key usage does not allow a server (serverAuth)"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it is signed in a way that is not accepted here, such as SHA-1 or a short key"
        }
        other => return spaced_name(other),
    };
    fixed.to_owned()
}

/// Returns `HandshakeFailure` as `handshake failure`, and for `Other(OtherError(CaUsedAsEndEntity))` the innermost name.
fn spaced_name(named: &impl std::fmt::Debug) -> String {
    let text = format!("{named:?}");
    let innermost = text.rsplit('(').next().unwrap_or_default();
    let mut words = String::new();
    let mut after_small = false;
    for letter in innermost.chars().take_while(char::is_ascii_alphanumeric) {
        if letter.is_ascii_uppercase() && after_small {
            words.push(' ');
        }
        after_small = !letter.is_ascii_uppercase();
        words.push(letter.to_ascii_lowercase());
    }
    words
}

fn of_certificate(problem: &CertificateError) -> TlsProblem {
    match problem {
        CertificateError::UnknownIssuer => TlsProblem::UnknownIssuer(None),
        CertificateError::ExpiredContext { time, not_after } => TlsProblem::Expired {
            not_after: system_time(*not_after),
            clock: system_time(*time),
            server: None,
        },
        CertificateError::NotValidYetContext { time, not_before } => TlsProblem::NotYetValid {
            not_before: system_time(*not_before),
            clock: system_time(*time),
            server: None,
        },
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => TlsProblem::WrongName {
            wanted: expected.to_str().into_owned(),
            names: presented.iter().map(|name| plain_name(name)).collect(),
        },
        other => TlsProblem::BadCertificate(certificate_words(other)),
    }
}

/// Returns `DnsName("a.example")` and `IpAddress(10.0.0.1)` without the type name.
fn plain_name(name: &str) -> String {
    let inner = name
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"').to_owned()
}

fn system_time(time: UnixTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time.as_secs())
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, InvalidMessage, PeerIncompatible, PeerMisbehaved};

    use super::*;

    #[test]
    fn no_message_has_a_name_of_a_rust_type() {
        let errors = [
            Error::AlertReceived(AlertDescription::HandshakeFailure),
            Error::AlertReceived(AlertDescription::UnrecognisedName),
            Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13),
            Error::PeerMisbehaved(PeerMisbehaved::IllegalMiddleboxChangeCipherSpec),
            Error::InvalidMessage(InvalidMessage::MessageTooLarge),
            Error::NoCertificatesPresented,
            Error::DecryptError,
            Error::PeerSentOversizedRecord,
            Error::NoApplicationProtocol,
            CertificateError::BadEncoding.into(),
            CertificateError::InvalidPurpose.into(),
            CertificateError::InvalidOcspResponse.into(),
            CertificateError::Other(rustls::OtherError(Arc::new(io::Error::other("Inner(Odd)"))))
                .into(),
        ];
        for error in errors {
            // The only name that belongs to the field: that of an extended key usage.
            let words = error_words(&error).replace("serverAuth", "");
            let joined = words
                .as_bytes()
                .windows(2)
                .any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
            assert!(!joined && !words.is_empty(), "{error:?}: {words}");
        }
        let alert = Error::AlertReceived(AlertDescription::HandshakeFailure);
        assert!(error_words(&alert).ends_with(": handshake failure"));
    }
}
