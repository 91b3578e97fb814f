//! Trust: certificate bundles, the TLS client, and what a refused certificate means.
//!
//! The cryptography is ring's, chosen here and nowhere else. There is no way to switch verification off.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, InvalidMessage,
    RootCertStore, SignatureScheme,
};

use super::chain::Presented;
use super::error::TlsProblem;

/// Why a bundle was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// A line that belongs to no block.
    #[error("line {0} is behind the last certificate and no part of one; remove it")]
    Stray(usize),
    /// A block without an end.
    #[error("the block that begins in line {0} has no end; give the whole file")]
    Open(usize),
    /// A block of something else, or a damaged one.
    #[error("the block that begins in line {0} is no certificate that can be used; remove it")]
    NotACertificate(usize),
    /// No private key.
    #[error("there is no private key in it; give a PEM file with -----BEGIN PRIVATE KEY-----")]
    NoKey,
    /// Nothing in it.
    #[error("there is no certificate in it; give a PEM file with -----BEGIN CERTIFICATE-----")]
    Empty,
}

/// The certificates of a PEM bundle, in order (ignition-contract section 5.3).
///
/// Every block must be a certificate. Text before a block is passed over, as in Ignition; behind the last
/// one only blank lines may stand, which Ignition refuses.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BundleError> {
    let (blocks, problem) = blocks(pem);
    let found: Vec<_> = blocks
        .iter()
        .map(|block| certificate(block).ok_or(BundleError::NotACertificate(block.line)))
        .collect::<Result<_, _>>()?;
    match problem {
        Some(problem) => Err(problem),
        None if found.is_empty() => Err(BundleError::Empty),
        None => Ok(found),
    }
}

/// The certificates of the operating system's bundle (see [`crate::paths::CA_BUNDLES`]). What cannot be
/// used is passed over.
pub fn system_certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    blocks(pem).0.iter().filter_map(certificate).collect()
}

struct Block {
    /// Counted from 1.
    line: usize,
    text: String,
}

/// The blocks that have an end, and what is wrong behind them.
fn blocks(pem: &[u8]) -> (Vec<Block>, Option<BundleError>) {
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

fn certificate(block: &Block) -> Option<CertificateDer<'static>> {
    let der = CertificateDer::from_pem_slice(block.text.as_bytes()).ok()?;
    RootCertStore::empty().add(der.clone()).ok()?;
    Some(der)
}

/// With what we show who we are: a certificate chain and its key. `Debug` shows neither.
#[derive(Clone)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({} certificates)", self.chain.len())
    }
}

impl Identity {
    /// From PEM texts, which may be one and the same.
    pub fn parse(chain: &[u8], key: &[u8]) -> Result<Self, BundleError> {
        // Of a file with both, only the blocks that are wanted count.
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

/// Whom we trust, and who we are.
pub(super) struct Trust {
    identity: Option<Identity>,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    refused: Refused,
}

/// The chain that was refused last, for want of an authority.
type Refused = Arc<Mutex<Option<Presented>>>;

impl Trust {
    pub(super) fn new(
        certificates: &[CertificateDer<'static>],
        identity: Option<Identity>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        Self {
            identity,
            roots: Arc::new(roots),
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            refused: Refused::default(),
        }
    }

    pub(super) fn client(&self) -> Result<Arc<ClientConfig>, TlsProblem> {
        let builder = self.builder(None)?;
        let config = match &self.identity {
            None => Ok(builder.with_no_client_auth()),
            Some(identity) => {
                builder.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            }
        };
        config
            .map(Arc::new)
            .map_err(|e| TlsProblem::Other(e.to_string()))
    }

    /// A client that verifies everything, but as of another time. Only for asking a server what time it
    /// has, never for contents.
    pub(super) fn client_at(&self, time: SystemTime) -> Option<Arc<ClientConfig>> {
        let time = UnixTime::since_unix_epoch(time.duration_since(UNIX_EPOCH).ok()?);
        let builder = self.builder(Some(time)).ok()?;
        Some(Arc::new(builder.with_no_client_auth()))
    }

    fn builder(
        &self,
        time: Option<UnixTime>,
    ) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsProblem> {
        let provider = Arc::clone(&self.provider);
        let roots = Arc::clone(&self.roots);
        let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let verifier = Verifier {
            inner: inner.build().ok(),
            provider: Arc::clone(&provider),
            time,
            refused: Arc::clone(&self.refused),
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| TlsProblem::Other(e.to_string()))?;
        Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier)))
    }

    /// What the server showed that was refused last for want of an authority.
    pub(super) fn refused(&self) -> Option<Presented> {
        self.refused.lock().ok()?.take()
    }
}

/// The usual verifier, which keeps what it refuses for want of an authority, and may be told another time.
#[derive(Debug)]
struct Verifier {
    /// Absent where nobody is trusted.
    inner: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
    time: Option<UnixTime>,
    refused: Refused,
}

impl Verifier {
    fn keep(&self, presented: Presented) {
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
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let time = self.time.unwrap_or(now);
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let verified = match &self.inner {
            Some(inner) => inner.verify_server_cert(end_entity, intermediates, name, ocsp, time),
            None => Err(unknown.clone()),
        };
        // An authority that was made anew under its old name has another key: its signature looks wrong.
        let same_name = matches!(
            verified,
            Err(Error::InvalidCertificate(CertificateError::BadSignature))
        );
        match verified {
            Err(error) if same_name || error == unknown => {
                let mut presented = Presented::new(end_entity, intermediates, name, time);
                presented.same_name = same_name;
                self.keep(presented);
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

/// The problem that TLS put into an I/O error, if it is one of TLS.
pub(super) fn problem(error: &io::Error) -> Option<TlsProblem> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(problem) => of_certificate(problem),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => TlsProblem::NotTls,
        other => TlsProblem::Other(other.to_string()),
    })
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
            names: presented.iter().map(|name| plain(name)).collect(),
        },
        other => TlsProblem::BadCertificate(other.to_string()),
    }
}

/// `DnsName("a.example")` and `IpAddress(10.0.0.1)` without their wrapping.
fn plain(name: &str) -> String {
    let inner = name
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"').to_owned()
}

fn system_time(time: UnixTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time.as_secs())
}
