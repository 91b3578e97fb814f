//! Asks the Machine Config Server that answered earlier for its time: the only network request of `doctor`.

use std::time::{Duration, SystemTime};

use crate::base::reason::Reason;
use crate::base::time::current_time;
use crate::change::source::server::{Server, ServerClock};
use crate::change::source::{Http, ReferenceNetwork};
use crate::host::net::{self, FetchRequest, FetchSettings};
use crate::host::root::Root;
use crate::node::clock::Heard;

/// Time limit for the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Size limit for the answer, whose contents are ignored.
const MAX_BYTES: u64 = 64 << 10;
/// The path that the server answers without any contents.
const QUESTION: &str = "healthz";

/// Returns the server's time. It is trusted only with a certificate of the same authority as before.
///
/// # Errors
/// The reason why there is no time.
pub(super) fn ask_server(root: &Root, server: &Server) -> Result<Heard, Reason> {
    let url = format!("{}/{QUESTION}", server.url);
    let request = FetchRequest {
        retry: false,
        ..FetchRequest::new(&url, MAX_BYTES)
    };
    let answer = net::fetch_url(&fetch_settings(root, server)?, &request, &mut |_| {});
    let date = match answer {
        Ok(answer) => answer
            .date
            .ok_or_else(|| "it answered without a Date".into()),
        Err(error) => error
            .server_clock()
            .ok_or_else(|| Reason::from_error(&error.cause)),
    };
    date.map(|date| judge_date(server, date))
}

fn fetch_settings(root: &Root, server: &Server) -> Result<FetchSettings, Reason> {
    if !server.url.starts_with("https:") {
        return Err("it was reached without TLS, so its answer is not authenticated".into());
    }
    let mut network = ReferenceNetwork::default();
    if !server.authorities.trim().is_empty() {
        network
            .authorities
            .push(server.authorities.as_bytes().into());
    }
    let mut settings = Http::with_limit(root, PATIENCE).fetch_settings(&network)?;
    settings.total_timeout = Some(PATIENCE);
    Ok(settings)
}

fn judge_date(server: &Server, date: SystemTime) -> Heard {
    let clock = ServerClock::new(&server.url, date, Some(current_time()));
    Heard {
        place: clock.url,
        said: clock.date,
        own: clock.seen,
        now: true,
    }
}
