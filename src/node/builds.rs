//! Build dates of a node's parts, derived from their versions: of the running OS, and of the image that the disk was
//! provisioned from.

use serde_json::Value;

use super::os_release::OsRelease;
use crate::base::time::days_since_epoch;
use crate::host::root::{Root, RootError, RootPath};

/// Files that the boot image's installer leaves, the older name last.
const ALEPH: [&str; 4] = [
    "sysroot/.aleph-version.json",
    "sysroot/.coreos-aleph-version.json",
    ".aleph-version.json",
    ".coreos-aleph-version.json",
];
/// Keys of os-release that can contain the full version, best first.
const VERSIONS: [&str; 4] = ["OSTREE_VERSION", "IMAGE_VERSION", "VERSION", "BUILD_ID"];

/// A build of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// The file with the version.
    pub place: String,
    /// The version.
    pub version: String,
    /// Date in the version, in seconds since 1970.
    pub day: u64,
}

/// The known builds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Builds {
    /// The OS of the root.
    pub os: Option<Build>,
    /// The image that the disk was provisioned from.
    pub boot_image: Option<Build>,
}

/// Reads the builds of OS and boot image.
///
/// # Errors
/// A file cannot be read.
pub fn read_builds(root: &Root) -> Result<Builds, RootError> {
    let release = OsRelease::read(root)?;
    let version = VERSIONS.iter().map(|key| release.get(key));
    let mut os = version.filter_map(|version| read_build("/etc/os-release", version));
    let mut builds = Builds {
        os: os.next(),
        boot_image: None,
    };
    for file in ALEPH {
        let Some(bytes) = root.read(&RootPath::fixed(file))? else {
            continue;
        };
        let told: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let version = ["version", "build"].iter().find_map(|key| told.get(key));
        let version = version.and_then(Value::as_str).unwrap_or_default();
        builds.boot_image = read_build(&format!("/{file}"), version);
        break;
    }
    Ok(builds)
}

fn read_build(place: &str, version: &str) -> Option<Build> {
    Some(Build {
        place: place.to_owned(),
        version: version.to_owned(),
        day: day_of(version)?,
    })
}

/// Returns the date in a version such as `418.94.202501300131-0`, `9.6.20250701-0` or `39.20231101.3.0`; seconds since 1970.
fn day_of(version: &str) -> Option<u64> {
    let mut parts = version.split(|c: char| !c.is_ascii_digit());
    parts.find_map(|part| {
        let number = |from: usize, to: usize| part.get(from..to)?.parse::<i64>().ok();
        let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
        let is_date = (2015..2100).contains(&year) && (1..13).contains(&month);
        let is_date = is_date && (1..32).contains(&day);
        let days = is_date.then(|| days_since_epoch(year, month, day))?;
        u64::try_from(days).ok()?.checked_mul(86_400)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::format_utc;

    #[test]
    fn versions_name_their_day() {
        for (version, day) in [
            ("418.94.202501300131-0", "2025-01-30T00:00:00Z"),
            ("9.6.20250701-0", "2025-07-01T00:00:00Z"),
            ("39.20231101.3.0", "2023-11-01T00:00:00Z"),
        ] {
            assert_eq!(
                day_of(version).map(format_utc).as_deref(),
                Some(day),
                "{version}"
            );
        }
        for version in ["", "9.6", "418.94.299999999999-0", "12345678"] {
            assert_eq!(day_of(version), None, "{version}");
        }
    }
}
