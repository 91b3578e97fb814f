//! The ports and addresses of sshd, from its settings.

use std::net::{IpAddr, SocketAddr};

use crate::root::{Root, RootError, RootPath};

/// Settings of sshd; those of the directory count too where the file includes them.
const FILE: &str = "etc/ssh/sshd_config";
const DIRECTORY: &str = "etc/ssh/sshd_config.d";
/// The port without a setting.
const PORT: u16 = 22;

/// A place at which sshd listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshdListener {
    /// A port of all addresses of the node.
    Everywhere(u16),
    /// A port of one address.
    At(SocketAddr),
}

/// Returns the places at which sshd listens by its settings.
///
/// # Errors
/// A file that cannot be read.
pub fn read(root: &Root) -> Result<Vec<SshdListener>, RootError> {
    let text = |path: &RootPath| {
        let bytes = root.read(path)?.unwrap_or_default();
        Ok::<_, RootError>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let mut texts = vec![text(&RootPath::fixed(FILE))?];
    if texts.iter().any(|text| includes_directory(text)) {
        let directory = RootPath::fixed(DIRECTORY);
        let names = root.list(&directory)?.into_iter();
        let files = names.filter(|name| name.ends_with(".conf"));
        for path in files.filter_map(|name| directory.join(&name).ok()) {
            texts.push(text(&path)?);
        }
    }
    Ok(find_listeners(&texts))
}

/// The words of each line that holds for all connections: before the first `Match`.
fn general_lines(text: &str) -> impl Iterator<Item = Vec<String>> {
    let words = |line: &str| -> Vec<String> {
        let words = line.split(|c: char| c.is_whitespace() || c == '=');
        let words = words.map(|word| word.trim_matches('"'));
        words
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let lines = text.lines().map(words);
    lines.take_while(|words| {
        words
            .first()
            .is_none_or(|word| !word.eq_ignore_ascii_case("match"))
    })
}

fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = String> + 'a {
    let is_key = move |words: &Vec<String>| {
        words
            .first()
            .is_some_and(|word| word.eq_ignore_ascii_case(key))
    };
    let lines = general_lines(text).filter(is_key);
    lines.filter_map(|words| words.into_iter().nth(1))
}

fn includes_directory(text: &str) -> bool {
    values(text, "Include").any(|pattern| pattern.contains("sshd_config.d/"))
}

/// Each `Port` adds one; a `ListenAddress` without a port is of all ports.
fn find_listeners(texts: &[String]) -> Vec<SshdListener> {
    let of = |key: &'static str| texts.iter().flat_map(move |text| values(text, key));
    let mut ports: Vec<u16> = of("Port").filter_map(|port| port.parse().ok()).collect();
    if ports.is_empty() {
        ports.push(PORT);
    }
    let mut found = Vec::new();
    let mut add = |listener| {
        if !found.contains(&listener) {
            found.push(listener);
        }
    };
    for value in of("ListenAddress") {
        let (address, port) = match (value.parse::<SocketAddr>(), address_in(&value)) {
            (Ok(whole), _) => (whole.ip(), Some(whole.port())),
            (Err(_), Some(address)) => (address, None),
            // A name of the node: its addresses are not known here.
            (Err(_), None) => continue,
        };
        for port in port.map_or(ports.clone(), |port| vec![port]) {
            add(match address.is_unspecified() {
                true => SshdListener::Everywhere(port),
                false => SshdListener::At(SocketAddr::new(address, port)),
            });
        }
    }
    if found.is_empty() {
        found.extend(ports.into_iter().map(SshdListener::Everywhere));
    }
    found
}

fn address_in(value: &str) -> Option<IpAddr> {
    let value = value.strip_prefix('[').unwrap_or(value);
    value.strip_suffix(']').unwrap_or(value).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use SshdListener::{At, Everywhere};

    #[test]
    fn ports_and_addresses_are_those_of_sshd() {
        let at = |text: &str| At(text.parse().unwrap());
        for (text, wanted) in [
            ("", vec![Everywhere(22)]),
            ("#Port 2222\n", vec![Everywhere(22)]),
            (
                "Port 22\nport=2222\n",
                vec![Everywhere(22), Everywhere(2222)],
            ),
            (
                "Port 2222\nListenAddress 0.0.0.0\nListenAddress ::\n",
                vec![Everywhere(2222)],
            ),
            (
                "ListenAddress 192.0.2.1\nPort 2222\n",
                vec![at("192.0.2.1:2222")],
            ),
            (
                "ListenAddress 192.0.2.1:222\nListenAddress [fd00::1]:223\nListenAddress fd00::2\n",
                vec![at("192.0.2.1:222"), at("[fd00::1]:223"), at("[fd00::2]:22")],
            ),
            ("ListenAddress node.example\nPort x\n", vec![Everywhere(22)]),
            ("Match User a\nPort 2222\n", vec![Everywhere(22)]),
        ] {
            assert_eq!(find_listeners(&[text.to_owned()]), wanted, "{text:?}");
        }
        let two = ["Port 1\n".to_owned(), "Port 2\n".to_owned()];
        assert_eq!(find_listeners(&two), [Everywhere(1), Everywhere(2)]);
        assert!(includes_directory(
            "Include /etc/ssh/sshd_config.d/*.conf\n"
        ));
        assert!(!includes_directory(
            "# Include /etc/ssh/sshd_config.d/*.conf\n"
        ));
    }
}
