//! What is read from rpm-ostree, on answers of the real one where they are beside the checkout.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use mco_rescue::command::CommandOutput;
use mco_rescue::command::rpm_ostree::arguments::Version;
use mco_rescue::command::rpm_ostree::cause::{Cause, Place};
use mco_rescue::kargs::Kargs;
use mco_rescue::node::deployments::{Deployments, Standing, StatusText, finalize_failure};
use support::{say, shared_data};

fn captured() -> Option<PathBuf> {
    shared_data("rpm-ostree")
}

fn text(name: &str) -> Option<String> {
    Some(fs::read_to_string(captured()?.join(name)).unwrap())
}

fn status(name: &str) -> Option<Deployments> {
    let text = text(name)?;
    Some(Deployments::read(&text).unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// Every line that begins with `error:`, with what is said before and after it as far as it belongs to it.
fn errors(transcript: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut before = "";
    let mut open = false;
    for line in transcript.lines() {
        let line = line.strip_prefix("[stderr] ").unwrap_or(line);
        if line.trim_start().starts_with("error:") {
            let masked = before.contains("is masked");
            found.push(format!(
                "{}{line}\n",
                if masked {
                    format!("{before}\n")
                } else {
                    String::new()
                }
            ));
            open = true;
        } else if open
            && (line.starts_with(' ')
                || line.starts_with("See ")
                || line.starts_with("Use ")
                || line.starts_with("Currently"))
        {
            found.last_mut().unwrap().push_str(line);
        } else {
            open = false;
        }
        before = line;
    }
    found
}

/// Transcripts in which nothing fails, and in which a failure is told by something else than an error line.
const WITHOUT_ERROR: [&str; 31] = [
    "cleanup-pending-again-noop",
    "cleanup-pending",
    "fail-lock-held-ostree",
    "help-all-commands",
    "kargs-append-again-on-top",
    "kargs-append-if-missing-present",
    "kargs-append",
    "kargs-delete-if-present-unknown",
    "kargs-on-top-of-staged-rebase",
    "kargs-show-pending",
    "kargs-show",
    "kargs-unchanged-exit-77",
    "lock-finalization",
    "lowspace-kargs-succeeds-root-reserve",
    "lowspace-succeeds-dedup-4MB-root-reserve",
    "lowspace-succeeds-dedup-60MB",
    "nospace-boot-stage",
    "power-cut-while-staged",
    "rebase-c-layers-cached",
    "rebase-derived-image",
    "rebase-oci-archive-ok",
    "rebase-same-digest-other-transport",
    "rollback-ok",
    "run-ostree-while-staged",
    "staged-file-and-origin",
    "status-pending-exit-77",
    "status-text-after-rollback-booted",
    "status-text-booted-container-with-rollback",
    "status-text-staged-container-rebase",
    "status-text-staged-pending-kargs",
    "status-text-transaction-in-progress",
];
const MORE_WITHOUT_ERROR: [&str; 5] = [
    "upgrade-same-image",
    "usroverlay-and-pin",
    "v2025.6-version",
    "version",
    // The client was killed: what it wrote ends in the middle, and the daemon goes on.
    "client-killed-mid-transaction-",
];

/// The causes that the transcripts of failures have, in their order.
const CAUSES: &[(&str, &[&str])] = &[
    ("after-failed-finalize-second-attempt", &["no-space"]),
    ("cancel-transaction", &["cancelled"]),
    ("cancel-transaction-later", &["cancelled", "no-space"]),
    ("client-killed-mid-transaction", &["no-space", "no-space"]),
    ("client-sigterm-or-ctrl-c", &["no-space", "busy"]),
    (
        "daemon-killed-mid-transaction",
        &["daemon-died", "no-space"],
    ),
    ("dbus-down", &["daemon-down", "daemon-down"]),
    ("driver-registered", &["driver"]),
    ("fail-bad-refspec", &["bad-reference"]),
    ("fail-home-dir", &["not-bootable"]),
    ("fail-image-not-found-oci-archive", &["not-found"]),
    ("fail-image-not-found-oci-dir", &["not-found"]),
    ("fail-image-not-ostree", &["not-bootable"]),
    ("fail-image-registry-refused", &["refused"]),
    ("fail-image-registry-unreachable", &["unreachable"]),
    ("fail-oci-archive-truncated", &["truncated"]),
    ("fail-oci-corrupt-blob", &["corrupt"]),
    ("fail-oci-missing-blob", &["missing-blob"]),
    ("fail-private-dir-0700", &["fetcher-denied"]),
    ("fail-signed-insecure-policy", &["policy-too-weak"]),
    ("fail-tmp-dir", &["not-bootable"]),
    ("fail-transaction-in-progress-kargs", &["busy"]),
    ("fail-transaction-in-progress-rebase", &["busy"]),
    ("fail-transaction-lock-on-finalize", &["busy"]),
    ("fail-unknown-prefix", &["unknown-scheme"]),
    ("finalize-deployment", &["other-staged", "usage"]),
    ("kargs-delete-unknown", &["no-argument"]),
    ("kargs-replace-unknown", &["no-argument"]),
    ("nospace-boot-after-reboot", &["no-space", "no-space"]),
    (
        "nospace-root-full-status-and-kargs",
        &["no-space", "no-space"],
    ),
    ("nospace-root-really-full", &["no-space"]),
    ("nospace-var-tmp-oci-archive", &["no-space"]),
    ("rebase-same-image-already-booted", &["same-reference"]),
    ("rebase-same-image-already-staged", &["same-reference"]),
    ("rollback-with-single-deployment", &["no-rollback"]),
    ("rollback-with-staged", &["staged-in-the-way"]),
    ("rollback-with-staged-again", &["staged-in-the-way"]),
    ("unprivileged-user", &["not-root", "not-root"]),
    ("update-driver-foreign", &["driver", "staged-in-the-way"]),
    (
        "v2025.6-failures",
        &[
            "not-found",
            "truncated",
            "not-bootable",
            "same-reference",
            "policy-too-weak",
            "no-argument",
            "staged-in-the-way",
        ],
    ),
];

#[test]
fn every_captured_failure_has_a_cause_and_a_next_step() {
    let Some(folder) = captured() else { return };
    let expected: BTreeMap<_, _> = CAUSES.iter().copied().collect();
    let mut rows = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let transcript = fs::read_to_string(&path).unwrap();
        let causes: Vec<Cause> = errors(&transcript)
            .iter()
            .map(|words| Cause::of_words(words))
            .collect();
        let kinds: Vec<&str> = causes.iter().map(Cause::kind).collect();
        assert!(!kinds.contains(&"unknown"), "{name}: {causes:?}");
        if name == "fail-not-an-ostree-system" {
            assert_eq!(
                kinds.iter().filter(|kind| **kind == "not-ostree").count(),
                10,
                "{kinds:?}"
            );
            assert!(
                kinds
                    .iter()
                    .all(|kind| matches!(*kind, "not-ostree" | "usage"))
            );
        } else if kinds.is_empty() {
            let known = WITHOUT_ERROR.contains(&name.as_str())
                || MORE_WITHOUT_ERROR.contains(&name.as_str());
            assert!(known, "{name} has no error, and is not known to have none");
        } else {
            assert_eq!(
                Some(&kinds.as_slice()),
                expected.get(name.as_str()),
                "{name}: {causes:?}"
            );
        }
        for cause in causes {
            rows.entry(cause.kind())
                .or_insert_with(|| (cause.to_string(), cause.next(), name.clone()));
        }
    }
    for (kind, (words, next, name)) in &rows {
        say(&format!("{kind}: {words}\n    next: {next}\n    ({name})"));
    }
    assert!(rows.len() >= 25, "{}", rows.len());
}

#[test]
fn every_captured_status_is_read_and_says_what_its_state_is() {
    let Some(folder) = captured() else { return };
    let mut read = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let here = status(&name).unwrap();
            let booted = here.running().unwrap();
            assert_eq!(booted.osname, "rhcos", "{name}");
            assert_eq!(booted.checksum.len(), 64);
            assert!(booted.is_readable_to_the_daemon());
            // Fact 4: an image has no refspec, and a refspec no image.
            assert_eq!(
                booted.reference.is_some(),
                booted.refspec.is_none(),
                "{name}"
            );
            assert_eq!(
                booted.reference.is_some(),
                booted.digest.is_some(),
                "{name}"
            );
            read += 1;
        }
    }
    assert_eq!(read, 25);
}
