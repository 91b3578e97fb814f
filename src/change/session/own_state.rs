//! State files written by another version of this program, such as a newer one after a downgrade.
//!
//! A file whose contents can be fetched again from the API or a server is skipped in this case ([`crate::host::state_file`]). The
//! files below contain facts that only this program has. A command that changes the node is refused before it changes anything if
//! it does not understand one of them.

use anyhow::{Context, Result, bail};

use crate::base::invocation::{mco_rescue, shell_word};
use crate::base::paths;
use crate::change::source::changes;
use crate::change::staging::{awaited, pins, reboots};
use crate::change::transaction::journal;
use crate::change::trial;
use crate::host::root::{Root, RootPath};
use crate::host::state_file::other_version;
use crate::node::requests;

/// The files of a run, with the version that this program knows.
const OF_A_RUN: [(&str, u32); 4] = [
    (paths::JOURNAL, journal::VERSION),
    (paths::PREPARED_JOURNAL, journal::VERSION),
    (paths::INTENT, journal::VERSION),
    (paths::COMMITTED, journal::VERSION),
];
/// All other files, with the version that this program knows.
const OTHERS: [(&str, u32); 7] = [
    (paths::TRIAL, trial::VERSION),
    (paths::AWAITED, awaited::VERSION),
    (paths::OS_RUNS, awaited::VERSION),
    (paths::PINS, pins::VERSION),
    (paths::ASKED, requests::VERSION),
    (paths::REBOOTS, reboots::VERSION),
    (paths::CHANGES, changes::VERSION),
];

/// Refuses to continue if a file has another version. The error names all such files and the solutions.
pub fn expect_known_state(root: &Root) -> Result<()> {
    let run = find_others(root, &OF_A_RUN)?;
    let others = find_others(root, &OTHERS)?;
    let Some((first, ..)) = run.iter().chain(&others).next() else {
        return Ok(());
    };
    let is_newer = run
        .iter()
        .chain(&others)
        .any(|(_, found, known)| found > known);
    let named = run.iter().chain(&others).map(|(path, found, known)| {
        format!("{path} has version {found}, this program knows {known}")
    });
    let named: Vec<String> = named.collect();
    let mut ways = Vec::new();
    if !run.is_empty() {
        ways.push(mco_rescue("recover --give-up"));
    }
    ways.extend(others.iter().map(|(path, found, _)| {
        let place = root.shown().join(path.relative());
        let aside = format!("{}.version-{found}", place.display());
        let word = |path: &str| shell_word(path);
        format!("mv {} {}", word(&place.display().to_string()), word(&aside))
    }));
    let which = if is_newer { "a newer" } else { "another" };
    let it = if named.len() == 1 { "it" } else { "them" };
    bail!(
        "{}: {which} version of mco-rescue wrote {it}. Nothing was changed. Next: {} # with that version, or {} # without it{}",
        named.join("; "),
        if run.is_empty() {
            mco_rescue("status")
        } else {
            mco_rescue("recover")
        },
        ways.join(", then "),
        describe_meaning(first, run.is_empty()),
    )
}

/// Returns the consequence of continuing without the other version.
fn describe_meaning(first: &RootPath, is_no_run: bool) -> &'static str {
    if !is_no_run {
        return ": the run is forgotten, and every file stays as it is";
    }
    let is = |file| *first == RootPath::fixed(file);
    if is(paths::TRIAL) {
        ": the change stays, and is not reverted automatically"
    } else if is(paths::AWAITED) {
        ": nothing then proves at the next boot that what was staged runs"
    } else if is(paths::OS_RUNS) {
        ": the operating system of those runs is not reverted then"
    } else {
        ""
    }
}

/// Returns the files of another version, each with its version and the known one. The files of a run come first.
pub fn files_of_other_versions(root: &Root) -> Result<Vec<(RootPath, u64, u64)>> {
    let mut found = find_others(root, &OF_A_RUN)?;
    found.extend(find_others(root, &OTHERS)?);
    Ok(found)
}

fn find_others(root: &Root, files: &[(&'static str, u32)]) -> Result<Vec<(RootPath, u64, u64)>> {
    let mut found = Vec::new();
    for (file, known) in files {
        let path = RootPath::fixed(file);
        let bytes = root
            .read(&path)
            .with_context(|| format!("reading {path}"))?;
        let other = bytes.and_then(|bytes| other_version(&bytes, *known));
        found.extend(other.map(|other| (path, other, u64::from(*known))));
    }
    Ok(found)
}
