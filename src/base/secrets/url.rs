//! Logins in addresses.

use std::ops::Range;

/// Returns the login in an authority and what follows: `user:word` of `user:word@host/path`.
///
/// Also finds a word with a slash, because only a number may follow the colon of a host.
fn login_of(rest: &str) -> Option<Range<usize>> {
    let end = rest.find(|c: char| c.is_whitespace() || "\"'<>`".contains(c));
    let word = rest.get(..end.unwrap_or(rest.len()))?;
    let authority = word.get(..word.find(['/', '?', '#']).unwrap_or(word.len()))?;
    if let Some(at) = authority.rfind('@') {
        return Some(0..at);
    }
    let (host, port) = authority.rsplit_once(':')?;
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    let is_bracket = host.starts_with('[') || port.ends_with(']');
    (!is_port && !is_bracket).then_some(())?;
    Some(0..word.rfind('@')?)
}

/// Returns an address without user, password and query, which may contain tokens.
pub fn redacted_url(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, url),
    };
    let login = scheme.and_then(|_| login_of(rest));
    let rest = login
        .and_then(|login| rest.get(login.end + 1..))
        .unwrap_or(rest);
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (visible, hidden) = rest.split_at(end);
    let scheme = scheme
        .map(|scheme| format!("{scheme}://"))
        .unwrap_or_default();
    let more = if hidden.starts_with('?') { "?..." } else { "" };
    format!("{scheme}{visible}{more}")
}

/// Returns the logins in the addresses of a line. One without a password counts as a secret only where names are not used.
pub(super) fn find_logins(line: &str) -> impl Iterator<Item = Range<usize>> {
    line.match_indices("://").filter_map(|(at, found)| {
        let start = at + found.len();
        let login = login_of(line.get(start..)?)?;
        let login = start + login.start..start + login.end;
        let words = line.get(login.clone())?;
        let is_web = line.get(..at)?.to_ascii_lowercase().ends_with("http")
            || line.get(..at)?.to_ascii_lowercase().ends_with("https");
        let is_variable = words.starts_with('$') && !words.contains(':');
        let is_hidden = words.is_empty() || words.starts_with("(secret") || is_variable;
        ((is_web || words.contains(':')) && !is_hidden).then_some(login)
    })
}
