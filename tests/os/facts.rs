//! What is read from rpm-ostree, on answers of the real one where they are beside the checkout.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::fuzz_targets::apply_changes;
use crate::support::sysroot::Sysroot;
use crate::support::{Lacks, TestRoot, say, shared_data, skip};
use mco_rescue::base::kargs::{Kargs, KargsChange};
use mco_rescue::host::root::{Root, RootPath};
use mco_rescue::node::bootloader::{self, BootEntry, in_order};
use mco_rescue::node::command::CommandOutput;
use mco_rescue::node::command::rpm_ostree::arguments::{self, RebaseTarget, RpmOstreeVersion};
use mco_rescue::node::command::rpm_ostree::cause::{FullDisk, RpmOstreeError};
use mco_rescue::node::command::rpm_ostree::status::{
    Deployments, Standing, finalize_failure, read_finalize_error,
};
use mco_rescue::node::deploy_directories;
use mco_rescue::node::os_release::{Class, OsRelease};
use mco_rescue::node::space::{Fit, KernelRoom, MIN_FREE_PERCENT, Space, kernel_room};

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

/// Every line that begins with `error:`, with the lines that belong to it: what systemd said before, hints after.
fn errors(transcript: &str) -> Vec<String> {
    let (mut found, mut before, mut open): (Vec<String>, _, _) = (Vec::new(), "", false);
    for line in transcript.lines() {
        let line = line.strip_prefix("[stderr] ").unwrap_or(line);
        let goes_on = [" ", "See ", "Use ", "Currently"]
            .iter()
            .any(|begin| line.starts_with(begin));
        if line.trim_start().starts_with("error:") {
            let said = if before.contains("is masked") {
                before
            } else {
                ""
            };
            found.push(format!("{said}\n{line}\n"));
            open = true;
        } else if open && goes_on {
            found.last_mut().unwrap().push_str(line);
        } else {
            open = false;
        }
        before = line;
    }
    found
}

/// Transcripts in which nothing fails, and in which a failure is told by something else than an error line.
const WITHOUT_ERROR: &[&str] = &[
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
    "upgrade-same-image",
    "usroverlay-and-pin",
    "v2025.6-version",
    "version",
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
        let causes: Vec<RpmOstreeError> = errors(&transcript)
            .iter()
            .map(|words| RpmOstreeError::of_words(words))
            .collect();
        let kinds: Vec<&str> = causes.iter().map(RpmOstreeError::kind).collect();
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
            let known = WITHOUT_ERROR.contains(&name.as_str());
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
                .or_insert_with(|| (cause.to_string(), cause.next_step(), name.clone()));
        }
    }
    for (kind, (words, next, name)) in &rows {
        say(&format!("{kind}: {words}\n    next: {next}\n    ({name})"));
    }
    assert_eq!(rows.len(), 25, "kinds of causes in the captures");
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
            let booted = here.require_booted().unwrap();
            assert_eq!(booted.osname, "rhcos", "{name}");
            assert_eq!(booted.checksum.len(), 64);
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

/// The text between the two marks of a transcript.
fn stdout(name: &str) -> Option<String> {
    let text = text(name)?;
    let (_, rest) = text.split_once("--- stdout ---\n").unwrap();
    Some(rest.split_once("--- stderr ---").unwrap().0.to_owned())
}

fn stderr(name: &str) -> Option<String> {
    let text = text(name)?;
    let (_, rest) = text.split_once("--- stderr ---\n").unwrap();
    Some(rest.split_once("--- end ---").unwrap().0.to_owned())
}

fn answer(status: i32, name: &str) -> Option<CommandOutput> {
    Some(CommandOutput {
        status: Some(status),
        stdout: stdout(name)?,
        stderr: stderr(name)?,
    })
}

// The numbers are those of the facts in the README of the captures.

#[test]
fn fact_1_seventy_seven_is_not_a_failure_and_one_tells_nothing() {
    let Some(unchanged) = answer(77, "kargs-unchanged-exit-77.txt") else {
        return;
    };
    assert_eq!(RpmOstreeError::of_command(&unchanged), None);
    let failed = answer(1, "fail-bad-refspec.txt").unwrap();
    assert_eq!(
        RpmOstreeError::of_command(&failed).unwrap().kind(),
        "bad-reference"
    );
}

#[test]
fn fact_2_the_same_reference_is_judged_by_status_and_digest() {
    let Some(refused) = answer(1, "rebase-same-image-already-booted.txt") else {
        return;
    };
    let Some(RpmOstreeError::SameReference(reference)) = RpmOstreeError::of_command(&refused)
    else {
        panic!("{refused:?}");
    };
    let here = status("status-09-booted-container-with-rollback.json").unwrap();
    let booted = here.booted().unwrap();
    assert_eq!(booted.reference.as_deref(), Some(reference.as_str()));
    // The reference is a path: what lies there now may be another image.
    assert_eq!(
        here.find_image(&booted.image(), booted.digest.as_deref()),
        Standing::Booted
    );
    assert_eq!(
        here.find_image(&booted.image(), Some("sha256:0")),
        Standing::Absent
    );
}

#[test]
fn fact_3_the_digest_is_the_identity_and_not_the_commit() {
    let Some(here) = status("status-10-same-digest-other-transport.json") else {
        return;
    };
    let (staged, booted) = (here.staged().unwrap(), here.booted().unwrap());
    assert_eq!(staged.digest, booted.digest);
    assert_ne!(staged.checksum, booted.checksum);
    let digest = booted.digest.clone().unwrap();
    let wanted = format!("quay.example/os@{digest}");
    // The bits are there, under names that the daemon does not accept.
    assert!(matches!(
        here.find_image(&wanted, None),
        Standing::OtherName(0, _)
    ));
}

#[test]
fn fact_4_an_origin_is_an_image_or_a_refspec() {
    let Some(here) = status("status-09-booted-container-with-rollback.json") else {
        return;
    };
    let (booted, rollback) = (here.booted().unwrap(), here.rollback().unwrap());
    assert_eq!(
        (booted.refspec.as_deref(), rollback.refspec.as_deref()),
        (None, Some("lab/a"))
    );
    assert_eq!(
        (rollback.reference.as_deref(), rollback.image().as_str()),
        (None, "")
    );
}

#[test]
fn fact_5_pending_arguments_show_as_another_serial_only() {
    for (name, serial) in [
        ("status-04-staged-pending-kargs.json", 1),
        ("status-05-staged-two-kargs.json", 2),
    ] {
        let Some(here) = status(name) else { return };
        assert!(here.only_arguments_staged(), "{name}");
        assert_eq!(here.staged().unwrap().serial, serial);
    }
    let shown = stdout("kargs-show-pending.txt").unwrap();
    let mut lines = shown.lines().map(Kargs::parse);
    let (pending, booted) = (lines.next().unwrap(), lines.next().unwrap());
    assert_eq!(pending.missing_from(&booted), ["foo=bar"]);
    let own = |kargs: &Kargs| kargs.without(&["ostree"]);
    assert_eq!(
        own(&booted).changes_to(&own(&pending)),
        [KargsChange::Append("foo=bar".into())]
    );
}

#[test]
fn fact_6_what_is_there_is_neither_appended_nor_deleted_again() {
    let Some(shown) = stdout("kargs-show-pending.txt") else {
        return;
    };
    let pending = Kargs::parse(shown.lines().next().unwrap());
    let wanted = pending.after_change(&Kargs::parse("foo=bar"), &Kargs::parse("foo=bar"));
    assert_eq!(pending.changes_to(&wanted), []);
    let gone = pending.after_change(&Kargs::parse("doesnotexist=1"), &Kargs::default());
    assert_eq!(pending.changes_to(&gone), []);
    // A rebase that is staged keeps its image when arguments are staged on top.
    let here = status("status-08-staged-container-rebase-plus-kargs.json").unwrap();
    let staged = here.staged().unwrap();
    assert_eq!(
        (staged.serial, staged.image().as_str()),
        (1, "/var/lab/b.ociarchive")
    );
    assert!(!here.only_arguments_staged());
}

#[test]
fn fact_7_a_power_cut_loses_what_is_staged() {
    let Some(before) = status("status-19-staged-by-orphaned-transaction.json") else {
        return;
    };
    let survivor = before.after_power_cut().unwrap();
    let after = status("status-20-after-power-cut-staged-lost.json").unwrap();
    assert_eq!(after.next_boot().unwrap().name(), survivor.name());
    assert_eq!(
        after.find_image(&before.staged().unwrap().image(), None),
        Standing::Absent
    );
}

#[test]
fn fact_8_a_failed_finalization_is_in_the_text_and_the_journal_only() {
    let Some(here) = status("status-18-after-failed-finalize.json") else {
        return;
    };
    assert!(
        here.staged().is_none() && here.booted().unwrap().index == 0,
        "it looks healthy"
    );
    let text = stdout("nospace-boot-after-reboot.txt").unwrap();
    let words = "Installing kernel: regfile copy: No space left on device";
    assert_eq!(read_finalize_error(&text).as_deref(), Some(words));
    let journal = text.split_once("Available: 0\n").unwrap().1;
    assert_eq!(finalize_failure(journal).as_deref(), Some(words));
    let no_room = |cause: &RpmOstreeError| {
        matches!(
            cause,
            RpmOstreeError::NoSpace {
                place: FullDisk::Boot,
                ..
            }
        )
    };
    assert!(no_room(&RpmOstreeError::of_words(&format!(
        "error: {words}"
    ))));
    let unit = text
        .lines()
        .find(|line| line.contains("failed on previous boot"))
        .unwrap();
    assert!(
        matches!(RpmOstreeError::of_words(unit), RpmOstreeError::FinalizeFailed(inner) if no_room(&inner))
    );
    // It was counted before: 55.3 MB were needed, and 21 MB were free.
    let blocks = stdout("nospace-boot-stage.txt").unwrap();
    let free: u64 = blocks
        .split("Free: ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let boot = Space {
        total: 277_623 * 1024,
        free: free * 1024,
        available: 1518 * 1024,
        ..Space::default()
    };
    let room = KernelRoom {
        needed: 55_300_000,
        prunable: 0,
    };
    assert!(matches!(boot.fit_kernel(room), Fit::TooSmall { .. }));
}

#[test]
fn fact_9_space_is_counted_as_ostree_counts_it() {
    if captured().is_none() {
        return;
    }
    // 4 KiB blocks of the full disk: 3 % of it were not free any more.
    let full = Space {
        total: 1_525_656 * 4096,
        free: 6656 * 4096,
        ..Space::default()
    };
    assert!(matches!(
        full.fit_import(217_100, MIN_FREE_PERCENT),
        Fit::TooSmall { .. }
    ));
    let cause =
        RpmOstreeError::of_command(&answer(1, "nospace-root-really-full.txt").unwrap()).unwrap();
    assert!(
        matches!(&cause, RpmOstreeError::NoSpace { place: FullDisk::Sysroot, detail } if detail.contains("217.1 kB")),
        "{cause:?}"
    );
    let archive =
        RpmOstreeError::of_command(&answer(1, "nospace-var-tmp-oci-archive.txt").unwrap()).unwrap();
    assert!(matches!(
        archive,
        RpmOstreeError::NoSpace {
            place: FullDisk::VarTmp,
            ..
        }
    ));
    assert!(archive.next_step().contains("oci:PATH"));
}

#[test]
fn fact_10_a_rollback_is_refused_while_something_is_staged() {
    for (name, kind) in [
        ("rollback-with-staged.txt", "staged-in-the-way"),
        ("rollback-with-single-deployment.txt", "no-rollback"),
    ] {
        let Some(refused) = answer(1, name) else {
            return;
        };
        assert_eq!(RpmOstreeError::of_command(&refused).unwrap().kind(), kind);
    }
    let single = status("v2025.6-status-03-single-deployment.json").unwrap();
    assert_eq!(single.rollback(), None);
    let rolled_back = status("status-15-after-rollback-before-reboot.json").unwrap();
    let next = rolled_back.next_boot().unwrap();
    assert!(!next.booted && !next.staged, "written at once");
    assert_eq!(rolled_back.after_power_cut(), Some(next));
}

#[test]
fn fact_11_a_transaction_in_progress_is_reported() {
    let Some(here) = status("status-06-transaction-in-progress.json") else {
        return;
    };
    assert_eq!(here.transaction.unwrap().method, "Rebase");
    let refused = answer(1, "fail-transaction-in-progress-kargs.txt").unwrap();
    let cause = RpmOstreeError::of_command(&refused).unwrap();
    assert_eq!(
        cause.to_string(),
        "a transaction is in progress: rebase ostree-unverified-image:oci-archive:/var/lab/b.ociarchive"
    );
    let lock = answer(124, "fail-lock-held-ostree.txt").unwrap();
    assert_eq!(
        RpmOstreeError::of_command(&lock),
        Some(RpmOstreeError::LockHeld)
    );
}

#[test]
fn fact_12_a_killed_client_leaves_a_transaction_that_stages() {
    let Some(here) = status("status-19-staged-by-orphaned-transaction.json") else {
        return;
    };
    assert_eq!(here.find_image("/var/lab/oci-c", None), Standing::Staged);
    assert_eq!(here.transaction, None);
}

#[test]
fn fact_13_images_are_read_by_another_user() {
    let Some(refused) = answer(1, "fail-private-dir-0700.txt") else {
        return;
    };
    let cause = RpmOstreeError::of_command(&refused).unwrap();
    assert_eq!(
        cause,
        RpmOstreeError::FetcherDenied("/var/priv/oci-plain".into())
    );
    assert!(cause.next_step().contains("0755"));
}

#[test]
fn fact_14_no_experimental_option_where_the_version_does_without() {
    let target = RebaseTarget::Storage("quay.example/os:1".into());
    for (name, number) in [
        ("version.txt", (2024, 7)),
        ("v2025.6-version.txt", (2025, 6)),
    ] {
        let Some(text) = stdout(name) else { return };
        let version = RpmOstreeVersion::parse_answer(&text);
        assert_eq!(version.number, Some(number));
        assert!(version.has_containers());
        let args = arguments::rebase_to(&target, &version).args;
        assert_eq!(
            args,
            [
                "rebase",
                "ostree-unverified-image:containers-storage:quay.example/os:1"
            ]
        );
    }
}

#[test]
fn fact_15_damage_is_recognized_by_what_is_damaged() {
    let blob = "585fb12d98b4e083dc445b93c2780479aa2ea4c641b7c640f77a03de8bb613ca";
    let Some(missing) = answer(1, "fail-oci-missing-blob.txt") else {
        return;
    };
    assert!(
        matches!(RpmOstreeError::of_command(&missing), Some(RpmOstreeError::MissingBlob(path)) if path.ends_with(blob))
    );
    let damaged =
        RpmOstreeError::of_command(&answer(1, "fail-oci-corrupt-blob.txt").unwrap()).unwrap();
    assert!(
        damaged.to_string().contains("checksum expected="),
        "{damaged}"
    );
    // State stays as before.
    let names = |name: &str| {
        status(name)
            .unwrap()
            .all
            .iter()
            .map(|one| one.name())
            .collect::<Vec<_>>()
    };
    let before = names("status-01-idle-local-commit.json");
    assert_eq!(before, names("status-02-after-failed-rebase.json"));
    assert_eq!(before, names("status-03-after-failed-pull.json"));
}

#[test]
fn fact_16_no_cause_is_read_from_standard_output() {
    let Some(down) = answer(1, "dbus-down.txt") else {
        return;
    };
    assert!(down.stdout.contains("Active: inactive"));
    assert!(
        matches!(RpmOstreeError::of_command(&down), Some(RpmOstreeError::DaemonDown(words)) if words.contains("dbus.socket is masked"))
    );
    assert!(Deployments::read(&down.stdout).is_err());
    let ambiguous = "error: Sysroot reload: Reading deployment 1: Reading deployment metadata: Resolving target ref: Refspec a not unique";
    assert_eq!(
        RpmOstreeError::of_words(ambiguous),
        RpmOstreeError::AmbiguousRef("a".into())
    );
}

#[test]
fn fact_17_a_driver_of_updates_is_named_with_its_unit() {
    let Some(here) = status("v2025.6-status-05-driver-registered.json") else {
        return;
    };
    assert!(here.driver.is_some());
    let foreign = answer(1, "update-driver-foreign.txt").unwrap();
    let first = foreign.stderr.lines().next().unwrap();
    assert_eq!(
        RpmOstreeError::of_words(first),
        RpmOstreeError::Driver("FakeDriver".into(), "fakedriver.service".into())
    );
    assert!(
        RpmOstreeError::of_words(first)
            .next_step()
            .contains("systemctl stop fakedriver.service")
    );
}

#[test]
fn fact_18_a_locked_finalization_may_not_be_in_the_status() {
    let Some(here) = status("v2025.6-status-04-staged-finalization-locked.json") else {
        return;
    };
    assert!(!here.staged().unwrap().finalization_locked);
    let words = stderr("finalize-deployment.txt").unwrap();
    let RpmOstreeError::OtherStaged(_, found) =
        RpmOstreeError::of_words(words.lines().next().unwrap())
    else {
        panic!("{words}");
    };
    assert_eq!(found, here.staged().unwrap().checksum);
}

#[test]
fn fact_19_what_succeeds_has_no_cause_whatever_it_prints() {
    for name in [
        "kargs-append.txt",
        "rebase-oci-archive-ok.txt",
        "rollback-ok.txt",
        "cleanup-pending.txt",
    ] {
        let Some(done) = answer(0, name) else { return };
        assert_eq!(RpmOstreeError::of_command(&done), None);
    }
    assert_eq!(arguments::status_json().args, ["status", "--json"]);
}

#[test]
fn boot_entries_are_ordered_and_matched_as_in_a_real_system() {
    let Some(text) = stdout("status-text-booted-container-with-rollback.txt") else {
        return;
    };
    let (before, entries) = text.split_once("ostree-2.conf\n").unwrap();
    let (entries, release) = entries.split_once("NAME=").unwrap();
    let second = entries.rfind("title ").unwrap();
    let entries = in_order(vec![
        BootEntry::parse("ostree-1.conf", &entries[..second]),
        BootEntry::parse("ostree-2.conf", &entries[second..]),
    ]);
    assert!(
        entries[0].title.ends_with("1.20260202.0 (ostree:0)"),
        "{entries:?}"
    );
    let command_line = Kargs::parse(before.lines().next().unwrap());
    assert_eq!(
        bootloader::find_booted_entry(&entries, &command_line)
            .unwrap()
            .file,
        "ostree-2"
    );
    assert_eq!(entries[0].options, command_line);
    assert_eq!(
        entries[0].kernel_directory(),
        entries[1].kernel_directory(),
        "one kernel for both"
    );
    let release = OsRelease::parse(&format!("NAME={release}"));
    assert_eq!(
        (release.name(), release.class()),
        ("Debian rpm-ostree lab 1.20260202.0", Class::Other)
    );
}

#[test]
fn facts_of_boot_are_read_through_the_root() {
    let root = TestRoot::empty();
    let kernel = "os-ab/vmlinuz-6";
    root.write(&format!("boot/ostree/{kernel}"), &"k".repeat(3000));
    root.write("boot/ostree/os-ab/initramfs-6.img", &"i".repeat(5000));
    root.write(
        "boot/loader.1/entries/ostree-1.conf",
        &format!("version 1\nlinux /ostree/{kernel}\noptions a\n"),
    );
    root.write("boot/loader.1/entries/notes.txt", "version 9\n");
    root.link("boot/loader", "loader.1");
    root.write("usr/lib/os-release", "ID=scos\n");
    root.link("etc/os-release", "../usr/lib/os-release");

    let opened = Root::open(root.dir()).unwrap();
    let entries = bootloader::read_boot_entries(&opened).unwrap();
    assert_eq!(entries.len(), 1);
    let kernels = bootloader::list_kernel_directories(&opened).unwrap();
    assert_eq!(
        (kernels[0].name.as_str(), kernels[0].bytes),
        ("os-ab", 8000)
    );
    let room = kernel_room(&kernels, &entries, Some(6003), None, |_| true);
    assert_eq!((room.needed, room.prunable), (6003, 0));
    assert_eq!(
        OsRelease::read(&opened).unwrap().class(),
        Class::EnterpriseCoreos
    );
    let space = Space::read_space(&opened, &RootPath::parse("/boot").unwrap())
        .unwrap()
        .unwrap();
    assert!(space.total >= space.free && space.free >= space.available && space.total > 0);
    assert_eq!(
        Space::read_space(&opened, &RootPath::parse("/none").unwrap()).unwrap(),
        None
    );
}

/// Sets or clears a flag; whether that worked.
fn chattr(flag: &str, path: PathBuf) -> bool {
    let mut command = Command::new("chattr");
    command.arg(flag).arg(path).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn directories_are_told_from_deployments_and_flags_in_them_are_found() {
    let Some(here) = status("status-20-after-power-cut-staged-lost.json") else {
        return;
    };
    let root = TestRoot::empty();
    let top = "sysroot/ostree/deploy/rhcos/deploy";
    let lost = format!("{}.0", "ab".repeat(32));
    for name in here.all.iter().map(|one| one.name()).chain([lost.clone()]) {
        root.write(&format!("{top}/{name}/etc/resolv.conf"), "");
        root.write(&format!("{top}/{name}/usr/etc/resolv.conf"), "");
        let origin =
            "[origin]\ncontainer-image-reference=ostree-unverified-registry:quay.example/os:1\n";
        root.write(&format!("{top}/{name}.origin"), origin);
    }
    let opened = Root::open(root.dir()).unwrap();
    let all = deploy_directories::list_deploy_directories(&opened).unwrap();
    assert_eq!(all.len(), 3);
    assert!(
        all.iter()
            .all(|one| one.image.as_deref() == Some("quay.example/os:1"))
    );
    let left = all.iter().find(|one| here.find_named(&one.name).is_none());
    let left = left.unwrap();
    assert_eq!(left.name, lost);

    // The directory itself has the flag by design.
    let (file, own) = (
        format!("{top}/{lost}/etc/resolv.conf"),
        format!("{top}/{lost}"),
    );
    let other = format!("{top}/{lost}/usr/etc/resolv.conf");
    let flagged = [&file, &own, &other].map(|path| chattr("+i", root.path(path)));
    let found = deploy_directories::list_immutable(&opened, left);
    for path in [&own, &file, &other] {
        chattr("-i", root.path(path));
    }
    if flagged.contains(&false) {
        skip(
            Lacks::root_or_program("chattr"),
            "flags of files cannot be set here",
        );
        return;
    }
    assert_eq!(
        found.unwrap(),
        [RootPath::parse(&format!("/{file}")).unwrap()]
    );
}

fn default_arguments(sysroot: &Sysroot) -> Kargs {
    let root = Root::open(sysroot.0.dir()).unwrap();
    bootloader::read_boot_entries(&root).unwrap()[0]
        .options
        .without(&["ostree"])
}

#[test]
fn the_real_libostree_makes_of_the_changes_what_we_foresee() {
    let Some(sysroot) = Sysroot::new() else {
        return;
    };
    for (present, wanted) in [
        ("root=x a=1 b", "root=x a=1 c d=2"),
        ("root=x a=1 a=2 a=1", "root=x a=2 a=1"),
        ("console=tty0 quiet", "console=ttyS0 console=tty0 quiet"),
        ("k=1 k=2 k=3", "k=3 k=2"),
        ("a= a=1 b=", "a=1 b="),
        ("x=1", "x=1 x=1"),
        ("k k=1", "k=1"),
        ("k=1 k k=2", "k k=2"),
        ("k=1", "k"),
        ("k", "k=1"),
    ] {
        let (present, wanted) = (Kargs::parse(present), Kargs::parse(wanted));
        let first = present
            .tokens()
            .iter()
            .map(|token| format!("--karg-append={token}"));
        let first: Vec<String> = std::iter::once("--karg-none".to_owned())
            .chain(first)
            .collect();
        assert!(sysroot.deploy(&first), "{present}");
        assert_eq!(default_arguments(&sysroot), present);
        let changes = present.changes_to(&wanted);
        // This command takes one deletion at a time.
        for change in &changes {
            let option = match change {
                KargsChange::Delete(token) => format!("--karg-delete={token}"),
                KargsChange::Append(token) => format!("--karg-append={token}"),
            };
            assert!(sysroot.deploy(std::slice::from_ref(&option)), "{option}");
        }
        let real = default_arguments(&sysroot);
        assert_eq!(
            real.tokens(),
            apply_changes(present.tokens(), &changes),
            "{present} -> {wanted}"
        );
        assert_eq!(real.changes_to(&wanted), [], "{real}");
    }
}

#[test]
fn a_sysroot_of_the_real_ostree_is_read_as_it_is() {
    let Some(sysroot) = Sysroot::new() else {
        return;
    };
    for number in 1..=2 {
        assert!(sysroot.deploy(&[format!("--karg=number={number}")]));
    }
    let root = Root::open(sysroot.0.dir()).unwrap();
    let entries = bootloader::read_boot_entries(&root).unwrap();
    assert_eq!(entries.len(), 2);
    assert!(entries[0].title.contains("(ostree:0)"), "{entries:?}");
    assert_eq!(
        entries[0]
            .options
            .missing_from(&Kargs::parse("number=2"))
            .len(),
        1,
        "but ostree="
    );
    let kernels = bootloader::list_kernel_directories(&root).unwrap();
    assert_eq!(kernels.len(), 1, "both have the same");
    assert_eq!(
        entries[1].kernel_directory(),
        Some(kernels[0].name.as_str())
    );
    let deployments = deploy_directories::list_deploy_directories(&root).unwrap();
    assert_eq!(deployments.len(), 2);
    for deployment in &deployments {
        assert_eq!(
            (deployment.stateroot.as_str(), deployment.image.as_deref()),
            ("os", Some(""))
        );
        assert_eq!(
            deploy_directories::list_immutable(&root, deployment).unwrap(),
            []
        );
    }
}

#[test]
fn what_was_changed_by_hand_is_read_from_the_status() {
    for (name, booted, staged) in [
        ("t1-16-status-json-B", "", ""),
        ("t4-02-foreign-kargs-staged-json", "", ""),
        ("t4-03-unlocked-json", "/usr is unlocked (development)", ""),
        (
            "t6-20-staged-override-local-rpm-json",
            "",
            "local packages: nano-5.6-1.el9.noarch, packages of the image that are replaced: 1",
        ),
        (
            "t6-21-live-applied-json",
            "packages are applied live, until the next boot",
            "local packages: nano-5.6-1.el9.noarch, packages of the image that are replaced: 1",
        ),
        (
            "t6-22-booted-override-local-rpm-json",
            "local packages: nano-5.6-1.el9.noarch, packages of the image that are replaced: 1",
            "",
        ),
    ] {
        let Some(text) = text(&format!("runs-2025.6/{name}.txt")) else {
            return;
        };
        let json = &text[text.find("\n{").unwrap()..text.rfind("\n}").unwrap() + 2];
        let here = Deployments::read(json).unwrap_or_else(|error| panic!("{name}: {error}"));
        let said = |one: Option<&mco_rescue::node::command::rpm_ostree::status::Deployment>| {
            one.map(|one| one.by_hand().join(", ")).unwrap_or_default()
        };
        assert_eq!(said(here.booted()), booted, "{name}");
        assert_eq!(said(here.staged()), staged, "{name}");
    }
}
