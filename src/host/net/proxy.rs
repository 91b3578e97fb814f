//! The proxy of a request (docs/develop/ignition.md: Fetching): Go's rules, without the environment.

use std::fmt;
use std::net::IpAddr;

use super::error::FetchCause;
use super::url::RequestTarget;
use crate::base::secrets::redacted_url;

/// The proxies of a config. The environment is never consulted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxySettings {
    /// For `http` URLs: a URL, or `HOST:PORT`; may carry `user:password@`.
    pub http: Option<String>,
    /// For `https` URLs.
    pub https: Option<String>,
    /// Hosts that are reached without a proxy: addresses, networks, domains (with everything below them), `.domain` (only what
    /// is below it), each with an optional `:PORT`; or `*`.
    pub none: Vec<String>,
}

/// Prints no password.
impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("http", &self.http.as_deref().map(redacted_url))
            .field("https", &self.https.as_deref().map(redacted_url))
            .field("none", &self.none)
            .finish()
    }
}

impl ProxySettings {
    /// Returns the proxy for this request, if any.
    pub(super) fn proxy_for(
        &self,
        target: &RequestTarget,
    ) -> Result<Option<RequestTarget>, FetchCause> {
        let configured = if target.tls { &self.https } else { &self.http };
        match configured.as_deref() {
            None | Some("") => Ok(None),
            Some(_) if self.is_bypassed(&target.host, target.port) => Ok(None),
            Some(url) => parse_proxy(url).map(Some),
        }
    }

    fn is_bypassed(&self, host: &str, port: u16) -> bool {
        let address: Option<IpAddr> = host.parse().ok();
        if host == "localhost" || address.is_some_and(|a| a.to_canonical().is_loopback()) {
            return true;
        }
        let entries = self.none.iter().flat_map(|item| item.split(','));
        entries
            .map(|entry| entry.trim().to_ascii_lowercase())
            .any(|entry| entry_matches(&entry, host, address, port))
    }
}

fn parse_proxy(url: &str) -> Result<RequestTarget, FetchCause> {
    let full = if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    };
    RequestTarget::parse(&full).map_err(|cause| FetchCause::Proxy {
        proxy: redacted_url(&full),
        cause: Box::new(cause),
    })
}

fn entry_matches(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some(inside) = in_network(entry, address) {
        return inside;
    }
    let (name, wanted) = split_port(entry);
    if wanted.is_some_and(|wanted| wanted != port) {
        return false;
    }
    match name.parse::<IpAddr>() {
        Ok(ip) => address.is_some_and(|a| a.to_canonical() == ip.to_canonical()),
        Err(_) => is_below(name, host),
    }
}

/// Returns true if the host is that domain or below it; with a leading dot only below.
fn is_below(domain: &str, host: &str) -> bool {
    let domain = domain.strip_prefix('*').unwrap_or(domain);
    match domain.strip_prefix('.') {
        Some(parent) => ends_below(host, parent),
        None => !domain.is_empty() && (host == domain || ends_below(host, domain)),
    }
}

fn ends_below(host: &str, parent: &str) -> bool {
    let rest = host.strip_suffix(parent);
    !parent.is_empty() && rest.is_some_and(|rest| rest.ends_with('.'))
}

/// Returns whether a network entry contains the address; `None` if the entry is not a network.
fn in_network(entry: &str, address: Option<IpAddr>) -> Option<bool> {
    let (base, length) = entry.split_once('/')?;
    let base: IpAddr = base.parse().ok()?;
    let length: u32 = length.parse().ok()?;
    let inside = match (base, address.map(|a| a.to_canonical())) {
        (IpAddr::V4(base), Some(IpAddr::V4(a))) => {
            same_prefix(u32::from(base).into(), u32::from(a).into(), length, 32)
        }
        (IpAddr::V6(base), Some(IpAddr::V6(a))) => same_prefix(base.into(), a.into(), length, 128),
        _ => false,
    };
    Some(inside)
}

fn same_prefix(a: u128, b: u128, length: u32, width: u32) -> bool {
    match width.checked_sub(length) {
        Some(host_bits) => (a ^ b).checked_shr(host_bits).unwrap_or_default() == 0,
        None => false,
    }
}

/// Splits a name or address from its port. A bare IPv6 address has no port.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    if let Some(rest) = entry.strip_prefix('[') {
        let (address, port) = rest.split_once(']').unwrap_or((rest, ""));
        return (address, port.strip_prefix(':').and_then(|p| p.parse().ok()));
    }
    match entry.split_once(':') {
        Some((name, port)) if !port.contains(':') => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (entry, None),
        },
        _ => (entry, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(proxy: &ProxySettings, url: &str) -> Option<String> {
        let target = RequestTarget::parse(url).unwrap();
        proxy
            .proxy_for(&target)
            .unwrap()
            .map(|proxy| proxy.host_port())
    }

    fn both(none: &[&str]) -> ProxySettings {
        ProxySettings {
            http: Some("plain.example:3128".into()),
            https: Some("http://secure.example:3129".into()),
            none: none.iter().map(|s| (*s).to_owned()).collect(),
        }
    }

    #[test]
    fn each_scheme_has_its_own_proxy() {
        let proxy = both(&[]);
        assert_eq!(
            through(&proxy, "http://a/").as_deref(),
            Some("plain.example:3128")
        );
        assert_eq!(
            through(&proxy, "https://a/").as_deref(),
            Some("secure.example:3129")
        );
        let http_only = ProxySettings {
            https: None,
            ..proxy
        };
        assert_eq!(through(&http_only, "https://a/"), None);
    }

    #[test]
    fn no_proxy_means_what_it_means_to_go() {
        for (entry, host, bypassed) in [
            ("example.com", "example.com", true),
            ("example.com", "a.example.com", true),
            ("example.com", "badexample.com", false),
            ("example.com", "EXAMPLE.com", true),
            (".example.com", "example.com", false),
            (".example.com", "a.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("example.com:80", "example.com", true),
            ("example.com:81", "example.com", false),
            ("*", "anything", true),
            ("", "anything", false),
            (".", "anything", false),
            (" b.example , example.com ", "example.com", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.10", false),
            ("10.0.0.1:80", "10.0.0.1", true),
            ("10.0.0.1:81", "10.0.0.1", false),
            ("10.1.0.0/16", "10.1.2.3", true),
            ("10.1.0.0/16", "10.2.2.3", false),
            ("10.1.0.0/33", "10.1.0.0", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "name", false),
            ("fd00::/8", "[fd12::1]", true),
            ("fd00::/8", "[fe12::1]", false),
            ("::/0", "[2001:db8::1]", true),
            ("fd00::1", "[fd00::1]", true),
            ("[fd00::1]:80", "[fd00::1]", true),
            ("[fd00::1]:81", "[fd00::1]", false),
            ("unrelated", "localhost", true),
            ("unrelated", "127.9.9.9", true),
            ("unrelated", "[::1]", true),
            ("unrelated", "[::ffff:127.0.0.1]", true),
        ] {
            let reached = through(&both(&[entry]), &format!("http://{host}/"));
            assert_eq!(reached.is_none(), bypassed, "{entry:?} and {host}");
        }
    }

    #[test]
    fn a_proxy_that_is_not_a_url_is_named_without_its_password() {
        let proxy = ProxySettings {
            http: Some("socks5://me:secret@p:1".into()),
            ..ProxySettings::default()
        };
        let problem = proxy
            .proxy_for(&RequestTarget::parse("http://a/").unwrap())
            .err();
        let text = problem.map(|p| p.to_string()).unwrap_or_default();
        assert!(
            text.contains("socks5://p:1") && !text.contains("secret"),
            "{text}"
        );
        assert!(!format!("{proxy:?}").contains("secret"));
    }

    proptest::proptest! {
        #[test]
        fn any_entry_is_matched_without_panic(entry in "[a-z0-9.:/*,\\[\\] ]{0,30}", host in "[a-z0-9.]{1,20}") {
            if let Ok(target) = RequestTarget::parse(&format!("http://{host}/")) {
                both(&[&entry]).is_bypassed(&target.host, 80);
            }
        }
    }
}
