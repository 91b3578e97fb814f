//! The certificates that a server presented: shown to the person who has to find their issuer, and checked against the
//! authorities on this node. The check is only for the message; it makes no certificate trusted.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest, Sha256};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::parse_x509_certificate;
use x509_parser::x509::X509Name;

use super::anchors::Anchors;
use crate::host::root::to_hex;

/// Maximum number of certificates of a chain in a message; no server needs more.
const MAX_TOLD: usize = 6;
/// Maximum number of characters of a name in a message.
const MAX_NAME: usize = 200;
/// Last second of the year 9999, the limit for certificates and dates in messages.
const LAST_SECOND: u64 = 253_402_300_799;

/// The certificates of a server that was refused.
#[derive(Clone)]
pub struct Presented {
    /// The server's own first.
    chain: Vec<CertificateDer<'static>>,
    name: ServerName<'static>,
    time: UnixTime,
    /// True if an authority with the issuer's name is trusted, but its key did not sign this certificate.
    pub same_name: bool,
    /// Names of the authorities on this node that would verify it; `None` if none was tried.
    pub verified_by: Option<Vec<String>>,
}

/// The fields of a certificate that a message shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSummary {
    /// Subject, as text.
    pub subject: String,
    /// Issuer, as text.
    pub issuer: String,
    /// The begin of its validity.
    pub not_before: SystemTime,
    /// The end of its validity.
    pub not_after: SystemTime,
    /// Identifier of its key, in hex, if present.
    pub key_id: Option<String>,
    /// Identifier of its issuer's key, in hex, if present.
    pub issuer_key_id: Option<String>,
}

impl Presented {
    pub(super) fn new(
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        time: UnixTime,
    ) -> Self {
        let others = others.iter().map(|one| one.clone().into_owned());
        Self {
            chain: std::iter::once(own.clone().into_owned())
                .chain(others)
                .collect(),
            name: name.to_owned(),
            time,
            same_name: false,
            verified_by: None,
        }
    }

    /// Returns true if these authorities verify the chain, for the server's name and at that time.
    pub fn would_be_verified_by(&self, authorities: &[CertificateDer<'static>]) -> bool {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let anchors = Anchors::new(authorities.into(), provider);
        let Some((own, others)) = self.chain.split_first() else {
            return false;
        };
        anchors
            .verify_server(own, others, &self.name, self.time)
            .is_ok()
    }

    /// Returns the fields of the certificates, the server's own first; `None` for one that cannot be read.
    pub fn read_certificates(&self) -> Vec<Option<CertificateSummary>> {
        self.chain.iter().map(|der| read_certificate(der)).collect()
    }

    /// Returns the SHA-256 of the last certificate, formatted like `openssl x509 -fingerprint -sha256`.
    pub fn last_fingerprint(&self) -> String {
        let last = self.chain.last().map(Sha256::digest);
        let bytes = last.iter().flatten().map(|byte| format!("{byte:02X}"));
        bytes.collect::<Vec<_>>().join(":")
    }
}

/// Reads the fields of a certificate in DER; `None` if it cannot be read.
pub fn read_certificate(der: &[u8]) -> Option<CertificateSummary> {
    let (_, certificate) = parse_x509_certificate(der).ok()?;
    let time = |seconds: i64| {
        let seconds = u64::try_from(seconds).unwrap_or_default();
        UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_SECOND))
    };
    let name = |name: &X509Name<'_>| name.to_string().chars().take(MAX_NAME).collect();
    let validity = certificate.validity();
    Some(CertificateSummary {
        subject: name(certificate.subject()),
        issuer: name(certificate.issuer()),
        not_before: time(validity.not_before.timestamp()),
        not_after: time(validity.not_after.timestamp()),
        key_id: certificate
            .extensions()
            .iter()
            .find_map(|one| match one.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(to_hex(id.0)),
                _ => None,
            }),
        issuer_key_id: certificate.extensions().iter().find_map(|one| {
            match one.parsed_extension() {
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    id.key_identifier.as_ref().map(|id| to_hex(id.0))
                }
                _ => None,
            }
        }),
    })
}

/// Returns the IP addresses that a certificate in DER is valid for; empty if it cannot be read.
pub fn read_addresses(der: &[u8]) -> Vec<IpAddr> {
    let Ok((_, certificate)) = parse_x509_certificate(der) else {
        return Vec::new();
    };
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let addresses = names.filter_map(|name| match name {
        GeneralName::IPAddress(bytes) => read_address(bytes),
        _ => None,
    });
    addresses.collect()
}

fn read_address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

impl fmt::Display for CertificateSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = httpdate::fmt_http_date;
        write!(
            f,
            "{:?} issued by {:?}, from {} to {}",
            self.subject,
            self.issuer,
            date(self.not_before),
            date(self.not_after)
        )
    }
}

impl fmt::Display for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.same_name {
            write!(f, " (one of the issuer's name is, but it has another key)")?;
        }
        let all = self.read_certificates();
        let told = all.iter().take(MAX_TOLD).enumerate().map(|(index, one)| {
            let text = one.as_ref().map(ToString::to_string);
            let text = text.unwrap_or_else(|| "one that cannot be read".to_owned());
            format!("{}. {text}", index + 1)
        });
        let more = all.len().saturating_sub(MAX_TOLD);
        let more = (more > 0).then(|| format!("and {more} more"));
        let told: Vec<String> = told.chain(more).collect();
        write!(
            f,
            ". It shows: {}; SHA-256 of the last {}",
            told.join("; "),
            self.last_fingerprint()
        )
    }
}

/// Prints no bytes.
impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Presented({} certificates)", self.chain.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    /// A self-signed certificate of this subject.
    fn certificate(subject: &str, until: i32) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, subject);
        params.not_after = rcgen::date_time_ymd(until, 12, 31);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn names_and_dates_are_told_whatever_they_are() {
        let one = read_certificate(&certificate("a\n\u{1b}[31mb", 9999))
            .unwrap()
            .to_string();
        assert!(!one.contains(['\n', '\u{1b}']), "{one}");
        assert!(one.ends_with("to Fri, 31 Dec 9999 00:00:00 GMT"), "{one}");
        let long = read_certificate(&certificate(&"x".repeat(9000), 2100)).unwrap();
        assert_eq!(long.subject.len(), MAX_NAME);
    }

    proptest! {
        #[test]
        fn a_damaged_certificate_is_told_or_not_but_never_ends_the_program(
            at in 0usize..300, byte: u8, end in 0usize..400,
        ) {
            let mut der = certificate("name", 2100);
            if let Some(place) = der.get_mut(at) {
                *place = byte;
            }
            der.truncate(end.max(1));
            if let Some(shown) = read_certificate(&der) {
                let _ = shown.to_string();
            }
        }
    }
}
