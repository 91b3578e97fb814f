//! URLs as parsed by Go's `net/url`, to the extent that Ignition's rules require (V9, V11, V12, V15).

use percent_encoding::percent_decode_str;

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url<'t> {
    /// The scheme in lower case; empty if there is none.
    pub scheme: String,
    /// The text between the scheme and the query, if it does not begin with a slash.
    pub opaque: &'t str,
    /// The text after the question mark.
    pub query: &'t str,
}

/// The reason why Go refuses a text as a URL. It quotes nothing of the URL, which may contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UrlError {
    /// It contains a control character, such as a newline, tab or NUL.
    #[error("it holds a control character; percent-encode it")]
    Control,
    /// It begins with a colon.
    #[error("the scheme before the colon is missing")]
    NoScheme,
    /// The first segment of its path contains a colon, usually because of a leading space.
    #[error("the text before the first colon is not a scheme; remove blanks before the URL")]
    Colon,
    /// `%` without two hex digits, or an encoded character that is invalid in a host name.
    #[error("`%` is not followed by two hex digits of a character that is allowed there")]
    Percent,
    /// A character that is invalid in a host name.
    #[error("the host name holds a character that is not allowed there")]
    Host,
    /// Something other than digits after the colon of the host.
    #[error("the port is not a number")]
    Port,
    /// A character in the user name or password that has to be encoded.
    #[error("the user name or password holds a character that must be percent-encoded")]
    User,
}

impl<'t> Url<'t> {
    /// Splits a text into the parts of a URL.
    ///
    /// # Errors
    /// Go refuses the text. Without a scheme, it is still a URL to Go.
    pub(super) fn parse(text: &'t str) -> Result<Self, UrlError> {
        if has_control(text.as_bytes()) {
            return Err(UrlError::Control);
        }
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        check_percents(fragment)?;
        let (scheme, rest) = split_scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut opaque = "";
        if rest.starts_with('/') {
            check_hierarchy(rest, !scheme.is_empty())?;
        } else if !scheme.is_empty() {
            opaque = rest;
        } else {
            check_relative(rest)?;
        }
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            opaque,
            query,
        })
    }

    /// Returns the first value of a query parameter.
    pub(super) fn query_parameter(&self, name: &str) -> Option<&'t str> {
        let pairs = self.query.split('&').filter(|pair| !pair.contains(';'));
        let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let named = |key: &str| percent_decode_str(key).eq(name.bytes());
        pairs.find(|(key, _)| named(key)).map(|(_, value)| value)
    }
}

/// Returns true if any byte is a control character. A large document is one URL, so eight bytes are examined at a time.
fn has_control(bytes: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES * 0x80;
    let (words, rest) = bytes.as_chunks::<8>();
    let in_word = |word: &[u8; 8]| {
        let word = u64::from_ne_bytes(*word);
        let delete = word ^ (ONES * 0x7f);
        // The high bit marks a byte below the subtracted one. It is exact only for the lowest such byte, which is enough.
        let below_blank = word.wrapping_sub(ONES * 0x20) & !word;
        let is_delete = delete.wrapping_sub(ONES) & !delete;
        (below_blank | is_delete) & HIGH != 0
    };
    words.iter().any(in_word) || rest.iter().any(|b| *b < b' ' || *b == 0x7f)
}

/// Splits at the first colon, if the text before it is a valid scheme.
fn split_scheme(text: &str) -> Result<(&str, &str), UrlError> {
    let Some((before, after)) = text.split_once(':') else {
        return Ok(("", text));
    };
    let mut bytes = before.bytes();
    let Some(first) = bytes.next() else {
        return Err(UrlError::NoScheme);
    };
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    if first.is_ascii_alphabetic() && bytes.all(legal) {
        Ok((before, after))
    } else {
        Ok(("", text))
    }
}

fn check_relative(rest: &str) -> Result<(), UrlError> {
    let segment = rest.split('/').next().unwrap_or_default();
    if segment.contains(':') {
        return Err(UrlError::Colon);
    }
    check_percents(rest)
}

/// Checks `//authority/path`, or a path alone.
fn check_hierarchy(rest: &str, has_scheme: bool) -> Result<(), UrlError> {
    let authority = rest.strip_prefix("//");
    let Some(after) = authority.filter(|_| has_scheme || !rest.starts_with("///")) else {
        return check_percents(rest);
    };
    let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            user_info(user)?;
            host
        }
        None => authority,
    };
    host_and_port(host)?;
    check_percents(path)
}

fn user_info(user: &str) -> Result<(), UrlError> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
    if !user.bytes().all(legal) {
        return Err(UrlError::User);
    }
    check_percents(user)
}

fn host_and_port(text: &str) -> Result<(), UrlError> {
    let (host, port) = if text.starts_with('[') {
        let end = text.rfind(']').ok_or(UrlError::Host)?;
        text.split_at(end + 1)
    } else {
        text.split_at(text.rfind(':').unwrap_or(text.len()))
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_port = port.is_empty() || port.starts_with(':');
    if !is_port || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(UrlError::Port);
    }
    let (host, zone) = match host.split_once("%25").filter(|_| text.starts_with('[')) {
        Some((host, zone)) => (host, zone),
        None => (host, ""),
    };
    check_percents(zone)?;
    let legal = |b: u8| b.is_ascii_alphanumeric() || b >= 0x80 || HOST_SIGNS.contains(&b);
    if !host.bytes().all(legal) {
        return Err(UrlError::Host);
    }
    host_percents(host)
}

const HOST_SIGNS: &[u8] = b"-_.~!$&'()*+,;=:[]<>\"%";

/// Checks percent-encoding in a host name, where only non-ASCII characters may be encoded.
fn host_percents(host: &str) -> Result<(), UrlError> {
    check_percents(host)?;
    let mut codes = host.split('%').skip(1);
    let beyond =
        |code: &str| code.starts_with("25") || !code.starts_with(|c| ('0'..='7').contains(&c));
    if codes.all(beyond) {
        Ok(())
    } else {
        Err(UrlError::Percent)
    }
}

fn check_percents(text: &str) -> Result<(), UrlError> {
    let hex = |code: &str| {
        let mut digits = code.bytes();
        let mut digit = || digits.next().is_some_and(|b| b.is_ascii_hexdigit());
        digit() && digit()
    };
    if text.split('%').skip(1).all(hex) {
        Ok(())
    } else {
        Err(UrlError::Percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_character_is_seen_wherever_it_is() {
        for at in 0..24 {
            for byte in 0..=255 {
                let mut text = *b"aaaaaaa bbbbbbb\xff~~~~~~~~";
                text[at] = byte;
                let control = byte < b' ' || byte == 0x7f;
                assert_eq!(has_control(&text), control, "{byte:#x} at {at}");
            }
        }
    }

    #[test]
    fn what_go_takes_has_its_scheme_in_lower_case() {
        for (text, scheme) in [
            ("http://a.example", "http"),
            ("HTTPS://u:p%40@a.example:8443/b%20c?d=%zz#e", "https"),
            ("http://[fe80::1%25en0]:80/", "http"),
            ("http://a.example:", "http"),
            ("http://é.example/%C3%A9", "http"),
            ("http://%C3%A9.example", "http"),
            ("s3:", "s3"),
            ("data:,a b%", "data"),
            ("a+b-c.1:x", "a+b-c.1"),
            ("/a:b", ""),
            ("a/b:c", ""),
            ("1a/b", ""),
            ("///x", ""),
            ("", ""),
        ] {
            let url = Url::parse(text).map(|url| url.scheme);
            assert_eq!(url.as_deref(), Ok(scheme), "{text:?}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused_for_its_reason() {
        for (text, error) in [
            ("http://a.example/\n", UrlError::Control),
            ("data:,\t", UrlError::Control),
            ("\u{7f}", UrlError::Control),
            (":x", UrlError::NoScheme),
            (" http://a.example", UrlError::Colon),
            ("1a:b", UrlError::Colon),
            ("http://a.example/%", UrlError::Percent),
            ("http://a.example/%4g", UrlError::Percent),
            ("http://a.example/#%", UrlError::Percent),
            ("http://%41.example", UrlError::Percent),
            ("http://a b.example", UrlError::Host),
            ("http://[::1", UrlError::Host),
            ("http://a.example:80a", UrlError::Port),
            ("http://[::1]80", UrlError::Port),
            ("http://u ser@a.example", UrlError::User),
            ("//u:[@a.example", UrlError::User),
        ] {
            assert_eq!(Url::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn the_first_value_of_a_parameter_counts() {
        let url = Url::parse("s3://b/k?a=1&version%49d=&versionId=2&c;d=3").unwrap();
        assert_eq!(url.query_parameter("versionId"), Some(""));
        assert_eq!(url.query_parameter("a"), Some("1"));
        assert_eq!(url.query_parameter("b"), None);
        assert_eq!(
            Url::parse("s3://b/k?versionId")
                .unwrap()
                .query_parameter("versionId"),
            Some("")
        );
    }
}
