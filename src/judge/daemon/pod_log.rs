//! The configs named in the daemon's log on the node: the weakest evidence, for when the API cannot be reached.
//!
//! Reads the container's logs as the runtime writes them, and the daemon's copies of the previous pod's logs
//! (docs/develop/agreement.md: Files on a node). Only known line formats count, and only at the beginning of a message: quoted text
//! proves nothing. Logs are removed with the pod, so the last traces are stored.

use std::io::{Read, Seek, SeekFrom};

use nix::sys::stat::{FileStat, SFlag};
use serde::{Deserialize, Serialize};

use crate::base::order::StableOrder;
use crate::base::paths;
use crate::base::time::days_since_epoch;
use crate::host::root::{Root, RootError, RootPath};
use crate::host::state_file;
use crate::node::clock;

/// Version of the file.
const VERSION: u32 = 1;
/// Number of bytes that are read from the end of each file (1 MiB).
const TAIL: u64 = 1 << 20;
/// Maximum number of files that are read, newest first.
const MAX_FILES: usize = 8;
/// Maximum number of names in a directory that are checked.
const MAX_NAMES: usize = 256;
/// Maximum depth of the copies; their layout is not documented.
const MAX_DEPTH: usize = 4;
/// Number of seconds by which a corrected clock may be behind a trace.
const SLACK: u64 = 600;
/// Prefix of the daemon's pods; only the operator can create pods in this namespace.
const POD: &str = "openshift-machine-config-operator_machine-config-daemon-";
/// Name of the daemon's container.
const CONTAINER: &str = "machine-config-daemon";

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// `Starting update from A to B`.
    Starting,
    /// `Completing update to target B`.
    Completing,
    /// `Disk currentConfig "A" overrides ...`.
    DiskOverrides,
}

/// The content of a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogTrace {
    /// Name of the config.
    pub name: String,
    /// The config before that; `None` if the line does not name it, or if it is not a rendered config.
    pub from: Option<String>,
    /// Time of the line; seconds since 1970 by the node's clock.
    pub at: u64,
    /// Path of the file.
    pub file: String,
    /// The form of the line.
    pub line: Line,
}

/// The last traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonLog {
    version: u32,
    /// The last config that the daemon updated to: the controller's desired config at that time.
    pub wanted: Option<LogTrace>,
    /// The last config that the daemon found in its record on disk, or completed an update with.
    pub current: Option<LogTrace>,
}

impl DaemonLog {
    /// Returns the last trace of each kind, or `None` if there are none. Traces of one file keep its order.
    ///
    /// A trace later than `now` was written with a wrong clock, and ranks below all others.
    pub fn from_traces(traces: impl IntoIterator<Item = LogTrace>, now: u64) -> Option<Self> {
        let mut log = Self {
            version: VERSION,
            wanted: None,
            current: None,
        };
        for trace in traces {
            if trace.line != Line::DiskOverrides {
                keep_later(&mut log.wanted, &trace, now);
            }
            if trace.line != Line::Starting {
                keep_later(&mut log.current, &trace, now);
            }
        }
        (log.wanted.is_some() || log.current.is_some()).then_some(log)
    }
}

fn keep_later(kept: &mut Option<LogTrace>, trace: &LogTrace, now: u64) {
    // Within a file, later lines were written later, whatever the clock said, and so were the lines of the container's next
    // start; between other files only the clock decides.
    let by_clock = |trace: &LogTrace| (trace.at <= now.saturating_add(SLACK), trace.at);
    let is_later = |kept: &LogTrace| match (parse_start(&kept.file), parse_start(&trace.file)) {
        _ if kept.file == trace.file => true,
        (Some((of, before)), Some((same, after))) if of == same && before != after => {
            before < after
        }
        _ => by_clock(kept) <= by_clock(trace),
    };
    if kept.as_ref().is_none_or(is_later) {
        *kept = Some(trace.clone());
    }
}

/// Returns the directory of a container and the number of its start: `PLACE/N.log`, rotated or not.
fn parse_start(file: &str) -> Option<(&str, u32)> {
    let (place, find_name) = file.rsplit_once('/')?;
    Some((place, find_name.split_once(".log")?.0.parse().ok()?))
}

/// Returns the known traces: those on the node and the stored ones.
pub fn read_pod_log(root: &Root) -> Result<Option<DaemonLog>, RootError> {
    let kept = read_daemon_log(root)?.into_iter();
    let kept = kept.flat_map(|log| [log.wanted, log.current]).flatten();
    Ok(DaemonLog::from_traces(
        kept.chain(read_traces(root)),
        clock::read_system_time(),
    ))
}

/// Reads the stored traces; `None` if the file is missing or damaged, which is logged.
pub fn read_daemon_log(root: &Root) -> Result<Option<DaemonLog>, RootError> {
    state_file::read_remembered(root, paths::DAEMON_LOG, VERSION, |kept: &DaemonLog| {
        kept.version
    })
}

/// Reads the traces on the node, oldest files first. Unreadable files are skipped: a log proves little anyway.
fn read_traces(root: &Root) -> Vec<LogTrace> {
    let mut unread = Vec::new();
    let mut files = of_pods(root, &mut unread);
    let previous = RootPath::fixed(paths::PREVIOUS_LOGS);
    add_files_below(root, &previous, MAX_DEPTH, &mut files, &mut unread);
    files.order_by_key(|(stat, _)| std::cmp::Reverse((stat.st_mtime, stat.st_mtime_nsec)));
    files.truncate(MAX_FILES);
    let newest_last = files.iter().rev();
    let traces = newest_last
        .flat_map(|(_, path)| traces_in(root, path, &mut unread))
        .collect();
    for why in unread {
        log::info!("the daemon's log: {why}");
    }
    traces
}

type Files = Vec<(FileStat, RootPath)>;

fn of_pods(root: &Root, unread: &mut Vec<String>) -> Files {
    let mut files = Vec::new();
    let pods = RootPath::fixed(paths::POD_LOGS);
    let of_daemon = list_names(root, &pods, unread).into_iter();
    let of_daemon = of_daemon.filter(|pod| pod.starts_with(POD));
    for pod in of_daemon.take(MAX_NAMES) {
        let container = pods.join(&pod).and_then(|pod| pod.join(CONTAINER));
        if let Ok(container) = container {
            add_files_below(root, &container, 1, &mut files, unread);
        }
    }
    files
}

/// Collects the log files in a directory and below it. Links are not followed.
fn add_files_below(
    root: &Root,
    directory: &RootPath,
    depth: usize,
    files: &mut Files,
    unread: &mut Vec<String>,
) {
    let names = list_names(root, directory, unread).into_iter();
    for name in names.take(MAX_NAMES) {
        let Ok(path) = directory.join(&name) else {
            continue;
        };
        let stat = root.stat(&path).unwrap_or_else(|error| {
            unread.push(error.to_string());
            None
        });
        let Some(stat) = stat else {
            continue;
        };
        match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFDIR if depth > 1 => add_files_below(root, &path, depth - 1, files, unread),
            // A rotated file has a timestamp after `.log`, and is compressed later.
            SFlag::S_IFREG if files.len() >= MAX_NAMES => return,
            SFlag::S_IFREG if name.contains(".log") && !name.ends_with(".gz") => {
                files.push((stat, path));
            }
            _ => {}
        }
    }
}

fn list_names(root: &Root, directory: &RootPath, unread: &mut Vec<String>) -> Vec<String> {
    root.list(directory).unwrap_or_else(|error| {
        unread.push(error.to_string());
        Vec::new()
    })
}

fn traces_in(root: &Root, path: &RootPath, unread: &mut Vec<String>) -> Vec<LogTrace> {
    let text = text_of(root, path, unread);
    let traces = text.lines().filter_map(parse_trace);
    let with_file = traces.map(|trace| LogTrace {
        file: path.to_string(),
        ..trace
    });
    with_file.collect()
}

/// Returns the end of a file; empty if it is gone by now, or cannot be read.
fn text_of(root: &Root, path: &RootPath, unread: &mut Vec<String>) -> String {
    match read_tail(root, path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                unread.push(format!("{path}: {error}"));
            }
            String::new()
        }
    }
}

fn read_tail(root: &Root, path: &RootPath) -> std::io::Result<Vec<u8>> {
    let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
    let file = root.open_file(path).map_err(std::io::Error::other)?;
    let mut file = file.ok_or_else(missing)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(missing());
    }
    file.seek(SeekFrom::Start(about.len().saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A message of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogMessage {
    /// Time of the line; seconds since 1970 by the node's clock.
    pub(super) at: u64,
    /// Text, without a quote at its beginning.
    pub(super) text: String,
    /// Path of the file.
    pub(super) file: String,
}

/// Maximum number of files that are read for messages, newest first.
const MESSAGE_FILES: usize = 3;

/// Reads the wanted messages of the daemon's own container, in the order in which they were written. Unreadable files and
/// directories are added to `unread`.
pub(super) fn read_messages(
    root: &Root,
    is_wanted: impl Fn(&str) -> bool,
    unread: &mut Vec<String>,
) -> Vec<LogMessage> {
    let mut files = of_pods(root, unread);
    files.order_by_key(|(stat, _)| std::cmp::Reverse((stat.st_mtime, stat.st_mtime_nsec)));
    files.truncate(MESSAGE_FILES);
    let mut all = Vec::new();
    for (_, path) in files.iter().rev() {
        let text = text_of(root, path, unread);
        let messages = text.lines().filter_map(parse_message);
        let wanted = messages.filter(|(_, text)| is_wanted(text));
        all.extend(wanted.map(|(at, text)| LogMessage {
            at,
            text: text.to_owned(),
            file: path.to_string(),
        }));
    }
    all
}

/// Parses a line of the runtime: `TIME STREAM TAG MESSAGE`, where the message is `LEVELMMDD ... FILE:LINE] TEXT`.
fn parse_trace(line: &str) -> Option<LogTrace> {
    let (at, text) = parse_message(line)?;
    let (line, from, rest) = parse_form(text)?;
    Some(LogTrace {
        name: find_name(rest)?,
        from,
        at,
        file: String::new(),
        line,
    })
}

/// Returns time and text of a line.
fn parse_message(line: &str) -> Option<(u64, &str)> {
    let mut parts = line.splitn(4, ' ');
    let at = parse_instant(parts.next()?)?;
    parts
        .next()
        .filter(|stream| ["stdout", "stderr"].contains(stream))?;
    parts.next().filter(|tag| ["F", "P"].contains(tag))?;
    let (head, text) = parts.next()?.split_once("] ")?;
    let is_head = head.starts_with(['I', 'W', 'E'])
        && head.bytes().skip(1).take(4).all(|b| b.is_ascii_digit());
    let text = Some(text).filter(|_| is_head)?.trim_start_matches('"');
    Some((at, text))
}

/// Returns the kind of line, the previous config, and the text from the new name on.
fn parse_form(text: &str) -> Option<(Line, Option<String>, &str)> {
    if let Some(rest) = text.strip_prefix("Starting update from ") {
        let (from, rest) = rest.split_once(" to ")?;
        return Some((Line::Starting, find_name(from), rest));
    }
    if let Some(rest) = text.strip_prefix("Completing update to target ") {
        let rest = rest.strip_prefix("MachineConfig: ").unwrap_or(rest);
        return Some((Line::Completing, find_name(rest), rest));
    }
    let rest = text.strip_prefix("Disk currentConfig ")?;
    rest.contains(" overrides ")
        .then(|| (Line::DiskOverrides, find_name(rest), rest))
}

/// Returns the rendered name at the beginning of a text, quoted or not.
pub(super) fn find_name(text: &str) -> Option<String> {
    let text = text.trim_start_matches(['"', '\\']);
    let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let end = text.find(|c| !is_of_name(c)).unwrap_or(text.len());
    let name = text.get(..end)?.trim_end_matches('.');
    (name.starts_with("rendered-") && name.len() <= 253).then(|| name.to_owned())
}

/// Parses a time such as `2026-06-11T17:26:38.595644301+02:00` into seconds since 1970.
fn parse_instant(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let has = |index: usize, wanted: &str| text.get(index..=index) == Some(wanted);
    if !(has(4, "-") && has(7, "-") && has(10, "T") && has(13, ":") && has(16, ":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let time = number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
    let zone = text
        .get(19..)?
        .trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let seconds = days_since_epoch(year, month, day) * 86_400 + time - parse_offset(zone)?;
    u64::try_from(seconds).ok()
}

/// Returns the offset in seconds east of UTC.
fn parse_offset(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let of_form = zone.len() == 6 && zone.get(3..4) == Some(":");
    let number =
        |from: usize, to: usize| zone.get(from..to).filter(|_| of_form)?.parse::<i64>().ok();
    Some(sign * (number(1, 3)? * 3600 + number(4, 6)? * 60))
}

#[cfg(test)]
mod tests {
    use crate::base::time::format_utc;
    use crate::judge::daemon::pod_log::*;

    fn line(text: &str) -> Option<(Line, String)> {
        let said = format!("2026-06-11T17:26:38.595644301+00:00 stderr F {text}");
        parse_trace(&said).map(|trace| (trace.line, trace.name))
    }

    #[test]
    fn the_daemons_own_forms_tell_a_name() {
        for (text, form, find_name) in [
            (
                "I0611 17:26:38.5 3512 update.go:1] \"Starting update from rendered-worker-a to rendered-worker-b: &{os:true}\"",
                Line::Starting,
                "rendered-worker-b",
            ),
            (
                "I0611 17:26:38.5    3512 update.go:1] Starting update from mco-empty-mc to rendered-worker-b: &{}",
                Line::Starting,
                "rendered-worker-b",
            ),
            (
                "I0611 17:26:38.6    3512 daemon.go:2340] Completing update to target MachineConfig: rendered-infra-x-1 / Image: r@sha256:0",
                Line::Completing,
                "rendered-infra-x-1",
            ),
            (
                "I0611 17:26:38.6    3512 daemon.go:2340] Completing update to target rendered-worker-b",
                Line::Completing,
                "rendered-worker-b",
            ),
            (
                "I0611 17:26:38.6 3512 u.go:1] Disk currentConfig \"rendered-worker-c\" overrides node's currentConfig annotation \"rendered-worker-a\"",
                Line::DiskOverrides,
                "rendered-worker-c",
            ),
        ] {
            assert_eq!(line(text), Some((form, find_name.to_owned())), "{text}");
        }
    }

    #[test]
    fn where_an_update_began_is_reported_if_it_was_a_rendered_config() {
        let from = |text: &str| {
            let said = format!("2026-06-11T17:26:38Z stderr F I0611 1 2 u.go:1] {text}");
            parse_trace(&said).unwrap().from
        };
        let starting = "Starting update from rendered-worker-a to rendered-worker-b: &{}";
        assert_eq!(from(starting).as_deref(), Some("rendered-worker-a"));
        assert_eq!(
            from("Starting update from mco-empty-mc to rendered-worker-b: &{}"),
            None
        );
    }

    #[test]
    fn what_a_message_only_quotes_proves_nothing() {
        for text in [
            "Starting update from rendered-worker-a to rendered-worker-b",
            "E0611 1 2 u.go:1] writing: Starting update from rendered-worker-a to rendered-worker-b",
            "I0611 1 2 u.go:1] Starting update from rendered-worker-a to ../../etc",
            "I0611 1 2 u.go:1] Completing update to target 99-worker-ssh",
            "I0611 1 2 u.go:1] Disk currentConfig rendered-worker-a",
            "xyz] Completing update to target rendered-worker-b",
            "",
        ] {
            assert_eq!(line(text), None, "{text}");
        }
        assert_eq!(
            parse_trace("I0611 1 2 u.go:1] Completing update to target rendered-worker-b"),
            None
        );
    }

    #[test]
    fn a_time_counts_with_its_zone() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-28T23:59:59Z", Some(951_782_399)),
            ("2024-02-29T12:34:56.000000001+00:00", Some(1_709_210_096)),
            ("2024-02-29T14:34:56.5+02:00", Some(1_709_210_096)),
            ("2024-02-29T07:04:56-05:30", Some(1_709_210_096)),
            ("2024-02-29 12:34:56Z", None),
            ("1969-12-31T23:59:59Z", None),
            ("2024-02-29T12:34:56", None),
            ("", None),
        ] {
            assert_eq!(parse_instant(text), seconds, "{text}");
        }
        for days in 0..40_000 {
            let second = days * 86_400 + 1;
            assert_eq!(parse_instant(&format_utc(second)), Some(second));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_line_ends_the_program(
            time in "[0-9T:.+Z-]{0,40}", offset in "[+-][0-9:]{0,20}", text in "\\PC{0,80}",
        ) {
            let _ = parse_trace(&text);
            let _ = parse_trace(&format!("{time} stderr F I0611 x] {text}"));
            let _ = parse_instant(&format!("2026-06-11T17:26:38{offset}"));
        }
    }

    #[test]
    fn the_last_of_each_kind_counts() {
        let log = DaemonLog::from_traces(
            [
                trace_in("/x", "c", 5, Line::DiskOverrides),
                trace_in("/y", "b", 3, Line::Starting),
                trace_in("/z", "a", 2, Line::Completing),
            ],
            9,
        );
        let log = log.unwrap();
        assert_eq!(log.wanted.unwrap().name, "b");
        assert_eq!(log.current.unwrap().name, "c");
        assert_eq!(DaemonLog::from_traces([], 0), None);
    }

    fn trace_in(file: &str, name: &str, at: u64, line: Line) -> LogTrace {
        LogTrace {
            name: name.into(),
            from: None,
            at,
            file: file.into(),
            line,
        }
    }

    #[test]
    fn a_clock_that_was_wrong_hides_nothing_newer() {
        const NOW: u64 = 1_800_000_000;
        let far = NOW + 86_400 * 3650;
        let wanted = |traces: &[(&str, &str, u64)], now| {
            let traces = traces.iter();
            let traces =
                traces.map(|(file, find_name, at)| trace_in(file, find_name, *at, Line::Starting));
            DaemonLog::from_traces(traces, now)
                .unwrap()
                .wanted
                .unwrap()
                .name
        };
        for (traces, newest) in [
            // Between files, a time in the future ranks below any other.
            (vec![("/a", "old", far), ("/b", "new", NOW - 9)], "new"),
            (vec![("/b", "new", NOW - 9), ("/a", "old", far)], "new"),
            // Two in the future: by the clock.
            (vec![("/a", "old", far), ("/b", "new", far + 1)], "new"),
            // Within a file the order of the lines decides, and among starts of one container their number.
            (vec![("/a", "old", NOW - 5), ("/a", "new", NOW - 9)], "new"),
            (
                vec![("/p/0.log", "old", far), ("/p/1.log", "new", 5)],
                "new",
            ),
            (
                vec![("/p/10.log", "new", 5), ("/p/9.log", "old", NOW - 5)],
                "new",
            ),
            // For different containers the number says nothing.
            (
                vec![("/p/1.log", "old", 5), ("/q/0.log", "new", NOW - 5)],
                "new",
            ),
        ] {
            assert_eq!(wanted(&traces, NOW), newest, "{traces:?}");
        }
    }
}
