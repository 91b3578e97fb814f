//! Releases of the daemon: changes of its behaviour over time, as rules (docs/agreement.md: Versions).

use std::str::FromStr;

/// The daemon's source on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The day as a number that sorts.
    day: u32,
}

/// Returns a day as a number that sorts.
const fn on(year: u32, month: u32, day: u32) -> u32 {
    year * 10_000 + month * 100 + day
}

/// Ignition 3.5 is accepted from this day on.
const IGNITION_3_5: u32 = on(2025, 3, 26);
/// Units that are enabled and should be disabled are reported from this day on.
const ENABLEMENT: u32 = on(2025, 7, 22);
/// The force file rewrites all units from this day on, not only the changed ones.
const FORCE_WRITES_UNITS: u32 = on(2026, 2, 4);
/// Packages of extensions are checked after an update from this day on.
const PACKAGES: u32 = on(2026, 5, 15);

/// Eight weeks before each release, about when its branch leaves the main one. Later backports are not in here, and
/// later releases count as the newest.
const BRANCHES: [(&str, u32); 8] = [
    ("4.13", on(2023, 3, 22)),
    ("4.14", on(2023, 9, 5)),
    ("4.15", on(2024, 1, 3)),
    ("4.16", on(2024, 5, 2)),
    ("4.17", on(2024, 8, 6)),
    ("4.18", on(2024, 12, 31)),
    ("4.19", on(2025, 4, 22)),
    ("4.20", on(2025, 8, 26)),
];

impl Release {
    /// The newest one with known rules.
    pub const NEWEST: Self = Self {
        day: on(2026, 8, 20),
    };

    /// Returns the begin of the day; seconds since 1970.
    pub fn seconds(self) -> u64 {
        let (year, month, day) = (self.day / 10_000, self.day / 100 % 100, self.day % 100);
        // Years are counted from March, so that leap days come last.
        let (year, month) = if month > 2 {
            (year, month - 3)
        } else {
            (year - 1, month + 9)
        };
        let leap_days = year / 4 - year / 100 + year / 400;
        let days = year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1;
        u64::from(days.saturating_sub(719_468)) * 86_400
    }

    /// Returns the newest minor version of Ignition's spec 3 that it accepts.
    pub fn ignition_minor(self) -> u64 {
        if self.day >= IGNITION_3_5 { 5 } else { 4 }
    }

    /// Is true if it reports a unit that is enabled and should be disabled.
    pub fn sees_enablement(self) -> bool {
        self.day >= ENABLEMENT
    }

    /// Is true if a forced update rewrites drifted units.
    pub fn force_writes_units(self) -> bool {
        self.day >= FORCE_WRITES_UNITS
    }

    /// Is true if it checks the packages of extensions at the end of an update.
    pub fn asks_for_packages(self) -> bool {
        self.day >= PACKAGES
    }
}

impl Default for Release {
    fn default() -> Self {
        Self::NEWEST
    }
}

impl FromStr for Release {
    type Err = String;

    /// Parses a day (`2025-07-22`) or a release (`4.19`, `4.19.3`).
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(day) = day(text) {
            return Ok(Self { day });
        }
        let minor: Vec<&str> = text.split('.').take(2).collect();
        let named = minor.join(".");
        let known = BRANCHES.iter().find(|(name, _)| *name == named);
        let newer = || {
            let number = named.strip_prefix("4.")?.parse::<u32>().ok()?;
            (number > 20).then_some(Self::NEWEST)
        };
        known
            .map(|(_, day)| Self { day: *day })
            .or_else(newer)
            .ok_or_else(|| {
                "is neither a release from 4.13 on, such as 4.19, nor the day of the daemon's source, such as \
                 2025-07-22"
                    .to_owned()
            })
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (year, month, day) = (self.day / 10_000, self.day / 100 % 100, self.day % 100);
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

fn day(text: &str) -> Option<u32> {
    let [year, month, day] = text.split('-').collect::<Vec<_>>().try_into().ok()?;
    let number = |part: &str, digits: usize, most: u32| {
        let plain = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
        let number: u32 = part.parse().ok().filter(|_| plain)?;
        (1..=most).contains(&number).then_some(number)
    };
    Some(on(
        number(year, 4, 9999)?,
        number(month, 2, 12)?,
        number(day, 2, 31)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(text: &str) -> Release {
        text.parse().unwrap()
    }

    #[test]
    fn a_release_or_a_day_names_a_daemon() {
        for (text, shown) in [
            ("2025-07-22", "2025-07-22"),
            ("4.19", "2025-04-22"),
            ("4.19.3", "2025-04-22"),
            ("4.99", "2026-08-20"),
        ] {
            assert_eq!(release(text).to_string(), shown, "{text}");
        }
        for text in ["", "4", "4.12", "5.1", "2025-13-01", "2025-7-1", "newest"] {
            assert!(text.parse::<Release>().is_err(), "{text}");
        }
        assert_eq!(Release::default(), Release::NEWEST);
    }

    #[test]
    fn a_day_is_a_moment_too() {
        for day in ["2024-02-29", "2025-03-01", "2026-01-01", "2026-08-20"] {
            let at = crate::time::utc(release(day).seconds());
            assert_eq!(at, format!("{day}T00:00:00Z"));
        }
    }

    #[test]
    fn a_rule_holds_from_its_day_on() {
        let rules = |text| {
            let release = release(text);
            (
                release.ignition_minor(),
                release.sees_enablement(),
                release.force_writes_units(),
                release.asks_for_packages(),
            )
        };
        assert_eq!(rules("2025-03-25"), (4, false, false, false));
        assert_eq!(rules("2025-03-26"), (5, false, false, false));
        assert_eq!(rules("2025-07-22"), (5, true, false, false));
        assert_eq!(rules("2026-02-04"), (5, true, true, false));
        assert_eq!(rules("2026-05-15"), (5, true, true, true));
    }
}
