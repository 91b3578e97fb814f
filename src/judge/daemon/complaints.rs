//! The last failure in the daemon's log and how often it was repeated: each retry ends with the same line.

use super::pod_log::{self, LogMessage};
use crate::host::root::Root;

/// Prefixes of a line with which a retry ends.
const FAILED: [&str; 2] = [
    "Marking Degraded due to: ",
    "Marking Unreconcilable due to: ",
];
/// Prefix of a line with which an update begins.
const STARTING: &str = "Starting update from ";
/// Prefixes of a line after which earlier failures no longer count.
const WELL: [&str; 4] = [
    "Completing update to target",
    "Update completed for config",
    "In desired config",
    "Validated on-disk state",
];
/// Maximum number of characters of a failure that are kept.
const MAX_TEXT: usize = 300;
/// Number of characters by which failures are compared: the rest may contain a time or a temporary file name.
const SAME: usize = 60;

/// A failure that no later line shows to be over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Complaint {
    /// The daemon's words, after `due to:`.
    pub text: String,
    /// Number of consecutive occurrences.
    pub times: usize,
    /// Time of the first occurrence; seconds since 1970 by the node's clock.
    pub first: u64,
    /// Time of the last occurrence.
    pub last: u64,
    /// The config of the update that failed; `None` if the log does not name it.
    pub target: Option<String>,
    /// Path of the file.
    pub file: String,
}

/// Reads the last failure in the daemon's log. Unreadable files and directories are added to `unread`.
pub fn read_complaint(root: &Root, unread: &mut Vec<String>) -> Option<Complaint> {
    let starts = |text: &str, all: &[&str]| all.iter().any(|one| text.starts_with(one));
    let wanted =
        |text: &str| starts(text, &FAILED) || starts(text, &WELL) || text.starts_with(STARTING);
    last_of(pod_log::read_messages(root, wanted, unread))
}

fn last_of(messages: Vec<LogMessage>) -> Option<Complaint> {
    let mut found: Option<Complaint> = None;
    let mut target = None;
    for message in messages {
        let text = message.text.as_str();
        if WELL.iter().any(|one| text.starts_with(one)) {
            (found, target) = (None, None);
        } else if let Some(rest) = text.strip_prefix(STARTING) {
            let to = rest.split_once(" to ").map(|(_, to)| to);
            target = to.and_then(pod_log::find_name);
        } else if let Some(words) = FAILED.iter().find_map(|one| text.strip_prefix(one)) {
            let words = strip_quoting(words);
            match &mut found {
                Some(known) if is_same(&known.text, &words) => {
                    known.times += 1;
                    known.last = message.at;
                    known.target = target.clone().or(known.target.take());
                }
                found => {
                    *found = Some(Complaint {
                        text: words,
                        times: 1,
                        first: message.at,
                        last: message.at,
                        target: target.clone(),
                        file: message.file,
                    });
                }
            }
        }
    }
    found
}

/// Returns the text without the quoting of the log.
fn strip_quoting(words: &str) -> String {
    let words = words.trim().trim_matches(['"', '\\']).replace("\\\"", "\"");
    words.chars().take(MAX_TEXT).collect()
}

fn is_same(one: &str, other: &str) -> bool {
    one.chars().take(SAME).eq(other.chars().take(SAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> Option<Complaint> {
        let messages = texts.iter().zip(1..).map(|(text, at)| LogMessage {
            at,
            text: (*text).to_owned(),
            file: "f".to_owned(),
        });
        last_of(messages.collect())
    }

    const STARTS: &str = "Starting update from rendered-worker-a to rendered-worker-b: &{}";
    const FAILS: &str = "Marking Degraded due to: \\\"creating /a: not a directory\\\"\"";

    #[test]
    fn retries_are_counted_and_the_target_is_named() {
        let found = of(&[STARTS, FAILS, STARTS, FAILS]).unwrap();
        assert_eq!(found.text, "creating /a: not a directory");
        assert_eq!((found.times, found.first, found.last), (2, 2, 4));
        assert_eq!(found.target.as_deref(), Some("rendered-worker-b"));
        let other = "Marking Degraded due to: another reason";
        let found = of(&[STARTS, FAILS, other]).unwrap();
        assert_eq!((found.text.as_str(), found.times), ("another reason", 1));
    }

    #[test]
    fn what_went_well_later_ends_it() {
        for well in [
            "Completing update to target rendered-worker-b",
            "In desired config rendered-worker-a",
            "Validated on-disk state",
            "Update completed for config rendered-worker-b",
        ] {
            assert_eq!(of(&[STARTS, FAILS, well]), None, "{well}");
            assert_eq!(of(&[well, FAILS]).unwrap().target, None);
        }
        assert_eq!(of(&[STARTS]), None);
    }
}
