//! ip of iproute2: the addresses of the network interfaces.

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;

use super::{CommandError, CommandLine, CommandRunner};

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkInterface {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<InterfaceAddress>,
}

/// An address of a network interface.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct InterfaceAddress {
    /// The address.
    pub local: IpAddr,
    /// Length of the network's prefix.
    #[serde(rename = "prefixlen")]
    pub prefix: u8,
    /// Its label, such as `vip`; IPv6 has none.
    #[serde(default)]
    pub label: String,
}

/// Returns all interfaces with their addresses.
///
/// # Errors
/// ip is missing, or gives no answer.
pub fn query_addresses(runner: &dyn CommandRunner) -> Result<Vec<NetworkInterface>, CommandError> {
    let answer = runner.run(&CommandLine {
        program: "ip".into(),
        args: ["-j", "addr"].map(str::to_owned).to_vec(),
        timeout: Duration::from_secs(30),
        capabilities: &[],
    })?;
    let failed = |words: &str| CommandError::Failed("ip".into(), words.trim().to_owned());
    if answer.status != Some(0) {
        return Err(failed(&answer.stderr));
    }
    parse_addresses(&answer.stdout).map_err(|error| failed(&error.to_string()))
}

/// Parses the answer. An address that is none, of a tunnel's peer, is skipped.
fn parse_addresses(text: &str) -> serde_json::Result<Vec<NetworkInterface>> {
    #[derive(Deserialize)]
    struct Raw {
        #[serde(default)]
        ifname: String,
        #[serde(default)]
        addr_info: Vec<serde_json::Value>,
    }
    let all: Vec<Raw> = serde_json::from_str(text)?;
    let read = all.into_iter().map(|one| NetworkInterface {
        name: one.ifname,
        addresses: one
            .addr_info
            .into_iter()
            .filter_map(|address| serde_json::from_value(address).ok())
            .collect(),
    });
    Ok(read.filter(|one| !one.name.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_their_labels() {
        let text = r#"[{"ifindex":2,"ifname":"ens3","addr_info":[
            {"family":"inet","local":"192.0.2.10","prefixlen":24,"scope":"global","label":"ens3"},
            {"family":"inet","local":"192.0.2.5","prefixlen":32,"scope":"global","label":"vip"},
            {"family":"inet6","local":"2001:db8::a","prefixlen":64,"scope":"global"},
            {"family":"inet","address":"10.0.0.1"}]},{},{"ifname":"ens4","addr_info":[]}]"#;
        let all = parse_addresses(text).unwrap();
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["ens3", "ens4"]);
        let labels: Vec<&str> = all[0]
            .addresses
            .iter()
            .map(|one| one.label.as_str())
            .collect();
        assert_eq!(labels, ["ens3", "vip", ""]);
        assert_eq!(all[0].addresses[2].prefix, 64);
        assert!(parse_addresses("").is_err());
        assert!(parse_addresses("{}").is_err());
    }

    #[test]
    fn the_real_ip_knows_the_loopback() {
        match query_addresses(&crate::command::HostRunner) {
            Err(CommandError::Missing(_)) => eprintln!("SKIP: ip is not installed"),
            answer => {
                let all = answer.unwrap();
                assert!(all.iter().any(|one| one.name == "lo"), "{all:?}");
            }
        }
    }
}
