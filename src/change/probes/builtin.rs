//! The built-in probes. Each queries a part of the node, or the network around it, and changes nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::ProbeContext;
use crate::base::reason::Reason;
use crate::change::source::server;
use crate::host::net::{
    CertificateDer, FetchCause, FetchRequest, FetchSettings, Knock, NameAnswer, TlsProblem,
    fetch_url, find_host, parse_bundle, read_greeting,
};
use crate::judge::daemon::annotations;
use crate::node::command::ip::{self, DefaultHop};
use crate::node::login_session::milliseconds_since_boot;
use crate::node::sshd_ports::{self, SshdListener};

/// Maximum time for a router's answer. Five seconds after the next datagram, the kernel starts to probe a silent router, three
/// times at intervals of a second.
const ROUTER_BOUND: Duration = Duration::from_secs(12);
/// Pause between two checks of a router.
const ROUTER_PAUSE: Duration = Duration::from_millis(500);
/// Maximum time for the answer of one name server.
const NAME_SERVER_BOUND: Duration = Duration::from_secs(3);
/// Maximum time for the answer of a server.
const SERVER_BOUND: Duration = Duration::from_secs(10);
const LOCAL_BOUND: Duration = Duration::from_secs(5);
/// Maximum size of an answer's body, in bytes. The body is not used.
const MAX_BODY: u64 = 1 << 20;
/// Maximum age of a router's last sign of life, in milliseconds, if the time of the change is unknown.
const RECENT: u64 = 60_000;
/// The kubelet's own health page, on its default port.
const KUBELET: &str = "http://127.0.0.1:10248/healthz";
/// A name that every name server can resolve on its own, used if the API server has no name.
const ANY_NAME: &str = "localhost";

/// A built-in probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltinProbe {
    /// The router of the default route answers.
    DefaultRoute,
    /// One of the name servers answers.
    NameServers,
    /// The API server answers, or the Machine Config Server.
    Api,
    /// The kubelet reports that it is healthy.
    Kubelet,
    /// sshd greets.
    Sshd,
}

impl BuiltinProbe {
    /// All of them, in the order of their dependencies.
    pub const ALL: [Self; 5] = [
        Self::DefaultRoute,
        Self::NameServers,
        Self::Api,
        Self::Kubelet,
        Self::Sshd,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::DefaultRoute => "default-route",
            Self::NameServers => "name-servers",
            Self::Api => "api",
            Self::Kubelet => "kubelet",
            Self::Sshd => "sshd",
        }
    }
}

/// Runs a built-in probe. Both results are words for the user.
pub(super) fn run_builtin(
    probe: BuiltinProbe,
    context: &ProbeContext<'_>,
) -> Result<String, Reason> {
    match probe {
        BuiltinProbe::DefaultRoute => ask_routers(context),
        BuiltinProbe::NameServers => ask_name_servers(context),
        BuiltinProbe::Api => ask_api(context),
        BuiltinProbe::Kubelet => ask_kubelet(context),
        BuiltinProbe::Sshd => ask_sshd(context),
    }
}

/// Queries the router of each address family that has a default route.
fn ask_routers(context: &ProbeContext<'_>) -> Result<String, Reason> {
    let mut answered = Vec::new();
    for ipv6 in [false, true] {
        let hops = ip::query_default_route(context.runner, ipv6);
        let hops = hops.map_err(Reason::from_error)?;
        if !hops.is_empty() {
            answered.push(ask_hops(&hops, context)?);
        }
    }
    if answered.is_empty() {
        Err("there is no default route".into())
    } else {
        Ok(answered.join(", "))
    }
}

/// A hop of a default route, in words.
enum HopState {
    /// It works.
    Answers(String),
    /// It has not answered yet.
    Silent(String),
}

/// Queries the hops of one route; one answer is enough.
fn ask_hops(hops: &[DefaultHop], context: &ProbeContext<'_>) -> Result<String, Reason> {
    let end = context.end_within(ROUTER_BOUND);
    let mut silent = Vec::new();
    loop {
        silent.clear();
        for hop in hops {
            match ask_hop(hop, context)? {
                HopState::Answers(words) => return Ok(words),
                HopState::Silent(words) => silent.push(words),
            }
        }
        if context.is_over(end) {
            return Err(silent.join(", ").into());
        }
    }
}

fn ask_hop(hop: &DefaultHop, context: &ProbeContext<'_>) -> Result<HopState, Reason> {
    let interface = &hop.interface;
    let Some(gateway) = hop.gateway else {
        let words = format!("{interface} needs no router");
        return Ok(HopState::Answers(words));
    };
    let replied = match Knock::new(gateway, interface) {
        Ok(knock) => knock.is_answered(ROUTER_PAUSE),
        Err(reason) => {
            std::thread::sleep(ROUTER_PAUSE);
            let words = format!("{gateway} on {interface}: {reason}");
            return Ok(HopState::Silent(words));
        }
    };
    let entry = ip::query_neighbour(context.runner, gateway, interface);
    let entry = entry.map_err(Reason::from_error)?.unwrap_or_default();
    if entry.is_in(&["PERMANENT", "NOARP"]) {
        let words = format!("{gateway} on {interface} is a fixed entry");
        return Ok(if replied {
            HopState::Answers(words)
        } else {
            HopState::Silent(format!("{words} and silent"))
        });
    }
    // A firewall on this node can reject the datagram in the router's name, so the kernel has to know the router too.
    let is_known = entry.is_in(&["REACHABLE", "STALE", "DELAY", "PROBE"]);
    let is_fresh =
        entry.is_in(&["REACHABLE"]) && is_recent(entry.confirmed, context.in_place_since);
    if is_fresh || (replied && is_known) {
        let words = format!("{gateway} on {interface} answers");
        return Ok(HopState::Answers(words));
    }
    let state = match entry.state.first() {
        Some(state) => format!(" (neighbour is {state})"),
        None => String::new(),
    };
    let words = format!("{gateway} on {interface} does not answer{state}");
    Ok(HopState::Silent(words))
}

/// Returns true if a sign of life this many seconds ago came after the change.
fn is_recent(confirmed: Option<u64>, in_place_since: Option<u64>) -> bool {
    let allowed = in_place_since.map_or(RECENT, |since| {
        milliseconds_since_boot().saturating_sub(since)
    });
    // The kernel rounds seconds down.
    confirmed.is_some_and(|seconds| seconds.saturating_add(1).saturating_mul(1000) <= allowed)
}

/// Queries the name servers in resolv.conf; one answer is enough.
fn ask_name_servers(context: &ProbeContext<'_>) -> Result<String, Reason> {
    let api = annotations::read_server(context.root).ok();
    let host = api.and_then(|api| find_host(&api.server));
    let name = host.filter(|host| host.parse::<IpAddr>().is_err());
    let name = name.unwrap_or_else(|| ANY_NAME.to_owned());
    let end = context.until;
    let answer = context
        .names
        .find_answering_server(&name, NAME_SERVER_BOUND, end);
    match answer {
        Ok(server) => Ok(format!("{server} answers for {name}")),
        Err(answers) if answers.is_empty() => Err("/etc/resolv.conf names no server".into()),
        Err(answers) => {
            let answers: Vec<String> = answers.iter().map(NameAnswer::to_string).collect();
            Err(answers.join(", ").into())
        }
    }
}

/// Queries the kubelet's API server, or without its kubeconfig the Machine Config Server that answered last.
fn ask_api(context: &ProbeContext<'_>) -> Result<String, Reason> {
    match annotations::read_server(context.root) {
        Ok(api) => ask_server(&format!("{}/readyz", api.server), api.authorities, context),
        Err(error) => {
            let known = server::read_server(context.root).map_err(Reason::from_error)?;
            let Some(known) = known else {
                return Err(format!("{error}, and no Machine Config Server is remembered").into());
            };
            let authorities = parse_bundle(known.authorities.as_bytes()).unwrap_or_default();
            ask_server(&format!("{}/healthz", known.url), authorities, context)
        }
    }
}

fn fetch_status(
    url: &str,
    authorities: Vec<CertificateDer<'static>>,
    bound: Duration,
    context: &ProbeContext<'_>,
) -> Result<u16, FetchCause> {
    let settings = FetchSettings {
        certificates: authorities,
        header_timeout: bound,
        connect_timeout: bound,
        total_timeout: Some(bound),
        deadline: Some(context.until),
        names: context.names.clone(),
        ..FetchSettings::default()
    };
    let mut request = FetchRequest::new(url, MAX_BODY);
    request.retry = false;
    match fetch_url(&settings, &request, &mut |_| {}) {
        Ok(answer) => Ok(answer.status),
        Err(error) => match error.cause {
            FetchCause::Status(status) => Ok(status),
            cause => Err(cause),
        },
    }
}

/// Queries a server. Any status is an answer, and so is a certificate: the probe tests the network path.
fn ask_server(
    url: &str,
    authorities: Vec<CertificateDer<'static>>,
    context: &ProbeContext<'_>,
) -> Result<String, Reason> {
    match fetch_status(url, authorities, SERVER_BOUND, context) {
        Ok(status) => Ok(format!("{url} answers {status}")),
        Err(FetchCause::Tls(problem)) if shows_certificate(&problem) => {
            Ok(format!("{url} answers, but {problem}"))
        }
        Err(cause) => Err(format!("{url}: {cause}").into()),
    }
}

fn shows_certificate(problem: &TlsProblem) -> bool {
    match problem {
        TlsProblem::UnknownIssuer(_)
        | TlsProblem::Expired { .. }
        | TlsProblem::NotYetValid { .. }
        | TlsProblem::WrongName { .. }
        | TlsProblem::BadCertificate(_) => true,
        TlsProblem::Timeout(_) | TlsProblem::NotTls | TlsProblem::Other(_) => false,
    }
}

fn ask_kubelet(context: &ProbeContext<'_>) -> Result<String, Reason> {
    match fetch_status(KUBELET, Vec::new(), LOCAL_BOUND, context) {
        Ok(200) => Ok("the kubelet is healthy".to_owned()),
        Ok(status) => Err(format!("the kubelet answers {status} at {KUBELET}").into()),
        Err(cause) => Err(format!("{KUBELET}: {cause}").into()),
    }
}

/// Connects to sshd on each of its ports: over loopback, and over the address that the default route uses.
fn ask_sshd(context: &ProbeContext<'_>) -> Result<String, Reason> {
    let listeners = sshd_ports::read_sshd_ports(context.root)?;
    let own = own_addresses(context);
    let end = context.end_within(SERVER_BOUND);
    let mut said = Vec::new();
    for listener in &listeners {
        let groups = match listener {
            SshdListener::Everywhere(port) => {
                let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                let at =
                    |all: &[IpAddr]| all.iter().map(|one| SocketAddr::new(*one, *port)).collect();
                vec![at(&loopback), at(&own)]
            }
            SshdListener::At(address) => vec![vec![*address]],
        };
        for group in groups {
            let group: Vec<SocketAddr> = group;
            // sshd may serve only one address family, so one of them is enough.
            if !group.is_empty() {
                said.push(greet_any(&group, end)?);
            }
        }
    }
    Ok(format!("sshd answers at {}", said.join(", ")))
}

fn greet_any(addresses: &[SocketAddr], end: Instant) -> Result<String, Reason> {
    let mut failures = Vec::new();
    for address in addresses {
        let left = end.saturating_duration_since(Instant::now());
        match read_greeting(*address, "SSH-2.0-", left.min(LOCAL_BOUND)) {
            Ok(_) => return Ok(address.to_string()),
            Err(reason) => failures.push(format!("{address}: {reason}")),
        }
    }
    Err(failures.join(", ").into())
}

/// Returns the addresses that this node uses towards its routers; empty without a default route.
fn own_addresses(context: &ProbeContext<'_>) -> Vec<IpAddr> {
    let hops = [false, true].map(|ipv6| ip::query_default_route(context.runner, ipv6));
    let hops = hops.into_iter().flatten().flatten();
    let address = |hop: DefaultHop| Knock::new(hop.gateway?, &hop.interface).ok()?.own_address();
    hops.filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_life_before_the_change_does_not_count() {
        let now = milliseconds_since_boot();
        for (confirmed, since, recent) in [
            (Some(0), Some(now.saturating_sub(2_000)), true),
            (Some(3), Some(now.saturating_sub(2_000)), false),
            (Some(3), None, true),
            (Some(90), None, false),
            (None, None, false),
        ] {
            assert_eq!(
                is_recent(confirmed, since),
                recent,
                "{confirmed:?} {since:?}"
            );
        }
    }

    #[test]
    fn the_host_of_a_server_is_found() {
        for (url, host) in [
            ("https://api-int.example:6443", Some("api-int.example")),
            ("https://[fd00::1]:6443/", Some("fd00::1")),
            ("https://192.0.2.1", Some("192.0.2.1")),
            ("nonsense", None),
            ("https://:1", None),
        ] {
            assert_eq!(find_host(url).as_deref(), host, "{url}");
        }
    }
}
