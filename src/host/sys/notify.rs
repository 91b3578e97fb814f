//! Messages of a service to its manager, like systemd's `sd_notify`: one datagram to the socket named in the environment.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Variable with the socket: a path, or `@` and an abstract name.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Variables of the watchdog: the time after which the manager kills a silent service, and the watched process.
const WATCHDOG_TIME: &str = "WATCHDOG_USEC";
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";
/// Maximum size of a status in bytes; the manager shows one line.
const MAX_STATUS: usize = 512;
/// Maximum time to wait for a full queue of the manager. A service must not hang because of its manager.
const PATIENCE: Duration = Duration::from_secs(2);

/// A message to the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifyState<'a> {
    /// The service has started.
    Ready,
    /// The service is alive; sent more often than its `WatchdogSec=`.
    Alive,
    /// One line about the current activity, which `systemctl status` shows.
    Status(&'a str),
    /// The service ends.
    Stopping,
}

impl NotifyState<'_> {
    fn to_line(self) -> String {
        match self {
            Self::Ready => "READY=1".to_owned(),
            Self::Alive => "WATCHDOG=1".to_owned(),
            Self::Stopping => "STOPPING=1".to_owned(),
            Self::Status(text) => {
                let mut end = text.len().min(MAX_STATUS);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                let text = text.get(..end).unwrap_or_default();
                // A line break would begin another message.
                format!("STATUS={}", text.replace(['\n', '\r', '\0'], " "))
            }
        }
    }
}

/// Sends messages to the manager, in one datagram. Returns false if there is no manager to notify.
///
/// # Errors
/// The socket is gone, or does not accept the datagram in time.
pub fn notify_manager(states: &[NotifyState<'_>]) -> io::Result<bool> {
    let Some(socket) = std::env::var_os(SOCKET).filter(|name| !name.is_empty()) else {
        return Ok(false);
    };
    send_states(&socket, states)?;
    Ok(true)
}

fn send_states(socket: &OsStr, states: &[NotifyState<'_>]) -> io::Result<()> {
    let lines: Vec<String> = states.iter().map(|state| state.to_line()).collect();
    let address = match socket.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(PATIENCE))?;
    sender.send_to_addr(lines.join("\n").as_bytes(), &address)?;
    Ok(())
}

/// Returns the interval between two [`NotifyState::Alive`]: half of the time after which the manager kills this service. `None`
/// if there is no watchdog.
pub fn watchdog_period() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    notify_period(
        number(WATCHDOG_TIME),
        std::env::var_os(WATCHDOG_PROCESS).map(|_| number(WATCHDOG_PROCESS)),
        std::process::id().into(),
    )
}

/// Computes the interval. `watched`: the process named by the variable, if it is set; the inner `None` means that it is not a
/// number.
fn notify_period(
    microseconds: Option<u64>,
    watched: Option<Option<u64>>,
    own: u64,
) -> Option<Duration> {
    let is_other = watched.is_some_and(|process| process != Some(own));
    let microseconds = microseconds.filter(|time| *time > 0 && !is_other)?;
    Some(Duration::from_micros(microseconds) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn messages_arrive_at_a_path_and_at_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let both = [NotifyState::Ready, NotifyState::Status("waits\nREADY=1")];
        send_states(path.as_os_str(), &both).unwrap();
        assert_eq!(receive(&socket), "READY=1\nSTATUS=waits READY=1");

        let name = format!("mco-rescue-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let states = [NotifyState::Alive, NotifyState::Stopping];
        send_states(format!("@{name}").as_ref(), &states).unwrap();
        assert_eq!(receive(&socket), "WATCHDOG=1\nSTOPPING=1");
    }

    #[test]
    fn a_missing_or_full_socket_is_an_error_and_no_hang() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        assert!(send_states(path.as_os_str(), &[NotifyState::Ready]).is_err());
        assert!(send_states("@".as_ref(), &[NotifyState::Ready]).is_err());
        // Nothing reads from it; the queue of a datagram socket is short.
        let _socket = UnixDatagram::bind(&path).unwrap();
        let send = || send_states(path.as_os_str(), &[NotifyState::Alive]);
        assert!((0..10_000).any(|_| send().is_err()));
    }

    #[test]
    fn a_status_is_one_short_line() {
        let long = "\u{e4}".repeat(1000);
        let line = NotifyState::Status(&long).to_line();
        assert!(line.len() <= MAX_STATUS + "STATUS=".len(), "{}", line.len());
    }

    #[test]
    fn the_watchdog_is_fed_twice_in_its_time_by_the_watched_process() {
        let second = Some(Duration::from_secs(1));
        for (microseconds, watched, wanted) in [
            (Some(2_000_000), None, second),
            (Some(2_000_000), Some(Some(7)), second),
            (Some(2_000_000), Some(Some(8)), None),
            (Some(2_000_000), Some(None), None),
            (Some(0), None, None),
            (None, None, None),
        ] {
            assert_eq!(notify_period(microseconds, watched, 7), wanted);
        }
    }
}
