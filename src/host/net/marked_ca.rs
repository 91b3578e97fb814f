//! Verifies a server certificate that is marked as an authority (`CA:TRUE`), as `openssl req -x509` creates it.
//!
//! webpki refuses every such server certificate. Ignition (Go) and curl (OpenSSL) accept one that is trusted itself or whose
//! issuer is, and so does this module. Everything else is verified as usual: dates, purpose, name.

use rustls::client::danger::ServerCertVerified;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error};
use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

/// Returns true if the certificate is marked as an authority.
pub(super) fn is_marked(certificate: &CertificateDer<'_>) -> bool {
    parse_certificate(certificate).is_some_and(|parsed| parsed.is_ca())
}

/// Verifies a marked certificate against the trusted ones, as of `time`.
pub(super) fn verify_marked(
    certificate: &CertificateDer<'_>,
    trusted: &[CertificateDer<'_>],
    name: &ServerName<'_>,
    time: UnixTime,
) -> Result<ServerCertVerified, Error> {
    let parsed = parse_certificate(certificate).ok_or(CertificateError::BadEncoding)?;
    check_dates(&parsed, time)?;
    if !trusted.contains(certificate) {
        check_issuer(&parsed, trusted, time)?;
    }
    check_purpose(&parsed)?;
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
    Ok(ServerCertVerified::assertion())
}

fn parse_certificate<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    Some(parse_x509_certificate(der).ok()?.1)
}

fn check_dates(certificate: &X509Certificate<'_>, time: UnixTime) -> Result<(), CertificateError> {
    let validity = certificate.validity();
    let seconds = |date: ASN1Time| UnixTime::since_unix_epoch(since_epoch(date));
    let (not_before, not_after) = (seconds(validity.not_before), seconds(validity.not_after));
    if time < not_before {
        return Err(CertificateError::NotValidYetContext { time, not_before });
    }
    if time > not_after {
        return Err(CertificateError::ExpiredContext { time, not_after });
    }
    Ok(())
}

/// Returns the time since 1970; zero for an earlier date.
fn since_epoch(date: ASN1Time) -> std::time::Duration {
    std::time::Duration::from_secs(u64::try_from(date.timestamp()).unwrap_or_default())
}

/// Checks that one of the trusted certificates signed it. One with name constraints does not count, because only webpki
/// implements them.
fn check_issuer(
    certificate: &X509Certificate<'_>,
    trusted: &[CertificateDer<'_>],
    time: UnixTime,
) -> Result<(), CertificateError> {
    let mut verdict = CertificateError::UnknownIssuer;
    for issuer in trusted.iter().filter_map(parse_certificate) {
        if issuer.subject().as_raw() != certificate.issuer().as_raw() || !may_sign(&issuer) {
            continue;
        }
        if certificate
            .verify_signature(Some(issuer.public_key()))
            .is_ok()
        {
            return check_dates(&issuer, time);
        }
        verdict = CertificateError::BadSignature;
    }
    Err(verdict)
}

fn may_sign(issuer: &X509Certificate<'_>) -> bool {
    let usage = issuer.key_usage().ok().flatten();
    let constrained = !matches!(issuer.name_constraints(), Ok(None));
    issuer.is_ca() && usage.is_none_or(|usage| usage.value.key_cert_sign()) && !constrained
}

fn check_purpose(certificate: &X509Certificate<'_>) -> Result<(), CertificateError> {
    match certificate.extended_key_usage() {
        Ok(None) => Ok(()),
        Ok(Some(usage)) if usage.value.any || usage.value.server_auth => Ok(()),
        _ => Err(CertificateError::InvalidPurpose),
    }
}
