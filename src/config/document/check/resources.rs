//! Everything with a source, V6 to V14, and the proxies, V15 and V16.

use std::fmt::Arguments;

use super::Checker;
use crate::config::document::contents::{Contents, ContentsError, has_hash};
use crate::config::document::ignition::{Ignition, Resource};
use crate::config::document::url::Url;

/// The place of a resource, which determines whether a source is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResourcePlace {
    /// `files[].contents`
    Contents,
    /// `files[].append[]`
    Fragment,
    /// `ignition.config.merge[]`
    Merge,
    /// `ignition.config.replace`
    Replace,
    /// `ignition.security.tls.certificateAuthorities[]`
    Authority,
}

/// URL schemes with the minor version that introduced them.
const SCHEMES: [(&str, u64); 7] = [
    ("http", 0),
    ("https", 0),
    ("tftp", 0),
    ("s3", 0),
    ("data", 0),
    ("gs", 2),
    ("arn", 4),
];

impl Checker<'_> {
    pub(super) fn check_references(&mut self, config: &Ignition) {
        self.check_proxy(config);
        let references = &config.ignition.config;
        let replace = format_args!("ignition.config.replace");
        self.check_resource(replace, &references.replace, ResourcePlace::Replace);
        for (i, reference) in references.merge.iter().enumerate() {
            let at = format_args!("ignition.config.merge[{i}]");
            self.check_resource(at, reference, ResourcePlace::Merge);
        }
        let authorities = &config.ignition.security.tls.certificate_authorities;
        for (i, authority) in authorities.iter().enumerate() {
            let at = format_args!("ignition.security.tls.certificateAuthorities[{i}]");
            self.check_resource(at, authority, ResourcePlace::Authority);
        }
    }

    fn check_proxy(&mut self, config: &Ignition) {
        let proxy = &config.ignition.proxy;
        for (key, url) in [
            ("httpProxy", &proxy.http_proxy),
            ("httpsProxy", &proxy.https_proxy),
        ] {
            let scheme = url
                .as_deref()
                .map(|url| Url::parse(url).map(|url| url.scheme));
            let scheme = scheme.map(Result::unwrap_or_default);
            let at = format_args!("ignition.proxy.{key}");
            match scheme.as_deref() {
                Some("http") if key == "httpsProxy" => self.add_warning(
                    at,
                    "is an http URL: requests to the proxy are not encrypted; use https",
                ),
                None | Some("http" | "https") => {}
                Some(_) => {
                    self.add_error(at, "is not an http or https URL; give one or leave it out")
                }
            }
        }
    }

    pub(super) fn check_resource(
        &mut self,
        at: Arguments<'_>,
        resource: &Resource,
        place: ResourcePlace,
    ) {
        self.check_needed_source(at, resource, place);
        self.check_verification(at, resource);
        let url = self.check_source(at, resource);
        self.check_headers(at, resource, url.as_ref());
        self.check_compression(at, resource);
        if url.is_some_and(|url| url.scheme == "data") {
            self.check_data(at, resource);
        }
    }

    /// Checks V14, and the case in which a fragment without a source crashes Ignition (docs/develop/ignition.md: Nodes).
    fn check_needed_source(
        &mut self,
        at: Arguments<'_>,
        resource: &Resource,
        place: ResourcePlace,
    ) {
        let at = format_args!("{at}.source");
        match (place, resource.source.as_deref()) {
            (ResourcePlace::Fragment, None) => self.add_error(
                at,
                "missing; a fragment to be appended needs a source (\"\" appends nothing)",
            ),
            // In 3.0 this is accepted, but fails when it is fetched.
            (ResourcePlace::Merge, None | Some("")) if self.minor >= 1 => self.add_error(
                at,
                "missing; a config to be merged needs a source: give one or remove the entry",
            ),
            (ResourcePlace::Authority, None | Some("")) => self.add_error(
                at,
                "missing; a certificate authority needs a source: give one or remove the entry",
            ),
            _ => {}
        }
    }

    /// V6 and V7.
    fn check_verification(&mut self, at: Arguments<'_>, resource: &Resource) {
        let Some(hash) = &resource.verification.hash else {
            return;
        };
        let at = format_args!("{at}.verification.hash");
        if resource.source.is_none() {
            self.add_error(
                at,
                "there is no source to be verified; give one or leave the hash out",
            );
        }
        if let Some(problem) = malformed_hash(hash, self.minor) {
            self.add_error(at, problem.to_string());
        }
    }

    /// Checks V9 and V11; returns the URL if it is valid. Messages contain at most its scheme, because the rest may be a
    /// secret.
    fn check_source<'r>(&mut self, at: Arguments<'_>, resource: &'r Resource) -> Option<Url<'r>> {
        let source = resource.source.as_deref().filter(|text| !text.is_empty())?;
        let at = format_args!("{at}.source");
        let url = match Url::parse(source) {
            Ok(url) => url,
            Err(error) => {
                self.add_error(at, format!("is not a URL: {error}"));
                return None;
            }
        };
        if let Some(problem) = foreign_scheme(&url.scheme, self.minor) {
            self.add_error(at, problem.to_string());
        } else if let Some(problem) = bad_object(&url) {
            self.add_error(at, problem.to_string());
        }
        Some(url)
    }

    /// V12 and V13.
    fn check_headers(&mut self, at: Arguments<'_>, resource: &Resource, url: Option<&Url<'_>>) {
        let is_http = url.is_some_and(|url| matches!(url.scheme.as_str(), "http" | "https"));
        let at = format_args!("{at}.httpHeaders");
        if !resource.http_headers.is_empty() && !is_http {
            self.add_error(
                at,
                "only an http or https source can have headers; remove them",
            );
        }
        for (i, header) in resource.http_headers.iter().enumerate() {
            if header.name.is_empty() {
                self.add_error(
                    format_args!("{at}[{i}].name"),
                    "missing; a header needs a name",
                );
            }
            if header.value.as_deref() == Some("") {
                self.add_error(
                    format_args!("{at}[{i}].value"),
                    "is empty; give a value or leave the header out",
                );
            }
        }
    }

    fn check_compression(&mut self, at: Arguments<'_>, resource: &Resource) {
        if let Err(error) = Contents::new(None, resource.compression.as_deref()) {
            self.add_error(format_args!("{at}.compression"), error.to_string());
        }
    }

    /// Checks V10, and that compressed contents decompress to what was hashed.
    fn check_data(&mut self, at: Arguments<'_>, resource: &Resource) {
        match resource.measured() {
            Ok(_) => self.check_hash(at, resource),
            // This is already reported, but the URL may be invalid too.
            Err(ContentsError::Compression(_)) => {
                let plain = Contents::new(resource.source.clone(), None);
                let measured = plain.and_then(|contents| contents.measure_bytes());
                self.add_broken(at, measured.err());
            }
            Err(error) => self.add_broken(at, Some(error)),
        }
    }

    fn add_broken(&mut self, at: Arguments<'_>, error: Option<ContentsError>) {
        let Some(error) = error else { return };
        let error = match error {
            ContentsError::Remote(_) => "write `data:` in lower case".to_owned(),
            other => other.to_string(),
        };
        self.add_error(format_args!("{at}.source"), error.to_string());
    }

    /// Warns about a wrong hash. The daemon never compares it, so it is not a reason to refuse the config.
    fn check_hash(&mut self, at: Arguments<'_>, resource: &Resource) {
        let Some(hash) = &resource.verification.hash else {
            return;
        };
        let bytes = resource.contents().and_then(|contents| contents.bytes());
        if bytes.is_ok_and(|bytes| !has_hash(&bytes, hash)) {
            let message = "the contents have another hash; Ignition refuses that, the daemon does not compare it";
            self.add_warning(format_args!("{at}.verification.hash"), message);
        }
    }
}

/// Returns what is wrong with a hash. Digits need not be hexadecimal: such a hash never matches.
fn malformed_hash(hash: &str, minor: u64) -> Option<&'static str> {
    let Some((function, sum)) = hash.split_once('-') else {
        return Some("is not of the form `sha512-HEX`; write the function, a dash and the digits");
    };
    let wanted = match function {
        "sha512" => 128,
        "sha256" if minor >= 1 => 64,
        "sha256" => return Some("is sha256, which came with spec 3.1; use sha512"),
        _ => return Some("is neither sha512 nor sha256; use one of them"),
    };
    (sum.len() != wanted).then_some(
        "has the wrong number of hexadecimal digits for its function: it gives 128 or 64",
    )
}

fn foreign_scheme(scheme: &str, minor: u64) -> Option<String> {
    let known = SCHEMES.iter().find(|(known, _)| *known == scheme);
    match known {
        Some((_, since)) if *since <= minor => None,
        Some((_, since)) => Some(format!(
            "{scheme} URLs came with spec 3.{since}; raise ignition.version to use them"
        )),
        None if scheme.is_empty() => Some(
            "has no URL scheme and does not begin with `data:`; inline the contents as a data URL"
                .to_owned(),
        ),
        None => {
            let scheme: String = scheme.chars().take(12).collect();
            let message =
                format!("invalid URL scheme {scheme:?}; inline the contents as a data URL");
            Some(message)
        }
    }
}

/// Checks V11 for S3 objects, by URL or by Amazon resource name.
fn bad_object(url: &Url<'_>) -> Option<&'static str> {
    if url.scheme == "arn" && !is_s3_name(url.opaque) {
        return Some("is not an ARN of an S3 object, such as arn:aws:s3:::BUCKET/KEY");
    }
    let of_s3 = matches!(url.scheme.as_str(), "s3" | "arn");
    let unversioned = url.query_parameter("versionId") == Some("");
    (of_s3 && unversioned).then_some("versionId is empty; give one or leave it out")
}

/// Returns true for `aws:s3:REGION:ACCOUNT:RESOURCE` with a key; an access point precedes it with its own name.
fn is_s3_name(name: &str) -> bool {
    let parts: Vec<&str> = name.splitn(5, ':').collect();
    let [_, "s3", _, _, resource] = parts.as_slice() else {
        return false;
    };
    let slashes = if resource.starts_with("accesspoint/") {
        2
    } else {
        1
    };
    name.matches('/').count() >= slashes
}
