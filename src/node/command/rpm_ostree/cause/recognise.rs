//! Finds the cause of a failure in what rpm-ostree, ostree and skopeo print.

use super::{FullDisk, RpmOstreeError};

/// Returns the cause, if a known sentence names it.
pub(super) fn recognise_cause(text: &str) -> Option<RpmOstreeError> {
    of_sentence(text)
        .or_else(|| of_image(text))
        .or_else(|| of_system(text))
}

/// The line that the plain `ostree` prints while it waits.
pub(super) const LOCK: &str = "Waiting for sysroot lock";

/// Returns the last `error:` line without its prefix, or else the last line.
pub(super) fn error_line(text: &str) -> &str {
    let strip = |line: &str| line.find("error: ").map(|at| at + "error: ".len());
    let errors = text.lines().rev();
    errors
        .filter_map(|line| line.get(strip(line)?..))
        .map(str::trim)
        .next()
        .or_else(|| text.lines().last().map(str::trim))
        .unwrap_or_default()
}

/// Returns the rest of the line after these words.
fn rest_after<'t>(text: &'t str, words: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(words)?;
    Some(rest.lines().next().unwrap_or_default().trim())
}

fn strip_quotes(rest: &str) -> String {
    let rest = rest.trim_start_matches(['\'', '"', '`']);
    let end = rest.find(['\'', '"', '`']).unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default().to_owned()
}

/// Recognises rpm-ostree's own sentences.
fn of_sentence(text: &str) -> Option<RpmOstreeError> {
    of_others(text)
        .or_else(|| of_reference(text))
        .or_else(|| of_request(text))
        .or_else(|| of_state(text))
}

/// Recognises sentences about other programs.
fn of_others(text: &str) -> Option<RpmOstreeError> {
    if let Some(title) = rest_after(text, "Transaction in progress: ") {
        return Some(RpmOstreeError::Busy {
            title: title.to_owned(),
            initiator: None,
            since: None,
        });
    }
    if let Some(rest) = rest_after(text, "deployments are driven by ") {
        let (name, unit) = rest.split_once(" (").unwrap_or((rest, ""));
        let unit = unit.trim_end_matches(')');
        return Some(RpmOstreeError::Driver(name.to_owned(), unit.to_owned()));
    }
    let rest = rest_after(text, "Expected staged base checksum ")?;
    let (wanted, found) = rest.split_once(", but found ").unwrap_or((rest, ""));
    Some(RpmOstreeError::OtherStaged(
        wanted.to_owned(),
        found.to_owned(),
    ))
}

/// Recognises sentences about the reference in the command.
fn of_reference(text: &str) -> Option<RpmOstreeError> {
    if let Some(reference) = rest_after(text, "Old and new refs are equal: ") {
        return Some(RpmOstreeError::SameReference(reference.to_owned()));
    }
    // bootc does not quote the reference it was given.
    for words in ["invalid reference format", "Invalid transport: "] {
        if text.contains(words) {
            return Some(RpmOstreeError::BadReference(error_line(text).to_owned()));
        }
    }
    if let Some(reference) = rest_after(text, "Invalid refspec ") {
        let has_scheme = reference.starts_with("ostree-");
        let reference = reference.to_owned();
        return Some(match has_scheme {
            true => RpmOstreeError::BadReference(reference),
            false => RpmOstreeError::UnknownScheme(reference),
        });
    }
    let rest = rest_after(text, "Refspec ").filter(|rest| rest.contains(" not unique"))?;
    let name = rest.split(' ').next()?;
    Some(RpmOstreeError::AmbiguousRef(name.to_owned()))
}

/// Recognises sentences about other arguments.
fn of_request(text: &str) -> Option<RpmOstreeError> {
    let has = |all: &[&str]| all.iter().any(|words| text.contains(words));
    let line = || error_line(text).to_owned();
    if has(&["No key '", "No karg '", "Multiple values for key"]) {
        Some(RpmOstreeError::NoArgument(line()))
    } else if has(&["Unknown option ", "Unknown command ", "usage error: "]) {
        Some(RpmOstreeError::Usage(line()))
    } else if has(&[
        "Packages not found",
        "Could not depsolve",
        "No packages in transaction",
    ]) {
        Some(RpmOstreeError::Packages(line()))
    } else {
        None
    }
}

/// Recognises sentences about the daemon and its deployments. They have no parameters.
fn of_state(text: &str) -> Option<RpmOstreeError> {
    let has = |words: &str| text.contains(words);
    let bus = [
        "Loading sysroot: exit status",
        "Unit dbus",
        "Failed to connect to bus",
        "Unit rpm-ostreed.service is masked",
        "Could not connect: ",
        "org.freedesktop.DBus.Error",
    ];
    if has("not booted via libostree") {
        Some(RpmOstreeError::NotOstree)
    } else if has("Bus owner changed") {
        Some(RpmOstreeError::DaemonDied)
    } else if has("Operation was cancelled") {
        Some(RpmOstreeError::Cancelled)
    } else if bus.iter().any(|words| has(words)) {
        let first = text.lines().next().unwrap_or_default();
        Some(RpmOstreeError::DaemonDown(
            first.trim_start_matches("error: ").to_owned(),
        ))
    } else if has("No rollback deployment found") {
        Some(RpmOstreeError::NoRollback)
    } else if has("Staged deployment (remove with") {
        Some(RpmOstreeError::StagedInTheWay)
    } else if has("finalization is locked") || has("deployment is locked") || has("not locked") {
        Some(RpmOstreeError::FinalizationLocked)
    } else if [
        "not allowed for user",
        "must be root",
        "needs root",
        "requires full root privileges",
        "must be executed as the root user",
    ]
    .iter()
    .any(|words| has(words))
    {
        Some(RpmOstreeError::NotRoot)
    } else if has(LOCK) {
        Some(RpmOstreeError::LockHeld)
    } else {
        None
    }
}

/// Recognises errors of an image import.
fn of_image(text: &str) -> Option<RpmOstreeError> {
    let has = |words: &str| text.contains(words);
    let line = || innermost_part(error_line(text)).to_owned();
    if has("ostree.bootable label") {
        Some(RpmOstreeError::NotBootable)
    } else if has("default of `insecureAcceptAnything`") {
        Some(RpmOstreeError::PolicyTooWeak)
    } else if has("rejected by policy")
        || has("ignature was required")
        || has("Source image rejected")
    {
        Some(RpmOstreeError::PolicyRejects(line()))
    } else if has("does not resolve to an image ID") {
        // The form of containers-storage, which follows the location of the storage.
        let reference = line();
        let name = reference
            .split(']')
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let name = name.unwrap_or(&reference);
        Some(RpmOstreeError::NotFound(format!(
            "{name} in containers-storage"
        )))
    } else if let Some(rest) = rest_after(text, "archive file not found: ") {
        Some(RpmOstreeError::NotFound(strip_quotes(rest)))
    } else if has("manifest unknown") || has("name unknown") || has("repository not found") {
        Some(RpmOstreeError::NotFound(line()))
    } else if has("unexpected EOF") {
        Some(RpmOstreeError::Truncated(line()))
    } else if DAMAGED.iter().any(|words| has(words)) {
        Some(RpmOstreeError::Corrupt(line()))
    } else {
        None
    }
}

/// Messages of ostree, skopeo and podman about bytes with the wrong digest.
const DAMAGED: [&str; 4] = [
    "orrupted ",
    "igest did not match",
    "does not match expected sha256:",
    "checksum expected=",
];

/// Recognises system errors at the end of the line.
fn of_system(text: &str) -> Option<RpmOstreeError> {
    let lower = text.to_lowercase();
    let has = |words: &str| lower.contains(words);
    let line = error_line(text);
    let end = || innermost_part(line).to_owned();
    if has("no space left on device") || has("min-free-space") {
        Some(no_space(text, line))
    } else if has("no such file or directory") {
        let path = path_in(line).unwrap_or(line).to_owned();
        Some(match text.contains("GetBlob") {
            true => RpmOstreeError::MissingBlob(path),
            false => RpmOstreeError::NotFound(path),
        })
    // skopeo's form; the C library, and therefore ostree, starts with a capital letter.
    } else if text.contains("permission denied") {
        let mut words = line
            .split([' ', '"', '\''])
            .map(|word| word.trim_end_matches([':', ',']));
        Some(match words.find(|word| word.ends_with("/auth.json")) {
            Some(path) => RpmOstreeError::NoCredentials(path.to_owned()),
            None => RpmOstreeError::FetcherDenied(path_in(line).unwrap_or(line).to_owned()),
        })
    // In contrast, only ostree encounters the flags of deployments.
    } else if text.contains("Operation not permitted") {
        let inside = rest_after(line, "unlinkat(").and_then(|rest| rest.split(')').next());
        let path = path_in(line).or(inside).unwrap_or("a file of a deployment");
        Some(RpmOstreeError::Immutable(path.to_owned()))
    } else if has("unauthorized")
        || has("authentication required")
        || has("access to the resource is denied")
    {
        Some(RpmOstreeError::Unauthorized(end()))
    } else if has("x509: ") || has("certificate signed by") {
        Some(RpmOstreeError::Certificate(end()))
    // Checked before the others: the status may come from a mirror while the registry itself is unreachable.
    } else if has("unexpected http status") || has("unexpected status code") {
        Some(RpmOstreeError::RegistryFault(end()))
    } else if has("connection refused") {
        Some(RpmOstreeError::Refused(end()))
    } else if UNREACHABLE.iter().any(|words| has(words)) {
        Some(RpmOstreeError::Unreachable(end()))
    } else {
        None
    }
}

const UNREACHABLE: [&str; 7] = [
    "no such host",
    "i/o timeout",
    "network is unreachable",
    "no route to host",
    "handshake timeout",
    "deadline exceeded",
    "server misbehaving",
];

fn no_space(text: &str, line: &str) -> RpmOstreeError {
    let has = |words: &str| text.contains(words);
    let place = if has("/var/tmp/") {
        FullDisk::VarTmp
    } else if has("Installing kernel") || has("bootfs") || has("/boot/") {
        FullDisk::Boot
    } else {
        FullDisk::Sysroot
    };
    let detail = match line.find("min-free-space") {
        Some(at) => line.get(at..).unwrap_or_default(),
        None => "",
    };
    RpmOstreeError::NoSpace {
        place,
        detail: detail.to_owned(),
    }
}

/// Returns the innermost part of nested messages, which names the host, file or digest. Parts are joined by `: `.
fn innermost_part(line: &str) -> &str {
    let layers = [
        "remote error: ",
        "OpenImage: ",
        "GetBlob: ",
        "Importing regfile: ",
    ];
    let starts = layers
        .iter()
        .filter_map(|words| Some(line.rfind(words)? + words.len()));
    line.get(starts.max().unwrap_or_default()..).unwrap_or(line)
}

/// Returns the first absolute path in the innermost part.
fn path_in(line: &str) -> Option<&str> {
    let rest = innermost_part(line);
    let words = rest.split([' ', '"', '\'']);
    let path = words.map(|word| word.trim_end_matches([':', ',']));
    path.filter(|word| word.len() > 1)
        .find(|word| word.starts_with('/'))
}
