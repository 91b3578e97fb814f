//! FP-15: the clock is wrong.

use crate::base::order::StableOrder;
use crate::base::time::format_utc;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, messages,
};
use crate::node::clock::PastMoment;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-15",
    title: "the clock is wrong",
    looks_at: "the time against certificates, file times, the clocks of board and server, and the age of this program",
    explain: "If the clock is behind, no certificate is valid yet. A node without network cannot \
ask for the time, so this check compares the clock with known moments of the past: when certificates \
were signed (by another clock, so these are the best evidence), when files were written, when configs were fetched, and the day of \
the newest rules in this program. Either a clock before one of these is wrong, or it was ahead when they were written.\n\n\
A clock that is far ahead is found with the board's clock, if there is one, and with that of the Machine Config \
Server. On the node itself, the server that last answered mco-rescue fetch is asked for the time, for two seconds at \
most. If it does not answer, its time at the last fetch is used.\n\n\
Set it: date -u -s '2026-01-31 12:00', then hwclock --systohc; or in the firmware's setup. chronyc makestep, once a \
time server is reached.",
    judge: judge_clock,
};

/// Seconds by which clocks may differ without harm.
const TOLERANCE: u64 = 600;
const DAY: u64 = 86_400;

fn judge_clock(evidence: &DoctorEvidence) -> CheckVerdict {
    let clock = &evidence.clock;
    let mut later: Vec<&PastMoment> = clock
        .passed
        .iter()
        .filter(|one| one.at > clock.now.saturating_add(TOLERANCE))
        .collect();
    later.order_by_key(|one| (!one.foreign, std::cmp::Reverse(one.at)));
    let told = !later.is_empty();
    let server = find_server_difference(evidence).filter(|_| !told);
    let told = told || server.is_some();
    let verdict = CheckVerdict::healthy()
        .and_findings(find_clock_behind(evidence, &later))
        .and_findings(server)
        .and_findings(find_board_difference(evidence, told));
    match &clock.server_unseen {
        Some(why) => verdict.and_unseen(format!("the clock of the server: {why}")),
        None => verdict,
    }
}

fn find_clock_behind(evidence: &DoctorEvidence, later: &[&PastMoment]) -> Option<DoctorFinding> {
    let newest = later.iter().map(|one| one.at).max()?;
    let foreign = later.iter().any(|one| one.foreign);
    let severity = if foreign {
        CheckSeverity::Critical
    } else {
        CheckSeverity::Warning
    };
    let whose = if evidence.live {
        "the clock"
    } else {
        "the clock of this machine"
    };
    let what = format!(
        "{whose} is behind by {} at least",
        format_span(newest - evidence.clock.now)
    );
    let means = if foreign {
        "Certificates are not valid yet by this clock: every connection to the cluster and its servers fails."
    } else {
        "Either the clock is behind, or it was ahead when these were written. Certificates may be rejected."
    };
    let facts = later
        .iter()
        .map(|one| Fact::new(&one.place, format!("{} {}", one.what, format_utc(one.at))));
    let finding = DoctorFinding::new(severity, what, means)
        .with_evidence("clock", format_utc(evidence.clock.now))
        .seen_all(facts)
        .with_message(foreign.then(|| messages::NOT_YET_VALID.to_owned()));
    Some(set_clock(finding, newest))
}

/// Reports the difference from the server's clock when it last answered. If the clock was set back since, other moments show
/// that.
fn find_server_difference(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let heard = evidence.clock.server.as_ref()?;
    let own = heard.own?;
    let apart = own.abs_diff(heard.said);
    let set_back_since = !heard.now && evidence.clock.now < own;
    if apart <= TOLERANCE || set_back_since {
        return None;
    }
    let side = if own > heard.said {
        "ahead of"
    } else {
        "behind"
    };
    let (severity, verb, means) = match heard.now {
        true if apart >= DAY => (
            CheckSeverity::Critical,
            "is",
            "Certificates that are still valid count as expired by this clock: connections to the cluster fail.",
        ),
        true => (
            CheckSeverity::Warning,
            "is",
            "Certificates end too early by this clock, and times in logs do not fit those of other nodes.",
        ),
        false => (
            CheckSeverity::Notice,
            "was",
            "That was when the server last answered. Unless the clock was set since, it is still wrong.",
        ),
    };
    let what = format!(
        "the clock {verb} {} {side} the server's",
        format_span(apart)
    );
    let said = format!("the server's clock was {}", format_utc(heard.said));
    let finding = DoctorFinding::new(severity, what, means)
        .with_evidence(heard.place.clone(), said)
        .with_evidence("clock at that moment", format_utc(own))
        .with_evidence("clock", format_utc(evidence.clock.now));
    Some(if heard.now {
        set_clock(finding, heard.said)
    } else {
        finding.next(evidence.own_command("fetch")).next("date -u")
    })
}

/// Adds the commands that set the clock.
fn set_clock(finding: DoctorFinding, to: u64) -> DoctorFinding {
    let to = format_utc(to).replace('T', " ").replace('Z', "");
    finding
        .next(format!("date -u -s '{to}'"))
        .next("hwclock --systohc")
        .next("chronyc makestep # where a time server is reached")
}

fn find_board_difference(evidence: &DoctorEvidence, told: bool) -> Option<DoctorFinding> {
    let (now, board) = (evidence.clock.now, evidence.clock.board?);
    let apart = now.abs_diff(board);
    // Hardware clocks in local time are off by some hours.
    if told || apart < DAY {
        return None;
    }
    let passed = evidence.clock.passed.iter();
    let passed = passed.filter(|one| one.foreign && one.at > board.saturating_add(DAY));
    let finding = match passed.max_by_key(|one| one.at) {
        Some(passed) => {
            let what = format!("the clock of the board is behind by {}", format_span(apart));
            let means = "Its battery is empty, or it was never set. The next boot starts with that \
time, in which no certificate is valid yet.";
            DoctorFinding::warning(what, means).with_evidence(
                &passed.place,
                format!("{} {}", passed.what, format_utc(passed.at)),
            )
        }
        None => {
            let side = if now > board { "ahead of" } else { "behind" };
            let what = format!("the clock is {} {side} the board's", format_span(apart));
            let means = "One of the two is wrong. The next boot starts with the time of the board.";
            DoctorFinding::warning(what, means).next("date -u")
        }
    };
    Some(
        finding
            .with_evidence("clock", format_utc(now))
            .with_evidence("/sys/class/rtc/rtc0/since_epoch", format_utc(board))
            .next("hwclock --systohc"),
    )
}

fn format_span(seconds: u64) -> String {
    match seconds {
        0..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / DAY),
    }
}
