//! The ports and addresses of sshd, according to its configuration.

use std::net::{IpAddr, SocketAddr};

use super::login::ViewFiles;
use super::view::NodeView;
use crate::base::reason::Reason;
use crate::formats::sshd::{ConfigFiles, SshdConfig};
use crate::host::root::Root;

/// The port without a setting.
const PORT: u16 = 22;

/// A socket address on which sshd listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshdListener {
    /// A port on all addresses of the node.
    Everywhere(u16),
    /// A port of one address.
    At(SocketAddr),
}

/// Returns the socket addresses on which sshd listens, according to its configuration.
///
/// # Errors
/// The first file that cannot be read, in words.
pub fn read_sshd_ports(root: &Root) -> Result<Vec<SshdListener>, Reason> {
    read_files(&ViewFiles(&NodeView::now(root)))
}

fn read_files(files: &dyn ConfigFiles) -> Result<Vec<SshdListener>, Reason> {
    let config = SshdConfig::read_files(files);
    match config.unread.first() {
        Some(why) => Err(why.clone()),
        None => Ok(find_listeners(&config)),
    }
}

/// Returns the ports. Each `Port` adds one; a `ListenAddress` without a port applies to all ports.
fn find_listeners(config: &SshdConfig) -> Vec<SshdListener> {
    let of = |keyword: &'static str| {
        let lines = config.lines.iter();
        lines
            .filter(move |line| line.keyword == keyword)
            .filter_map(|line| line.arguments.first())
    };
    let mut ports: Vec<u16> = of("port").filter_map(|port| port.parse().ok()).collect();
    if ports.is_empty() {
        ports.push(PORT);
    }
    let mut found = Vec::new();
    let mut add = |listener| {
        if !found.contains(&listener) {
            found.push(listener);
        }
    };
    for value in of("listenaddress") {
        let (address, port) = match (value.parse::<SocketAddr>(), address_in(value)) {
            (Ok(whole), _) => (whole.ip(), Some(whole.port())),
            (Err(_), Some(address)) => (address, None),
            // A host name: its addresses are unknown here.
            (Err(_), None) => continue,
        };
        for port in port.map_or(ports.clone(), |port| vec![port]) {
            add(if address.is_unspecified() {
                SshdListener::Everywhere(port)
            } else {
                SshdListener::At(SocketAddr::new(address, port))
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
    use std::collections::BTreeMap;

    use super::*;
    use crate::formats::sshd::matches_pattern;
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
            let mut config = BTreeMap::from([("/etc/ssh/sshd_config", text)]);
            assert_eq!(read_files(&Files(config.clone())), Ok(wanted), "{text:?}");
            // On an unmodified system the main file may be missing; only the directory is read then.
            config.remove("/etc/ssh/sshd_config");
            assert_eq!(read_files(&Files(config)), Ok(vec![Everywhere(22)]));
        }
        let included = "Include /etc/ssh/sshd_config.d/*.conf\nPort 1\n";
        for (main, wanted) in [
            (included, vec![Everywhere(2), Everywhere(1)]),
            (
                "# Include /etc/ssh/sshd_config.d/*.conf\n",
                vec![Everywhere(22)],
            ),
        ] {
            let files = [
                ("/etc/ssh/sshd_config", main),
                ("/etc/ssh/sshd_config.d/a.conf", "Port 2\n"),
            ];
            assert_eq!(
                read_files(&Files(BTreeMap::from(files))),
                Ok(wanted),
                "{main}"
            );
        }
    }

    struct Files(BTreeMap<&'static str, &'static str>);

    impl ConfigFiles for Files {
        fn read_text(&self, path: &str) -> Result<Option<String>, Reason> {
            Ok(self.0.get(path).map(|text| (*text).to_owned()))
        }

        fn match_paths(&self, pattern: &str) -> Result<Vec<String>, Reason> {
            let paths = self.0.keys().filter(|path| matches_pattern(path, pattern));
            Ok(paths.map(|path| (*path).to_owned()).collect())
        }
    }
}
