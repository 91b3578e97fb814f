//! URLs of requests: parsed, resolved against redirects, and shown without secrets.

use percent_encoding::{AsciiSet, percent_decode_str, utf8_percent_encode};
use ureq::http::Uri;

use super::error::FetchCause;
use crate::base::secrets::redacted_url;

/// Characters that Go, and therefore Ignition, accepts in a URL and encodes before sending, in addition to all non-ASCII
/// characters.
const ENCODED: AsciiSet = AsciiSet::EMPTY
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The target of a request. Its URL has no user, password or fragment.
#[derive(Clone)]
pub(super) struct RequestTarget {
    pub(super) uri: Uri,
    /// In lower case, an IPv6 address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: bool,
    /// `user:password` of the URL, decoded.
    pub(super) login: Option<String>,
}

impl RequestTarget {
    /// Parses an absolute `http` or `https` URL.
    pub(super) fn parse(url: &str) -> Result<Self, FetchCause> {
        let encoded = utf8_percent_encode(url, &ENCODED).to_string();
        let uri: Uri = encoded.parse().map_err(|_| {
            FetchCause::BadUrl("it has a character or a form that no URL has".into())
        })?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => {
                return Err(FetchCause::BadUrl(format!(
                    "the scheme {other} is not fetched"
                )));
            }
            None => return Err(FetchCause::BadUrl("it has no scheme".into())),
        };
        let authority = uri.authority().map(|a| a.as_str()).unwrap_or_default();
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(decode_login(login)?), place),
            None => (None, authority),
        };
        let path = uri.path_and_query().map_or("/", |p| p.as_str());
        let scheme = if tls { "https" } else { "http" };
        let bare: Uri = format!("{scheme}://{place}{path}")
            .parse()
            .map_err(|_| FetchCause::BadUrl("it names no host".into()))?;
        Ok(Self {
            host: host_of(&bare)?,
            port: port_of(&bare, tls)?,
            tls,
            login,
            uri: bare,
        })
    }

    /// Returns the URL without secrets.
    pub(super) fn shown_url(&self) -> String {
        redacted_url(&self.uri.to_string())
    }

    /// Returns `HOST:PORT`, with an IPv6 address in brackets.
    pub(super) fn host_port(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns the target of a `Location` header (RFC 3986 section 5.2). The login of this URL is not passed on.
    pub(super) fn redirect_to(&self, location: &str) -> Result<Self, FetchCause> {
        let place = self.uri.authority().map(|a| a.as_str()).unwrap_or_default();
        let scheme = if self.tls { "https" } else { "http" };
        let location = location.split('#').next().unwrap_or_default();
        let absolute = if has_scheme(location) {
            location.to_owned()
        } else if location.starts_with("//") {
            format!("{scheme}:{location}")
        } else {
            format!(
                "{scheme}://{place}{}",
                join_path(self.uri.path(), self.uri.query(), location)
            )
        };
        Self::parse(&absolute)
    }
}

fn decode_login(login: &str) -> Result<String, FetchCause> {
    let text = percent_decode_str(login).decode_utf8();
    text.map(Into::into)
        .map_err(|_| FetchCause::BadUrl("its user or password is not UTF-8".into()))
}

fn host_of(uri: &Uri) -> Result<String, FetchCause> {
    let host = uri.host().unwrap_or_default();
    let bare = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host);
    if bare.is_empty() {
        Err(FetchCause::BadUrl("it names no host".into()))
    } else {
        Ok(bare.to_ascii_lowercase())
    }
}

/// Returns the port. The URL parser accepts a number that is too large for a port, and drops it.
fn port_of(uri: &Uri, tls: bool) -> Result<u16, FetchCause> {
    let place = uri.authority().map(|a| a.as_str()).unwrap_or_default();
    let host = uri.host().unwrap_or_default();
    match place.strip_prefix(host).unwrap_or_default() {
        "" | ":" => Ok(if tls { 443 } else { 80 }),
        given => given
            .strip_prefix(':')
            .and_then(|digits| digits.parse().ok())
            .filter(|port| *port != 0)
            .ok_or(FetchCause::BadUrl(
                "its port is not a number from 1 to 65535".into(),
            )),
    }
}

fn has_scheme(reference: &str) -> bool {
    let scheme = reference.split(['/', '?']).next().unwrap_or_default();
    let Some((scheme, _)) = scheme.split_once(':') else {
        return false;
    };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// Returns path and query of a relative reference.
fn join_path(base: &str, base_query: Option<&str>, reference: &str) -> String {
    let (path, query) = match reference.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (reference, None),
    };
    let (path, query) = if path.is_empty() {
        (base.to_owned(), query.or(base_query))
    } else if path.starts_with('/') {
        (without_dots(path), query)
    } else {
        let directory = base.rsplit_once('/').map_or("", |(before, _)| before);
        (without_dots(&format!("{directory}/{path}")), query)
    };
    match query {
        Some(query) => format!("{path}?{query}"),
        None => path,
    }
}

fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            ".." => {
                kept.pop();
            }
            "." => {}
            other => kept.push(other),
        }
    }
    let directory = path.ends_with("/.") || path.ends_with("/..");
    let end = if directory && !kept.is_empty() {
        "/"
    } else {
        ""
    };
    format!("/{}{end}", kept.join("/"))
}

/// Returns the host of a URL in lower case, an IPv6 address without its brackets; `None` if there is none.
pub fn find_host(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let place = rest.split(['/', '?', '#']).next()?;
    let host = match place.strip_prefix('[') {
        Some(address) => address.split(']').next()?,
        None => place.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> RequestTarget {
        RequestTarget::parse(url).unwrap()
    }

    #[test]
    fn users_passwords_and_queries_are_never_shown() {
        assert_eq!(
            redacted_url("https://me:secret@host:1/a/b?token=secret#x"),
            "https://host:1/a/b?..."
        );
        assert_eq!(redacted_url("http://a@b@host"), "http://host");
        assert_eq!(redacted_url("secret?secret"), "secret?...");
        let shown = target("http://me:secret@host/x?token=secret").shown_url();
        assert_eq!(shown, "http://host/x?...");
    }

    #[test]
    fn a_url_is_taken_apart() {
        let target = target("https://me:p%40ss@[::1]:8443/x?y#z");
        assert_eq!(
            (target.host.as_str(), target.port, target.tls),
            ("::1", 8443, true)
        );
        assert_eq!(target.login.as_deref(), Some("me:p@ss"));
        assert_eq!(target.uri.to_string(), "https://[::1]:8443/x?y");
        assert_eq!(target.host_port(), "[::1]:8443");
    }

    #[test]
    fn what_cannot_be_fetched_is_refused() {
        for url in [
            "",
            "/x",
            "host/x",
            "ftp://host/",
            "http://",
            "http:///x",
            "http://ho st/",
            "http://host:99999/",
            "http://host:0/",
            "http://host:http/",
            "http://[::1/",
            "http://hö.st/",
            "http://me@/x",
            "http://host/\u{7f}",
            "http://host/\r\nX: y",
        ] {
            assert!(RequestTarget::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn what_go_encodes_is_encoded() {
        let target = target("http://host/ä b/{c}?d=%20");
        assert_eq!(
            target.uri.to_string(),
            "http://host/%C3%A4%20b/%7Bc%7D?d=%20"
        );
    }

    #[test]
    fn references_are_resolved_as_rfc_3986_shows() {
        let base = target("http://a/b/c/d;p?q");
        for (reference, expected) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("g#s", "http://a/b/c/g"),
            ("https://h/x", "https://h/x"),
        ] {
            let found = base.redirect_to(reference).unwrap().uri.to_string();
            assert_eq!(found, expected, "{reference}");
        }
    }

    #[test]
    fn a_redirect_does_not_carry_the_login_on() {
        assert_eq!(
            target("http://me:x@a/b").redirect_to("/c").unwrap().login,
            None
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_refused_or_read_without_panic(a in ".{0,40}", b in "[a-z:/?#@.\\[\\]%0-9 ]{0,30}") {
            redacted_url(&a);
            redacted_url(&b);
            for text in [&a, &b, &format!("http://{b}")] {
                if let Ok(target) = RequestTarget::parse(text) {
                    let _ = target.redirect_to(&a);
                    let _ = target.redirect_to(&b);
                    proptest::prop_assert_eq!(&RequestTarget::parse(&target.uri.to_string()).unwrap().host, &target.host);
                }
            }
        }
    }
}
