//! FP-15: the clock.

use crate::doctor::{Check, Evidence, Fact, Finding, Severity, Verdict};
use crate::node::clock::Moment;
use crate::report::utc;

/// The check.
pub const CHECK: Check = Check {
    id: "FP-15",
    title: "the clock is wrong",
    looks_at: "the time beside certificates, file times, the clock of the board, and the age of this program",
    explain: "A clock that is behind makes every certificate one that is not yet valid, and a node without network cannot \
ask for the time. So everything at hand that tells of a moment that has passed is compared: when certificates \
were signed (by another clock, so these weigh most), when files were written, what was fetched when, and the day of \
the newest rules in this program. A time before any of these is wrong, or they were written while it was ahead.\n\n\
A clock that is far ahead is seen by the clock of the board only, where there is one.\n\n\
Set it: date -u -s '2026-01-31 12:00', then hwclock --systohc; or in the firmware's setup. chronyc makestep, once a \
time server is reached.",
    judge,
};

/// Clocks differ by that much without harm.
const TOLERANCE: u64 = 600;
const DAY: u64 = 86_400;

fn judge(evidence: &Evidence) -> Verdict {
    let clock = &evidence.clock;
    let mut later: Vec<&Moment> = clock
        .passed
        .iter()
        .filter(|one| one.at > clock.now.saturating_add(TOLERANCE))
        .collect();
    later.sort_by_key(|one| (!one.foreign, std::cmp::Reverse(one.at)));
    Verdict::healthy()
        .and(behind(evidence, &later))
        .and(board(evidence, !later.is_empty()))
}

fn behind(evidence: &Evidence, later: &[&Moment]) -> Option<Finding> {
    let newest = later.iter().map(|one| one.at).max()?;
    let foreign = later.iter().any(|one| one.foreign);
    let severity = if foreign {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let whose = if evidence.live {
        "the clock"
    } else {
        "the clock of this machine"
    };
    let what = format!(
        "{whose} is behind by {} at least",
        span(newest - evidence.clock.now)
    );
    let means = match foreign {
        true => {
            "Certificates are not valid yet by this clock: every connection to the cluster and its servers fails."
        }
        false => {
            "Either the clock is behind, or it was ahead when these were written. Certificates may be refused."
        }
    };
    let facts = later
        .iter()
        .map(|one| Fact::new(&one.place, format!("{} {}", one.what, utc(one.at))));
    Some(
        Finding::new(severity, what, means)
            .seen("clock", utc(evidence.clock.now))
            .seen_all(facts)
            .daemon(foreign.then(|| "x509: certificate has expired or is not yet valid".to_owned()))
            .next("chronyc makestep")
            .next(format!(
                "date -u -s '{}'",
                utc(newest).replace('T', " ").replace('Z', "")
            ))
            .next("hwclock --systohc"),
    )
}

fn board(evidence: &Evidence, told: bool) -> Option<Finding> {
    let (now, board) = (evidence.clock.now, evidence.clock.board?);
    let apart = now.abs_diff(board);
    // Boards that keep local time are off by some hours.
    if told || apart < DAY {
        return None;
    }
    let passed = evidence.clock.passed.iter();
    let passed = passed.filter(|one| one.foreign && one.at > board.saturating_add(DAY));
    let finding = match passed.max_by_key(|one| one.at) {
        Some(passed) => {
            let what = format!("the clock of the board is behind by {}", span(apart));
            let means = "Its battery is empty, or it was never set. After the next boot the node begins with that \
time, in which no certificate is valid yet.";
            Finding::new(Severity::Warning, what, means)
                .seen(&passed.place, format!("{} {}", passed.what, utc(passed.at)))
        }
        None => {
            let side = if now > board { "ahead of" } else { "behind" };
            let what = format!("the clock is {} {side} the board's", span(apart));
            let means = "One of the two is wrong. After the next boot the node begins with the time of the board.";
            Finding::new(Severity::Warning, what, means).next("date -u")
        }
    };
    Some(
        finding
            .seen("clock", utc(now))
            .seen("/sys/class/rtc/rtc0/since_epoch", utc(board))
            .next("hwclock --systohc"),
    )
}

fn span(seconds: u64) -> String {
    match seconds {
        0..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / DAY),
    }
}
