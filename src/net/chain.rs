//! The certificates that a server showed: told to whoever has to find out whom they come from, and tried with
//! authorities that are at hand. Trying is for telling only; nobody is trusted for it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest, Sha256};
use x509_parser::parse_x509_certificate;
use x509_parser::x509::X509Name;

use super::tls::Anchors;

/// No server needs more; a longer chain is told up to here.
const MAX_TOLD: usize = 6;
/// How much of a name is told.
const MAX_NAME: usize = 200;
/// Of the year 9999; no certificate and no date in a message goes further.
const LAST_SECOND: u64 = 253_402_300_799;

/// What a server showed when it was refused.
#[derive(Clone)]
pub struct Presented {
    /// The server's own first.
    chain: Vec<CertificateDer<'static>>,
    name: ServerName<'static>,
    time: UnixTime,
    /// An authority of the issuer's name is trusted, but its key did not sign this.
    pub same_name: bool,
    /// What at hand would verify it, by the names that the caller gave; `None` if nobody looked.
    pub verified_by: Option<Vec<String>>,
}

/// What a certificate says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Whose it is.
    pub subject: String,
    /// Who signed it.
    pub issuer: String,
    /// The begin of its validity.
    pub not_before: SystemTime,
    /// The end of its validity.
    pub not_after: SystemTime,
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

    /// Whether these authorities would have been enough, for the server's name and at that time.
    pub fn would_be_verified_by(&self, authorities: &[CertificateDer<'static>]) -> bool {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let anchors = Anchors::new(authorities.into(), provider);
        let Some((own, others)) = self.chain.split_first() else {
            return false;
        };
        anchors.verify(own, others, &self.name, self.time).is_ok()
    }

    /// What the certificates say, the server's own first; `None` for one that cannot be read.
    pub fn certificates(&self) -> Vec<Option<Shown>> {
        self.chain.iter().map(|der| shown(der)).collect()
    }

    /// SHA-256 of the last certificate, as `openssl x509 -fingerprint -sha256` writes it.
    pub fn fingerprint(&self) -> String {
        let last = self.chain.last().map(Sha256::digest);
        let bytes = last.iter().flatten().map(|byte| format!("{byte:02X}"));
        bytes.collect::<Vec<_>>().join(":")
    }
}

/// What a certificate in DER says of itself; `None` where it cannot be read.
pub fn shown(der: &[u8]) -> Option<Shown> {
    let (_, certificate) = parse_x509_certificate(der).ok()?;
    let time = |seconds: i64| {
        let seconds = u64::try_from(seconds).unwrap_or_default();
        UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_SECOND))
    };
    let name = |name: &X509Name<'_>| name.to_string().chars().take(MAX_NAME).collect();
    let validity = certificate.validity();
    Some(Shown {
        subject: name(certificate.subject()),
        issuer: name(certificate.issuer()),
        not_before: time(validity.not_before.timestamp()),
        not_after: time(validity.not_after.timestamp()),
    })
}

impl fmt::Display for Shown {
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
        let all = self.certificates();
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
            self.fingerprint()
        )
    }
}

/// Shows no bytes.
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
        let one = shown(&certificate("a\n\u{1b}[31mb", 9999))
            .unwrap()
            .to_string();
        assert!(!one.contains(['\n', '\u{1b}']), "{one}");
        assert!(one.ends_with("to Fri, 31 Dec 9999 00:00:00 GMT"), "{one}");
        let long = shown(&certificate(&"x".repeat(9000), 2100)).unwrap();
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
            if let Some(shown) = shown(&der) {
                let _ = shown.to_string();
            }
        }
    }
}
