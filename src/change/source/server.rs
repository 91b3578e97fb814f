//! The Machine Config Server (docs/develop/agreement.md: Server): its address, the requests to it, and how it is trusted.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};
use crate::host::state_file;

/// The server's TLS port.
const PORT: u16 = 22623;

/// The stored data of the node's server, from its last answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Version of the file.
    pub version: u32,
    /// URL such as `https://api-int.example:22623`.
    pub url: String,
    /// The requested pool.
    pub pool: String,
    /// The PEM bundle with which the server's certificate was verified.
    pub authorities: String,
    /// Time of the answer by the node's clock, in seconds since 1970.
    pub answered: u64,
}

/// Version of both files.
pub const VERSION: u32 = 1;

/// Reads the stored data; `None` if the file is missing or damaged, which is logged.
pub fn read_server(root: &Root) -> Result<Option<Server>, RootError> {
    state_file::read_remembered(root, paths::SERVER, VERSION, |kept: &Server| kept.version)
}

/// The clocks of server and node at the same moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerClock {
    /// Version of the file.
    pub version: u32,
    /// URL such as `https://api-int.example:22623`.
    pub url: String,
    /// The server's time from its `Date` header, in seconds since 1970.
    pub date: u64,
    /// The node's clock at that moment; `None` if another machine sent the request.
    pub seen: Option<u64>,
}

impl ServerClock {
    /// Creates the clocks from an answer that was just received.
    pub fn new(url: &str, date: SystemTime, seen: Option<u64>) -> Self {
        let since = date.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            version: VERSION,
            url: url.to_owned(),
            date: since.as_secs(),
            seen,
        }
    }
}

/// Reads the server's last time; `None` if the file is missing or damaged, which is logged.
pub fn remembered_clock(root: &Root) -> Result<Option<ServerClock>, RootError> {
    state_file::read_remembered(root, paths::SERVER_CLOCK, VERSION, |kept: &ServerClock| {
        kept.version
    })
}

/// Returns the server on the API host in the node's configuration.
pub fn of_api(root: &Root) -> Result<Option<String>, RootError> {
    let bytes = root.read(&RootPath::fixed(paths::APISERVER_URL))?;
    let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
    Ok(parse_host(&text).map(|host| format!("https://{host}:{PORT}")))
}

/// Returns the API host from the shell assignments in `apiserver-url.env`, unchanged.
pub fn api_host(text: &str) -> Option<String> {
    let value = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("KUBERNETES_SERVICE_HOST="))?;
    let host = value.trim_matches(['\'', '"', '[', ']']);
    (!host.is_empty()).then(|| host.to_owned())
}

fn parse_host(text: &str) -> Option<String> {
    let host = api_host(text)?;
    Some(if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    })
}

/// Returns the base URL of a server, given a URL, or a host with or without a port.
pub fn to_base_url(given: &str) -> String {
    let given = given.trim_end_matches('/');
    if given.contains("://") {
        return given.to_owned();
    }
    let has_port = given.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    if has_port {
        format!("https://{given}")
    } else {
        format!("https://{given}:{PORT}")
    }
}

/// Returns the URL of a pool's config.
pub fn config_url(base: &str, pool: &str) -> String {
    format!("{base}/config/{pool}")
}

/// Explains a misleading HTTP status of this server (docs/develop/agreement.md: Server).
pub fn explain_status(status: u16, pool: &str) -> Option<String> {
    match status {
        500 => Some(format!(
            "this server answers 500 also for an unknown pool: check {pool:?}. \
             The bootstrap server knows only master and arbiter"
        )),
        404 => Some("the pool has no rendered config there yet".to_owned()),
        400 => Some("the server does not support the requested version of Ignition".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_be_named_in_every_usual_way() {
        for (given, base_url) in [
            ("api-int.example", "https://api-int.example:22623"),
            ("api-int.example:443", "https://api-int.example:443"),
            ("10.0.0.1", "https://10.0.0.1:22623"),
            ("[fd00::1]", "https://[fd00::1]:22623"),
            ("[fd00::1]:443", "https://[fd00::1]:443"),
            ("https://x.example/", "https://x.example"),
        ] {
            assert_eq!(to_base_url(given), base_url);
        }
    }

    #[test]
    fn the_host_of_the_api_is_taken_from_its_shell_assignment() {
        let text = "KUBERNETES_SERVICE_HOST='api-int.example'\nKUBERNETES_SERVICE_PORT='6443'\n";
        assert_eq!(parse_host(text).as_deref(), Some("api-int.example"));
        assert_eq!(
            parse_host("KUBERNETES_SERVICE_HOST=fd00::1").as_deref(),
            Some("[fd00::1]")
        );
        assert_eq!(parse_host("KUBERNETES_SERVICE_HOST=\n"), None);
        assert_eq!(parse_host(""), None);
    }
}
