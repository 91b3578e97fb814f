//! FP-15: a clock that is wrong, so that no certificate is believed.

use crate::doctor::{Check, Evidence, Fact, Finding, Severity, Verdict};
use crate::node::clock::Moment;
use crate::report::utc;

/// The check.
pub const CHECK: Check = Check {
    id: "FP-15",
    title: "the clock is wrong",
    looks_at: "the clock, beside certificates, builds and files that tell a later time",
    explain: "A certificate that is not valid yet is refused like a forged one: with a clock that is behind, the first \
boot cannot fetch its config, images cannot be pulled, and the kubelet cannot join.\n\n\
What has happened already lies in the past: that a certificate was signed, the OS was built, or a file was written. A \
clock that says an earlier time is behind, by at least as much. A clock that is ahead cannot be told from files; then \
certificates look expired that are not.\n\n\
Set the clock from a watch, or where chronyd reaches a server: chronyc makestep. Then write it to the board: hwclock \
--systohc --utc. A board whose battery is empty loses it again at the next power cut.",
    judge,
};

/// Clocks of one cluster differ by less.
const FOREIGN: u64 = 60;
/// A file may be written just before a small step back.
const OWN: u64 = 600;
/// The board may keep local time.
const BOARD: u64 = 15 * 3600;
const DAY: u64 = 86_400;

fn judge(evidence: &Evidence) -> Verdict {
    let clock = &evidence.clock;
    if clock.now == 0 && clock.passed.is_empty() {
        return Verdict::unseen("the clock: nobody looked at it");
    }
    let ahead = |moment: &&Moment| {
        let slack = if moment.foreign { FOREIGN } else { OWN };
        moment.at > clock.now.saturating_add(slack)
    };
    let mut later: Vec<&Moment> = clock.passed.iter().filter(ahead).collect();
    later.sort_by_key(|moment| std::cmp::Reverse(moment.at));
    let verdict = match later.first() {
        Some(latest) => Verdict::found(behind(evidence, &later, latest.at)),
        None => Verdict::healthy().and(board(evidence)),
    };
    if evidence.live || evidence.in_initramfs {
        return verdict;
    }
    verdict.and_unseen("the node's own clock: it does not run; look at it in the firmware's setup")
}

fn behind(evidence: &Evidence, later: &[&Moment], latest: u64) -> Finding {
    let runs = evidence.live || evidence.in_initramfs;
    let foreign = later.iter().any(|moment| moment.foreign);
    let severity = match runs && foreign {
        true => Severity::Critical,
        false => Severity::Warning,
    };
    let whose = if runs {
        "the clock"
    } else {
        "this machine's clock"
    };
    let what = format!(
        "{whose} is behind by {} or more",
        span(latest - evidence.clock.now)
    );
    let certificates = later
        .iter()
        .filter(|moment| moment.what.contains("certificate"));
    let not_yet = certificates.map(|moment| moment.at).max();
    let now = utc(evidence.clock.now);
    let means = "Certificates count as not valid yet: nothing can be fetched or pulled, and the node cannot join. \
What doctor says of expiry is wrong as well.";
    let facts = later
        .iter()
        .map(|moment| Fact::new(&moment.place, format!("{} {}", moment.what, utc(moment.at))));
    Finding::new(severity, what, means)
        .seen("the clock", &now)
        .seen_all(facts)
        .daemon(not_yet.map(|at| {
            let says = "x509: certificate has expired or is not yet valid: current time";
            format!("{says} {now} is before {}", utc(at))
        }))
        .next("chronyc makestep")
        .next("date --utc --set 'YYYY-MM-DD HH:MM', by a watch, if chronyd reaches nobody")
        .next("hwclock --systohc --utc")
}

fn board(evidence: &Evidence) -> Option<Finding> {
    let (now, board) = (evidence.clock.now, evidence.clock.board?);
    let apart = now.abs_diff(board);
    let what = format!("the board's clock is {} off", span(apart));
    let means =
        "The next boot begins with the board's time, and certificates may not be believed then.";
    (apart > BOARD).then(|| {
        Finding::new(Severity::Notice, what, means)
            .seen("/sys/class/rtc/rtc0", utc(board))
            .seen("the clock", utc(now))
            .next("hwclock --systohc --utc")
    })
}

fn span(seconds: u64) -> String {
    match seconds {
        0..3600 => format!("{} min", seconds / 60),
        3600..DAY => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::clock::Clock;

    fn at(now: u64, foreign: bool, board: Option<u64>) -> Verdict {
        let what = if foreign {
            "a certificate in it was signed"
        } else {
            "was written"
        };
        let place = "/x".to_owned();
        let passed = vec![Moment {
            place,
            what,
            at: 10 * DAY,
            foreign,
        }];
        judge(&Evidence {
            live: true,
            clock: Clock { now, board, passed },
            ..Evidence::default()
        })
    }

    #[test]
    fn only_what_somebody_else_signed_later_is_critical() {
        let worst = |verdict: Verdict| verdict.findings.first().map(|one| one.severity);
        assert_eq!(worst(at(8 * DAY, true, None)), Some(Severity::Critical));
        assert_eq!(worst(at(8 * DAY, false, None)), Some(Severity::Warning));
        assert_eq!(worst(at(10 * DAY - 30, true, None)), None);
        assert_eq!(worst(at(10 * DAY - 300, false, None)), None);
        assert_eq!(worst(at(11 * DAY, true, Some(DAY))), Some(Severity::Notice));
    }

    #[test]
    fn the_words_of_the_certificate_reader_are_told() {
        let verdict = at(8 * DAY, true, None);
        let says = verdict.findings[0].daemon.as_deref().unwrap();
        assert!(says.ends_with("current time 1970-01-09T00:00:00Z is before 1970-01-11T00:00:00Z"));
    }
}
