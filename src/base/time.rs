//! Times as UTC text, and the days of the Gregorian calendar.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::base::reason::Reason;
use crate::base::text::count_noun;

/// Returns a time as UTC text, from seconds since 1970.
pub fn format_utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date_of_day(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// Returns the time from a moment to `now`, in the largest fitting unit: `12 minutes ago`.
pub fn format_age(then: u64, now: u64) -> String {
    let Some(past) = now.checked_sub(then) else {
        return "ahead of this clock".to_owned();
    };
    let (number, unit) = match past {
        0..60 => return "just now".to_owned(),
        60..3600 => (past / 60, "minute"),
        3600..172_800 => (past / 3600, "hour"),
        _ => (past / 86_400, "day"),
    };
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    format!("{} ago", count_noun(number, unit))
}

/// Returns the date of a day, counted from 1970, in the proleptic Gregorian calendar.
fn date_of_day(days: u64) -> (u64, u64, u64) {
    // Years are counted from March, in eras of 400 years, so that leap days come last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Returns the number of days from 1970 to a date of the Gregorian calendar.
pub fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    // Years are counted from March, so that leap days come last.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * month + 2) / 5
        + day
        - 719_469
}

/// Parses a day, `2026-01-31`, or an RFC 3339 time, `2026-01-31T12:00:00Z`, into seconds since 1970. A day stands for its last
/// second, in UTC.
///
/// # Errors
/// The reason why it is neither.
pub fn parse_day_or_time(text: &str) -> Result<u64, Reason> {
    let bad = || format!("{text:?} is not a date; write 2026-01-31 or 2026-01-31T12:00:00Z");
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let day = parse_day(date).ok_or_else(bad)?;
    let second = match time {
        None => 86_399,
        Some(time) => parse_time(time).ok_or_else(bad)?,
    };
    u64::try_from(day * 86_400 + second)
        .map_err(|_| format!("{text:?} is before 1970, before every certificate").into())
}

fn parse_day(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let (year, month, day) = (
        parse_digits(parts.next()?, 4)?,
        parse_digits(parts.next()?, 2)?,
        parse_digits(parts.next()?, 2)?,
    );
    let found = days_since_epoch(year, month, day);
    let real = (1..=12).contains(&month) && day >= 1 && parts.next().is_none();
    // The 30th of February would become a day in March.
    let next = if month == 12 {
        days_since_epoch(year + 1, 1, 1)
    } else {
        days_since_epoch(year, month + 1, 1)
    };
    (real && found < next).then_some(found)
}

/// Parses a time of day into seconds in UTC; another zone can lead to another day.
fn parse_time(text: &str) -> Option<i64> {
    let (clock, offset) = match text.strip_suffix(['Z', 'z']) {
        Some(clock) => (clock, 0),
        None => {
            let (clock, zone) = text.split_at_checked(text.len().checked_sub(6)?)?;
            let sign = match zone.get(..1)? {
                "+" => 1,
                "-" => -1,
                _ => return None,
            };
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let (hours, minutes) = (parse_digits(hours, 2)?, parse_digits(minutes, 2)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (clock, sign * (hours * 3600 + minutes * 60))
        }
    };
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = whole.split(':');
    let (hour, minute, second) = (
        parse_digits(parts.next()?, 2)?,
        parse_digits(parts.next()?, 2)?,
        parse_digits(parts.next()?, 2)?,
    );
    let digits = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    // The 60th second is a leap second.
    let real = hour < 24 && minute < 60 && second <= 60 && parts.next().is_none() && digits;
    real.then_some(hour * 3600 + minute * 60 + second - offset)
}

fn parse_digits(text: &str, digits: usize) -> Option<i64> {
    let all = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

/// Returns the current time: seconds since 1970, by the clock of this machine.
pub fn current_time() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_so_long_ago_as_people_count() {
        for (then, wanted) in [
            (1_000_000, "just now"),
            (999_941, "just now"),
            (999_940, "1 minute ago"),
            (996_400, "1 hour ago"),
            (900_000, "27 hours ago"),
            (800_000, "2 days ago"),
            (1_000_001, "ahead of this clock"),
        ] {
            assert_eq!(format_age(then, 1_000_000), wanted, "{then}");
        }
    }

    #[test]
    fn days_and_times_are_read_or_refused() {
        for (text, wanted) in [
            ("1970-01-01", "1970-01-01T23:59:59Z"),
            ("2028-02-29", "2028-02-29T23:59:59Z"),
            ("2026-12-31", "2026-12-31T23:59:59Z"),
            ("2026-01-31T12:00:01Z", "2026-01-31T12:00:01Z"),
            ("2026-01-31t12:00:01.25z", "2026-01-31T12:00:01Z"),
            ("2026-01-31 12:00:01+02:30", "2026-01-31T09:30:01Z"),
            ("2026-12-31T23:00:00-02:00", "2027-01-01T01:00:00Z"),
            ("9999-12-31", "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(
                parse_day_or_time(text).map(format_utc),
                Ok(wanted.to_owned()),
                "{text}"
            );
        }
        for text in [
            "",
            "soon",
            "2026",
            "2026-02",
            "2026-02-29",
            "2026-04-31",
            "2026-13-01",
            "2026-00-10",
            "2026-01-00",
            "26-01-01",
            "2026-1-1",
            "2026-01-01-01",
            "+026-01-01",
            "2026-01-01T",
            "2026-01-01T12:00",
            "2026-01-01T12:00:00",
            "2026-01-01T24:00:00Z",
            "2026-01-01T12:60:00Z",
            "2026-01-01T12:00:00.Z",
            "2026-01-01T12:00:00+2:00",
            "2026-01-01T12:00:00+24:00",
            "2026-01-01T12:00:00\u{e9}\u{e9}\u{e9}",
            "1969-12-31",
            "0000-01-01",
        ] {
            assert!(parse_day_or_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn known_instants_print_as_utc() {
        assert_eq!(format_utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(format_utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(format_utc(1_709_210_096), "2024-02-29T12:34:56Z");
    }
}
