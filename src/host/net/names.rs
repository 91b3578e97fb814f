//! Resolves host names without the C library: a static glibc would load the node's own name-service modules.
//!
//! Order: a numeric address; names given by the caller; `/etc/hosts`; the name servers of `/etc/resolv.conf` with its `search`,
//! `ndots`, `timeout` and `attempts`. Unlike the C library, a server that does not know the name does not end the search: the
//! other servers are asked too, because on nodes they often differ, and all answers are kept.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use resolv_conf::{Config, ScopedIp};

use super::dns::{self, ServerAnswer};
use super::error::{FetchCause, NameAnswer};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::running;

/// The port of name servers.
const DNS_PORT: u16 = 53;
/// Limits of the options, as in the C library.
const MAX_TIMEOUT: u32 = 30;
const MAX_ATTEMPTS: u32 = 5;
const MAX_NDOTS: u32 = 15;

/// The sources of names. The files are read for every attempt, because the network may be coming up.
#[derive(Debug, Clone)]
pub struct NameSources {
    /// Names with their addresses; used before anything else.
    pub given: Vec<(String, IpAddr)>,
    /// The file in the format of `/etc/hosts`.
    pub hosts: PathBuf,
    /// The file in the format of `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// The port of the name servers; 53 except in tests.
    pub port: u16,
}

impl Default for NameSources {
    /// Returns the sources of the running system.
    fn default() -> Self {
        Self {
            given: Vec::new(),
            hosts: format!("/{}", paths::HOSTS).into(),
            resolv_conf: format!("/{}", paths::RESOLV_CONF).into(),
            port: DNS_PORT,
        }
    }
}

impl NameSources {
    /// Asks the name servers one after another for a name, and returns the first that answers: with addresses, or that there
    /// are none. A server that reports a failure does not count as answering. Does not look up names that are known without
    /// name servers.
    ///
    /// # Errors
    /// The answer of each server; empty if none is configured.
    pub fn find_answering_server(
        &self,
        name: &str,
        each: Duration,
        until: Instant,
    ) -> Result<IpAddr, Vec<NameAnswer>> {
        let (config, _) = Config::parse_with_errors(text_of(&self.resolv_conf).as_bytes());
        let mut answers = Vec::new();
        for server in &config.nameservers {
            let Some(address) = socket_address(server, self.port) else {
                continue;
            };
            match dns::ask_server(address, name, until.min(Instant::now() + each)) {
                Ok(_) => return Ok(address.ip()),
                Err(answer) if answer.is_final() => return Ok(address.ip()),
                Err(answer) => answers.push(NameAnswer {
                    server: address.ip(),
                    name: name.to_owned(),
                    answer,
                }),
            }
        }
        Err(answers)
    }

    /// Returns the addresses of a host, at least one; IPv4 first. Fails with [`FetchCause::NotResolved`].
    pub fn resolve_host(&self, host: &str, until: Instant) -> Result<Vec<IpAddr>, FetchCause> {
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        let given: Vec<IpAddr> = self
            .given
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(host))
            .map(|(_, address)| *address)
            .collect();
        if !given.is_empty() {
            return Ok(given);
        }
        let known = in_hosts(&text_of(&self.hosts), host);
        if !known.is_empty() {
            return Ok(known);
        }
        if host == "localhost" || host.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let (config, _) = Config::parse_with_errors(text_of(&self.resolv_conf).as_bytes());
        NameSearch::new(&config, self.port, until).run_search(host)
    }
}

/// Reads a file; a missing one counts as empty, because an initramfs often has neither.
fn text_of(path: &PathBuf) -> String {
    match running::read_bytes(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                log::warn!("{}: {}", path.display(), Reason::from(error));
            }
            String::new()
        }
    }
}

/// Returns the addresses of a name in a hosts file.
fn in_hosts(text: &str, host: &str) -> Vec<IpAddr> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = words.next()?.parse().ok()?;
            words
                .any(|name| name.eq_ignore_ascii_case(host))
                .then_some(address)
        })
        .collect()
}

/// Returns the names to query, in order. A name with a trailing dot is complete.
fn candidate_names(host: &str, config: &Config) -> Vec<String> {
    let bare = host.trim_end_matches('.').to_owned();
    if host.ends_with('.') {
        return vec![bare];
    }
    let mut names: Vec<String> = config
        .get_last_search_or_domain()
        .map(|domain| domain.trim_matches('.'))
        .filter(|domain| !domain.is_empty())
        .map(|domain| format!("{bare}.{domain}"))
        .collect();
    let dots = bare.matches('.').count() as u64;
    if dots >= u64::from(config.ndots.min(MAX_NDOTS)) {
        names.insert(0, bare);
    } else {
        names.push(bare);
    }
    names
}

/// One pass over servers and names.
struct NameSearch<'a> {
    config: &'a Config,
    servers: Vec<SocketAddr>,
    wait: Duration,
    until: Instant,
    answers: Vec<NameAnswer>,
}

impl<'a> NameSearch<'a> {
    fn new(config: &'a Config, port: u16, until: Instant) -> Self {
        let wait = config.timeout.clamp(1, MAX_TIMEOUT);
        Self {
            config,
            servers: config
                .nameservers
                .iter()
                .filter_map(|server| socket_address(server, port))
                .collect(),
            wait: Duration::from_secs(wait.into()),
            until,
            answers: Vec::new(),
        }
    }

    fn run_search(mut self, host: &str) -> Result<Vec<IpAddr>, FetchCause> {
        for name in candidate_names(host, self.config) {
            for _ in 0..self.config.attempts.clamp(1, MAX_ATTEMPTS) {
                if let Some(addresses) = self.ask_round(&name) {
                    return Ok(addresses);
                }
            }
        }
        Err(FetchCause::NotResolved {
            name: host.to_owned(),
            answers: self.answers,
        })
    }

    /// Asks every server that has not given a final answer yet.
    fn ask_round(&mut self, name: &str) -> Option<Vec<IpAddr>> {
        for server in self.servers.clone() {
            let now = Instant::now();
            if now >= self.until || self.is_settled(server, name) {
                continue;
            }
            match dns::ask_server(server, name, self.until.min(now + self.wait)) {
                Ok(addresses) => return Some(addresses),
                Err(answer) => self.note_answer(server, name, answer),
            }
        }
        None
    }

    fn is_settled(&self, server: SocketAddr, name: &str) -> bool {
        let mut of_server = self.answers.iter();
        of_server.any(|a| a.server == server.ip() && a.name == name && a.answer.is_final())
    }

    /// Stores the last answer of each server for each name, in the order of the servers.
    fn note_answer(&mut self, server: SocketAddr, name: &str, answer: ServerAnswer) {
        let server = server.ip();
        let mut known = self.answers.iter_mut();
        match known.find(|a| a.server == server && a.name == name) {
            Some(earlier) => earlier.answer = answer,
            None => self.answers.push(NameAnswer {
                server,
                name: name.to_owned(),
                answer,
            }),
        }
    }
}

fn socket_address(server: &ScopedIp, port: u16) -> Option<SocketAddr> {
    match server {
        ScopedIp::V4(address) => Some(SocketAddr::from((*address, port))),
        ScopedIp::V6(address, scope) => {
            let scope = scope.as_deref().map_or(Some(0), interface_index)?;
            Some(std::net::SocketAddrV6::new(*address, port, 0, scope).into())
        }
    }
}

/// Returns the index of an interface, which a link-local server names, as in `fe80::1%eth0`.
pub(super) fn interface_index(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    if name.contains('/') {
        return None;
    }
    let path = PathBuf::from(format!("/sys/class/net/{name}/ifindex"));
    text_of(&path).trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse_with_errors(text.as_bytes()).0
    }

    #[test]
    fn hosts_are_found_by_any_of_their_names() {
        let text = "# comment\n10.0.0.1 a.example a # b\n\nfd00::1\tA.example\nbroken a.example\n";
        let expected: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        assert_eq!(in_hosts(text, "a.EXAMPLE"), expected);
        assert!(in_hosts(text, "b").is_empty());
    }

    #[test]
    fn the_search_list_comes_first_for_names_with_few_dots() {
        let config = config("search one.example two.example.\noptions ndots:2\nnonsense here\n");
        assert_eq!(
            candidate_names("api.int", &config),
            ["api.int.one.example", "api.int.two.example", "api.int"]
        );
        assert_eq!(candidate_names("a.b.c", &config)[0], "a.b.c");
        assert_eq!(candidate_names("a.", &config), ["a"]);
    }

    #[test]
    fn link_local_servers_keep_their_interface() {
        let config =
            config("nameserver fe80::1%lo\nnameserver fe80::2%7\nnameserver fe80::3%none\n");
        let found: Vec<String> = config
            .nameservers
            .iter()
            .filter_map(|server| socket_address(server, 53))
            .map(|address| address.to_string())
            .collect();
        assert_eq!(found, ["[fe80::1%1]:53", "[fe80::2%7]:53"]);
    }

    proptest::proptest! {
        #[test]
        fn any_file_is_read_without_panic(text in "(nameserver|search|options|domain|ndots:|timeout:| |\n|\t|[a-z0-9.:%#;]){0,40}") {
            let config = config(&text);
            in_hosts(&text, "a");
            candidate_names("a.b", &config);
            for server in &config.nameservers {
                socket_address(server, 53);
            }
        }
    }
}
