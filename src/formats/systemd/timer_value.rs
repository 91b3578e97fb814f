//! Times of timers, as far as needed to tell that systemd ignores one. Anything in doubt counts as valid.

/// Units of a time span.
const UNITS: [&str; 32] = [
    "seconds", "second", "sec", "s", "minutes", "minute", "min", "months", "month", "M", "msec",
    "ms", "m", "hours", "hour", "hr", "h", "days", "day", "d", "weeks", "week", "w", "years",
    "year", "y", "usec", "us", "\u{b5}s", "\u{3bc}s", "nsec", "ns",
];

/// Names of calendar events.
const EVENTS: [&str; 11] = [
    "minutely",
    "hourly",
    "daily",
    "weekly",
    "monthly",
    "quarterly",
    "biannually",
    "semiannually",
    "annually",
    "yearly",
    "anually",
];

/// Returns true unless systemd certainly ignores the value as a time span.
pub(super) fn may_be_span(value: &str) -> bool {
    let words = value.split(|c: char| c.is_ascii_digit() || c == '.' || c.is_ascii_whitespace());
    let mut words = words.filter(|word| !word.is_empty());
    value == "infinity"
        || value.contains('%')
        || (value.contains(|c: char| c.is_ascii_digit()) && words.all(|word| UNITS.contains(&word)))
}

/// Returns true unless systemd certainly ignores the value as a calendar event.
pub(super) fn may_be_calendar(value: &str) -> bool {
    let first = value.split_ascii_whitespace().next().unwrap_or_default();
    let days = first.split([',', '.', '-']).filter(|day| !day.is_empty());
    let is_day = |day: &str| {
        let day = day.to_ascii_lowercase();
        let names = [
            "monday",
            "tuesday",
            "wednesday",
            "thursday",
            "friday",
            "saturday",
            "sunday",
        ];
        day.len() >= 3 && names.iter().any(|name| name.starts_with(&day))
    };
    let mut days = days.peekable();
    let begins_with_days = days.peek().is_some() && days.all(is_day);
    let is_event = EVENTS.contains(&first.to_ascii_lowercase().as_str());
    let has_digits = first.starts_with(|c: char| c.is_ascii_digit() || c == '*' || c == '@');
    is_event || begins_with_days || has_digits || value.contains('%')
}
