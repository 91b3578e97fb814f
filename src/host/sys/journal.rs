//! Entries of the system journal, in the native protocol of systemd-journald: one datagram with named fields.
//!
//! The journal is optional: nothing waits for it, and a failure has no effect on a run.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Socket on which journald receives entries.
const SOCKET: &str = "/run/systemd/journal/socket";
/// Name under which `journalctl -t` finds the entries.
const IDENTIFIER: &str = "mco-rescue";
/// Maximum size of one value in bytes, so that the whole entry fits into one datagram.
const MAX_VALUE: usize = 4096;

/// Priority of an entry, with syslog's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Priority {
    /// Something is broken and needs a person.
    Critical = 2,
    /// Something failed.
    Error = 3,
    /// Something needs attention.
    Warning = 4,
    /// An event in the life of a node.
    Notice = 5,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry<'a> {
    /// Id of the kind of event, in 32 hexadecimal digits; the message catalog explains it.
    pub id: &'a str,
    /// Its importance.
    pub priority: Priority,
    /// The text.
    pub message: String,
    /// Further fields: a name in capitals, and its value. Fields without a value are omitted.
    pub fields: Vec<(&'static str, String)>,
}

impl JournalEntry<'_> {
    /// Returns the bytes of the datagram.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let priority = (self.priority as u8).to_string();
        add_field(&mut bytes, "MESSAGE", &self.message);
        add_field(&mut bytes, "MESSAGE_ID", self.id);
        add_field(&mut bytes, "PRIORITY", &priority);
        add_field(&mut bytes, "SYSLOG_IDENTIFIER", IDENTIFIER);
        for (name, value) in self.fields.iter().filter(|(_, value)| !value.is_empty()) {
            add_field(&mut bytes, name, value);
        }
        bytes
    }
}

/// Adds a field. A value with a line break is preceded by its length; any other follows `=`.
fn add_field(bytes: &mut Vec<u8>, name: &str, value: &str) {
    let mut end = value.len().min(MAX_VALUE);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    let value = value.get(..end).unwrap_or_default();
    bytes.extend(name.as_bytes());
    if value.contains('\n') {
        bytes.push(b'\n');
        bytes.extend((value.len() as u64).to_le_bytes());
    } else {
        bytes.push(b'=');
    }
    bytes.extend(value.as_bytes());
    bytes.push(b'\n');
}

/// Sends an entry to the journal of the running system. Returns false if there is no journal.
///
/// # Errors
/// The journal does not accept the entry immediately.
pub fn send_entry(entry: &JournalEntry<'_>) -> io::Result<bool> {
    send_to(SOCKET.as_ref(), entry)
}

fn send_to(socket: &Path, entry: &JournalEntry<'_>) -> io::Result<bool> {
    let sender = UnixDatagram::unbound()?;
    // A journal that does not read must not block a run.
    sender.set_nonblocking(true)?;
    match sender.send_to(&entry.to_bytes(), socket) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(message: &str) -> JournalEntry<'_> {
        JournalEntry {
            id: "0123456789abcdef0123456789abcdef",
            priority: Priority::Error,
            message: message.to_owned(),
            fields: vec![("A", "one".to_owned()), ("B", String::new())],
        }
    }

    #[test]
    fn an_entry_is_one_datagram_with_its_fields() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        assert!(send_to(&path, &entry("a text")).unwrap());
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&buffer[..length]),
            "MESSAGE=a text\nMESSAGE_ID=0123456789abcdef0123456789abcdef\nPRIORITY=3\n\
             SYSLOG_IDENTIFIER=mco-rescue\nA=one\n"
        );
    }

    #[test]
    fn a_line_break_in_a_value_begins_no_field() {
        let bytes = entry("one\nPRIORITY=0").to_bytes();
        assert!(bytes.starts_with(b"MESSAGE\n\x0e\0\0\0\0\0\0\0one\nPRIORITY=0\nMESSAGE_ID="));
    }

    #[test]
    fn a_long_value_is_cut_between_two_characters() {
        let mut bytes = Vec::new();
        add_field(&mut bytes, "M", &"\u{20ac}".repeat(5000));
        assert!(bytes.len() <= MAX_VALUE + 3, "{}", bytes.len());
        assert!(String::from_utf8(bytes).is_ok());
    }

    #[test]
    fn a_journal_that_is_missing_or_does_not_read_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        assert!(!send_to(&path, &entry("x")).unwrap());
        // Nothing reads from it; the queue of a datagram socket is short.
        let _socket = UnixDatagram::bind(&path).unwrap();
        assert!((0..10_000).any(|_| send_to(&path, &entry("x")).is_err()));
    }
}
