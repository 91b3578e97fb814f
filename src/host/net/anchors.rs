//! The trusted certificates.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, RootCertStore};

use super::marked_ca;

/// The trusted certificates, and the verification of a server's certificate with them.
#[derive(Debug)]
pub(super) struct Anchors {
    certificates: Arc<[CertificateDer<'static>]>,
    /// `None` if there is no usable certificate.
    webpki: Option<Arc<WebPkiServerVerifier>>,
}

impl Anchors {
    pub(super) fn new(
        certificates: Arc<[CertificateDer<'static>]>,
        provider: Arc<CryptoProvider>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        Self {
            certificates,
            webpki: webpki.build().ok(),
        }
    }

    /// Verifies the certificate of the server `name` as of `time`.
    pub(super) fn verify_server(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        time: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(webpki) = &self.webpki else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        match webpki.verify_server_cert(end_entity, intermediates, name, &[], time) {
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if marked_ca::is_marked(end_entity) =>
            {
                marked_ca::verify_marked(end_entity, &self.certificates, name, time)
            }
            verified => verified,
        }
    }
}
