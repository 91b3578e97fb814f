//! The sign of life of a service to its manager, like systemd's `sd_notify`: one datagram to the socket named in the environment.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Variable with the socket: a path, or `@` and an abstract name.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Maximum time to wait for a full queue of the manager. A service must not hang because of its manager.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tells the manager that this service is alive; to be sent more often than its `WatchdogSec=`. Does nothing without a manager.
///
/// # Errors
/// The socket is gone, or does not accept the datagram in time.
pub fn feed_watchdog() -> io::Result<()> {
    match std::env::var_os(SOCKET).filter(|name| !name.is_empty()) {
        Some(socket) => send_alive(&socket),
        None => Ok(()),
    }
}

fn send_alive(socket: &OsStr) -> io::Result<()> {
    let address = match socket.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(PATIENCE))?;
    sender.send_to_addr(b"WATCHDOG=1", &address)?;
    Ok(())
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
        send_alive(path.as_os_str()).unwrap();
        assert_eq!(receive(&socket), "WATCHDOG=1");

        let name = format!("mco-rescue-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        send_alive(format!("@{name}").as_ref()).unwrap();
        assert_eq!(receive(&socket), "WATCHDOG=1");
    }

    #[test]
    fn a_missing_or_full_socket_is_an_error_and_no_hang() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        assert!(send_alive(path.as_os_str()).is_err());
        assert!(send_alive("@".as_ref()).is_err());
        // Nothing reads from it; the queue of a datagram socket is short.
        let _socket = UnixDatagram::bind(&path).unwrap();
        assert!((0..10_000).any(|_| send_alive(path.as_os_str()).is_err()));
    }
}
