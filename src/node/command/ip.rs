//! ip (iproute2): the addresses of the network interfaces, default routes, and neighbours.

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
    let text = run_ip(runner, &["-j", "addr"])?;
    parse_addresses(&text).map_err(|error| failed_command(&error.to_string()))
}

fn failed_command(words: &str) -> CommandError {
    CommandError::Failed("ip".into(), words.trim().to_owned())
}

fn run_ip(runner: &dyn CommandRunner, args: &[&str]) -> Result<String, CommandError> {
    let answer = runner.run(&CommandLine::new("ip", args, Duration::from_secs(30)))?;
    match answer.status {
        Some(0) => Ok(answer.stdout),
        _ => Err(failed_command(&answer.stderr)),
    }
}

/// A next hop of a default route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefaultHop {
    /// The router; `None` for a link without routers, such as a tunnel.
    pub gateway: Option<IpAddr>,
    /// Name of the interface.
    pub interface: String,
}

/// Returns the hops of the default route that the kernel prefers; empty without a default route.
///
/// # Errors
/// ip is missing, or gives no answer.
pub fn query_default_route(
    runner: &dyn CommandRunner,
    ipv6: bool,
) -> Result<Vec<DefaultHop>, CommandError> {
    let family = if ipv6 { "-6" } else { "-4" };
    let text = run_ip(runner, &["-j", family, "route", "show", "default"])?;
    parse_default_route(&text).map_err(|error| failed_command(&error.to_string()))
}

/// Parses the routes. Several hops are in `nexthops`; an IPv4 route via an IPv6 router has it in `via`. Dead routes are
/// skipped.
fn parse_default_route(text: &str) -> serde_json::Result<Vec<DefaultHop>> {
    #[derive(Deserialize)]
    struct Via {
        host: IpAddr,
    }
    #[derive(Deserialize)]
    struct Hop {
        gateway: Option<IpAddr>,
        via: Option<Via>,
        #[serde(default)]
        dev: String,
        #[serde(default)]
        flags: Vec<String>,
        #[serde(default)]
        metric: u32,
        #[serde(default)]
        nexthops: Vec<Hop>,
        #[serde(rename = "type")]
        kind: Option<String>,
    }
    impl Hop {
        fn is_usable(&self) -> bool {
            let is_route = self.kind.as_deref().is_none_or(|kind| kind == "unicast");
            is_route && !self.flags.iter().any(|flag| flag == "dead")
        }
    }
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut all: Vec<Hop> = serde_json::from_str(text)?;
    all.retain(Hop::is_usable);
    // Of several routes with the same metric the kernel uses the first.
    let Some(best) = all.into_iter().min_by_key(|route| route.metric) else {
        return Ok(Vec::new());
    };
    let hops = if best.nexthops.is_empty() {
        vec![best]
    } else {
        best.nexthops
    };
    let hop = |hop: Hop| DefaultHop {
        gateway: hop.gateway.or(hop.via.map(|via| via.host)),
        interface: hop.dev,
    };
    Ok(hops.into_iter().filter(Hop::is_usable).map(hop).collect())
}

/// The kernel's entry of a neighbour.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct NeighbourEntry {
    /// Its states, such as `REACHABLE`.
    #[serde(default)]
    pub state: Vec<String>,
    /// Seconds since the neighbour was last confirmed reachable.
    pub confirmed: Option<u64>,
}

impl NeighbourEntry {
    /// Returns true if the entry is in one of these states.
    pub fn is_in(&self, states: &[&str]) -> bool {
        self.state
            .iter()
            .any(|state| states.contains(&state.as_str()))
    }
}

/// Returns the entry of a neighbour; `None` if the kernel does not know it.
///
/// # Errors
/// ip is missing, or gives no answer.
pub fn query_neighbour(
    runner: &dyn CommandRunner,
    neighbour: IpAddr,
    interface: &str,
) -> Result<Option<NeighbourEntry>, CommandError> {
    let neighbour = neighbour.to_string();
    // Without `nud all`, entries without ARP are omitted.
    let args = [
        "-j", "-s", "neigh", "show", "to", &neighbour, "dev", interface, "nud", "all",
    ];
    let text = run_ip(runner, &args)?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    let all: Result<Vec<NeighbourEntry>, _> = serde_json::from_str(&text);
    all.map(|all| all.into_iter().next())
        .map_err(|error| failed_command(&error.to_string()))
}

/// Parses the output. Addresses that do not parse, such as those of a tunnel's peer, are skipped.
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
    fn the_preferred_default_route_is_read_in_every_form() {
        let hop = |gateway: Option<&str>, interface: &str| DefaultHop {
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
            interface: interface.to_owned(),
        };
        let cases = [
            ("", vec![]),
            ("[]", vec![]),
            (
                r#"[{"dst":"default","gateway":"192.0.2.1","dev":"ens4","metric":200,"flags":[]},
                    {"dst":"default","gateway":"192.0.2.2","dev":"ens3","metric":100,"flags":[]}]"#,
                vec![hop(Some("192.0.2.2"), "ens3")],
            ),
            (
                r#"[{"dst":"default","gateway":"192.0.2.1","dev":"ens3","flags":["dead","linkdown"]},
                    {"dst":"default","gateway":"fe80::1","dev":"ens4","metric":1024,"flags":[],"pref":"medium"}]"#,
                vec![hop(Some("fe80::1"), "ens4")],
            ),
            (
                r#"[{"dst":"default","metric":1024,"flags":[],"nexthops":[
                    {"gateway":"fe80::1","dev":"ens3","weight":1,"flags":[]},{"gateway":"fe80::2","dev":"ens3","flags":["dead"]}]}]"#,
                vec![hop(Some("fe80::1"), "ens3")],
            ),
            (
                r#"[{"dst":"default","via":{"family":"inet6","host":"fe80::1"},"dev":"ens3","flags":[]}]"#,
                vec![hop(Some("fe80::1"), "ens3")],
            ),
            (
                r#"[{"dst":"default","dev":"tun0","scope":"link","flags":[]}]"#,
                vec![hop(None, "tun0")],
            ),
            (
                r#"[{"type":"unreachable","dst":"default","dev":"lo","metric":4294967295,"flags":[]}]"#,
                vec![],
            ),
        ];
        for (text, wanted) in cases {
            assert_eq!(parse_default_route(text).unwrap(), wanted, "{text}");
        }
        assert!(parse_default_route("{").is_err());
    }

    #[test]
    fn the_real_ip_knows_the_loopback() {
        match query_addresses(&crate::node::command::HostRunner) {
            Err(CommandError::Missing(_)) => {
                crate::skip::skip(crate::skip::Lacks::Setup, "ip is not installed")
            }
            answer => {
                let all = answer.unwrap();
                assert!(all.iter().any(|one| one.name == "lo"), "{all:?}");
            }
        }
    }
}
