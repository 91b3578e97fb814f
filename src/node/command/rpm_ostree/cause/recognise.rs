//! Finds the cause of a failure in what rpm-ostree, ostree and skopeo print.

use super::{FullDisk, RpmOstreeError};

/// Returns the cause, if a known sentence names it.
pub(super) fn recognise_cause(text: &str) -> Option<RpmOstreeError> {
    of_sentence(text)
        .or_else(|| of_image(text))
        .or_else(|| of_system(text))
}

/// Defines the phrases of each cause once: as a constant for the functions below, and in the list of all.
macro_rules! phrases {
    ($($name:ident: $($words:literal)|+;)*) => {
        $(const $name: &[&str] = &[$($words),+];)*
        /// All phrases; `...` is where a name is.
        pub const PHRASES: &[&str] = &[$($($words),+),*];
    };
}

phrases! {
    BUSY: "Transaction in progress: ";
    DRIVEN: "deployments are driven by ";
    OTHER_STAGED: "Expected staged base checksum ";
    FINALIZE_FAILED: "failed on previous boot: ";
    SAME_REFERENCE: "Old and new refs are equal: ";
    BAD_REFERENCE: "invalid reference format" | "Invalid transport: ";
    INVALID_REFSPEC: "Invalid refspec ";
    NOT_UNIQUE: "Refspec ... not unique";
    NO_ARGUMENT: "No key '" | "No karg '" | "Multiple values for key";
    USAGE: "Unknown option " | "Unknown command " | "usage error: ";
    PACKAGES: "Packages not found" | "Could not depsolve" | "No packages in transaction";
    BUS: "Loading sysroot: exit status" | "Unit dbus" | "Failed to connect to bus" | "Unit rpm-ostreed.service is masked" | "Could not connect: " | "org.freedesktop.DBus.Error";
    NOT_OSTREE: "not booted via libostree";
    DAEMON_DIED: "Bus owner changed";
    CANCELLED: "Operation was cancelled";
    NO_ROLLBACK: "No rollback deployment found";
    STAGED: "Staged deployment (remove with";
    FINALIZATION: "finalization is locked" | "deployment is locked" | "not locked";
    NOT_ROOT: "not allowed for user" | "must be root" | "needs root" | "requires full root privileges" | "must be executed as the root user";
    LOCK: "Waiting for sysroot lock";
    NOT_BOOTABLE: "ostree.bootable label";
    WEAK_POLICY: "default of `insecureAcceptAnything`";
    REJECTED: "rejected by policy" | "signature was required" | "source image rejected";
    NO_IMAGE_ID: "does not resolve to an image ID";
    NO_ARCHIVE: "archive file not found: ";
    UNKNOWN_IMAGE: "manifest unknown" | "name unknown" | "repository not found";
    TRUNCATED: "unexpected EOF";
    DAMAGED: "corrupted " | "digest did not match" | "does not match expected sha256:" | "checksum expected=";
    NO_SPACE: "no space left on device" | "min-free-space";
    NO_FILE: "no such file or directory";
    DENIED: "permission denied";
    IMMUTABLE: "Operation not permitted";
    UNAUTHORIZED: "unauthorized" | "authentication required" | "access to the resource is denied";
    CERTIFICATE: "x509: " | "certificate signed by";
    STATUS: "unexpected http status" | "unexpected status code";
    REFUSED: "connection refused";
    UNREACHABLE: "no such host" | "i/o timeout" | "network is unreachable" | "no route to host" | "handshake timeout" | "deadline exceeded" | "server misbehaving";
}

/// Returns true if a text has one of these phrases.
fn has_any(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|words| text.contains(words))
}

/// Returns true if the plain `ostree` waits for the lock.
pub(super) fn waits_for_lock(text: &str) -> bool {
    has_any(text, LOCK)
}

/// Returns the rest of the text after the note about a shutdown that failed.
pub(super) fn of_finalization(text: &str) -> Option<&str> {
    FINALIZE_FAILED
        .iter()
        .find_map(|words| Some(text.split_once(words)?.1))
}

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

/// Returns the rest of the line after one of these phrases.
fn rest_after<'t>(text: &'t str, phrases: &[&str]) -> Option<&'t str> {
    let (_, rest) = phrases.iter().find_map(|words| text.split_once(words))?;
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
    if let Some(title) = rest_after(text, BUSY) {
        return Some(RpmOstreeError::Busy(title.to_owned()));
    }
    if let Some(rest) = rest_after(text, DRIVEN) {
        let (name, unit) = rest.split_once(" (").unwrap_or((rest, ""));
        let unit = unit.trim_end_matches(')');
        return Some(RpmOstreeError::Driver(name.to_owned(), unit.to_owned()));
    }
    let rest = rest_after(text, OTHER_STAGED)?;
    let (wanted, found) = rest.split_once(", but found ").unwrap_or((rest, ""));
    Some(RpmOstreeError::OtherStaged(
        wanted.to_owned(),
        found.to_owned(),
    ))
}

/// Recognises sentences about the reference in the command.
fn of_reference(text: &str) -> Option<RpmOstreeError> {
    if let Some(reference) = rest_after(text, SAME_REFERENCE) {
        return Some(RpmOstreeError::SameReference(reference.to_owned()));
    }
    // bootc does not quote the reference it was given.
    if has_any(text, BAD_REFERENCE) {
        return Some(RpmOstreeError::BadReference(error_line(text).to_owned()));
    }
    if let Some(reference) = rest_after(text, INVALID_REFSPEC) {
        let has_scheme = reference.starts_with("ostree-");
        let reference = reference.to_owned();
        return Some(if has_scheme {
            RpmOstreeError::BadReference(reference)
        } else {
            RpmOstreeError::UnknownScheme(reference)
        });
    }
    let parts = NOT_UNIQUE
        .iter()
        .filter_map(|words| words.split_once("..."));
    let name = parts.into_iter().find_map(|(before, after)| {
        let rest = rest_after(text, &[before])?;
        rest.contains(after).then(|| rest.split(' ').next())?
    })?;
    Some(RpmOstreeError::AmbiguousRef(name.to_owned()))
}

/// Recognises sentences about other arguments.
fn of_request(text: &str) -> Option<RpmOstreeError> {
    let line = || error_line(text).to_owned();
    if has_any(text, NO_ARGUMENT) {
        Some(RpmOstreeError::NoArgument(line()))
    } else if has_any(text, USAGE) {
        Some(RpmOstreeError::Usage(line()))
    } else if has_any(text, PACKAGES) {
        Some(RpmOstreeError::Packages(line()))
    } else {
        None
    }
}

/// Recognises sentences about the daemon and its deployments. They have no parameters.
fn of_state(text: &str) -> Option<RpmOstreeError> {
    let has = |phrases: &[&str]| has_any(text, phrases);
    if has(NOT_OSTREE) {
        Some(RpmOstreeError::NotOstree)
    } else if has(DAEMON_DIED) {
        Some(RpmOstreeError::DaemonDied)
    } else if has(CANCELLED) {
        Some(RpmOstreeError::Cancelled)
    } else if has(BUS) {
        let first = text.lines().next().unwrap_or_default();
        Some(RpmOstreeError::DaemonDown(
            first.trim_start_matches("error: ").to_owned(),
        ))
    } else if has(NO_ROLLBACK) {
        Some(RpmOstreeError::NoRollback)
    } else if has(STAGED) {
        Some(RpmOstreeError::StagedInTheWay)
    } else if has(FINALIZATION) {
        Some(RpmOstreeError::FinalizationLocked)
    } else if has(NOT_ROOT) {
        Some(RpmOstreeError::NotRoot)
    } else if has(LOCK) {
        Some(RpmOstreeError::LockHeld)
    } else {
        None
    }
}

/// Recognises errors of an image import.
fn of_image(text: &str) -> Option<RpmOstreeError> {
    let lower = text.to_lowercase();
    let has = |phrases: &[&str]| has_any(text, phrases);
    let line = || innermost_part(error_line(text)).to_owned();
    if has(NOT_BOOTABLE) {
        Some(RpmOstreeError::NotBootable)
    } else if has(WEAK_POLICY) {
        Some(RpmOstreeError::PolicyTooWeak)
    } else if has_any(&lower, REJECTED) {
        Some(RpmOstreeError::PolicyRejects(line()))
    } else if has(NO_IMAGE_ID) {
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
    } else if let Some(rest) = rest_after(text, NO_ARCHIVE) {
        Some(RpmOstreeError::NotFound(strip_quotes(rest)))
    } else if has(UNKNOWN_IMAGE) {
        Some(RpmOstreeError::NotFound(line()))
    } else if has(TRUNCATED) {
        Some(RpmOstreeError::Truncated(line()))
    } else if has_any(&lower, DAMAGED) {
        Some(RpmOstreeError::Corrupt(line()))
    } else {
        None
    }
}

/// Recognises system errors at the end of the line.
fn of_system(text: &str) -> Option<RpmOstreeError> {
    let lower = text.to_lowercase();
    let has = |phrases: &[&str]| has_any(&lower, phrases);
    let line = error_line(text);
    let end = || innermost_part(line).to_owned();
    if has(NO_SPACE) {
        Some(no_space(text, line))
    } else if has(NO_FILE) {
        let path = path_in(line).unwrap_or(line).to_owned();
        Some(if text.contains("GetBlob") {
            RpmOstreeError::MissingBlob(path)
        } else {
            RpmOstreeError::NotFound(path)
        })
    // skopeo's form; the C library, and therefore ostree, starts with a capital letter.
    } else if has_any(text, DENIED) {
        let mut words = line
            .split([' ', '"', '\''])
            .map(|word| word.trim_end_matches([':', ',']));
        Some(match words.find(|word| word.ends_with("/auth.json")) {
            Some(path) => RpmOstreeError::NoCredentials(path.to_owned()),
            None => RpmOstreeError::FetcherDenied(path_in(line).unwrap_or(line).to_owned()),
        })
    // In contrast, only ostree encounters the flags of deployments.
    } else if has_any(text, IMMUTABLE) {
        let inside = rest_after(line, &["unlinkat("]).and_then(|rest| rest.split(')').next());
        let path = path_in(line).or(inside).unwrap_or("a file of a deployment");
        Some(RpmOstreeError::Immutable(path.to_owned()))
    } else if has(UNAUTHORIZED) {
        Some(RpmOstreeError::Unauthorized(end()))
    } else if has(CERTIFICATE) {
        Some(RpmOstreeError::Certificate(end()))
    // Checked before the others: the status may come from a mirror while the registry itself is unreachable.
    } else if has(STATUS) {
        Some(RpmOstreeError::RegistryFault(end()))
    } else if has(REFUSED) {
        Some(RpmOstreeError::Refused(end()))
    } else if has(UNREACHABLE) {
        Some(RpmOstreeError::Unreachable(end()))
    } else {
        None
    }
}

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
