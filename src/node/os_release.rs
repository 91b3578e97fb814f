//! `os-release`: the name of the system, and its class according to the daemon (docs/develop/agreement.md: Operating system).

use std::collections::BTreeMap;

use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath, skip_obstacle};

/// The assignments of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsRelease {
    values: BTreeMap<String, String>,
    /// The file that was read.
    file: Option<&'static str>,
    /// The reason why an existing file was not read.
    unread: Option<String>,
}

/// `OPENSHIFT_VERSION` of a root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum OpenshiftVersion {
    /// It is there.
    Named {
        /// Its value.
        value: String,
        /// Path of the file.
        file: &'static str,
    },
    /// The file at this path does not name it.
    Without(&'static str),
    /// The reason why the file was not read, including its path.
    Unread(String),
    /// There is no file.
    #[default]
    Missing,
}

/// The class of an operating system, which determines what the daemon does on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// RHCOS, SCOS: images, kernel arguments, extensions and kernel types.
    EnterpriseCoreos,
    /// Another CoreOS, such as Fedora's: images and kernel arguments, but no extensions or kernel types.
    Coreos,
    /// The daemon leaves the operating system alone.
    Other,
}

impl OsRelease {
    /// Parses shell assignments, quoted or not. Other lines are skipped.
    pub fn parse(text: &str) -> Self {
        let pair = |line: &str| {
            let (key, value) = line.trim().split_once('=')?;
            let is_name = key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            (is_name && !key.is_empty()).then(|| (key.to_owned(), strip_quotes(value)))
        };
        Self {
            values: text.lines().filter_map(pair).collect(),
            ..Self::default()
        }
    }

    /// Reads the file of a root; empty if it is missing.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(root: &Root) -> Result<Self, RootError> {
        let mut unread = None;
        for (file, path) in [
            ("/etc/os-release", paths::OS_RELEASE),
            ("/usr/lib/os-release", paths::USR_OS_RELEASE),
        ] {
            let read = root.read(&RootPath::fixed(path));
            unread = unread.or(read.as_ref().err().map(ToString::to_string));
            if let Some(bytes) = skip_obstacle(read)? {
                return Ok(Self {
                    file: Some(file),
                    unread,
                    ..Self::parse(&String::from_utf8_lossy(&bytes))
                });
            }
        }
        Ok(Self {
            unread,
            ..Self::default()
        })
    }

    /// Returns the OpenShift release that the system names.
    pub fn openshift_version(&self) -> OpenshiftVersion {
        match (self.get("OPENSHIFT_VERSION"), self.file, &self.unread) {
            ("", _, Some(why)) => OpenshiftVersion::Unread(why.clone()),
            ("", Some(file), None) => OpenshiftVersion::Without(file),
            (value, Some(file), _) => OpenshiftVersion::Named {
                value: value.to_owned(),
                file,
            },
            (_, None, _) => OpenshiftVersion::Missing,
        }
    }

    /// Returns the value of a key; empty if it is missing.
    pub fn get(&self, key: &str) -> &str {
        self.values.get(key).map_or("", String::as_str)
    }

    /// Returns the name of the system, as text.
    pub fn name(&self) -> &str {
        match self.get("PRETTY_NAME") {
            "" => self.get("ID"),
            name => name,
        }
    }

    /// Returns true for an Enterprise Linux 8, whose sshd reads `authorized_keys` but no fragments.
    pub fn is_el8(&self) -> bool {
        // On CoreOS, `VERSION_ID` is that of OpenShift, and the second part of `VERSION` is that of its base.
        let base = match self.get("RHEL_VERSION") {
            "" if self.get("ID") == "rhcos" => self.get("VERSION").split('.').nth(1),
            "" => Some(self.get("VERSION_ID")),
            version => Some(version),
        };
        let is_el = ["rhcos", "scos", "rhel", "centos"].contains(&self.get("ID"));
        is_el && base.is_some_and(|base| base.starts_with('8'))
    }

    /// Returns the major version of Enterprise Linux by the daemon's test; `None` for any other system.
    ///
    /// The daemon's test fails for an old CoreOS without `RHEL_VERSION`. The base in its version is then used: `9` for
    /// `418.94.202501`.
    pub fn el_major(&self) -> Option<u32> {
        let version = self.el_version();
        let is_el = ["rhcos", "scos", "rhel", "centos"].contains(&self.get("ID"));
        match version.split_once('.') {
            // The daemon accepts a version without a dot from any system.
            None if matches!(version.as_str(), "9" | "10") => version.parse().ok(),
            Some((major, _)) if is_el && matches!(major, "8" | "9" | "10" | "11") => {
                major.parse().ok()
            }
            _ if self.class() == Class::EnterpriseCoreos => self.base_of_version(),
            _ => None,
        }
    }

    /// Returns the version that the daemon takes for that of Enterprise Linux.
    fn el_version(&self) -> String {
        let openshift = self.get("OPENSHIFT_VERSION").replace('.', "");
        match (self.get("RHEL_VERSION"), openshift.as_str()) {
            ("", "") => self.get("VERSION_ID").to_owned(),
            ("", openshift) => {
                let prefix = format!("{openshift}.");
                let version = self.get("VERSION");
                version.strip_prefix(&prefix).unwrap_or(version).to_owned()
            }
            (version, _) => version.to_owned(),
        }
    }

    /// Returns the major version in the second part of a version such as `418.94.202501`, `419.9.2025` or `420.100.2025`.
    fn base_of_version(&self) -> Option<u32> {
        let base = self.get("VERSION").split('.').nth(1)?;
        let major = base.get(..if base.starts_with('1') { 2 } else { 1 })?;
        major.parse().ok().filter(|major| (8..=11).contains(major))
    }

    /// Returns the short name of the system, such as `RHCOS 9.6`.
    pub fn short_name(&self) -> String {
        let name = match (self.get("ID"), self.get("VARIANT_ID")) {
            ("rhcos", _) | ("rhel", "coreos") => "RHCOS",
            ("scos", _) | ("centos", "coreos") => "SCOS",
            ("fcos" | "fedora-coreos", _) | ("fedora", "coreos") => "FCOS",
            _ => match self.get("NAME") {
                "" => self.get("ID"),
                name => name,
            },
        };
        [name, self.get("VERSION_ID")].join(" ").trim().to_owned()
    }

    /// Returns the class of the system according to the daemon.
    pub fn class(&self) -> Class {
        let coreos = self.get("VARIANT_ID") == "coreos";
        match self.get("ID") {
            "rhcos" | "scos" => Class::EnterpriseCoreos,
            "rhel" | "centos" if coreos => Class::EnterpriseCoreos,
            _ if coreos => Class::Coreos,
            _ => Class::Other,
        }
    }
}

/// Returns the value without quotes, and without backslash escapes in double quotes.
fn strip_quotes(value: &str) -> String {
    let value = value.trim();
    if let Some(inner) = value
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''))
    {
        return inner.to_owned();
    }
    let inner = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let (mut text, mut escaped) = (String::new(), false);
    for letter in inner.unwrap_or(value).chars() {
        if letter == '\\' && !escaped {
            escaped = true;
            continue;
        }
        escaped = false;
        text.push(letter);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_without_quotes() {
        let text = "NAME=\"Some \\\"OS\\\"\"\nID='x'\n# ID=y\nVERSION_ID=13\nbroken line\n";
        let read = OsRelease::parse(text);
        assert_eq!(read.get("NAME"), "Some \"OS\"");
        assert_eq!(
            (read.get("ID"), read.get("VERSION_ID"), read.get("none")),
            ("x", "13", "")
        );
        assert_eq!(read.name(), "x");
    }

    #[test]
    fn the_class_is_the_daemons() {
        for (text, class) in [
            ("ID=rhcos", Class::EnterpriseCoreos),
            ("ID=\"scos\"\nVARIANT_ID=coreos", Class::EnterpriseCoreos),
            ("ID=rhel\nVARIANT_ID=coreos", Class::EnterpriseCoreos),
            ("ID=rhel", Class::Other),
            ("ID=fedora\nVARIANT_ID=coreos", Class::Coreos),
            ("ID=fedora\nVARIANT_ID=server", Class::Other),
            ("", Class::Other),
        ] {
            assert_eq!(OsRelease::parse(text).class(), class, "{text}");
        }
    }

    #[test]
    fn enterprise_linux_8_is_recognized_by_its_base() {
        for (text, is) in [
            ("ID=rhcos\nVERSION_ID=4.12\nRHEL_VERSION=8.6\n", true),
            ("ID=rhcos\nVERSION=412.86.202301-0\nVERSION_ID=4.12\n", true),
            (
                "ID=rhcos\nVERSION=418.94.202501-0\nVERSION_ID=4.18\n",
                false,
            ),
            ("ID=rhcos\nVERSION_ID=9.6\nRHEL_VERSION=9.6\n", false),
            ("ID=rhel\nVERSION_ID=8.10\n", true),
            ("ID=scos\nVERSION_ID=10\n", false),
            ("ID=fedora\nVERSION_ID=8\n", false),
            ("", false),
        ] {
            assert_eq!(OsRelease::parse(text).is_el8(), is, "{text}");
        }
    }

    #[test]
    fn the_major_version_is_that_of_the_base() {
        for (text, major) in [
            (
                "ID=rhel\nVARIANT_ID=coreos\nVERSION_ID=10.2\nOPENSHIFT_VERSION=5.0\nVERSION=50.10.2.2026-0\n",
                Some(10),
            ),
            ("ID=rhel\nVERSION_ID=9.4\n", Some(9)),
            ("ID=scos\nVERSION_ID=9\n", Some(9)),
            // The daemon accepts a version without a dot from any system.
            ("ID=debian\nVERSION_ID=10\n", Some(10)),
            ("ID=debian\nVERSION_ID=10.1\n", None),
            ("ID=rhcos\nVERSION_ID=4.12\nRHEL_VERSION=8.6\n", Some(8)),
            (
                "ID=rhcos\nVERSION=418.94.202501-0\nVERSION_ID=4.18\n",
                Some(9),
            ),
            (
                "ID=scos\nVERSION=419.9.202505-0\nVERSION_ID=4.19\n",
                Some(9),
            ),
            (
                "ID=rhcos\nVERSION=422.100.202601-0\nVERSION_ID=4.22\n",
                Some(10),
            ),
            (
                "ID=rhel\nVERSION=9.6.20250611-0\nVERSION_ID=9.6\nRHEL_VERSION=9.6\n",
                Some(9),
            ),
            ("ID=centos\nVERSION_ID=10\n", Some(10)),
            ("ID=scos\nVERSION_ID=10\n", Some(10)),
            ("ID=fedora\nVERSION_ID=42\n", None),
            ("ID=rhel\n", None),
            ("", None),
        ] {
            assert_eq!(OsRelease::parse(text).el_major(), major, "{text}");
        }
    }
}
