//! Times as UTC text, and the days of the Gregorian calendar.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::text::count;

/// Returns a time as UTC text, from seconds since 1970.
pub fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// Returns the time from a moment to `now`, in the largest fitting unit: `12 minutes ago`.
pub fn ago(then: u64, now: u64) -> String {
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
    format!("{} ago", count(number, unit))
}

/// Returns the date of a day since 1970, in the proleptic Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
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

/// Returns the days since 1970 of a date of the Gregorian calendar.
pub fn days(year: i64, month: i64, day: i64) -> i64 {
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

/// Returns the current time: seconds since 1970, by the clock of this machine.
pub fn now() -> u64 {
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
            assert_eq!(ago(then, 1_000_000), wanted, "{then}");
        }
    }

    #[test]
    fn known_instants_print_as_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(1_709_210_096), "2024-02-29T12:34:56Z");
    }
}
